"""The messages between a process and the child process that runs one call of a step; each is one line of JSON."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ..declare.callbacks import CallbackAccess
from ..errors import Cause
from ..model import Instant
from ..model.failures import CapturedTraceback


class ChildCall(msgspec.Struct, frozen=True):
    """The first message to the child: what it calls, and the Attempt that it is called with.

    Args:
        module, function: where the function is found; ``path``: the parent's ``sys.path``.
        arguments: JSON text. checkpoint: likewise, or None.
        deadline: on the clock since boot, which all processes of a machine share.
        accesses: to the callbacks among the arguments, by their labels.
    """

    path: tuple[str, ...]
    module: str
    function: str
    what: str
    arguments: str
    task_id: str
    step: str
    number: int
    idempotency_key: str
    complete_by: Instant
    deadline: float
    checkpoint: str | None
    trace_headers: dict[str, str] = {}
    accesses: Mapping[str, CallbackAccess] = {}


class AskedByChild(msgspec.Struct, frozen=True, tag="asked"):
    """The child's code asks for more time (``seconds``), or keeps a checkpoint."""

    seconds: float | None = None
    checkpoint: str | None = None


class AnswerToChild(msgspec.Struct, frozen=True):
    """The answer to what the child asked; ``over``: why it is refused."""

    complete_by: Instant
    deadline: float
    checkpoint: str | None
    over: str = ""


class ChildSucceeded(msgspec.Struct, frozen=True, tag="succeeded"):
    """The function has a result, as JSON text."""

    result: str


class ChildUnrecordable(msgspec.Struct, frozen=True, tag="unrecordable"):
    """The function has a result that cannot be recorded."""

    message: str
    trace: CapturedTraceback


class ChildFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The function has raised, or could not be called."""

    cause: Cause
    message: str
    code: str = ""
    details: Any = None
    retry_after: float | None = None
    trace: CapturedTraceback = ()
    public: str = ""


class PublishedByChild(msgspec.Struct, frozen=True, tag="published"):
    """The child's code publishes a value, as JSON text. It waits for no answer."""

    value: str


FromChild = AskedByChild | PublishedByChild | ChildSucceeded | ChildUnrecordable | ChildFailed
read_from_child = msgspec.json.Decoder(FromChild).decode
read_call = msgspec.json.Decoder(ChildCall).decode
read_answer = msgspec.json.Decoder(AnswerToChild).decode


def encode_message(message: msgspec.Struct) -> bytes:
    """Encode a message as its line. JSON as msgspec writes it holds no line break."""
    return msgspec.json.encode(message) + b"\n"
