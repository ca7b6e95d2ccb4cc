"""Types to JSON and back, and what may be recorded at all. The only door for payloads, ids and error texts.

Everything that is accepted here can be recorded later on every store; what cannot is refused with its name.
"""

import json
import logging
import math
import re
import types
import typing
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import msgspec

from ..errors import DefinitionError, InvalidInput, StepError, parse_retry_after
from .payload_types import find_unreadable
from .plain_values import (
    SCALARS,
    VERSION_KEY,
    VERSIONS,
    Reference,
    add_article,
    encode_hook,
    holds_unsortable_set,
    sort_sets,
)
from .pydantic_models import is_model, load_model
from .round_trip import Check, check_untyped

logger = logging.getLogger("arriero")

PAYLOAD_BYTES_MAX = 1_000_000  # a row that size still passes every store and a history export in one piece
PAYLOAD_BYTES_WARN = 256_000
PAYLOAD_DEPTH_MAX = 100  # lists and objects in one another: a tenth of what stops the interpreter and its JSON readers
ID_LENGTH_MAX = 255
TEXT_LENGTH_MAX = 4_000  # of an error text: enough to find the cause, small enough for a row of history


def _to_user_type(wanted: type, value: Any) -> Any:
    if is_model(wanted):
        return load_model(wanted, value)
    of = typing.get_origin(wanted) or wanted
    if isinstance(of, type) and issubclass(of, Reference):
        return of.read_plain(value)
    raise NotImplementedError(f"{wanted!r} cannot be made from JSON; use a dataclass, msgspec.Struct or pydantic model")


_encoder = msgspec.json.Encoder(enc_hook=encode_hook, order="deterministic")


def encode(value: Any, what: str, *, may_hold_unsortable_set: bool = True) -> str:
    """Canonical JSON text of ``value``: the same in every process.

    Args:
        value: anything msgspec encodes by type, pydantic models, and subclasses of texts and numbers.
        what: names the value in errors, for example ``result of charge``.
        may_hold_unsortable_set: False if its type shows that no set in it needs a closer look.
    Raises: InvalidInput - no JSON form, over the size or depth limit, NaN or infinity, a NUL or a lone surrogate.
    """
    if value is None:
        return "null"
    try:
        try:
            data = _encoder.encode(value)
        except TypeError:  # it sorts only mappings whose keys are texts, and sets whose members can be compared
            data = _encode_in_order(value, what)
        else:
            is_plain = not (VERSIONS and _load_upcasts().holds_versioned(value))
            if may_hold_unsortable_set and is_plain and (b"[[" in data or b"[{" in data):
                is_plain = not holds_unsortable_set(value)
            if not is_plain:
                data = _encode_in_order(value, what)
        if data.count(b"[") + data.count(b"{") > PAYLOAD_DEPTH_MAX:  # else it cannot be so deep
            refuse_deep(data, what)
        # The encoder writes NaN as null and NUL as an escape: only texts that hold either are looked at closely.
        if b"null" in data or b"\\u0000" in data:
            _refuse_what_stores_refuse(msgspec.to_builtins(value, enc_hook=encode_hook), what)
        text = data.decode()
    except InvalidInput:
        raise
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{what} holds a lone surrogate ({error.object[error.start]!a}), which is not text: remove it, or encode as base64"
        ) from error
    except RecursionError as error:
        raise InvalidInput(
            f"{what} is nested more than {PAYLOAD_DEPTH_MAX} levels deep, or holds itself: {_FLATTEN}"
        ) from error
    except (TypeError, NotImplementedError, ValueError, OverflowError) as error:
        raise InvalidInput(f"{what} cannot be recorded: {_read_text(error)}") from error
    except BaseException as error:  # raised by the value's own type, as it was asked for its fields
        _reraise_interrupt(error)
        raise InvalidInput(f"{what} cannot be recorded: {error_text(error)}") from error
    if len(data) > PAYLOAD_BYTES_WARN:
        _check_size(len(data), what)
    return text


@cache
def _load_upcasts() -> Any:
    from . import upcasts  # only where a type has versions, or a record

    return upcasts


def _reraise_interrupt(error: BaseException) -> None:
    """Whatever a user's type raises is its failure, also SystemExit; only Ctrl-C is the process's own."""
    if isinstance(error, KeyboardInterrupt):
        raise error


def encode_untyped(value: Any, what: str) -> str:
    """Encode a value that is read as plain JSON. Raises InvalidInput - as ``encode``; a pydantic model drops or masks a field."""
    text = encode(value, what)
    if type(value) not in SCALARS:
        refuse_difference(what, check_untyped, value, None)
    return text


def refuse_differences(what: str, checks: Mapping[str, Check], sent: Mapping[str, Any], back: Any) -> None:
    """Compare values with what was read back, by their names. ``back``: has them as attributes. Raises InvalidInput."""
    try:
        found = (checks[name](value, getattr(back, name), name) for name, value in sent.items())
        why = next(filter(None, found), None)
    except BaseException as error:  # raised by the value's own type, as it was asked for its fields
        _reraise_interrupt(error)
        why = f"a value cannot be compared with what was read back: {error_text(error)}"
    if why is not None:
        raise InvalidInput(f"{what}: {why}")


def refuse_difference(what: str, check: Check, sent: Any, back: Any) -> None:
    """Compare one value with what was read back. Raises InvalidInput - they differ."""
    try:
        why = check(sent, back, "it")
    except BaseException as error:
        _reraise_interrupt(error)
        why = f"it cannot be compared with what was read back: {error_text(error)}"
    if why is not None:
        raise InvalidInput(f"{what}: {why}")


def _encode_in_order(value: Any, what: str) -> bytes:
    """Numbers, enums and UUIDs that are keys of mappings become texts, and all sets are sorted."""
    plain = msgspec.to_builtins(value, enc_hook=encode_hook)
    _refuse_what_stores_refuse(plain, what)
    with_texts = msgspec.to_builtins(plain, str_keys=True)
    if _count_keys(plain) != _count_keys(with_texts):
        raise InvalidInput(f"{what} has a mapping with two keys that are the same text in JSON") from None
    return _encoder.encode(sort_sets(value, with_texts))


def _count_keys(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_count_keys, value.values()))
    return sum(map(_count_keys, value)) if isinstance(value, list | tuple) else 0


def _check_size(size: int, what: str) -> None:
    if size > PAYLOAD_BYTES_MAX:
        raise InvalidInput(
            f"{what} has {size:,} bytes; the limit is {PAYLOAD_BYTES_MAX:,}: keep large data elsewhere and pass its address"
        )
    logger.warning("%s has %s bytes; over %s a payload slows its task down", what, size, PAYLOAD_BYTES_WARN)


# The closing quote may be missing: a pattern that must find one tries each quote of a foreign text as a beginning.
_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DEEPER = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_FLATTEN = "flatten it, or keep it elsewhere and pass its address"


def measure_depth(data: bytes) -> int:
    """Nesting depth of the lists and objects in a JSON text; computed without recursion.

    0: it is a single number, text, true, false or null. What is not JSON has some depth, too; its reader says.
    """
    brackets = _TEXTS.sub(b"", data).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_DEEPER.__getitem__, brackets)), default=0)


def refuse_deep(data: bytes, what: str) -> None:
    """The one limit for every payload, at every door. Raises InvalidInput - the JSON text is nested too deep."""
    if measure_depth(data) > PAYLOAD_DEPTH_MAX:
        raise InvalidInput(f"{what} is nested more than {PAYLOAD_DEPTH_MAX} levels deep: {_FLATTEN}")


def _refuse_what_stores_refuse(value: Any, what: str) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(f"{what} holds {value!r}, which JSON does not know: use None or a text")
    elif isinstance(value, str):
        if "\0" in value:
            raise InvalidInput(
                f"{what} holds a NUL character, which PostgreSQL refuses: remove it or encode it as base64"
            )
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_what_stores_refuse(key, what)
            _refuse_what_stores_refuse(item, what)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            _refuse_what_stores_refuse(item, what)


def _show_type(of: Any) -> str:
    return of.__qualname__ if isinstance(of, type) and not typing.get_args(of) else repr(of)


def _explain_remedy(of: Any) -> str:
    if typing.get_origin(of) in (typing.Union, types.UnionType):
        return (
            "Give the alternatives a tag (msgspec.Struct, tag=True), or wrap them in one dataclass with optional fields"
        )
    return "Give a dataclass, a msgspec.Struct or a pydantic model with the values that are needed"


def decoder(of: Any, what: str, *, may_refer: bool = False) -> Callable[[str], Any]:
    """A function from JSON text to the type ``of``. ``may_refer``: also to one with a ``Reference`` in it.

    Raises: DefinitionError - the type cannot be distinguished in JSON, or is not known. The function itself raises
    InvalidInput for text that does not fit the type.
    """
    try:
        decode = msgspec.json.Decoder(of, dec_hook=_to_user_type).decode
        unreadable = find_unreadable(of, may_refer=may_refer)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DefinitionError(
            f"{what} has the type {_show_type(of)}, which cannot be read back from JSON: {error}. {_explain_remedy(of)}"
        ) from error

    if isinstance(unreadable, type) and issubclass(unreadable, Reference):
        name = unreadable.__name__
        why = f"only a step takes a {name}, as an argument from workflow code"
        if may_refer:
            why = f"a pydantic model cannot hold a {name}: use a dataclass or a msgspec.Struct"
        raise DefinitionError(f"{what} has the type {_show_type(of)}: {why}")
    if unreadable is not None:
        which = "which" if unreadable is of else f"and {_show_type(unreadable)}"
        raise DefinitionError(
            f"{what} has the type {_show_type(of)}, {which} cannot be read back from JSON: use Any, a dataclass, a msgspec.Struct"
            " or a pydantic model"
        )

    reader = VersionReader(of)

    def read(text: str) -> Any:
        called: Sequence[str] = ()
        try:
            if VERSIONS or _VERSION in text:
                text, called = reader.lift(text)
            return decode(text)
        except InvalidInput as error:  # of an upcast
            raise InvalidInput(f"{what}: {error}") from error
        except (msgspec.MsgspecError, ValueError, TypeError, NotImplementedError) as error:
            after = f"; it was read after {' and '.join(called)}" if called else ""
            raise InvalidInput(f"{what}: {_read_text(error)}{after}") from error
        except BaseException as error:  # raised by a type's own __post_init__ or validator
            _reraise_interrupt(error)
            raise InvalidInput(f"{what}: {error_text(error)}") from error

    return read


_VERSION = f'"{VERSION_KEY}"'


class VersionReader:
    """Brings JSON text of a declared type to the versions that the code has today. Types declare them later than their readers."""

    def __init__(self, of: Any) -> None:
        self._of = of
        self._known: tuple[int, Any] = (-1, None)  # the number of types with versions, and the way to them

    def lift(self, text: str) -> tuple[str, Sequence[str]]:
        """Return the text that msgspec reads, and the upcasts that were called. Raises InvalidInput."""
        upcasts, count = _load_upcasts(), len(VERSIONS)
        known, reading = self._known
        if known != count:
            reading = upcasts.build_reading(self._of)
            self._known = count, reading
        if not reading.holds_version and _VERSION not in text:
            return text, ()
        lifted: tuple[str, Sequence[str]] = upcasts.lift_text(reading, text, encode)
        return lifted


def check_id(value: object, what: str) -> str:
    """Check an id of the user's: 1 to 255 characters, no control characters, no lone surrogates. Raises InvalidInput."""
    if not isinstance(value, str):
        raise InvalidInput(f"{what} is {value!r}; it must be a text of 1 to {ID_LENGTH_MAX} characters")
    if not 1 <= len(value) <= ID_LENGTH_MAX:
        raise InvalidInput(f"{what} has {len(value)} characters; it must have 1 to {ID_LENGTH_MAX}")
    for character in value:
        if unicodedata.category(character) in ("Cc", "Cs"):
            raise InvalidInput(f"{what} {value!r} holds the character {character!a}; control characters are refused")
    return value


def recordable_text(text: str) -> str:
    """An error text in a form every store takes: lone surrogates and NULs are shown as escapes, a long one is cut.

    An error must never be lost because of how its text is spelled, so this one function repairs it visibly instead of refusing it.
    """
    shown = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    if len(shown) <= TEXT_LENGTH_MAX:
        return shown
    mark = f" [cut, {len(shown):,} characters]"  # within the limit, so that a text that passes twice is cut once
    return shown[: TEXT_LENGTH_MAX - len(mark)] + mark


def error_text(error: BaseException) -> str:
    """An exception as recordable text: its type, and what it says if it says anything."""
    text = _read_text(error)
    return recordable_text(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _read_text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:
        _reraise_interrupt(broken)
        return f"(its text cannot be made: {type(broken).__name__})"


class StepErrorFields(msgspec.Struct, frozen=True):
    """The fields of a Transient or Permanent, in recordable form. ``retry_after``: seconds; None: it asks for none."""

    message: str
    code: str
    details: Any
    retry_after: float | None
    unavailable: bool = False
    public: str = ""


def step_error_fields(error: StepError) -> StepErrorFields:
    """Read a step's error, whatever a subclass made of it. Raises nothing: a failure must not get lost.

    A subclass whose ``__init__`` does not call the base's has no message of its own; its type and arguments stand in.
    """
    return StepErrorFields(
        message=recordable_text(_text_field(error, "message") or error_text(error)),
        code=recordable_text(_text_field(error, "code")),
        details=recordable_details(_field(error, "details")),
        retry_after=_retry_after(error),
        unavailable=_field(error, "unavailable") is True,
        public=recordable_text(_text_field(error, "public")),
    )


def _field(error: StepError, name: str) -> Any:
    try:
        return getattr(error, name, None)
    except BaseException as broken:
        _reraise_interrupt(broken)
        return None


def _text_field(error: StepError, name: str) -> str:
    value = _field(error, name)
    return "" if value is None else value if type(value) is str else _show_value(value)


def _retry_after(error: StepError) -> float | None:
    try:
        return parse_retry_after(_field(error, "retry_after"))
    except BaseException as broken:  # no number: the policy's own delay holds
        _reraise_interrupt(broken)
        return None


def recordable_details(details: Any) -> Any:
    """Error details as plain JSON values; what has no JSON form is shown as text, marked ``unrecordable``."""
    if details is None:
        return None
    try:
        return msgspec.json.decode(encode(details, "details"))
    except (InvalidInput, msgspec.MsgspecError) as refusal:  # a msgspec.Raw may hold what is not JSON
        return {"unrecordable": _show_value(details), "why": recordable_text(str(refusal))}


def _show_value(value: Any) -> str:
    try:
        return recordable_text(repr(value))
    except BaseException as broken:  # also of a number with more digits than Python shows
        _reraise_interrupt(broken)
        return add_article(type(value).__qualname__)


# A text with the colon of a key after it, or a bracket. Each character is read one time: nothing is given back.
_find_tokens = re.compile(rb'("(?:[^"\\]++|\\.)*+")(\s*+:)?|[\[\]{}]', re.DOTALL).finditer
_find_numbers = re.compile(rb'"(?:[^"\\]++|\\.)*+"|-?[0-9][0-9.]*+(?:[eE][+-]?[0-9]++)?+|,', re.DOTALL).finditer
# Numbers that could be out of range have 300 digits, or three in their exponent. A text may look like one, too.
_find_large_number = re.compile(rb"[0-9.](?:[0-9.]{299}|[eE]\+?[0-9]{3})").search
_find_nul = re.compile(rb"(?<!\\)(?:\\\\)*+\\u0000").search
_read = msgspec.json.Decoder(msgspec.Raw).decode
_WINDOW_BYTES = 64 * 1024
_OVERLAP_BYTES = 512  # more than the pattern of a large number needs
_KEY_SHOWN = 100  # characters of a key in a refusal: it is not as long as the text
_WHOLE_LENGTH_MAX = 4_300  # of a whole number with its sign, as msgspec reads it
_QUOTE, _OPEN_LIST, _OPEN_OBJECT = b'"[{'


class DuplicateKey(Exception):
    """A key stands twice in one object. ``args``: the key."""


def refuse_doubtful_json(data: bytes, what: str) -> None:
    """Refuse JSON that could be read in two ways, or that no store keeps.

    Raises: InvalidInput - it is not JSON; it is nested too deep; a key stands twice in one object; a text holds NUL or a lone
        surrogate; a number is NaN or infinite.
    """
    try:
        # It reads the whole text, and refuses lone surrogates. What a text means is not asked: no object is built.
        _read(data)
        data.decode()
        _check_objects(data, what)
        _check_numbers(data)
    except DuplicateKey as error:
        key = error.args[0]
        shown = key if len(key) <= _KEY_SHOWN else f"{key[:_KEY_SHOWN]}..."
        raise InvalidInput(f"{what} has the key {shown!r} twice; leave one of them out") from None
    except (ValueError, RecursionError) as error:
        _refuse_deep(data, what)
        raise InvalidInput(f"{what} is not JSON: {error}") from error
    if b"\\u0000" in data and _find_nul(data):
        raise InvalidInput(f"{what} holds a NUL character, which PostgreSQL refuses: remove it")


def _check_objects(data: bytes, what: str) -> None:
    """Refuse a key that stands twice in an object of a JSON text, and too many levels. Raises DuplicateKey, InvalidInput."""
    outer: list[set[bytes]] = []
    keys: set[bytes] = set()
    for found in _find_tokens(data):
        first = data[found.start()]
        if first == _QUOTE:
            if found.lastindex == 2:
                key = (
                    found[1] if b"\\" not in found[1] else json.dumps(json.loads(found[1]), ensure_ascii=False).encode()
                )
                known = len(keys)
                keys.add(key)
                if len(keys) == known:
                    raise DuplicateKey(json.loads(key))
        elif first in (_OPEN_LIST, _OPEN_OBJECT):
            outer.append(keys)
            keys = set()
            if len(outer) > PAYLOAD_DEPTH_MAX:
                refuse_deep(data[: found.end()], what)
        else:
            keys = outer.pop()


def _refuse_deep(data: bytes, what: str) -> None:
    """Refuse what is not JSON, perhaps because it has too many levels. Only its beginning is measured. Raises InvalidInput."""
    depth = 0
    for found in _find_tokens(data):
        first = data[found.start()]
        if first != _QUOTE:
            depth += 1 if first in (_OPEN_LIST, _OPEN_OBJECT) else -1
        if depth > PAYLOAD_DEPTH_MAX:
            refuse_deep(data[: found.end()], what)
            return


def _check_numbers(data: bytes) -> None:
    """Refuse a number that a store or a program would read as infinite. Raises ValueError."""
    starts = range(0, len(data), _WINDOW_BYTES)
    if not any(_find_large_number(data, start, start + _WINDOW_BYTES + _OVERLAP_BYTES) for start in starts):
        return
    for found in _find_numbers(data):
        text = found[0]
        if text[0] in b'",':
            continue
        is_whole = text.removeprefix(b"-").isdigit()
        if (is_whole and len(text) > _WHOLE_LENGTH_MAX) or (not is_whole and math.isinf(float(text))):
            raise ValueError("a number is out of range")
