"""Events in the history of a task that report what others send to it, and what its waits take."""

from .base import Hash, HistoryEvent, HistoryNames


class SignalSent(HistoryEvent, frozen=True, kw_only=True, tag="signal.sent"):
    """A signal was kept for the task. ``number``: of the task's signals; ``name``: of the waits that may take it.

    ``value``: hash; ``by``: who sent it; ``is_request``: its sender waits for a reply.
    """

    number: int
    name: str
    signal_id: str
    value: Hash
    by: str = ""
    is_request: bool = False

    def describe(self, names: HistoryNames) -> str:
        what = "request" if self.is_request else "signal"
        return f"{self.by or 'somebody'} sends {what} {self.name} (number {self.number}, id {self.signal_id})"


class SignalTaken(HistoryEvent, frozen=True, tag="signal.taken"):
    """A wait took the signal ``signal``, one for several also those ``also``. ``number``: of the wait's result in its task."""

    step: int
    number: int
    signal: int
    also: tuple[int, ...] = ()

    def describe(self, names: HistoryNames) -> str:
        if self.also:
            numbers = ", ".join(map(str, (self.signal, *self.also)))
            return f"{names.name_step(self.step)} takes signals number {numbers}"
        return f"{names.name_step(self.step)} takes signal number {self.signal}"


class SignalSetAside(HistoryEvent, frozen=True, tag="signal.set_aside"):
    """The code of the task cannot read the value of ``signal``. ``reason``: why."""

    signal: int
    reason: str

    def describe(self, names: HistoryNames) -> str:
        return f"signal number {self.signal} is set aside, since its value does not fit: {self.reason}"


class SignalAnswered(HistoryEvent, frozen=True, tag="signal.answered"):
    """The code of the task replied to the request ``signal``. ``reply``: hash of the first reply; ``step``: of the reply's row.

    ``signal`` below zero: a request that the task which this one is forked from has received.
    """

    step: int
    signal: int
    reply: Hash

    def describe(self, names: HistoryNames) -> str:
        if self.signal < 0:  # of a fork
            return f"its code replies to request number {-self.signal} of the task that it is forked from, which has replied itself"
        return f"its code replies to request number {self.signal}"


EventOfSignal = SignalSent | SignalTaken | SignalSetAside | SignalAnswered
