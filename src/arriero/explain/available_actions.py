"""Lists the verbs that a task allows as it stands, and the effect of each."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ..core.supervision import find_pivot, is_held_by_program, may_have_happened, read_step_policy
from ..core.undo import FORWARD_KINDS, list_stuck_steps, stops_at_doubt
from ..core.verb_guards import is_done_by_child, list_possible_verbs, list_steps_to_redo, may_come_again, may_edit_all
from ..core.verb_preview import find_verb_refusal
from ..model import (
    TASK_OPEN,
    UNDO_PREFIX,
    Instant,
    Loaded,
    StepKind,
    StepRow,
    StepState,
    TaskState,
    Turn,
    Verb,
    seconds_between,
)
from ..model.commands import Operate
from ..model.verb_rules import VERB_RULES, VERBS
from ..text.format import format_count, format_instant_and_age, format_seconds, format_step
from .convoys import would_lose_its_place

if TYPE_CHECKING:
    from ..core.parents import ParentStep

ANSWERS_SHOWN_MAX = 5
NAMES_SHOWN_MAX = 10


class AvailableAction(msgspec.Struct, frozen=True):
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


def list_available_actions(loaded: Loaded, now: Instant, parent: "ParentStep | None" = None) -> list[AvailableAction]:
    """The verbs that the task allows, and what each would do; also those that only this task refuses, with the reason.

    ``parent``: of a child.

    Verbs that change nothing of its work are left out: they would stand beside every task.
    """
    found: list[AvailableAction] = []
    for verb in list_possible_verbs(loaded.task):
        if not VERBS[verb].is_listed:
            continue
        if verb is Verb.RESUBMIT and parent is not None and (refused := _find_refusal(verb, loaded, now, parent)):
            found.append(AvailableAction(verb, "runs it again", refused=refused))
        elif verb in _ACTIONS:
            found += _ACTIONS[verb](loaded, now)
        else:
            found += _single_action(verb, VERB_RULES[verb, loaded.task.state].effect, loaded, now)
    return sorted(found, key=lambda move: bool(move.refused))


def _find_refusal(verb: Verb, loaded: Loaded, now: Instant, parent: "ParentStep | None" = None, **what: object) -> str:
    """Return why the verb would be refused; empty: it would be carried out."""
    task = loaded.task
    command = Operate(  # nobody's: it is judged and thrown away
        actor="", verb=verb, task_no=task.task_no, incarnation=task.incarnation, by="-", reason="-"
    )
    refusal = find_verb_refusal(msgspec.structs.replace(command, **what), loaded, now, parent)
    return "" if refusal is None else refusal.detail


def _single_action(verb: Verb, does: str, loaded: Loaded, now: Instant) -> list[AvailableAction]:
    return [AvailableAction(verb, does, refused=_find_refusal(verb, loaded, now))]


def _list_resubmit_actions(loaded: Loaded, now: Instant) -> list[AvailableAction]:
    task, redo = loaded.task, list_steps_to_redo(loaded.task, loaded.life)
    if task.state is TaskState.COMPENSATED:
        does = f"runs it again from the beginning, in a new incarnation, under new keys{_describe_turn_after(loaded)}"
        (first,) = _single_action(Verb.RESUBMIT, does, loaded, now)
        if first.refused:
            return [first]
        return [
            first,
            AvailableAction(Verb.RESUBMIT, "the same with other arguments", options=("--arguments", "JSON")),
        ]
    if task.undoing:
        still_open = _list_open_compensations(loaded)
        does = f"continues the undo: {', '.join(still_open)}" if still_open else "continues the undo"
        return _single_action(Verb.RESUBMIT, does + _describe_turn_after(loaded), loaded, now)
    again = (
        f"does again: {', '.join(step.label for step in redo)}"
        if redo
        else "runs its code again, over what is recorded"
    )
    found = _single_action(Verb.RESUBMIT, f"{again}; recorded results stay{_describe_turn_after(loaded)}", loaded, now)
    if may_edit_all(task, loaded.life):
        found.append(AvailableAction(Verb.RESUBMIT, "the same with other arguments", options=("--arguments", "JSON")))
    for step in redo[:ANSWERS_SHOWN_MAX]:
        if not _find_refusal(Verb.RESUBMIT, loaded, now, step=step.ordinal, arguments=step.arguments):
            at_step = ("--at-step", step.label) if len(redo) > 1 else ()
            options = ("--arguments", "JSON", *at_step)
            found.append(
                AvailableAction(
                    Verb.RESUBMIT, f"the same, {step.label} with other arguments under a new key", options=options
                )
            )
    return found


def _describe_turn_after(loaded: Loaded) -> str:
    """Describe the turn that a task of a convoy waits for when it is reopened after its end."""
    task, convoy = loaded.task, loaded.convoy
    if convoy is None or task.state in TASK_OPEN or (task.turn is Turn.OPEN and convoy.parked_at is None):
        return ""
    lost = ", and its place is lost: others that came after it have gone before"
    is_lost = would_lose_its_place(task, convoy)
    return f"; it waits for its turn in convoy {convoy.key!r} first{lost * is_lost}"


def _list_open_compensations(loaded: Loaded) -> list[str]:
    return [s.label for s in loaded.life if s.kind is StepKind.COMPENSATION and s.state is not StepState.COMPLETED]


def _describe_undo(loaded: Loaded) -> str:
    """Describe what the undo would do."""
    running = [step for step in loaded.life if step.kind is StepKind.CHILD and step.state is StepState.RUNNING]
    steps = [step for step in reversed(loaded.life) if step.kind in FORWARD_KINDS and step.compensation is not None]
    done = [step for step in steps if step.state is StepState.COMPLETED or may_have_happened(step)]
    names = _shorten_names([step.label for step in done if step not in running])
    stuck = list_stuck_steps(loaded.life)
    order = "it undoes nothing and is held" if stops_at_doubt(loaded.task) else "it undoes the rest and is held then"
    stops = f"; {order} if {{}} may have happened, for that has no compensation"
    what = f"undoes what it did: {', '.join(names)}" if names else "ends it; no step that it did has a compensation"
    if running:
        children = ", ".join(_shorten_names([step.label for step in running]))
        what = (
            f"cancels its children: {children}; then {what}"
            if names
            else f"cancels its children: {children}; then it ends"
        )
    return what + (stops.format(", ".join(step.label for step in stuck)) if stuck else "")


def _shorten_names(names: list[str]) -> list[str]:
    """The first names, and how many more there are."""
    left = len(names) - NAMES_SHOWN_MAX
    return names if left <= 0 else [*names[:NAMES_SHOWN_MAX], f"and {left:,} more"]


def _list_compensate_actions(loaded: Loaded, now: Instant) -> list[AvailableAction]:
    return _single_action(Verb.COMPENSATE, _describe_undo(loaded) + _describe_turn_after(loaded), loaded, now)


def _list_cancel_actions(loaded: Loaded, now: Instant) -> list[AvailableAction]:
    pivot = find_pivot(loaded.life)
    if pivot is None:
        return _single_action(Verb.CANCEL, _describe_undo(loaded), loaded, now)
    does = f"stops it; past the pivot {pivot.label} nothing is undone, it is held"
    return _single_action(Verb.CANCEL, does, loaded, now)


def _list_extend_actions(loaded: Loaded, now: Instant) -> list[AvailableAction]:
    limit = loaded.task.complete_by
    if limit is None:
        return []  # it has no limit: nobody would think of it
    within = max(seconds_between(now, limit), 0.0) + 1.0
    does = f"moves its own limit, {format_instant_and_age(limit, now)}, to later"
    refused = _find_refusal(Verb.EXTEND, loaded, now, within=within)
    return [AvailableAction(Verb.EXTEND, does, options=("--within", "DURATION"), refused=refused)]


def _list_adjust_actions(loaded: Loaded, now: Instant) -> list[AvailableAction]:
    """The steps whose limits could change; a deadline is named where a task has one, by extend."""
    found: list[AvailableAction] = []
    for step in loaded.life:
        if len(found) == ANSWERS_SHOWN_MAX:
            break
        if step.kind is StepKind.TIMER or not may_come_again(loaded.task, step):
            continue  # a judgement reads all rows of the task: of thousands of steps only these are judged
        if _find_refusal(Verb.ADJUST, loaded, now, step=step.ordinal, limits=_ANOTHER_LIMIT):
            continue
        policy = read_step_policy(step)
        attempts = policy.supervision.attempts * policy.supervision.rounds
        name = UNDO_PREFIX + step.label if step.kind is StepKind.COMPENSATION else step.label
        does = (
            f"changes limits of {format_step(step)}: {format_count(attempts, 'attempt')} of {format_seconds(policy.complete_within)}"
            f" at most, {step.failure_count} failed so far"
        )
        found.append(AvailableAction(Verb.ADJUST, does, options=("--at-step", name, "--attempts", "N")))
    return found


_ANOTHER_LIMIT = '{"cool_off":0.123}'  # one that no step has, to ask if the step takes any


def _list_snooze_actions(loaded: Loaded, now: Instant) -> list[AvailableAction]:
    does = VERB_RULES[Verb.SNOOZE, loaded.task.state].effect
    refused = _find_refusal(Verb.SNOOZE, loaded, now, within=0.001)
    return [AvailableAction(Verb.SNOOZE, does, options=("--delay", "DURATION"), refused=refused)]


def _list_answer_actions(loaded: Loaded, now: Instant) -> list[AvailableAction]:
    steps = [step for step in loaded.life if step.kind is not StepKind.TIMER and not is_done_by_child(step)]
    open_to_answer = [step for step in steps if _may_be_answered(step)]
    found: list[AvailableAction] = []
    for step in open_to_answer[:ANSWERS_SHOWN_MAX]:
        found += _list_answers(step, loaded, now)
    return found


def _may_be_answered(step: StepRow) -> bool:
    return step.state is not StepState.COMPLETED and (step.in_doubt or step.state is not StepState.WITHDRAWN)


def _list_answers(step: StepRow, loaded: Loaded, now: Instant) -> list[AvailableAction]:
    is_undo = step.kind is StepKind.COMPENSATION
    name = UNDO_PREFIX + step.label if is_undo else step.label
    found: list[AvailableAction] = []
    if not _find_refusal(Verb.ANSWER, loaded, now, step=step.ordinal, result="null"):
        if is_undo:
            found.append(AvailableAction(Verb.ANSWER, f"says that {step.label} was undone by hand", name))
        else:
            does = f"gives {step.label} its result by hand: it happened"
            found.append(AvailableAction(Verb.ANSWER, does, name, ("--result", "JSON")))
    if not _find_refusal(Verb.ANSWER, loaded, now, step=step.ordinal, did_not_happen=True):
        ends = "its attempt ends now" if is_held_by_program(step) else "it is no longer in doubt"
        does = f"says that {format_step(step)} did not happen: {ends}"
        found.append(AvailableAction(Verb.ANSWER, does, name, ("--did-not-happen",)))
    return found


_ACTIONS: dict[Verb, Callable[[Loaded, Instant], list[AvailableAction]]] = {
    Verb.RESUBMIT: _list_resubmit_actions,
    Verb.COMPENSATE: _list_compensate_actions,
    Verb.CANCEL: _list_cancel_actions,
    Verb.EXTEND: _list_extend_actions,
    Verb.ADJUST: _list_adjust_actions,
    Verb.ANSWER: _list_answer_actions,
    Verb.SNOOZE: _list_snooze_actions,
}
