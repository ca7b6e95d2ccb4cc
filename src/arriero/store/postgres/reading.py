"""Questions to the tables: functions on one transaction that only reads."""

from collections.abc import Iterable, Sequence

import msgspec

from ...core.apps import apps_run_by
from ...core.compensation import open_compensations
from ...core.lease import PROBATION_FROM
from ...core.readable import legible
from ...model import (
    MICROSECONDS,
    EditRow,
    Instant,
    LateAnswerRow,
    Loaded,
    StepRow,
    TaskFailure,
    TaskRow,
    TaskState,
)
from .. import listing
from ..apart import SetApart
from ..base import Due, Ended, Overdue, QueueSurvey, Survey, TaskFilter, folded
from . import columns
from .frontier import Frontiers
from .rows import convoy_as_told, edit_of, late_answer_of, process_of, step_as_is, task_as_is
from .session import Transaction

TASK_WIDTH = len(columns.TASK)
_read_failure = msgspec.json.Decoder(TaskFailure).decode


def due(
    transaction: Transaction,
    now: Instant,
    workflows: Sequence[str],
    agents: Sequence[str],
    app: str,
    frontiers: Frontiers,
    apart: SetApart,
) -> Due:
    """See ``StateStore.due``."""
    froms = {
        "tasks_from": frontiers.tasks.begin_look(workflows),
        "steps_from": frontiers.steps.begin_look(agents),
    }
    asked = {"now": now, "workflows": list(workflows), "agents": list(agents), **froms}
    asked |= {"apps": list(apps_run_by(app)), "apart": apart.tasks(), "apart_convoys": apart.convoys()}
    row = transaction.ask("select_due", asked).fetchone()
    assert row is not None
    tasks, steps, next_task, next_step, look_at, dead_tasks, dead_steps = row
    frontiers.tasks.end_look(tasks, now, dead_tasks)
    frontiers.steps.end_look(steps, now, dead_steps)
    frontiers.dead_tasks = dead_tasks
    next_at = min((at for at in (next_task, next_step, look_at) if at is not None and at > now), default=None)
    is_due = any(at is not None and at <= now for at in (tasks, look_at))
    return Due(now, is_due, steps is not None and steps <= now, next_at)


def news(
    transaction: Transaction, now: Instant, process_no: int, frontiers: Frontiers, apart: SetApart
) -> list[tuple[int, int]]:
    """See ``StateStore.load_news``. ``now``: the store's clock, or a little earlier."""
    asked = {"process_no": process_no, "since": frontiers.news.begin_look((process_no,)), "apart": apart.tasks()}
    found = transaction.ask("select_news", asked).fetchall()
    frontiers.news.end_look(found[0][2] if found else None, now, frontiers.dead_tasks)
    again = apart.to_be_tried()
    if again:
        found += transaction.ask("select_news_again", {"process_no": process_no, "task_nos": again}).fetchall()
        apart.tried(again)
    return [(row[0], row[1]) for row in found]


def overdue(transaction: Transaction, now: Instant, limit: int, progress_seconds: float, apart: SetApart) -> Overdue:
    """See ``StateStore.load_overdue``."""
    since = now - round(progress_seconds * MICROSECONDS)
    asked = {"now": now, "limit": limit, "since": since, "apart": apart.tasks()}
    names = ("select_expired", "select_starved", "select_past_limit", "select_stuck")
    expired, starved, limited, stuck = (transaction.ask(name, asked) for name in names)
    transaction.arrive()
    return Overdue(
        now,
        tuple(apart.readable(map(step_as_is, expired.fetchall()))),
        tuple(apart.readable(map(step_as_is, starved.fetchall()))),
        tuple(load_readable(transaction, [no for (no,) in limited.fetchall()], apart)),
        tuple(load_readable(transaction, [no for (no,) in stuck.fetchall()], apart)),
    )


def edits(transaction: Transaction, task_no: int) -> list[EditRow]:
    """See ``StateStore.edits``."""
    return [edit_of(row) for row in transaction.ask("select_edits", {"task_no": task_no}).fetchall()]


def late_answers(transaction: Transaction, task_no: int) -> list[LateAnswerRow]:
    """See ``StateStore.late_answers``."""
    return [late_answer_of(row) for row in transaction.ask("select_late_answers", {"task_no": task_no}).fetchall()]


def load(transaction: Transaction, task_nos: Sequence[int]) -> list[Loaded]:
    """Those of the tasks that exist, in the order asked for, as they stand."""
    if not task_nos:
        return []
    tasks = transaction.ask("select_loaded", {"task_nos": list(task_nos)})
    steps = transaction.ask("select_steps", {"task_nos": list(task_nos)})
    transaction.arrive()
    of_task = _by_task(map(step_as_is, steps.fetchall()))
    loaded = {
        row[0]: Loaded(
            task_as_is(row[:TASK_WIDTH]),
            row[TASK_WIDTH],
            tuple(of_task.get(row[0], ())),
            convoy_as_told(row[TASK_WIDTH + 1]),
        )
        for row in tasks.fetchall()
    }
    return [loaded[task_no] for task_no in task_nos if task_no in loaded]


def load_readable(transaction: Transaction, task_nos: Sequence[int], apart: SetApart) -> list[Loaded]:
    """As ``load``, without those that this release cannot read: they are set apart."""
    found = load(transaction, task_nos)
    return [loaded for loaded in found if apart.can_read_task(loaded)]


def _by_task(steps: Iterable[StepRow]) -> dict[int, list[StepRow]]:
    of_task: dict[int, list[StepRow]] = {}
    for step in steps:
        of_task.setdefault(step.task_no, []).append(step)
    return of_task


def held(transaction: Transaction, process_no: int, limit: int, apart: SetApart) -> list[Loaded]:
    """See ``StateStore.load_held``."""
    asked = {"process_no": process_no, "limit": limit, "apart": apart.tasks()}
    found = transaction.ask("select_held", asked).fetchall()
    return load_readable(transaction, [task_no for (task_no,) in found], apart)


def find(transaction: Transaction, task_id: str) -> Loaded | None:
    """See ``StateStore.find``."""
    row = transaction.ask("select_number", {"task_id": task_id}).fetchone()
    return None if row is None else next(iter(load(transaction, [row[0]])), None)


def ended(transaction: Transaction, task_nos: Sequence[int], apart: SetApart) -> list[Ended]:
    """See ``StateStore.ended``."""
    rows = transaction.ask("select_ended", {"task_nos": list(task_nos)}).fetchall()
    tasks = apart.readable(map(task_as_is, rows))
    undone = [task.task_no for task in tasks if task.state is not TaskState.PROCESSED]
    steps: dict[int, tuple[StepRow, ...]] = {task.task_no: () for task in tasks if task.task_no not in undone}
    steps |= {loaded.task.task_no: loaded.steps for loaded in load_readable(transaction, undone, apart)}
    return [Ended(task, open_compensations(steps[task.task_no])) for task in tasks if task.task_no in steps]


def filtered(
    transaction: Transaction, which: TaskFilter, after: int, before: int | None, newest_first: bool, limit: int
) -> list[TaskRow]:
    """See ``StateStore.list_tasks``. A text is compared here: only here it is folded as lists show it."""
    sql = transaction.statement("select_filtered")
    sql = listing.newest_first(sql) if newest_first else sql
    found: list[TaskRow] = []
    while len(found) < limit:
        rows = transaction.plain(sql, _asked(which, after, before, limit)).fetchall()
        page = [task_as_is(row) for row in rows]
        found += [task for task in page if _failed_so(task, which.text, which.code)]
        if len(page) < limit:
            break
        after, before = (after, page[-1].task_no) if newest_first else (page[-1].task_no, before)
    return found[:limit]


def count_filtered(transaction: Transaction, which: TaskFilter, after: int, before: int | None, limit: int) -> int:
    """See ``StateStore.count_listed``."""
    if which.text is not None or which.code is not None:
        return len(filtered(transaction, which, after, before, False, limit))
    sql = listing.counted(transaction.statement("select_filtered"))
    (count,) = transaction.plain(sql, _asked(which, after, before, limit)).fetchone() or (0,)
    return int(count)


def _asked(which: TaskFilter, after: int, before: int | None, limit: int) -> dict[str, object]:
    asked = msgspec.structs.asdict(which)
    text, code = asked.pop("text"), asked.pop("code")
    failed = None if text is None and not code else True
    return {**asked, "after": after, "before": before, "limit": limit, "failed": failed}


def _failed_so(task: TaskRow, text: str | None, code: str | None) -> bool:
    """What a failure says is looked at here: one that cannot be read must not fail the question."""
    failure = None if text is None and code is None else legible(task).failure
    told = TaskFailure("bug", "") if failure is None else _read_failure(failure)
    return (text is None or folded(text) in folded(told.reason)) and code in (None, told.code)


def counts(transaction: Transaction) -> dict[TaskState, int]:
    """See ``StateStore.counts``."""
    found = {state: count for state, count in transaction.ask("count_tasks").fetchall()}
    return {state: found.get(state, 0) for state in TaskState}


def survey(transaction: Transaction, now: Instant) -> Survey:
    """See ``StateStore.survey``."""
    ask, at = transaction.ask, {"now": now}
    found = ask("survey_tasks", {**at, "probation_from": PROBATION_FROM})
    workflows, steps = ask("survey_workflows", at), ask("survey_steps", at)
    bare, processes, queues = ask("survey_not_undoable"), ask("survey_processes"), ask("survey_queues")
    states = counts(transaction)
    transaction.arrive()
    paused, probation, waiting, waiting_at, untold, untold_at, *rows = found.fetchone() or ()
    return Survey(
        now,
        states,
        paused,
        probation,
        (waiting, waiting_at),
        tuple((app, name) for app, name in workflows.fetchall()),
        tuple((app, agent, name) for app, agent, name in steps.fetchall()),
        tuple((agent, name) for agent, name in bare.fetchall()),
        tuple(process_of(row) for row in processes.fetchall()),
        tuple(QueueSurvey(*row) for row in queues.fetchall()),
        (untold, untold_at),
        dict(zip(("tasks", "history", "statuses"), rows, strict=True)),
    )
