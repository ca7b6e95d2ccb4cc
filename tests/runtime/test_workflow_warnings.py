"""Files and threads of running workflow code cause a warning, once for each line; what libraries open causes none."""

import asyncio
import io
import logging
import os
import sqlite3
import sys
import threading
import traceback
import warnings
import zoneinfo
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from arriero import Agent, App, testing, workflow
from arriero.core import workflow_warnings

HERE = Path(__file__)
shop = Agent("shop")


@shop.step(effect_free=True)
async def measure(text: str) -> int:
    return len(text)


@pytest.fixture(autouse=True)
def heard() -> Iterator[list[warnings.WarningMessage]]:
    """The warnings of one test, as if no line had caused one before."""
    workflow_warnings._warned.clear()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found


async def run(code: Callable[[], object], *, times: int = 1) -> None:
    """Run a function as workflow code."""

    @workflow
    async def calls() -> int:
        code()
        return await measure("x")

    async with testing.running(App("noticed", agents=[shop], workflows=[calls])) as world:
        for number in range(times):
            assert await (await world.app.submit(calls(), task_id=str(number))).result() == 1


def start_thread() -> None:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()


def use_executor() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()


THREADS = [(start_thread, "_thread.start"), (use_executor, "_thread.start")] if sys.version_info >= (3, 12) else []


@pytest.mark.parametrize(
    ("code", "event"),
    [
        (lambda: open(HERE).close(), "open"),  # noqa: PTH123  # what users write
        (lambda: HERE.read_text(encoding="utf-8"), "open"),
        (lambda: list(HERE.parent.iterdir()), "os."),
        (lambda: os.listdir(HERE.parent), "os.listdir"),  # noqa: PTH208  # what users write
        (lambda: sqlite3.connect(":memory:").close(), "sqlite3.connect"),
        (lambda: os.environ.__setitem__("ARRIERO_UNUSED", "1"), "os.putenv"),
        *THREADS,
    ],
)
async def test_a_file_or_thread_of_workflow_code_causes_a_warning_with_its_line(
    code: Callable[[], object], event: str, heard: list[warnings.WarningMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRIERO_UNUSED", "0")
    await run(code, times=2)
    (one,) = heard
    assert (one.category, one.filename) == (UserWarning, __file__)
    assert str(one.message).startswith(f"workflow code caused {event}")
    assert "move the call into a step" in str(one.message)


def read_zone() -> None:
    zoneinfo.ZoneInfo.no_cache("Europe/Berlin").utcoffset(None)


def print_traceback() -> None:
    try:
        raise ValueError
    except ValueError:
        traceback.print_exc(file=io.StringIO())


def log_to_file() -> None:
    logging.getLogger("noticed").warning("a line")


def import_module() -> None:
    import this_module_is_lazy  # type: ignore[import-not-found]  # written by the test

    assert this_module_is_lazy.value == 1


def read_by_comment() -> None:
    HERE.read_bytes()  # arriero: allow a file of the release, which does not change


@pytest.mark.parametrize("code", [read_zone, print_traceback, log_to_file, import_module, read_by_comment])
async def test_what_imports_time_zones_tracebacks_and_log_handlers_open_causes_none(
    code: Callable[[], object],
    heard: list[warnings.WarningMessage],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "this_module_is_lazy.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    handler = logging.FileHandler(tmp_path / "log", delay=True)
    logging.getLogger("noticed").addHandler(handler)
    try:
        await run(code)
    finally:
        logging.getLogger("noticed").removeHandler(handler)
        handler.close()
    assert [str(one.message) for one in heard] == []


async def test_what_a_step_opens_causes_none(heard: list[warnings.WarningMessage]) -> None:
    @shop.step(effect_free=True)
    async def reads() -> int:
        return len(await asyncio.to_thread(HERE.read_bytes))

    @workflow
    async def calls() -> int:
        return await reads()

    async with testing.running(App("noticed", agents=[shop], workflows=[calls])) as world:
        assert await (await world.app.submit(calls())).result() > 1
    assert heard == []
