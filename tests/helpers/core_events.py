"""Events that tests write by hand."""

from collections.abc import Iterable
from typing import Any, get_args

import msgspec

from arriero.events import (
    Event,
    EventOfPeople,
    EventOfSignal,
    EventOfStep,
    EventOfTask,
    EventOfTurn,
    encode_events,
    list_event_types,
)
from arriero.events.base import Hash

OF_TASKS = list_event_types(EventOfTask | EventOfStep | EventOfPeople | EventOfSignal)
OF_TASK_STREAMS = OF_TASKS | list_event_types(EventOfTurn)  # all that stands in the history of a task
_CLASSES = {kind.__struct_config__.tag: kind for kind in get_args(Event)}
_FILLERS: dict[Any, Any] = {str: "", bool: False, Hash: ""}


def whole(event: dict[str, Any]) -> dict[str, Any]:
    """The event with every field that a release would write; those that the test does not name say nothing of interest."""
    missing = [
        field for field in msgspec.structs.fields(_CLASSES[event["type"]]) if field.required and field.name not in event
    ]
    return event | {field.encode_name: _FILLERS.get(field.type, 1) for field in missing}


def as_plain(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Events as they stand in the JSON."""
    found: list[dict[str, Any]] = msgspec.json.decode(encode_events(list(events)))
    return found
