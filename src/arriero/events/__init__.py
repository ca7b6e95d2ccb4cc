"""The events of a history: one class for each type, and how they become JSON and come back.

Readers that must know every event end their ``match`` with ``assert_never``, so the type checker names a reader that misses
one. A new event goes into one of the unions ``EventOf...`` and thereby into ``Event``.
"""

from collections.abc import Callable, Sequence
from types import UnionType
from typing import Any, get_args

import msgspec

from ..model import HistoryRow
from .base import UNREADABLE_EVENT, HistoryEvent, HistoryNames, UnreadableEvent, describe_event
from .convoy import EventOfConvoy, EventOfTurn
from .signal import EventOfSignal
from .step import EventOfStep
from .store import Erased, EventOfBreaker, EventOfSchedule, EventOfStore
from .task import EventOfPeople, EventOfTask

__all__ = [
    "ERASED",
    "TYPES",
    "UNREADABLE_EVENT",
    "Event",
    "EventOfBreaker",
    "EventOfConvoy",
    "EventOfPeople",
    "EventOfSchedule",
    "EventOfSignal",
    "EventOfStep",
    "EventOfStore",
    "EventOfTask",
    "EventOfTurn",
    "HistoryEvent",
    "HistoryNames",
    "UnreadableEvent",
    "decode_event_fields",
    "describe_event",
    "encode_events",
    "list_event_types",
    "read_events",
    "read_events_to_show",
]

Event = (
    EventOfTask
    | EventOfPeople
    | EventOfStep
    | EventOfTurn
    | EventOfConvoy
    | EventOfStore
    | EventOfBreaker
    | EventOfSchedule
    | EventOfSignal
)

_encode = msgspec.json.Encoder().encode
_read_all = msgspec.json.Decoder(list[Event]).decode
_read_fields = msgspec.json.Decoder(list[dict[str, Any]]).decode
_read_each = msgspec.json.Decoder(list[msgspec.Raw]).decode
_read_one: Callable[[msgspec.Raw], Event] = msgspec.json.Decoder(Event).decode


def list_event_types(union: UnionType) -> frozenset[str]:
    """List the types of the events in ``Event`` or one of ``EventOf...``, as they stand in the JSON."""
    return frozenset(str(kind.__struct_config__.tag) for kind in get_args(union))


TYPES = list_event_types(Event)


def encode_events(events: Sequence[Event]) -> str:
    """Encode one commit's events as the JSON text that is stored and hashed."""
    return _encode(events).decode()


ERASED = encode_events([Erased()])  # the events of a row of the store's own history that were removed


def read_events(text: str | bytes | msgspec.Raw) -> list[Event | UnreadableEvent]:
    """Read the events of one commit; each that cannot be read is an UnreadableEvent.

    Raises: msgspec.MsgspecError, UnicodeError - the text is not a JSON list of objects.
    """
    try:
        return list(_read_all(text))
    except (msgspec.MsgspecError, UnicodeError):
        pairs = zip(_read_each(text), _read_fields(text), strict=True)
        return [_read_or_keep(event, fields) for event, fields in pairs]


def _read_or_keep(event: msgspec.Raw, fields: dict[str, Any]) -> Event | UnreadableEvent:
    try:
        return _read_one(event)
    except msgspec.ValidationError as error:
        kind = str(fields.get("type", ""))
        return UnreadableEvent(kind, fields, str(error) if kind in TYPES else "")


def read_events_to_show(row: HistoryRow) -> list[Event | UnreadableEvent]:
    """Read the events of one commit to show them to operators; a single unreadable one if the row is damaged."""
    try:
        return read_events(row.events)
    except (msgspec.MsgspecError, UnicodeError):
        return [UnreadableEvent(fields["type"], fields) for fields in decode_event_fields(row)]


def decode_event_fields(row: HistoryRow) -> list[dict[str, Any]]:
    """Decode the events of one commit as plain values; a single ``unreadable`` one with the link if the row is damaged."""
    try:
        return _read_fields(row.events)
    except (msgspec.MsgspecError, UnicodeError):
        return [{"type": UNREADABLE_EVENT, "link": row.link}]
