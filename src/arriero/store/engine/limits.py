"""Limits of Agents in one transaction: declared by processes, locked by Takes, read for operators. Shared by all stores."""

from collections.abc import Iterable

import msgspec

from ...core import attempts
from ...core.apps import apps_run_by
from ...core.changes import Refused
from ...core.limits import LimitBook, declare_limits, find_first_deadline, list_limits, note_look
from ...errors import UnreadableRow
from ...events.store import LimitsDeclared
from ...model import Instant, later
from ...model.agents import AgentLimitsRow, LimitsInUse, WaitingKeysRow
from ...model.answers import Answer, AttemptApplied, TryDelayed
from ...model.commands import BeginTry
from ...model.processes import ProcessAbout
from ..sql.agent_rows import LimitTable
from ..sql.store_rows import StoreRows
from .batch import STORE_STREAM, Batch
from .transactions import Lane, Transactions

KEYS_AT_ONCE = 200  # keys under which requests wait that are read with one statement
MISSING_AT_ONCE = 1_000  # keys that one pass of upkeep keeps again
ABANDONED_SECONDS = 3_600.0  # that keys have not been looked at, although it was time: nobody hosts their Agent


def open_book(rows: LimitTable, app: str, agent: str) -> LimitBook | None:
    """Lock the limits of an Agent and count what is in use. None: it has none any longer."""
    row = next(iter(rows.lock_limits(app, [agent])), None)
    if row is None or not list_limits(row.limits):
        return None
    apps, now = apps_run_by(app), rows.read_clock()
    since = find_first_deadline(now)
    running: list[tuple[str | None, int]] = list(rows.count_running_keys(agent, apps, since))
    if row.has_keyless:
        running.append((None, rows.count_running_keyless(agent, apps, since)))
    book = LimitBook(row, running, now)
    read_rates(rows, book, [None])
    return book


def read_rates(rows: LimitTable, book: LimitBook, limit_keys: Iterable[str | None]) -> None:
    """Read the rates that the book does not know yet, of requests with these keys."""
    unknown = book.list_unknown_rates(limit_keys)
    if unknown:
        book.keep_rates(unknown, rows.select_rates(book.row.app, book.row.agent, book.list_rate_names(), unknown))


def begin_try(command: BeginTry, rows: LimitTable) -> Answer | UnreadableRow:
    """Count another call of a running attempt; see ``core.attempts.begin_try``."""
    book = open_book(rows, command.app, command.agent)
    work = Batch(rows, rows.read_clock())
    try:
        step = rows.step(command.step_no)
        if book is not None and step is not None:
            read_rates(rows, book, [step.limit_keys])
        result = attempts.begin_try(command, rows, work.now, book)
    except UnreadableRow as error:  # before anything is written
        rows.set_apart(error)
        return error
    if isinstance(result, TryDelayed):
        return result
    if isinstance(result, Refused):
        return result.refusal
    if result.events:
        work.write(result, command.actor)
    if book is not None:
        write_book(rows, book, book.row)
    (step,) = result.steps
    assert step.complete_by is not None
    return AttemptApplied(step.complete_by, work.now)


def write_book(rows: LimitTable, book: LimitBook, before: AgentLimitsRow) -> None:
    """Keep what a Take has changed. ``before``: the row as it was locked."""
    row = book.row
    if book.now >= row.look_at:
        has_keyless = rows.has_keyless(row.agent, apps_run_by(row.app))
        row = note_look(row, book.now, has_keyless=has_keyless)
    if row != before:
        rows.put_limits(row)
    for rate in book.list_changed_rates():
        rows.put_rate(rate)


def declare_all_limits(rows: LimitTable, process_no: int, about: ProcessAbout, actor: str) -> None:
    """Keep the limits that a starting process declares of the Agents that it hosts."""
    hosted = sorted({agent for agent, _ in about.steps})
    if not hosted:
        return
    known = {row.agent: row for row in rows.lock_limits(about.app, hosted)}
    work = Batch(rows, rows.read_clock())
    for agent in hosted:
        limits = about.limits.get(agent, "[]")
        row = declare_limits(
            known.get(agent), app=about.app, agent=agent, limits=limits, process_no=process_no, now=work.now
        )
        if row is not None:
            rows.put_limits(row)
            rows.wake_waiting_keys(about.app, agent, work.now)
            event = LimitsDeclared(agent, about.app, process_no, msgspec.Raw(row.limits.encode()))
            work.note(STORE_STREAM, actor, [event])


class LimitOperations(Transactions):
    """Limits of Agents that all processes share. ``register`` declares them; a Take keeps within them."""

    async def list_limits(self) -> list[LimitsInUse]:
        """All limits that hold, by Agent and App, with what is in use of them."""

        def read(rows: StoreRows) -> list[LimitsInUse]:
            now = rows.read_clock()
            return [_read_use(rows, row, now) for row in rows.select_all_limits()]

        return await self._read(read)

    async def remove_old_rates(self) -> None:
        """Remove calls of rate limits that no longer count. It changes no decision."""
        await self._write(_remove_old)

    async def repair_waiting_keys(self) -> int:
        """Keep keys again under which requests wait and at which no Take looks; answers how many.

        Their row was lost or cannot be read, or a process of release 0.4.0 wrote the request.
        """
        missing = await self._read(lambda rows: rows.select_missing_keys(MISSING_AT_ONCE), Lane.SURVEYS)
        if missing:  # if nothing waits under them any longer, the next Take removes them
            await self._write(lambda rows: rows.add_waiting_keys(missing))
        return len(missing)


def _remove_old(rows: StoreRows) -> None:
    """Remove rates that say nothing any longer, and keys of Agents that nobody hosts under which nothing waits."""
    now = rows.read_clock()
    rows.delete_old_rates(now)
    abandoned: list[WaitingKeysRow] = []
    for row in rows.lock_old_waiting_keys(later(now, -ABANDONED_SECONDS), KEYS_AT_ONCE):
        if not rows.select_first_due(row.agent, [row.app], [row.keys]):
            abandoned.append(row)
    rows.remove_waiting_keys(abandoned)


def _read_use(rows: StoreRows, row: AgentLimitsRow, now: Instant) -> LimitsInUse:
    apps, since = apps_run_by(row.app), find_first_deadline(now)
    running = list(rows.count_running_keys(row.agent, apps, since))
    if row.has_keyless and (count := rows.count_running_keyless(row.agent, apps, since)):
        running.append(("{}", count))
    return LimitsInUse(row, tuple(running), tuple(rows.select_known_rates(row.app, row.agent, now)), now)
