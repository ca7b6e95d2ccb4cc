"""What a person may do to a task: one table of verb and state, and what each verb changes.

``cancel`` and ``compensate`` both end in the undo. ``cancel`` stops a task that is under way, whatever that takes: past
a pivot, where nothing may be undone, it is held in error. ``compensate`` only undoes, also what has ended: past a pivot
it is refused, naming the pivot, and nothing changes.

Every verb frees the task and grows its fence: whoever drove it finds its writes refused, and a Scheduler takes it up
from the record. Attempts under way are left alone and may still report.
"""

import msgspec

from ..model import TaskRow, TaskState, Verb


class Rule(msgspec.Struct, frozen=True):
    """One cell of the table: what the verb does to a task in that state, and to attempts under way."""

    effect: str
    running: str


_UNDONE_TOO = "waited for, up to their complete_by; what they did is undone too"
_GO_ON = "go on; their results count"
_NONE = "there are none"

VERB_RULES: dict[tuple[Verb, TaskState], Rule] = {
    (Verb.RESUBMIT, TaskState.ERROR): Rule(
        "goes on in a new incarnation: results stay, only what failed is done again; a failed undo goes on with what is open",
        _GO_ON,
    ),
    (Verb.RESUBMIT, TaskState.COMPENSATED): Rule(
        "runs again from the beginning, in a new incarnation, under new keys", _NONE
    ),
    (Verb.COMPENSATE, TaskState.PENDING): Rule("the undo begins; refused past a pivot", _UNDONE_TOO),
    (Verb.COMPENSATE, TaskState.PROCESSING): Rule("the undo begins; refused past a pivot", _UNDONE_TOO),
    (Verb.COMPENSATE, TaskState.PROCESSED): Rule("the undo begins, in a new incarnation; refused past a pivot", _NONE),
    (Verb.COMPENSATE, TaskState.ERROR): Rule(
        "the undo begins, in a new incarnation; refused past a pivot, and when it had begun before (then resubmit)",
        _UNDONE_TOO,
    ),
    (Verb.CANCEL, TaskState.PENDING): Rule("the undo begins; past a pivot the task is held in error", _UNDONE_TOO),
    (Verb.CANCEL, TaskState.PROCESSING): Rule("the undo begins; past a pivot the task is held in error", _UNDONE_TOO),
    (Verb.EXTEND, TaskState.PENDING): Rule("its own limit moves later", _GO_ON),
    (Verb.EXTEND, TaskState.PROCESSING): Rule("its own limit moves later", _GO_ON),
    (Verb.ANSWER, TaskState.PENDING): Rule("a step gets its result by hand", "the answered one no longer counts"),
    (Verb.ANSWER, TaskState.PROCESSING): Rule("a step gets its result by hand", "the answered one no longer counts"),
    (Verb.ANSWER, TaskState.COMPENSATING): Rule(
        "a step or a compensation gets its result by hand", "the answered one no longer counts"
    ),
    (Verb.ANSWER, TaskState.ERROR): Rule(
        "a step or a compensation gets its result by hand; the task stays in error until it is resubmitted",
        "the answered one no longer counts",
    ),
    (Verb.PAUSE, TaskState.PENDING): Rule("nothing new begins until it is resumed", _GO_ON),
    (Verb.PAUSE, TaskState.PROCESSING): Rule("nothing new begins until it is resumed", _GO_ON),
    (Verb.PAUSE, TaskState.COMPENSATING): Rule("nothing new begins until it is resumed", _GO_ON),
    (Verb.RESUME, TaskState.PENDING): Rule(
        "a paused task goes on; what waited for its next attempt begins at once", _GO_ON
    ),
    (Verb.RESUME, TaskState.PROCESSING): Rule(
        "a paused task goes on; what waited for its next attempt begins at once", _GO_ON
    ),
    (Verb.RESUME, TaskState.COMPENSATING): Rule(
        "a paused task goes on; what waited for its next attempt begins at once", _GO_ON
    ),
}


def fits_pause(verb: Verb, task: TaskRow) -> bool:
    """Whether the task's being paused or not lets the verb make sense."""
    is_paused = task.paused_at is not None
    return is_paused if verb is Verb.RESUME else not is_paused if verb is Verb.PAUSE else True


def why_left_out(verb: Verb, task: TaskRow) -> str:
    """Why the verb means nothing to a task, by its row alone: its state, or that it is or is not paused; empty: it may."""
    if (verb, task.state) not in VERB_RULES:
        return str(task.state)
    if fits_pause(verb, task):
        return ""
    return "not paused" if verb is Verb.RESUME else "paused already"
