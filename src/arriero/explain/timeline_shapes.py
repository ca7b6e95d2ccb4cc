"""Shapes of a task's timeline: rows with bars on one axis of time, and marks. Plain values that a terminal and a page draw."""

from enum import StrEnum

import msgspec

from ..model import Instant
from .past import TimelineEntry


class BarKind(StrEnum):
    """The kinds of bars. A renderer gives each its colour."""

    WAIT = "wait"  # for a Scheduler, an Agent, a breaker, a limit or the turn in a convoy
    DELAY = "delay"  # before the next attempt: the pause of a retry, a cool-off, a snooze
    RUN = "run"  # of the task: its code goes forward
    ATTEMPT = "attempt"  # of a step
    UNDO = "undo"  # of the task: it is being undone; of a compensation: an attempt
    SLEEP = "sleep"  # a timer
    SIGNAL = "signal"  # a wait for a signal, a request or a callback
    QUESTION = "question"  # a wait for the answer of an operator
    CHILD = "child"  # another task does the step
    OPERATOR = "operator"  # held or paused: an operator has to act
    DOUBT = "doubt"  # the step may have taken effect, and no result says so
    COPIED = "copied"  # of a fork: the result is that of another task
    MERGED = "merged"  # several earlier bars, of which there were too many
    UNKNOWN = "unknown"  # the history does not say; only the row is known


class BarOutcome(StrEnum):
    """The end of a bar."""

    OPEN = "open"  # it has not ended
    OK = "ok"
    FAILED = "failed"
    EXPIRED = "expired"  # no answer came in time
    LATE = "late"  # the answer came after its time, and was refused
    LOST = "lost"  # with its process
    RELEASED = "released"  # before its work began
    REVOKED = "revoked"  # an operator took it from its program
    WITHDRAWN = "withdrawn"
    NONE = "none"  # of a wait that is over


class MarkKind(StrEnum):
    """The kinds of marks."""

    BEGIN = "begin"  # the submission, a fork, another run
    OPERATOR = "operator"  # a verb
    APPROVAL = "approval"
    ALERT = "alert"
    SIGNAL = "signal"  # one was sent
    LOSS = "loss"  # of a process, or of the task's time
    NOTE = "note"  # a late answer, a patch, a reply, a limit that an operator changed
    END = "end"
    UNREADABLE = "unreadable"  # an event that this release cannot read


class TimelineBar(msgspec.Struct, frozen=True):
    """A time in which one thing was so.

    Args:
        start, end: by the store's clock; ``end`` None: it has not ended. ``start`` is never after ``end``.
        label: in words, like ``attempt 2`` or ``waits for Agent payments``.
        attempt: number of the attempt; 0: it is none.
        outcome: how it ended.
        count: bars that it stands for; more than 1 only of those merged.
        until: when it should end: the time of an attempt, of a delay or of a timer; None: not said.
    """

    kind: BarKind
    start: Instant
    end: Instant | None
    label: str
    attempt: int = 0
    outcome: BarOutcome = BarOutcome.NONE
    count: int = 1
    until: Instant | None = None


class TimelineRow(msgspec.Struct, frozen=True):
    """The task itself, or one of its steps.

    Args:
        ordinal: of the step in its task; 0: the task.
        label: for operators: ``charge``, ``undo of charge``, ``signal approved``.
        kind: ``task``, ``step``, ``compensation``, ``timer``, ``child``, or what a wait is for, like ``signal`` or ``question``.
        state: the word of the row, of the task or of the step.
        agent: the Agent that does it; empty: none does.
        attempts: how many were begun.
        in_doubt: it may have taken effect, and neither a result nor its undo has settled that.
        past: it belongs to a life that was undone before the task ran again.
        undoes: of a compensation: ordinal of the step that it undoes.
        bars: in their order; no two overlap.
        doubts: bars of the kind doubt, which lie over the others.
    """

    ordinal: int
    label: str
    kind: str
    state: str
    agent: str = ""
    attempts: int = 0
    in_doubt: bool = False
    past: bool = False
    undoes: int | None = None
    bars: tuple[TimelineBar, ...] = ()
    doubts: tuple[TimelineBar, ...] = ()


class TimelineMark(msgspec.Struct, frozen=True):
    """A moment. ``ordinal``: of its row, 0 for the task; ``says``: the event in words; ``by``, ``reason``: of an operator."""

    at: Instant
    kind: MarkKind
    says: str
    ordinal: int = 0
    by: str = ""
    reason: str = ""


class TaskTimeline(msgspec.Struct, frozen=True):
    """The timeline of a task as it stood when it was read.

    Args:
        start, end: of the axis. All bars and marks lie between them. ``end`` is ``now`` for a task that has not ended.
        now: the store's clock when the task was read.
        rows: the task, then its steps in the order of their opening.
        rows_left_out, marks_left_out: how many more there are; the open, the doubtful and the newest ones are shown.
        last: the last events in words, the newest last.
        events: how many events its history has; ``unreadable``: those that this release cannot read.
    """

    no: int
    id: str
    workflow: str
    state: str
    incarnation: int
    is_open: bool
    start: Instant
    end: Instant
    now: Instant
    rows: tuple[TimelineRow, ...]
    rows_left_out: int = 0
    marks: tuple[TimelineMark, ...] = ()
    marks_left_out: int = 0
    last: tuple[TimelineEntry, ...] = ()
    events: int = 0
    unreadable: int = 0
