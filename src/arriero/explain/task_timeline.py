"""The timeline of a task, folded from its history: rows with bars by the store's clock, marks, and the last events in words.

It reads what it can: an event that this release cannot read is marked, and a step whose history is missing gets one bar from its row.
"""

from collections import deque
from collections.abc import Iterable

from msgspec import UNSET
from msgspec.structs import replace

from ..events import Event, UnreadableEvent, read_events_to_show
from ..events.convoy import (
    ConvoyBatched,
    ConvoyContinued,
    ConvoyMessageEnded,
    ConvoyOpened,
    ConvoyPlaced,
    ConvoyReturned,
)
from ..events.signal import SignalAnswered, SignalSent, SignalSetAside, SignalTaken
from ..events.step import (
    AttemptExtended,
    AttemptReleased,
    AttemptRevoked,
    AttemptTried,
    CompensationDispatched,
    CompensationFailedEvent,
    CompensationReached,
    CompensationRecorded,
    RecoverApplied,
    StepAdjusted,
    StepAnswered,
    StepDispatched,
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
    StepCopied,
    TaskAssigned,
    TaskClaimed,
    TaskContinued,
    TaskExpired,
    TaskForked,
    TaskLost,
    TaskReleased,
    TaskSubmitted,
    TaskTerminal,
    UndoBegun,
    read_state_word,
)
from ..model import STEP_OPEN, TASK_OPEN, HistoryRow, Instant, Loaded, StepKind, StepRow, StepState, TaskState, Verb
from ..model.signals import TIMER_NAME, is_note
from .past import IncarnationStart, Timeline, TimelineEntry
from .timeline_shapes import (
    BarKind,
    BarOutcome,
    MarkKind,
    TaskTimeline,
    TimelineBar,
    TimelineMark,
    TimelineRow,
)
from .timeline_tracks import RowTrack

ROWS_MAX = 200
MARKS_MAX = 200
LAST_MAX = 50
_HELD_TAIL = 0.05  # of the axis, after the end of a held task: its wait for an operator is to be seen
_DELAYS = {"retry": "pause before a retry", "cool_off": "cool-off"}
_MARKED: dict[type, MarkKind] = {
    TaskSubmitted: MarkKind.BEGIN,
    TaskForked: MarkKind.BEGIN,
    TaskContinued: MarkKind.END,
    TaskTerminal: MarkKind.END,
    OperatorAction: MarkKind.OPERATOR,
    TaskAssigned: MarkKind.OPERATOR,
    OperatorApproval: MarkKind.APPROVAL,
    AlertOpened: MarkKind.ALERT,
    AlertClosed: MarkKind.ALERT,
    SignalSent: MarkKind.SIGNAL,
    SignalSetAside: MarkKind.NOTE,
    SignalAnswered: MarkKind.NOTE,
    StepAdjusted: MarkKind.NOTE,
    TaskLost: MarkKind.LOSS,
    StepLost: MarkKind.LOSS,
    TaskExpired: MarkKind.LOSS,
    UnreadableEvent: MarkKind.UNREADABLE,
}
_STEP_OUTCOMES = {
    StepState.COMPLETED: BarOutcome.OK,
    StepState.FAILED: BarOutcome.FAILED,
    StepState.WITHDRAWN: BarOutcome.WITHDRAWN,
}


class TimelineBuilder:
    """Folds the history of one task, row by row in commit order; ``build`` may be called after each.

    Args:
        marks_max, last_max: how many marks, and how many events in words, are kept; the newest ones.
    """

    def __init__(self, *, marks_max: int = MARKS_MAX, last_max: int = LAST_MAX) -> None:
        self.link = 0  # of the last row of the history that was added
        self._task = RowTrack(0, "task", "")
        self._steps: dict[int, RowTrack] = {}
        self._marks: deque[TimelineMark] = deque(maxlen=marks_max)
        self._mark_count = 0
        self._last: deque[TimelineEntry] = deque(maxlen=last_max)
        self._timeline = Timeline()
        self._events = 0
        self._unreadable = 0
        self._first_at: Instant | None = None
        self._last_at = Instant(0)
        self._is_paused = False

    def add(self, row: HistoryRow) -> None:
        """Add the next row of the history."""
        self.link, at = row.link, row.at
        if self._first_at is None:
            self._first_at = at
        self._last_at = max(self._last_at, at)
        events = read_events_to_show(row)
        told = [one for one in self._timeline.list_entries(row, events) if not isinstance(one, IncarnationStart)]
        self._last.extend(told)
        for event, entry in zip(events, told, strict=True):
            self._events += 1
            self._mark(event, entry)
            if not self._add_of_task(event, at):
                self._add_of_step(event, at)

    # --- marks
    def _mark(self, event: Event | UnreadableEvent, entry: TimelineEntry) -> None:
        kind = _MARKED.get(type(event))
        if isinstance(event, UnreadableEvent):
            self._unreadable += 1
        if isinstance(event, StepReport) and event.verdict != "applied":
            kind = MarkKind.NOTE
        if isinstance(event, StepOpened) and _is_note(event):
            kind = MarkKind.NOTE
        if kind is not None:
            ordinal = getattr(event, "step", 0)
            by, reason = getattr(event, "by", ""), getattr(event, "reason", "")
            self._mark_count += 1
            self._marks.append(TimelineMark(entry.at, kind, entry.says, ordinal, by, reason))

    # --- the row of the task
    def _add_of_task(self, event: Event | UnreadableEvent, at: Instant) -> bool:
        """Add an event to the row of the task. Returns: False - it is an event of a step."""
        track = self._task.track
        match event:
            case TaskSubmitted(not_before=start):
                self._is_paused = event.paused
                self._wait(at, "waits for a Scheduler", start)
            case ConvoyPlaced() | ConvoyReturned():
                self._wait(at, "waits for its turn in the convoy")
            case ConvoyOpened(not_before=start):
                self._wait(at, "waits for a Scheduler", start)
            case ConvoyContinued():
                self._wait(at, "waits for a Scheduler")
            case ConvoyBatched(messages=None, batch=batch):
                self._wait(at, f"its message is in the batch of task number {batch}")
            case ConvoyMessageEnded(state=word):
                self._task.finish(at, read_state_word(word), BarOutcome.NONE)
            case TaskClaimed(state=state):
                self._drive(at, undoes=state == TaskState.COMPENSATING)
            case TaskReleased(why="workflow_paused"):
                self._wait(at, "its workflow is paused")
            case UndoBegun():
                self._drive(at, undoes=True)
            case TaskTerminal(state=word):
                state = read_state_word(word)
                self._task.finish(at, state, BarOutcome.OK if state == TaskState.PROCESSED else BarOutcome.NONE)
                self._is_paused = False
                if state == TaskState.HELD:
                    track.begin(BarKind.OPERATOR, at, "held: waits for an operator")
            case TaskContinued():
                self._task.finish(at, self._task.state, BarOutcome.OK)
            case OperatorAction():
                self._operate(event, at)
            case _:
                return False
        return True

    def _wait(self, at: Instant, label: str, start: Instant | None = None) -> None:
        if self._is_paused:
            return
        if start is not None and start > at:
            self._task.track.begin(BarKind.DELAY, at, "not to begin before its time", until=start)
        else:
            self._task.track.begin(BarKind.WAIT, at, label)

    def _drive(self, at: Instant, *, undoes: bool) -> None:
        kind = BarKind.UNDO if undoes else BarKind.RUN
        self._task.state = "compensating" if undoes else "processing"
        if self._task.track.open_kind is not kind and not self._is_paused:
            self._task.track.begin(kind, at, "is being undone" if undoes else "runs")

    def _operate(self, event: OperatorAction, at: Instant) -> None:
        before, after = read_state_word(event.before), read_state_word(event.after)
        if event.paused is not UNSET:
            self._is_paused = event.paused
        elif event.verb in (Verb.COMPENSATE, Verb.CANCEL, Verb.RESUBMIT):
            self._is_paused = False
        self._task.state = after
        if self._is_paused:
            if self._task.track.open_kind is not BarKind.OPERATOR:
                self._task.track.begin(BarKind.OPERATOR, at, "paused: waits for an operator")
        elif before != after or event.paused is not UNSET:
            if after in (TaskState.PROCESSING, TaskState.COMPENSATING):
                self._drive(at, undoes=after == TaskState.COMPENSATING)
            elif after == TaskState.PENDING:
                self._wait(at, "waits for a Scheduler", event.not_before)
        elif event.until is not UNSET:
            self._task.track.begin(BarKind.DELAY, at, "snoozed", until=event.until)

    # --- the rows of the steps
    def _add_of_step(self, event: Event | UnreadableEvent, at: Instant) -> None:
        if isinstance(event, StepOpened):
            self._open(event, at)
            return
        row = self._steps.get(getattr(event, "step", 0))
        if row is not None:
            _add_attempt(event, row, at)
            _add_end(event, row, at)
        if isinstance(event, CompensationRecorded) and row is not None and row.undoes is not None:
            undone = self._steps.get(row.undoes)
            if undone is not None:  # whatever it did, it no longer has an effect
                undone.set_doubt(at, in_doubt=False)

    def _open(self, event: StepOpened, at: Instant) -> None:
        if _is_note(event):
            return
        label = event.name if event.key == "#1" else f"{event.name}[{event.key}]"
        kind, agent = event.kind, event.agent
        if kind == "timer" and event.name != TIMER_NAME:
            kind, _, _ = event.name.partition(":")
            label = label.replace(":", " ", 1)
        elif kind == "compensation":
            label = f"undo of {label}"
        row = self._steps[event.step] = RowTrack(event.step, kind, label, agent, event.undoes)
        if isinstance(event, StepCopied):
            row.track.begin(BarKind.COPIED, at, f"copied from task number {event.from_task}")
            row.finish(at, "failed" if event.failed else "completed", BarOutcome.NONE)
        elif event.planned:
            row.state = "planned"
        else:
            row.wait(at, event.fire_at)

    # --- the timeline
    def build(self, loaded: Loaded, now: Instant, *, rows_max: int = ROWS_MAX) -> TaskTimeline:
        """Build the timeline as it stands.

        Args:
            loaded: the task and its steps as they were read, with readable values (``store.readable.legible_task``).
            now: the store's clock.
            rows_max: how many rows of steps are kept; those that are open or in doubt, and then the newest.
        """
        task, known = loaded.task, {step.ordinal: step for step in loaded.steps}
        now = max(now, self._last_at)
        is_open = task.state in TASK_OPEN and task.next_no is None
        start = min(task.submitted_at, self._first_at if self._first_at is not None else task.submitted_at)
        end = now if is_open else max(task.ended_at or now, self._last_at, start)
        if task.state is TaskState.HELD:
            end = Instant(min(max(now, end), end + max(round((end - start) * _HELD_TAIL), 1)))
        chosen = _choose(set(self._steps) | set(known), known, rows_max)
        rows = [self._build_row(ordinal, known.get(ordinal), task.past_count, now) for ordinal in chosen]
        self._task.label = task.task_id
        first = self._task.build(now, state=str(task.state), past=False, in_doubt=False)
        return TaskTimeline(
            task.task_no,
            task.task_id,
            task.workflow,
            str(task.state),
            task.incarnation,
            is_open,
            start,
            max(end, start),
            now,
            (_fill(first, task.submitted_at, task.ended_at), *(row for row in rows if row is not None)),
            len(set(self._steps) | set(known)) - len(chosen),
            tuple(self._marks),
            self._mark_count - len(self._marks),
            tuple(self._last),
            self._events,
            self._unreadable,
        )

    def _build_row(self, ordinal: int, step: StepRow | None, past_count: int, now: Instant) -> TimelineRow | None:
        past = ordinal <= past_count
        track = self._steps.get(ordinal)
        if step is None:
            return None if track is None else track.build(now, state=track.state, past=past, in_doubt=False)
        if track is None:  # its opening cannot be read
            if is_note(step.kind, step.name):
                return None
            row = TimelineRow(
                ordinal, step.label, str(step.kind), str(step.state), step.agent, past=past, in_doubt=step.in_doubt
            )
            return _fill(row, step.opened_at, step.finished_at)
        row = track.build(now, state=str(step.state), past=past, in_doubt=step.in_doubt)
        if row.doubts and row.doubts[-1].end is not None:  # of a step that is undone the stored row keeps its doubt
            row = replace(row, in_doubt=False)
        if step.state in _STEP_OUTCOMES and row.bars and row.bars[-1].end is None:  # its end cannot be read
            last = row.bars[-1]
            end = max(step.finished_at or now, last.start)
            closed = replace(last, end=end, outcome=_STEP_OUTCOMES[step.state])
            return replace(row, bars=(*row.bars[:-1], closed))
        return row


def build_timeline(
    rows: Iterable[HistoryRow], loaded: Loaded, now: Instant, *, rows_max: int = ROWS_MAX
) -> TaskTimeline:
    """Build the timeline of a task from its whole history, in commit order from the first; see ``TimelineBuilder.build``."""
    builder = TimelineBuilder()
    for row in rows:
        builder.add(row)
    return builder.build(loaded, now, rows_max=rows_max)


def _is_note(event: StepOpened) -> bool:
    return event.kind == StepKind.TIMER and is_note(StepKind.TIMER, event.name)


def _add_attempt(event: Event | UnreadableEvent, row: RowTrack, at: Instant) -> None:
    """Add an event of an attempt: it begins, it is over, or it is known that it may have had an effect."""
    match event:
        case StepDispatched() | CompensationDispatched():
            row.agent = event.agent or row.agent
            row.attempt(at, event.attempt, event.complete_by)
        case AttemptExtended(complete_by=until):
            row.track.extend(until)
        case AttemptTried(in_doubt=True):
            row.set_doubt(at, in_doubt=True)
        case StepReport(verdict="late", attempt=number):
            row.track.change_last(0 if number is UNSET else number, BarOutcome.LATE)
        case StepExpired(why=why):
            row.track.end(at, BarOutcome.NONE if why == "starved" else BarOutcome.EXPIRED)
        case StepLost() | AttemptRevoked():
            row.track.end(at, BarOutcome.LOST if isinstance(event, StepLost) else BarOutcome.REVOKED)
            row.set_doubt(at, in_doubt=True)
            row.state = "pending"
            row.wait(at)
        case AttemptReleased():
            row.track.end(at, BarOutcome.RELEASED)
            row.state = "pending"
            row.wait(at)
        case RecoverApplied():
            row.track.end(at, BarOutcome.FAILED)
            row.set_doubt(at, in_doubt=event.in_doubt)
            if event.what in _DELAYS:
                row.state = "pending"
                label = _DELAYS[event.what] if event.is_charged else "its Agent's service is down"
                row.track.begin(BarKind.DELAY, at, label, until=event.not_before)


def _add_end(event: Event | UnreadableEvent, row: RowTrack, at: Instant) -> None:
    """Add an event that ends a step, or opens it again."""
    match event:
        case StepRecorded() | CompensationRecorded() | SignalTaken():
            row.finish(at, "completed", BarOutcome.OK)
            row.set_doubt(at, in_doubt=False)
        case TimerFired():
            row.finish(at, "completed", BarOutcome.OK if row.kind == "timer" else BarOutcome.EXPIRED)
        case StepFailedEvent(in_doubt=in_doubt) | CompensationFailedEvent(in_doubt=in_doubt):
            row.finish(at, "failed", BarOutcome.FAILED)
            row.set_doubt(at, in_doubt=in_doubt)
        case StepWithdrawn(in_doubt=in_doubt):
            row.finish(at, "withdrawn", BarOutcome.WITHDRAWN)
            row.set_doubt(at, in_doubt=in_doubt)
        case StepParked():
            row.finish(at, "pending", BarOutcome.NONE)
        case StepAnswered(happened=happened):
            if happened:
                row.finish(at, "completed", BarOutcome.OK)
            row.set_doubt(at, in_doubt=False)
        case StepReopened() | StepSetBack() | CompensationReached():
            row.state = "pending"
            row.wait(at)


def _choose(ordinals: set[int], known: dict[int, StepRow], rows_max: int) -> list[int]:
    """Choose the steps that are shown, in their order: the open and the doubtful ones first, then the newest."""
    if len(ordinals) <= rows_max:
        return sorted(ordinals)

    def rank(ordinal: int) -> tuple[bool, int]:
        step = known.get(ordinal)
        return (step is not None and (step.state in STEP_OPEN or step.in_doubt), ordinal)

    return sorted(sorted(ordinals, key=rank, reverse=True)[:rows_max])


def _fill(row: TimelineRow, start: Instant, end: Instant | None) -> TimelineRow:
    """Give a row without bars one from its beginning to its end, of which no more is known."""
    if row.bars:
        return row
    outcome = BarOutcome.OPEN if end is None else BarOutcome.NONE
    bar = TimelineBar(
        BarKind.UNKNOWN, start, None if end is None else max(start, end), "not in the history", 0, outcome
    )
    return replace(row, bars=(bar,))
