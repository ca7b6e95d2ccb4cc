"""Rows for tests of the core: complete, and changed by name."""

from typing import Any

import msgspec

from arriero.model import Instant, Loaded, StepKind, StepRow, StepState, TaskRow, TaskState
from arriero.policies import Retry, StepPolicy, Supervision, TaskPolicy

NOW = Instant(1_000_000_000_000)


def step_policy_text(**supervision: Any) -> str:
    """A step's policy as it stands in its row."""
    return msgspec.json.encode(StepPolicy(30.0, None, Retry(), Supervision(**supervision))).decode()


def task_policy_text(**supervision: Any) -> str:
    """A workflow's policy as it stands in a task's row."""
    return msgspec.json.encode(TaskPolicy(None, Supervision(**supervision))).decode()


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
