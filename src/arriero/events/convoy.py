"""Events of a convoy: those of whose turn it is stand in the histories of its tasks, the others in a separate stream.

Except for ``ConvoyPlaced`` they carry a ``number`` that counts all events of one convoy, in both kinds of streams.
"""

from msgspec import UNSET, Raw, UnsetType

from ..model import Instant
from ..text.format import format_count, format_instant
from .base import HistoryEvent, HistoryNames

_WHY_SET_ASIDE = {"late": "it came too late", "ledger": "its convoy takes it no more"}


class ConvoyPlaced(HistoryEvent, frozen=True, tag="convoy.placed"):
    """A task was submitted to a convoy.

    Args:
        place: in the order of commits, from 1.
        rank: by which the convoy is ordered: the place, or the producer's sequence.
        end: the task is the last one.
        refused: it came with a ledger, and the convoy takes it no more.
        numbered: the sequence of a refused one, which counts for nothing.
    """

    convoy: int
    key: str
    place: int
    rank: int
    sequence: int | None = None
    end: bool = False
    refused: bool = False
    numbered: int | None = None

    def describe(self, names: HistoryNames) -> str:
        where = f"at place {self.place}" if self.sequence is None else f"with sequence {self.sequence}"
        return f"it stands in convoy {self.key} {where}{', which nothing comes after' if self.end else ''}"


class NumberedEvent(HistoryEvent, frozen=True):
    """Fields of all other events of a convoy."""

    convoy: int
    number: int


# --- in the histories of its tasks
class ConvoyOpened(NumberedEvent, frozen=True, tag="convoy.opened"):
    """The task's turn begins. ``expected``: the convoy's next sequence after it."""

    fence: int
    rank: int
    not_before: Instant
    expected: int = 1

    def describe(self, names: HistoryNames) -> str:
        return f"it is its turn in the convoy, from {format_instant(self.not_before)} on"


class ConvoyContinued(NumberedEvent, frozen=True, tag="convoy.continued"):
    """The task keeps the turn and the place of its run before. ``earlier``: number of that."""

    earlier: int
    place: int
    rank: int
    sequence: int | None = None

    def describe(self, names: HistoryNames) -> str:
        return "it is still its turn in the convoy"


class ConvoyClosed(NumberedEvent, frozen=True, tag="convoy.closed"):
    """The task's turn is over. ``turn``: ``ended`` or ``set_aside``, the second with its reason."""

    turn: str
    fence: int
    why: str | None = None

    def describe(self, names: HistoryNames) -> str:
        if self.turn == "ended":
            return "its turn in the convoy is over"
        return "it is set aside: its convoy continues without it"


class ConvoyStopped(NumberedEvent, frozen=True, tag="convoy.stopped"):
    """The convoy is blocked on the task, which is held."""

    fence: int
    rank: int
    expected: int
    parked: bool

    def describe(self, names: HistoryNames) -> str:
        return f"its convoy is blocked on it{' and is parked' if self.parked else ''}"


class ConvoyMended(NumberedEvent, frozen=True, tag="convoy.mended"):
    """The convoy continues with the task it was blocked on."""

    fence: int

    def describe(self, names: HistoryNames) -> str:
        return "its convoy continues with it"


class ConvoyReturned(NumberedEvent, frozen=True, tag="convoy.returned"):
    """The task waits for its turn again. ``place_lost``: others have gone before it."""

    rank: int
    fence: int
    place_lost: bool

    def describe(self, names: HistoryNames) -> str:
        lost = ": others have gone before it, its place is lost" if self.place_lost else ""
        return f"it waits for its turn in the convoy again{lost}"


class ConvoyLeft(NumberedEvent, frozen=True, tag="convoy.left"):
    """The task ended before its turn, with nothing done."""

    def describe(self, names: HistoryNames) -> str:
        return "it leaves its convoy before its turn, with nothing done"


class ConvoySetAside(NumberedEvent, frozen=True, tag="convoy.set_aside"):
    """The task was passed over before its turn. ``why``: ``late``, ``ledger`` or ``skip``."""

    why: str

    def describe(self, names: HistoryNames) -> str:
        return f"it is set aside without its turn: {_WHY_SET_ASIDE.get(self.why, 'it failed while it waited')}"


class ConvoyMoved(NumberedEvent, frozen=True, tag="convoy.moved"):
    """An operator put the task before all others that wait."""

    rank: int

    def describe(self, names: HistoryNames) -> str:
        return "it comes before all others that wait in its convoy"


class ConvoyBatched(NumberedEvent, frozen=True, tag="convoy.batched"):
    """A batch of the convoy is gathered, in the histories of the task that handles it and of those whose messages it has.

    Args:
        batch: number of the task that handles it.
        rank: of the event's own task.
        expected: the convoy's next sequence after it.
        messages: in the history of the task that handles it: how many it has, its own included; 0: the batch is full, and
            the task is due for that.
        most: how many it may have.
        arguments: hash of those that its code gets.
    """

    batch: int
    rank: int
    expected: int
    messages: int | None = None
    most: int = 0
    arguments: str | None = None

    def describe(self, names: HistoryNames) -> str:
        if self.messages is None:
            return f"its message is in the batch of task number {self.batch}, and ends as that task ends"
        if not self.messages:
            return "its batch is full"
        return f"it handles a batch of {format_count(self.messages, 'message')}"


class ConvoyMessageEnded(NumberedEvent, frozen=True, tag="convoy.message_ended"):
    """The task ended with the batch that its message is in. ``output``: as a hash."""

    batch: int
    state: str
    fence: int
    output: str | None
    failure: Raw | UnsetType = UNSET

    def describe(self, names: HistoryNames) -> str:
        return f"it ended {self.state}, as its batch, task number {self.batch}"


# --- in its own stream
class ConvoyWaiting(NumberedEvent, frozen=True, tag="convoy.waiting"):
    """Sequences from ``expected`` up to but without ``before`` are missing."""

    expected: int
    before: int


class ConvoySkipped(NumberedEvent, frozen=True, tag="convoy.skipped"):
    """The convoy continues without the missing ones. ``why``: ``policy`` or ``person``."""

    expected: int
    before: int
    why: str


class ConvoyParked(NumberedEvent, frozen=True, tag="convoy.parked"):
    """The convoy begins nothing until an operator releases it."""

    why: str


class ConvoyAction(NumberedEvent, frozen=True, kw_only=True, tag="convoy.action"):
    """An operator carried out a verb on the convoy. ``policy``: of the verb ``set``, as JSON."""

    verb: str
    by: str
    reason: str
    before: str
    policy: Raw | UnsetType = UNSET
    after: str
    fence: int


EventOfTurn = (
    ConvoyPlaced
    | ConvoyOpened
    | ConvoyContinued
    | ConvoyClosed
    | ConvoyStopped
    | ConvoyMended
    | ConvoyReturned
    | ConvoyLeft
    | ConvoySetAside
    | ConvoyMoved
    | ConvoyBatched
    | ConvoyMessageEnded
)
EventOfConvoy = ConvoyWaiting | ConvoySkipped | ConvoyParked | ConvoyAction
