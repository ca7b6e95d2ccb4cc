"""Plain data: what others send to a running task, and the names of the waits that take it.

A wait is a row of the step table of the kind ``timer``: it ends when its time comes, or when a signal for it comes before.
Values are JSON text.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from . import SignalRow, StepKind, StepRow

VALUE_BYTES_MAX = 100_000  # of one signal: a message, not a file
INBOX_MAX = 1_000  # signals of one task that none of its waits has taken
INBOX_BYTES_MAX = 4_000_000  # of their values together: they are read whenever a process takes the task up
SIGNALS_MAX = 100_000  # of one task, taken or not

WaitKind = Literal["signal", "request", "callback", "question"]  # what a wait waits for
REPLY = "reply"  # the row of a reply to a request
PATCH = "patch"  # the row that says that a task runs with a patch of its code
TIMER_NAME = "sleep"  # of a timer that waits for its time alone

SET_ASIDE = 0  # as ``SignalRow.step``: its value does not fit what the code waits for
PASSED_ON = -1  # as ``SignalRow.step``: it went along to the next run of its task

RefusedBecause = Literal[
    "ended",
    "continued",
    "undone",
    "in_batch",
    "another_app",
    "another_value",
    "past_life",
    "not_waiting",
    "answered",
    "undecided",
    "late",
    "inbox_full",
    "too_many",
]


class Inbox(msgspec.Struct, frozen=True, gc=False):
    """The signals of a task, as a sender finds them.

    Args:
        last_number: of all its signals; 0: it has none.
        count, size: those that no wait has taken, and the bytes of their values.
        named: of them, those of the name that was asked for.
        known: the signal that has the sender's ``signal_id``; None: none has it.
    """

    last_number: int
    count: int
    size: int
    named: int
    known: SignalRow | None = None


def name_wait(kind: WaitKind, name: str) -> str:
    """The name of a wait's row, which is that of the signals it takes: ``signal:approved``."""
    return f"{kind}:{name}"


def name_reply(name: str) -> str:
    """The name of the rows of replies to the requests of that name."""
    return f"{REPLY}:{name}"


def name_patch(name: str) -> str:
    """The name of the row that says that a task runs with the patch of that name."""
    return f"{PATCH}:{name}"


_NOT_AWAITED = (f"{REPLY}:", f"{PATCH}:")


def is_note(kind: StepKind, name: str) -> bool:
    """Returns True for a row that its code only says and never awaits: a reply, or the mark of a patch. It has no result."""
    return kind is StepKind.TIMER and name.startswith(_NOT_AWAITED)


def is_patch(step: StepRow) -> bool:
    """Returns True if a row says that its task runs with a patch of its code."""
    return step.kind is StepKind.TIMER and step.name.startswith(f"{PATCH}:")


def address_wait(step: StepRow) -> str:
    """The name of a signal that this wait alone may take: ``callback:receipt#2@7``.

    The ordinal is in it: a task that was undone and began again has another wait of that name and key.
    """
    return f"{step.name}{step.key}@{step.ordinal}"


def label_signal(name: str) -> str:
    """The name of a signal as it is shown: without the ordinal of a wait that alone may take it."""
    return name.rpartition("@")[0] if "#" in name else name


def label_callback(step: StepRow) -> str:
    """The label of the wait of a callback, by which arguments of steps name it: ``receipt#2``. Empty: it is another row."""
    kind, _, name = step.name.partition(":")
    return f"{name}{step.key}" if kind == "callback" and is_wait(step) else ""


def names_callback(arguments: str, label: str) -> bool:
    """Returns True if arguments, as JSON text, may name that callback."""
    return msgspec.json.encode(label).decode() in arguments


def split_wait_name(name: str) -> tuple[WaitKind, str] | None:
    """Return kind and name of what a row waits for, from the row's name. None: it waits for its time alone."""
    kind, colon, rest = name.partition(":")
    return (kind, rest) if colon else None  # type: ignore[return-value]  # only name_wait writes such names


def is_wait(step: StepRow) -> bool:
    """Returns True if a row waits for a signal, and not for its time alone."""
    return step.kind is StepKind.TIMER and step.name != TIMER_NAME and not step.name.startswith(_NOT_AWAITED)


def is_question(step: StepRow) -> bool:
    """Returns True if a row waits for the answer of an operator."""
    return step.kind is StepKind.TIMER and step.name.startswith("question:")


def may_take(step: StepRow, signal: SignalRow) -> bool:
    """Returns True if a wait takes a signal: it has the name, and was sent before the wait's time was over."""
    if signal.name != step.name and signal.name != address_wait(step):
        return False
    return step.not_before is None or signal.sent_at < step.not_before


class TakenRequest(msgspec.Struct, frozen=True, gc=False):
    """The result of a wait that took a request: its number, and the value as JSON."""

    request: int
    value: msgspec.Raw


_read_numbers = msgspec.json.Decoder(dict[str, int]).decode


def count_wanted(step: StepRow) -> int | None:
    """The number of signals that a wait for several takes at most, from its arguments ``{"count": 100}``; None: it is for one."""
    if not step.name.startswith("signal:") or step.arguments == "{}":
        return None
    return _read_numbers(step.arguments)["count"]


def build_wait_result(step: StepRow, signals: Sequence[SignalRow]) -> str:
    """The result of a wait, as JSON text: the value of its signal; of a request also its number; of several a list of values.

    Args:
        signals: that it takes, in their order; at least one.
    """
    if count_wanted(step) is not None:
        return f"[{','.join(signal.value for signal in signals)}]"
    (signal,) = signals
    if not signal.wants_reply:
        return signal.value
    return msgspec.json.encode(TakenRequest(signal.number, msgspec.Raw(signal.value.encode()))).decode()


read_taken_request = msgspec.json.Decoder(TakenRequest).decode


def build_fired_result(step: StepRow) -> str | None:
    """The result of a timer whose time has come. None, of a wait: no signal came."""
    return None if is_wait(step) else "null"


class Reply(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The reply of a task's code to a request. ``refused``: why it refuses; else ``value``, as JSON."""

    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    refused: str | msgspec.UnsetType = msgspec.UNSET


def encode_reply(value: str) -> str:
    """The JSON text of a reply. ``value``: JSON text."""
    return msgspec.json.encode(Reply(value=msgspec.Raw(value.encode()))).decode()


def encode_refusal(reason: str) -> str:
    """The JSON text of a refusal."""
    return msgspec.json.encode(Reply(refused=reason)).decode()


read_reply = msgspec.json.Decoder(Reply).decode
