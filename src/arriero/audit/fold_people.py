"""The fold of events of operators: their verbs, the messages to submitters, the alerts; and their invariants."""

from collections.abc import Mapping, Sequence
from typing import assert_never

from msgspec import UNSET

from ..events import Event, UnreadableEvent
from ..events.step import (
    CompensationDispatched,
    StepAdjusted,
    StepAnswered,
    StepDispatched,
    StepEdited,
    StepReopened,
    StepSetBack,
)
from ..events.task import (
    AlertClosed,
    AlertOpened,
    EventOfPeople,
    OperatorAction,
    OperatorApproval,
    StatusPublished,
    TaskAssigned,
    TaskClaimed,
)
from ..model import NOT_SAID, StepState, TaskState, Turn, Verb
from ..model.policies import read_limit, set_limits
from ..model.processes import FIRST_VERSION
from ..model.signals import name_wait
from ..model.verb_rules import VERB_RULES, outlasts
from ..text.person_names import list_skeletons
from .fold import ENDED, STEP_IS_OPEN, StepFold, TaskFold
from .fold_agents import judge_reopening
from .fold_convoys import judge_turn


def assign_app(task: TaskFold, event: TaskAssigned) -> None:
    """Fold the event by which an operator gave the task to an App."""
    if not event.by:
        task.convict("I59", "assigned to an App by nobody")
    if event.from_app != task.app:
        task.convict("I59", f"it is recorded to have been of App {event.from_app!r}, it was of {task.app!r}")
    task.grow_fence(event.fence, "assigned")
    task.app, task.holder, task.not_before = event.app, None, event.not_before


def judge_app(task: TaskFold, events: Sequence[Event | UnreadableEvent], apps: Mapping[int, str]) -> None:
    """Judge the App after one commit. ``apps``: of process starts, by number; of one of release 0.4.0 none is known."""
    for event in events:
        if not isinstance(event, TaskClaimed | StepDispatched | CompensationDispatched):
            continue
        app = apps.get(event.process, NOT_SAID)
        if NOT_SAID not in (app, task.app) and app != task.app:
            task.convict(
                "I61", f"{event.type} by process {event.process} of App {app!r}, the task is of App {task.app!r}"
            )


def judge_version(
    task: TaskFold, events: Sequence[Event | UnreadableEvent], versions: Mapping[int, Mapping[str, tuple[str, ...]]]
) -> None:
    """Judge the version of its code after one commit. ``versions``: of the code of process starts, by number and workflow."""
    for event in events:
        if not isinstance(event, TaskClaimed) or event.state != TaskState.PROCESSING or event.process not in versions:
            continue
        version = task.code_version or FIRST_VERSION
        known = versions[event.process].get(task.workflow, (FIRST_VERSION,))
        if version not in known:
            has = ", ".join(known)
            task.convict(
                "I88", f"{event.type} by process {event.process}, which has code version {has}, and not {version}"
            )


_TERMINAL_STATUS = {
    TaskState.PROCESSED: ("completed",),
    TaskState.COMPENSATED: ("compensated",),
    TaskState.HELD: ("held", "needs_attention"),  # the second as releases to 0.4 recorded it
}


def fold_people_event(task: TaskFold, event: EventOfPeople) -> None:
    """Fold one event that an operator caused, or that informs operators."""
    match event:
        case OperatorAction():
            _operate(task, event)
        case OperatorApproval():
            _approve(task, event)
        case TaskAssigned():
            assign_app(task, event)
        case StatusPublished():
            _publish(task, event)
        case AlertOpened():
            _open_alert(task, event)
        case AlertClosed():
            _close_alert(task)
        case _:
            assert_never(event)


def _approve(task: TaskFold, event: OperatorApproval) -> None:
    if not event.by:
        task.convict("I59", f"{event.verb} was approved by nobody")
    if event.incarnation != task.incarnation:
        task.convict("I77", f"{event.verb} was approved for incarnation {event.incarnation}, it is {task.incarnation}")
    if event.persons < 2:
        task.convict("I77", f"{event.verb} was kept as an approval, where {event.persons} person is enough")
    task.approvals.append((event.verb, event.by))


def _judge_approvers(task: TaskFold, event: OperatorAction) -> None:
    names = (*event.approved_by, event.by)
    known: set[str] = set()
    for name in names:
        skeletons = list_skeletons(name)
        if known & skeletons:
            task.convict("I77", f"{event.verb} counts an operator twice: {', '.join(names)}")
            break
        known |= skeletons
    for name in event.approved_by:
        if (event.verb, name) not in task.approvals:
            task.convict("I77", f"{event.verb} is recorded as approved by {name}, who did not approve it")
    task.approvals = [(verb, by) for verb, by in task.approvals if outlasts(verb, event.verb)]


def _names_state(word: str, state: TaskState | None) -> bool:
    """Returns True if a word of the history names the state, in this release or in those to 0.4."""
    return state is not None and word in (state, state.stored)


def _operate(task: TaskFold, event: OperatorAction) -> None:
    """Fold an operator's verb; only a verb leaves an end, and then it opens the next incarnation."""
    verb = Verb(event.verb)
    if not event.by:
        task.convict("I59", f"{verb} by nobody")
    _judge_approvers(task, event)
    if not _names_state(event.before, task.state):
        task.convict("I59", f"{verb} is recorded from {event.before}, the task was {task.state}")
    if task.state is not None and (verb, task.state) not in VERB_RULES:
        task.convict("I59", f"{verb} was carried out on a task that was {task.state}")
    if task.paused if verb is Verb.PAUSE else verb is Verb.RESUME and not task.paused:
        task.convict("I59", f"{verb} was carried out on a task that was {'' if task.paused else 'not '}paused")
    if verb is Verb.RESUME:
        for step in task.life:
            step.not_before = None  # what waited for its next attempt begins immediately
    if verb in (Verb.RESUBMIT, Verb.COMPENSATE, Verb.CANCEL):
        task.snoozed_until = None
    if verb is Verb.SNOOZE:
        _snooze(task, event)
    if verb is Verb.TAG:
        _change_tags(task, event)
    if verb is Verb.PIN:
        _pin(task, event)
    task.grow_fence(event.fence, str(verb))
    task.holder = None
    task.not_before = event.not_before
    _judge_incarnation(task, event, verb)
    if event.complete_by is not UNSET and event.complete_by is not None:
        if event.complete_by_before not in (UNSET, task.complete_by):
            says = f"{verb} is recorded to have found the limit {event.complete_by_before}, it was {task.complete_by}"
            task.convict("I59", says)
        if verb is Verb.EXTEND and event.complete_by <= (task.complete_by or 0):
            task.convict("I19", f"the task's limit was moved back from {task.complete_by} to {event.complete_by}")
        task.complete_by = event.complete_by
    elif verb is Verb.RESUBMIT:
        task.complete_by = None
    if event.paused is not UNSET:
        task.paused = event.paused
    elif verb in (Verb.CANCEL, Verb.COMPENSATE):
        task.paused = False


def _snooze(task: TaskFold, event: OperatorAction) -> None:
    """Fold a snooze: the task is not claimed, and no request of it dispatched, before its end."""
    if event.until is UNSET or event.until <= task.at:
        task.convict("I59", f"snooze was carried out at {task.at}, and names no later instant at which it ends")
        return
    before = task.snoozed_until
    for step in task.life:
        if before is not None and step.not_before is not None and step.not_before <= before:
            step.not_before = None  # this snooze replaces the one that held it back
    task.snoozed_until = event.until


def _change_tags(task: TaskFold, event: OperatorAction) -> None:
    """Fold a change of tags, which keeps the old values."""
    if event.tags is UNSET or event.tags_before is UNSET:
        task.convict("I59", "tag does not say which tags the task had, or has afterwards")
        return
    if event.tags_before != task.tags:
        task.convict("I59", f"tag is recorded to have found the tags {event.tags_before}, they were {task.tags}")
    task.tags = event.tags


def _pin(task: TaskFold, event: OperatorAction) -> None:
    """Fold the move to another version of its code, which keeps the old one."""
    if event.code_version is UNSET or event.code_version_before is UNSET:
        task.convict("I59", "pin does not say which code version the task had, or has afterwards")
        return
    before = task.code_version or FIRST_VERSION
    if event.code_version_before != before:
        task.convict("I59", f"pin is recorded to have found code version {event.code_version_before}, it was {before}")
    task.code_version = None if event.code_version == FIRST_VERSION else event.code_version


def _judge_incarnation(task: TaskFold, event: OperatorAction, verb: Verb) -> None:
    opens = task.state in ENDED and verb in (Verb.RESUBMIT, Verb.COMPENSATE)
    if event.incarnation != task.incarnation + opens:
        task.convict("I2", f"{verb} led to incarnation {event.incarnation} from {task.incarnation}")
    task.incarnation = event.incarnation
    if not opens:
        return
    _judge_last_status(task)
    task.lost_count = 0
    task.last_status = ""
    if event.anew:
        task.past_count, task.failure_count = len(task.steps), 0
        task.has_begun, task.code_version = False, None
    goes_on_undoing = verb is Verb.RESUBMIT and event.after == TaskState.COMPENSATING
    if not goes_on_undoing:
        task.undo_began, task.plan = False, None
    task.state = TaskState.COMPENSATING if goes_on_undoing else TaskState.PENDING


EventOfVerb = StepSetBack | StepEdited | StepReopened | StepAnswered | StepAdjusted


def fold_verb_on_step(task: TaskFold, event: EventOfVerb) -> None:
    """Fold one event of a step that follows from an operator's verb."""
    match event:
        case StepSetBack():
            set_back(task, event)
        case StepEdited():
            edit(task, event)
        case StepReopened():
            reopen(task, event)
        case StepAnswered():
            answer(task, event)
        case StepAdjusted():
            adjust(task, event)
        case _:
            assert_never(event)


def set_back(task: TaskFold, event: StepSetBack) -> None:
    """Fold the event of a failed step that is done again."""
    step = task.steps[event.step]
    if step.state is not StepState.FAILED:
        task.convict("I14", f"step {step.ordinal} was set back while {step.state}")
    due = step.attempt + (step.failure_code != "not_taken")
    if event.attempt != due:
        task.convict("I22", f"step {step.ordinal} was set back to attempt {event.attempt}, {due} is the next")
    step.attempt, step.failure_count, step.not_before = event.attempt, 0, None
    step.state = StepState.PLANNED if step.kind == "compensation" else StepState.WITHDRAWN


def edit(task: TaskFold, event: StepEdited) -> None:
    """Fold an edit: other arguments are sent from now on, under a new key."""
    step = task.steps[event.step]
    if step.in_doubt:
        task.convict("I18", f"step {step.ordinal} was edited although it may have happened as it was")
    key = event.idempotency_key
    if task.keys.setdefault(key, step.ordinal) != step.ordinal or key == step.idempotency_key:
        task.convict("I18", f"step {step.ordinal} was edited and kept a key that was used before")
    if event.replaces is not UNSET and event.replaces != step.arguments:
        task.convict("I59", f"the edit of step {step.ordinal} names other arguments as replaced than it was sent")
    step.idempotency_key = key
    step.checkpoint = None
    if event.arguments is not UNSET:
        step.arguments = event.arguments


def reopen(task: TaskFold, event: StepReopened) -> None:
    """Fold the reopening of a step that was withdrawn or set back."""
    step = task.steps[event.step]
    if step.kind != "timer":
        if step.state is not StepState.WITHDRAWN:
            task.convict("I14", f"step {step.ordinal} was opened again while {step.state}")
        if event.attempt != step.attempt:
            task.convict("I22", f"step {step.ordinal} was opened again for attempt {event.attempt}, not {step.attempt}")
        if event.idempotency_key != step.idempotency_key:
            task.convict("I18", f"step {step.ordinal} was opened again under another key")
        judge_reopening(task, step, event)
        step.declare(event)
        step.copied_from = None  # of a fork: from here on it is its own step
    step.not_before = None
    if task.undo_began:
        task.convict("I31", f"step {step.ordinal} was opened again after the undo began")
    step.state = step.state_when_due


def adjust(task: TaskFold, event: StepAdjusted) -> None:
    """Fold the change of a step's limits, which keeps the old values. From here on it is judged by the new ones."""
    step = task.steps[event.step]
    if step.state not in (*STEP_IS_OPEN, StepState.PLANNED):
        task.convict("I59", f"limits of step {step.ordinal} were changed while it was {step.state}")
    if event.limits.keys() != event.before.keys():
        task.convict("I59", f"the change of limits of step {step.ordinal} does not keep the old values")
    limits = {name: value for name, value in event.limits.items() if name != "not_before"}
    if step.policy is not None:
        found = {name: read_limit(step.policy, name) for name in limits}
        if any(event.before.get(name) != value for name, value in found.items()):
            task.convict(
                "I59", f"limits of step {step.ordinal} are recorded to have been {event.before}, they were {found}"
            )
        step.policy = set_limits(step.policy, limits)
    if "not_before" in event.limits:
        at = event.limits["not_before"]
        step.not_before = None if at is None else int(at)


def answer(task: TaskFold, event: StepAnswered) -> None:
    """Fold the answer of an operator, who gave a step's result or said that it did not happen."""
    step = task.steps[event.step]
    if step.state is StepState.COMPLETED:
        task.convict("I14", f"step {step.ordinal} was answered although it had a result")
    elif step.kind == "timer" and (
        step.state is not StepState.PENDING or not step.name.startswith(name_wait("question", ""))
    ):
        task.convict("I82", f"operators answered {step.name} as step {step.ordinal}, which was {step.state}")
    is_over = step.kind == "step" and step.state not in STEP_IS_OPEN and not step.in_doubt
    if event.happened and task.undo_began and is_over:
        task.convict("I31", f"step {step.ordinal} got a result after the undo began, though it did not happen")
    step.in_doubt = False
    step.is_answered = step.is_answered or event.happened
    if event.happened:
        step.result, step.copied_from = None if event.result is UNSET else event.result, None
        _complete(task, step, event.fence)


def _complete(task: TaskFold, step: StepFold, fence: int) -> None:
    if fence <= step.fence:
        task.convict("I6", f"step {step.ordinal} was answered under fence {fence}, the highest was {step.fence}")
    step.fence, step.complete_by = max(step.fence, fence), None
    step.state = StepState.COMPLETED
    task.lost_count = 0


def _open_alert(task: TaskFold, event: AlertOpened) -> None:
    """Fold an alert: the task needs an operator, or it waits in its convoy for missing numbers."""
    task.open_alerts += 1
    if event.cause == "gap":
        if task.turn is not Turn.WAITING:
            task.convict("I26", f"an alert of a gap was opened while the task's turn was {task.turn}")
        task.gap_alert = True
    elif task.state is not TaskState.HELD:
        task.convict("I26", f"an alert was opened while the task was {task.state}")


def _close_alert(task: TaskFold) -> None:
    """Fold the end of an alert: the task is no longer held, or what it waited for is there."""
    task.open_alerts -= 1
    task.gap_alert = False


def _publish(task: TaskFold, event: StatusPublished) -> None:
    """Fold a message to the submitter's reply queue."""
    number, kind = event.number, event.kind
    if event.queue != task.reply_to:
        task.convict(
            "I45", f"status {number} went to the queue {event.queue!r}, the submission named {task.reply_to!r}"
        )
    if number != task.status_count + 1:
        task.convict("I43", f"status {number} follows status {task.status_count}")
    if any(task.last_status in words for words in _TERMINAL_STATUS.values()):
        task.convict("I45", f"status {number} ({kind}) follows the last one of its incarnation, {task.last_status}")
    if not _agrees(kind, task):
        task.convict("I44", f"status {number} says {kind}, the task is {task.state}")
    task.status_count, task.last_status = number, kind


def _agrees(kind: str, task: TaskFold) -> bool:
    match kind:
        case "received":
            return task.state is TaskState.PENDING
        case "started" | "asked":
            return task.state in (TaskState.PENDING, TaskState.PROCESSING)
        case "failed":
            return task.undo_began
        case _:
            return task.state is not None and kind in _TERMINAL_STATUS.get(task.state, ())


def _judge_last_status(task: TaskFold) -> None:
    """Judge that the last status of an incarnation reports its end."""
    if task.reply_to is None or task.state not in ENDED:
        return
    if task.last_status not in _TERMINAL_STATUS[task.state]:
        task.convict("I45", f"the task is {task.state}, its last status says {task.last_status or 'nothing'}")


def judge_commit(task: TaskFold, events: Sequence[Event | UnreadableEvent]) -> None:
    """Judge after one commit what its events must have led to together."""
    for event in events:
        if isinstance(event, OperatorAction) and not _names_state(event.after, task.state):
            task.convict("I59", f"{event.verb} is recorded to lead to {event.after}, the task is {task.state}")
    due = int(task.state is TaskState.HELD or task.gap_alert)
    if task.open_alerts != due:
        task.convict("I26", f"the task is {task.state} with {task.open_alerts} open alerts")
        task.open_alerts = due  # said once
    if task.gap_alert and task.turn is not Turn.WAITING and task.state is not TaskState.HELD:
        task.convict("I26", "the alert of a gap is open, but the task no longer waits")
        task.gap_alert = False
    judge_turn(task)


def judge_end(task: TaskFold, *, complete: bool) -> None:
    """Judge after the last event. ``complete``: nothing should be open any longer."""
    _judge_last_status(task)
    if complete and task.state in (TaskState.PENDING, TaskState.PROCESSING, TaskState.COMPENSATING):
        task.convict("I1", f"the task has not ended: it is {task.state}")
