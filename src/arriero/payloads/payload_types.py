"""Facts that a declared type proves of all its values. They are computed once for each type."""

import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, time
from functools import cache
from operator import attrgetter
from typing import Any, get_args, get_origin

import msgspec
from msgspec import inspect

from .plain_values import EXACT_SCALARS, VERSION_KEY, VERSIONS, Reference, list_fields
from .pydantic_models import find_unwritable_field, is_model

EXAMPLE_DEPTH_MAX = 6

# Given a value and what was read back: True if they are the same; False if one must look closer.
Equality = Callable[[Any, Any], bool]

WITH_FIELDS = (inspect.StructType, inspect.DataclassType, inspect.NamedTupleType)
SEQUENCES = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)
# Types whose values equal only what has the same JSON text. Of times that is not so: ``==`` ignores ``fold``.
_EXACT = (
    inspect.NoneType,
    inspect.BoolType,
    inspect.IntType,
    inspect.FloatType,
    inspect.StrType,
    inspect.BytesType,
    inspect.ByteArrayType,
    inspect.UUIDType,
    inspect.DateType,
    inspect.TimeDeltaType,
    inspect.DecimalType,
    inspect.EnumType,
    inspect.LiteralType,
)
_TIMES = (inspect.DateTimeType, inspect.TimeType)
_TOTALLY_ORDERED = (*_EXACT, *_TIMES)
_EXACT_WITH_PARTS = (
    *SEQUENCES,
    inspect.AnyType,
    inspect.DictType,
    inspect.Metadata,
    inspect.TupleType,
    inspect.TypedDictType,
    inspect.UnionType,
)


def unwrap(info: inspect.Type) -> inspect.Type:
    """Return a type without what annotations say of it."""
    while isinstance(info, inspect.Metadata):
        info = info.type
    return info


def get_class(info: Any) -> type:
    """Return the class of a type with fields, also of a generic one."""
    of: type = getattr(info.cls, "__origin__", info.cls)
    return of


def may_hold_unsortable_set(of: Any) -> bool:
    """Returns True if a value of the type may hold a set whose members have no order, as sets of sets."""
    return any(
        isinstance(part, inspect.AnyType)
        or (
            isinstance(part, inspect.SetType | inspect.FrozenSetType)
            and not isinstance(unwrap(part.item_type), _TOTALLY_ORDERED)
        )
        for part in _walk(inspect.type_info(of), set())
    )


def find_unwritable(of: Any) -> str | None:
    """Describe a part of a type that no value of it brings back from JSON; None: the type proves nothing."""
    for part in _walk(inspect.type_info(of), set()):
        if isinstance(part, inspect.CustomType) and is_model(part.cls):
            found = find_unwritable_field(part.cls)
            if found is not None:
                return f"field {found.name} of {part.cls.__qualname__.rpartition('<locals>.')[2]} {found.why}"
    return None


def find_unreadable(of: Any, *, may_refer: bool = False) -> Any:
    """Find the type in ``of``, however deep, that nothing can be made of; None: there is none.

    Args:
        may_refer: a ``Reference`` can be read here, but not by a pydantic model.
    """
    for part in _walk(inspect.type_info(of), set()):
        if isinstance(part, inspect.CustomType) and is_model(part.cls):
            fields = getattr(get_class(part), "model_fields", {}).values()
            if found := next((one for field in fields if (one := _find_reference(field.annotation))), None):
                return found
        if isinstance(part, inspect.CustomType) and not is_model(part.cls) and not (may_refer and _is_reference(part)):
            return get_class(part)
    return None


def holds_reference(of: Any) -> bool:
    """Returns True if a value of the type may hold a ``Reference``."""
    return any(
        isinstance(part, inspect.CustomType) and _is_reference(part) for part in _walk(inspect.type_info(of), set())
    )


def _find_reference(annotation: Any) -> type | None:
    of = get_origin(annotation) or annotation
    if isinstance(of, type) and issubclass(of, Reference):
        return of
    return next((found for part in get_args(annotation) if (found := _find_reference(part))), None)


def _is_reference(info: inspect.CustomType) -> bool:
    return issubclass(get_class(info), Reference)


def walk_type(info: inspect.Type) -> Iterator[inspect.Type]:
    """List the types in a type, not those of the fields of pydantic models. One that holds itself comes once."""
    return _walk(info, set())


def _walk(info: Any, seen: set[int]) -> Iterator[inspect.Type]:
    """The types in a type. One that holds itself comes once."""
    if id(info) in seen:
        return
    seen.add(id(info))
    if isinstance(info, inspect.Type):
        yield info
    for part in info if isinstance(info, tuple) else msgspec.structs.asdict(info).values():
        if isinstance(part, inspect.Type | inspect.Field | tuple):
            yield from _walk(part, seen)


# --- equality
def build_equality(info: inspect.Type) -> Equality:
    """Build the quick half of a comparison: most values are the same, and need no closer look."""
    return _build_equality(info, {})


def _build_equality(info: inspect.Type, made: dict[int, list[Equality]]) -> Equality:
    info = unwrap(info)
    if is_exact(info):
        return _are_equal
    if isinstance(info, _TIMES):
        return _are_equal_times
    if id(info) in made:  # a type that holds itself
        itself = made[id(info)]

        def look_up(sent: Any, back: Any) -> bool:
            return itself[0](sent, back)

        return look_up
    made[id(info)] = [_need_closer_look]
    made[id(info)][0] = equality = _build_equality_of_parts(info, made)
    return equality


def _build_equality_of_parts(info: inspect.Type, made: dict[int, list[Equality]]) -> Equality:
    if isinstance(info, inspect.UnionType):
        members = [member for member in info.types if not isinstance(member, inspect.NoneType)]
        if len(members) != 1:
            return _are_equal_scalars
        only = _build_equality(members[0], made)
        return lambda sent, back: only(sent, back) if back is not None else sent is None
    if isinstance(info, inspect.StructType | inspect.DataclassType):
        return _build_equality_of_fields(info, made)
    if isinstance(info, inspect.ListType):
        item = _build_equality(info.item_type, made)
        return lambda sent, back: type(sent) is list and len(sent) == len(back) and all(map(item, sent, back))
    if isinstance(info, inspect.DictType) and isinstance(unwrap(info.key_type), inspect.StrType):
        value = _build_equality(info.value_type, made)
        return lambda sent, back: (
            type(sent) is dict
            and sent.keys() == back.keys()
            and all(value(part, back[key]) for key, part in sent.items())
        )
    return _need_closer_look


def _build_equality_of_fields(
    info: inspect.StructType | inspect.DataclassType, made: dict[int, list[Equality]]
) -> Equality:
    of = get_class(info)
    fields = {field.name: field.type for field in info.fields}
    if set(fields) != set(list_fields(of)):
        return _need_closer_look
    exact = [name for name, part in fields.items() if is_exact(unwrap(part))]
    get_exact = attrgetter(*exact) if exact else type
    others = [(name, _build_equality(part, made)) for name, part in fields.items() if name not in exact]
    return lambda sent, back: (
        type(sent) is of
        and get_exact(sent) == get_exact(back)
        and all(equal(getattr(sent, name), getattr(back, name)) for name, equal in others)
    )


def _are_equal(sent: Any, back: Any) -> bool:
    return type(sent) is type(back) and bool(sent == back)


def _are_equal_scalars(sent: Any, back: Any) -> bool:
    return type(sent) in EXACT_SCALARS and _are_equal(sent, back)


def _are_equal_times(sent: Any, back: Any) -> bool:
    of = type(sent)
    return (
        (of is datetime or of is time)
        and of is type(back)
        and sent.tzinfo is back.tzinfo
        and not sent.fold
        and bool(sent == back)
    )


def _need_closer_look(sent: Any, back: Any) -> bool:
    return False


def is_exact(info: inspect.Type) -> bool:
    """Returns True if a value and what was read back are the same when they are equal and of one type."""
    return all(
        isinstance(part, (*_EXACT, *_EXACT_WITH_PARTS))
        or (isinstance(part, WITH_FIELDS) and _has_exact_equality(get_class(part)))
        for part in _walk(info, set())
    )


@cache
def _has_exact_equality(of: Any) -> bool:
    """Returns True if the class compares all fields, and its own type: by the ``__eq__`` that was made for it."""
    if issubclass(of, msgspec.Struct):
        return bool(of.__eq__ is msgspec.Struct.__eq__)
    if issubclass(of, tuple):
        return bool(of.__eq__ is tuple.__eq__)
    fields = getattr(of, "__dataclass_fields__", None)
    made = vars(of).get("__eq__")
    if fields is None or made is None or made.__code__.co_filename != "<string>":  # the user's own may leave fields out
        return False
    return all(field.compare for field in fields.values())


_EXAMPLES: dict[str, Any] = {
    "str": "text",
    "int": 1,
    "float": 1.5,
    "bool": True,
    "any": "any JSON",
    "none": None,
    "decimal": "1.50",
    "datetime": "2030-01-31T12:00:00Z",
    "date": "2030-01-31",
    "time": "12:00:00",
    "uuid": str(uuid.UUID(int=1)),
}
_COLLECTIONS = {"list", "set", "frozenset", "collection", "vartuple"}


def build_example(of: Any) -> Any:
    """Build plain JSON of a type, as an example in an error. Raises ValueError: there is none that is short."""
    return _build_example(inspect.type_info(of), 0)


def _build_example(info: Any, depth: int) -> Any:
    kind = type(info).__name__.removesuffix("Type").lower()
    if depth > EXAMPLE_DEPTH_MAX:
        raise ValueError("its example would be too long")
    if isinstance(info, inspect.Metadata):
        return _build_example(info.type, depth)
    if isinstance(info, inspect.UnionType):
        return _build_example(info.types[0], depth)
    if isinstance(info, inspect.EnumType):
        return next(iter(info.cls)).value
    if isinstance(info, inspect.LiteralType):
        return info.values[0]
    if isinstance(info, inspect.TupleType):
        return [_build_example(one, depth + 1) for one in info.item_types]
    if isinstance(info, inspect.StructType | inspect.DataclassType | inspect.TypedDictType | inspect.NamedTupleType):
        fields = {one.encode_name: _build_example(one.type, depth + 1) for one in info.fields if one.required}
        tag = {info.tag_field: info.tag} if isinstance(info, inspect.StructType) and info.tag_field else {}
        if (version := VERSIONS.get(getattr(info, "cls", None))) is not None:  # type: ignore[arg-type]  # None is in no dict
            tag = {VERSION_KEY: version, **tag}
        return list(fields.values()) if isinstance(info, inspect.NamedTupleType) else tag | fields
    if kind in _COLLECTIONS:
        return [_build_example(info.item_type, depth + 1)]
    if kind == "dict":
        return {}
    if kind in _EXAMPLES:
        return _EXAMPLES[kind]
    raise ValueError(f"no example of {kind} is known")
