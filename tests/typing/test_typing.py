"""What mypy and pyright infer of users' programs, and what they refuse."""

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
API = ROOT.parent / "shared" / "api" / "programs"
Found = dict[int, set[str]]  # codes of errors by line


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def run(arguments: list[str], cwd: Path) -> str:
    done = subprocess.run(arguments, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr  # 2: the checker itself could not work
    return done.stdout


def mypy_errors(program: Path, cache: Path, *options: str) -> Found:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache}", *options]
    found: Found = defaultdict(set)
    for line in run([*command, program.name], program.parent).splitlines():
        if match := re.fullmatch(rf"{re.escape(program.name)}:(\d+): error: .*  \[([a-z-]+)\]", line):
            found[int(match[1])].add(match[2])
        else:
            assert ": note: " in line or re.match(r"Found \d+ errors? in 1 file|Success: ", line), line
    return dict(found)


def pyright_errors(program: Path, tmp_path: Path, **options: str) -> Found:
    config = {"include": [str(program)], "extraPaths": [str(program.parent)], "typeCheckingMode": "strict", **options}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    checker = Path(sys.executable).with_name("basedpyright")
    text = run(
        [str(checker), "--outputjson", "--level", "error", "--pythonpath", sys.executable, "-p", str(tmp_path)], ROOT
    )
    found: Found = defaultdict(set)
    for one in json.loads(text)["generalDiagnostics"]:
        assert Path(one["file"]) == program
        if one["severity"] == "error":
            found[one["range"]["start"]["line"] + 1].add(one["message"])
    return dict(found)


def to_be_refused(program: Path) -> Found:
    """Lines marked ``# refused: CODE, ...`` with the codes of mypy, one of which it must give."""
    lines = program.read_text().splitlines()
    marks = ((number, re.search(r"# refused: ([a-z, -]+)$", line)) for number, line in enumerate(lines, 1))
    return {number: set(mark[1].split(", ")) for number, mark in marks if mark}


def test_mypy_infers_what_the_api_promises(cache: Path) -> None:
    assert mypy_errors(PROGRAMS / "inferred.py", cache, "--warn-unused-ignores") == {}


def test_pyright_infers_what_the_api_promises(tmp_path: Path) -> None:
    assert pyright_errors(PROGRAMS / "inferred.py", tmp_path) == {}


def test_mypy_refuses_what_is_wrong_and_nothing_else(cache: Path) -> None:
    program = PROGRAMS / "refused.py"
    wanted, found = to_be_refused(program), mypy_errors(program, cache)
    assert wanted
    assert found.keys() == wanted.keys()
    assert {number: codes for number, codes in found.items() if not codes & wanted[number]} == {}


def test_pyright_refuses_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    program = PROGRAMS / "refused.py"
    assert pyright_errors(program, tmp_path).keys() == to_be_refused(program).keys()


def test_mypy_finds_a_forgotten_await(cache: Path) -> None:
    program = PROGRAMS / "forgotten_await.py"
    assert mypy_errors(program, cache, "--enable-error-code=unused-awaitable") == to_be_refused(program)


def test_pyright_finds_a_forgotten_await(tmp_path: Path) -> None:
    """Its own rule for coroutines knows only those of ``async def``; the one for any unused value finds them."""
    program = PROGRAMS / "forgotten_await.py"
    assert pyright_errors(program, tmp_path, reportUnusedCallResult="error").keys() == to_be_refused(program).keys()


# The programs that were written before the library. Those that need packages this repository does not install
# (Flask, FastAPI, SQLAlchemy) are left out.
NAMES = ["readme.py", "shop.py", "test_shop.py", "nightly.py"]
needs_programs = pytest.mark.skipif(not API.is_dir(), reason="the programs beside the repository are not here")


@needs_programs
def test_mypy_takes_the_programs_the_api_was_designed_with_and_gives_their_types(cache: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache / 'api'}"]
    text = run([*command, *NAMES], API)
    assert ": error: " not in text, text
    revealed = [
        line.split("Revealed type is ")[1].strip('"')
        for line in text.splitlines()
        if line.startswith("shop.py:") and "Revealed type" in line
    ]
    assert [text.removeprefix("builtins.").replace("builtins.", "") for text in revealed] == [
        "shop.Receipt",
        "shop.Label",
        "shop.Label",
        "list[str]",
        "arriero.client.task.Task[shop.Receipt]",
        "arriero.client.task.Task[list[str]]",
    ]


@needs_programs
def test_pyright_takes_the_programs_the_api_was_designed_with(tmp_path: Path) -> None:
    config = {"include": [str(API / name) for name in NAMES], "extraPaths": [str(API)], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    checker = Path(sys.executable).with_name("basedpyright")
    command = [str(checker), "--outputjson", "--level", "error", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    report = json.loads(run(command, ROOT))
    assert report["summary"]["filesAnalyzed"] == len(NAMES)
    found = report["generalDiagnostics"]
    assert [(one["file"], one["message"]) for one in found if one["severity"] == "error"] == []
