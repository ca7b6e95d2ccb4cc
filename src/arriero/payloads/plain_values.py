"""Values that JSON has no type for, as the plain values they stand for; and the contents of sets in a fixed order.

A set iterates in the order of its hashes, which each process draws by itself. Its JSON text must not depend on that:
a task continues in another process, and a repeated submission has the same body.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any, Self
from uuid import UUID

import msgspec

from .pydantic_models import dump_model, is_model, may_hold_set, pair_fields

EXACT_SCALARS = frozenset((str, int, float, bool, type(None), bytes, date, timedelta, UUID))  # equal ones are the same
SCALARS = EXACT_SCALARS | {datetime, time, Decimal}
_NUMBERS = frozenset((int, float))
VERSIONS: dict[
    type, int
] = {}  # of each class that has upcasts, its version today: ``payloads/upcasts.py`` declares them
VERSION_KEY = (
    "@arriero.version"  # beside the fields of an object of such a class; without it the object is of version 1
)
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class Reference:
    """A value of which an argument records only what it refers to. It is read back where arguments of steps are read."""

    def write_plain(self) -> Any:
        """Return its plain JSON form."""
        raise NotImplementedError

    @classmethod
    def read_plain(cls, value: Any) -> Self:
        """Make one of its plain form. Raises ValueError - it has another form, or refers to nothing that is there."""
        raise NotImplementedError


def get_versioned_class(of: Any) -> Any:
    """Return the class that upcasts are declared for: of a generic type, the class without its parameters."""
    metadata = getattr(of, "__pydantic_generic_metadata__", None)
    return (metadata and metadata["origin"]) or getattr(of, "__origin__", of)


def add_article(name: str) -> str:
    """``an object``, ``a text``."""
    return f"{'an' if name[:1].lower() in tuple('aeiou') else 'a'} {name}"


def encode_hook(value: Any) -> Any:
    """Return what msgspec does not encode by itself in a form that it does: the ``enc_hook`` of all payloads.

    Raises: NotImplementedError - it has no JSON form.
    """
    if is_model(type(value)):
        dumped = dump_model(value)
        if not VERSIONS and not may_hold_set(type(value)):
            return dumped.plain
        return sort_sets(value, dumped.plain, by_alias=dumped.by_alias)
    return value.write_plain() if isinstance(value, Reference) else to_plain_scalar(value)


def to_plain_scalar(value: Any) -> Any:
    """Return the plain value of a subclass of a text, number or date, or of a NumPy scalar.

    Libraries return such values everywhere: ``SafeString``, ``numpy.float64``, ``asyncpg`` UUIDs.
    Raises: NotImplementedError - there is none, or it does not equal ``value``.
    """
    plain = _find_plain(value)
    if plain is None and inspect.isawaitable(value):
        raise NotImplementedError(
            f"{_describe_awaitable(value)} was never awaited: await it; a plain function that returns it must be written as"
            " `async def`, or its caller must await what it returns"
        )
    if plain is None:
        raise NotImplementedError(
            f"{add_article(type(value).__qualname__)} has no JSON form; use a dataclass, msgspec.Struct or pydantic model"
        )
    if not bool(plain == value):
        raise NotImplementedError(
            f"{add_article(type(value).__qualname__)} does not equal the {type(plain).__name__} that it would be recorded as;"
            f" convert it to {add_article(type(plain).__name__)}"
        )
    return plain


def _describe_awaitable(value: Any) -> str:
    """A call of a step describes itself; a coroutine has the name and the line of its function."""
    code = getattr(value, "cr_code", None)
    if code is None:
        return repr(value)
    return f"the coroutine of {value.__qualname__} ({code.co_filename}:{code.co_firstlineno})"


def _find_plain(value: Any) -> Any:
    for base, convert in _CONVERSIONS:
        if isinstance(value, base):
            return convert(value)
    if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        plain = value.item()
        return plain if type(plain) in (bool, int, float, str) else None
    return None


def _plain_time(value: Any) -> time:
    return time(value.hour, value.minute, value.second, value.microsecond, value.tzinfo, fold=value.fold)


def _plain_datetime(value: Any) -> datetime:
    return datetime.combine(date(value.year, value.month, value.day), _plain_time(value))


# A method of the base, so that a subclass cannot answer with itself. A datetime is a date too: it comes first.
_CONVERSIONS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (bytes, lambda value: bytes.__getitem__(value, slice(None))),
    (datetime, _plain_datetime),
    (date, lambda value: date(value.year, value.month, value.day)),
    (time, _plain_time),
    (timedelta, lambda value: timedelta(value.days, value.seconds, value.microseconds)),
    (Decimal, Decimal),
)


def _list_fields(of: type) -> tuple[str, ...]:
    if dataclasses.is_dataclass(of):
        return tuple(field.name for field in dataclasses.fields(of))
    if issubclass(of, msgspec.Struct):
        names: tuple[str, ...] = of.__struct_fields__
        return names
    return tuple(field.name for field in getattr(of, "__attrs_attrs__", ())) or getattr(of, "_fields", ())


# The names of the fields of a dataclass, attrs class, Struct or NamedTuple; empty: it has none, or is something else.
list_fields: Callable[[type], tuple[str, ...]] = cache(_list_fields)


def fill_in_defaults(value: Any) -> None:
    """Give decoded dataclasses the defaults that msgspec leaves to their class, and would not encode again.

    Without them the same value from Python would have another JSON text.
    """
    if type(value) in SCALARS:
        return
    if dataclasses.is_dataclass(value):
        for name in list_fields(type(value)):
            object.__setattr__(value, name, getattr(value, name))  # a frozen one too: it compares as before
    for part in list_parts(value):
        fill_in_defaults(part)


def list_parts(value: Any) -> Iterable[Any]:
    """Return the values inside of a container or of an object with fields, not of pydantic models."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, list | tuple | set | frozenset):
        return value
    return [getattr(value, name) for name in list_fields(type(value))]


def holds_unsortable_set(value: Any) -> bool:
    """Returns True if a set, however deep, has members that ``<`` does not put into one order: sets, or objects."""
    kind = type(value)
    if kind in SCALARS or isinstance(value, Enum) or is_model(kind):  # a model sorts its sets as it is dumped
        return False
    if isinstance(value, set | frozenset):
        return any(map(_is_partially_ordered, value))
    return any(type(part) not in SCALARS and holds_unsortable_set(part) for part in list_parts(value))


def _is_partially_ordered(member: Any) -> bool:
    kind = type(member)
    if kind in SCALARS or isinstance(member, Enum):  # those that cannot be compared are refused by msgspec itself
        return False
    return any(map(_is_partially_ordered, member)) if isinstance(member, tuple) else True


def sort_sets(value: Any, plain: Any, *, by_alias: bool | None = None) -> Any:
    """Return the JSON form of a value with what came from its sets in a fixed order, and with the versions of its types.

    Args:
        plain: made of ``value`` in its order, with texts as the keys of mappings.
        by_alias: how the pydantic model was dumped that holds the value; None: in none, and the models in it are sorted.
    """
    if type(plain) in (list, tuple):
        return _sort_list(value, plain, by_alias)
    if type(plain) is dict:
        if isinstance(value, dict):
            pairs: Iterator[tuple[str, Any]] = zip(plain, value.values(), strict=False)
        else:
            pairs = _pair_keys(value, by_alias)
        for key, part in pairs:
            if key in plain and type(plain[key]) in (list, tuple, dict):
                plain[key] = sort_sets(part, plain[key], by_alias=by_alias)
        if VERSIONS and (version := VERSIONS.get(get_versioned_class(type(value)))) is not None:
            plain[VERSION_KEY] = version
    elif by_alias is not None and is_model(type(value)):  # a model that is written as one of its values
        for _key, part in _pair_keys(value, by_alias):
            return sort_sets(part, plain, by_alias=by_alias)
    return plain


def _pair_keys(value: Any, by_alias: bool | None) -> Iterator[tuple[str, Any]]:
    if by_alias is not None and (pairs := pair_fields(value, by_alias=by_alias)) is not None:
        return iter(pairs)
    names = list_fields(type(value))
    keys = value.__struct_encode_fields__ if isinstance(value, msgspec.Struct) else names
    return ((key, getattr(value, name)) for key, name in zip(keys, names, strict=True))


def _sort_list(value: Any, plain: Sequence[Any], by_alias: bool | None) -> Any:
    if is_model(type(value)):
        return plain if by_alias is None else sort_sets(getattr(value, "root", None), plain, by_alias=by_alias)
    if isinstance(value, msgspec.Struct):  # written as an array, its tag first
        tag = [] if value.__struct_config__.tag is None else [None]
        parts = [*tag, *list_parts(value)]
    else:
        parts = list(value) if isinstance(value, list | tuple | set | frozenset) else []
    if len(parts) < len(plain):
        return plain
    items = [sort_sets(part, item, by_alias=by_alias) for part, item in zip(parts, plain, strict=False)]
    return _sort_members(items) if isinstance(value, set | frozenset) else items


def _sort_members(items: list[Any]) -> list[Any]:
    """Texts by their characters, numbers by their size, anything else by its JSON text."""
    kinds = set(map(type, items))
    return sorted(items) if kinds == {str} or kinds <= _NUMBERS else sorted(items, key=_encode_sorted)
