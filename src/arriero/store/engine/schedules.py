"""Schedules in one transaction: their rows, the tasks that they submit, and what the history says of it. Shared by all stores."""

from collections.abc import Callable, Sequence

from ...core.schedule_changes import ScheduleChange, change_schedule
from ...core.schedules import ACTOR
from ...errors import ArrieroError, UnreadableRow
from ...events import Event
from ...events.store import LeaderRefused
from ...model import Verb
from ...model.answers import Refusal, Submitted
from ...model.commands import Operate, Submit
from ...model.schedules import (
    DueSchedules,
    FireSchedule,
    OpenRun,
    RunSchedule,
    ScheduleApplied,
    ScheduleCommand,
    ScheduleRow,
)
from ..contract import SUPERVISOR_LEASE, Busy
from ..sql.store_rows import StoreRows
from .batch import STORE_STREAM, Batch
from .commands import apply_to_task
from .transactions import Transactions

SubmitAll = Callable[[Sequence[Submit]], Sequence[Submitted | Refusal | UnreadableRow]]
CANCELLED_MAX = 100  # runs that one transaction cancels; while more are open, the next passes cancel them


def change_schedules(
    batch: Sequence[ScheduleCommand], rows: StoreRows, submit_all: SubmitAll
) -> list[ScheduleApplied | Refusal]:
    """See ``StateStore.change_schedules``. Rows of schedules are locked before those of tasks, the store's history last."""
    work = _ChangeBatch(batch, rows)
    work.cancel_runs()
    submits = work.list_submits()
    said = [_as_refusal(answer) for answer in submit_all(submits)] if submits else []
    return work.write(said)


def _as_refusal(answer: Submitted | Refusal | UnreadableRow) -> Submitted | Refusal:
    """The answer to a submission. A row of its convoy that cannot be read costs this run alone."""
    return Refusal("unreadable", str(answer)) if isinstance(answer, UnreadableRow) else answer


class _ChangeBatch:
    """One batch: judged under lock; then runs are cancelled, others submitted, and the rows written."""

    def __init__(self, batch: Sequence[ScheduleCommand], rows: StoreRows) -> None:
        self._batch = batch
        self._rows = rows
        keys = sorted({(command.app, command.name) for command in batch})
        self._known = {(row.app, row.name): row for row in rows.lock_schedules(keys)}
        self._now = rows.read_clock()
        self._term = rows.read_term(SUPERVISOR_LEASE) if any(map(_needs_term, batch)) else 0
        self._cancelled: dict[int, list[str]] = {}  # ids of runs, by the place of the command in the batch
        self._postponed: dict[int, Refusal] = {}  # commands whose open runs could not all be cancelled, by their place

    def cancel_runs(self) -> None:
        """Cancel the open runs of the commands that ask for it and will not be refused.

        It comes before all submissions: none of these may meet the new run.
        """
        for place, command in self._list_accepted():
            if isinstance(command, FireSchedule) and command.cancels:
                self._cancelled[place] = []
                if (refused := self._cancel_runs_of(command, self._cancelled[place])) is not None:
                    self._postponed[place] = refused

    def _cancel_runs_of(self, command: FireSchedule, cancelled: list[str]) -> Refusal | None:
        """Cancel the open runs of one schedule. A Refusal: one of them is open still, so no new one may begin."""
        try:
            found = self._rows.lock_cancellable_runs(command.app, command.name, CANCELLED_MAX + 1)
        except Busy as error:
            return Refusal("busy", str(error))
        for run in found[:CANCELLED_MAX]:
            answer = apply_to_task(_build_cancel(command, run), self._rows)
            if isinstance(answer, Refusal | ArrieroError):
                said = answer.detail if isinstance(answer, Refusal) else str(answer)
                return Refusal("busy", f"run {run.task_id} could not be cancelled: {said}")
            cancelled.append(run.task_id)
        if len(found) > CANCELLED_MAX:
            return Refusal("busy", f"more than {CANCELLED_MAX} runs were open: the others are cancelled next")
        return None

    def list_submits(self) -> list[Submit]:
        """List the submissions of the commands that will not be refused, in order."""
        return [submit for _, command in self._list_accepted() for submit in _submits_of(command)]

    def _list_accepted(self) -> list[tuple[int, ScheduleCommand]]:
        """List the commands that will not be refused, with their places.

        No answer to a submission decides about a guard, so what is judged here is judged the same when it is written.
        """
        found: list[tuple[int, ScheduleCommand]] = []
        known = dict(self._known)
        for place, command in enumerate(self._batch):
            key = (command.app, command.name)
            change = self._decide(place, known.get(key), ())
            if isinstance(change, Refusal):
                continue
            found.append((place, command))
            if change.row is None:
                known.pop(key, None)
            else:
                known[key] = change.row
        return found

    def _decide(
        self, place: int, row: ScheduleRow | None, answers: Sequence[Submitted | Refusal]
    ) -> ScheduleChange | Refusal:
        if place in self._postponed:
            return self._postponed[place]
        cancelled = tuple(self._cancelled.get(place, ()))
        return change_schedule(self._batch[place], row, self._now, self._term, answers, cancelled)

    def write(self, said: list[Submitted | Refusal]) -> list[ScheduleApplied | Refusal]:
        """Write what the commands change. ``said``: answers to the submissions of those that are not refused."""
        events: dict[str, list[Event]] = {}  # by actor
        applied: list[ScheduleApplied | Refusal] = []
        for place, command in enumerate(self._batch):
            count = len(_submits_of(command))
            change = self._decide(place, self._known.get((command.app, command.name)), said[:count])
            if isinstance(change, Refusal):
                applied.append(change)
                if change.verdict == "old_term" and (refused := self._build_refused(command)) is not None:
                    events.setdefault(command.actor, []).append(refused)
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

    def _build_refused(self, command: ScheduleCommand) -> LeaderRefused | None:
        """Build the event that counts a former leader's command. None: another transaction just changes the lease."""
        term = getattr(command, "term", None)
        return LeaderRefused(term=term, current=self._term, task=0) if term is not None and term < self._term else None

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
                return Refusal("moved_on", f"schedule {command.name!r} was declared by another process just now")
            self._known[key] = change.row
        else:
            self._rows.put_schedule(change.row)
            self._known[key] = change.row
        if change.opens is not None:
            self._rows.add_alert(change.opens)
        return ScheduleApplied(change.row, tuple(answers), is_new=before is None)


def _build_cancel(command: FireSchedule, run: OpenRun) -> Operate:
    return Operate(
        actor=command.actor,
        verb=Verb.CANCEL,
        task_no=run.task_no,
        incarnation=run.incarnation,
        by=f"{ACTOR} {command.app}/{command.name}",
        reason="the next run is due, and overlap is cancel_running",
    )


def _submits_of(command: ScheduleCommand) -> Sequence[Submit]:
    return command.submits if isinstance(command, FireSchedule | RunSchedule) else ()


def _needs_term(command: ScheduleCommand) -> bool:
    return getattr(command, "term", None) is not None


class ScheduleOperations(Transactions):
    """Schedules of all Apps."""

    async def load_due_schedules(self, limit: int) -> DueSchedules:
        """Load schedules that the leader is to look at now, longest due first. It reads no row that is not due, except
        the one that is due next."""

        def read(rows: StoreRows) -> DueSchedules:
            now = rows.read_clock()
            return DueSchedules(now, tuple(rows.select_due_schedules(now, limit)), rows.select_next_look(now))

        return await self._reporting(self._read(read))

    async def is_run_open(self, app: str, name: str) -> bool:
        """Returns True if a run of a schedule has not ended."""
        return await self._read(lambda rows: rows.has_open_run(app, name))

    async def list_schedules(self, app: str | None = None) -> list[ScheduleRow]:
        """All schedules by App and name. ``app``: only of this one."""
        return await self._read(lambda rows: rows.select_schedules(app))

    async def find_schedule(self, app: str, name: str) -> ScheduleRow | None:
        """One schedule. None: there is none of the name."""
        return await self._read(lambda rows: rows.select_schedule(app, name))
