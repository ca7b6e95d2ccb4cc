"""The history of one task as a timeline: one line an event, in plain words, with steps named as people know them.

What only machines need (fences, hashes, keys, policies) is left out; ``arriero history --raw`` shows it.
"""

from collections.abc import Iterable, Iterator
from typing import assert_never

import msgspec
from msgspec import UNSET, Raw

from ..events import (
    UNREADABLE_EVENT,
    Event,
    EventOfBreaker,
    EventOfConvoy,
    EventOfPeople,
    EventOfSchedule,
    EventOfStep,
    EventOfStore,
    EventOfTask,
    EventOfTurn,
    UnreadableEvent,
    read_events_to_show,
)
from ..events.step import (
    AttemptCheckpoint,
    AttemptDelivered,
    AttemptExtended,
    AttemptReleased,
    AttemptRevoked,
    AttemptTried,
    CompensationDispatched,
    CompensationFailedEvent,
    CompensationReached,
    CompensationRecorded,
    RecoverApplied,
    StepAnswered,
    StepAttemptsReturned,
    StepDispatched,
    StepEdited,
    StepExpired,
    StepFailedEvent,
    StepLost,
    StepOpened,
    StepParked,
    StepRecorded,
    StepReopened,
    StepReport,
    StepSetBack,
    StepWithdrawn,
    TimerFired,
)
from ..events.task import (
    AlertClosed,
    AlertOpened,
    OperatorAction,
    OperatorApproval,
    StatusPublished,
    TaskAssigned,
    TaskClaimed,
    TaskExpired,
    TaskLost,
    TaskReleased,
    TaskSubmitted,
    TaskTerminal,
    UndoBegun,
    UndoPlanned,
)
from ..failure_location import find_frame_to_fix, format_frame, is_expected
from ..failures import read_step_failure, read_task_failure
from ..model import HistoryRow, Instant, seconds_between
from ..text.format import (
    format_count,
    format_failure_with_line,
    format_instant,
    format_late_answer,
    is_process_name,
    shorten_process_name,
)
from .liveness import format_of_app
from .timeline_convoys import describe_turn


class TimelineEntry(msgspec.Struct, frozen=True):
    """One event. ``after``: seconds since its incarnation began; ``actor``: who wrote it."""

    at: Instant
    after: float
    says: str
    actor: str


class IncarnationStart(msgspec.Struct, frozen=True):
    """An incarnation begins."""

    incarnation: int
    at: Instant


class Timeline:
    """Describes a task's history row by row, in commit order from the first."""

    def __init__(self) -> None:
        self.incarnation = 0
        self.began_at = Instant(0)
        self.steps: dict[int, str] = {}  # how each is spoken of, by its ordinal
        self.attempts: dict[int, int] = {}
        self.processes: dict[str, int] = {}  # numbers of processes by their names, once both were told
        self.actor = ""  # who wrote what is being told
        self._last_writer = ""  # the process that was told last as the one who wrote

    def list_entries(self, row: HistoryRow) -> Iterator[IncarnationStart | TimelineEntry]:
        """List the lines of one row; before them a section where an incarnation begins."""
        self.actor = row.actor
        for event in read_events_to_show(row):
            incarnation = _count_incarnation(event, self.incarnation)
            if incarnation != self.incarnation:
                self.incarnation, self.began_at = incarnation, row.at
                yield IncarnationStart(incarnation, row.at)
            says = _describe_event(self, event) + self._name_writer()
            yield TimelineEntry(row.at, seconds_between(self.began_at, row.at), says, row.actor)

    def name_process(self, number: int) -> str:
        """Name the process that writes the event by its number, and by its name the first time."""
        if not is_process_name(self.actor) or self.processes.get(self.actor) == number:
            self._last_writer = self.actor
            return f"process {number}"
        self.processes[self.actor] = number
        self._last_writer = self.actor
        return f"process {number} ({shorten_process_name(self.actor)})"

    def _name_writer(self) -> str:
        """Name the process that wrote an event if another one wrote the one before; people are named in the sentence."""
        if not is_process_name(self.actor) or self._last_writer == self.actor:
            return ""
        self._last_writer = self.actor
        return f" (by process {self.processes.get(self.actor) or shorten_process_name(self.actor)})"

    def name_step(self, ordinal: int) -> str:
        """Name a step: ``step charge``, ``the undo of charge``; by its ordinal if its opening was never seen."""
        return self.steps.get(ordinal, f"step number {ordinal}")

    def label_step(self, ordinal: int) -> str:
        """Return the bare label, for lists of compensations."""
        return self.name_step(ordinal).removeprefix("the undo of ")


def format_timeline(rows: Iterable[HistoryRow]) -> Iterator[IncarnationStart | TimelineEntry]:
    """Format the timeline of one task.

    Args:
        rows: its history, in commit order from the first.
    Returns: sections and lines in that order; a section before the first line of each incarnation.
    """
    timeline = Timeline()
    for row in rows:
        yield from timeline.list_entries(row)


def _count_incarnation(event: Event | UnreadableEvent, now: int) -> int:
    return event.incarnation if isinstance(event, OperatorAction) else max(now, 1)


def _describe_event(timeline: Timeline, event: Event | UnreadableEvent) -> str:
    """Describe the event in words. One that is not known, or is not as it should be, is shown as it is."""
    try:
        if isinstance(event, EventOfTask):
            return _describe_task_event(timeline, event)
        if isinstance(event, EventOfStep):
            return _describe_step_event(timeline, event)
        if isinstance(event, EventOfPeople):
            return _describe_people_event(event)
        if isinstance(event, EventOfTurn):
            return describe_turn(event)
        if isinstance(event, EventOfConvoy | EventOfStore | EventOfBreaker | EventOfSchedule | UnreadableEvent):
            return _show_as_it_is(event)
        assert_never(event)
    except (KeyError, ValueError, OverflowError, msgspec.ValidationError):
        return _show_as_it_is(event)


def _show_as_it_is(event: Event | UnreadableEvent) -> str:
    fields = event.fields if isinstance(event, UnreadableEvent) else msgspec.json.decode(msgspec.json.encode(event))
    if event.type == UNREADABLE_EVENT:
        return f"link {fields['link']} of its history is damaged and cannot be read; `arriero check` judges an export of it"
    rest = {name: value for name, value in fields.items() if name != "type"}
    return f"{event.type} {msgspec.json.encode(rest).decode()}"


def _join_parts(*parts: str) -> str:
    return "".join(f", {part}" for part in parts if part)


# --- the task
def _describe_task_event(timeline: Timeline, event: EventOfTask) -> str:
    match event:
        case TaskSubmitted():
            return _describe_submission(timeline, event)
        case TaskClaimed(state=state, process=process):
            what = "for its undo " if state == "compensating" else ""
            return f"taken up {what}by {timeline.name_process(process)}"
        case TaskReleased():
            return _describe_release(event)
        case TaskExpired():
            return "the Supervisor finds that the task's own limit has passed"
        case TaskLost(process=process, lost_count=count):
            who = "a process that was stuck" if process is None else f"process {process}"
            return f"{who} was lost while it worked on this task: loss {count} since its last progress"
        case TaskTerminal():
            return _describe_end(event)
        case UndoBegun(failure=failure):
            return f"the undo begins: {_format_task_failure(failure)}"
        case UndoPlanned(steps=steps):
            order = ", then ".join(timeline.label_step(ordinal) for ordinal in steps)
            return f"the undo is planned: {order or 'there is nothing to undo'}"
        case _:
            assert_never(event)


def _describe_submission(timeline: Timeline, event: TaskSubmitted) -> str:
    limit, queue = event.complete_by, event.reply_to
    waits = event.not_before > timeline.began_at
    more = _join_parts(
        f"not to start before {format_instant(event.not_before)}" if waits else "",
        "" if limit is None else f"to be done by {format_instant(limit)}",
        "" if queue is None else f"its submitter is told in the reply queue {queue}",
    )
    app = format_of_app(event.app)
    return f"submitted to workflow {event.workflow}{app} with priority {event.priority}{more}"


def _describe_assignment(event: TaskAssigned) -> str:
    before = event.from_app
    was = f"it was of App {before!r}" if before else "nothing said whose it was"
    return f"{event.by} gives it to App {event.app!r}, {was}: {event.reason}"


_WHY_RELEASED = {
    "lost": "freed: the process that held it was lost",
    "stuck": "freed by the Supervisor: the process that held it lives but made no progress",
    "limit": "freed by the Supervisor, for its undo",
}


def _describe_release(event: TaskReleased) -> str:
    if (why := _WHY_RELEASED.get(event.why)) is not None:
        return why
    at = event.not_before
    return "put down until news comes" if at is None else f"put down until {format_instant(at)}, or until news comes"


def _describe_end(event: TaskTerminal) -> str:
    words = {
        "processed": "processed: it is done",
        "compensated": "compensated, everything is undone",
        "error": "in error, a person is needed",
    }
    said = words[event.state]
    return said if event.failure is UNSET else f"{said}: {_format_task_failure(event.failure)}"


def _format_task_failure(failure: Raw) -> str:
    read = read_task_failure(failure)
    code = f" [{read.code}]" if read.code else ""
    nothing = f" (nothing to undo: {', '.join(read.nothing_to_undo)})" if read.nothing_to_undo else ""
    frame = None if is_expected(read.trace) else find_frame_to_fix(read.trace)
    return f"{read.reason}{code}{'' if frame is None else f', at {format_frame(frame)}'}{nothing}"


# --- people
def _describe_people_event(event: EventOfPeople) -> str:
    match event:
        case OperatorAction():
            return _describe_verb(event)
        case OperatorApproval():
            return _describe_approval(event)
        case TaskAssigned():
            return _describe_assignment(event)
        case StatusPublished(kind=kind, number=number, queue=queue):
            return f"its submitter is told: {kind} (message {number}, reply queue {queue})"
        case AlertOpened(cause=cause):
            return f"an alert is opened, to be told to people (cause: {cause})"
        case AlertClosed():
            return "its alert is closed: it is no longer in error"
        case _:
            assert_never(event)


_VERBS = {
    "resubmit": "resubmitted it",
    "compensate": "had it undone",
    "cancel": "cancelled it",
    "extend": "moved its limit to later",
    "answer": "answered a step by hand",
    "pause": "paused it",
    "resume": "let it go on",
}


def _describe_verb(event: OperatorAction) -> str:
    verb, before, after = event.verb, event.before, event.after
    changed = f" ({before} before, now {after})" if before != after else ""
    limit = event.complete_by
    until = "" if limit is None or limit is UNSET else f"; to be done by {format_instant(limit)}"
    anew = ", to run again from the beginning" if event.anew else ""
    edited = "" if event.arguments is UNSET else ", with edited arguments of its workflow"
    why = f'"{event.reason}"'
    approved = f", approved by {' and '.join(event.approved_by)}" if event.approved_by else ""
    return f"{event.by} {_VERBS.get(verb, verb)}{anew}{edited}{changed}{approved}: {why}{until}"


def _describe_approval(event: OperatorApproval) -> str:
    return f'{event.by} approves {event.verb}, which needs {event.persons} persons: "{event.reason}"'


def _describe_edit(timeline: Timeline, event: StepEdited) -> str:
    since = "" if event.attempt is UNSET else f" from attempt {event.attempt} on"
    kept = "" if event.replaces is UNSET else "; those it had are kept"
    return f"{timeline.name_step(event.step)} gets other arguments{since}, and a new key with them{kept}"


# --- steps
def _describe_step_event(timeline: Timeline, event: EventOfStep) -> str:
    if isinstance(event, StepOpened):
        return _describe_opening(timeline, event)
    step = timeline.name_step(event.step)
    match event:
        case StepReopened(attempt=attempt):
            return f"{step} is asked for again{f', as attempt {attempt}' if attempt > 1 else ''}"
        case StepDispatched() | CompensationDispatched():
            return _describe_attempt(timeline, event)
        case AttemptTried(in_doubt=True):
            return f"{step} is called again; a call before may have happened, so it is in doubt"
        case AttemptTried():
            return f"{step} is called again, within the rate of its Agent"
        case AttemptDelivered():
            return f"{step}: its request has reached the program, which holds the attempt from now on"
        case AttemptExtended(complete_by=complete_by):
            return f"{step}: its attempt gets more time, to end by {format_instant(complete_by)}"
        case AttemptCheckpoint():
            return f"{step}: its attempt keeps a checkpoint"
        case StepReport():
            return f"{step}: {_describe_report(event)}"
        case StepRecorded():
            return f"{step} is completed"
        case CompensationRecorded():
            return f"{step} is done"
        case StepFailedEvent() | CompensationFailedEvent():
            return f"{step} has failed for good{_format_step_failure(event)}"
        case StepExpired(why="starved"):
            return f"the Supervisor finds that no Agent took {step} within its wait_within"
        case StepExpired():
            return f"the Supervisor finds that {step} gave no answer in time"
        case RecoverApplied():
            return _describe_recovery(timeline, event)
        case StepAttemptsReturned(count=count):
            return f"{step}: {format_count(count, 'failed attempt')} of the outage {'is' if count == 1 else 'are'} not counted any more"
        case StepLost():
            return f"{step}: its attempt was lost with its process; it is in doubt, and costs no attempt"
        case AttemptReleased():
            return f"{step}: its attempt goes back before its work began; it costs no attempt"
        case AttemptRevoked():
            return f"{step}: its attempt is taken from the program, which may be at work; it is in doubt"
        case StepWithdrawn(in_doubt=in_doubt):
            return f"{step} is withdrawn{_format_doubt(in_doubt=in_doubt)}"
        case StepParked():
            return f"{step} is set aside: it stays open until the task is resubmitted"
        case CompensationReached():
            return f"it is the turn of {step}"
        case TimerFired():
            return f"{step} has fired"
        case StepSetBack(attempt=attempt):
            return f"{step} is to be done again, as attempt {attempt}"
        case StepEdited():
            return _describe_edit(timeline, event)
        case StepAnswered(happened=True):
            return f"{step} is done, says a person: its result was given by hand"
        case StepAnswered():
            return f"{step} did not happen, says a person: it is no longer in doubt"
        case _:
            assert_never(event)


def _describe_opening(timeline: Timeline, event: StepOpened) -> str:
    label = event.name if event.key == "#1" else f"{event.name}[{event.key}]"
    prefix = {"step": "step ", "compensation": "the undo of ", "timer": "timer "}[event.kind]
    timeline.steps[event.step] = prefix + label
    step = timeline.name_step(event.step)
    if event.kind == "timer" and event.fire_at is not None:
        return f"{step} is set to {format_instant(event.fire_at)}"
    if event.planned:
        return f"{step} is planned (Agent {event.agent})"
    pivot = ", a pivot: past it nothing is undone" if event.pivot else ""
    return f"{step} is asked for (Agent {event.agent}){pivot}"


def _describe_attempt(timeline: Timeline, event: StepDispatched | CompensationDispatched) -> str:
    timeline.attempts[event.step] = event.attempt
    until = format_instant(event.complete_by)
    where = timeline.name_process(event.process)
    moved = f"Agent {event.agent} takes it over, " if event.agent else ""
    return f"{timeline.name_step(event.step)}: {moved}attempt {event.attempt} begins at {where}, to end by {until}"


_REFUSED_REPORTS = {
    "late": "it came after the attempt's time was over",
    "stale": "it is of an attempt that no longer counts",
    "duplicate": "no attempt was under way any more",
    "unknown": "there is no such step",
    "malformed": "it could not be read",
}


def _describe_report(event: StepReport) -> str:
    said = "a result" if event.outcome == "succeeded" else "a failure"
    if event.tries is not UNSET and event.tries > 1:
        said += f" after {event.tries} tries"
    if event.verdict == "applied":
        return f"its attempt reports {said}"
    if event.kept and event.attempt is not UNSET and event.answered_at is not UNSET and event.complete_by is not UNSET:
        answered = format_late_answer(event.attempt, event.answered_at, event.complete_by)
        return f"{answered} ({said}, refused as {event.verdict})"
    why = _REFUSED_REPORTS.get(event.verdict, event.verdict)
    return f"a report of {said} was refused as {event.verdict}, nothing changed: {why}"


def _format_step_failure(event: StepFailedEvent | CompensationFailedEvent) -> str:
    failure = format_failure_with_line(read_step_failure(event.failure))
    after = f" after {format_count(event.failure_count, 'attempt')}" if event.failure_count else ""
    return f"{after}: {failure}{_format_doubt(in_doubt=event.in_doubt)}"


def _format_doubt(*, in_doubt: bool) -> str:
    return "; it is in doubt: it may have happened" if in_doubt else ""


_DECISIONS = {
    "retry": "tried again not before {at}",
    "cool_off": "its round of attempts is spent, tried again after a cool-off, not before {at}",
    "error": "not tried again, for the task is being undone or needs a person",
}


def _describe_recovery(timeline: Timeline, event: RecoverApplied) -> str:
    failure = format_failure_with_line(read_step_failure(event.failure))
    number = timeline.attempts.get(event.step)
    attempt = "an attempt" if number is None else f"attempt {number}"
    doubt = ", and is in doubt" if event.in_doubt else ""
    decision = _DECISIONS[event.what].format(at=format_instant(event.not_before))
    if not event.is_charged:
        decision += "; its Agent's service is down, so the attempt is not counted"
    return f"{timeline.name_step(event.step)}: {attempt} failed{doubt} ({failure}); {decision}"
