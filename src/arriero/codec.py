"""Types to JSON and back, and what may be recorded at all. The only door for payloads, ids and error texts.

Everything that is accepted here can be recorded later on every store; what cannot is refused with its name.
"""

import logging
import math
import re
import unicodedata
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import msgspec

from .errors import DefinitionError, InvalidInput, StepError, parse_retry_after

logger = logging.getLogger("arriero")

PAYLOAD_BYTES_MAX = 1_000_000  # a row that size still passes every store and a history export in one piece
PAYLOAD_BYTES_WARN = 256_000
PAYLOAD_DEPTH_MAX = 100  # lists and objects in one another: a tenth of what stops the interpreter and its JSON readers
ID_LENGTH_MAX = 255
TEXT_LENGTH_MAX = 4_000  # of an error text: enough to find the cause, small enough for a row of history


def add_article(name: str) -> str:
    """``an object``, ``a text``."""
    return f"{'an' if name[:1].lower() in tuple('aeiou') else 'a'} {name}"


def _from_user_type(value: Any) -> Any:
    """Encode what msgspec does not know: pydantic models, which say themselves what they are in JSON."""
    dump = getattr(type(value), "model_dump", None)
    if dump is not None:
        return dump(value, mode="json")
    raise NotImplementedError(
        f"{add_article(type(value).__qualname__)} has no JSON form; use a dataclass, msgspec.Struct or pydantic model"
    )


def _to_user_type(wanted: type, value: Any) -> Any:
    validate = getattr(wanted, "model_validate", None)
    if validate is not None:
        return validate(value)
    raise NotImplementedError(f"{wanted!r} cannot be made from JSON; use a dataclass, msgspec.Struct or pydantic model")


_encoder = msgspec.json.Encoder(enc_hook=_from_user_type, order="deterministic")


def encode(value: Any, what: str) -> str:
    """Canonical JSON text of ``value``.

    Args:
        value: anything msgspec encodes by type, and pydantic models.
        what: names the value in errors, for example ``result of charge``.
    Raises: InvalidInput - no JSON form, over the size or depth limit, NaN or infinity, a NUL or a lone surrogate.
    """
    if value is None:
        return "null"
    try:
        try:
            data = _encoder.encode(value)
        except TypeError:  # it sorts only mappings whose keys are texts
            data = _encode_with_text_keys(value, what)
        if data.count(b"[") + data.count(b"{") > PAYLOAD_DEPTH_MAX:  # else it cannot be so deep
            refuse_deep(data, what)
        # The encoder writes NaN as null and NUL as an escape: only texts that hold either are looked at closely.
        if b"null" in data or b"\\u0000" in data:
            _refuse_what_stores_refuse(msgspec.to_builtins(value, enc_hook=_from_user_type), what)
        text = data.decode()
    except InvalidInput:
        raise
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{what} holds a lone surrogate ({error.object[error.start]!a}), which is no text: remove it, or encode as base64"
        ) from error
    except RecursionError as error:
        raise InvalidInput(
            f"{what} is nested too deep, or holds itself; the limit is {PAYLOAD_DEPTH_MAX} levels: {_FLATTEN}"
        ) from error
    except (TypeError, NotImplementedError, ValueError, OverflowError) as error:
        raise InvalidInput(f"{what} cannot be recorded: {_read_text(error)}") from error
    except BaseException as error:  # raised by the value's own type, as it was asked for its fields
        _reraise_interrupt(error)
        raise InvalidInput(f"{what} cannot be recorded: {error_text(error)}") from error
    if len(data) > PAYLOAD_BYTES_WARN:
        _check_size(len(data), what)
    return text


def _reraise_interrupt(error: BaseException) -> None:
    """Whatever a user's type raises is its failure, also SystemExit; only Ctrl-C is the process's own."""
    if isinstance(error, KeyboardInterrupt):
        raise error


def _encode_with_text_keys(value: Any, what: str) -> bytes:
    """Numbers, enums and UUIDs that are keys of mappings become texts."""
    plain = msgspec.to_builtins(value, enc_hook=_from_user_type)
    _refuse_what_stores_refuse(plain, what)
    with_texts = msgspec.to_builtins(plain, str_keys=True)
    if _count_keys(plain) != _count_keys(with_texts):
        raise InvalidInput(f"{what} has a mapping with two keys that are the same text in JSON") from None
    return _encoder.encode(with_texts)


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


_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DEEPER = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_FLATTEN = "flatten it, or keep it elsewhere and pass its address"


def measure_depth(data: bytes) -> int:
    """Nesting depth of the lists and objects in a JSON text; computed without recursion.

    0: it is a single number, text, true, false or null. What is no JSON has some depth, too; its reader tells.
    """
    brackets = _TEXTS.sub(b"", data).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_DEEPER.__getitem__, brackets)), default=0)


def refuse_deep(data: bytes, what: str) -> None:
    """The one limit for every payload, at every door. Raises InvalidInput - the JSON text is nested too deep."""
    depth = measure_depth(data)
    if depth > PAYLOAD_DEPTH_MAX:
        raise InvalidInput(f"{what} is nested {depth} levels deep; the limit is {PAYLOAD_DEPTH_MAX}: {_FLATTEN}")


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


def decoder(of: Any, what: str) -> Callable[[str], Any]:
    """A function from JSON text to the type ``of``.

    Raises: DefinitionError - the type cannot be told apart in JSON, or is not known. The function itself raises
    InvalidInput for text that does not fit the type.
    """
    try:
        decode = msgspec.json.Decoder(of, dec_hook=_to_user_type).decode
        unreadable = _find_unreadable(msgspec.inspect.type_info(of), set())
    except (TypeError, ValueError, RuntimeError) as error:
        raise DefinitionError(
            f"{what} has the type {of!r}, which cannot be read back from JSON: {error}. Give the alternatives a tag "
            "(msgspec.Struct, tag=True), or wrap them in one dataclass with optional fields"
        ) from error

    if unreadable is not None:
        raise DefinitionError(
            f"{what} has the type {of!r}, and {unreadable!r} cannot be read back from JSON: use Any, a dataclass, a msgspec.Struct"
            " or a pydantic model"
        )

    def read(text: str) -> Any:
        try:
            return decode(text)
        except (msgspec.MsgspecError, ValueError, TypeError, NotImplementedError) as error:
            raise InvalidInput(f"{what}: {_read_text(error)}") from error
        except BaseException as error:  # raised by a type's own __post_init__ or validator
            _reraise_interrupt(error)
            raise InvalidInput(f"{what}: {error_text(error)}") from error

    return read


def _find_unreadable(info: Any, seen: set[int]) -> Any:
    """The type in it, however deep, that ``_to_user_type`` can make nothing of; None: there is none."""
    if id(info) in seen:  # a type that holds itself
        return None
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
        return None if hasattr(info.cls, "model_validate") else info.cls
    parts = info if isinstance(info, tuple) else msgspec.structs.asdict(info).values()
    for part in parts:
        if isinstance(part, msgspec.inspect.Type | msgspec.inspect.Field | tuple):
            found = _find_unreadable(part, seen)
            if found is not None:
                return found
    return None


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
    except (InvalidInput, msgspec.MsgspecError) as refusal:  # a msgspec.Raw may hold what is no JSON
        return {"unrecordable": _show_value(details), "why": recordable_text(str(refusal))}


def _show_value(value: Any) -> str:
    try:
        return recordable_text(repr(value))
    except BaseException as broken:  # also of a number with more digits than Python shows
        _reraise_interrupt(broken)
        return add_article(type(value).__qualname__)
