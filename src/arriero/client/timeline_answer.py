"""The timeline of a task as programs read it as JSON: instants are datetimes."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from ..explain.past import TimelineEntry
from ..explain.timeline_shapes import TimelineBar, TimelineMark, TimelineRow
from ..model import INSTANT_END, Instant
from ..model.instants import as_datetime
from .timeline import WatchedTask


class TimelineBarAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which one thing was so. ``end`` null: it has not ended. ``until``: when it should end, if that is said."""

    kind: str
    start: datetime
    end: datetime | None
    label: str
    outcome: str
    attempt: int
    count: int
    until: datetime | None


class TimelineRowAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The task itself (``ordinal`` 0) or one of its steps. ``doubts`` lie over ``bars``."""

    ordinal: int
    label: str
    kind: str
    state: str
    agent: str
    attempts: int
    in_doubt: bool
    past: bool
    undoes: int | None
    bars: tuple[TimelineBarAnswer, ...]
    doubts: tuple[TimelineBarAnswer, ...]


class TimelineMarkAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A moment of a row. ``by``, ``reason``: of an operator."""

    at: datetime
    kind: str
    says: str
    ordinal: int
    by: str
    reason: str


class TimelineEventAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An event in words. ``after_seconds``: since its incarnation began."""

    at: datetime
    after_seconds: float
    says: str
    actor: str


class TimelineAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A task and its timeline as of ``now``, by the store's clock.

    Attributes:
        start, end: of the axis of time.
        waiting_for: what moves it next, in words; empty: nothing does. ``reason``: why it is undone or held.
        rows_left_out, marks_left_out: how many more there are.
        last: the last events in words, the newest last. ``events``: how many there are in all.
        unreadable: what this release cannot read of it.
    """

    no: int
    id: str
    workflow: str
    state: str
    incarnation: int
    is_open: bool
    paused: bool
    now: datetime
    start: datetime
    end: datetime
    complete_by: datetime | None
    waiting_for: str
    reason: str
    rows: tuple[TimelineRowAnswer, ...]
    rows_left_out: int
    marks: tuple[TimelineMarkAnswer, ...]
    marks_left_out: int
    last: tuple[TimelineEventAnswer, ...]
    events: int
    unreadable: tuple[str, ...]


def build_timeline_answer(watched: WatchedTask) -> TimelineAnswer:
    """Build the answer for programs from what was read."""
    timeline = watched.timeline
    unreadable = (f"{timeline.unreadable} of its events",) if timeline.unreadable else ()
    return TimelineAnswer(
        no=timeline.no,
        id=timeline.id,
        workflow=timeline.workflow,
        state=timeline.state,
        incarnation=timeline.incarnation,
        is_open=timeline.is_open,
        paused=watched.paused,
        now=_show(timeline.now),
        start=_show(timeline.start),
        end=_show(timeline.end),
        complete_by=None if watched.complete_by is None else _show(watched.complete_by),
        waiting_for=watched.waiting_for,
        reason=watched.reason,
        rows=tuple(map(_build_row, timeline.rows)),
        rows_left_out=timeline.rows_left_out,
        marks=tuple(map(_build_mark, timeline.marks)),
        marks_left_out=timeline.marks_left_out,
        last=tuple(map(build_event_answer, timeline.last)),
        events=timeline.events,
        unreadable=(*watched.unreadable, *unreadable),
    )


def _show(instant: Instant) -> datetime:
    """An instant as a datetime; one outside of the calendar, as in a damaged event, as the nearest one inside."""
    return as_datetime(Instant(min(max(instant, 0), INSTANT_END - 1)))


def _build_row(row: TimelineRow) -> TimelineRowAnswer:
    return TimelineRowAnswer(
        ordinal=row.ordinal,
        label=row.label,
        kind=row.kind,
        state=row.state,
        agent=row.agent,
        attempts=row.attempts,
        in_doubt=row.in_doubt,
        past=row.past,
        undoes=row.undoes,
        bars=_build_bars(row.bars),
        doubts=_build_bars(row.doubts),
    )


def _build_bars(bars: Iterable[TimelineBar]) -> tuple[TimelineBarAnswer, ...]:
    return tuple(
        TimelineBarAnswer(
            kind=bar.kind.value,
            start=_show(bar.start),
            end=None if bar.end is None else _show(bar.end),
            label=bar.label,
            outcome=bar.outcome.value,
            attempt=bar.attempt,
            count=bar.count,
            until=None if bar.until is None else _show(bar.until),
        )
        for bar in bars
    )


def _build_mark(mark: TimelineMark) -> TimelineMarkAnswer:
    return TimelineMarkAnswer(
        at=_show(mark.at),
        kind=mark.kind.value,
        says=mark.says,
        ordinal=mark.ordinal,
        by=mark.by,
        reason=mark.reason,
    )


def build_event_answer(entry: TimelineEntry) -> TimelineEventAnswer:
    """Build the answer for one event."""
    return TimelineEventAnswer(at=_show(entry.at), after_seconds=entry.after, says=entry.says, actor=entry.actor)
