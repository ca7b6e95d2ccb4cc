"""The history of one task as a timeline: one line an event, in plain words, with steps named as people know them.

What only machines need (fences, hashes, keys, policies) is left out; ``arriero history --raw`` shows it. The sentence of an
event stands on its class in ``events``.
"""

from collections.abc import Iterable, Iterator

import msgspec

from ..events import Event, HistoryNames, UnreadableEvent, describe_event, read_events_to_show
from ..events.task import OperatorAction
from ..model import HistoryRow, Instant, seconds_between


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

    def list_entries(self, row: HistoryRow) -> Iterator[IncarnationStart | TimelineEntry]:
        """List the lines of one row; before them a section where an incarnation begins."""
        names = self._names
        names.actor = row.actor
        for event in read_events_to_show(row):
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
