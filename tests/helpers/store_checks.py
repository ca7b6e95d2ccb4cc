"""What must hold of every store at any time: chains, counts in the rows, the fold of the history, alerts and statuses."""

from collections import defaultdict

from arriero.audit.check import (
    History,
    Violation,
    check,
    find_breaker_differences,
    find_convoy_differences,
    find_differences,
    find_pause_differences,
)
from arriero.audit.export import encode_export, read_export
from arriero.audit.payload_record import PayloadRecord, find_record_differences
from arriero.events import ERASED
from arriero.events.base import START, fits_link
from arriero.model import STEP_OPEN, TASK_OPEN, HistoryRow, Loaded, StepKind, StepRow, StepState, TaskRow, TaskState
from arriero.model.agents import BreakerRow
from arriero.model.signals import is_question
from arriero.store.state_store import StateStore

TASKS_MAX = 100_000
CONVOYS_MAX = 10_000


async def history_violations(store: StateStore) -> list[Violation]:
    """What the history shows that should not be, also after it was exported and read back."""
    rows = [row async for row in store.history()]
    assert read_export(encode_export(rows, store.store_id)) == rows
    return check(rows)


async def broken_links(store: StateStore) -> list[str]:
    """Links with a gap, hashes that do not fit, numbers that go back; also when tasks were purged."""
    heads: defaultdict[int, tuple[int, str]] = defaultdict(lambda: (0, START))
    found: list[str] = []
    number = 0
    async for row in store.history():
        if row.no <= number:
            found.append(f"row {row.no} follows row {number}")
        number = row.no
        link, head = heads[row.task_no]
        if row.link != link + 1:
            found.append(f"task {row.task_no}: link {row.link} follows {link}")
        text = bytes(row.events).decode()
        if text != ERASED and not fits_link(row.hash, head, row.task_no, row.link, row.at, row.actor, text):
            found.append(f"task {row.task_no}: link {row.link} does not carry the hash of its content")
        heads[row.task_no] = (row.link, row.hash)
    for task in await _tasks(store):
        if (task.link, task.head) != heads[task.task_no]:
            found.append(f"task {task.task_no}: its row names another last link than its history")
    return found


async def disagreements(store: StateStore) -> list[str]:
    """Where the tables say something else than the fold of the history, or a row something else than its neighbours."""
    history = History()
    rows: defaultdict[int, list[HistoryRow]] = defaultdict(list)
    async for row in store.history():
        history.add(row)
        rows[row.task_no].append(row)
    tasks = await _tasks(store)
    found: list[str] = []
    steps: list[StepRow] = []
    for task in tasks:
        loaded = await store.load(task.task_no)
        assert loaded is not None
        steps += loaded.steps
        found += find_differences(history.tasks[task.task_no], loaded)
        found += _wrong_counts(loaded)
        number = task.task_no
        record = PayloadRecord(tuple(await store.edits(number)), tuple(await store.late_answers(number)))
        found += [f"task {task.task_id}: {said}" for said in find_record_differences(record, rows[number])]
    if set(history.tasks) != {task.task_no for task in tasks}:
        found.append(f"the history tells of the tasks {sorted(history.tasks)}, not of {[t.task_no for t in tasks]}")
    for one in (*await store.list_convoys(limit=CONVOYS_MAX), *await store.list_convoys("idle", limit=CONVOYS_MAX)):
        found += find_convoy_differences(history, one.convoy)
    breakers = await store.list_breakers()
    for breaker in breakers:
        found += find_breaker_differences(history, breaker)
    found += find_pause_differences(history.store.workflows, await store.list_workflow_pauses())
    found += await _wrong_questions(store, steps)
    return found + await _wrong_alerts(store, tasks) + await _wrong_breaker_alerts(store, breakers)


async def _tasks(store: StateStore) -> list[TaskRow]:
    return await store.list_tasks(limit=TASKS_MAX)


def _wrong_counts(loaded: Loaded) -> list[str]:
    task, steps = loaded.task, loaded.steps
    open_steps = [step for step in steps if step.state in STEP_OPEN and step.kind is not StepKind.TIMER]
    numbers = [step.result_number for step in steps if step.result_number is not None]
    is_over = task.state not in TASK_OPEN
    held_while_over = (task.locked_by, task.not_before, task.paused_at, task.unseen_since) != (None,) * 4
    facts = {
        f"open_count is {task.open_count}, {len(open_steps)} are open": task.open_count == len(open_steps),
        f"opened_count is {task.opened_count}, {len(steps)} are there": task.opened_count == len(steps),
        f"result numbers {sorted(numbers)} twice": len(numbers) == len(set(numbers)),
        f"result_count is {task.result_count}": max(numbers, default=0) <= task.result_count,
        "it has ended and is held, due or paused": not (is_over and held_while_over),
        "it has ended at no time": is_over == (task.ended_at is not None),
        "it is compensating and not undoing": task.state is not TaskState.COMPENSATING or task.undoing,
        "a step that does not run is locked": all(
            step.state is StepState.RUNNING or step.locked_by is None for step in steps
        ),
        "a step that does not run has a deadline": all(
            (step.state is StepState.RUNNING and not step.is_of_child) == (step.complete_by is not None)
            for step in steps
        ),
        "a request is due although the task is paused": task.paused_at is None
        or all(step.not_before is None for step in steps if step in open_steps and step.state is StepState.PENDING),
    }
    return [f"task {task.task_no}: {what}" for what, holds in facts.items() if not holds]


async def _wrong_alerts(store: StateStore, tasks: list[TaskRow]) -> list[str]:
    others = ("gap", "unreadable", "breaker", "schedule", "question")
    found = [alert for alert in await store.alerts(limit=TASKS_MAX) if alert.cause not in others]
    opened = sorted((alert.task_no, alert.incarnation) for alert in found)
    wanted = sorted((task.task_no, task.incarnation) for task in tasks if task.state is TaskState.HELD)
    return [] if opened == wanted else [f"alerts are open of (task, incarnation) {opened}, held are {wanted}"]


async def _wrong_questions(store: StateStore, steps: list[StepRow]) -> list[str]:
    """A question has one open alert while it waits for the answer."""
    opened = sorted((row.of, row.ordinal, row.key) for row in await store.questions(limit=TASKS_MAX))
    alerts = [alert for alert in await store.alerts(limit=TASKS_MAX) if alert.cause == "question"]
    wanted = sorted(
        (step.name.partition(":")[2], step.ordinal, step.key)
        for step in steps
        if is_question(step) and step.state is StepState.PENDING
    )
    fits = opened == wanted and len(alerts) == len(wanted)
    return [] if fits else [f"questions {opened} with {len(alerts)} alerts are open, open waits are {wanted}"]


async def _wrong_breaker_alerts(store: StateStore, breakers: list[BreakerRow]) -> list[str]:
    """An outage that no person began has one open alert, until its breaker is closed."""
    opened = sorted(
        (alert.step, alert.code) for alert in await store.alerts(limit=TASKS_MAX) if alert.cause == "breaker"
    )
    wanted = sorted((row.label, row.app) for row in breakers if row.is_outage and not row.opened_by)
    allowed = sorted((row.label, row.app) for row in breakers if row.is_outage)
    fits = len(opened) == len(set(opened)) and set(wanted) <= set(opened) <= set(allowed)
    return [] if fits else [f"alerts are open of breakers {opened}, open are {wanted}"]
