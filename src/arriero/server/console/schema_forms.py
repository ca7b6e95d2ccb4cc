"""Forms made from JSON Schema, and JSON values made from what such a form sends. Pure functions.

A form shows a recorded value, and an operator changes a part of it. So the first rule is that a form which is sent back unchanged gives the
same value. Each part of a value that its input could not give back, and each type that has no input here, is shown as JSON instead.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from ...errors import InvalidInput
from ...text.escaping import escape_json, escape_text

InputKind = Literal["group", "text", "number", "flag", "choice", "lines", "json"]
VALUE_BYTES_MAX = 100_000  # of a value that is shown for editing
INPUTS_MAX = 200  # of one form; what comes after them is JSON
DEPTH_MAX = 5  # of groups in groups
CHOICES_MAX = 200
SINGLE_LINE_MAX = 80  # characters; longer texts get an area
NULL, GIVEN, LEFT_OUT = "null", "given", ""
SCALARS = ("string", "integer", "number", "boolean")
NUMBERS = frozenset(("integer", "number"))
FORMATS = {
    "date-time": "An instant, like 2026-11-20T14:15:17Z.",
    "date": "A day, like 2026-11-20.",
    "time": "A time of day, like 14:15:17.",
    "duration": "A duration, like PT15M.",
    "decimal": "A decimal number, like 12.50.",
    "uuid": "A UUID.",
}
BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "minItems": "at least {} lines",
    "maxItems": "at most {} lines",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "of the pattern {}",
}
_ABSENT: Any = object()  # of a member that is not there
_match_integer = re.compile(r"-?(0|[1-9][0-9]{0,999})", re.ASCII).fullmatch
_match_number = re.compile(r"-?(0|[1-9][0-9]{0,99})(\.[0-9]{1,99})?([eE][+-]?[0-9]{1,3})?", re.ASCII).fullmatch


class ValueField(msgspec.Struct, frozen=True, kw_only=True):
    """An input of a form, or a group of them, for a part of a JSON value.

    Args:
        name: in the form. ``label``: in words.
        choices: of a ``choice``, and of a group that may be null or left out: what is sent, and its label.
        empty: JSON text of the value for which an empty input stands; "": the member is left out; None: it must be filled in.
        value: as the input shows it; of a ``flag`` ``true`` or nothing.
        is_long: a ``text`` of several lines.
        of: the type that the lines of ``lines``, or a ``number``, have.
        fields: of a group.
    """

    name: str
    label: str
    kind: InputKind
    help: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    empty: str | None = ""
    value: str = ""
    is_long: bool = False
    of: str = "string"
    fields: tuple["ValueField", ...] = ()

    @property
    def is_required(self) -> bool:
        """Returns True if its input must be filled in."""
        return self.kind not in ("flag", "group") and self.empty is None


def build_value_fields(
    schema: bytes | None,
    value: bytes | None = None,
    *,
    name: str = "value",
    label: str = "Value",
    is_required: bool = True,
    is_edit: bool = False,
) -> ValueField:
    """Build the form of a JSON value.

    Args:
        schema: JSON Schema of its type, as msgspec and pydantic make it; None, and what is none: any value.
        value: JSON text of what the form shows; None: nothing.
        name: of its inputs in the form, or the first part of their names.
        is_required: False: the whole value may be left out.
        is_edit: what the form sends is laid over the value, so a member that the value has cannot be left out.
    """
    if value is not None and len(value) > VALUE_BYTES_MAX:
        says = (
            f"The recorded value has {len(value):,} bytes and is too large to be edited here. Empty: it stays as it is."
        )
        return ValueField(name=name, label=label, kind="json", help=says)
    types, shown = _load(schema), _load(value)
    of = types if isinstance(types, dict) else {}
    if is_edit and isinstance(shown, dict):
        of = {**of, "required": [*of.get("required", ()), *shown]}
    builder = _FormBuilder(of)
    return builder.build(of, shown, _Place(name, label, is_required))


def read_value(field: ValueField, sent: Mapping[str, Sequence[str]]) -> bytes | None:
    """Read a JSON value out of a form.

    Args:
        field: as ``build_value_fields`` has made it of the same schema and value.
        sent: what the form has sent, by the names of its inputs.
    Returns: JSON text; None: it is left out.
    Raises: InvalidInput - names the field and what it must be.
    """
    value = _read(field, sent)
    return None if value is _ABSENT else _dump(value).encode()


def fill_in(field: ValueField, sent: Mapping[str, Sequence[str]]) -> ValueField:
    """Return a field that shows what was sent."""
    shown = next(iter(sent.get(field.name, ())), "")
    return msgspec.structs.replace(field, value=shown, fields=tuple(fill_in(one, sent) for one in field.fields))


def list_inputs(field: ValueField) -> dict[str, tuple[str]]:
    """List what a form sends that is left as it is, by the names of its inputs."""
    found: dict[str, tuple[str]] = {}
    if field.kind == "flag":
        found |= {field.name: ("true",)} if field.value else {}
    elif field.kind != "group" or field.choices:
        found[field.name] = (field.value.replace("\n", "\r\n"),)
    for one in field.fields:
        found |= list_inputs(one)
    return found


def _load(text: bytes | None) -> Any:
    try:
        return _ABSENT if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return _ABSENT


def _dump(value: Any, indent: int | None = None) -> str:
    separators = (",", ":") if indent is None else None
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)


def _are_same(one: Any, other: Any) -> bool:
    """Return True for the same JSON; in Python 1, 1.0 and True are equal."""
    if _ABSENT in (one, other):
        return one is other
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


class _Place(NamedTuple):
    """The place of a part in a value. ``refs``: the references that led there, which may lead round in a circle."""

    name: str
    label: str
    is_required: bool
    depth: int = 0
    refs: frozenset[str] = frozenset()


class _Type(NamedTuple):
    """A schema without its references. ``kinds``: its JSON types; empty: any, or more than an input can show.

    ``refs``: the references that it stood behind.
    """

    schema: Mapping[str, Any]
    kinds: frozenset[str]
    is_nullable: bool
    refs: frozenset[str]


class _FormBuilder:
    """Builds the inputs of one form, up to their number."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = INPUTS_MAX

    def build(self, schema: Mapping[str, Any], value: Any, place: _Place) -> ValueField:
        """Build the field of a part of the value."""
        of = self._resolve(schema)
        field = self._choose(of, value, place) if self._left > 0 else None
        if field is None or not self._gives_back(field, value):
            field = _build_json(of, value, place)
        self._left -= field.kind != "group"
        return field

    def _gives_back(self, field: ValueField, value: Any) -> bool:
        if value is _ABSENT:
            return True
        try:
            return _are_same(_read(field, list_inputs(field)), value)
        except InvalidInput:
            return False

    def _resolve(self, schema: Any) -> _Type:
        """Resolve references, and a union with null."""
        found: dict[str, Any] = dict(schema) if isinstance(schema, Mapping) else {}
        is_nullable, refs = False, frozenset[str]()
        for _ in range(DEPTH_MAX * 2):
            if isinstance(ref := found.pop("$ref", None), str):
                refs |= {ref}
                found = {**self._follow(ref), **found}
            elif isinstance(several := found.pop("allOf", None), list) and len(several) == 1:
                found = {**_as_schema(several[0]), **found}
            elif isinstance(several := found.get("anyOf", found.get("oneOf")), list):
                of = [_as_schema(one) for one in several]
                others = [one for one in of if one.get("type") != NULL]
                is_nullable = is_nullable or len(others) < len(of)
                if {one.get("type") for one in others} == NUMBERS:
                    others = [{"type": "number"}]
                if len(others) != 1:
                    break
                rest = {name: one for name, one in found.items() if name not in ("anyOf", "oneOf")}
                found = {**others[0], **rest}
            else:
                break
        kind = found.get("type", ())
        kinds = frozenset(one for one in ([kind] if isinstance(kind, str) else kind) if isinstance(one, str))
        unions = found.keys() & {"anyOf", "oneOf", "allOf", "not", "if"}
        return _Type(found, frozenset() if unions else kinds - {NULL}, is_nullable or NULL in kinds, refs)

    def _follow(self, ref: str) -> Mapping[str, Any]:
        found: Any = self._root
        for part in ref.removeprefix("#").split("/")[1:] if ref.startswith("#/") else ["?"]:
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        return _as_schema(found)

    def _choose(self, of: _Type, value: Any, place: _Place) -> ValueField | None:
        """Choose an input. Returns: None: none shows such a type, or not this value of it."""
        schema = of.schema
        if "const" in schema or "enum" in schema:
            return _build_choice(of, [schema["const"]] if "const" in schema else schema["enum"], value, place)
        if not of.kinds or (len(of.kinds) > 1 and of.kinds != NUMBERS):
            return None
        kind = "number" if of.kinds == NUMBERS else next(iter(of.kinds))
        if kind == "object":
            return self._build_group(of, value, place)
        if kind == "array":
            return self._build_lines(of, value, place)
        if kind == "boolean":
            return _build_boolean(of, value, place)
        is_secret = schema.get("format") == "password" or schema.get("writeOnly") is True
        if kind in SCALARS and not is_secret:
            return _build_text(of, kind, value, place)
        return None

    def _build_group(self, of: _Type, value: Any, place: _Place) -> ValueField | None:
        members = of.schema.get("properties")
        is_circle = bool(of.refs & place.refs) and value in (_ABSENT, None)
        if not isinstance(members, dict) or not members or place.depth >= DEPTH_MAX or is_circle:
            return None
        given = value if isinstance(value, dict) else {}
        required = of.schema.get("required", ())
        fields = []
        for name, schema in members.items():
            path = f"{place.name}/{name.replace('~', '~0').replace('/', '~1')}"
            inner = _Place(path, _label(name), name in required, place.depth + 1, place.refs | of.refs)
            fields.append(self.build(_as_schema(schema), given.get(name, _ABSENT), inner))
        choices = [(GIVEN, "given"), *_list_absences(of, place)]
        is_absent = value is _ABSENT and not place.is_required
        return ValueField(
            name=place.name,
            label=place.label,
            kind="group",
            help=_describe(of),
            choices=tuple(choices) if len(choices) > 1 else (),
            empty=None if place.is_required else "",
            value=LEFT_OUT if is_absent else NULL if value is None and of.is_nullable else GIVEN,
            fields=tuple(fields),
        )

    def _build_lines(self, of: _Type, value: Any, place: _Place) -> ValueField | None:
        item = self._resolve(of.schema.get("items"))
        kind = "number" if item.kinds == NUMBERS else next(iter(item.kinds), "")
        is_plain = kind in ("string", "integer", "number") and not item.is_nullable and "prefixItems" not in of.schema
        if not is_plain:
            return None
        values = value if isinstance(value, list) else []
        return ValueField(
            name=place.name,
            label=place.label,
            kind="lines",
            of=kind,
            help=f"{_describe(of)} One {'value' if kind == 'string' else kind} a line.".strip(),
            empty=_choose_empty(of, value, place, "[]"),
            value="\n".join(one if isinstance(one, str) else _dump(one) for one in values),
        )


def _as_schema(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _label(name: str) -> str:
    words = name.replace("_", " ").strip()
    return words[:1].upper() + words[1:] if words else name


def _describe(of: _Type) -> str:
    """Describe a type in sentences: what its author says, its form, its bounds."""
    schema = of.schema
    says = str(schema["description"]).strip().partition("\n")[0] if "description" in schema else ""
    parts = [f"{says.rstrip('.')}." if says else "", FORMATS.get(str(schema.get("format")), "")]
    if schema.get("contentEncoding") == "base64":
        parts.append("Bytes, in Base64.")
    bounds = [text.format(schema[name]) for name, text in BOUNDS.items() if name in schema]
    if bounds:
        parts.append(f"Allowed: {', '.join(bounds)}.")
    default = schema.get("default")
    if default not in (None, "", [], {}) and len(shown := _dump(default)) <= SINGLE_LINE_MAX:
        parts.append(f"Default: {shown}.")
    return escape_text(" ".join(filter(None, parts)))


def _list_absences(of: _Type, place: _Place) -> list[tuple[str, str]]:
    return [(NULL, "null")] * of.is_nullable + [(LEFT_OUT, "left out")] * (not place.is_required)


def _choose_empty(of: _Type, value: Any, place: _Place, empty: str | None) -> str | None:
    """Choose what an empty input stands for: the value that is shown, if that is empty.

    Args:
        empty: JSON text of the empty value of the type; None: it has none.
    """
    if value is None and of.is_nullable:
        return NULL
    if value is not _ABSENT and empty is not None and _dump(value) == empty:
        return empty
    if value is _ABSENT or not of.is_nullable:
        return empty if place.is_required else ""
    return NULL


def _build_text(of: _Type, kind: str, value: Any, place: _Place) -> ValueField:
    schema = of.schema
    has_empty = kind == "string" and "format" not in schema and not schema.get("minLength") and "pattern" not in schema
    text = "" if value in (_ABSENT, None) else value if isinstance(value, str) else _dump(value)
    return ValueField(
        name=place.name,
        label=place.label,
        kind="text" if kind == "string" else "number",
        of=kind,
        help=_describe(of),
        empty=_choose_empty(of, value, place, '""' if has_empty else None),
        value=text,
        is_long=kind == "string" and ("\n" in text or len(text) > SINGLE_LINE_MAX),
    )


def _build_boolean(of: _Type, value: Any, place: _Place) -> ValueField | None:
    if place.is_required and not of.is_nullable:
        shown = "true" if value is True or (value is _ABSENT and of.schema.get("default") is True) else ""
        return ValueField(
            name=place.name, label=place.label, kind="flag", help=_describe(of), empty="false", value=shown
        )
    return _build_choice(of, [True, False], value, place, {"true": "yes", "false": "no"})


def _build_choice(
    of: _Type, values: Sequence[Any], value: Any, place: _Place, words: Mapping[str, str] = {}
) -> ValueField | None:
    if len(values) > CHOICES_MAX or any(isinstance(one, dict | list) for one in values):
        return None
    choices = [(sent := _dump(one), words.get(sent, one if isinstance(one, str) else sent)) for one in values]
    absences = [one for one in _list_absences(of, place) if one not in choices]
    is_only = place.is_required and len(choices) == 1 and not absences
    shown = choices[0][0] if value is _ABSENT and is_only else LEFT_OUT if value is _ABSENT else _dump(value)
    blank = [(LEFT_OUT, "choose")] if value is _ABSENT and place.is_required and not is_only else []
    return ValueField(
        name=place.name,
        label=place.label,
        kind="choice",
        help=_describe(of),
        choices=(*blank, *((sent, escape_text(label)) for sent, label in choices + absences)),
        empty=None if place.is_required else "",
        value=shown,
    )


def _build_json(of: _Type, value: Any, place: _Place) -> ValueField:
    says = _describe(of)
    return ValueField(
        name=place.name,
        label=place.label,
        kind="json",
        help=f"{says} JSON.".strip(),
        empty=None if place.is_required else "",
        value="" if value is _ABSENT else escape_json(_dump(value, 2)),
        is_long=True,
    )


# --- what a form sends
def _read(field: ValueField, sent: Mapping[str, Sequence[str]]) -> Any:
    text = next(iter(sent.get(field.name, ())), "")
    if field.kind == "flag":
        return bool(text)
    if field.kind == "group":
        return _read_group(field, text, sent)
    text = text.replace("\r\n", "\n")
    if not text.strip() and not (field.kind == "text" and text):
        if field.empty is None:
            raise InvalidInput(f"{field.label}: it is empty; {_ask_for(field)}")
        return json.loads(field.empty) if field.empty else _ABSENT
    match field.kind:
        case "text":
            return _refuse_unseen(field, text)
        case "number":
            return _read_number(field, text.strip(), field.of)
        case "lines":
            return _read_lines(field, text)
        case "choice":
            if text not in [value for value, _ in field.choices]:
                raise InvalidInput(f"{field.label}: {text[:SINGLE_LINE_MAX]!r} is none of its choices")
            return json.loads(text)
        case _:
            return _read_json(field, text)


def _ask_for(field: ValueField) -> str:
    match field.kind:
        case "number":
            return "give a whole number" if field.of == "integer" else "give a number"
        case "choice":
            return "choose one"
        case "json":
            return "give JSON"
        case _:
            return "fill it in"


def _read_group(field: ValueField, text: str, sent: Mapping[str, Sequence[str]]) -> Any:
    if field.choices and text == NULL and (NULL, "null") in field.choices:
        return None
    if field.choices and text == LEFT_OUT and field.empty == "":
        return _ABSENT
    found = [(one.name.rpartition("/")[2], _read(one, sent)) for one in field.fields]
    return {_unescape(name): value for name, value in found if value is not _ABSENT}


def _unescape(name: str) -> str:
    return name.replace("~1", "/").replace("~0", "~")


def _refuse_unseen(field: ValueField, text: str) -> str:
    """Refuse characters that the input does not show as they are; the JSON of the value may have them escaped."""
    if escape_text(text, "\n\t") != text:
        raise InvalidInput(f"{field.label}: it has characters that cannot be seen: {escape_text(text)[:200]}")
    if "\n" in text and not field.is_long:
        raise InvalidInput(f"{field.label}: it has several lines, and may have one")
    return text


def _read_number(field: ValueField, text: str, of: str) -> int | float:
    if _match_integer(text):
        return int(text)
    if of == "integer":
        raise InvalidInput(f"{field.label}: {text[:SINGLE_LINE_MAX]!r} is not a whole number")
    number = float(text) if _match_number(text) else float("inf")
    if abs(number) == float("inf"):
        raise InvalidInput(f"{field.label}: {text[:SINGLE_LINE_MAX]!r} is not a number, like 12 or 0.5")
    return number


def _read_lines(field: ValueField, text: str) -> list[Any]:
    lines = [line for line in text.split("\n") if line.strip()]
    if field.of == "string":
        return [_refuse_unseen(field, line) for line in lines]
    return [_read_number(field, line.strip(), field.of) for line in lines]


def _read_json(field: ValueField, text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        _dump(value).encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{field.label}: a text in this JSON has half a character, which no text may have") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{field.label}: this is not JSON: {error}") from None
    return value


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
