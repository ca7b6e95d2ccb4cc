"""Rows of the file inside one transaction, as ``core.transitions`` and ``store.engine.batch`` ask for them."""

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Protocol, TypeVar

import msgspec

from ...core.parents import ParentStep, build_parent_step
from ...errors import UnreadableRow
from ...model import (
    STEP_BITS,
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
from ...model.agents import NO_LIMIT_KEYS
from ...model.workflow_pauses import NO_PAUSES, Pauses
from .. import columns
from ..columns import list_columns, load_statements
from ..quarantine import Quarantine
from ..readable import without_body
from ..rows import as_stored
from ..sql.agent_rows import BreakerTable, LimitTable
from ..sql.progress_rows import ProgressTable, keep_visible
from ..sql.signal_rows import SignalTable
from ..sql.workflow_pauses import WorkflowPauseRows
from .columns import (
    Statement,
    in_statements,
    insert_rows,
    parameters_of,
    sender,
    step_as_is,
    step_of,
    task_as_is,
    task_of,
    update_rows,
)
from .row_cache import RowCache

T = TypeVar("T")
_json = msgspec.json.encode
STORE_LINK, STORE_HEAD = "history_link", "history_head"


@cache
def query(name: str) -> str:
    """A statement of ``queries`` by its name."""
    return _fill_statements()[name]


@cache
def _fill_statements() -> dict[str, str]:
    """The statements in ``queries``, with the columns of whole rows in them."""
    rows = {"task": columns.TASK, "step": columns.STEP, "convoy": columns.CONVOY, "tail": columns.TAIL}
    words = {f"{{{name}}}": list_columns(names) for name, names in rows.items()}
    return {name: _fill(text, words) for name, text in load_statements(__package__).items()}


def _fill(text: str, words: Mapping[str, str]) -> str:
    for word, listed in words.items():
        text = text.replace(word, listed)
    return text


def step_range(task_no: int) -> dict[str, int]:
    """Between which numbers a task's steps lie."""
    return {"first": task_no << STEP_BITS, "end": (task_no + 1) << STEP_BITS}


# What says where a task stands: a command that leaves all of it as it was need not touch the indexes on it.
_where_it_is = attrgetter(*(column for column in columns.TASK_CHANGES if column not in columns.TASK_COUNTS))

INSERT_TASK = insert_rows("task", columns.TASK)
INSERT_BODY = insert_rows("body", columns.BODY)
COUNT_ON = update_rows("task", "task_no", columns.TASK_COUNTS)
UPDATE_TASK = update_rows("task", "task_no", columns.TASK_CHANGES)
REWRITE_TASK = update_rows("task", "task_no", columns.TASK_REWRITES)
INSERT_STEP = insert_rows("step", columns.STEP)
UPDATE_STEP = update_rows("step", "step_no", columns.STEP_CHANGES)
REWRITE_STEP = update_rows("step", "step_no", columns.STEP_REWRITES)
PUT_CONVOY = insert_rows("convoy", columns.CONVOY, or_update=columns.CONVOY_CHANGES)
PUT_TAIL = insert_rows("convoy_tail", columns.TAIL, or_update=columns.TAIL_CHANGES)
INSERT_STATUS = insert_rows("status", columns.STATUS)
INSERT_HISTORY = insert_rows("history", columns.HISTORY)
INSERT_EDIT = insert_rows("edit", columns.EDIT)
INSERT_LATE_ANSWER = insert_rows("late_answer", columns.LATE_ANSWER, or_ignore=True)
_send_task = sender(columns.TASK, word="stored")
_send_counts = sender((*columns.TASK_COUNTS, "task_no"))
_send_changes = sender((*columns.TASK_CHANGES, "task_no"), word="stored")
_send_rewritten = sender((*columns.TASK_REWRITES, "task_no"), word="stored")
_send_step = sender(columns.STEP)
_send_step_changes = sender((*columns.STEP_CHANGES, "step_no"))
_send_step_rewritten = sender((*columns.STEP_REWRITES, "step_no"))
_send_convoy = sender(columns.CONVOY)
_send_tail = sender(columns.TAIL)
_send_status = attrgetter(*columns.STATUS)
_send_edit = attrgetter(*columns.EDIT)
_send_late_answer = attrgetter(*columns.LATE_ANSWER)


class Executes(Protocol):
    """A connection, as far as it is needed here."""

    def execute(self, sql: str, parameters: Any = ..., /) -> sqlite3.Cursor: ...


class SqliteWrittenRows(SignalTable, BreakerTable, LimitTable, ProgressTable, WorkflowPauseRows):
    """Rows that one transaction of a connection writes at its end, many at the same time.

    What is asked by anything but a row's own number is asked of the file, once it has all that was to be written.
    """

    pauses: Pauses = NO_PAUSES  # as read where a task may begin, or be submitted

    def __init__(
        self,
        connection: Executes,
        clock: Callable[[], Instant] = lambda: Instant(0),
        row_cache: RowCache | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        self.connection = connection
        self._clock = clock
        self._now: Instant | None = None
        self._quarantine = Quarantine(clock) if quarantine is None else quarantine
        self._known = RowCache() if row_cache is None else row_cache
        self._breakers = self._known.breakers
        self._limits = self._known.limits
        self._by_id: dict[str, TaskRow | None] = {}
        self._last_task_no: int | None = None
        self._last_convoy_no: int | None = None
        self._retired: dict[int, bool | None] = {}
        self._bodies: dict[int, str] = {}
        self._open_tasks: dict[tuple[str, int], int] = {}  # by submitter and limit, with what was added since
        self._behind: dict[int, Loaded] = {}  # who waited behind a task, as that was read
        self._forget_written()

    def _forget_written(self) -> None:
        self._added_tasks: dict[int, TaskRow] = {}
        self._added_bodies: list[tuple[int, str]] = []
        self._changed_tasks: dict[int, tuple[bool, TaskRow | None]] = {}  # whether it is rewritten; how it stood before
        self._added_steps: dict[int, StepRow] = {}
        self._changed_steps: dict[int, tuple[bool, StepRow]] = {}
        self._changed_convoys: dict[int, ConvoyRow] = {}
        self._changed_tails: dict[str, TailRow] = {}
        self._statuses: list[StatusRow] = []
        self._history: list[tuple[int, int, Instant, str, str, str]] = []
        self._is_written = True

    def _run(self, name: str, asked: Any = ()) -> sqlite3.Cursor:
        """A statement that finds the file as this transaction has changed it."""
        if not self._is_written:
            self.flush()
        return self.connection.execute(query(name), asked)

    def ask(self, name: str, parameters: Mapping[str, Any] | None = None, /) -> sqlite3.Cursor:
        """Lists travel as JSON arrays."""
        given = {} if parameters is None else parameters
        return self._run(name, {key: _json(v).decode() if type(v) is list else v for key, v in given.items()})

    def ask_plain(self, sql: str, parameters: Mapping[str, Any]) -> sqlite3.Cursor:
        return self.connection.execute(sql, parameters)

    def ask_of_agents(self, name: str, parameters: Mapping[str, Any]) -> sqlite3.Cursor:
        if name == "add_breaker":
            name = "put_breaker"  # the write lock is ours, so nobody else can add one
        given = {key: _json(value).decode() if type(value) is list else value for key, value in parameters.items()}
        return self.connection.execute(query(name), given)

    def read_recent_clock(self) -> Instant:
        return self.read_clock()

    def lock_starts(self) -> None:
        """Nobody else writes while the write lock is ours."""

    def arrive(self) -> None:
        """Every answer is here immediately."""

    def read_clock(self) -> Instant:
        if self._now is None:
            self._now = self._clock()
        return self._now

    def flush(self) -> None:
        """Write the rows that are kept back, so that a statement finds them."""
        self.write_rest()
        self._forget_written()

    def write_rest(self) -> None:
        """Write the rows that are kept back, as the last act of the transaction: nothing may be kept back after it."""
        tasks = self._known.tasks
        going_on: list[TaskRow] = []
        moved: list[TaskRow] = []
        rewritten: list[TaskRow] = []
        for number, (rewrites, before) in self._changed_tasks.items():
            task = tasks[number]
            (rewritten if rewrites else going_on if _goes_on(task, before) else moved).append(task)
        updated_steps: list[StepRow] = []
        rewritten_steps: list[StepRow] = []
        for rewrites, step in self._changed_steps.values():
            (rewritten_steps if rewrites else updated_steps).append(step)
        written: tuple[tuple[Statement, Callable[[Any], tuple[Any, ...]], Collection[Any]], ...] = (
            (INSERT_TASK, _send_task, self._added_tasks.values()),
            (INSERT_BODY, tuple, self._added_bodies),
            (COUNT_ON, _send_counts, going_on),
            (UPDATE_TASK, _send_changes, moved),
            (REWRITE_TASK, _send_rewritten, rewritten),
            (INSERT_STEP, _send_step, self._added_steps.values()),
            (UPDATE_STEP, _send_step_changes, updated_steps),
            (REWRITE_STEP, _send_step_rewritten, rewritten_steps),
            (PUT_CONVOY, _send_convoy, self._changed_convoys.values()),
            (PUT_TAIL, _send_tail, self._changed_tails.values()),
            (INSERT_STATUS, _send_status, self._statuses),
            (INSERT_HISTORY, tuple, self._history),
        )
        for statement, send, rows in written:
            if rows:  # most commits touch few of the tables
                sent = list(map(send, rows))
                if len(sent) == 1:
                    self.connection.execute(statement(1), sent[0])
                else:
                    for sql, parameters in in_statements(statement, sent):
                        self.connection.execute(sql, parameters)
        changed = (*self._added_steps.values(), *updated_steps, *rewritten_steps)
        if any(step.limit_keys not in NO_LIMIT_KEYS for step in changed):  # of most steps none is
            self.note_waiting_keys(changed)

    def ask_shared(self, table: str, columns: Sequence[str], key: Mapping[str, Any], limit: int) -> sqlite3.Cursor:
        where = "".join(f" AND {column} = :{column}" for column in key)
        text = f"SELECT {', '.join(columns)} FROM arriero_{table} WHERE true{where} LIMIT {limit}"
        return self.connection.execute(text, key)

    def set_apart(self, error: UnreadableRow) -> None:
        self._quarantine.add(error)

    def add_edit(self, edit: EditRow) -> None:
        self.connection.execute(INSERT_EDIT(1), _send_edit(edit))

    def add_late_answer(self, answer: LateAnswerRow) -> None:
        self.connection.execute(INSERT_LATE_ANSWER(1), _send_late_answer(answer))

    def add_status(self, status: StatusRow) -> None:
        self._is_written = False
        self._statuses.append(as_stored(status))

    def drop_unwritten_progress(self, task_no: int, visible_at: Instant | None) -> None:
        self._statuses = keep_visible(self._statuses, task_no, visible_at)

    def add_alert(self, alert: AlertRow) -> None:
        self._run("insert_alert", parameters_of(alert))

    def close_alert(self, task_no: int, at: Instant) -> None:
        self._run("close_alert", {"task_no": task_no, "at": at})

    def close_question(self, step_no: int, at: Instant) -> None:
        self._run("close_question", {"step_no": step_no, "at": at})

    def latest_instant(self) -> Instant:
        """The instant of the history's last commit; 0 when there is none."""
        instant: Instant = self._run("select_latest_instant").fetchone()[0]
        return instant

    def meta(self, name: str) -> str | None:
        row = self._run("select_meta", {"name": name}).fetchone()
        return None if row is None else row[0]

    def list_meta(self) -> dict[str, str]:
        """All settings of the store, by their names."""
        return dict(self._run("list_meta").fetchall())

    def put_meta(self, name: str, value: object) -> None:
        self._run("put_meta", {"name": name, "value": str(value)})

    def store_head(self) -> tuple[int, str]:
        return int(self.meta(STORE_LINK) or 0), self.meta(STORE_HEAD) or ""

    def put_store_head(self, link: int, head: str) -> None:
        self.put_meta(STORE_LINK, link)
        self.put_meta(STORE_HEAD, head)

    def add_history(
        self, task_no: int, task_id: str, link: int, at: Instant, actor: str, events: str, digest: str
    ) -> None:
        self._is_written = False
        self._history.append((task_no, link, at, actor, events, digest))


class SqliteTaskRows(SqliteWrittenRows):
    """Tasks and their steps."""

    task_as_is = staticmethod(task_as_is)
    step_as_is = staticmethod(step_as_is)

    def task(self, task_no: int) -> TaskRow | None:
        known = self._known.tasks.get(task_no)
        if known is not None:
            return known
        row = self.connection.execute(query("select_task"), {"task_no": task_no}).fetchone()
        return None if row is None else self._keep(task_of(row))

    def _keep(self, task: TaskRow) -> TaskRow:
        """A row as it stands in the file, unless this transaction has changed it."""
        known = self._known.tasks.get(task.task_no)
        if known is not None:
            return known
        self._known.keep_task(task)
        return task

    def look_up(self, task_ids: Sequence[str]) -> None:
        """Read which of these ids stand there; what this transaction has added is known already."""
        missing = [task_id for task_id in task_ids if task_id not in self._by_id]
        asked = {"task_ids": _json(missing).decode()}
        self._by_id.update(dict.fromkeys(missing))
        for row in self.connection.execute(query("select_tasks_by_id"), asked).fetchall():
            task = task_as_is(row)  # it answers for its id, whatever else it holds
            self._by_id[task.task_id] = task

    def task_by_id(self, task_id: str) -> TaskRow | None:
        if task_id not in self._by_id:
            self.look_up([task_id])
        return self._by_id[task_id]

    def arguments(self, task_no: int) -> str:
        if task_no not in self._bodies:
            if self._added_bodies:
                self.flush()
            row = self.connection.execute(query("select_body"), {"task_no": task_no}).fetchone()
            if row is None or not isinstance(row[0], str):
                raise without_body(task_no)
            self._bodies[task_no] = row[0]
        return self._bodies[task_no]

    def load_submitted(self, task_no: int) -> str | None:
        row = self._run("select_submitted", {"task_no": task_no}).fetchone()
        return row[0] if row is not None and isinstance(row[0], str) else None

    def step(self, step_no: int) -> StepRow | None:
        of_task = self._known.steps.get(step_no >> STEP_BITS)
        if of_task is not None and step_no in of_task:
            return of_task[step_no]
        row = self.connection.execute(query("select_step"), {"step_no": step_no}).fetchone()
        if row is None:
            return None
        step = step_of(row)
        self._known.keep_step(step)
        return step

    def child(self, step_no: int) -> TaskRow | None:
        row = self.ask("select_children", {"step_nos": [step_no]}).fetchone()
        return None if row is None else self._keep(task_of(row))

    def parent(self, step_no: int) -> ParentStep | None:
        task, step = self.task(step_no >> STEP_BITS), self.step(step_no)
        return None if task is None or step is None else build_parent_step(task, step)

    def steps_of(self, task_no: int) -> tuple[StepRow, ...]:
        return tuple(map(step_of, self._read_steps("select_steps", task_no)))

    def people_commits(self, task_no: int, since: Instant) -> list[str]:
        return [events for (events,) in self._run("select_people_commits", {"task_no": task_no, "since": since})]

    def open_steps(self, task_no: int) -> list[StepRow]:
        return list(map(step_of, self._read_steps("select_open_steps", task_no)))

    def _read_steps(self, name: str, task_no: int) -> list[tuple[Any, ...]]:
        if self._added_steps or self._changed_steps:
            self.flush()
        return self.connection.execute(query(name), step_range(task_no)).fetchall()

    def add_task(self, task: TaskRow, arguments: str) -> None:
        self._is_written = False
        self._known.keep_task(task)
        self._added_tasks[task.task_no] = self._by_id[task.task_id] = task
        self._added_bodies.append((task.task_no, arguments))
        for submitter, limit in self._open_tasks:
            self._open_tasks[submitter, limit] += submitter == task.submitter
        if task.convoy_no is not None:
            line = self._known.find_waiting(task)
            if line is not None and not line.add(task, arguments):
                self._known.forget_waiting(task)

    def add_run(self, earlier: TaskRow, task: TaskRow, arguments: str) -> None:
        self.flush()  # the run before has given up its id, and all else that must be unique
        self._by_id[earlier.task_id], self._by_id[task.task_id] = earlier, task
        self._known.keep_task(task)
        self._added_tasks[task.task_no] = task
        self._is_written = False
        asked = {"task_no": task.task_no, "earlier": earlier.task_no, "arguments": arguments}
        self._run("insert_body_of_run", asked)
        self._run("pass_statuses_on", asked)

    def has_task(self, task_id: str) -> bool:
        return self.task_by_id(task_id) is not None

    def count_open_tasks(self, submitter: str, limit: int) -> int:
        if (submitter, limit) not in self._open_tasks:
            asked = {"submitter": submitter, "limit": limit}
            self._open_tasks[submitter, limit] = self._run("count_open_tasks", asked).fetchone()[0]
        return self._open_tasks[submitter, limit]

    def next_task_no(self) -> int:
        """The number of the next task; nobody else can take it while the write lock is ours."""
        if self._last_task_no is None:
            self._last_task_no = self._run("select_next_task_no").fetchone()[0] - 1
        self._last_task_no += 1
        return self._last_task_no

    def put_task(self, task: TaskRow, *, rewrites: bool = False) -> None:
        self._is_written = False
        self._open_tasks.clear()  # it may end with this
        before = self._known.tasks.get(task.task_no)
        if task.task_no in self._added_tasks:
            self._added_tasks[task.task_no] = task
        else:
            rewritten, first = self._changed_tasks.get(task.task_no, (False, before))
            self._changed_tasks[task.task_no] = (rewrites or rewritten, first)
        self._known.keep_task(task)
        if task.convoy_no is not None:
            line = self._known.find_waiting(task)
            if line is not None and not line.update(task):
                self._known.forget_waiting(task)

    def put_step(self, step: StepRow, *, rewrites: bool = False) -> None:
        self._is_written = False
        self._known.keep_step(step)
        if step.step_no in self._added_steps:
            self._added_steps[step.step_no] = step
        else:
            rewritten, _ = self._changed_steps.get(step.step_no, (False, step))
            self._changed_steps[step.step_no] = (rewrites or rewritten, step)

    def add_step(self, step: StepRow) -> None:
        self._is_written = False
        self._known.keep_step(step)
        self._added_steps[step.step_no] = step

    def put_arguments(self, task_no: int, arguments: str) -> None:
        self._run("update_body", {"task_no": task_no, "arguments": arguments})
        self._bodies.pop(task_no, None)
        task = self.task(task_no)
        if task is not None:
            self._known.forget_waiting(task)


def _goes_on(task: TaskRow, before: TaskRow | None) -> bool:
    return before is not None and _where_it_is(before) == _where_it_is(task)
