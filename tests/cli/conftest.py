"""A folder with the App in it, the command line called in this process, and `arriero run` in another."""

import asyncio
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import cli_calls
import pytest
from cli_calls import Call, Run, disk_usage
from click.testing import CliRunner, Result

from arriero import TaskFailed
from arriero.cli.main import commands
from arriero.store.sqlite import inspection


@pytest.fixture
def healthy_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with which `arriero doctor` is content, whatever this one is like."""
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/sda1 / ext4 rw 0 0\n")
    monkeypatch.setattr(inspection, "MOUNTS", mounts)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disk_usage(total=10**12, free=9 * 10**11))


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the App's module in it."""
    shutil.copy(Path(cli_calls.__file__).with_name("shopfront.py"), tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "shopfront", raising=False)
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    return tmp_path


@pytest.fixture
def call(shop: Path) -> Call:
    """The command line in this process: arguments in, result out."""

    def invoke(*arguments: str, given: str | bytes = "") -> Result:
        return CliRunner().invoke(commands, list(arguments), input=given)

    return invoke


@pytest.fixture
def sold(call: Call) -> Call:
    """The command line on a store in which four tasks have happened and one sleeps."""
    from shopfront import Order, app, buggy, charge, fulfil, later

    async def sell() -> None:
        async with app.running():
            for task_id, work in (
                ("processed", fulfil(Order("a"))),
                ("compensated", fulfil(Order("b", pieces=11))),
                ("unrefundable", fulfil(Order("unrefundable", pieces=11))),
                ("buggy", buggy(Order("c"))),
                ("step", charge(Order("d"))),
            ):
                task = await app.submit(work, task_id=task_id)
                with suppress(TaskFailed):
                    await task.result()
            await app.submit(later(Order("e")), task_id="later", priority=9)

    asyncio.run(sell())
    return call


@pytest.fixture
def start(shop: Path) -> Iterator[Callable[..., Run]]:
    """Start `arriero run`; it is gone when the test is."""
    runs: list[Run] = []

    def begin(*options: str, **more: Any) -> Run:
        runs.append(Run(shop, *options, **more))
        return runs[-1]

    yield begin
    for run in runs:
        run.close()
