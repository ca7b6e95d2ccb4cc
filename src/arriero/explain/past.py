"""Facts that a task's history adds to its rows: its timeline, actions of operators, and durations without the waits for an operator.

A row keeps only when a task was submitted and when it ended last. Between these it may have been held or paused for
hours, or have been done long before a caller had it undone; all that stands in its history.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ..events import UNREADABLE_EVENT, Event, HistoryNames, UnreadableEvent, describe_event, read_events_to_show
from ..events.signal import SignalSent, SignalSetAside
from ..events.step import CompensationDispatched, StepAdjusted, StepDispatched, StepOpened
from ..events.task import OperatorAction, OperatorApproval, TaskTerminal, UndoBegun, read_state_word
from ..model import HistoryRow, Instant, StepRow, TaskRow, TaskState, Verb, seconds_between
from ..model.verb_rules import outlasts
from ..text.format import format_duration


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
        self._names = HistoryNames()

    def list_entries(
        self, row: HistoryRow, events: Sequence[Event | UnreadableEvent] | None = None
    ) -> Iterator[IncarnationStart | TimelineEntry]:
        """List the lines of one row; before them a section where an incarnation begins. ``events``: of the row, if they were read."""
        names = self._names
        names.actor = row.actor
        for event in read_events_to_show(row) if events is None else events:
            incarnation = _count_incarnation(event, self.incarnation)
            if incarnation != self.incarnation:
                self.incarnation, names.began_at = incarnation, row.at
                yield IncarnationStart(incarnation, row.at)
            says = describe_event(event, names) + names.name_writer()
            yield TimelineEntry(row.at, seconds_between(names.began_at, row.at), says, row.actor)


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


SHORT_SECONDS = 60.0  # of what ended sooner after its submission, no wait for an operator is worth looking for

_TYPES_READ = ("step.dispatched", "compensation.dispatched", "task.terminal", "operator.action", UNREADABLE_EVENT)
_KEEP_OLD_VALUES = frozenset((Verb.EXTEND, Verb.ADJUST, Verb.TAG, Verb.PIN))
_ACT_FIELDS = ("verb", "by", "reason", "before", "after")
_LEAVES_AN_END = frozenset((Verb.RESUBMIT, Verb.COMPENSATE))
_ENDS_A_PAUSE = frozenset((Verb.RESUME, Verb.COMPENSATE, Verb.CANCEL))


class Idle(msgspec.Struct, frozen=True):
    """A time in which nothing continued. ``for_person``: it was held or paused; else it was done. ``end`` None: still."""

    start: Instant
    end: Instant | None
    for_person: bool


class Elapsed(msgspec.Struct, frozen=True):
    """Seconds that something took, without those in which it ``waited`` for an operator or was done already.

    ``took`` None: it has not ended.
    """

    took: float | None
    waited: float

    @property
    def says(self) -> str:
        """``2.1 s (and 3 h waiting for an operator)``; empty when it has neither ended nor waited."""
        took = "" if self.took is None else format_duration(self.took)
        if not self.waited:
            return took
        waited = f"{format_duration(self.waited)} waiting for an operator"
        return f"{took} (and {waited})" if took else f"so far {waited}"


class PersonAct(msgspec.Struct, frozen=True):
    """An action of an operator on the task. ``changes``: limits and tags that it changed, in words, with the old values."""

    at: Instant
    verb: str
    by: str
    reason: str
    before: str
    after: str
    changes: tuple[str, ...] = ()


class PersonApproval(msgspec.Struct, frozen=True):
    """An approval of a verb that needs more operators than have asked for it so far."""

    at: Instant
    verb: str
    by: str
    reason: str
    persons: int
    request: str


class TaskPast:
    """The facts that a task's history adds to its rows: actions of operators, and the times at which things began and rested.

    Args:
        history: in commit order from the first. A row that cannot be read is shown as far as it can be, and counted in
            ``unreadable``.
    """

    def __init__(self, history: Iterable[HistoryRow] = ()) -> None:
        self.acts: list[PersonAct] = []
        self.approvals: list[PersonApproval] = []  # since the last verb
        self.submitted_by = ""  # the actor of its first commit
        self.undo_begun_at: Instant | None = None
        self.began: dict[int, Instant] = {}  # when the last attempt of each step began, by its ordinal
        self.rests: list[Idle] = []
        self.sent: dict[int, str] = {}  # the names of signals, by their numbers
        self.set_aside: list[tuple[int, str]] = []  # numbers of signals whose value the code could not read, and why
        self.unreadable: list[int] = []  # numbers of rows of the history
        self._ended: tuple[Instant, bool] | None = None
        self._paused: Instant | None = None
        self._names = HistoryNames()
        for row in history:
            self.add(row)

    def add(self, row: HistoryRow) -> None:
        """Add the next row of the history."""
        self.submitted_by = row.actor if row.link == 1 else self.submitted_by
        for event in read_events_to_show(row):
            self._add(event, row)

    def _add(self, event: Event | UnreadableEvent, row: HistoryRow) -> None:
        at = row.at
        match event:
            case StepDispatched(step=step) | CompensationDispatched(step=step):
                self.began[step] = at
            case TaskTerminal(state=state):
                self._end_pause(at)
                self._end_rest(at)
                self._ended = (at, read_state_word(state) == TaskState.HELD)
            case StepOpened():
                event.describe(self._names)  # which learn the step's name from it
            case StepAdjusted() if self.acts:
                changes = (*self.acts[-1].changes, event.describe(self._names))
                self.acts[-1] = msgspec.structs.replace(self.acts[-1], changes=changes)
            case SignalSent():
                self.sent[event.number] = event.name
            case SignalSetAside():
                self.set_aside.append((event.signal, event.reason))
            case UndoBegun():
                self.undo_begun_at = at
            case OperatorApproval():
                approval = PersonApproval(at, event.verb, event.by, event.reason, event.persons, event.request)
                asked = (event.verb, event.by, event.request)
                if not any((known.verb, known.by, known.request) == asked for known in self.approvals):
                    self.approvals.append(approval)
            case OperatorAction(verb=verb):
                self.approvals = [one for one in self.approvals if outlasts(one.verb, verb)]
                before, after = map(read_state_word, (event.before, event.after))
                changes = tuple(event.list_changes()) if verb in _KEEP_OLD_VALUES else ()
                self.acts.append(PersonAct(at, verb, event.by, event.reason, before, after, changes))
                if verb in _LEAVES_AN_END:
                    self._end_rest(at)
                if verb in _ENDS_A_PAUSE:
                    self._end_pause(at)
                if verb == Verb.PAUSE:
                    self._paused = at
            case UnreadableEvent(type=kind) if kind in _TYPES_READ:
                if row.no not in self.unreadable[-1:]:
                    self.unreadable.append(row.no)
                if kind == "operator.action":
                    verb, by, reason, *states = (str(event.fields.get(name, "")) for name in _ACT_FIELDS)
                    self.acts.append(PersonAct(at, verb, by, reason, states[0], states[1]))

    def last(self, verb: Verb) -> PersonAct | None:
        """Return the last action with this verb."""
        return next((act for act in reversed(self.acts) if act.verb == verb), None)

    def _end_rest(self, at: Instant) -> None:
        if self._ended is not None:
            start, for_person = self._ended
            self.rests.append(Idle(start, at, for_person))
            self._ended = None

    def _end_pause(self, at: Instant) -> None:
        if self._paused is not None:
            self.rests.append(Idle(self._paused, at, for_person=True))
            self._paused = None

    def measure_task(self, task: TaskRow, now: Instant) -> Elapsed:
        """Return how long the task took from its submission to its end, and how long it waited for an operator until ``now``."""
        took = None if task.ended_at is None else self._between(task.submitted_at, task.ended_at).took
        return Elapsed(took, self._between(task.submitted_at, now).waited)

    def measure_step(self, step: StepRow, now: Instant) -> Elapsed:
        """Return how long the step took from its opening to its result, with waits between its attempts."""
        if step.finished_at is not None:
            return self._between(step.opened_at, step.finished_at)
        return Elapsed(None, self._between(step.opened_at, now).waited)

    def _between(self, start: Instant, end: Instant) -> Elapsed:
        rested, waited = 0.0, 0.0
        for rest in self._all_rests():
            until = end if rest.end is None else min(rest.end, end)
            seconds = max(seconds_between(max(rest.start, start), until), 0.0)
            rested += seconds
            waited += seconds if rest.for_person else 0.0
        return Elapsed(max(seconds_between(start, end) - rested, 0.0), waited)

    def _all_rests(self) -> list[Idle]:
        still = [] if self._ended is None else [Idle(self._ended[0], None, self._ended[1])]
        paused = [] if self._paused is None else [Idle(self._paused, None, for_person=True)]
        return [*self.rests, *still, *paused]


def may_have_waited(task: TaskRow) -> bool:
    """Returns True if the row alone does not show how long an ended task took: it was reopened, or took long enough."""
    if not isinstance(task.ended_at, int) or not isinstance(task.submitted_at, int):
        return False
    return task.incarnation != 1 or seconds_between(task.submitted_at, task.ended_at) >= SHORT_SECONDS
