"""Pydantic models as payloads: written in the form that they read, and read as JSON. Nothing here imports pydantic.

A model is written by the names of its fields if it reads those, else by its aliases.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, get_args

import msgspec

_USER_VALUES = frozenset(("default", "expected", "metadata", "members"))  # in a schema: no types
# The types of pydantic's schemas that hold no set, or hold one only in a type that the schema names as well.
_KINDS_WITHOUT_SETS = frozenset(
    (
        "bool",
        "bytes",
        "dataclass",
        "dataclass-args",
        "dataclass-field",
        "date",
        "datetime",
        "decimal",
        "default",
        "definition-ref",
        "definitions",
        "dict",
        "enum",
        "float",
        "int",
        "list",
        "literal",
        "model",
        "model-field",
        "model-fields",
        "none",
        "nullable",
        "str",
        "tagged-union",
        "time",
        "timedelta",
        "tuple",
        "typed-dict",
        "typed-dict-field",
        "union",
        "url",
        "uuid",
    )
)


class DumpedModel(NamedTuple):
    """A model as plain JSON values; those of its sets are in no order yet."""

    plain: Any
    by_alias: bool


class UnwritableField(NamedTuple):
    """A field that does not come back from JSON, whatever value it has. ``why``: with the remedy."""

    name: str
    why: str


class _FieldSchema(NamedTuple):
    """A field of a model, dataclass or TypedDict that pydantic reads, however deep it is in the model."""

    owner: Any
    name: str
    schema: Mapping[str, Any]
    reads_name: bool

    @property
    def written_alias(self) -> str:
        alias: str = self.schema.get("serialization_alias") or self.name
        return alias

    def reads(self, key: str) -> bool:
        alias = self.schema.get("validation_alias")
        if key == self.name and (alias is None or self.reads_name):
            return True
        return alias == key or (isinstance(alias, list) and [key] in alias)


def is_model(of: type) -> bool:
    """Returns True for classes of pydantic models."""
    return hasattr(of, "model_validate_json")


def dump_model(value: Any) -> DumpedModel:
    """Write a model as it will be read. Raises whatever its own serializers raise."""
    by_alias = _is_written_by_alias(type(value))
    return DumpedModel(value.model_dump(mode="json", round_trip=True, by_alias=by_alias, warnings=False), by_alias)


def load_model(of: Any, plain: Any) -> Any:
    """Read a model as JSON: a strict one takes a text for a time only there. Raises ValueError - it does not fit."""
    try:
        return of.model_validate_json(msgspec.json.encode(plain))
    except ValueError as error:
        if (why := _explain_unfit(of, error)) is None:
            raise
        raise ValueError(why) from error


def _explain_unfit(of: Any, error: ValueError) -> str | None:
    """Name the first field that does not fit, without its value, which may be a secret. None: pydantic does not say."""
    try:
        found = error.errors(include_url=False, include_input=False)  # type: ignore[attr-defined]
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found[0]["loc"])
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return f"{of.__name__}{path}: {found[0]['msg']}{more}"
    except Exception:  # a ValueError of a validator's own, or an error of another kind
        return None


def pair_fields(value: Any, *, by_alias: bool) -> list[tuple[str, Any]] | None:
    """Pair the keys under which a model or a dataclass of pydantic is written with its values; None: it is neither."""
    of = type(value)
    fields = of.model_fields if is_model(of) else getattr(of, "__pydantic_fields__", None)
    if fields is None:
        return None
    pairs = [
        ((field.serialization_alias if by_alias else None) or name, getattr(value, name, None))
        for name, field in fields.items()
    ]
    return pairs + list((getattr(value, "__pydantic_extra__", None) or {}).items())


def _list_model_fields(of: Any) -> tuple[tuple[str, bool, bool], ...]:
    return tuple((name, bool(one.exclude), _holds_any(one.annotation)) for name, one in of.model_fields.items())


# The fields of a model: the name, whether it is excluded from JSON, and whether it is plain JSON (``Any``).
list_model_fields: Callable[[type], tuple[tuple[str, bool, bool], ...]] = cache(_list_model_fields)


def _holds_any(annotation: Any) -> bool:
    return annotation in (Any, object) or any(map(_holds_any, get_args(annotation)))


def _find_out_alias_use(of: Any) -> bool:
    if of.model_config.get("serialize_by_alias"):
        return True
    return not all(field.reads(field.name) for field in _list_fields(of))


_is_written_by_alias: Callable[[type], bool] = cache(_find_out_alias_use)


def _find_sets(of: Any) -> bool:
    schema = _get_schema(of)
    return schema is None or not _list_kinds(schema, set()) <= _KINDS_WITHOUT_SETS


# True if a value of the model may hold a set: its type has one, or is not known so well.
may_hold_set: Callable[[type], bool] = cache(_find_sets)


@cache
def find_unwritable_field(of: Any) -> UnwritableField | None:
    """Find a field of a model whose values cannot come back from JSON; None: none is known."""
    by_alias = _is_written_by_alias(of)
    for field in _list_fields(of):
        key = field.written_alias if by_alias else field.name
        if field.schema.get("serialization_exclude"):
            return UnwritableField(field.name, "has exclude=True and is not recorded: remove that, or the field")
        if not field.reads(key):
            why = f"is written as {key!r} and not read by that name: use one alias=, or populate_by_name=True"
            return UnwritableField(field.name, why)
        if _is_masked(field):
            why = "is a secret, which is recorded as a mask: give the name of the secret, and look it up in the step"
            return UnwritableField(field.name, why)
    return None


def _is_masked(field: _FieldSchema) -> bool:
    """Write a secret of our own in the place of the field: a serializer of the user's may show it."""
    declared = getattr(field.owner, "model_fields", {}).get(field.name)
    secret = None if declared is None else _find_secret(declared.annotation)
    if secret is None:
        return False
    made = secret(b"secret" if secret.__name__ == "SecretBytes" else "secret")
    try:
        dumped = field.owner.model_construct(**{field.name: made}).model_dump(mode="json", include={field.name})
    except Exception:  # a serializer that expects more of the model: its values are compared one by one
        return False
    return set(map(str, dumped.values())) == {str(made)}


def _find_secret(annotation: Any) -> Any:
    if isinstance(annotation, type) and hasattr(annotation, "get_secret_value"):
        return annotation
    return next((one for part in get_args(annotation) if (one := _find_secret(part)) is not None), None)


def _get_schema(of: Any) -> dict[str, Any] | None:
    """Return what pydantic made of a model; None: it names types that are not defined yet."""
    if not getattr(of, "__pydantic_complete__", False):
        of.model_rebuild(raise_errors=False)
    schema = of.__pydantic_core_schema__
    return schema if isinstance(schema, dict) else None


@cache
def _list_fields(of: Any) -> tuple[_FieldSchema, ...]:
    """List the fields that are read with a model; empty: it names types that are not defined yet."""
    schema = _get_schema(of)
    return () if schema is None else tuple(_walk_schema(schema, None, {}, set()))


def _walk_schema(node: Any, owner: Any, config: Mapping[str, Any], seen: set[int]) -> Iterator[_FieldSchema]:
    if not isinstance(node, dict | list | tuple) or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, list | tuple):
        for item in node:
            yield from _walk_schema(item, owner, config, seen)
        return
    kind = node.get("type")
    if kind in ("model", "dataclass", "typed-dict"):
        owner, config = node.get("cls"), node.get("config") or {}
    if kind in ("model-fields", "typed-dict", "dataclass-args"):
        fields = node["fields"]
        reads_name = bool(config.get("validate_by_name") or config.get("populate_by_name"))
        named = fields.items() if isinstance(fields, dict) else [(field["name"], field) for field in fields]
        for name, field in named:
            yield _FieldSchema(owner, name, field, reads_name)
    for key, part in node.items():
        if key not in _USER_VALUES:
            yield from _walk_schema(part, owner, config, seen)


def _list_kinds(node: Any, seen: set[int]) -> set[str]:
    """List what pydantic calls the types in a schema."""
    if not isinstance(node, dict | list | tuple) or id(node) in seen:
        return set()
    seen.add(id(node))
    if isinstance(node, list | tuple):
        return set().union(*(_list_kinds(item, seen) for item in node))
    kind = node.get("type")
    parts = (part for key, part in node.items() if key not in _USER_VALUES)
    return set().union({kind} if isinstance(kind, str) else (), *(_list_kinds(part, seen) for part in parts))
