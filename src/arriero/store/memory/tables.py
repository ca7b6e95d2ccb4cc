"""Rows of the memory store in dicts, and its transactions, which write everything or nothing."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ...core.alert_rows import BREAKER_CAUSE, QUESTION_CAUSE
from ...core.breaker import is_remembered
from ...core.convoys import Gone, NextUnreadable
from ...core.parents import ParentStep, build_parent_step
from ...errors import UnreadableRow
from ...inspection.facts import CountsRow
from ...model import (
    STEP_BITS,
    TASK_OPEN,
    AlertRow,
    ConvoyRow,
    EditRow,
    HistoryRow,
    Instant,
    LateAnswerRow,
    LedgerRow,
    Loaded,
    SignalRow,
    StatusRow,
    StepRow,
    StepState,
    TailRow,
    TaskRow,
    TaskState,
    Turn,
)
from ...model.agents import BreakerRow, BreakerState
from ...model.leases import LeaseRow
from ...model.processes import FIRST, ProcessRow
from ...model.progress import PublishedRow
from ...model.schedules import ScheduleRow
from ...model.signals import SIGNALS_MAX, Inbox
from ...model.tokens import TokenRow
from ...model.workflow_pauses import WorkflowPauseRow
from ..quarantine import UNREADABLE, Quarantine
from ..readable import legible, refuse_unreadable
from ..sql.agent_rows import BreakerTable
from ..sql.signal_rows import SignalTable

T = TypeVar("T")


class MemoryTables:
    """The dicts, and transactions on them."""

    def __init__(self) -> None:
        self.tasks: dict[int, TaskRow] = {}
        self.bodies: dict[int, str] = {}
        self.asked: dict[int, str] = {}  # what was submitted, where an operator has sent other arguments
        self.edit_rows: dict[int, dict[int, EditRow]] = defaultdict(dict)  # by task and link
        self.late_answer_rows: dict[int, dict[tuple[int, int], LateAnswerRow]] = defaultdict(dict)  # by task, attempt
        self.signal_rows: dict[int, dict[int, SignalRow]] = defaultdict(dict)  # by task and number
        self.numbers: dict[str, int] = {}
        self.steps: dict[int, dict[int, StepRow]] = defaultdict(dict)
        self.log: list[HistoryRow] = []
        self.processes: dict[int, ProcessRow] = {}
        self.leases: dict[str, LeaseRow] = {}
        self.statuses: dict[int, StatusRow] = {}
        self.published_rows: dict[int, dict[int, PublishedRow]] = defaultdict(dict)  # by task, ordinal
        self.alert_rows: dict[int, AlertRow] = {}
        self.convoys: dict[int, ConvoyRow] = {}
        self.tails: dict[int, TailRow] = {}
        self.ledgers: dict[int, LedgerRow] = {}
        self.aside: dict[tuple[int, int], str] = {}
        self.breaker_rows: dict[tuple[str, str, str], BreakerRow] = {}  # by App, Agent, target
        self.schedule_rows: dict[tuple[str, str], ScheduleRow] = {}  # by App, name
        self.count_rows: dict[tuple[str, int, int], CountsRow] = {}  # by App, process, minute
        self.token_rows: dict[str, TokenRow] = {}  # by id
        self.pause_rows: dict[tuple[str, str], WorkflowPauseRow] = {}  # by App, workflow
        self.secrets: dict[str, str] = {}
        self.floors: dict[str, int] = {}  # see core.obsolete_rows
        self.epoch = FIRST
        self.nobody_frees_until = Instant(0)
        self.last_renewed_at: Instant | None = None
        self._quarantine = Quarantine(self.now)
        self._numbers: dict[str, int] = {}  # the last one given, by kind of row
        self._store_link, self._store_head = 0, ""
        self._written: list[tuple[dict[Any, Any], Any, Any]] = []  # of this transaction: table, key, value before

    def now(self) -> Instant:
        raise NotImplementedError

    def read_clock(self) -> Instant:
        return self.now()

    def iterate_history(self) -> Iterator[HistoryRow]:
        """The whole history as it stands. Its rows name their tasks as they are named by now."""
        for row in list(self.log):
            task = self.tasks.get(row.task_no)
            is_renamed = task is not None and task.next_no is not None
            yield msgspec.structs.replace(row, task_id=task.task_id) if task is not None and is_renamed else row

    async def find_history_end(self) -> int:
        return self.log[-1].no if self.log else 0

    async def load_acts(self, before: int | None = None, *, limit: int) -> list[HistoryRow]:
        rows = (row for row in reversed(list(self.iterate_history())) if before is None or row.no < before)
        return list(itertools.islice(filter(_is_act, rows), limit))

    async def load_store_stream_back(self, before: int | None = None, *, limit: int) -> list[HistoryRow]:
        rows = (row for row in reversed(self.log) if row.task_no == 0 and (before is None or row.link < before))
        return list(itertools.islice(rows, limit))

    def store_head(self) -> tuple[int, str]:
        return self._store_link, self._store_head

    def put_store_head(self, link: int, head: str) -> None:
        self._store_link, self._store_head = link, head

    def _remove(self, table: dict[Any, Any], key: Any) -> None:
        if key in table:
            self._written.append((table, key, table.pop(key)))

    def _put(self, table: dict[Any, Any], key: Any, value: object) -> None:
        self._written.append((table, key, table.get(key)))
        table[key] = value

    def _transact(self, work: Callable[[], T]) -> T:
        """All that ``work`` writes, or nothing when it raises."""
        self._written.clear()
        commits, head, numbers = len(self.log), self.store_head(), dict(self._numbers)
        try:
            return work()
        except BaseException:
            for table, key, before in reversed(self._written):
                if before is None:
                    table.pop(key, None)
                else:
                    table[key] = before
            del self.log[commits:]
            self.put_store_head(*head)
            self._numbers = numbers
            raise

    def next_number(self, what: str) -> int:
        """The next number of a kind of row; none is given twice, also when rows are removed."""
        self._numbers[what] = self._numbers.get(what, 0) + 1
        return self._numbers[what]

    def number_from(self, what: str, first: int) -> None:
        """The next number of a kind of row is ``first`` at least."""
        self._numbers[what] = max(self._numbers.get(what, 0), first - 1)

    def read_floor(self, name: str) -> int:
        return self.floors.get(name, 0)


class MemorySignals(MemoryTables, SignalTable):
    """Signals."""

    def put_signal(self, signal: SignalRow) -> None:
        self._put(self.signal_rows[signal.task_no], signal.number, signal)

    def look_at_inbox(self, task_no: int, signal_id: str, name: str) -> Inbox:
        signals = self.select_signals(task_no, 0, SIGNALS_MAX)
        waiting = self.select_inboxes((task_no,))
        known = next((refuse_unreadable(signal) for signal in signals if signal.signal_id == signal_id), None)
        size = sum(len(signal.value.encode()) for signal in waiting)
        return Inbox(len(signals), len(waiting), size, sum(signal.name == name for signal in waiting), known)

    def signal(self, task_no: int, number: int) -> SignalRow | None:
        signal = self.signal_rows[task_no].get(number)
        return None if signal is None else refuse_unreadable(signal)

    def select_signals(self, task_no: int, after: int, limit: int) -> list[SignalRow]:
        return [signal for number, signal in sorted(self.signal_rows[task_no].items()) if number > after][:limit]

    def select_inboxes(self, task_nos: Sequence[int]) -> list[SignalRow]:
        signals = (signal for no in sorted(set(task_nos)) for signal in self.select_signals(no, 0, SIGNALS_MAX))
        return [signal for signal in signals if signal.step is None]


class MemoryChildren(MemorySignals):
    """Tasks that are steps of others."""

    def child(self, step_no: int) -> TaskRow | None:
        task = self.select_children((step_no,)).get(step_no)
        return None if task is None else refuse_unreadable(task)

    def select_children(self, step_nos: Sequence[int]) -> dict[int, TaskRow]:
        asked = set(step_nos)
        return {task.parent_step: task for task in self.tasks.values() if task.parent_step in asked}

    def select_forks(self, task_no: int, limit: int) -> list[TaskRow]:
        first_runs = (task for task in self.tasks.values() if task.run == 1)
        found = (task for task in first_runs if (task.forked_from or 0) >> STEP_BITS == task_no)
        return sorted(found, key=lambda task: task.task_no)[:limit]

    def select_parents(self, step_nos: Sequence[int]) -> dict[int, ParentStep]:
        steps = ((number, self.steps[number >> STEP_BITS].get(number)) for number in step_nos)
        found = ((number, self.tasks.get(number >> STEP_BITS), step) for number, step in steps if step is not None)
        return {number: build_parent_step(task, step) for number, task, step in found if task is not None}

    def parent(self, step_no: int) -> ParentStep | None:
        return self.select_parents((step_no,)).get(step_no)

    def is_child_of(self, task: TaskRow, parent_id: str) -> bool:
        """Returns True if a task is a child of another one."""
        parent = None if task.parent_step is None else self.tasks.get(task.parent_step >> STEP_BITS)
        return parent is not None and parent.task_id == parent_id

    async def find_unnoticed_children(self, since: Instant, until: Instant, limit: int) -> list[tuple[int, Instant]]:
        ended = (task for task in self.tasks.values() if task.parent_step is not None and task.ended_at is not None)
        found = (c for c in ended if since <= (c.ended_at or 0) <= until and self._is_unnoticed(c))
        ordered = sorted(found, key=lambda child: (child.ended_at or 0, child.task_no))
        return [(child.parent_step or 0, child.ended_at or Instant(0)) for child in ordered[:limit]]

    def _is_unnoticed(self, child: TaskRow) -> bool:
        number = child.parent_step or 0
        parent, step = self.tasks.get(number >> STEP_BITS), self.steps[number >> STEP_BITS].get(number)
        if parent is None or step is None or child.state not in (TaskState.PROCESSED, TaskState.COMPENSATED):
            return False
        is_idle = parent.state in TASK_OPEN and parent.locked_by is None and parent.unseen_since is None
        return is_idle and (step.state is StepState.RUNNING or parent.state is TaskState.COMPENSATING)


class MemoryRuns(MemoryChildren):
    """Runs of tasks that continue, and what each was submitted with."""

    def load_submitted(self, task_no: int) -> str | None:
        return self.asked.get(task_no, self.bodies[task_no])

    def find_signal_of_runs(self, first_no: int, signal_id: str) -> SignalRow | None:
        runs = {task.task_no for task in self.tasks.values() if task.first_no == first_no}
        signals = (signal for number in runs for signal in self.signal_rows[number].values())
        found = (one for one in signals if one.signal_id == signal_id and one.step is not None and one.step >= 0)
        return next(map(refuse_unreadable, found), None)

    def has_task(self, task_id: str) -> bool:
        return task_id in self.numbers

    def add_run(self, earlier: TaskRow, task: TaskRow, arguments: str) -> None:
        submitted = self.load_submitted(earlier.task_no)
        for row in (earlier, task):
            self._put(self.numbers, row.task_id, row.task_no)
        self._put(self.bodies, task.task_no, arguments)
        self._put(self.asked, task.task_no, submitted)
        for status in [one for one in self.statuses.values() if one.task_no == earlier.task_no]:
            self._put(self.statuses, status.no, msgspec.structs.replace(status, task_no=task.task_no))
        self._put(self.tasks, task.task_no, task)


class MemoryTasks(MemoryRuns, BreakerTable):
    """Tasks, steps, statuses, alerts and the history."""

    def set_apart(self, error: UnreadableRow) -> None:
        self._quarantine.add(error)

    def task(self, task_no: int) -> TaskRow | None:
        task = self.tasks.get(task_no)
        return None if task is None else refuse_unreadable(task)

    def step(self, step_no: int) -> StepRow | None:
        step = self.steps[step_no >> STEP_BITS].get(step_no)
        return None if step is None else refuse_unreadable(step)

    def open_steps(self, task_no: int) -> list[StepRow]:
        steps = map(refuse_unreadable, self.steps[task_no].values())
        return [s for s in steps if s.state in (StepState.PENDING, StepState.RUNNING)]

    def process_is_retired(self, process_no: int) -> bool:
        row = self.processes.get(process_no)
        return row is None or row.retired

    def process_was_retired(self, process_no: int) -> bool:
        row = self.processes.get(process_no)
        return row.retired if row is not None else any(number > process_no for number in self.processes)

    def term(self, lease: str) -> int:
        row = self.leases.get(lease)
        return 0 if row is None else self._quarantine.read_shared(row).term

    def steps_of(self, task_no: int) -> tuple[StepRow, ...]:
        return tuple(sorted(self.steps[task_no].values(), key=lambda s: s.ordinal))

    def people_commits(self, task_no: int, since: Instant) -> list[str]:
        found = [row for row in reversed(self.log) if row.task_no == task_no and row.at >= since]
        return [text for row in found if '"operator.' in (text := bytes(row.events).decode())]

    def breakers(self, agent: str) -> list[BreakerRow]:
        found = sorted(key for key in self.breaker_rows if key[1] == agent)
        rows = (self._quarantine.read_shared(self.breaker_rows[key]) for key in found)
        return [row for row in rows if is_remembered(row, self.now())]

    def select_half_open_breakers(self) -> list[BreakerRow]:
        return [row for row in self.select_all_breakers() if row.state is BreakerState.HALF_OPEN]

    def select_all_breakers(self) -> list[BreakerRow]:
        keys = sorted(self.breaker_rows, key=lambda key: (key[1], key[0], key[2]))
        return [self._quarantine.read_shared(self.breaker_rows[key]) for key in keys]

    def lock_breaker(self, app: str, agent: str, target: str) -> BreakerRow | None:
        row = self.breaker_rows.get((app, agent, target))
        return None if row is None else self._quarantine.read_shared(row)

    def put_breaker(self, breaker: BreakerRow) -> None:
        self._put(self.breaker_rows, (breaker.app, breaker.agent, breaker.target), breaker)

    add_breaker = put_breaker

    def put_task(self, task: TaskRow, *, rewrites: bool = False) -> None:
        self._put(self.tasks, task.task_no, task)

    def put_step(self, step: StepRow, *, rewrites: bool = False) -> None:
        self._put(self.steps[step.task_no], step.step_no, step)

    def add_step(self, step: StepRow) -> None:
        self._put(self.steps[step.task_no], step.step_no, step)

    def add_history(
        self, task_no: int, task_id: str, link: int, at: Instant, actor: str, events: str, digest: str
    ) -> None:
        number = self.next_number("history")
        self.log.append(HistoryRow(number, task_no, task_id, link, at, actor, msgspec.Raw(events.encode()), digest))

    def put_arguments(self, task_no: int, arguments: str) -> None:
        self._put(self.asked, task_no, self.load_submitted(task_no))
        self._put(self.bodies, task_no, arguments)

    def arguments(self, task_no: int) -> str:
        return self.bodies[task_no]

    def add_edit(self, edit: EditRow) -> None:
        self._put(self.edit_rows[edit.task_no], edit.link, edit)

    def add_late_answer(self, answer: LateAnswerRow) -> None:
        attempt, rows = (answer.ordinal, answer.fence), self.late_answer_rows[answer.task_no]
        if attempt not in rows:
            self._put(rows, attempt, answer)

    def add_status(self, status: StatusRow) -> None:
        number = self.next_number("status")
        self._put(self.statuses, number, replace(status, no=number))

    def add_alert(self, alert: AlertRow) -> None:
        known = self.open_alerts(alert.cause) if alert.cause in (UNREADABLE, QUESTION_CAUSE) else []
        if any((k.task_no, k.step, k.step_no) == (alert.task_no, alert.step, alert.step_no) for k in known):
            return
        number = self.next_number("alert")
        self._put(self.alert_rows, number, replace(alert, no=number))

    def open_alerts(self, cause: str) -> list[AlertRow]:
        return [a for a in self.alert_rows.values() if a.cause == cause and a.closed_at is None]

    def close_alert(self, task_no: int, at: Instant, *, causes: tuple[str, ...] = ()) -> None:
        """``causes``: only such alerts; none given: all that are open."""
        for alert in list(self.alert_rows.values()):
            if alert.task_no == task_no and (not causes or alert.cause in causes):
                self._close(alert, at)

    def close_question(self, step_no: int, at: Instant) -> None:
        for alert in self.open_alerts(QUESTION_CAUSE):
            if alert.step_no == step_no:
                self._close(alert, at)

    def close_breaker_alert(self, breaker: BreakerRow, at: Instant) -> None:
        for alert in list(self.alert_rows.values()):
            if (alert.cause, alert.step, alert.code) == (BREAKER_CAUSE, breaker.label, breaker.app):
                self._close(alert, at)

    def _close(self, alert: AlertRow, at: Instant) -> None:
        if alert.closed_at is None:
            closed = replace(alert, closed_at=at, told=(), attempts=alert.attempts + 1, next_at=at)
            self._put(self.alert_rows, alert.no, closed)


class MemoryProgress(MemoryTasks):
    """The latest values that tasks and steps have published."""

    def select_published(self, task_no: int, ordinals: Sequence[int]) -> dict[int, PublishedRow]:
        rows = self.published_rows.get(task_no, {})
        return {ordinal: legible(rows[ordinal]) for ordinal in ordinals if ordinal in rows}

    def put_published(self, row: PublishedRow) -> None:
        self._put(self.published_rows[row.task_no], row.ordinal, row)

    def replace_progress(self, status: StatusRow, visible_at: Instant | None) -> None:
        ours = [s for s in self.statuses.values() if s.task_no == status.task_no and s.kind == "progress"]
        seen = [] if visible_at is None else [s for s in ours if s.at <= visible_at]
        for old in ours:
            if old not in seen[-1:]:
                self._remove(self.statuses, old.no)
        self.add_status(status)


class MemoryConvoys(MemoryProgress):
    """Convoys and their members."""

    def convoy(self, convoy_no: int) -> ConvoyRow:
        if convoy_no not in self.convoys:
            raise Gone
        return refuse_unreadable(self.convoys[convoy_no])

    def find_tail(self, key: str) -> TailRow | None:
        found = next((tail for tail in self.tails.values() if tail.key == key), None)
        return None if found is None else refuse_unreadable(found)

    def next_convoy_no(self) -> int:
        return self.next_number("convoy")

    def read_expected(self, convoy_no: int) -> int:
        return self.convoy(convoy_no).expected

    def convoy_of(self, task: TaskRow) -> ConvoyRow | None:
        return None if task.convoy_no is None else self.convoys[task.convoy_no]

    def put_convoy(self, convoy: ConvoyRow) -> None:
        self._put(self.convoys, convoy.convoy_no, convoy)

    def put_tail(self, tail: TailRow) -> None:
        self._put(self.tails, tail.convoy_no, tail)

    def members(self, convoy_no: int) -> list[TaskRow]:
        """All tasks of a convoy, in their order."""
        found = (t for t in self.tasks.values() if t.convoy_no == convoy_no and t.turn is not None)
        return sorted(found, key=lambda task: (task.rank or 0, task.place or 0))

    def member(self, task_no: int) -> TaskRow | None:
        return self.task(task_no)

    def next_waiting(self, convoy_no: int, after: tuple[int, int]) -> TaskRow | None:
        waiting = (task for task in self.members(convoy_no) if task.turn is Turn.WAITING)
        first = next((task for task in waiting if (task.rank or 0, task.place or 0) > after), None)
        try:
            return None if first is None else refuse_unreadable(first)
        except UnreadableRow as error:
            self._quarantine.add(error)
            raise NextUnreadable(error) from error

    def waiting_line(self, convoy_no: int, after: tuple[int, int], limit: int) -> tuple[int, list[Loaded]]:
        found: list[Loaded] = []
        try:
            while len(found) < limit and (task := self.next_waiting(convoy_no, after)) is not None:
                found.append(Loaded(task, self.arguments(task.task_no), ()))
                after = (task.rank or 0, task.place or 0)
        except (NextUnreadable, UnreadableRow):
            pass
        return self.tails[convoy_no].placed, found

    def unended_messages(self, batch_no: int, state: TaskState) -> list[TaskRow]:
        found = (task for task in self.tasks.values() if task.batch_no == batch_no and task.task_no != batch_no)
        return [refuse_unreadable(task) for task in found if task.state is not state]

    def find_following(self, task: TaskRow) -> Loaded | None:
        assert task.convoy_no is not None
        try:
            behind = self.next_waiting(task.convoy_no, (task.rank or 0, task.place or 0))
        except NextUnreadable:
            return None
        return None if behind is None else Loaded(behind, self.arguments(behind.task_no), ())

    def find_by_sequence(self, convoy_no: int, sequence: int) -> TaskRow | None:
        """Find the task of a sequence number, also one that a ledger keeps."""
        found = (t for t in self.tasks.values() if t.convoy_no == convoy_no and t.sequence == sequence)
        return next(found, None)

    def count_sequences(self, convoy_no: int, start: int, end: int) -> int:
        return sum(task.sequence is not None and start <= task.sequence < end for task in self.members(convoy_no))

    def seal(self, convoy_no: int) -> TailRow | None:
        return refuse_unreadable(self.tails[convoy_no])


def _is_act(row: HistoryRow) -> bool:
    """Return True for a commit by which an operator acted; the other stores have an index of these."""
    if row.actor.startswith("operator"):
        return True
    return row.task_no == 0 and bytes(row.events)[10:].startswith((b"token.", b"lease.broken"))
