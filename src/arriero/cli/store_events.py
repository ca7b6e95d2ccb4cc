"""Events of the store's own history about one Agent, lease or schedule."""

from collections.abc import Callable, Iterable

from ..client.row_shapes import to_datetime
from ..events import Event, HistoryNames, UnreadableEvent, describe_event, read_events_to_show
from ..model import HistoryRow
from ..store.state_store import StateStore
from .output import format_time

STORE_STREAM = 0  # of the history: what concerns no task
EVENTS_SHOWN_MAX = 10  # the last ones


async def load_store_stream(store: StateStore) -> list[HistoryRow]:
    """Load what the history says of no task. Raises StoreError."""
    return [row async for row in store.history(STORE_STREAM)]


def format_last_events(
    rows: Iterable[HistoryRow], is_meant: Callable[[Event | UnreadableEvent], bool]
) -> tuple[str, ...]:
    """Format the last events of one thing, each with its time.

    Args:
        is_meant: whether an event is about that thing.
    """
    found = [
        f"{format_time(to_datetime(row.at))} {describe_event(event, HistoryNames(row.actor))}"
        for row in rows
        for event in read_events_to_show(row)
        if is_meant(event)
    ]
    return tuple(found[-EVENTS_SHOWN_MAX:])
