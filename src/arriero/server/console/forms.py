"""Forms made from the types of bodies, and bodies made from what a form sends. Pure functions."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import msgspec

from ...errors import InvalidInput
from ...model.tags import parse_tag
from ...operations.declaration import split_annotation
from ...text.durations import read_duration

Kind = Literal["text", "flag", "number", "duration", "instant", "choice", "json", "list", "tags"]
PREFIX = "field."  # of the names of a form's fields, before that of the body's member
NOT_TYPED = frozenset(("dry_run", "filter", "plan", "limit", "cursor"))  # members that a page sets by itself


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a form.

    Args:
        name: of the body's member.
        label: of it, in words.
        kind: how it is typed.
        help: more about it.
        choices: the words of a ``choice``.
        is_required: the body must have it.
        value: as it is shown in the form.
        null: the word that stands for null in the body; empty: none does.
    """

    name: str
    label: str
    kind: Kind
    help: str = ""
    choices: tuple[str, ...] = ()
    is_required: bool = False
    value: str = ""
    null: str = ""

    @property
    def input_name(self) -> str:
        """Its name in the form."""
        return PREFIX + self.name


def list_fields(body: type[msgspec.Struct], values: Mapping[str, str] = {}) -> tuple[Field, ...]:
    """List the fields of a form for a body; the reason comes last.

    Args:
        values: what the fields show, by name.
    """
    members = [one for one in msgspec.structs.fields(body) if one.name not in NOT_TYPED]
    found = [_build_field(one, values.get(one.name, "")) for one in members]
    return tuple(sorted(found, key=lambda field: field.name == "reason"))


def _build_field(member: msgspec.structs.FieldInfo, value: str) -> Field:
    kind, meta = split_annotation(member.type)
    extra = meta.extra or {}
    words = tuple(extra.get("words", ()))
    literals = get_args(kind) if get_origin(kind) is Literal else words
    return Field(
        name=member.name,
        label=meta.title or member.name.replace("_", " ").capitalize(),
        kind="choice" if literals else _choose_kind(kind),
        help=meta.description or "",
        choices=tuple(map(str, literals)),
        is_required=member.required,
        value=value,
        null=extra.get("null", ""),
    )


def _choose_kind(kind: Any) -> Kind:
    parts = {one for one in (get_args(kind) or (kind,)) if one is not NoneType}
    origin = get_origin(kind)
    if kind is bool:
        return "flag"
    if origin in (tuple, list):
        return "list"
    if origin is dict:
        return "tags"
    if float in parts:
        return "duration"
    if datetime in parts:
        return "instant"
    if kind is int:
        return "number"
    return "text" if str in parts else "json"


def read_fields(fields: Sequence[Field], sent: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Read the members of a body out of a form; what is empty is left out.

    Args:
        sent: what the form has sent, by the names in it.
    Raises: InvalidInput - names the field and what it must be.
    """
    found: dict[str, Any] = {}
    for field in fields:
        text = next(iter(sent.get(field.input_name, ())), "").strip()
        if field.kind == "flag":
            found[field.name] = bool(text)
        elif text or field.name == "reason":
            found[field.name] = _read_value(field, text)
    return found


def _read_value(field: Field, text: str) -> Any:
    if field.null and text == field.null:
        return None
    match field.kind:
        case "number":
            return _read_number(field, text)
        case "duration":
            return _read_duration(field, text)
        case "json":
            try:
                return msgspec.json.decode(text)
            except msgspec.DecodeError as error:
                raise InvalidInput(f"{field.label}: this is not JSON: {error}") from error
        case "list":
            return text.replace(",", " ").split()
        case "tags":
            return dict(parse_tag(line.strip()) for line in text.splitlines() if line.strip())
        case _:
            return text


def _read_number(field: Field, text: str) -> int:
    try:
        return int(text.replace(",", ""))
    except ValueError:
        raise InvalidInput(f"{field.label}: {text!r} is not a whole number") from None


def _read_duration(field: Field, text: str) -> float:
    try:
        return read_duration(text)
    except InvalidInput as error:
        raise InvalidInput(f"{field.label}: {error}") from None
