"""The loop of ``arriero top``: reads the overview, draws it, and does what keys ask for. Only ``arriero top`` loads it."""

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from ..client.overview import Overview, load_overview
from ..client.session import Session
from ..client.timeline import TimelineFollower
from ..errors import ArrieroError, StoreError
from ..operations import agents
from . import keys
from .output import encodes_symbols, print_json, print_table, terminal_width
from .stores import open_operator
from .timeline_view import Screen
from .top_state import ActOnAgent, OpenTask, Quit, TopState, press, settle
from .top_view import (
    AGENT_COLUMNS,
    FINDING_COLUMNS,
    draw_numbers,
    draw_top,
    format_health,
    list_agent_cells,
    list_task_rows,
)
from .watching import TaskScreen, build_console, has_screen

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

BACK = "escape goes back   q quit"


async def show_top(store: str | None, every: float, by: Callable[[], str], *, as_json: bool) -> None:
    """Show a store: live on a terminal, else once. ``by``: finds who signs verbs. Raises InvalidInput, StoreError."""
    async with open_operator(None, store) as operator:
        if as_json:
            print_json(await load_overview(operator.session.store))
        elif has_screen() and keys.may_read_keys():
            await TopScreen(operator.session, every, by).run()
        else:
            print_snapshot(await load_overview(operator.session.store))


def print_snapshot(overview: Overview) -> None:
    """Print an overview once, as text that tools can cut."""
    screen = Screen(terminal_width() or 10_000, 10_000, encodes_symbols())
    for line in draw_numbers(overview, screen.width):
        click.echo(line.plain.rstrip())
    click.echo(format_health(overview))
    if overview.findings:
        click.echo()
        print_table(FINDING_COLUMNS, [(one.level, one.about, one.says) for one in overview.findings])
    if overview.agents:
        click.echo()
        print_table(AGENT_COLUMNS, [list_agent_cells(view, overview.rooms) for view in overview.agents])
    columns, rows, _ = list_task_rows(overview, screen)
    if rows:
        click.echo()
        print_table(columns[1:], [row[1:] for row in rows])


class TopScreen:
    """The screen of ``arriero top``: what is shown, and the tasks of the event loop that change it."""

    def __init__(self, session: Session, every: float, by: Callable[[], str]) -> None:
        self._session = session
        self._every = every
        self._by = by
        self._state = TopState()
        self._overview: Overview | None = None
        self._note = ""
        self._read_at = time.monotonic()
        self._ask = asyncio.Event()
        self._ended = asyncio.Event()
        self._watching: TaskScreen | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._has_symbols = encodes_symbols()
        self._refresh: Callable[[], None] = lambda: None

    async def run(self) -> None:
        """Show it until a key ends it."""
        from rich.live import Live

        reader = keys.KeyReader(sys.stdin.fileno())
        live: Any = Live(
            self,
            console=build_console(),
            screen=True,
            auto_refresh=False,
            vertical_overflow="crop",
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._refresh = live.refresh
        loops = [self._read_again_and_again, lambda: self._follow_keys(reader), self._tick]
        with reader.listen(), _Signals(live.refresh, self._ended.set), live:
            running = [asyncio.ensure_future(loop()) for loop in loops]
            end = asyncio.ensure_future(self._ended.wait())
            try:
                done, _ = await asyncio.wait({*running, end}, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    one.result()
            finally:
                for one in (*running, end, *([self._watcher] if self._watcher else [])):
                    one.cancel()
                    with suppress(asyncio.CancelledError):
                        await one

    # --- what it shows
    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        if self._watching is not None:
            yield self._watching
            return
        screen = Screen(options.max_width, options.height or console.size.height, self._has_symbols)
        by = self._find_name() if self._state.prompt is not None else ""
        age = time.monotonic() - self._read_at
        for line in draw_top(self._overview, self._state, screen, by=by, note=self._note, age=age):
            line.no_wrap, line.overflow = True, "crop"
            yield line

    def _find_name(self) -> str:
        try:
            return self._by()
        except ArrieroError:
            return ""

    # --- the loops
    async def read(self) -> None:
        """Read the store once. If it does not answer, what was read before stays, with a note."""
        try:
            self._overview = await load_overview(self._session.store)
            self._state, self._note, self._read_at = settle(self._state, self._overview), "", time.monotonic()
        except StoreError as error:
            self._note = f"the store does not answer, it is asked again: {error}"

    async def _read_again_and_again(self) -> None:
        while True:
            self._ask.clear()
            await self.read()
            self._refresh()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._ask.wait()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self._refresh()

    async def _follow_keys(self, reader: keys.KeyReader) -> None:
        while True:
            await self._press(await reader.keys.get())
            self._refresh()

    async def _press(self, key: str) -> None:
        if self._watching is not None:
            if key in ("q", keys.INTERRUPT):
                self._ended.set()
            elif key in (keys.ESCAPE, keys.LEFT, keys.ERASE):
                await self._close_task()
            return
        self._state, effect = press(self._state, key, self._overview)
        match effect:
            case Quit():
                self._ended.set()
            case OpenTask(id=task_id):
                self._watching = TaskScreen()
                self._watching.hint = BACK
                self._watcher = asyncio.ensure_future(self._watch(task_id, self._watching))
            case ActOnAgent():
                message = await self._act(effect)
                self._state = _with_message(self._state, message)
                self._ask.set()
            case None:
                pass
            case _:
                self._ask.set()

    # --- what keys ask for
    async def _watch(self, task_id: str, shown: TaskScreen) -> None:
        try:
            async for seen in TimelineFollower(self._session, task_id).follow():
                shown.keep(seen)
                self._refresh()
        except ArrieroError as error:
            shown.note = str(error)
            self._refresh()

    async def _close_task(self) -> None:
        watcher, self._watcher, self._watching = self._watcher, None, None
        if watcher is not None:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher
        self._ask.set()

    async def _act(self, effect: ActOnAgent) -> str:
        """Carry a verb out as ``arriero agent`` does. Returns: what came of it, in words."""
        operation = next(verb for verb in agents.VERBS if verb.name == effect.verb)
        asked = agents.AgentVerbRequest(reason=effect.reason, target=effect.target, app=effect.app)
        try:
            done = await operation.act(self._session, effect.agent, self._by(), asked)
        except ArrieroError as error:
            return f"{effect.verb}: {error}"
        return "; ".join(done.says)


def _with_message(state: TopState, message: str) -> TopState:
    from msgspec.structs import replace

    return replace(state, message=message)


class _Signals:
    """While it is entered: a window of another size is drawn again, and a signal to end restores the terminal first."""

    def __init__(self, refresh: Callable[[], None], end: Callable[[], None]) -> None:
        self._handlers = {"SIGWINCH": refresh, "SIGTERM": end, "SIGHUP": end}

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        for name, handler in self._handlers.items():
            if hasattr(signal, name):
                loop.add_signal_handler(getattr(signal, name), handler)

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for name in self._handlers:
            if hasattr(signal, name):
                loop.remove_signal_handler(getattr(signal, name))
