"""Rows for tests of the core: complete, and changed by name."""

from typing import Any

import msgspec

from arriero.model import STEP_OPEN, Instant, Loaded, StepKind, StepRow, StepState, TaskRow, TaskState
from arriero.model.failures import StepFailure, TaskFailure
from arriero.model.policies import Retry, StepPolicy, Supervision, TaskPolicy, UndoOnDoubt

NOW = Instant(1_000_000_000_000)


def step_policy_text(**supervision: Any) -> str:
    """A step's policy as it stands in its row."""
    return msgspec.json.encode(StepPolicy(30.0, None, Retry(), Supervision(**supervision))).decode()


def task_policy_text(undo_on_doubt: UndoOnDoubt = "stop", **supervision: Any) -> str:
    """A workflow's policy as it stands in a task's row."""
    return msgspec.json.encode(TaskPolicy(None, Supervision(**supervision), undo_on_doubt=undo_on_doubt)).decode()


def task_row(**changes: Any) -> TaskRow:
    """A task in PROCESSING."""
    row = TaskRow(
        task_no=1,
        task_id="t-1",
        workflow="fulfil",
        state=TaskState.PROCESSING,
        priority=5,
        not_before=None,
        locked_by=1,
        fence=1,
        revision=1,
        incarnation=1,
        failure_count=0,
        lost_count=0,
        opened_count=0,
        open_count=0,
        result_count=0,
        unseen_since=None,
        seed=7,
        policy=task_policy_text(),
        body_hash="",
        submitted_at=NOW,
        started_at=NOW,
        ended_at=None,
        complete_by=None,
        output=None,
        failure=None,
        link=1,
        head="",
    )
    return msgspec.structs.replace(row, **changes)


def step_row(ordinal: int = 1, **changes: Any) -> StepRow:
    """A step that is RUNNING, named by its ordinal."""
    row = StepRow(
        step_no=1000 + ordinal,
        task_no=1,
        ordinal=ordinal,
        kind=StepKind.STEP,
        name=f"step{ordinal}",
        key="#1",
        agent="agent",
        state=StepState.RUNNING,
        priority=5,
        arguments="{}",
        policy=step_policy_text(),
        idempotency_key=f"key-{ordinal}",
        pivot=False,
        effect_free=False,
        compensation=None,
        undoes=None,
        undo=None,
        attempt=1,
        failure_count=0,
        lost_count=0,
        taken=True,
        in_doubt=False,
        fence=1,
        locked_by=1,
        not_before=None,
        complete_by=None,
        wait_by=None,
        result=None,
        failure=None,
        result_number=None,
        delivered_at=None,
        opened_at=NOW,
        finished_at=None,
    )
    return msgspec.structs.replace(row, **changes)


def loaded(*steps: StepRow, **task: Any) -> Loaded:
    """A task with its steps."""
    return Loaded(task_row(**task), "{}", steps)


# --- what people do to tasks
def failure_text(kind: Any = "step", reason: str = "charge: declined", **fields: Any) -> str:
    """A task's failure as it stands in its row."""
    return msgspec.json.encode(TaskFailure(kind, reason, **fields)).decode()


def done(ordinal: int = 1, **changes: Any) -> StepRow:
    """A step that is COMPLETED and has a compensation."""
    fields: dict[str, Any] = {"result": "1", "result_number": ordinal, "delivered_at": NOW, "finished_at": NOW}
    fields |= {"state": StepState.COMPLETED, "locked_by": None, "compensation": step_policy_text()}
    return step_row(ordinal, **(fields | changes))


def failed(ordinal: int = 2, **changes: Any) -> StepRow:
    """A step that FAILED for good at its first attempt."""
    text = msgspec.json.encode(StepFailure("permanent", "declined", "declined")).decode()
    fields: dict[str, Any] = {"failure": text, "result_number": ordinal, "delivered_at": NOW, "finished_at": NOW}
    fields |= {"state": StepState.FAILED, "locked_by": None, "failure_count": 1}
    return step_row(ordinal, **(fields | changes))


UNDO = '{"outcome":"completed","forward_key":"k","result":null}'


def undo_row(ordinal: int, of: StepRow, **changes: Any) -> StepRow:
    """The compensation of a step, as it was planned."""
    fields: dict[str, Any] = {"kind": StepKind.COMPENSATION, "name": of.name, "undoes": of.step_no, "undo": UNDO}
    fields |= {"state": StepState.PLANNED, "locked_by": None, "taken": False}
    return step_row(ordinal, **(fields | changes))


class OneTask:
    """Rows of one task, as a store gives them to the core."""

    def __init__(self, of: Loaded) -> None:
        self.of = of

    def task(self, task_no: int) -> TaskRow | None:
        return self.of.task if task_no == self.of.task.task_no else None

    def step(self, step_no: int) -> StepRow | None:
        return next((step for step in self.of.steps if step.step_no == step_no), None)

    def steps_of(self, task_no: int) -> tuple[StepRow, ...]:
        return self.of.steps

    def arguments(self, task_no: int) -> str:
        return self.of.arguments

    def open_steps(self, task_no: int) -> list[StepRow]:
        return [step for step in self.of.steps if step.state in STEP_OPEN]

    def process_is_retired(self, process_no: int) -> bool:
        return False

    def term(self, lease: str) -> int:
        return 0
