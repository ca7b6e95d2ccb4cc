"""Rows of the memory store as the engine finds them: what is due, processes and leases, ledgers, and what is purged."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ...core.due import (
    HEAD_START,
    WantedRequests,
    compute_position,
    find_next_deadline,
    find_task_deadline,
    find_wait_deadline,
    is_claimable,
    is_due,
    is_takeable,
)
from ...core.placement import build_first_convoy, build_first_tail
from ...core.routing import Ways
from ...model import (
    NOT_SAID,
    STEP_BITS,
    TASK_ENDED,
    AlertRow,
    ConvoyRow,
    Instant,
    LedgerRow,
    Loaded,
    StatusRow,
    StepRow,
    TailRow,
    TaskRow,
    TaskState,
    Turn,
)
from ...model.commands import Claim, Submit
from ...model.leases import LeaseRow
from ...model.processes import ProcessRow, compute_first_number
from ..contract import CALLBACK_SECRET, PastDeadline, Purge, Renewals
from ..engine.batch import STORE_STREAM
from ..quarantine import UNREADABLE
from ..readable import refuse_unreadable, refuse_unreadable_task
from ..sql.agent_rows import CommandRows
from ..sql.rows import ProcessRows, ReadingRows, UpkeepRows
from ..sql.store_rows import SubmissionRows
from .alert_rows import read_alert
from .workflow_pauses import MemoryWorkflowPauses

T = TypeVar("T")
_DONE = (TaskState.PROCESSED, TaskState.COMPENSATED)
_ENDED = (*_DONE, TaskState.HELD)


class MemoryDue(MemoryWorkflowPauses, CommandRows, ReadingRows):
    """Due rows, and the rows that a process holds."""

    def load_as_is(self, task_no: int) -> Loaded:
        """A task as it stands, also where it cannot be read."""
        task = self.tasks[task_no]
        return Loaded(task, self.bodies[task_no], self.steps_of(task_no), self.convoy_of(task))

    def load_locked(self, task: TaskRow) -> Loaded:
        return refuse_unreadable_task(self.load_as_is(task.task_no))

    def select_tasks(self, task_nos: Sequence[int]) -> list[Loaded]:
        return self.add_inboxes([self.load_as_is(task_no) for task_no in task_nos if task_no in self.tasks])

    def select_ended(self, task_nos: Sequence[int]) -> list[TaskRow]:
        tasks = [self.tasks[no] for no in sorted(set(task_nos)) if no in self.tasks]
        return [task for task in tasks if task.state in _ENDED]

    def select_name(self, task_no: int) -> tuple[str, str, object] | None:
        task = self.tasks.get(task_no)
        return None if task is None else (task.task_id, task.workflow, task.incarnation)

    def select_first_waiting(self, convoy_no: int) -> int:
        return next((task.task_no for task in self.members(convoy_no) if task.turn is Turn.WAITING), 0)

    def _all_steps(self) -> Iterable[StepRow]:
        return (step for of_task in self.steps.values() for step in of_task.values())

    def _steps_not_apart(self) -> list[StepRow]:
        left_alone = set(self._quarantine.tasks())
        return [step for step in self._all_steps() if step.task_no not in left_alone]

    def lock_due_convoys(self, limit: int) -> list[ConvoyRow]:
        left_alone, now = set(self._quarantine.convoys()), self.now()
        due = [(c.look_at, c) for c in self.convoys.values() if is_due(c.look_at, now)]
        found = [convoy for _, convoy in sorted(due, key=lambda one: (one[0], one[1].convoy_no))]
        found += [c for c in self.convoys.values() if self._is_full(c) and c not in found]
        return self._quarantine.readable(convoy for convoy in found if convoy.convoy_no not in left_alone)[:limit]

    def _is_full(self, convoy: ConvoyRow) -> bool:
        """Returns True if the batch that its open task gathers is full."""
        return convoy.full_at is not None and convoy.full_at <= self.tails[convoy.convoy_no].placed

    def lock_claimable(self, command: Claim, probation: bool, limit: int) -> list[Loaded]:
        left_alone, now = set(self._quarantine.tasks()), self.now()
        due = [
            t
            for t in self.tasks.values()
            if t.task_no not in left_alone and is_claimable(t, command, now, probation=probation)
        ]
        first = sorted(due, key=lambda t: _find_position(t, t.task_no))
        return _take_readable(limit, (self.load_as_is(t.task_no) for t in first), self._quarantine.can_read_task)

    def lock_takeable(self, wanted: WantedRequests, limit: int, *, keyless: bool = False) -> list[StepRow]:
        first = (step for step in self._list_due(wanted) if step.limit_keys is None or not keyless)
        return self._first_readable(limit, (step for step in first if not wanted.barred.holds(step)))

    def lock_takeable_of_keys(self, wanted: WantedRequests, keys: Sequence[str], of_each: int) -> list[StepRow]:
        due = [step for step in self._list_due(wanted) if not wanted.barred.holds(step)]
        found: list[StepRow] = []
        for key in keys:
            found += self._first_readable(of_each, (step for step in due if step.limit_keys == key))
        return found

    def lock_movable(self, wanted: WantedRequests, limit: int, ways: Ways) -> list[StepRow]:
        return self._first_readable(limit, filter(ways.lead, self._list_due(wanted)))

    def _list_due(self, wanted: WantedRequests) -> list[StepRow]:
        """Due requests in their order, also those that are barred."""
        now = self.now()
        due = [s for s in self._steps_not_apart() if is_takeable(s, self.tasks[s.task_no], wanted, now)]
        return sorted(due, key=lambda s: _find_position(s, s.step_no, wanted.head_start))

    def _first_readable(self, limit: int, steps: Iterable[StepRow]) -> list[StepRow]:
        return _take_readable(
            limit, steps, lambda step: self._quarantine.can_read(partial(self._refuse_unreadable, step))
        )

    def _refuse_unreadable(self, step: StepRow) -> None:
        refuse_unreadable(step)
        refuse_unreadable(self.tasks[step.task_no])

    def select_held(self, process_no: int, limit: int) -> list[int]:
        left_alone = set(self._quarantine.tasks())
        return [task_no for task_no in self._held_by(process_no) if task_no not in left_alone][:limit]

    def _held_by(self, process_no: int) -> list[int]:
        held = {t.task_no for t in self.tasks.values() if t.locked_by == process_no}
        held |= {s.task_no for s in self._all_steps() if s.locked_by == process_no}
        return sorted(held)

    def select_past_deadline(self, now: Instant, since: Instant, until: Instant, limit: int) -> PastDeadline:
        left_alone = set(self._quarantine.tasks())
        steps = sorted(self._steps_not_apart(), key=lambda s: s.step_no)
        tasks = sorted((t for t in self.tasks.values() if t.task_no not in left_alone), key=lambda t: t.task_no)
        held = [t for t in tasks if t.locked_by is not None]
        return PastDeadline(
            _past([(s.complete_by, s) for s in steps], now, limit),
            _past([(find_wait_deadline(s), s) for s in steps], now, limit),
            _past([(find_task_deadline(t), t.task_no) for t in tasks], now, limit),
            _past([(t.unseen_since, t.task_no) for t in held], since, limit),
            find_next_deadline(steps, tasks, now, until),
        )


def _take_readable(limit: int, rows: Iterable[T], can_read: Callable[[T], bool]) -> list[T]:
    """The first rows that can be read; what stands behind them is not looked at."""
    found: list[T] = []
    for row in rows:
        if len(found) >= limit:
            break
        if can_read(row):
            found.append(row)
    return found


def _find_position(row: TaskRow | StepRow, number: int, head_start: int = HEAD_START) -> tuple[int, int]:
    assert row.not_before is not None
    return compute_position(row.priority, row.not_before, number, head_start)


def _past(deadlines: Iterable[tuple[Instant | None, T]], now: Instant, limit: int) -> list[T]:
    """Rows whose deadline has passed, longest first; those of one deadline in the order of ``deadlines``."""
    past = [(deadline, row) for deadline, row in deadlines if deadline is not None and is_due(deadline, now)]
    return [row for _, row in sorted(past, key=lambda one: one[0])][:limit]


class MemoryProcesses(MemoryDue, ProcessRows):
    """Processes, leases and epochs."""

    def lock_known_code(self) -> list[str]:
        return [process.about for process in self.processes.values()]

    def count_unsaid(self, workflows: Sequence[str]) -> Mapping[str, int]:
        unsaid = [t for t in self.tasks.values() if t.app == NOT_SAID and t.state not in _DONE]
        return Counter(t.workflow for t in unsaid if t.workflow in workflows and not self.is_hidden(t))

    def select_number(self, task_id: str) -> int | None:
        number = self.numbers.get(task_id)
        return None if number is None or self.is_hidden(self.tasks[number]) else number

    def is_hidden(self, task: TaskRow) -> bool:
        """Returns True if the task belongs to a ledger that is not opened."""
        return task.ledger_no is not None and not self.ledgers[task.ledger_no].is_open

    def add_process(self, instance: str, lease_until: Instant, about: str) -> tuple[int, int]:
        process_no = self.next_number("process")
        self._put(self.processes, process_no, ProcessRow(process_no, instance, lease_until, False, about))
        return process_no, self.epoch

    def lock_process(self, process_no: int) -> ProcessRow | None:
        row = self.processes.get(process_no)
        return None if row is None else self._quarantine.read_shared(row)

    def _change_process(self, process_no: int, **changes: object) -> bool:
        """False: it is retired and stays as it is, or its row was removed."""
        row = self.processes.get(process_no)
        if row is None:
            return False
        if not row.retired:
            self._put(self.processes, process_no, replace(row, **changes))
        return not row.retired

    def retire_process(self, process_no: int, now: Instant) -> None:
        lease_until = min(self.processes[process_no].lease_until, now)
        self._change_process(process_no, retired=True, lease_until=lease_until)

    def describe_process(self, process_no: int, about: str) -> None:
        self._change_process(process_no, about=about)

    def renew_process(self, process_no: int, lease_until: Instant, now: Instant, room: str) -> bool:
        self.last_renewed_at = now
        return self._change_process(process_no, lease_until=lease_until, room=room)

    def select_renewals(self, process_no: int) -> Renewals:
        others = (self._quarantine.read_shared(row) for no, row in self.processes.items() if no != process_no)
        named = tuple(process for process in others if not process.retired or self._held_by(process.process_no))
        return Renewals(self.last_renewed_at, self.nobody_frees_until, named)

    def put_nobody_frees_until(self, until: Instant) -> None:
        self.nobody_frees_until = until

    def select_processes(self) -> list[ProcessRow]:
        return [self._quarantine.read_shared(row) for row in self.processes.values() if not row.retired]

    def read_epoch(self) -> int:
        return self.epoch

    def open_epoch(self) -> int:
        self.epoch += 1
        for process_no in self.processes:
            self.retire_process(process_no, self.now())
        for name in self.secrets.keys() - {CALLBACK_SECRET}:
            self._remove(self.secrets, name)
        for what in ("task", "process"):
            self.number_from(what, compute_first_number(self.epoch))
        return self.epoch

    def deliver_open_alerts_again(self) -> None:
        for alert in list(self.alert_rows.values()):
            if alert.closed_at is None:
                again = replace(alert, told=(), attempts=alert.attempts + 1, next_at=self.now())
                self._put(self.alert_rows, alert.no, again)

    def select_lease(self, name: str) -> LeaseRow | None:
        row = self.leases.get(name)
        return None if row is None else self._quarantine.read_shared(row)

    def select_leases(self) -> list[LeaseRow]:
        return [self._quarantine.read_shared(self.leases[name]) for name in sorted(self.leases)]

    def lock_lease(self, name: str, *, to_grant: bool = False) -> LeaseRow | None:
        return self.select_lease(name)

    def add_lease(self, name: str) -> None:
        self.put_lease(LeaseRow(name, 0, None, Instant(0)))

    def put_lease(self, lease: LeaseRow) -> None:
        self._put(self.leases, lease.name, lease)


class MemoryLedgers(MemoryProcesses, SubmissionRows):
    """Ledgers and new tasks."""

    def add_ledger(self, ledger_id: str) -> LedgerRow:
        known = self.select_ledger(ledger_id)
        if known is None:
            now, number = self.now(), self.next_number("ledger")
            known = LedgerRow(ledger_no=number, ledger_id=ledger_id, created_at=now, written_at=now)
            self.put_ledger(known)
        return known

    def ledger(self, ledger_no: int) -> LedgerRow | None:
        row = self.ledgers.get(ledger_no)
        return None if row is None else refuse_unreadable(row)

    def select_ledger(self, ledger_id: str) -> LedgerRow | None:
        found = next((ledger for ledger in self.ledgers.values() if ledger.ledger_id == ledger_id), None)
        return None if found is None else refuse_unreadable(found)

    purge_ledger = select_ledger

    def put_ledger(self, ledger: LedgerRow) -> None:
        self._put(self.ledgers, ledger.ledger_no, ledger)

    def add_aside(self, ledger_no: int, line: int, reason: str) -> None:
        self._put(self.aside, (ledger_no, line), reason)

    def select_of_ledger(self, ledger: LedgerRow, limit: int) -> list[TaskRow]:
        found = (t for t in self.tasks.values() if t.ledger_no == ledger.ledger_no and t.task_no > ledger.reached)
        return sorted(found, key=lambda task: task.task_no)[:limit]

    def remove_kept(self, tasks: Sequence[TaskRow]) -> None:
        for task in tasks:
            self._remove(self.tasks, task.task_no)
            self._remove(self.bodies, task.task_no)
            self._remove(self.numbers, task.task_id)

    def remove_ledger(self, ledger_no: int) -> None:
        self._remove(self.ledgers, ledger_no)
        for key in [key for key in self.aside if key[0] == ledger_no]:
            self._remove(self.aside, key)

    def new_tail(self, command: Submit, now: Instant) -> TailRow:
        tail = build_first_tail(self.next_convoy_no(), command)
        self.put_convoy(build_first_convoy(tail, now))
        self.put_tail(tail)
        return tail

    def order(self, tail: TailRow) -> None:
        self.put_tail(tail)

    def keeps_some_in(self, convoy_no: int) -> bool:
        return any(task.ledger_no is not None and task.convoy_no == convoy_no for task in self.tasks.values())

    def find_known(self, command: Submit) -> TaskRow | None:
        return self.task_by_id(command.task_id)

    def task_by_id(self, task_id: str) -> TaskRow | None:
        number = self.numbers.get(task_id)
        return None if number is None else self.tasks[number]

    def find_numbered(self, command: Submit, convoy_no: int) -> TaskRow | None:
        return None if command.sequence is None else self.find_by_sequence(convoy_no, command.sequence)

    def count_open_tasks(self, submitter: str, limit: int) -> int:
        found = (1 for task in self.tasks.values() if task.submitter == submitter and task.state not in TASK_ENDED)
        return sum(islice(found, limit))

    def next_task_no(self) -> int:
        return self.next_number("task")

    def add_task(self, task: TaskRow, arguments: str) -> None:
        self._put(self.numbers, task.task_id, task.task_no)
        self._put(self.bodies, task.task_no, arguments)
        self._put(self.tasks, task.task_no, task)

    def tail(self, convoy_no: int) -> TailRow:
        return refuse_unreadable(self.tails[convoy_no])


class MemoryUpkeep(MemoryLedgers, UpkeepRows):
    """Statuses, alerts, and what is purged."""

    def lock_old_statuses(self, before: Instant, limit: int) -> list[StatusRow]:
        old = (s for s in self.statuses.values() if s.at < before and s.kind != "dropped")
        return sorted(old, key=lambda s: s.no)[:limit]

    def lock_gap_marks(self, queues: Sequence[str]) -> list[StatusRow]:
        return [s for s in self.statuses.values() if s.kind == "dropped" and s.queue in queues]

    def remove_statuses(self, statuses: Sequence[tuple[str, int]]) -> None:
        for queue, number in statuses:
            if number in self.statuses and self.statuses[number].queue == queue:
                self._remove(self.statuses, number)

    def hold_alerts(self, now: Instant, next_at: Instant, limit: int) -> list[AlertRow]:
        due = _past([(a.next_at, a) for a in sorted(self.alert_rows.values(), key=lambda a: a.no)], now, limit)
        held = [replace(alert, attempts=alert.attempts + 1, next_at=next_at) for alert in due]
        for alert in held:
            self._put(self.alert_rows, alert.no, alert)
        return [read_alert(alert, self.tasks) for alert in held]

    def keep_told(self, no: int, attempts: int, told: Sequence[str], next_at: Instant | None, error: str) -> bool:
        alert = self.alert_rows.get(no)
        if alert is None or alert.attempts != attempts:
            return False
        self._put(self.alert_rows, no, replace(alert, told=tuple(told), next_at=next_at, error=error))
        return True

    def select_unreadable(self, limit: int) -> list[tuple[int, str]]:
        return [(alert.task_no, alert.step) for alert in self.open_alerts(UNREADABLE)][:limit]

    def close_unreadable_rows(self, names: Sequence[str]) -> None:
        for alert in self.open_alerts(UNREADABLE):
            if not alert.task_no and alert.step in names:
                self._close(alert, self.now())

    def close_unreadable(self, task_nos: Sequence[int]) -> None:
        for task_no in task_nos:
            self.close_alert(task_no, self.now(), causes=(UNREADABLE,))

    # --- purging
    def lock_purgeable(self, which: Purge, limit: int, after: int) -> list[tuple[int, int, str]]:
        meant = (t for t in self.tasks.values() if t.task_no > after and self._may_be_purged(t, which))
        return sorted((t.task_no, t.link, t.head) for t in meant)[:limit]

    def _may_be_purged(self, task: TaskRow, which: Purge) -> bool:
        return (
            task.state in which.states
            and task.ended_at is not None
            and task.ended_at <= which.ended_before
            and task.open_count == 0
            and task.turn not in (Turn.WAITING, Turn.OPEN)
            and not self._is_still_counted(task)
            and not self.untold((task.task_no,))
            and not self.unread((task.task_no,))
            and not self._has_open_parent(task)
        )

    def _has_open_parent(self, task: TaskRow) -> bool:
        parent = None if task.parent_step is None else self.tasks.get(task.parent_step >> STEP_BITS)
        return parent is not None and parent.state not in (TaskState.PROCESSED, TaskState.COMPENSATED)

    def _is_still_counted(self, task: TaskRow) -> bool:
        """Its number stands behind the next one of its convoy's sequence: without it there would be a gap."""
        convoy = self.convoy_of(task)
        return convoy is not None and task.sequence is not None and task.sequence >= convoy.expected

    def select_tail(self, key: str) -> TailRow | None:
        return self.find_tail(key)

    purge_tail = select_tail

    def purge_tasks(self, task_nos: Sequence[int]) -> list[TaskRow]:
        return [self.tasks[number] for number in sorted(task_nos) if number in self.tasks]

    def read_expected_unlocked(self, convoy_no: int) -> int:
        return self.convoys[convoy_no].expected

    def unread(self, task_nos: Sequence[int]) -> dict[int, str]:
        return {status.task_no: status.queue for status in self.statuses.values() if status.task_no in task_nos}

    def untold(self, task_nos: Sequence[int]) -> set[int]:
        return {a.task_no for a in self.alert_rows.values() if a.next_at is not None and a.task_no in task_nos}

    def remove_tasks(self, task_nos: Sequence[int]) -> None:
        for task_no in task_nos:
            self._remove(self.numbers, self.tasks[task_no].task_id)
            for table in (
                self.tasks,
                self.bodies,
                self.asked,
                self.steps,
                self.edit_rows,
                self.late_answer_rows,
                self.published_rows,
                self.signal_rows,
            ):
                self._remove(table, task_no)
        for alert in [a for a in self.alert_rows.values() if a.task_no in task_nos]:
            self._remove(self.alert_rows, alert.no)
        self.log[:] = [row for row in self.log if row.task_no not in task_nos]

    def remove_convoy(self, convoy_no: int) -> None:
        self._remove(self.convoys, convoy_no)
        self._remove(self.tails, convoy_no)
        self.log[:] = [row for row in self.log if row.task_no != -convoy_no]

    def erase(self, rows: Sequence[int], events: str) -> None:
        erased = {"actor": "", "events": msgspec.Raw(events.encode())}
        self.log[:] = [replace(row, **erased) if row.no in rows else row for row in self.log]

    def select_of_convoy(self, convoy_no: int) -> list[int]:
        return [task.task_no for task in self.tasks.values() if task.convoy_no == convoy_no]

    def select_earlier_runs(self, task_no: int) -> list[int]:
        task = self.tasks[task_no]
        if task.first_no is None or task.next_no is not None:
            return []
        return sorted(n for n, one in self.tasks.items() if one.first_no == task.first_no and n != task_no)

    def select_all_runs(self, task_nos: Sequence[int]) -> list[int]:
        first = {self.tasks[number].first_no for number in task_nos if number in self.tasks} - {None}
        return [number for number, task in self.tasks.items() if task.first_no in first]

    def select_kept(self, ledger_no: int) -> list[int]:
        return [task.task_no for task in self.tasks.values() if task.ledger_no == ledger_no]

    def select_naming_ledger(self, said: str) -> list[tuple[int, int, int, str]]:
        named = (row for row in self.log if said.encode() in bytes(row.events))
        first = (row for row in named if row.task_no == STORE_STREAM or (row.task_no > 0 and row.link == 1))
        return [(row.no, row.task_no, row.link, row.hash) for row in first]
