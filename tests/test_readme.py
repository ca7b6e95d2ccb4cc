"""The README's front page program is the one in examples/quickstart, and prints what the README says."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import psycopg
import pytest

from arriero import __version__
from test_docs import Reader
from test_docs import blocks as blocks_of

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
QUICKSTART = ROOT / "examples" / "quickstart" / "quickstart.py"


def blocks(language: str) -> list[str]:
    """The README's code blocks in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def without_keys(output: str) -> str:
    """Idempotency keys differ from store to store."""
    return re.sub(r"\b[0-9a-f]{32}\b", "KEY", output)


def run_quickstart(folder: Path) -> str:
    command = [sys.executable, "-W", "error", str(QUICKSTART)]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert (told.returncode, told.stderr) == (0, "")
    return told.stdout


def test_the_readme_shows_the_quickstart_as_it_is() -> None:
    assert blocks("python") == [QUICKSTART.read_text(encoding="utf-8")]


def test_the_quickstart_prints_what_the_readme_says(tmp_path: Path) -> None:
    (promised,) = blocks("text")
    assert without_keys(run_quickstart(tmp_path)) == without_keys(promised)


def test_a_second_run_finds_the_same_tasks_and_does_nothing_twice(tmp_path: Path) -> None:
    run_quickstart(tmp_path)
    assert run_quickstart(tmp_path).splitlines() == ["1001 receipt-1001", "1002 undone: out of stock"]


@pytest.mark.acceptance
def test_the_commands_for_postgresql_do_what_the_readme_says(tmp_path: Path) -> None:
    shutil.copy(QUICKSTART, tmp_path)
    reader = Reader(ROOT / "README.md", tmp_path)
    try:
        reader.start_server()
        assert reader.server is not None
        url = reader.server.create_database("arriero")
        (commands,) = [block for block in blocks_of(ROOT / "README.md") if block.language == "console"]
        reader.type(commands.text, "README.md")
        for order in "1001", "1002":
            reader.type(
                "$ arriero submit quickstart:shop fulfil --wait --task-id ORDER"
                """ --arguments '{"order": {"id": "ORDER", "pieces": 2}}'\n""".replace("ORDER", order)
                + f'task {order} is processed: "receipt-{order}" (it existed before)\n',
                "README.md",
            )
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT count(*) FROM arriero.task").fetchone() == (2,)
    finally:
        reader.leave()


def test_no_front_page_repeats_the_version_or_a_system_that_is_not_supported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "Operating System :: POSIX" in project["classifiers"]
    for name in ("README.md", "SECURITY.md", "ARCHITECTURE.md", "pyproject.toml"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert (
            re.findall(rf"(?:arriero|This is) \d+\.\d+\.\d+|\b{re.escape(__version__)}\b.*alpha|on Windows", text) == []
        ), name


def test_the_security_page_names_each_provider_of_leases_that_a_process_connects_to() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8").lower()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    providers = {path.stem for path in (ROOT / "src/arriero/leases").glob("*.py")} & set(extras)
    assert len(providers) > 2
    assert [name for name in providers if name not in page] == []


def test_every_link_to_a_file_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), *ROOT.glob("bench/*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
