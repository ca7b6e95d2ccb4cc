"""Callbacks: waits that workflow code opens and passes to steps, so that a service completes them by its webhook."""

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Self, TypeVar

import msgspec

from ..errors import ArrieroError
from ..model.policies import Duration, check_seconds
from ..model.signals import WaitKind, name_wait
from ..payloads.plain_values import Reference
from .declared import CallValue, WorkflowRun, find_run
from .signals import NO_ARGUMENTS, Wait, build_timeout, check_signal_name
from .signature import Signature, ValueType

T = TypeVar("T")

KIND: WaitKind = "callback"
CALLBACK_WITHIN = timedelta(days=7)  # a payment that takes some days, and no wait that nobody remembers


class CallbackAccess(msgspec.Struct, frozen=True):
    """The means to complete a callback. They are made when an attempt begins, and recorded nowhere.

    Args:
        url: to which the value is sent by POST. ``token``: its last part.
        expires_at: when the time of the wait is over; None: it has no limit.
    """

    url: str
    token: str
    expires_at: datetime | None

    def __repr__(self) -> str:  # without its secret
        return "<access to a callback>"


class _Given(msgspec.Struct, frozen=True):
    accesses: Mapping[str, CallbackAccess]
    hands_out: bool


_given: ContextVar[_Given | None] = ContextVar("arriero_callbacks", default=None)


@contextmanager
def give_accesses(accesses: Mapping[str, CallbackAccess], *, hands_out: bool = False) -> Iterator[None]:
    """Read arguments in the block so that callbacks in them can be used.

    Args:
        accesses: by the labels of the waits: ``receipt#1``.
        hands_out: arguments that are written in the block are for a program outside of Python, and hold the accesses.
    """
    before = _given.set(_Given(accesses, hands_out))
    try:
        yield
    finally:
        _given.reset(before)


def read_arguments(signature: Signature, text: str, accesses: Mapping[str, CallbackAccess]) -> dict[str, Any]:
    """Read recorded arguments as a function takes them, with callbacks that can be used. Raises InvalidInput."""
    with give_accesses(accesses):
        return signature.arguments(text)


class Callback(CallValue[T], Reference):
    """A wait of a task that a service completes. ``arriero.callback`` makes it; a step takes it as an argument of this type.

    Workflow code awaits it for the value. A step passes ``url``, or ``token``, to the service.
    """

    __slots__ = ("_access", "_future", "label")

    def __init__(
        self, label: str, *, future: "asyncio.Future[Any] | None" = None, access: CallbackAccess | None = None
    ) -> None:
        super().__init__()
        self.label = label  # of its wait: receipt#1
        self._future = future
        self._access = access

    @property
    def name(self) -> str:
        """The name that it was made with."""
        return self.label.rpartition("#")[0]

    @property
    def url(self) -> str:
        """The URL to which the service sends the value, by POST. It is a secret. Raises ArrieroError - no step runs."""
        return self._find_access("url").url

    @property
    def token(self) -> str:
        """The token in the URL, for ``app.complete_callback``. It is a secret. Raises ArrieroError - no step runs."""
        return self._find_access("token").token

    @property
    def expires_at(self) -> datetime | None:
        """The time at which the wait ends, as it stood when the attempt began; None: it has no limit. Raises ArrieroError."""
        return self._find_access("expires_at").expires_at

    def _find_access(self, what: str) -> CallbackAccess:
        if self._access is None:
            raise ArrieroError(
                f"{self!r} has its {what} only in the function of a step: pass the callback to a step as an argument"
            )
        return self._access

    async def wait(self) -> T:
        """Wait for the value, in the code of the workflow, as ``await callback`` does.

        Raises: SignalTimeout - it was not completed within its time. If it leaves the code, the task is undone.
        """
        if self._future is None:
            raise ArrieroError(
                f"{self!r} is awaited by the workflow that made it; a step passes its url to the service"
            )
        value: T = await asyncio.shield(self._future)  # one who waits and is cancelled does not close it for others
        return value

    async def _run_call(self) -> T:
        return await self.wait()

    def send(self, value: Any, /) -> Any:
        try:
            return super().send(value)
        except BaseException:
            self._running = None  # it has ended, and may be awaited again
            raise

    def throw(self, *exception: Any) -> Any:
        try:
            return super().throw(*exception)
        except BaseException:
            self._running = None
            raise

    # --- as an argument
    def write_plain(self) -> Any:
        given = _given.get()
        if given is not None and given.hands_out and self._access is not None:
            return msgspec.to_builtins(self._access)
        return {KIND: self.label}

    @classmethod
    def read_plain(cls, value: Any) -> Self:
        label = value.get(KIND) if isinstance(value, dict) and len(value) == 1 else None
        if not isinstance(label, str):
            raise ValueError(f'a callback is recorded as {{"{KIND}": "NAME#1"}}; arriero.callback makes it')
        given = _given.get()
        if given is None:
            return cls(label)
        if label not in given.accesses:
            raise ValueError(f"the task has no callback {label}")
        return cls(label, access=given.accesses[label])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Callback) and self.label == other.label

    def __hash__(self) -> int:
        """Hash by number in workflow code, so that sets of callbacks iterate alike in every replay."""
        return hash(self._future) if self._future is not None else hash(self.label)

    def __repr__(self) -> str:
        return f"<callback {self.label}>"


def callback(of: type[T], *, name: str | None = None, within: Duration | None = CALLBACK_WITHIN) -> Callback[T]:
    """Open a wait that a service completes, in the code of a workflow. Pass it to a step, and await it.

    The wait begins now: a service that answers before the code awaits the callback has completed it.

    Args:
        of: the type of the value that the service sends.
        name: kept in the store, 1 to 255 characters, without ``#``; None: that of the type, as ``bank_receipt`` of BankReceipt.
        within: seconds or timedelta, more than 0; None: as long as it takes.
    Raises: DefinitionError - the type cannot be read, or the name is unfit; ArrieroError - no workflow runs here.
    """
    run: WorkflowRun = find_run("arriero.callback(...)", "use app.submit(...) with reply_to, or a Signal")
    chosen = check_signal_name(_choose_name(of) if name is None else name, KIND)
    what = f"{KIND} {chosen}"
    limit = None if within is None else check_seconds(within, "within", at_least=0.001)
    wait_name = name_wait(KIND, chosen)
    key = run.number_wait(wait_name)
    read = _find_type(of, what).read  # type: ignore[arg-type]  # a type is hashable
    future = run.open_wait(Wait(wait_name, NO_ARGUMENTS, limit, read, lambda: build_timeout(what, limit)), key)
    return Callback(f"{chosen}{key}", future=future)


@lru_cache(maxsize=256)  # a workflow makes the same ones in each task and in each replay
def _find_type(of: type[T], what: str) -> ValueType[T]:
    return ValueType(of, what)


def _choose_name(of: Any) -> str:
    if not isinstance(of, type) or of.__module__ == "builtins":
        return KIND
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", of.__name__).lower()
