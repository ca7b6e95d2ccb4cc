"""Which calls go wrong, and how: decided by the seed alone, never by the clock or by what else is going on.

A fault belongs to (service, operation, order, how-many-th call under one key). Two runs with one seed meet the same
faults, whatever order their calls arrive in, and `planned_faults` can say beforehand which kinds a run must show: a
demonstration in which nothing failed demonstrates nothing.

Every order is finished in the end: under one key at most ``calls_max`` calls fail in passing, the next one is answered.
Only a declined card and an empty shelf are final, as they are in a shop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

from .ledger import Kind, Order
from .operations import CHARGE, RESERVE, whole_effect


class Fault(StrEnum):
    """What can happen to a call."""

    REFUSED = "refused"
    """The connection is closed at once: no effect, no answer."""
    SERVER_ERROR = "server_error"
    """A 500 without an effect; whoever reads it cannot know that."""
    SLOW = "slow"
    """The effect happens, the answer comes when nobody waits for it any more."""
    LOST_ANSWER = "lost_answer"
    """The effect happens and is kept, then the connection is closed instead of answering."""
    HANG = "hang"
    """No effect, and no answer for as long as the caller stays on the line."""
    DECLINED = "declined"
    """The bank declines the card, now and always: 402."""
    OUT_OF_STOCK = "out_of_stock"
    """The shelf is empty, now and always: 409."""


WITHOUT_EFFECT = frozenset({Fault.REFUSED, Fault.SERVER_ERROR, Fault.HANG})
AFTER_THE_EFFECT = frozenset({Fault.SLOW, Fault.LOST_ANSWER})
# A slow or hanging call occupies its caller for seconds, the others for milliseconds: fewer of the former.
PASSING = (
    *(Fault.REFUSED, Fault.REFUSED, Fault.SERVER_ERROR, Fault.SERVER_ERROR, Fault.LOST_ANSWER, Fault.LOST_ANSWER),
    *(Fault.SLOW, Fault.HANG),
)
FINAL = {CHARGE.name: Fault.DECLINED, RESERVE.name: Fault.OUT_OF_STOCK}


@dataclass(frozen=True, slots=True)
class Level:
    """How rough the weather is.

    ``passing`` is the share of first calls that fail in passing, and of each further call after a failed one;
    ``final`` the share of orders whose card is declined, and of those whose pieces are out of stock.
    """

    passing: float
    calls_max: int
    final: float


LEVELS = {
    "none": Level(passing=0.0, calls_max=0, final=0.0),
    "some": Level(passing=0.15, calls_max=2, final=0.04),
    "storm": Level(passing=0.4, calls_max=4, final=0.06),
}


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """The faults of one run: a level's name and a seed."""

    level: str
    seed: int

    def fault_of(self, service: str, operation: str, order_id: str, call: int) -> Fault | None:
        """What happens to one call; ``call`` counts those under its key from 1. None: it is answered as it should."""
        final = self._final(operation, order_id)
        passing = self._passing(service, operation, order_id, call)
        if final is None or passing in WITHOUT_EFFECT:
            return passing
        return final

    def is_refused(self, operation: str, order_id: str) -> bool:
        """Whether the service will never carry out this operation for this order."""
        return self._final(operation, order_id) is not None

    def _final(self, operation: str, order_id: str) -> Fault | None:
        kind = FINAL.get(operation)
        drawn = kind is not None and self._draw(operation, order_id, "final") < LEVELS[self.level].final
        return kind if drawn else None

    def _passing(self, service: str, operation: str, order_id: str, call: int) -> Fault | None:
        level = LEVELS[self.level]
        if call > level.calls_max:
            return None
        draws = (self._draw(service, operation, order_id, str(earlier)) for earlier in range(1, call + 1))
        if any(draw >= level.passing for draw in draws):
            return None
        return PASSING[int(self._draw(service, operation, order_id, str(call), "kind") * len(PASSING))]

    def _draw(self, *what: str) -> float:
        text = "\0".join((str(self.seed), *what))
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") / 2**64


def planned_faults(plan: FaultPlan, orders: Iterable[Order]) -> frozenset[Fault]:
    """The kinds that a run over these orders meets for certain.

    Counted are only first calls that no earlier step can prevent: every charge, the reservation of an order whose
    charge goes through, and all that a cancellation or a correction does. More may fire; none of these may be missing.
    """
    kinds: set[Fault | None] = set()
    for order in orders:
        certain = list(whole_effect(order))
        if order.kind is Kind.PURCHASE:
            certain = [CHARGE] if plan.is_refused(CHARGE.name, order.id) else [CHARGE, RESERVE]
        for operation in certain:
            kinds.add(plan.fault_of(operation.service, operation.name, order.id, call=1))
            if plan.is_refused(operation.name, order.id):
                kinds.add(FINAL[operation.name])
    return frozenset(kind for kind in kinds if kind is not None)
