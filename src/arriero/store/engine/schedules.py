"""Schedules in one transaction: their rows, the tasks that they submit, and what the history says of it. Shared by all stores."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from ...answers import Refusal, Submitted
from ...commands import Submit
from ...core.schedule_changes import ScheduleChange, change_schedule
from ...events import Event
from ...model import Instant
from ...schedules import (
    DueSchedule,
    DueSchedules,
    FireSchedule,
    RunSchedule,
    ScheduleApplied,
    ScheduleCommand,
    ScheduleRow,
)
from ..contract import SUPERVISOR_LEASE
from .batch import STORE_STREAM, Batch, Table
from .transactions import Transactions

SubmitAll = Callable[[Sequence[Submit]], Sequence[Submitted | Refusal]]
ScheduleKey = tuple[str, str]  # App, name


class ScheduleRows(Table, Protocol):
    """Rows of schedules."""

    def select_due_schedules(self, now: Instant, limit: int) -> list[DueSchedule]:
        """Schedules whose ``look_at`` has come, longest due first."""
        ...

    def select_next_look(self, now: Instant) -> Instant | None:
        """The first ``look_at`` after now."""
        ...

    def lock_schedules(self, keys: Sequence[ScheduleKey]) -> list[ScheduleRow]:
        """Lock those of the given schedules that exist, in the order of their keys."""
        ...

    def read_term(self, lease: str) -> int:
        """The term of a lease; 0: nobody had it."""
        ...

    def add_schedule(self, row: ScheduleRow) -> bool:
        """Keep a new schedule. False: somebody else has added one of the name meanwhile."""
        ...

    def put_schedule(self, row: ScheduleRow) -> None:
        """Keep a changed schedule, which this transaction has locked."""
        ...

    def remove_schedule(self, row: ScheduleRow) -> None: ...

    def close_schedule_alert(self, row: ScheduleRow, at: Instant) -> None:
        """Close the open alert of a schedule: every sink is to be told anew."""
        ...

    def select_schedules(self, app: str | None) -> list[ScheduleRow]: ...
    def select_schedule(self, app: str, name: str) -> ScheduleRow | None: ...
    def select_first_waiting(self, convoy_no: int) -> int: ...
    def select_name(self, task_no: int) -> tuple[str, str, object] | None: ...


def change_schedules(
    batch: Sequence[ScheduleCommand], rows: ScheduleRows, submit_all: SubmitAll
) -> list[ScheduleApplied | Refusal]:
    """See ``ScheduleStore.change_schedules``. Rows of schedules are locked before those of tasks, the store's history last."""
    work = _ChangeBatch(batch, rows)
    submits = work.list_submits()
    said = list(submit_all(submits)) if submits else []
    return work.write(said)


class _ChangeBatch:
    """One batch: judged under lock, then submitted, then written."""

    def __init__(self, batch: Sequence[ScheduleCommand], rows: ScheduleRows) -> None:
        self._batch = batch
        self._rows = rows
        keys = sorted({(command.app, command.name) for command in batch})
        self._known = {(row.app, row.name): row for row in rows.lock_schedules(keys)}
        self._now = rows.read_clock()
        self._term = rows.read_term(SUPERVISOR_LEASE) if any(map(_needs_term, batch)) else 0

    def list_submits(self) -> list[Submit]:
        """List the submissions of the commands that will not be refused, in order.

        No answer to a submission decides about a guard, so what is judged here is judged the same when it is written.
        """
        found: list[Submit] = []
        known = dict(self._known)
        for command in self._batch:
            key = (command.app, command.name)
            change = self._decide(command, known.get(key), ())
            if isinstance(change, Refusal):
                continue
            found += _submits_of(command)
            if change.row is None:
                known.pop(key, None)
            else:
                known[key] = change.row
        return found

    def _decide(
        self, command: ScheduleCommand, row: ScheduleRow | None, answers: Sequence[Submitted | Refusal]
    ) -> ScheduleChange | Refusal:
        return change_schedule(command, row, self._now, self._term, answers)

    def write(self, said: list[Submitted | Refusal]) -> list[ScheduleApplied | Refusal]:
        """Write what the commands change. ``said``: answers to the submissions of those that are not refused."""
        events: dict[str, list[Event]] = {}  # by actor
        applied: list[ScheduleApplied | Refusal] = []
        for command in self._batch:
            count = len(_submits_of(command))
            change = self._decide(command, self._known.get((command.app, command.name)), said[:count])
            if isinstance(change, Refusal):
                applied.append(change)
                continue
            answers, said = said[:count], said[count:]
            applied.append(answer := self._write_one(command, change, answers))
            if isinstance(answer, ScheduleApplied):
                events.setdefault(command.actor, []).extend(change.events)
        batch = Batch(self._rows, self._now)
        for actor, told in events.items():
            if told:
                batch.note(STORE_STREAM, actor, told)
        return applied

    def _write_one(
        self, command: ScheduleCommand, change: ScheduleChange, answers: Sequence[Submitted | Refusal]
    ) -> ScheduleApplied | Refusal:
        key = (command.app, command.name)
        before = self._known.get(key)
        if not change.is_written:
            return ScheduleApplied(change.row, is_changed=False)
        if change.closes and before is not None:
            self._rows.close_schedule_alert(before, self._now)
        if change.row is None:
            assert before is not None
            self._rows.remove_schedule(before)
            del self._known[key]
        elif before is None:
            if not self._rows.add_schedule(change.row):
                return Refusal("moved_on", f"schedule {command.name!r} was declared by somebody else just now")
            self._known[key] = change.row
        else:
            self._rows.put_schedule(change.row)
            self._known[key] = change.row
        if change.opens is not None:
            self._rows.add_alert(change.opens)
        return ScheduleApplied(change.row, tuple(answers), is_new=before is None)


def _submits_of(command: ScheduleCommand) -> Sequence[Submit]:
    return command.submits if isinstance(command, FireSchedule | RunSchedule) else ()


def _needs_term(command: ScheduleCommand) -> bool:
    return getattr(command, "term", None) is not None


R = TypeVar("R", bound=ScheduleRows)


class ScheduleEngine(Transactions[R]):
    """The reading part of ``store.contract_parts.ScheduleStore``, the same for all stores."""

    async def load_due_schedules(self, limit: int) -> DueSchedules:
        def read(rows: R) -> DueSchedules:
            now = rows.read_clock()
            return DueSchedules(now, tuple(rows.select_due_schedules(now, limit)), rows.select_next_look(now))

        return await self._read(read)

    async def list_schedules(self, app: str | None = None) -> list[ScheduleRow]:
        return await self._read(lambda rows: rows.select_schedules(app))

    async def find_schedule(self, app: str, name: str) -> ScheduleRow | None:
        return await self._read(lambda rows: rows.select_schedule(app, name))
