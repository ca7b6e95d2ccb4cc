"""Failures of steps and tasks, as the store keeps them in JSON."""

from typing import Any, Literal

import msgspec

from . import TaskState


class Frame(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A line of code that an exception passed.

    ``file``: as operators find it, never an absolute path. ``source``: empty where it is not at hand. ``times``: that often in
    a row, as in a recursion. ``library``: not the user's own code.
    """

    file: str
    line: int
    function: str
    source: str = ""
    times: int = 1
    library: bool = False


class CapturedError(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An exception with the lines that it passed, the outermost call first. No value of any variable is in it.

    ``error``: the name of its type. ``relation``: ``raised``; of those behind it ``cause`` (``raise ... from``),
    ``context`` (it was being handled) or ``member`` (of an ExceptionGroup). ``left_out``: frames that are not listed.
    ``expected``: a StepError, by which code says what is the matter, or an OSError (a TimeoutError, a ConnectionError), which
    comes from the world outside: no line of code has to be fixed for it.
    """

    error: str
    frames: tuple[Frame, ...] = ()
    left_out: int = 0
    relation: str = "raised"
    expected: bool = False


CapturedTraceback = tuple[
    CapturedError, ...
]  # the exception that was raised, then those behind it; empty: none is known


class StepFailure(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The failure of an attempt, or at last of the step. ``trace``: its place in the code. ``public``: what customers may read."""

    cause: Literal["permanent", "transient", "unknown", "expired"]
    message: str = ""
    code: str = ""
    details: Any = None
    trace: CapturedTraceback = ()
    public: str = ""


class TaskFailure(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The reason why a task is undone or waits for an operator.

    ``kind``: ``step`` a step failed; ``refused`` the workflow raised Permanent; ``limit`` the task's own time passed;
    ``bug`` any other exception of workflow code; ``replay`` code and record disagree; ``unawaited`` a call value was
    never awaited; ``lost`` processes died with it too often; ``in_doubt`` a step that cannot be undone may have
    happened; ``undo`` a compensation failed; ``person`` an operator cancelled or compensated it; ``late`` it arrived after
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
    results: int | None = None  # recorded when the task was held
    trace: CapturedTraceback = ()  # where in the code that was: of a failed step in the step's
    public: str = ""


read_step_failure = msgspec.json.Decoder(StepFailure).decode
read_task_failure = msgspec.json.Decoder(TaskFailure).decode


_NEUTRAL = {
    TaskState.COMPENSATING: "The operation could not be completed and is being undone.",
    TaskState.COMPENSATED: "The operation could not be completed and was undone.",
}
_HELD = "The operation could not be completed yet. It is being looked into."


def choose_public_text(failure: TaskFailure, state: TaskState) -> str:
    """Return what customers may read of a task that failed: what its error says to them, else a neutral sentence.

    The reason is never part of it: it may hold addresses, names of machines and what a service answered.
    """
    return failure.public or _NEUTRAL.get(state, _HELD)
