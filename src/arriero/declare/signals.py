"""Signals: typed values that others send to a running task, and how its code waits for them."""

import asyncio
import dis
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import msgspec

from ..errors import DefinitionError, InvalidInput, SignalTimeout
from ..model.policies import Duration, check_seconds
from ..model.signals import (
    INBOX_MAX,
    VALUE_BYTES_MAX,
    WaitKind,
    encode_refusal,
    encode_reply,
    name_wait,
    read_reply,
    read_taken_request,
)
from ..payloads.codec import recordable_text
from ..payloads.plain_values import fill_in_defaults
from ..text.format import format_duration
from .declared import Declared, WorkflowRun, check_name, find_run
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


NO_ARGUMENTS = "{}"  # of a wait: its limit is in the row, so that a release may change it while tasks wait


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


class _Awaited(Generic[T]):
    """The common part of signals and requests: a name, a type, and waits."""

    kind: WaitKind

    def __init__(self, name: str, of: type[T]) -> None:
        self.name = check_signal_name(name, self.kind)
        self._what = f"{self.kind} {name}"
        self._type = ValueType(of, self._what)

    @property
    def wait_name(self) -> str:
        """The name of the rows of its waits."""
        return name_wait(self.kind, self.name)

    @property
    def of(self) -> type[T]:
        """The type of its value."""
        return self._type.of

    def _encode(self, value: T) -> str:
        """The JSON text of a value to be sent. Raises: InvalidInput - it does not fit the type, or is too large."""
        return check_value(self._type.encode(value), self._what)

    def check_json(self, text: str) -> str:
        """Check a value that comes as JSON text, and return it as a value of the type is recorded. Raises InvalidInput."""
        value = self._type.read(text)
        fill_in_defaults(value)
        return self._encode(value)

    def _open_wait(self, run: WorkflowRun, within: Duration | None, read: Callable[[str], Any]) -> asyncio.Future[Any]:
        limit = None if within is None else check_seconds(within, "within", at_least=0.001)
        return run.open_wait(Wait(self.wait_name, NO_ARGUMENTS, limit, read, lambda: build_timeout(self._what, limit)))

    def __repr__(self) -> str:
        return f"<{self._what}>"


class Signal(_Awaited[T]):
    """A value that others send to a running task. Both sides share it.

    The code of a workflow awaits ``approved.wait()``. Others call ``await task.send(approved(value))``.

    Args:
        name: kept in the store, 1 to 255 characters, without ``#``.
        of: the type of its value.
    Raises: DefinitionError.
    """

    kind: WaitKind = "signal"

    def __call__(self, value: T) -> SignalValue[T]:
        """Check a value to be sent. Raises: InvalidInput - it does not fit the type, or is too large."""
        return SignalValue(self, self._encode(value))

    def read(self, text: str) -> T:
        """The value of a JSON text. Raises: InvalidInput - it does not fit the type."""
        return self._type.read(text)

    async def wait(self, *, within: Duration | None = None) -> T:
        """Wait for the next value, in the code of a workflow. It may have come before.

        Args:
            within: seconds or timedelta, more than 0; None waits as long as it takes.
        Raises: SignalTimeout - no value was sent within that time. If it leaves the code, the task is undone.
        """
        run = find_run(f"{self._what}.wait()", f"send it: await task.send({self.name}(...))")
        value: T = await self._open_wait(run, within, self.read)
        return value


async def collect(signal: Signal[T], *, count: int, within: Duration | None = None) -> list[T]:
    """Wait for several values of a signal, in the code of a workflow. They may have come before.

    Args:
        count: how many values it waits for and takes at most, 1 to 1,000.
        within: seconds or timedelta, more than 0, from when the code calls it; None waits until all have come.
    Returns: the values in the order in which they were sent: ``count`` of them, or those that came within the time, also none.
    Raises: InvalidInput - an argument is unfit; that holds the task.
    """
    run = find_run("arriero.collect", "send what it waits for: await task.send(...)")
    if not isinstance(signal, Signal):
        raise InvalidInput(f"arriero.collect: the signal is {signal!r}; it must be of the type Signal")
    what = f"arriero.collect of {signal!r}"
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= INBOX_MAX:
        raise InvalidInput(f"{what}: count is {count!r}; it must be a whole number from 1 to {INBOX_MAX:,}")
    limit = None if within is None else check_seconds(within, "within", at_least=0.001)
    arguments = msgspec.json.encode({"count": count}).decode()

    def read(text: str) -> list[T]:
        return [signal.read(bytes(one).decode()) for one in _read_list(text)]

    values: list[T] = await run.open_wait(Wait(signal.wait_name, arguments, limit, read, list))
    return values


_read_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


class ReceivedRequest(Generic[T, R]):
    """A request that workflow code has received. It replies, or refuses, once. ``value``: of the request."""

    def __init__(self, request: "Request[T, R]", number: int, value: T) -> None:
        self.value = value
        self._run: WorkflowRun | None = None  # that has received it
        self._request = request
        self._number = number
        self._is_answered = False

    def note_received(self, run: WorkflowRun) -> None:
        """Note the run of the workflow that has received it."""
        self._run = run

    def reply(self, value: R) -> None:
        """Reply. It is recorded with the next write of the task. Raises: InvalidInput - it does not fit the type."""
        self._answer(encode_reply(self._request.encode_reply(value)))

    def refuse(self, reason: str) -> None:
        """Refuse the request: its sender gets RequestRefused with this reason. Raises InvalidInput."""
        if not isinstance(reason, str) or not reason.strip():
            raise InvalidInput(f"{self._request!r}: the reason of a refusal is {reason!r}; say why")
        self._answer(encode_refusal(recordable_text(reason)))

    def _answer(self, reply: str) -> None:
        run = find_run("reply", "nothing: a request is answered by the workflow that received it")
        if run is not self._run:
            raise InvalidInput(
                f"{self._request!r} number {self._number} was received by another task, which answers it"
            )
        if self._is_answered:
            raise InvalidInput(f"{self._request!r} number {self._number} is answered already: reply or refuse, once")
        self._is_answered = True
        run.reply(self._request, self._number, reply)


class Request(_Awaited[T], Generic[T, R]):
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
        super().__init__(name, of)
        self._reply_type = ValueType(reply, f"reply to {self._what}")

    def __call__(self, value: T) -> "RequestValue[R]":
        """Check a value to be sent. Raises: InvalidInput - it does not fit the type, or is too large."""
        return RequestValue(self, self._encode(value))

    def encode_reply(self, value: R) -> str:
        """The JSON text of a reply. Raises: InvalidInput - it does not fit the type, or is too large."""
        return check_value(self._reply_type.encode(value), f"reply to {self._what}")

    def read_reply(self, text: str) -> R:
        """The reply of a JSON text. Raises: InvalidInput - it does not fit the type."""
        return self._reply_type.read(text)

    def mean_same(self, recorded: str, asked: str) -> bool:
        """Returns True if two answers are the same reply, of which another release wrote the first in another way."""
        one, other = read_reply(recorded), read_reply(asked)
        if isinstance(one.value, msgspec.UnsetType) or isinstance(other.value, msgspec.UnsetType):
            return False
        return self._reply_type.mean_same(bytes(one.value).decode(), bytes(other.value).decode())

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
        received: ReceivedRequest[T, R] = await self._open_wait(run, within, self._read)
        received.note_received(run)
        return received

    if not TYPE_CHECKING:  # checkers say that it is not there

        def wait(self, **_given: Any) -> NoReturn:
            """Raise DefinitionError: a request is received, and then replied to."""
            raise DefinitionError(
                f"{self._what} has no wait(): use `received = await {self.name}.receive()`, and then `received.reply(...)`"
                " or `received.refuse(...)`"
            )


AnySignal = Signal[Any] | Request[Any, Any]


class RequestValue(msgspec.Struct, Generic[R_co], frozen=True):
    """A request with its value, checked against its type: what ``task.request`` takes. ``value``: JSON text."""

    request: Request[Any, R_co]
    value: str

    def __repr__(self) -> str:
        return f"<value of {self.request!r}>"


def build_timeout(what: str, within: float | None, outcome: str = "did not come") -> SignalTimeout:
    """Build what the code gets when the time of a wait is over."""
    limit = "" if within is None else f" within {format_duration(within)}"
    return SignalTimeout(f"{what} {outcome}{limit}", code=f"{what.partition(' ')[0]}_timeout")


def check_signal_name(name: str, what: str) -> str:
    """Check the name of a signal. Raises DefinitionError."""
    if "#" in check_name(name, f"a {what}"):
        raise DefinitionError(f"the name of a {what} is {name!r}; it must be without '#', which numbers waits")
    return name


# --- what a function mentions
FUNCTIONS_MAX = 1_000  # that are looked through for one workflow
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF")


class MentionedSignals(msgspec.Struct, frozen=True):
    """The signals and requests that the code of a workflow may wait for.

    Args:
        known: by the names of their waits.
        are_all: False: the code may wait for others, because it makes signals while it runs, or is too much to look through.
    """

    known: dict[str, AnySignal]
    are_all: bool

    def list_names(self, kind: WaitKind = "signal") -> list[str]:
        """List the names of one kind as senders give them, in alphabetical order."""
        return sorted(signal.name for signal in self.known.values() if signal.kind == kind)


def find_mentioned_signals(function: Callable[..., Any]) -> MentionedSignals:
    """Find the signals and requests that a function mentions, and those of the plain functions that it mentions. No code of users runs."""
    search = _SignalSearch()
    if isinstance(function, types.FunctionType):
        search.waiting.append(function)
    else:
        search.are_all = False
    while search.waiting:
        search.look_through(search.waiting.pop())
    return MentionedSignals(search.known, search.are_all)


class _SignalSearch:
    """Walks the instructions of functions for the signals that they load."""

    def __init__(self) -> None:
        self.known: dict[str, AnySignal] = {}
        self.are_all = True
        self.waiting: list[types.FunctionType] = []
        self._seen: set[int] = set()

    def note(self, value: Any) -> None:
        """Note a value that code loads: a signal is known, a plain function is looked through, and so are containers."""
        if isinstance(value, _Awaited):
            self.known[value.wait_name] = value  # type: ignore[assignment]  # there are no others
        elif isinstance(value, type) and issubclass(value, _Awaited):
            self.are_all = False
        elif isinstance(value, staticmethod | classmethod | types.MethodType):
            self.note(value.__func__)
        elif isinstance(value, types.FunctionType):
            self._note_function(value)
        elif type(value) in (tuple, list, dict, set, frozenset) and id(value) not in self._seen:
            self._seen.add(id(value))
            for one in list(value.values() if type(value) is dict else value):
                self.note(one)

    def _note_function(self, function: types.FunctionType) -> None:
        package = str(function.__module__).partition(".")[0]
        if package in sys.stdlib_module_names or package == "arriero" or id(function.__code__) in self._seen:
            return
        self._seen.add(id(function.__code__))
        if len(self._seen) > FUNCTIONS_MAX:
            self.are_all = False
        else:
            self.waiting.append(function)

    def look_through(self, function: types.FunctionType) -> None:
        """Note what the code of a function loads, with that of functions inside it."""
        names = dict(function.__globals__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                names[name] = cell.cell_contents
            except ValueError:  # it has no value yet
                self.are_all = False
        codes = [function.__code__]
        while codes:
            code = codes.pop()
            codes += [one for one in code.co_consts if isinstance(one, types.CodeType)]
            self._look_through_code(code, names)

    def _look_through_code(self, code: types.CodeType, names: Mapping[str, Any]) -> None:
        value: Any = None
        module: Any = None
        for instruction in dis.get_instructions(code):
            name = instruction.argval
            if instruction.opname in _LOADS:
                value = names.get(name)
            elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                value = _get_attribute(value, name)
            elif instruction.opname == "IMPORT_NAME":
                value = module = self._find_module(name, names)
            elif instruction.opname == "IMPORT_FROM":
                value = _get_attribute(module, name)
            else:
                value = None
            self.note(value)

    def _find_module(self, name: str, names: Mapping[str, Any]) -> types.ModuleType | None:
        """Find a module that code imports when it runs, if it is loaded already."""
        inside = f"{names.get('__package__') or ''}.{name}".strip(".")
        found = sys.modules.get(name) or sys.modules.get(inside)
        self.are_all = self.are_all and found is not None
        return found


def _get_attribute(value: Any, name: str) -> Any:
    """The attribute of a module, class or object as it is stored; None: there is none, or code would have to run for it."""
    if value is None:
        return None
    if isinstance(value, Declared):
        return inspect.unwrap(value) if name == "function" else None  # type: ignore[arg-type]
    return inspect.getattr_static(value, name, None)
