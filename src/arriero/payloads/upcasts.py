"""Versions of types: which version an object of a record has, and the functions that bring an older one up to date.

A value whose class has upcasts is recorded with its version beside its fields. An object without one is of version 1,
wherever it comes from. So the meaning of a JSON text never depends on the release that reads it.
"""

import inspect as introspection
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from ..errors import DefinitionError, InvalidInput
from .payload_types import WITH_FIELDS, get_class, unwrap, walk_type
from .plain_values import SCALARS, VERSION_KEY, VERSIONS, get_versioned_class, list_fields, list_parts
from .pydantic_models import is_model

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
Encode = Callable[[Any, str], str]
FunctionT = TypeVar("FunctionT", bound=Upcast)


class Calls(NamedTuple):
    """The upcasts that were called for one record. ``encode``: writes what they return, as ``codec.encode``."""

    encode: Encode
    names: list[str]


Lift = Callable[[Any, str, Calls], Any]  # given a JSON value and its path in the record

_UPCASTS: dict[type, list[Upcast]] = {}  # that of version 1 first
_RELEASE = "run a release that knows it"


def upcast(of: type, *, from_version: int) -> Callable[[FunctionT], FunctionT]:
    """Declare how a record of an older version of a type becomes one of the next version.

    The function gets the JSON object as it was recorded, and returns that of the next version. It must be pure: a replay calls
    it again. The version of the type is one more than its last upcast, and 1 without any.

    Args:
        of: a dataclass, attrs class, msgspec.Struct or pydantic model, declared in the same module.
        from_version: of the records that the function takes: 1 for the first upcast of a type, then 2, ...
    Raises: DefinitionError.
    """

    def declare(function: FunctionT) -> FunctionT:
        what = f"upcast of {_get_name(of)} from version {from_version!r}"
        _check_type(of, what)
        _check_number(of, from_version, what)
        _check_function(of, function, what)
        _UPCASTS.setdefault(of, []).append(function)
        VERSIONS[of] = from_version + 1
        _holders.clear()
        return function

    return declare


# --- declaration
def _check_type(of: Any, what: str) -> None:
    if not isinstance(of, type) or typing.get_origin(of) is not None:
        raise DefinitionError(
            f"{what}: it takes a class, not {of!r}: name the class itself, like @upcast(Order, from_version=1)"
        )
    is_array = issubclass(of, msgspec.Struct) and of.__struct_config__.array_like
    if is_array or issubclass(of, tuple):
        raise DefinitionError(
            f"{what}: it is recorded as a list, which has no place for a version: use an object with fields"
        )
    if getattr(of, "__pydantic_root_model__", False):
        raise DefinitionError(f"{what}: a RootModel is recorded without fields: wrap the value in a model with a field")
    if issubclass(of, Enum) or not (is_model(of) or list_fields(of)):
        raise DefinitionError(
            f"{what}: it must be a dataclass, an attrs class, a msgspec.Struct or a pydantic model; values of another type do not"
            " know their version"
        )


def _check_number(of: type, from_version: Any, what: str) -> None:
    if isinstance(from_version, bool) or not isinstance(from_version, int) or from_version < 1:
        raise DefinitionError(
            f"{what}: from_version must be a whole number from 1 on; records without a version are of version 1"
        )
    current = VERSIONS.get(of, 1)
    if from_version < current:
        other = _describe_function(_UPCASTS[of][from_version - 1])
        raise DefinitionError(
            f"{what}: {other} is declared for that version already: declare one upcast for each version"
        )
    if from_version > current:
        raise DefinitionError(
            f"{what}: none is declared from version {current}: declare upcasts in ascending order without a gap"
        )


def _check_function(of: type, function: Any, what: str) -> None:
    if not callable(function):
        raise DefinitionError(f"{what}: it is {function!r}; write it above a function that takes and returns a dict")
    name = _describe_function(function)
    if introspection.iscoroutinefunction(function) or introspection.isasyncgenfunction(function):
        raise DefinitionError(
            f"{what}: {name} is async: write a plain function; what it would wait for belongs into a step"
        )
    if introspection.isgeneratorfunction(function):
        raise DefinitionError(f"{what}: {name} is a generator: return the dict")
    try:
        introspection.signature(function).bind({})
    except TypeError as error:
        raise DefinitionError(f"{what}: {name} must take one argument, the recorded dict: {error}") from error
    except ValueError:  # of a built-in function nothing is known
        pass
    module = getattr(function, "__module__", None)
    if module != of.__module__:
        raise DefinitionError(
            f"{what}: {name} is in module {module}, and the type in {of.__module__}: declare it there, else a process that imports"
            " the type alone would read old records as new ones"
        )


def _describe_function(function: Any) -> str:
    return getattr(function, "__qualname__", repr(function)).rpartition("<locals>.")[2]


def _get_name(of: Any) -> str:
    return getattr(of, "__qualname__", repr(of)).rpartition("<locals>.")[2]


# --- bringing up to date
class Reading(NamedTuple):
    """The way through the JSON of a type to the objects that have a version.

    Attributes:
        lift: returns the JSON of today's types, without versions. Raises InvalidInput.
        holds_version: whether a type with upcasts is in it.
    """

    lift: Lift
    holds_version: bool


def build_reading(of: Any) -> Reading:
    """Build the way for a declared type. ``of``: one that msgspec decodes."""
    builder = _Builder()
    lift = builder.build(inspect.type_info(of))
    return Reading(lift, builder.holds_version)


class Lifted(NamedTuple):
    """A JSON text of the versions that the code has today, without naming them. ``called``: the upcasts that made it."""

    text: str
    called: Sequence[str]


def lift_text(reading: Reading, text: str, encode: Encode) -> Lifted:
    """Bring a recorded JSON text up to date. Raises InvalidInput; msgspec.MsgspecError - the text is malformed."""
    calls = Calls(encode, [])
    plain = reading.lift(msgspec.json.decode(text), "$", calls)
    return Lifted(msgspec.json.encode(plain).decode(), calls.names)


def _leave(plain: Any, path: str, calls: Calls) -> Any:
    return plain


def _bring_up(of: Any, plain: dict[str, Any], path: str, calls: Calls) -> dict[str, Any]:
    """Take the version out of an object, and call the upcasts from there on. Raises InvalidInput."""
    name, current = _get_name(of), VERSIONS.get(of, 1)
    is_silent = VERSION_KEY not in plain
    version = plain.pop(VERSION_KEY, 1)
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise InvalidInput(f"the version of {name} is {version!r}; it must be a whole number from 1 on - at `{path}`")
    if version > current:
        raise InvalidInput(
            f"it was recorded as version {version} of {name}, and this code knows version {current}: {_RELEASE} - at `{path}`"
        )
    for number in range(version, current):
        function = _UPCASTS[of][number - 1]
        what = f"the upcast {_describe_function(function)} of {name} from version {number}"
        if number == 1 and is_silent:
            what += f" (an object without {VERSION_KEY!r})"
        calls.names.append(what)
        plain = _call(function, plain, what, path, calls.encode)
    return plain


def _call(function: Upcast, plain: dict[str, Any], what: str, path: str, encode: Encode) -> dict[str, Any]:
    try:
        returned = function(plain)
    except Exception as error:  # whatever a user's function raises holds the one task whose record it reads
        raise InvalidInput(f"{what} failed: {type(error).__name__}: {error} - at `{path}`") from error
    if not isinstance(returned, dict):
        raise InvalidInput(f"{what} returned {_get_name(type(returned))}; it must return a dict - at `{path}`")
    try:
        text = encode(returned, f"what {what} returned")
    except InvalidInput as error:
        raise InvalidInput(f"{error} - at `{path}`") from error
    found: dict[str, Any] = msgspec.json.decode(text)
    found.pop(VERSION_KEY, None)  # the next version is what a function returns
    return found


class _Builder:
    """Builds the functions of one declared type. A type that holds itself comes once."""

    def __init__(self) -> None:
        self.holds_version = False
        self._made: dict[Any, Lift] = {}
        self._seen: list[inspect.Type] = []  # kept, so that no two have one id

    def build(self, info: inspect.Type) -> Lift:
        info = unwrap(info)
        self._seen.append(info)
        key = get_class(info) if isinstance(info, inspect.CustomType) else id(info)
        if key in self._made:
            return self._made[key]

        def look_up(plain: Any, path: str, calls: Calls) -> Any:
            return self._made[key](plain, path, calls)

        self._made[key] = look_up  # of a type that holds itself
        self._made[key] = made = self._build(info)
        return made

    def _build(self, info: inspect.Type) -> Lift:
        if isinstance(info, inspect.UnionType):
            return _lift_union([(unwrap(one), self.build(one)) for one in info.types])
        if isinstance(info, inspect.DictType):
            return _lift_values(self.build(info.value_type))
        if isinstance(info, inspect.TupleType):
            return _lift_positions([self.build(item) for item in info.item_types])
        if isinstance(info, (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)):
            return _lift_items(self.build(info.item_type))
        if isinstance(info, (*WITH_FIELDS, inspect.TypedDictType)):
            return self._build_fields(info)
        if isinstance(info, inspect.CustomType) and is_model(info.cls):
            return self._build_model(info.cls)
        return _leave

    def _build_fields(self, info: Any) -> Lift:
        fields = {field.encode_name: self.build(field.type) for field in info.fields}
        if isinstance(info, inspect.NamedTupleType) or getattr(info, "array_like", False):
            tag = [_leave] if getattr(info, "tag", None) is not None else []
            return _lift_positions([*tag, *fields.values()])
        return self._lift_object(get_class(info), fields)

    def _build_model(self, of: Any) -> Lift:
        fields: dict[str, Lift] = {}
        for name, field in of.model_fields.items():
            lift = self._build_annotation(field.annotation)
            for key in (name, field.alias, field.validation_alias, field.serialization_alias):
                if isinstance(key, str):
                    fields[key] = lift
        if getattr(of, "__pydantic_root_model__", False):
            return fields["root"]
        return self._lift_object(get_versioned_class(of), fields)

    def _build_annotation(self, annotation: Any) -> Lift:
        try:
            return self.build(inspect.type_info(annotation))
        except (TypeError, ValueError, RuntimeError):  # pydantic knows types that msgspec does not
            return self._build_parts(annotation)

    def _build_parts(self, annotation: Any) -> Lift:
        origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is typing.Annotated:
            return self._build_annotation(parts[0])
        if origin in (typing.Union, types.UnionType):
            return _lift_union([(_describe(part), self._build_annotation(part)) for part in parts])
        if not isinstance(origin, type) or not issubclass(origin, Collection):
            return _refuse_version
        if issubclass(origin, Mapping):
            return _lift_values(self._build_annotation(parts[-1]))
        if issubclass(origin, tuple) and Ellipsis not in parts:
            return _lift_positions(list(map(self._build_annotation, parts)))
        return _lift_items(self._build_annotation(parts[0]))

    def _lift_object(self, of: Any, fields: Mapping[str, Lift]) -> Lift:
        self.holds_version = self.holds_version or of in VERSIONS
        inner = {key: lift for key, lift in fields.items() if lift is not _leave}

        def lift_object(plain: Any, path: str, calls: Calls) -> Any:
            if not isinstance(plain, dict):
                return plain
            found = _bring_up(of, plain, path, calls)
            for key, lift in inner.items():
                if key in found:
                    found[key] = lift(found[key], f"{path}.{key}", calls)
            return found

        return lift_object


def _describe(annotation: Any) -> inspect.Type:
    """Describe a member of a union for a choice among several: its class, or whether it is an object or a list."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _describe(typing.get_args(annotation)[0])
    try:
        return unwrap(inspect.type_info(annotation))
    except (TypeError, ValueError, RuntimeError):
        origin = typing.get_origin(annotation)
        is_mapping = isinstance(origin, type) and issubclass(origin, Mapping)
        return (
            inspect.DictType(inspect.AnyType(), inspect.AnyType())
            if is_mapping
            else inspect.ListType(inspect.AnyType())
        )


def _lift_union(members: Sequence[tuple[inspect.Type, Lift]]) -> Lift:
    objects = [(info, lift) for info, lift in members if _is_object(info)]
    arrays = [(info, lift) for info, lift in members if _is_array(info)]

    def lift_union(plain: Any, path: str, calls: Calls) -> Any:
        if isinstance(plain, dict):
            return _choose(objects, plain)(plain, path, calls)
        return _choose(arrays, plain)(plain, path, calls) if isinstance(plain, list) else plain

    return lift_union


def _is_array(info: inspect.Type) -> bool:
    sequences = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType, inspect.TupleType)
    return isinstance(info, (*sequences, inspect.NamedTupleType)) or bool(getattr(info, "array_like", False))


def _is_object(info: inspect.Type) -> bool:
    with_keys = isinstance(info, (*WITH_FIELDS, inspect.DictType, inspect.TypedDictType, inspect.CustomType))
    return with_keys and not _is_array(info)


def _choose(members: Sequence[tuple[inspect.Type, Lift]], plain: Any) -> Lift:
    """Choose the member of a union that JSON is read as: by its tag, or by the literals of its fields."""
    if len(members) == 1:
        return members[0][1]
    fitting = [(info, lift) for info, lift in members if _fits(info, plain)]
    if len(fitting) == 1:
        return fitting[0][1]
    is_versioned = any(_may_hold_version(get_class(info)) for info, _ in fitting if hasattr(info, "cls"))
    return _refuse_union if is_versioned else _refuse_version


def _fits(info: Any, plain: Any) -> bool:
    if isinstance(info, inspect.StructType) and info.tag_field is not None:
        return bool((plain[:1] == [info.tag]) if isinstance(plain, list) else plain.get(info.tag_field) == info.tag)
    if isinstance(info, inspect.CustomType) and is_model(info.cls) and isinstance(plain, dict):
        fields = getattr(info.cls, "model_fields", {})
        literals = {
            name: typing.get_args(one.annotation) for name, one in fields.items() if _is_literal(one.annotation)
        }
        return all(plain.get(name) in values for name, values in literals.items())
    return True


def _is_literal(annotation: Any) -> bool:
    return typing.get_origin(annotation) is typing.Literal


def _refuse_union(plain: Any, path: str, calls: Calls) -> Any:
    raise InvalidInput(
        f"it may have a version, and nothing shows its type among several: give the union a discriminator - at `{path}`"
    )


def _refuse_version(plain: Any, path: str, calls: Calls) -> Any:
    """Refuse versions where nobody knows which type has them."""
    if isinstance(plain, dict) and VERSION_KEY in plain:
        _refuse_union(plain, path, calls)
    if isinstance(plain, dict):
        for key, part in plain.items():
            _refuse_version(part, f"{path}.{key}", calls)
    elif isinstance(plain, list):
        for number, part in enumerate(plain):
            _refuse_version(part, f"{path}[{number}]", calls)
    return plain


def _lift_values(lift: Lift) -> Lift:
    if lift is _leave:
        return _leave

    def lift_values(plain: Any, path: str, calls: Calls) -> Any:
        if not isinstance(plain, dict):
            return plain
        return {key: lift(part, f"{path}[{key!r}]", calls) for key, part in plain.items()}

    return lift_values


def _lift_items(lift: Lift) -> Lift:
    if lift is _leave:
        return _leave

    def lift_items(plain: Any, path: str, calls: Calls) -> Any:
        if not isinstance(plain, list):
            return plain
        return [lift(part, f"{path}[{number}]", calls) for number, part in enumerate(plain)]

    return lift_items


def _lift_positions(lifts: Sequence[Lift]) -> Lift:
    if all(lift is _leave for lift in lifts):
        return _leave

    def lift_positions(plain: Any, path: str, calls: Calls) -> Any:
        if not isinstance(plain, list):
            return plain
        known = [lift(part, f"{path}[{n}]", calls) for n, (lift, part) in enumerate(zip(lifts, plain, strict=False))]
        return known + plain[len(known) :]

    return lift_positions


# --- values that are about to be recorded
_holders: dict[type, bool] = {}  # whether a value of a class may hold one whose type has upcasts


def holds_versioned(value: Any) -> bool:
    """Returns True if a value is, or holds, an object whose type has upcasts."""
    kind = type(value)
    if kind in SCALARS or isinstance(value, Enum) or is_model(kind):  # a model writes the versions as it is dumped
        return False
    if kind not in (dict, list, tuple, set, frozenset):
        if not _may_hold_version(kind):
            return False
        if get_versioned_class(kind) in VERSIONS:
            return True
    return any(type(part) not in SCALARS and holds_versioned(part) for part in list_parts(value))


def _may_hold_version(of: type) -> bool:
    """Returns True if a value of the class may be, or hold, an object whose type has upcasts."""
    known = _holders.get(of)
    if known is None:
        known = _holders[of] = _look_for_version(of)
    return known


def _look_for_version(of: type) -> bool:
    if get_versioned_class(of) in VERSIONS:
        return True
    try:
        parts = list(_walk_types(inspect.type_info(of), set()))
    except (TypeError, ValueError, RuntimeError):
        return True
    return any(
        isinstance(part, inspect.AnyType) or get_versioned_class(getattr(part, "cls", None)) in VERSIONS
        for part in parts
    )


def _walk_types(info: inspect.Type, models: set[Any]) -> Iterator[inspect.Type]:
    for part in walk_type(info):
        yield part
        if isinstance(part, inspect.CustomType) and is_model(part.cls) and part.cls not in models:
            models.add(part.cls)
            for field in part.cls.model_fields.values():  # type: ignore[attr-defined]  # it is a model
                yield from _walk_types(inspect.type_info(field.annotation), models)
