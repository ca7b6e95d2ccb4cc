"""Where code is loaded from: no file of a folder that a process may write takes the place of a module."""

import os
import re
import subprocess
import sys
from pathlib import Path

import cli_calls
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = Path(sys.executable).with_name(
    "arriero"
)  # as users start it; `python -m` puts the current directory first itself
SECONDS_MAX = 60
PLANTED = "open({marker!r}, 'a').write({name!r}); raise SystemExit('planted code ran')"
# Loaded late by the command line, by its children and by their libraries, and by every one of them.
NAMES = (
    "asyncio",
    "ctypes",
    "getpass",
    "graphlib",
    "importlib_metadata",
    "signal",
    "sqlite3",
    "subprocess",
    "uuid",
    "zoneinfo",
)
APP = """
from arriero import Agent, App, Attempt, workflow

agent = Agent("press")

@agent.step(run_in="process")
def press(attempt: Attempt, text: str) -> str:
    return text.upper()

@workflow
async def publish(text: str) -> str:
    return await press(text)

app = App("paper", agents=[agent], workflows=[publish], store="memory://")
"""
PROGRAM = """
import asyncio
from paper import app, publish

async def main() -> None:
    async with app.running():
        print(await (await app.submit(publish("news"))).result(60))

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A folder with files that are named like modules; each leaves a trace if it is loaded."""
    folder = tmp_path / "writable"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(PLANTED.format(marker=str(tmp_path / "trace"), name=name))
    return folder


def run(command: list[str | Path], folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ARRIERO_", "PYTHON"))}
    return subprocess.run(
        command, cwd=folder, env=kept | variables, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )


def test_with_safe_path_the_current_directory_holds_no_code(planted: Path, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "shopfront.py").write_bytes(Path(cli_calls.__file__).with_name("shopfront.py").read_bytes())
    safe = {"PYTHONSAFEPATH": "1", "ARRIERO_APP": "shopfront:app", "ARRIERO_STORE": f"sqlite:///{planted}/store.db"}
    given = ["--arguments", cli_calls.order("1"), "--task-id", "1"]
    ran = run([SCRIPT, "submit", "shopfront:app", "fulfil", *given], planted, PYTHONPATH=str(code), **safe)
    assert ran.returncode == 0, ran.stderr
    without = run([SCRIPT, "submit", "shopfront:app", "fulfil", *given], planted, **safe)
    assert without.returncode == 2
    assert "PYTHONSAFEPATH is set: name its folder in PYTHONPATH" in without.stderr
    assert not (tmp_path / "trace").exists()


def test_child_processes_of_steps_take_no_code_from_the_current_directory(planted: Path, tmp_path: Path) -> None:
    (tmp_path / "paper.py").write_text(APP)
    program = tmp_path / "main.py"
    program.write_text(PROGRAM)
    ran = run([sys.executable, program], planted)
    assert (ran.stdout, ran.returncode) == ("NEWS\n", 0), ran.stderr
    assert not (tmp_path / "trace").exists()


def test_lead_takes_no_code_from_the_current_directory(planted: Path, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    ran = run([SCRIPT, "lead", "importer", "--", "echo", "leads"], planted, ARRIERO_STORE=store)
    assert (ran.stdout, ran.returncode) == ("leads\n", 0), ran.stderr
    assert not (tmp_path / "trace").exists()


def list_units() -> dict[str, str]:
    """The units of systemd that the repository shows, by where they are."""
    units = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "deploy").rglob("*.service")}
    for page in (ROOT / "docs").rglob("*.md"):
        for number, block in enumerate(re.findall(r"```ini\n(.*?)```", page.read_text(), re.DOTALL)):
            if "[Service]" in block:
                units[f"{page.name} {number}"] = block
    return units


@pytest.mark.parametrize("unit", [pytest.param(text, id=name) for name, text in list_units().items()])
def test_a_unit_takes_no_code_from_a_folder_that_it_may_write(unit: str) -> None:
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and line[0] != "#")
    variables = dict(re.findall(r"(?:^Environment=| )(PYTHON\w+)=(\S+)", unit, re.MULTILINE))
    assert variables["PYTHONSAFEPATH"] == "1"
    written = [f"/var/lib/{settings['StateDirectory']}"] if "StateDirectory" in settings else []
    for folder in (settings["WorkingDirectory"], *variables.get("PYTHONPATH", "").split(":")):
        assert not folder.startswith((*written, "/tmp", "/run", "/var")), folder


def test_the_image_takes_no_code_from_a_folder_that_it_may_write() -> None:
    dockerfile = (ROOT / "deploy" / "docker" / "Dockerfile").read_text()
    last = dockerfile.rpartition("\nFROM ")[2]
    assert "PYTHONSAFEPATH=1 PYTHONPATH=/app " in last
    assert re.findall(r"^WORKDIR (.*)$", last, re.MULTILINE) == ["/app"]
    assert "install -d -m 0755 /app" in last
