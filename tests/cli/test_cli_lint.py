"""`arriero lint`: what it prints, its exit codes, and the shops of the examples and the pages."""

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_calls import APP, Call, arriero

from arriero import Workflow
from arriero.lint import find_hazards

ROOT = Path(__file__).parents[2]
SHOP = """\
import time
from arriero import App

app = App("hasty")


def stamp() -> float:
    return time.time()


@app.workflow
async def one() -> float:
    return stamp()


@app.workflow
async def two() -> float:
    return time.time()  # arriero: allow only printed
"""
FOUND = (
    "hasty.py:8:12: workflow one, through stamp: time.time reads a clock, which has moved when arriero runs the code again;"
    " use arriero.now()"
)


@pytest.fixture
def hasty(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder with an App whose workflows read the clock."""
    path = shop / "hasty.py"
    path.write_text(SHOP)
    yield path
    sys.modules.pop("hasty", None)


def test_a_finding_is_one_line_and_the_exit_code_is_1(call: Call, hasty: Path) -> None:
    answered = call("lint", "hasty:app")
    assert (answered.exit_code, answered.stderr) == (1, "")
    assert answered.stdout.splitlines() == [FOUND, "2 workflows, 3 functions: 1 finding, 1 accepted"]


def test_json_has_the_parts_of_each_finding(call: Call, hasty: Path) -> None:
    answered = call("lint", "hasty:app", "--json")
    assert answered.exit_code == 1
    report = json.loads(answered.stdout)
    assert {name: report[name] for name in ("workflows", "functions", "allowed", "unread")} == {
        "workflows": 2,
        "functions": 3,
        "allowed": 1,
        "unread": [],
    }
    assert report["findings"] == [
        {
            "path": "hasty.py",
            "line": 8,
            "column": 12,
            "workflows": ["one"],
            "through": ["stamp"],
            "calls": "time.time",
            "fact": "reads a clock, which has moved when arriero runs the code again",
            "instead": "use arriero.now()",
        }
    ]


def test_the_app_may_be_that_of_the_settings_and_a_clean_one_exits_with_0(call: Call, shop: Path) -> None:
    (shop / "arriero.toml").write_text(f'app = "{APP}"\n')
    answered = call("lint")
    assert (answered.exit_code, answered.stderr) == (0, "")
    assert answered.stdout.endswith(": nothing was found\n")


def test_an_app_that_cannot_be_loaded_exits_with_2(call: Call) -> None:
    answered = call("lint", "nothing:app")
    assert answered.exit_code == 2
    assert answered.stderr.startswith("arriero: there is no module 'nothing'")
    assert call("lint").stderr.startswith("arriero: no App is named: type `arriero lint MODULE:APP`")


def test_code_that_cannot_be_read_is_named_and_does_not_change_the_exit_code(call: Call, hasty: Path) -> None:
    hasty.write_text(
        "from arriero import App\napp = App('a')\nexec('async def made() -> None: ...')\napp.workflow(made)\n"
    )
    answered = call("lint", "hasty:app")
    assert answered.exit_code == 0
    assert answered.stderr == "arriero: not read: workflow made: its source cannot be read: <string>\n"
    assert answered.stdout == "1 workflow, 0 functions: nothing was found; 1 workflow was not read in full\n"
    assert json.loads(call("lint", "hasty:app", "--json").stdout)["unread"][0]["workflow"] == "made"


def test_other_languages_and_encodings_of_terminal_and_file(shop: Path) -> None:
    text = SHOP.replace("stamp", "größe").replace("import time", "# coding: latin-1\nimport time", 1)
    (shop / "hasty.py").write_text(text, encoding="latin-1")
    answered = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-m", "arriero", "lint", "hasty:app"],
        env={**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (answered.returncode, answered.stderr) == (1, b"")
    assert answered.stdout.startswith(b"hasty.py:9:12: workflow one, through gr")


def test_the_decorators_warnings_are_not_printed_beside_the_findings(shop: Path) -> None:
    (shop / "hasty.py").write_text(SHOP.replace("stamp()\n", "time.time()\n"))
    assert arriero(shop, "lint", "hasty:app").stderr == ""


# --- the shops of the examples and of the pages
BLOCK = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DECLARES = re.compile(r"^@(\w+\.)?workflow\b", re.MULTILINE)
EXAMPLES = sorted(path for path in (ROOT / "examples").rglob("*.py") if DECLARES.search(path.read_text()))
PAGES = sorted(
    page
    for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    if page.name != "lint.md" and any(DECLARES.search(block[2]) for block in BLOCK.finditer(page.read_text()))
)


def lint_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lint the workflows that a file declares, imported as a program of its folder is."""
    monkeypatch.syspath_prepend(str(path.parent))
    before = dict(sys.modules)
    siblings = {one.stem for one in path.parent.glob("*.py")}
    for name in siblings & set(sys.modules):
        del sys.modules[name]
    try:
        is_package = "\nfrom ." in path.read_text()
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts) if is_package else path.stem
        module = importlib.import_module(name)
        declared = [one for one in vars(module).values() if isinstance(one, Workflow)]
        report = find_hazards([(one.name, one.function) for one in declared])
    finally:
        for name in siblings:
            sys.modules.pop(name, None)
            if name in before:
                sys.modules[name] = before[name]
    assert declared
    assert report.unread == ()
    return [f"{one.path}:{one.line}: {one.calls}" for one in report.findings]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_example_is_clean(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lint_file(path, monkeypatch) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_programs_of_a_page_are_clean(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in BLOCK.finditer(page.read_text()):
        (tmp_path / block[1]).write_text(block[2])
    for path in sorted(tmp_path.glob("*.py")):
        text = path.read_text()
        if DECLARES.search(text) and ast.parse(text):
            assert lint_file(path, monkeypatch) == []
