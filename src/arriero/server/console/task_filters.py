"""The filter of a list of tasks as the address of a page has it, with durations and instants as operators type them."""

import inspect
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, get_origin
from urllib.parse import parse_qsl

import msgspec
from fastapi import Depends, Query

from ...client.tasks import TaskSelector
from ...errors import InvalidInput
from ...model.tags import TAGS_MAX, VALUE_LENGTH_MAX, gather_tags, parse_tag
from ...operations.declaration import split_annotation
from ...text.durations import read_duration, read_duration_or_instant
from ..operation_routes import DURATION_OR_INSTANT, TEXT_LENGTH_MAX
from ..routing import REPEATED
from .forms import Field, Kind

YES_OR_NO: Mapping[str, bool] = {"true": True, "yes": True, "false": False, "no": False}
COMMON = (
    "state",
    "workflow",
    "tags",
    "since",
    "older_than",
    "code",
    "text",
)  # fields that the form of a list shows; the others on demand
FIELDS = {field.name: field for field in msgspec.structs.fields(TaskSelector)}
PLACEHOLDERS = {"tags": "NAME=VALUE", "since": "2h, or 2026-11-20 14:15", "older_than": "15m, or 2026-11-20 14:15"}
LABELS = {
    "tags": "Tag",
    "since": "Submitted since",
    "older_than": "Submitted before",
    "code": "Failure code",
    "text": "Failure text",
}


class FilterField(NamedTuple):
    """A field of the form of a filter. ``name``: in the address."""

    name: str
    field: Field
    placeholder: str


class Chip(NamedTuple):
    """A part of a filter, with the parameters of the address without it."""

    label: str
    value: str
    others: dict[str, Any]


class TypedFilter(NamedTuple):
    """A filter of tasks as it was typed. ``given``: by the names in an address; those of tags are lists."""

    given: dict[str, Any]

    def read(self) -> TaskSelector:
        """Read it. Raises InvalidInput - names what is not a valid value, and how to write one."""
        values = {_name_field(name): _read_value(_name_field(name), text) for name, text in self.given.items() if text}
        return TaskSelector(**values).check()

    def list_fields(self) -> list[FilterField]:
        """List the fields of a form for it: the common ones first."""
        names = [*COMMON, *(name for name in FIELDS if name not in COMMON)]
        return [self._build_field(name) for name in names]

    def _build_field(self, name: str) -> FilterField:
        kind, meta = split_annotation(FIELDS[name].type)
        words = ("true", "false") if kind is bool else tuple((meta.extra or {}).get("words", ()))
        in_address = REPEATED if name == "tags" else name
        value = self.given.get(in_address) or ""
        typed: Kind = "choice" if words else "text"
        field = Field(
            name=name,
            label=LABELS.get(name, name.replace("_", " ").capitalize()),
            kind=typed,
            help=meta.description or "",
            choices=words,
            value=" ".join(value) if isinstance(value, list) else value,
        )
        return FilterField(in_address, field, PLACEHOLDERS.get(name, ""))

    def list_chips(self) -> list[Chip]:
        """List its parts, each with what is left without it."""
        found = []
        for name, value in self.given.items():
            label = LABELS.get(_name_field(name), name.replace("_", " ").capitalize())
            for one in value if isinstance(value, list) else [value]:
                rest = [other for other in value if other != one] if isinstance(value, list) else None
                found.append(Chip(label, one, {**self.given, name: rest}))
        return found


def _name_field(name: str) -> str:
    return "tags" if name == REPEATED else name


def _read_value(name: str, given: Any) -> Any:
    kind, _ = split_annotation(FIELDS[name].type)
    if get_origin(kind) is dict:
        return gather_tags(map(parse_tag, given))
    if kind is bool:
        if given.lower() not in YES_OR_NO:
            raise InvalidInput(f"{name} is {given!r}; write true or false")
        return YES_OR_NO[given.lower()]
    try:
        if kind is float:
            return read_duration(given)
        return read_duration_or_instant(given) if kind == DURATION_OR_INSTANT else given
    except InvalidInput as error:
        raise InvalidInput(f"{LABELS.get(name, name.replace('_', ' '))}: {error}") from None


def parse_filter(query: str) -> TypedFilter:
    """Parse a filter out of a query, as a form carries it. Other parameters of the query are left out."""
    given: dict[str, Any] = {}
    for name, value in parse_qsl(query):
        if name == REPEATED:
            given.setdefault(name, []).append(value)
        elif name in FIELDS and name != "tags":
            given[name] = value
    return TypedFilter(given)


class FilterReader:
    """Reads a filter from the query of a page, whatever is typed; a dependency for FastAPI, which calls it by its signature."""

    def __init__(self) -> None:
        one = Annotated[str | None, Query(max_length=TEXT_LENGTH_MAX)]
        each = Annotated[str, Query(max_length=TEXT_LENGTH_MAX + VALUE_LENGTH_MAX)]
        tags = Annotated[list[each] | None, Query(max_length=TAGS_MAX)]
        names = [name for name in FIELDS if name != "tags"]
        self.__signature__ = inspect.Signature(
            [_build_parameter(name, one) for name in names] + [_build_parameter(REPEATED, tags)]
        )

    async def __call__(self, **given: Any) -> TypedFilter:
        return TypedFilter({name: value for name, value in given.items() if value})


def _build_parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


Filter = Annotated[TypedFilter, Depends(FilterReader())]
