"""Failures of steps and tasks, as the store keeps them in JSON."""

from typing import Any, Literal

import msgspec

from .failures import CapturedTraceback


class StepFailure(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The failure of an attempt, or at last of the step. ``trace``: its place in the code. ``public``: what customers may read."""

    cause: Literal["permanent", "transient", "unknown", "expired"]
    message: str = ""
    code: str = ""
    details: Any = None
    trace: CapturedTraceback = ()
    public: str = ""


class TaskFailure(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The reason why a task is undone or waits for a person.

    ``kind``: ``step`` a step failed; ``refused`` the workflow raised Permanent; ``limit`` the task's own time passed;
    ``bug`` any other exception of workflow code; ``replay`` code and record disagree; ``unawaited`` a call value was
    never awaited; ``lost`` processes died with it too often; ``in_doubt`` a step that cannot be undone may have
    happened; ``undo`` a compensation failed; ``person`` somebody cancelled or compensated it; ``late`` it arrived after
    its number in the convoy's sequence had been skipped; ``gap`` (of an alert) it waits for numbers that are missing.
    ``redo``: ordinals of the failed steps that a resubmission does again. ``public``: what customers may read; empty: nothing
    was said to them.
    """

    kind: Literal[
        "step", "refused", "limit", "bug", "replay", "unawaited", "lost", "in_doubt", "undo", "person", "late", "gap"
    ]
    reason: str
    step: str = ""
    code: str = ""
    nothing_to_undo: tuple[str, ...] = ()
    redo: tuple[int, ...] = ()
    began_by: "TaskFailure | None" = None  # of an undo that stopped: why it was begun
    results: int | None = None  # recorded when the task went into error
    trace: CapturedTraceback = ()  # where in the code that was: of a failed step in the step's
    public: str = ""


read_step_failure = msgspec.json.Decoder(StepFailure).decode
read_task_failure = msgspec.json.Decoder(TaskFailure).decode
