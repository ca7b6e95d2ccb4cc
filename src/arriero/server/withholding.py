"""Withholding of payloads and reasons: the one place through which the body of each answer passes.

``PAYLOADS`` and ``REASONS`` say which members of which types hold payloads of users or reasons of failures. An event of a history
or of a reply queue is plain JSON, of which ``EVENT_PAYLOADS`` and ``EVENT_REASONS`` name the members. A new member of type Raw, Any
or dict must stand here or among those that hold neither: a test compares.
"""

import functools
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar, get_args

import msgspec

from ..client.agents import AgentView
from ..client.convoy import ConvoyView
from ..client.payload_record import ShownByHand, ShownLateAnswer, ShownVersion
from ..client.schedules import ScheduleView
from ..client.task_explanation import ShownReason, ShownResult
from ..client.task_shapes import ShownStep, ShownTask, StandingTask
from ..failures import StepFailure
from .answers import EndAnswer, ExplanationAnswer
from .scopes import may_read_payloads, may_read_reasons

T = TypeVar("T")

PAYLOADS: dict[type[msgspec.Struct], frozenset[str]] = {
    ShownTask: frozenset({"arguments", "output", "record"}),
    ShownStep: frozenset({"arguments", "asked", "result", "checkpoint"}),
    ShownVersion: frozenset({"arguments"}),
    ShownByHand: frozenset({"value"}),
    ShownLateAnswer: frozenset({"answer"}),
    ShownReason: frozenset({"request"}),
    ShownResult: frozenset({"result"}),
    StepFailure: frozenset({"details"}),
    EndAnswer: frozenset({"output"}),
    ExplanationAnswer: frozenset({"results", "output"}),
    ScheduleView: frozenset({"arguments"}),
    ConvoyView: frozenset({"value"}),
}
REASONS: dict[type[msgspec.Struct], frozenset[str]] = {
    EndAnswer: frozenset({"reason"}),
    StandingTask: frozenset({"reason"}),
    AgentView: frozenset({"reason"}),
    ConvoyView: frozenset({"set_aside_tasks"}),
}
EVENTS = frozenset({"event", "events"})  # members that hold events as plain JSON
# Hashes of payloads are withheld like payloads: whoever knows what a payload may be could try all of them.
EVENT_PAYLOADS = frozenset(
    {"arguments", "body", "details", "limits", "output", "replaces", "request", "result", "value"}
)
EVENT_REASONS = frozenset({"reason"})
_NOTHING: frozenset[str] = frozenset()
_RAW_NULL = msgspec.Raw(b"null")


def withhold(value: T, held: AbstractSet[str]) -> T:
    """Return an answer without what the holder of these scopes may not read; the same value if that is nothing."""
    withheld = (not may_read_payloads(held), not may_read_reasons(held))
    shown: T = _withhold(value, withheld) if any(withheld) else value
    return shown


def _withhold(value: Any, withheld: tuple[bool, bool]) -> Any:
    if isinstance(value, msgspec.Struct):
        return _withhold_of_struct(value, withheld)
    if type(value) in (tuple, list):
        return type(value)(_withhold(one, withheld) for one in value)
    if type(value) is dict:
        return {name: _withhold(one, withheld) for name, one in value.items()}
    return value


def _withhold_of_struct(value: msgspec.Struct, withheld: tuple[bool, bool]) -> msgspec.Struct:
    substitutes = _list_substitutes(type(value), withheld)
    changed = {}
    for name in value.__struct_fields__:
        before = getattr(value, name)
        if name in substitutes:
            after = substitutes[name] if before is not None else None
        elif name in EVENTS:
            after = withhold_of_events(before, withheld)
        else:
            after = _withhold(before, withheld)
        if after is not before:
            changed[name] = after
    return msgspec.structs.replace(value, **changed) if changed else value


def withhold_of_events(value: Any, withheld: tuple[bool, bool]) -> Any:
    """Return events of a history or a reply queue without what is withheld."""
    payloads, reasons = withheld
    names = (EVENT_PAYLOADS if payloads else _NOTHING) | (EVENT_REASONS if reasons else _NOTHING)
    return _drop_members(value, names)


def _drop_members(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_drop_members(one, names) for one in value)
    if isinstance(value, dict):
        return {name: _drop_members(one, names) for name, one in value.items() if name not in names}
    return value


@functools.cache
def _list_substitutes(of: type[msgspec.Struct], withheld: tuple[bool, bool]) -> dict[str, Any]:
    """List the members of a type that are withheld, each with the value that stands in its place."""
    names = {
        name
        for table, is_withheld in zip((PAYLOADS, REASONS), withheld, strict=True)
        if is_withheld
        for name in list_members(table, of)
    }
    return {field.name: _choose_substitute(field) for field in msgspec.structs.fields(of) if field.name in names}


def list_members(table: dict[type[msgspec.Struct], frozenset[str]], of: type) -> Iterable[str]:
    """List the members that a table names of a type, with those of the types that it is made of."""
    return (name for one in of.__mro__ for name in table.get(one, ()))


def _choose_substitute(field: msgspec.structs.FieldInfo) -> Any:
    """Choose what stands for a member that is withheld: it is left out if that may be, else it is empty."""
    if field.type is Any:
        return field.default
    parts = get_args(field.type) or (field.type,)
    if msgspec.UnsetType in parts:
        return msgspec.UNSET
    if msgspec.Raw in parts:
        return _RAW_NULL
    return "" if field.type is str else ()
