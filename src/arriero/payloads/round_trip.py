"""Comparison of a value with what was read back from its JSON text. A difference is named with its field and the remedy.

For most types ``==`` decides, and only values that are not equal are looked through.
"""

import warnings
from collections.abc import Callable, Iterable
from datetime import datetime, time
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any

import msgspec
from msgspec import inspect

from .payload_types import SEQUENCES, WITH_FIELDS, Equality, build_equality, is_exact, unwrap
from .plain_values import EXACT_SCALARS, SCALARS, VERSION_KEY, Reference, add_article, list_fields, to_plain_scalar
from .pydantic_models import dump_model, is_model, list_model_fields, load_model

# Given the value, what was read back, and the name of the value: what differs and the remedy; None if nothing does.
Check = Callable[[Any, Any, str], str | None]

_JSON_SCALARS = (str, int, float, bool)


def build_check(of: Any) -> Check:
    """Build the comparison for a declared type. ``of``: one that msgspec decodes."""
    info = unwrap(inspect.type_info(of))
    return partial(_check_exact, info) if is_exact(info) else partial(_check, build_equality(info), info)


def check_untyped(value: Any, _back: Any, name: str) -> str | None:
    """Check a value that is read as plain JSON: only what its own type does not write is refused."""
    kind = type(value)
    if kind in SCALARS or isinstance(value, Enum):
        return None
    if is_model(kind):
        return _compare_models(value, load_model(kind, dump_model(value).plain), name)
    if isinstance(value, Reference):
        of = kind.__name__
        return f"{name} is {add_article(of)}: annotate the step's parameter with {of}; nothing else takes one"
    if isinstance(value, dict):
        pairs: Iterable[tuple[str, Any]] = ((f"{name}[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        pairs = ((f"{name}[{number}]", part) for number, part in enumerate(value))
    else:
        pairs = ((f"{name}.{field}", getattr(value, field)) for field in list_fields(kind))
    for path, part in pairs:
        if type(part) not in SCALARS and (why := check_untyped(part, None, path)) is not None:
            return why
    return None


def check_unannotated(what: str, value: Any, back: Any, name: str) -> str | None:
    """Check a value that the code gives no type: warn if its own type gets lost. ``what``: names it in the warning."""
    if not isinstance(value, dict | list | tuple | Enum | None | str | int | float):
        kind = type(value).__name__
        warnings.warn(
            f"{what} has no type in the code, so {add_article(kind)} arrives as plain JSON: annotate it with {kind}, or with Any if that"
            " is meant",
            stacklevel=2,
        )
    return check_untyped(value, back, name)


# --- comparison
def _check_exact(info: inspect.Type, sent: Any, back: Any, name: str) -> str | None:
    return None if type(sent) is type(back) and sent == back else _compare(info, sent, back, name)


def _check(is_equal: Equality, info: inspect.Type, sent: Any, back: Any, name: str) -> str | None:
    return None if is_equal(sent, back) else _compare(info, sent, back, name)


def _compare(info: inspect.Type | None, sent: Any, back: Any, name: str) -> str | None:
    """Compare as a ``Check``. ``info``: the declared type, None inside of a pydantic model: it has checked its values."""
    if type(sent) in EXACT_SCALARS and type(sent) is type(back) and sent == back:
        return None
    info = _choose(info, back)
    if isinstance(info, inspect.AnyType):
        return None if sent == back and type(sent) is type(back) else check_untyped(sent, back, name)
    kind = type(back)
    if is_model(kind):
        return None if isinstance(sent, dict) else _compare_models(sent, back, name)
    if kind in SCALARS or isinstance(back, Enum):
        return None if _is_same_scalar(sent, back) else _explain(sent, back, name)
    if isinstance(back, dict):
        return _compare_mappings(info, sent, back, name)
    if isinstance(back, set | frozenset):
        return _compare_sets(info, sent, back, name)
    if isinstance(back, list | tuple) and not list_fields(kind):
        return _compare_sequences(info, sent, back, name)
    if list_fields(kind):
        return _compare_fields(info, sent, back, name)
    return None if type(sent) is kind and sent == back else _explain(sent, back, name)


def _choose(info: inspect.Type | None, back: Any) -> inspect.Type | None:
    """The member of a union that was read. None: the type is not known."""
    if info is None:
        return None
    info = unwrap(info)
    if not isinstance(info, inspect.UnionType):
        return info
    members = list(map(unwrap, info.types))
    return next((one for one in members if _is_of(one, back)), None)


def _is_of(info: inspect.Type, back: Any) -> bool:
    if isinstance(info, (*WITH_FIELDS, inspect.CustomType)):
        return isinstance(back, getattr(info.cls, "__origin__", info.cls))
    if isinstance(info, inspect.DictType | inspect.TypedDictType):
        return isinstance(back, dict)
    if isinstance(info, inspect.SetType | inspect.FrozenSetType):
        return isinstance(back, set | frozenset)
    if isinstance(info, inspect.ListType | inspect.VarTupleType | inspect.TupleType):
        return isinstance(back, list | tuple)
    return isinstance(info, inspect.AnyType)


def _compare_sequences(info: inspect.Type | None, sent: Any, back: Any, name: str) -> str | None:
    """A list and a tuple are the same: ``Sequence`` is read as a list."""
    if not isinstance(sent, list | tuple) or len(sent) != len(back):
        return _explain(sent, back, name)
    if isinstance(info, inspect.TupleType):
        items: Iterable[inspect.Type | None] = info.item_types
    else:
        items = [info.item_type if isinstance(info, SEQUENCES) else None] * len(back)
    for number, (item, one, other) in enumerate(zip(items, sent, back, strict=True)):
        if (why := _compare(item, one, other, f"{name}[{number}]")) is not None:
            return why
    return None


def _compare_sets(info: inspect.Type | None, sent: Any, back: Any, name: str) -> str | None:
    if isinstance(sent, list):  # its JSON form, as operators write it
        return None if len(sent) == len(back) else f"{name} names a member of its set twice: leave one out"
    if not isinstance(sent, set | frozenset) or sent != back:
        return _explain(sent, back, name)
    item = info.item_type if isinstance(info, inspect.SetType | inspect.FrozenSetType) else None
    read = {member: member for member in back}
    for member in sent:
        if (why := _compare(item, member, read[member], f"a member of {name}")) is not None:
            return why
    return None


def _compare_mappings(info: inspect.Type | None, sent: Any, back: dict[Any, Any], name: str) -> str | None:
    if not isinstance(sent, dict):
        return _explain(sent, back, name)
    fields = _list_field_types(info)
    key_type, inner = (info.key_type, info.value_type) if isinstance(info, inspect.DictType) else (None, None)
    if len(sent) != len(back) and not fields:
        return f"{name} has two keys that are the same when they are read back: use keys of the declared type"
    for key, part in sent.items():
        read = key if type(key) is str and key in back else _find_key(back, key)
        if read is None:
            return f"{name} has the key {key!r}, which its type does not have: declare it, or leave it out"
        if type(key) is not str and (why := _compare(key_type, key, read, f"a key of {name}")) is not None:
            return why
        if (why := _compare(fields.get(read, inner), part, back[read], f"{name}[{key!r}]")) is not None:
            return why
    return None


def _find_key(back: dict[Any, Any], key: Any) -> Any:
    """The key that was read for one that was given: by its text, since equal times may be written in two ways."""
    text = _get_key_text(key)
    return next((read for read in back if _get_key_text(read) == text), None)


def _get_key_text(key: Any) -> Any:
    return next(iter(msgspec.to_builtins({key: None}, str_keys=True, enc_hook=to_plain_scalar)))


def _list_field_types(info: inspect.Type | None) -> dict[str, inspect.Type]:
    fields = getattr(info, "fields", ())
    return {field.name: field.type for field in fields}


def _compare_fields(info: inspect.Type | None, sent: Any, back: Any, name: str) -> str | None:
    kind = type(back)
    types = _list_field_types(info)
    if type(sent) is kind:
        names = list_fields(kind)
        parts = [(field, getattr(sent, field), getattr(back, field)) for field in names]
    elif isinstance(sent, dict) and info is not None:  # its JSON form, as operators write it
        by_key = {field.encode_name: field.name for field in getattr(info, "fields", ())}
        tag = getattr(info, "tag_field", None)
        if unknown := [key for key in sent if key not in by_key and key not in (tag, VERSION_KEY)]:
            return f"{name} has the key {unknown[0]!r}, which {_get_name(kind)} does not have: leave it out"
        parts = [(by_key[key], part, getattr(back, by_key[key])) for key, part in sent.items() if key in by_key]
    elif isinstance(back, tuple) and isinstance(sent, list | tuple) and len(sent) == len(back):
        parts = list(zip(list_fields(kind), sent, back, strict=True))
    else:
        return _explain(sent, back, name)
    for field, one, other in parts:
        if (why := _compare(types.get(field), one, other, f"{name}.{field}")) is not None:
            return why
    return None


def _compare_models(sent: Any, back: Any, name: str) -> str | None:
    if _get_origin(type(sent)) is not _get_origin(type(back)):
        return _explain(sent, back, name)
    for field, is_excluded, is_json in list_model_fields(type(sent)):
        one, other = getattr(sent, field, None), getattr(back, field, None)
        if one is other:
            continue
        compare = check_untyped if is_json and not is_excluded else partial(_compare, None)
        why = compare(one, other, f"{name}.{field}")
        if why is not None and is_excluded:
            return (
                f"{name}.{field} has exclude=True and is not recorded: remove that, or leave the field at its default"
            )
        if why is not None:
            return why
    extra, other_extra = (getattr(one, "__pydantic_extra__", None) or {} for one in (sent, back))
    if missing := extra.keys() - other_extra.keys():
        return f"{name}.{min(missing)} is not read back: declare it as a field of {_get_name(type(sent))}"
    return None


def _get_origin(of: Any) -> Any:
    return (getattr(of, "__pydantic_generic_metadata__", None) or {}).get("origin") or of


def _is_same_scalar(sent: Any, back: Any) -> bool:
    if isinstance(back, datetime | time) and isinstance(sent, type(back)):
        return _is_same_time(sent, back)
    if isinstance(back, Decimal) and isinstance(sent, Decimal):
        return sent.as_tuple() == back.as_tuple()  # also of one that is not a number
    if type(sent) in _JSON_SCALARS and not isinstance(back, _JSON_SCALARS):
        return True  # its JSON form, as operators write it: "2026-01-02" for a date
    if isinstance(sent, type(back)) or (isinstance(sent, int | float) and isinstance(back, int | float)):
        return bool(sent == back)
    if type(sent) in _JSON_SCALARS or type(sent) in SCALARS or isinstance(sent, Enum):
        return isinstance(sent, bytes | bytearray) and isinstance(back, bytes | bytearray) and sent == back
    if isinstance(sent, bytearray | memoryview):
        return isinstance(back, bytes) and bytes(sent) == back
    try:
        plain = to_plain_scalar(sent)
    except NotImplementedError:
        return False
    return _is_same_scalar(plain, back)


def _is_same_time(sent: Any, back: Any) -> bool:
    """The offset is recorded, not the name of the zone; without a zone, nothing says which of two equal times it is."""
    if sent.tzinfo is None or back.tzinfo is None:
        return bool(sent.tzinfo is back.tzinfo and sent == back and sent.fold == back.fold)
    naive = sent.replace(tzinfo=None, fold=0) == back.replace(tzinfo=None, fold=0)
    return bool(naive and sent.utcoffset() is not None and sent.utcoffset() == back.utcoffset())


# --- explanation
def _explain(sent: Any, back: Any, name: str) -> str:
    """Describe what differs, and the remedy, without the values: one of them may be a secret."""
    one, other = _get_name(type(sent)), _get_name(type(back))
    if hasattr(sent, "get_secret_value"):
        return f"{name} is {add_article(one)}, which is recorded as a mask: give the name of the secret, and look it up in the step"
    if isinstance(sent, datetime | time) and type(sent) is type(back):
        return f"{name} does not come back from JSON as the same time: give it a time zone with an offset of whole minutes, like UTC"
    if one == other:
        return f"{name} does not come back from JSON as it was: {add_article(one)} must be read as it is written"
    lost = [field for field in _list_names(sent) if field not in _list_names(back)]
    without = f" without {', '.join(lost)}" if lost and _list_names(back) else ""
    return (
        f"{name} is {add_article(one)}, which is read back as {add_article(other)}{without}: declare its type as {one}, or convert"
        " it"
    )


def _list_names(value: Any) -> tuple[str, ...]:
    kind = type(value)
    return tuple(kind.model_fields) if is_model(kind) else list_fields(kind)


def _get_name(of: Any) -> str:
    name: str = getattr(of, "__qualname__", "") or repr(of)
    return name.rpartition("<locals>.")[2]
