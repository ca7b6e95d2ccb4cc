"""What the demonstration names at its end works on what it left."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from examples.orders import next_steps as module
from examples.orders.next_steps import commands, next_steps
from examples.orders.turns import Life

LIVES = {"2": Life("processed", 1, 2), "3": Life("compensated", 1, 2), "4": Life("compensated", 1, 2)}


def test_the_commands_name_the_first_order_that_was_undone() -> None:
    lines = [line.partition("    #")[0] for line in commands("sqlite:///x.db", LIVES)]
    assert lines == [
        "export ARRIERO_STORE=sqlite:///x.db",
        "arriero task list --state compensated",
        "arriero history 3",
        "arriero task show 3",
        "arriero doctor",
    ]


def test_without_an_undone_order_none_is_named() -> None:
    assert not [line for line in commands("sqlite:///x.db", {"2": LIVES["2"]}) if "history" in line]


def test_a_password_is_not_printed() -> None:
    assert "s3cret" not in "".join(next_steps("postgresql://ana:s3cret@host/db", LIVES))


def test_where_nothing_was_kept_it_says_how_to_keep_it() -> None:
    text = "\n".join(next_steps(None, {}))
    assert "demo --keep FOLDER" in text
    assert "docs/tutorial.md" in text


def test_they_name_the_program_as_it_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys, "argv", [".venv/bin/arriero", "demo"])
    assert ".venv/bin/arriero doctor" in "\n".join(next_steps("sqlite:///x.db", LIVES))


@pytest.fixture
def folder_on_disk() -> Iterator[Path]:
    """Tests' temporary folders may be in memory, and of a store there `arriero doctor` says that it needs care."""
    with TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.mark.acceptance
def test_each_command_works_on_what_the_demo_left(folder_on_disk: Path) -> None:
    arriero = Path(sys.executable).parent / "arriero"
    options = ["--orders", "60", "--kills", "0", "--keep", "kept"]
    done = subprocess.run([arriero, "demo", *options], cwd=folder_on_disk, capture_output=True, text=True, check=True)
    named = [line.strip() for line in done.stdout.splitlines() if line.startswith("  ") and "    # " in line]
    export = next(line.strip() for line in done.stdout.splitlines() if line.strip().startswith("export "))
    assert len(named) >= 2
    for line in named:
        shell = f"{export}; {line}"
        told = subprocess.run(["bash", "-c", shell], cwd=folder_on_disk, capture_output=True, text=True, check=False)
        assert (told.returncode, told.stderr) == (0, ""), shlex.join([line, told.stdout, told.stderr])
