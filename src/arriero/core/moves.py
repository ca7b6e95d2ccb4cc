"""Which verbs a task allows as it stands, and what each would do: for whoever asks what can be done about it."""

from collections.abc import Callable

import msgspec

from ..commands import Operate
from ..model import TASK_OPEN, Instant, Loaded, StepKind, StepRow, StepState, TaskState, Turn, Verb, seconds_between
from . import convoy_words, wording
from .compensation import stuck_in_doubt
from .supervision import may_have_happened, pivot_of
from .verbs import VERB_RULES, judged, may_edit_all, possible_verbs, to_be_redone

ANSWERS_TOLD_MAX = 5
UNDO_PREFIX = "undo:"  # how a compensation is named to a verb


class Move(msgspec.Struct, frozen=True):
    """A verb, and what it would do now; ``refused``: why it would be refused.

    Args:
        step: of ``answer``, as the verb wants it named.
        options: that the verb needs beside who and why, as the command line writes them.
    """

    verb: Verb
    does: str
    step: str = ""
    options: tuple[str, ...] = ()
    refused: str = ""


def moves(loaded: Loaded, now: Instant) -> list[Move]:
    """The verbs that the task allows, and what each would do; also those that only this task refuses, with the reason."""
    found: list[Move] = []
    for verb in possible_verbs(loaded.task):
        found += _OF_VERB[verb](loaded, now)
    return sorted(found, key=lambda move: bool(move.refused))


def _trial(verb: Verb, loaded: Loaded, now: Instant, **what: object) -> str:
    """Why the verb would be refused; empty: it would be carried out."""
    task = loaded.task
    command = Operate(  # nobody's: it is judged and thrown away
        actor="", verb=verb, task_no=task.task_no, incarnation=task.incarnation, by="-", reason="-"
    )
    refusal = judged(msgspec.structs.replace(command, **what), loaded, now)
    return "" if refusal is None else refusal.detail


def _plain(verb: Verb, does: str, loaded: Loaded, now: Instant) -> list[Move]:
    return [Move(verb, does, refused=_trial(verb, loaded, now))]


def _resubmit(loaded: Loaded, now: Instant) -> list[Move]:
    task, redo = loaded.task, to_be_redone(loaded.task, loaded.life)
    if task.state is TaskState.COMPENSATED:
        does = f"runs it again from the beginning, in a new incarnation, under new keys{_turn_after(loaded)}"
        first = _plain(Verb.RESUBMIT, does, loaded, now)
        return [*first, Move(Verb.RESUBMIT, "the same with other arguments", options=("--arguments", "JSON"))]
    if task.undoing:
        still_open = _still_to_undo(loaded)
        does = f"goes on with the undo: {', '.join(still_open)}" if still_open else "goes on with the undo"
        return _plain(Verb.RESUBMIT, does + _turn_after(loaded), loaded, now)
    again = (
        f"does again: {', '.join(step.label for step in redo)}"
        if redo
        else "runs its code again, over what is recorded"
    )
    found = _plain(Verb.RESUBMIT, f"{again}; recorded results stay{_turn_after(loaded)}", loaded, now)
    if may_edit_all(task, loaded.life):
        found.append(Move(Verb.RESUBMIT, "the same with other arguments", options=("--arguments", "JSON")))
    for step in redo:
        if not _trial(Verb.RESUBMIT, loaded, now, step=step.ordinal, arguments=step.arguments):
            at_step = ("--at-step", step.label) if len(redo) > 1 else ()
            options = ("--arguments", "JSON", *at_step)
            found.append(
                Move(Verb.RESUBMIT, f"the same, {step.label} with other arguments under a new key", options=options)
            )
    return found


def _turn_after(loaded: Loaded) -> str:
    """What a task that has ended waits for in its convoy when it comes back."""
    task, convoy = loaded.task, loaded.convoy
    if convoy is None or task.state in TASK_OPEN or (task.turn is Turn.OPEN and convoy.parked_at is None):
        return ""
    lost = ", and its place is lost: others that came after it have gone before"
    is_lost = convoy_words.would_lose_its_place(task, convoy)
    return f"; it waits for its turn in convoy {convoy.key!r} first{lost * is_lost}"


def _still_to_undo(loaded: Loaded) -> list[str]:
    return [s.label for s in loaded.life if s.kind is StepKind.COMPENSATION and s.state is not StepState.COMPLETED]


def _undone(loaded: Loaded) -> str:
    """What the undo would do."""
    steps = [step for step in reversed(loaded.life) if step.kind is StepKind.STEP and step.compensation is not None]
    names = [step.label for step in steps if step.state is StepState.COMPLETED or may_have_happened(step)]
    stuck = stuck_in_doubt(loaded.life)
    stops = "; it stops in error if {} may have happened, for that has no compensation"
    what = f"undoes what it did: {', '.join(names)}" if names else "ends it; no step that it did has a compensation"
    return what + (stops.format(", ".join(step.label for step in stuck)) if stuck else "")


def _compensate(loaded: Loaded, now: Instant) -> list[Move]:
    return _plain(Verb.COMPENSATE, _undone(loaded) + _turn_after(loaded), loaded, now)


def _cancel(loaded: Loaded, now: Instant) -> list[Move]:
    pivot = pivot_of(loaded.life)
    if pivot is None:
        return _plain(Verb.CANCEL, _undone(loaded), loaded, now)
    does = f"stops it; past the pivot {pivot.label} nothing is undone, it is held in error"
    return _plain(Verb.CANCEL, does, loaded, now)


def _extend(loaded: Loaded, now: Instant) -> list[Move]:
    limit = loaded.task.complete_by
    if limit is None:
        return []  # it has no limit: nobody would think of it
    within = max(seconds_between(now, limit), 0.0) + 1.0
    does = f"moves its own limit, {wording.told(limit, now)}, to later"
    refused = _trial(Verb.EXTEND, loaded, now, within=within)
    return [Move(Verb.EXTEND, does, options=("--within", "DURATION"), refused=refused)]


def _answer(loaded: Loaded, now: Instant) -> list[Move]:
    open_to_answer = [s for s in loaded.life if s.kind is not StepKind.TIMER and _asks_for_an_answer(s)]
    found: list[Move] = []
    for step in open_to_answer[:ANSWERS_TOLD_MAX]:
        found += _answers_of(step, loaded, now)
    return found


def _asks_for_an_answer(step: StepRow) -> bool:
    return step.state is not StepState.COMPLETED and (step.in_doubt or step.state is not StepState.WITHDRAWN)


def _answers_of(step: StepRow, loaded: Loaded, now: Instant) -> list[Move]:
    is_undo = step.kind is StepKind.COMPENSATION
    name = UNDO_PREFIX + step.label if is_undo else step.label
    found: list[Move] = []
    if not _trial(Verb.ANSWER, loaded, now, step=step.ordinal, result="null"):
        if is_undo:
            found.append(Move(Verb.ANSWER, f"says that {step.label} was undone by hand", name))
        else:
            does = f"gives {step.label} its result by hand: it happened"
            found.append(Move(Verb.ANSWER, does, name, ("--result", "JSON")))
    if step.in_doubt and not _trial(Verb.ANSWER, loaded, now, step=step.ordinal, did_not_happen=True):
        does = f"says that {wording.named(step)} did not happen: it is no longer in doubt"
        found.append(Move(Verb.ANSWER, does, name, ("--did-not-happen",)))
    return found


def _pause(loaded: Loaded, now: Instant) -> list[Move]:
    return _plain(Verb.PAUSE, VERB_RULES[Verb.PAUSE, loaded.task.state].effect, loaded, now)


def _resume(loaded: Loaded, now: Instant) -> list[Move]:
    return _plain(Verb.RESUME, "it goes on; what waited for its next attempt begins at once", loaded, now)


_OF_VERB: dict[Verb, Callable[[Loaded, Instant], list[Move]]] = {
    Verb.RESUBMIT: _resubmit,
    Verb.COMPENSATE: _compensate,
    Verb.CANCEL: _cancel,
    Verb.EXTEND: _extend,
    Verb.ANSWER: _answer,
    Verb.PAUSE: _pause,
    Verb.RESUME: _resume,
}
