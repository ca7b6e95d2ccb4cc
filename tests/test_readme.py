"""The README's front page program is the one in examples/quickstart, and prints what the README says."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from arriero import __version__

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
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_the_readme_shows_the_quickstart_as_it_is() -> None:
    assert blocks("python") == [QUICKSTART.read_text(encoding="utf-8")]


def test_the_quickstart_prints_what_the_readme_says(tmp_path: Path) -> None:
    (promised,) = blocks("text")
    assert without_keys(run_quickstart(tmp_path)) == without_keys(promised)


def test_a_second_run_finds_the_same_tasks_and_does_nothing_twice(tmp_path: Path) -> None:
    run_quickstart(tmp_path)
    assert run_quickstart(tmp_path).splitlines() == ["1001 receipt-1001", "1002 undone: out of stock"]


def test_the_readme_has_at_most_150_lines() -> None:
    assert len(README.splitlines()) <= 150


def test_the_sdist_holds_every_file_that_the_readme_links_to() -> None:
    """No host of the repository is known, so links are relative: they lead somewhere in a clone and in an unpacked sdist."""
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    held = (*targets["sdist"]["only-include"], "LICENSE")
    linked = set(re.findall(r"\]\(([^)#]+)", README))
    assert len(linked) > 20
    assert [link for link in linked if "://" in link or not link.startswith(held)] == []


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
