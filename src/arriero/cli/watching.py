"""Follows one task until it ends: drawn on a terminal, line by line, or as JSON. Only ``arriero task watch`` and ``top`` load it."""

import asyncio
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..client.session import Session
from ..client.timeline import TimelineFollower, WatchedTask
from ..client.timeline_answer import TimelineAnswer, build_timeline_answer
from ..errors import StoreError
from ..model import Instant, TaskState, later
from ..text.escaping import one_line, shell_word
from ..text.format import format_count, format_duration, format_instant
from .options import print_note
from .output import encodes_symbols, print_json
from .stores import open_operator

if TYPE_CHECKING:  # only a terminal pays for loading it
    from rich.console import Console, ConsoleOptions, RenderResult

TICK_SECONDS = 1.0  # after which open bars are drawn again
LOGGED_MAX = 1_000  # events that are printed of one change, where they are printed line by line
_NO_SCREEN = ("dumb", "unknown")


async def watch(task_id: str, store: str | None, *, as_json: bool) -> bool:
    """Follow a task until it ends. Returns True if it is processed. Raises UnknownTask, InvalidInput, StoreError."""
    async with open_operator(None, store) as operator:
        follow = _print_answers if as_json else _draw if has_screen() else _print_events
        last = await follow(operator.session, task_id)
    return last is not None and last.timeline.state == TaskState.PROCESSED


def has_screen() -> bool:
    """Returns True if standard output is a terminal on which lines can be drawn again."""
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM", "") not in _NO_SCREEN


# --- for programs
async def _print_answers(session: Session, task_id: str) -> WatchedTask | None:
    last: WatchedTask | None = None
    shown: TimelineAnswer | None = None
    note = _StoreNote()
    async for seen in TimelineFollower(session, task_id).follow():
        note.tell(seen)
        if isinstance(seen, WatchedTask):
            answer = build_timeline_answer(seen)
            if shown is None or msgspec.structs.replace(answer, now=shown.now, end=shown.end) != shown:
                print_json(answer)
                shown = answer
            last = seen
    return last


class _StoreNote:
    """Says once on standard error that the store does not answer, and once that it does again."""

    def __init__(self) -> None:
        self._is_away = False

    def tell(self, seen: WatchedTask | StoreError) -> None:
        is_away = isinstance(seen, StoreError)
        if is_away and not self._is_away:
            print_note(f"the store does not answer, it is asked again: {seen}")
        if self._is_away and not is_away:
            print_note("the store answers again")
        self._is_away = is_away


# --- line by line
async def _print_events(session: Session, task_id: str) -> WatchedTask | None:
    last: WatchedTask | None = None
    printed = 0
    note = _StoreNote()
    async for seen in TimelineFollower(session, task_id, rows_max=0, last_max=LOGGED_MAX).follow():
        note.tell(seen)
        if isinstance(seen, StoreError):
            continue
        timeline = seen.timeline
        if last is None or last.timeline.no != timeline.no:
            printed = 0
            click.echo(one_line(f"task {timeline.id} (number {timeline.no}) of workflow {timeline.workflow}"))
        new = timeline.events - printed
        entries = timeline.last[-new:] if new else ()
        if len(entries) < new:
            count = format_count(new - len(entries), "earlier event")
            click.echo(f"{count}; all of them: arriero history {shell_word(timeline.id)}")
        for entry in entries:
            after = f"+{format_duration(entry.after)}"
            click.echo(f"{format_instant(entry.at)}  {after:>12}  {one_line(entry.says)}")
        last, printed = seen, timeline.events
    if last is not None:
        reason = f": {one_line(last.reason)}" if last.reason else ""
        click.echo(f"task {one_line(last.timeline.id)} is {last.timeline.state}{reason}")
    return last


# --- on a terminal
class TaskScreen:
    """A task as it is drawn; open bars grow with the time since it was read."""

    def __init__(self) -> None:
        self.watched: WatchedTask | None = None
        self.note = ""
        self.hint = ""
        self._read_at = 0.0
        self._has_symbols = encodes_symbols()

    def keep(self, seen: WatchedTask | StoreError) -> None:
        """Show this from now on."""
        if isinstance(seen, StoreError):
            self.note = f"the store does not answer, it is asked again: {seen}"
        else:
            self.watched, self.note, self._read_at = seen, "", time.monotonic()

    def find_now(self) -> Instant:
        """The store's clock, as far as it can be known here."""
        if self.watched is None:
            return Instant(0)
        return later(self.watched.timeline.now, time.monotonic() - self._read_at)

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.text import Text

        from .timeline_view import Screen, draw_task

        height = (options.height or console.size.height) - bool(self.hint)
        if self.watched is None:
            yield Text(one_line(self.note) or "it is read ...")
            return
        screen = Screen(options.max_width, height, self._has_symbols)
        for line in draw_task(self.watched, self.find_now(), screen, note=self.note):
            line.no_wrap, line.overflow = True, "crop"
            yield line
        if self.hint:
            yield Text(self.hint, "bright_black", no_wrap=True, overflow="crop")


def build_console() -> "Console":
    """Build the console of standard output. It reads no markup, and marks nothing by itself."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False, soft_wrap=False)


async def _draw(session: Session, task_id: str) -> WatchedTask | None:
    from rich.live import Live

    shown = TaskScreen()
    follower = TimelineFollower(session, task_id).follow()
    first = await anext(follower)  # an unknown task is refused before anything is drawn
    shown.keep(first)
    live: Any = Live(
        shown,
        console=build_console(),
        auto_refresh=False,
        vertical_overflow="crop",
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with live:
        live.refresh()
        ticker = asyncio.ensure_future(_tick(live))
        try:
            async for seen in follower:
                shown.keep(seen)
                live.refresh()
        finally:
            ticker.cancel()
            with suppress(asyncio.CancelledError):
                await ticker
    return shown.watched


async def _tick(live: Any) -> None:
    """Draw again now and then: open bars grow, and the window may have another size."""
    while True:
        await asyncio.sleep(TICK_SECONDS)
        live.refresh()
