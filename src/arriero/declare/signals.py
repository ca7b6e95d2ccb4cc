"""Signals: typed values that others send to a running task, and how its code waits for them."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from ..errors import ArrieroError, DefinitionError, InvalidInput, SignalTimeout
from ..model.policies import Duration, check_seconds
from ..model.signals import (
    VALUE_BYTES_MAX,
    WaitKind,
    encode_refusal,
    encode_reply,
    name_wait,
    read_taken_request,
)
from ..payloads.codec import recordable_text
from ..text.format import format_duration
from .declared import WorkflowRun, check_name, current_run
from .signature import ValueType

T = TypeVar("T")
R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)


class Wait(msgspec.Struct, frozen=True):
    """A wait of workflow code.

    Args:
        name: of the wait's row, see ``model.signals.name_wait``.
        arguments: JSON text, recorded in the row.
        within: seconds; None: without a limit.
        read: makes the awaited value of a signal's JSON text. Raises InvalidInput.
        timed_out: builds what the code gets when the time is over and no signal came: an exception is raised there.
    """

    name: str
    arguments: str
    within: float | None
    read: Callable[[str], Any]
    timed_out: Callable[[], Any]


def encode_within(within: float | None) -> str:
    """The arguments of a wait that has no others."""
    return msgspec.json.encode({"within": within}).decode()


def find_run(what: str, elsewhere: str) -> WorkflowRun:
    """The workflow whose code runs. Raises ArrieroError: none does; ``elsewhere`` says what to do there."""
    run = current_run()
    if run is None:
        raise ArrieroError(f"{what} works only inside a workflow: elsewhere {elsewhere}")
    return run


def check_value(text: str, what: str) -> str:
    """Return the JSON text of a value that is sent, if it is not too large. Raises InvalidInput."""
    if (size := len(text.encode())) > VALUE_BYTES_MAX:
        raise InvalidInput(
            f"{what} has a value of {size:,} bytes; at most {VALUE_BYTES_MAX:,} are sent: keep it elsewhere and send its address"
        )
    return text


class SignalValue(msgspec.Struct, Generic[T_co], frozen=True):
    """A signal with its value, checked against its type: what ``task.send`` takes. ``value``: JSON text."""

    signal: "Signal[T_co]"
    value: str

    def __repr__(self) -> str:
        return f"<value of {self.signal!r}>"


class Signal(Generic[T]):
    """A value that others send to a running task. Both sides share it.

    The code of a workflow awaits ``approved.wait()``. Others call ``await task.send(approved(value))``.

    Args:
        name: kept in the store, 1 to 255 characters, without ``#``.
        of: the type of its value.
    Raises: DefinitionError.
    """

    kind: WaitKind = "signal"

    def __init__(self, name: str, of: type[T]) -> None:
        self.name = check_signal_name(name, self.kind)
        self.of = of
        self._what = f"{self.kind} {name}"
        self._type = ValueType(of, self._what)

    @property
    def wait_name(self) -> str:
        """The name of the rows of its waits."""
        return name_wait(self.kind, self.name)

    def __call__(self, value: T) -> SignalValue[T]:
        """Check a value to be sent. Raises: InvalidInput - it does not fit the type, or is too large."""
        return SignalValue(self, check_value(self._type.encode(value), self._what))

    def read(self, text: str) -> T:
        """The value of a JSON text. Raises: InvalidInput - it does not fit the type."""
        return self._type.read(text)

    def check_json(self, text: str) -> str:
        """Check a value that comes as JSON text, and return it as a value of the type is recorded. Raises InvalidInput."""
        return check_value(self._type.encode(self.read(text)), self._what)

    async def wait(self, *, within: Duration | None = None) -> T:
        """Wait for the next value, in the code of a workflow. It may have come before.

        Args:
            within: seconds or timedelta, more than 0; None waits as long as it takes.
        Raises: SignalTimeout - no value was sent within that time. If it leaves the code, the task is undone.
        """
        run = find_run(f"{self._what}.wait()", f"send it: await task.send({self.name}(...))")
        limit = None if within is None else check_seconds(within, "within", at_least=0.001)
        value: T = await run.open_wait(
            Wait(self.wait_name, encode_within(limit), limit, self.read, lambda: build_timeout(self._what, limit))
        )
        return value

    def __repr__(self) -> str:
        return f"<{self._what}>"


class ReceivedRequest(Generic[T, R]):
    """A request that workflow code has received. It replies, or refuses, once. ``value``: of the request."""

    def __init__(self, request: "Request[T, R]", number: int, value: T) -> None:
        self.value = value
        self._request = request
        self._number = number
        self._is_answered = False

    def reply(self, value: R) -> None:
        """Reply. It is recorded with the next write of the task. Raises: InvalidInput - it does not fit the type."""
        self._answer(encode_reply(self._request.encode_reply(value)))

    def refuse(self, reason: str) -> None:
        """Refuse the request: its sender gets RequestRefused with this reason. Raises InvalidInput."""
        if not isinstance(reason, str) or not reason.strip():
            raise InvalidInput(f"{self._request!r}: the reason of a refusal is {reason!r}; say why")
        self._answer(encode_refusal(recordable_text(reason)))

    def _answer(self, reply: str) -> None:
        run = find_run("reply", "a request is answered by the workflow that received it")
        if self._is_answered:
            raise InvalidInput(f"{self._request!r} number {self._number} is answered already: reply or refuse, once")
        self._is_answered = True
        run.reply(self._request.name, self._number, reply)


class Request(Generic[T, R]):
    """A value that others send to a running task, whose code replies. Both sides share it.

    The code of a workflow awaits ``change_address.receive()`` and calls ``reply`` or ``refuse``. Others call
    ``await task.request(change_address(new))``.

    Args:
        name: kept in the store, 1 to 255 characters, without ``#``.
        of: the type of its value; ``reply``: of the reply.
    Raises: DefinitionError.
    """

    kind: WaitKind = "request"

    def __init__(self, name: str, of: type[T], reply: type[R]) -> None:
        self.name = check_signal_name(name, self.kind)
        self._what = f"{self.kind} {name}"
        self._type = ValueType(of, self._what)
        self._reply_type = ValueType(reply, f"reply to {self._what}")

    @property
    def wait_name(self) -> str:
        """The name of the rows of its waits."""
        return name_wait(self.kind, self.name)

    def __call__(self, value: T) -> "RequestValue[R]":
        """Check a value to be sent. Raises: InvalidInput - it does not fit the type, or is too large."""
        return RequestValue(self, check_value(self._type.encode(value), self._what))

    def encode_reply(self, value: R) -> str:
        """The JSON text of a reply. Raises: InvalidInput - it does not fit the type, or is too large."""
        return check_value(self._reply_type.encode(value), f"reply to {self._what}")

    def read_reply(self, text: str) -> R:
        """The reply of a JSON text. Raises: InvalidInput - it does not fit the type."""
        return self._reply_type.read(text)

    def _read(self, text: str) -> ReceivedRequest[T, R]:
        try:
            taken = read_taken_request(text)
        except msgspec.MsgspecError as error:
            raise InvalidInput(f"{self._what}: it was sent as a signal, and not as a request") from error
        return ReceivedRequest(self, taken.request, self._type.read(bytes(taken.value).decode()))

    async def receive(self, *, within: Duration | None = None) -> ReceivedRequest[T, R]:
        """Wait for the next request, in the code of a workflow. It may have come before.

        Args:
            within: seconds or timedelta, more than 0; None waits as long as it takes.
        Raises: SignalTimeout - no request was sent within that time. If it leaves the code, the task is undone.
        """
        run = find_run(f"{self._what}.receive()", f"ask: await task.request({self.name}(...))")
        limit = None if within is None else check_seconds(within, "within", at_least=0.001)
        received: ReceivedRequest[T, R] = await run.open_wait(
            Wait(self.wait_name, encode_within(limit), limit, self._read, lambda: build_timeout(self._what, limit))
        )
        return received

    def __repr__(self) -> str:
        return f"<{self._what}>"


class RequestValue(msgspec.Struct, Generic[R_co], frozen=True):
    """A request with its value, checked against its type: what ``task.request`` takes. ``value``: JSON text."""

    request: Request[Any, R_co]
    value: str

    def __repr__(self) -> str:
        return f"<value of {self.request!r}>"


def build_timeout(what: str, within: float | None) -> SignalTimeout:
    """Build what the code gets when the time of a wait is over."""
    limit = "" if within is None else f" within {format_duration(within)}"
    return SignalTimeout(f"{what} did not come{limit}", code=f"{what.partition(' ')[0]}_timeout")


def check_signal_name(name: str, what: str) -> str:
    """Check the name of a signal. Raises DefinitionError."""
    if "#" in check_name(name, f"a {what}"):
        raise DefinitionError(f"the name of a {what} is {name!r}; it must be without '#', which numbers waits")
    return name
