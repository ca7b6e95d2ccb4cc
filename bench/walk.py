"""Counts how far four ways lead through the code: modules, calls, changes of module. `python bench/walk.py`

It counts with ``sys.setprofile`` in every thread, on SQLite, and times nothing. The ways:

- ``submit``: a client calls its workflow and ``App.submit``, until that returns because the task is acknowledged.
- ``begin``: the same in a process that runs the App, until the first line of the first step's function there.
- ``next``: from the last line of that function to the first line of the next step's.
- ``pause``: the command ``arriero task pause``, from its arguments to its exit code, in this process.

A call is a call of a function, lambda, generator or coroutine of arriero. A coroutine counts once however often it is
resumed. Comprehensions and generator expressions do not count: newer Pythons inline some of them. Code of the standard
library, msgspec and click does not count. The modules are those whose functions were called. A call changes the module if
the nearest function of arriero below it on the stack stands in another module; so does a call by the event loop or a thread.

A way ends in the thread that comes to its end. In the store's thread, which goes on, it ends with the last answer to the
event loop.

Each way is taken ``TURNS`` times after a warm-up that fills the caches. Polls, renewals and checks by the clock count where
they fall into a way. Ways take milliseconds, so several meet none of them: the way with the fewest calls is shown.
"""

import asyncio
import dis
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

import click

import arriero
from arriero import Agent, App, Attempt, workflow
from arriero.cli.main import commands

PACKAGE = str(Path(arriero.__file__).parent) + os.sep
TURNS = 40
WARM_UP_TURNS = 5
SETTLE_SECONDS = 0.001  # until what the way before has left is done
ANSWER_LOOP = asyncio.BaseEventLoop.call_soon_threadsafe.__code__
IMPORT_TURNS = 11
IMPORT_RATIO_MAX = 2.0
NO_FUNCTIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<module>")


class Goal(NamedTuple):
    """The most modules and calls that a way may take."""

    modules: int
    calls: int


GOALS = {"submit": Goal(17, 80), "begin": Goal(29, 190), "next": Goal(25, 150), "pause": Goal(28, 350)}


class Call(NamedTuple):
    """One call: the function, its module, and the module of the caller; empty: the event loop or a thread."""

    module: str
    function: str
    caller: str


Way = list[Call]


class Recorder:
    """The calls of arriero's functions in all threads."""

    def __init__(self) -> None:
        self._is_recording = False
        self._calls: list[tuple[int, Call]] = []  # with the thread of each
        self._answered: dict[int, int] = {}  # by thread: how many calls there were when it last answered an event loop

    def start(self) -> None:
        """Record a new way from now on."""
        self._calls, self._answered = [], {}
        self._is_recording = True

    def stop(self) -> Way:
        """End the way in this thread. In another one that goes on, it ended with the last answer to an event loop."""
        self._is_recording = False
        here, alive = threading.get_ident(), {thread.ident for thread in threading.enumerate()}
        return [
            call
            for number, (thread, call) in enumerate(self._calls)
            if thread == here or thread not in alive or number < self._answered.get(thread, 0)
        ]

    @contextmanager
    def installed(self) -> Iterator[None]:
        """In this thread and in all that begin meanwhile."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if not self._is_recording or event != "call":
            return
        code = frame.f_code
        if code is ANSWER_LOOP:
            self._answered[threading.get_ident()] = len(self._calls)
        elif (module := module_of(code)) and frame.f_lasti in starts_of(code):
            self._calls.append((threading.get_ident(), Call(module, code.co_qualname, caller_of(frame))))


def caller_of(frame: FrameType) -> str:
    """The module of the nearest function of arriero below a frame; empty: there is none."""
    below = frame.f_back
    while below is not None:
        if module := module_of(below.f_code):
            return module
        below = below.f_back
    return ""


@cache
def module_of(code: CodeType) -> str:
    """The module of a function, without the package; empty if it is none of arriero's functions."""
    if not code.co_filename.startswith(PACKAGE) or code.co_name in NO_FUNCTIONS:
        return ""
    return code.co_filename.removeprefix(PACKAGE).removesuffix(".py").replace(os.sep, ".")


@cache
def starts_of(code: CodeType) -> frozenset[int]:
    """Where a function begins. Elsewhere a generator or coroutine is resumed, which RESUME's lower two bits say."""
    instructions = dis.get_instructions(code)
    return frozenset(one.offset for one in instructions if one.opname == "RESUME" and (one.arg or 0) & 3 == 0)


recorder = Recorder()
ways: asyncio.Queue[Way]  # each ends in a step, which puts it here
clerk = Agent("clerk", max_in_flight=100)  # with less room a step is taken from the store later


@clerk.step
async def end_way(attempt: Attempt, text: str) -> str:
    ways.put_nowait(recorder.stop())
    return text


@clerk.step
async def begin_way(attempt: Attempt, text: str) -> str:
    await asyncio.sleep(SETTLE_SECONDS)
    recorder.start()
    return text


@workflow
async def one(text: str) -> str:
    return await end_way(text)


@workflow
async def two(text: str) -> str:
    return await end_way(await begin_way(text))


app = App("walk", agents=[clerk], workflows=[one, two])


async def take_submit(turns: int) -> list[Way]:
    """The ways of a client's submissions, until each is acknowledged."""
    taken = []
    async with app:
        for _ in range(turns):
            await asyncio.sleep(SETTLE_SECONDS)
            recorder.start()
            await app.submit(one("text"))
            taken.append(recorder.stop())
    return taken


async def take_begin(turns: int) -> list[Way]:
    """The ways of submissions until their first attempts begin in the same process."""
    global ways
    ways, taken = asyncio.Queue(), []
    async with app.running():
        for _ in range(turns):
            await asyncio.sleep(SETTLE_SECONDS)
            recorder.start()
            task = await app.submit(one("text"))
            taken.append(await ways.get())
            await task.result()
    return taken


async def take_next(turns: int) -> list[Way]:
    """The ways of results until the attempts of the next steps begin."""
    global ways
    ways, taken = asyncio.Queue(), []
    async with app.running():
        for _ in range(turns):
            task = await app.submit(two("text"))
            taken.append(await ways.get())
            await task.result()
    return taken


def take_pause(turns: int) -> list[Way]:
    """The ways of the command line that pauses a task which nobody holds."""
    names = [f"paused-{turn}" for turn in range(turns)]

    async def submit() -> None:
        async with app:
            for name in names:
                await app.submit(one("text"), task_id=name)

    asyncio.run(submit())
    return [take_command("task", "pause", name, "--by", "walk", "--reason", "counting") for name in names]


def take_command(*arguments: str) -> Way:
    """The way of one command. Raises RuntimeError: it failed."""
    said = StringIO()
    recorder.start()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            commands.main(arguments, prog_name="arriero")
    except SystemExit as end:
        if end.code != 0:
            raise RuntimeError(f"arriero {' '.join(arguments)}: {said.getvalue()}") from end
    return recorder.stop()


def shortest_ways() -> dict[str, Way]:
    """Each way with the fewest calls of all its turns."""
    turns, found = WARM_UP_TURNS + TURNS, {}
    for name in GOALS:
        # A store for each, so that what one way leaves behind is not met by the next.
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{folder}/store.db"
            with patch.dict(os.environ, {"ARRIERO_STORE": url}), recorder.installed():
                taken = {
                    "submit": lambda: asyncio.run(take_submit(turns)),
                    "begin": lambda: asyncio.run(take_begin(turns)),
                    "next": lambda: asyncio.run(take_next(turns)),
                    "pause": lambda: take_pause(turns),
                }[name]()
            found[name] = min(taken[WARM_UP_TURNS:], key=len)
    return found


def figures_of(way: Way) -> dict[str, int]:
    """The figures of a way, as ``--json`` writes them."""
    changes = sum(call.module != call.caller for call in way)
    return {"modules": len({call.module for call in way}), "calls": len(way), "changes": changes}


def time_imports() -> dict[str, float]:
    """Wall milliseconds of a fresh interpreter that imports a module; medians of turns taken one after the other.

    Bytecode is kept, as installing a library does.
    """
    taken: dict[str, list[float]] = {"asyncio": [], "arriero": []}
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = folder
        for turn in range(1 + IMPORT_TURNS):
            for module, times in taken.items():
                began = time.perf_counter()
                subprocess.run([sys.executable, "-c", f"import {module}"], env=environment, check=True)
                if turn:  # the first one compiles
                    times.append((time.perf_counter() - began) * 1000)
    return {module: statistics.median(times) for module, times in taken.items()}


@click.command()
@click.option("--imports", is_flag=True, help="Measure the time of `import arriero` instead, beside `import asyncio`.")
@click.option("--list", "listed", type=click.Choice(list(GOALS)), help="Print the calls of one way instead, in order.")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures here."
)
def main(imports: bool, listed: str | None, json_file: Path | None) -> None:
    """Print how far four ways lead through the code, beside the goals."""
    if imports:
        times = time_imports()
        ratio = times["arriero"] / times["asyncio"]
        print(f"import asyncio {times['asyncio']:.0f} ms, import arriero {times['arriero']:.0f} ms")
        print(f"ratio {ratio:.2f}, goal at most {IMPORT_RATIO_MAX}")
        return
    found = shortest_ways()
    figures = {name: figures_of(way) for name, way in found.items()}
    if listed is not None:
        for call in found[listed]:
            print(f"{call.module:<32}{call.function:<64}{call.caller}")
    else:
        print(f"{'way':<10}{'modules':>10}{'goal':>6}{'calls':>10}{'goal':>6}{'changes':>10}")
        for name, figure in figures.items():
            goal = GOALS[name]
            reached = f"{figure['modules']:>10}{goal.modules:>6}{figure['calls']:>10}{goal.calls:>6}"
            print(f"{name:<10}{reached}{figure['changes']:>10}")
    if json_file is not None:
        rows = {name: figure | {"goal": GOALS[name]._asdict()} for name, figure in figures.items()}
        json_file.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
