"""``arriero ledger``: submit a file of operations, and see what became of such files."""

import asyncio
import sys
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import click
import msgspec

from ..client.app import App
from ..client.ledger import BATCH, Entry, Ledger, LedgerSubmission
from ..client.ledger_handle import (
    UNFINISHED,
    LedgerView,
    explain_unknown_end,
    find_ledger,
    list_ledger_views,
    load_ledger_view,
    wait_for_ledger,
)
from ..client.task_verbs import ACTOR, check_signature
from ..config import load_configuration
from ..errors import ArrieroError, InvalidInput, NotAllowed
from ..model import LedgerRow, LedgerState, TaskState
from ..operations.problems import ExitCode
from ..runtime.ports import SystemPorts
from ..runtime.result_waiters import ResultWaiters
from ..text.escaping import one_line
from ..text.format import format_count, format_count_with_verb
from .near_misses import NearMissGroup
from .options import (
    confirm,
    is_terminal,
    json_option,
    parse_duration,
    print_empty,
    print_note,
    signature_options,
    store_option,
    yes_option,
)
from .output import Progress, format_time, print_json, print_table, print_text
from .stores import app_argument, format_error_location, import_module, load_chosen_app, open_client, open_store_to_read

PROGRESS_SECONDS = 10.0  # where no terminal shows progress
PAGE = 100
Splitter = Callable[[Path], Iterable[Entry] | AsyncIterable[Entry]]


class SubmittedLedger(msgspec.Struct, frozen=True):
    """The output of ``ledger submit --json``."""

    ledger: str
    accepted: int
    duplicates: int
    set_aside: list[str]


@click.group(cls=NearMissGroup, short_help="Submit files of operations on many keys, and show them.")
def ledger() -> None:
    """Submit a file of operations on many keys, all of them or none, and see what became of such files."""


# --- submitting
@ledger.command(short_help="Submit a file, one task for each operation in it.")
@app_argument
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path))
@click.option(
    "--splitter", metavar="MODULE:FUNCTION", required=True, help="The function that turns the file's Path into entries."
)
@click.option("--ledger-id", metavar="ID", help="Name of the ledger. By default the name of the file.")
@click.option(
    "--bad",
    type=click.Choice(["refuse", "set_aside"]),
    default="refuse",
    show_default=True,
    help="Whether one bad entry refuses the whole file, or bad entries are left out and reported.",
)
@store_option
@json_option
def submit(
    app: str | None,
    file: Path,
    splitter: str,
    ledger_id: str | None,
    bad: Literal["refuse", "set_aside"],
    store: str | None,
    as_json: bool,
) -> None:
    """Submit each operation of a file as a task, in the order of its lines: all of them or none.

    When this returns, all of them are durable, whether or not anything runs them now. After a crash, do the same again: it
    continues where it stood. Exits with 1 when entries were set aside.
    """
    loaded = load_chosen_app(app, load_configuration(flags={"store": store}))
    entries = _split_file(splitter, file)
    named = file.name if ledger_id is None else ledger_id
    result = asyncio.run(_submit(loaded, named, entries, store, bad))
    if as_json:
        print_json(SubmittedLedger(named, result.accepted, result.duplicates, result.set_aside))
    else:
        aside = f", {len(result.set_aside):,} set aside" if result.set_aside else ""
        told = f"ledger {named}: {result.accepted:,} accepted, {format_count(result.duplicates, 'duplicate')}{aside}"
        print_text(told, hanging=2)
        for line in result.set_aside:
            print_text(line, hanging=2)
    if result.set_aside:
        sys.exit(ExitCode.NO)


async def _submit(
    app: App,
    ledger_id: str,
    entries: Iterable[Entry] | AsyncIterable[Entry],
    store: str | None,
    bad: Literal["refuse", "set_aside"],
) -> Ledger:
    async with open_client(app, store):
        with _SubmissionProgress() as told:
            return await LedgerSubmission(app.session, ledger_id, bad=bad, on_progress=told).run(entries)


class _SubmissionProgress(AbstractContextManager["_SubmissionProgress"]):
    """Reports progress: continuously on a terminal, else in a line now and then."""

    def __init__(self) -> None:
        self._what = ""
        self._progress: Progress | None = None
        self._next = time.monotonic() + PROGRESS_SECONDS
        self._is_watched = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, what: str, count: int) -> None:
        if self._is_watched:
            if what != self._what or self._progress is None:
                self._end()
                self._what, self._progress = what, Progress(what, "entries", beside_data=False)
            self._progress.set_count(count)
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_SECONDS
            print_note(f"{what}: {format_count(count, 'entry')}")

    def _end(self) -> None:
        if self._progress is not None:
            self._progress.__exit__(None, None, None)
            self._progress = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()


def _split_file(target: str, file: Path) -> Iterable[Entry] | AsyncIterable[Entry]:
    """Split the file into entries. Raises InvalidInput: there is no such splitter, or it failed."""
    splitter = _load_splitter(target)
    try:
        entries = splitter(file)
    except Exception as error:
        raise _splitter_error(target, 0, error) from error
    if isinstance(entries, AsyncIterable):
        return _iterate_entries_async(target, entries)
    if isinstance(entries, Iterable):
        return _iterate_entries(target, entries)
    raise InvalidInput(f"splitter {target} answered with {entries!r}; it must answer with an iterable of Entry")


def _load_splitter(target: str) -> Splitter:
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise InvalidInput(f"{target!r} does not name a splitter; write MODULE:FUNCTION, like shop:entries")
    found: Any = import_module(module_name)
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise InvalidInput(f"there is no {target}" if found is None else f"{target} is not a function")
    splitter: Splitter = found
    return splitter


def _iterate_entries(target: str, entries: Iterable[Entry]) -> Iterator[Entry]:
    count = 0
    try:
        for entry in entries:
            yield entry
            count += 1
    except Exception as error:
        raise _splitter_error(target, count, error) from error


async def _iterate_entries_async(target: str, entries: AsyncIterable[Entry]) -> AsyncIterator[Entry]:
    count = 0
    try:
        async for entry in entries:
            yield entry
            count += 1
    except Exception as error:
        raise _splitter_error(target, count, error) from error


def _splitter_error(target: str, count: int, error: Exception) -> InvalidInput:
    what = str(error) if isinstance(error, ArrieroError) else f"{type(error).__name__}: {error}"
    return InvalidInput(
        f"splitter {target} failed after entry {count:,}: {what}{format_error_location(error)}; nothing of the ledger is visible. Answer"
        " with Entry.bad(reason) for a line that cannot be read"
    )


# --- looking
@ledger.command("list", short_help="List ledgers that are not finished.")
@click.option("--all", "all_", is_flag=True, help="Also list finished ledgers.")
@store_option
@json_option
def list_ledgers(all_: bool, store: str | None, as_json: bool) -> None:
    """List ledgers that were begun and not finished, in the order in which they were begun."""
    views = asyncio.run(_load_ledgers(store, tuple(LedgerState) if all_ else UNFINISHED))
    if as_json:
        for view in views:
            print_json(view)
        return
    if not views:
        print_empty("ledgers") if all_ else print_empty("unfinished ledgers", remedy="--all lists the others")
        return
    columns = ("LEDGER", "STATE", "WRITTEN", "ACCEPTED", "DUPLICATES", "ASIDE", "LET GO", "ENDED", "BEGUN", "OPENED")
    print_table(columns, [_format_cells(view) for view in views])


async def _load_ledgers(given: str | None, states: tuple[LedgerState, ...]) -> list[LedgerView]:
    views: list[LedgerView] = []
    after = 0
    async with open_store_to_read(given) as store:
        while page := await store.list_ledgers(states, after=after, limit=PAGE):
            views += await list_ledger_views(store, page)
            after = page[-1].ledger_no
    return views


def _format_cells(view: LedgerView) -> tuple[str, ...]:
    counts = (view.written, view.accepted, view.duplicates, view.aside, view.let_go)
    ended = {True: "yes", False: "no", None: "unknown"}[view.ended]
    return (
        view.ledger,
        view.state,
        *map(str, counts),
        ended,
        format_time(view.begun_at),
        format_time(view.opened_at),
    )


@ledger.command(short_help="Show one ledger and its tasks.")
@click.argument("ledger_id", metavar="LEDGER_ID")
@store_option
@json_option
def show(ledger_id: str, store: str | None, as_json: bool) -> None:
    """Show how far a ledger is, how its tasks stand, and which of its entries were set aside."""
    _print_ledger(asyncio.run(_load_view(store, ledger_id)), as_json=as_json)


def _print_ledger(view: LedgerView, *, as_json: bool) -> None:
    if as_json:
        print_json(view)
        return
    print_text(f"ledger {view.ledger} is {view.state}{_describe_state(view)}", hanging=2)
    click.echo(
        f"  {format_count(view.written, 'entry')}: {view.accepted:,} accepted, {format_count(view.duplicates, 'duplicate')},"
        f" {view.aside:,} set aside"
    )
    if view.opened_at is not None:
        print_text(_describe_tasks(view), first="  ", hanging=4)
    for name, at in (("begun", view.begun_at), ("last written", view.written_at), ("opened", view.opened_at)):
        if at is not None:
            click.echo(f"  {name} {format_time(at)}")
    for line in view.set_aside or []:
        print_text(line, hanging=2)


def _describe_state(view: LedgerView) -> str:
    return {
        "writing": ": nothing of it is visible; submit it again to continue, or discard it",
        "discarding": ": nothing of it is visible; the Supervisors' leader removes the rest",
        "opened": f": {view.let_go:,} of its tasks are let go; the Supervisors' leader continues",
    }.get(view.state, "")


def _describe_tasks(view: LedgerView) -> str:
    """Describe how its tasks stand: what operators wait for, and what to do about held tasks."""
    counts = view.tasks or {}
    named = [f"{counts[state]:,} {state}" for state in map(str, TaskState) if state in counts]
    named += [f"{count:,} {state}" for state, count in counts.items() if state not in tuple(TaskState)]
    if view.purged:
        named.append(f"{view.purged:,} ended and purged")
    tasks = ", ".join(named) or "none"
    if view.ended is None:
        return f"tasks: {tasks}; {explain_unknown_end(view.ledger)}"
    if not view.ended:
        return f"tasks: {tasks}; not all have ended"
    at = f" by {format_time(view.ended_at)}" if isinstance(view.ended_at, datetime) else ""
    return f"tasks: {tasks}; all have ended{at}"


async def _load_view(given: str | None, ledger_id: str) -> LedgerView:
    async with open_store_to_read(given) as store:
        return await load_ledger_view(store, ledger_id)


@ledger.command(short_help="Wait until all tasks of a ledger have ended.")
@click.argument("ledger_id", metavar="LEDGER_ID")
@click.option(
    "--timeout", metavar="DURATION", type=parse_duration, help="Give up after this long and exit with 75. 0 looks once."
)
@store_option
@json_option
def wait(ledger_id: str, timeout: float | None, store: str | None, as_json: bool) -> None:
    """Wait until all tasks of a ledger have ended, and show it.

    Exits with 1 when some of them are held or were undone, and with 75 when the time was over before.
    """
    view = asyncio.run(_wait(store, ledger_id, timeout))
    _print_ledger(view, as_json=as_json)
    if view.ended is None:
        raise InvalidInput(explain_unknown_end(view.ledger))
    if not view.ended:
        sys.exit(ExitCode.TIME_OVER)
    if set(view.tasks or {}) - {str(TaskState.PROCESSED)}:
        sys.exit(ExitCode.NO)


async def _wait(given: str | None, ledger_id: str, timeout: float | None) -> LedgerView:
    async with open_store_to_read(given) as store:
        ports = SystemPorts()
        waiting = ResultWaiters(lambda: store, lambda: ports, lambda _: False)
        try:
            with suppress(TimeoutError):
                await wait_for_ledger(store, waiting, ports.clock, ledger_id, timeout)
        finally:
            await waiting.close()
            ports.close()
        return await load_ledger_view(store, ledger_id)


# --- discarding
@ledger.command(short_help="Delete the entries of an unfinished ledger.")
@click.argument("ledger_id", metavar="LEDGER_ID")
@signature_options("the store's history")
@yes_option("Do not ask before it is removed.")
@store_option
@json_option
def discard(ledger_id: str, by: str, reason: str, yes: bool, store: str | None, as_json: bool) -> None:
    """Remove what was written of a ledger that is not opened: none of its tasks was ever visible."""
    who, why = check_signature(by, reason)
    if not yes and not is_terminal():
        raise InvalidInput("ledger discard: nobody can be asked here; add --yes to do it")
    row = asyncio.run(_find_ledger(store, ledger_id))
    _refuse_opened(row)
    confirm(
        f"discard the ledger {one_line(ledger_id)}, of which {format_count_with_verb(row.written, 'entry')} written",
        yes=yes,
    )
    asyncio.run(_discard(store, row, f"{ACTOR} {who}", why))
    if as_json:
        print_json({"ledger": ledger_id, "discarded": row.written})
    else:
        click.echo(one_line(f"ledger {ledger_id} is discarded, {format_count(row.written, 'entry')}"))


async def _find_ledger(given: str | None, ledger_id: str) -> LedgerRow:
    async with open_store_to_read(given) as store:
        return await find_ledger(store, ledger_id)


def _refuse_opened(row: LedgerRow) -> None:
    if row.is_open:
        raise NotAllowed(f"ledger {row.ledger_id!r} is opened: its tasks are there; act on them with `arriero task`")


async def _discard(given: str | None, row: LedgerRow, actor: str, reason: str) -> None:
    async with open_store_to_read(given) as store:
        with Progress("discard", "tasks", beside_data=False) as progress:
            left: LedgerRow | None = row
            removed = 0
            while left is not None and not left.is_open:
                left = await store.discard_ledger(row.ledger_no, BATCH, actor, reason)
                removed += BATCH
                progress.set_count(min(removed, row.accepted))
        if left is not None:
            _refuse_opened(left)
