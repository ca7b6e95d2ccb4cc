"""Events of the store's own history about one Agent, lease or schedule."""

from collections.abc import Callable, Iterable

from ..client.row_shapes import to_datetime
from ..events import Event, UnreadableEvent, read_events_to_show
from ..model import HistoryRow
from ..store.contract import StateStore
from .output import format_time

STORE_STREAM = 0  # of the history: what concerns no task
EVENTS_SHOWN_MAX = 10  # the last ones


async def load_store_stream(store: StateStore) -> list[HistoryRow]:
    """Load what the history says of no task. Raises StoreError."""
    return [row async for row in store.history(STORE_STREAM)]


def format_last_events(
    rows: Iterable[HistoryRow], describe: Callable[[Event | UnreadableEvent, str], str | None]
) -> tuple[str, ...]:
    """Format the last events of one thing, each with its time.

    Args:
        describe: an event and its actor in one sentence; None: it is about something else.
    """
    found = [
        f"{format_time(to_datetime(row.at))} {text}"
        for row in rows
        for event in read_events_to_show(row)
        if (text := describe(event, row.actor)) is not None
    ]
    return tuple(found[-EVENTS_SHOWN_MAX:])
