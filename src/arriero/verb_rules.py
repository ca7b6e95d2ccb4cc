"""Tables of the verbs that a person may use: which states allow each verb, and what it changes.

``cancel`` and ``compensate`` both end in the undo. ``cancel`` stops a task that is under way, whatever that takes: past
a pivot, where nothing may be undone, it is held in error. ``compensate`` only undoes, also what has ended: past a pivot
it is refused, naming the pivot, and nothing changes.

Every verb frees the task and grows its fence: whoever drove it finds its writes refused, and a Scheduler takes it up
from the record. Attempts under way are left alone and may still report.
"""

import msgspec

from .model import ConvoyVerb, TaskRow, TaskState, Verb


class Rule(msgspec.Struct, frozen=True):
    """One cell of the table: what the verb does to a task in that state, and to attempts under way."""

    effect: str
    running: str


_UNDONE_TOO = (
    "waited for, up to their complete_by, and what they did is undone too; those that programs hold end now, in doubt, except a"
    " pivot's"
)
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


def explain_left_out(verb: Verb, task: TaskRow) -> str:
    """The reason, by its row alone, why a verb does not fit a task: its state, or if it is paused; empty if it fits."""
    if (verb, task.state) not in VERB_RULES:
        return str(task.state)
    if verb is Verb.RESUME and task.paused_at is None:
        return "not paused"
    if verb is Verb.PAUSE and task.paused_at is not None:
        return "paused already"
    return ""


CONVOY_VERB_RULES: dict[tuple[ConvoyVerb, str], str] = {
    (ConvoyVerb.SET, "idle"): "its own policy holds from now on",
    (ConvoyVerb.SET, "open"): "its own policy holds from now on",
    (ConvoyVerb.SET, "stopped"): "its own policy holds at once: under skip the key goes on, under park it is parked",
    (ConvoyVerb.SET, "gap"): "its own policy holds at once, also for the gap that it waits at",
    (ConvoyVerb.SET, "parked"): "its own policy holds once it is released",
    (ConvoyVerb.RELEASE, "parked"): "it goes on; if its head is still in error it waits for that",
    (ConvoyVerb.SKIP, "stopped"): "the task in error is set aside, the key goes on",
    (ConvoyVerb.SKIP, "gap"): "what is missing is skipped, the key goes on; if it comes after all it is set aside",
    (
        ConvoyVerb.SKIP,
        "parked",
    ): "the task in error, or what is missing, is passed over; it stays parked until it is released",
    (ConvoyVerb.PARK, "idle"): "nothing begins until it is released",
    (ConvoyVerb.PARK, "open"): "the task that is under way goes to its end; nothing else begins until it is released",
    (ConvoyVerb.PARK, "stopped"): "nothing begins until it is released, also when its head is fixed",
    (ConvoyVerb.PARK, "gap"): "nothing begins until it is released, also when what is missing comes",
    (ConvoyVerb.MOVE_TO_HEAD, "idle"): "a waiting task comes before all others that wait",
    (ConvoyVerb.MOVE_TO_HEAD, "open"): "a waiting task comes before all others that wait",
    (ConvoyVerb.MOVE_TO_HEAD, "stopped"): "a waiting task comes before all others that wait",
    (ConvoyVerb.MOVE_TO_HEAD, "parked"): "a waiting task comes before all others that wait",
}
