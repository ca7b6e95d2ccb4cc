"""Signals: typed values that others send to a running task, and how its code waits for them."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from ..errors import ArrieroError, DefinitionError, InvalidInput, SignalTimeout
from ..model.policies import Duration, check_seconds
from ..model.signals import VALUE_BYTES_MAX, WaitKind, name_wait
from ..text.format import format_duration
from .declared import WorkflowRun, check_name, current_run
from .signature import ValueType

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


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


class SentValue(msgspec.Struct, Generic[T_co], frozen=True):
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

    def __call__(self, value: T) -> SentValue[T]:
        """Check a value to be sent. Raises: InvalidInput - it does not fit the type, or is too large."""
        return SentValue(self, check_value(self._type.encode(value), self._what))

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


def build_timeout(what: str, within: float | None) -> SignalTimeout:
    """Build what the code gets when the time of a wait is over."""
    limit = "" if within is None else f" within {format_duration(within)}"
    return SignalTimeout(f"{what} did not come{limit}", code=f"{what.partition(' ')[0]}_timeout")


def check_signal_name(name: str, what: str) -> str:
    """Check the name of a signal. Raises DefinitionError."""
    if "#" in check_name(name, f"a {what}"):
        raise DefinitionError(f"the name of a {what} is {name!r}; it must be without '#', which numbers waits")
    return name
