"""Rows of one transaction, as ``core.transitions`` and ``store.engine.batch`` ask for them: read before, written at its end.

Every row of a task is changed only by the one who has locked the task's own row; so what was read stays true.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ...core.parents import ParentStep
from ...errors import UnreadableRow
from ...model import (
    STEP_BITS,
    STEP_OPEN,
    AlertRow,
    ConvoyRow,
    EditRow,
    Instant,
    LateAnswerRow,
    Loaded,
    StatusRow,
    StepRow,
    TailRow,
    TaskRow,
)
from ...model.agents import NO_LIMIT_KEYS, AgentLimitsRow, BreakerRow
from ...model.workflow_pauses import NO_PAUSES, Pauses
from .. import columns
from ..quarantine import R
from ..readable import refuse_unreadable, without_body
from ..rows import Row, as_stored, parent_step_of
from ..sql.agent_rows import BreakerTable, LimitTable
from ..sql.progress_rows import ProgressTable, keep_visible
from ..sql.signal_rows import SignalTable
from ..sql.workflow_pauses import WorkflowPauseRows
from .columns import Write, as_json, insert_rows, step_as_is, task_as_is, update_rows
from .context import StoreContext
from .pipeline import PendingAnswer
from .session import Transaction

replace = msgspec.structs.replace

STARTS_LOCK_SECONDS = 0.5  # a batch takes milliseconds; while its end is waited for, no other process commits one
INSERT_TASKS = insert_rows("task", columns.TASK)
UPDATE_TASKS = update_rows("task", "task_no", columns.TASK_CHANGES)
REWRITE_TASKS = update_rows("task", "task_no", columns.TASK_REWRITES)
UPDATE_STEPS = update_rows("step", "step_no", columns.STEP_CHANGES)
REWRITE_STEPS = update_rows("step", "step_no", columns.STEP_REWRITES)
INSERT_STEPS = insert_rows("step", columns.STEP)
UPDATE_CONVOYS = update_rows("convoy", "convoy_no", columns.CONVOY_CHANGES)
UPDATE_TAILS = update_rows("convoy_tail", "convoy_no", columns.TAIL_CHANGES)
INSERT_STATUSES = insert_rows("status", columns.STATUS)
# Of alerts that report an unreadable row one task has at most one open.
INSERT_ALERTS = insert_rows("alert", columns.ALERT, suffix=" ON CONFLICT DO NOTHING")
INSERT_EDITS = insert_rows("edit", columns.EDIT)
INSERT_LATE_ANSWERS = insert_rows("late_answer", columns.LATE_ANSWER, suffix=" ON CONFLICT DO NOTHING")
INSERT_HISTORY = insert_rows("history", columns.HISTORY, from_dicts=True)


class PostgresWrittenRows(SignalTable, BreakerTable, LimitTable, ProgressTable, WorkflowPauseRows):
    """Rows that one transaction has read, and those that it writes at its end, many at the same time."""

    task_as_is = staticmethod(task_as_is)
    step_as_is = staticmethod(step_as_is)
    pauses: Pauses = NO_PAUSES  # as read where a task may begin, or be submitted

    def __init__(self, transaction: Transaction, context: StoreContext) -> None:
        self._breakers: dict[str, list[BreakerRow]] = {}
        self._limits: dict[str, list[AgentLimitsRow]] = {}
        self._locked_limits: dict[tuple[str, str], AgentLimitsRow] = {}  # by App, Agent
        self.transaction = transaction
        self._context = context
        self._quarantine = context.quarantine
        self._now: Instant | None = None  # as it was read since the last row was locked
        self._unreadable: dict[int, UnreadableRow] = {}  # by task: raised to who asks for it
        self._unreadable_convoys: dict[int, UnreadableRow] = {}
        self._tasks: dict[int, TaskRow] = {}
        self._steps: dict[int, StepRow] = {}
        self._open_read: set[int] = set()  # tasks whose open steps are all here
        self._all_read: set[int] = set()  # tasks whose steps are all here
        self._terms: dict[str, int] = {}
        self._retired: dict[int, bool | None] = {}
        self._head: tuple[int, str] | None = None
        self._convoys: dict[int, ConvoyRow] = {}
        self._next: dict[int, TaskRow] = {}  # that waits and stands first in its convoy, as was read at the start
        self._behind: dict[int, Loaded] = {}  # that waits behind that one, not locked
        self._lines: dict[int, tuple[int, list[int]]] = {}  # of convoys: tasks placed, and numbers of those that wait
        self._asked_members: set[int] = set()  # tasks of convoys that this transaction has tried to lock
        self._touched: set[int] = set()  # convoys that have changed since
        self._sealed: dict[int, TailRow] = {}
        self._drained: set[int] = set()  # convoys where nothing waits, as was seen after they were sealed
        self._bodies: dict[int, str | None] = {}  # None: it is missing
        self._forget_written()

    def _forget_written(self) -> None:
        self._changed_tasks: dict[int, bool] = {}  # whether it is rewritten
        self._changed_steps: dict[int, bool] = {}
        self._added_steps: dict[int, StepRow] = {}
        self._statuses: list[StatusRow] = []
        self._alerts: list[AlertRow] = []
        self._closed: list[tuple[str, dict[str, Any]]] = []
        self._arguments: list[dict[str, Any]] = []
        self._edits: list[EditRow] = []
        self._late_answers: list[LateAnswerRow] = []
        self._history: list[dict[str, Any]] = []
        self._head_moved = False
        self._changed_convoys: dict[int, ConvoyRow] = {}
        self._changed_tails: dict[int, TailRow] = {}

    def ask(self, name: str, parameters: Mapping[str, Any] | None = None, /) -> PendingAnswer:
        return self.transaction.ask(name, parameters)

    def child(self, step_no: int) -> TaskRow | None:
        self.ask("lock_child_step", {"step_no": step_no})
        row = self.ask("select_children", {"step_nos": [step_no]}).fetchone()
        return None if row is None else refuse_unreadable(task_as_is(row))

    def parent(self, step_no: int) -> ParentStep | None:
        row = self.ask("select_parents", {"step_nos": [step_no]}).fetchone()
        found = None if row is None else parent_step_of(row)
        task = self._tasks.get(step_no >> STEP_BITS)  # it may have changed in this transaction, and not be written yet
        if found is None or task is None:
            return found
        return replace(found, state=task.state, undoing=task.undoing, past_count=task.past_count)

    def ask_plain(self, sql: str, parameters: Mapping[str, Any]) -> PendingAnswer:
        return self.transaction.plain(sql, parameters)

    def read_recent_clock(self) -> Instant:
        return self._context.now()

    def arrive(self) -> None:
        self.transaction.arrive()

    def read_clock(self) -> Instant:
        if self._now is None:
            self._now = self._context.read_clock(self._context.ask_clock(self.transaction))
        return self._now

    def keep_clock(self, asked: PendingAnswer) -> None:
        """The store's clock, as a statement answers it that was asked after all locks."""
        self._now = self._context.read_clock(asked)

    def lock_starts(self) -> None:
        """See WorkflowPauseRows. It waits for a short time only: meanwhile no other process commits a batch."""
        self.ask("limit_lock_wait", {"lock": f"{round(STARTS_LOCK_SECONDS * 1_000)}ms"})
        self.ask("lock_engines")
        self.ask("lock_submitters")
        self._now = None

    def keep_locked_limits(self, rows: Sequence[Row]) -> None:
        """Keep limits that this transaction has locked at its start."""
        self._locked_limits |= {(row.app, row.agent): row for row in self.read_shared(AgentLimitsRow, rows)}

    def lock_limits(self, app: str, agents: Sequence[str]) -> list[AgentLimitsRow]:
        """See LimitTable. What is locked already is not asked for again: others wait for each round trip."""
        if all((app, agent) in self._locked_limits for agent in agents):
            return [self._locked_limits[app, agent] for agent in sorted(agents)]
        return super().lock_limits(app, agents)

    def put_limits(self, row: AgentLimitsRow) -> None:
        super().put_limits(row)
        if (row.app, row.agent) in self._locked_limits:
            self._locked_limits[row.app, row.agent] = row

    def ask_shared(self, table: str, columns: Sequence[str], key: Mapping[str, Any], limit: int) -> PendingAnswer:
        where = "".join(f" AND {column} = %({column})s" for column in key)
        text = f"SELECT {', '.join(columns)} FROM {{schema}}.{table} WHERE true{where} LIMIT {limit}"
        return self.transaction.plain(text, key)

    def set_apart(self, error: UnreadableRow) -> None:
        self._quarantine.add(error)

    def add_edit(self, edit: EditRow) -> None:
        self._edits.append(edit)

    def add_late_answer(self, answer: LateAnswerRow) -> None:
        self._late_answers.append(answer)

    def add_status(self, status: StatusRow) -> None:
        self._statuses.append(as_stored(status))

    def drop_unwritten_progress(self, task_no: int, visible_at: Instant | None) -> None:
        self._statuses = keep_visible(self._statuses, task_no, visible_at)

    def add_alert(self, alert: AlertRow) -> None:
        self._alerts.append(alert)

    def close_alert(self, task_no: int, at: Instant) -> None:
        self._closed.append(("close_alert", {"task_no": task_no, "at": at}))
        self._close_unwritten(at, lambda alert: alert.task_no == task_no)

    def close_question(self, step_no: int, at: Instant) -> None:
        self._closed.append(("close_question", {"step_no": step_no, "at": at}))
        self._close_unwritten(at, lambda alert: alert.step_no == step_no)

    def _close_unwritten(self, at: Instant, is_meant: Callable[[AlertRow], bool]) -> None:
        """Close alerts that this transaction has opened."""
        self._alerts = [
            replace(alert, closed_at=at, attempts=alert.attempts + 1, next_at=at) if is_meant(alert) else alert
            for alert in self._alerts
        ]

    def store_head(self) -> tuple[int, str]:
        if self._head is None:
            row = self.ask("select_store_head").fetchone()
            assert row is not None
            self._head = (row[0], row[1])
        return self._head

    def put_store_head(self, link: int, head: str) -> None:
        self._head, self._head_moved = (link, head), True

    def add_history(
        self, task_no: int, task_id: str, link: int, at: Instant, actor: str, events: str, digest: str
    ) -> None:
        self._history.append(
            {"task_no": task_no, "link": link, "at": at, "actor": actor, "events": events, "hash": digest}
        )

    def flush(self) -> None:
        """Send what was written, one statement a kind."""
        tasks, steps = self._changed_tasks, self._changed_steps
        written: tuple[tuple[Write, Sequence[Any]], ...] = (
            (UPDATE_TASKS, [self._tasks[number] for number, rewrites in tasks.items() if not rewrites]),
            (REWRITE_TASKS, [self._tasks[number] for number, rewrites in tasks.items() if rewrites]),
            (UPDATE_STEPS, [self._steps[number] for number, rewrites in steps.items() if not rewrites]),
            (REWRITE_STEPS, [self._steps[number] for number, rewrites in steps.items() if rewrites]),
            (UPDATE_CONVOYS, list(self._changed_convoys.values())),
            (UPDATE_TAILS, list(self._changed_tails.values())),
            (INSERT_STEPS, list(self._added_steps.values())),
            (INSERT_STATUSES, self._statuses),
            (INSERT_EDITS, self._edits),
            (INSERT_LATE_ANSWERS, self._late_answers),
        )
        for statement, rows in written:
            if rows:
                self.transaction.write(statement, rows)
        changed = (*self._added_steps.values(), *(self._steps[number] for number in steps))
        if any(step.limit_keys not in NO_LIMIT_KEYS for step in changed):  # of most steps none is
            self.note_waiting_keys(changed)
        for name, asked in self._closed:
            self.ask(name, asked)
        if self._alerts:
            self.transaction.write(INSERT_ALERTS, self._alerts)
        if self._arguments:
            self.ask("update_bodies", {"rows": as_json(self._arguments)})
        if self._head_moved:
            assert self._head is not None
            self.ask("put_store_head", {"link": self._head[0], "head": self._head[1]})
        if self._history:
            self.transaction.write(INSERT_HISTORY, self._history)
        self._forget_written()


class PostgresTaskRows(PostgresWrittenRows):
    """Tasks and their steps."""

    # --- what was read
    def keep_tasks(self, rows: Iterable[tuple[Any, ...]]) -> list[TaskRow]:
        """Rows of tasks that this transaction has locked, those that can be read."""
        tasks = [task for row in rows if (task := self._readable(task_as_is(row))) is not None]
        for task in tasks:
            self._tasks[task.task_no] = task
        return tasks

    def _readable(self, row: R) -> R | None:
        """The row; None: this release cannot read it, and who asks for its task gets the error."""
        try:
            return refuse_unreadable(row)
        except UnreadableRow as error:
            self._unreadable[error.task_no] = error
            return None

    def keep_steps(self, rows: Iterable[tuple[Any, ...]]) -> list[StepRow]:
        """Rows of steps of tasks that this transaction has locked."""
        steps = [step for row in rows if (step := self._readable(step_as_is(row))) is not None]
        for step in steps:
            self._steps[step.step_no] = step
        return steps

    def open_steps_read(self, task_nos: Iterable[int]) -> None:
        """All open steps of these tasks were kept."""
        self._open_read.update(task_nos)

    def steps_read(self, task_nos: Iterable[int]) -> None:
        """All steps of these tasks were kept."""
        self._all_read.update(task_nos)

    def keep_process(self, process_no: int, row: tuple[Any, ...] | None) -> None:
        """A process's row; None: there is none."""
        self._retired[process_no] = None if row is None else row[3]

    def keep_term(self, lease: str, term: int) -> None:
        """A lease's term, which stays so until the transaction ends."""
        self._terms[lease] = term

    # --- rows as they stand
    def _refuse_unreadable(self, task_no: int) -> None:
        if task_no in self._unreadable:
            raise self._unreadable[task_no]

    def task(self, task_no: int) -> TaskRow | None:
        self._refuse_unreadable(task_no)
        return self._tasks.get(task_no)

    def step(self, step_no: int) -> StepRow | None:
        task_no = step_no >> STEP_BITS
        self._refuse_unreadable(task_no)
        if step_no not in self._steps and task_no in self._tasks and task_no not in self._all_read:
            self.keep_steps(self.ask("select_named_steps", {"step_nos": [step_no]}).fetchall())
        return self._steps.get(step_no)

    def open_steps(self, task_no: int) -> list[StepRow]:
        if task_no not in self._open_read | self._all_read:
            self._keep_unknown(self.ask("select_open_steps", {"task_nos": [task_no]}))
            self._open_read.add(task_no)
        self._refuse_unreadable(task_no)
        return [step for step in self._of(task_no) if step.state in STEP_OPEN]

    def steps_of(self, task_no: int) -> tuple[StepRow, ...]:
        if task_no not in self._all_read:
            self._keep_unknown(self.ask("select_steps", {"task_nos": [task_no]}))
            self._all_read.add(task_no)
        self._refuse_unreadable(task_no)
        return tuple(self._of(task_no))

    def people_commits(self, task_no: int, since: Instant) -> list[str]:
        ours = [row["events"] for row in reversed(self._history) if row["task_no"] == task_no]
        written = self.ask("select_people_commits", {"task_no": task_no, "since": since}).fetchall()
        return [*ours, *(events for (events,) in written)]

    def _keep_unknown(self, found: PendingAnswer) -> None:
        """Keep rows as read, unless this transaction has a newer version that is not written yet."""
        for row in found.fetchall():
            step = self._readable(step_as_is(row))
            if step is not None:
                self._steps.setdefault(step.step_no, step)

    def _of(self, task_no: int) -> list[StepRow]:
        return sorted((s for s in self._steps.values() if s.task_no == task_no), key=lambda s: s.step_no)

    def process_is_retired(self, process_no: int) -> bool:
        return self._retired[process_no] is not False

    def process_was_retired(self, process_no: int) -> bool:
        """A process that is unknown was not, unless its row was removed: then its number is below that of another."""
        if self._retired[process_no] is None:
            later = self.ask("select_later_process", {"process_no": process_no}).fetchone()
            self._retired[process_no] = True if later is not None else None
        return self._retired[process_no] is True

    def term(self, lease: str) -> int:
        return self._terms[lease]

    def arguments(self, task_no: int) -> str:
        if task_no not in self._bodies:
            row = self.ask("select_body", {"task_no": task_no}).fetchone()
            self._bodies[task_no] = None if row is None else row[0]
        arguments = self._bodies[task_no]
        if arguments is None:
            raise without_body(task_no)
        return arguments

    # --- what is written at the end
    def put_task(self, task: TaskRow, *, rewrites: bool = False) -> None:
        self._changed_tasks[task.task_no] = rewrites or self._changed_tasks.get(task.task_no, False)
        self._tasks[task.task_no] = task

    def has_task(self, task_id: str) -> bool:
        (is_there,) = self.ask("select_id", {"task_id": task_id}).fetchone() or (False,)
        return bool(is_there)

    def next_task_no(self) -> int:
        row = self.ask("take_numbers", {"count": 1, "given": None}).fetchone()
        assert row is not None
        number: int = row[0]
        return number

    def add_run(self, earlier: TaskRow, task: TaskRow, arguments: str) -> None:
        self.flush()  # the run before has given up its id, and all else that must be unique
        self.transaction.write(INSERT_TASKS, [task])
        asked = {"task_no": task.task_no, "earlier": earlier.task_no, "arguments": arguments}
        self.ask("insert_body_of_run", asked)
        self.ask("pass_statuses_on", asked)
        self._tasks[task.task_no], self._bodies[task.task_no] = task, arguments

    def put_step(self, step: StepRow, *, rewrites: bool = False) -> None:
        self._steps[step.step_no] = step
        if step.step_no in self._added_steps:
            self._added_steps[step.step_no] = step
        else:
            self._changed_steps[step.step_no] = rewrites or self._changed_steps.get(step.step_no, False)

    def add_step(self, step: StepRow) -> None:
        self._steps[step.step_no] = self._added_steps[step.step_no] = step

    def put_arguments(self, task_no: int, arguments: str) -> None:
        self._bodies[task_no] = arguments
        self._arguments.append({"task_no": task_no, "arguments": arguments})
