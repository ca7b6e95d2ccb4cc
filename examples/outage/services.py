"""The remote services of the example, in its own process: two regions of one payment provider, and a gateway.

They keep a ledger of the calls that they see. The example judges by it, and not by what arriero says.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from enum import Enum

from arriero import Transient

QUICK, SLOW, REFUSED = 0.02, 0.06, 0.005  # seconds of a call
FAILS_EVERY = 4  # of a region that degrades: the first call of every fourth key fails


@dataclass(frozen=True)
class Order:
    id: str
    merchant: str
    pence: int


class Condition(Enum):
    """How a region is."""

    WELL = "well"
    DEGRADED = "slow, and a fourth of its orders fails once"
    DOWN = "down"


@dataclass
class Call:
    """A call as a region saw it.

    ``phase``: of the example, when the call came. ``is_first``: of its key; the others are retries.
    """

    region: str
    phase: str
    key: str
    order_id: str
    is_first: bool
    has_failed: bool = False


@dataclass(frozen=True)
class Charge:
    """Money that a region has taken."""

    order_id: str
    region: str
    pence: int


class Provider:
    """What the regions have in common. ``charges``: by idempotency key, so a key that one region has seen is known to both."""

    def __init__(self) -> None:
        self.phase = ""
        self.calls: list[Call] = []
        self._keys: set[str] = set()
        self.charges: list[tuple[str, Charge]] = []
        self._by_key: dict[str, Charge] = {}

    def note_call(self, region: str, key: str, order: Order) -> Call:
        """Note a call that comes."""
        call = Call(region, self.phase, key, order.id, is_first=key not in self._keys)
        self.calls.append(call)
        self._keys.add(key)
        return call

    def charge(self, key: str, region: str, order: Order) -> str:
        """Take the money, once for each key. Returns: the receipt."""
        if key not in self._by_key:
            self._by_key[key] = Charge(order.id, region, order.pence)
            self.charges.append((key, self._by_key[key]))
        return f"receipt-{order.id}"

    def count_calls(self, phase: str) -> int:
        """Count the calls of both regions."""
        return sum(call.phase == phase for call in self.calls)


class Region:
    """One region of the payment provider."""

    def __init__(self, name: str, provider: Provider) -> None:
        self.name = name
        self.condition = Condition.WELL
        self._called_at = 0.0  # monotonic
        self._provider = provider
        self._keys_degraded = 0
        self._losses = 0

    async def charge(self, key: str, order: Order) -> str:
        """Charge an order. Raises: Transient - it was not charged; TimeoutError - nobody knows."""
        call = self._provider.note_call(self.name, key, order)
        self._called_at = time.monotonic()
        try:
            return await self._answer(call, order)
        except (Transient, TimeoutError):
            call.has_failed = True
            raise

    def measure_silence(self) -> float:
        """Return the seconds since the last call came."""
        return time.monotonic() - self._called_at

    async def _answer(self, call: Call, order: Order) -> str:
        condition = self.condition
        if condition is Condition.DOWN:
            await asyncio.sleep(REFUSED)
            raise Transient("connection refused")
        await asyncio.sleep(SLOW if condition is Condition.DEGRADED else QUICK)
        if condition is Condition.DEGRADED and call.is_first:
            self._keys_degraded += 1
            if self._keys_degraded % FAILS_EVERY == 0:
                self._fail(call.key, order)
        return self._provider.charge(call.key, self.name, order)

    def _fail(self, key: str, order: Order) -> None:
        """Fail. Every second time the money was taken, and only the answer is lost."""
        self._losses += 1
        if self._losses % 2:
            raise Transient("too busy")
        self._provider.charge(key, self.name, order)
        raise TimeoutError("no answer")


class Gateway:
    """A service that carries few calls at once. ``begun``: merchants in the order of their calls; ``orders``: by key."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.orders: list[tuple[str, str]] = []
        self.peaks: Counter[str] = Counter()  # of calls at once, by merchant; "": of all
        self._now: Counter[str] = Counter()

    async def forward(self, key: str, order: Order) -> None:
        """Forward an order to its merchant."""
        self.begun.append(order.merchant)
        for name in (order.merchant, ""):
            self._now[name] += 1
            self.peaks[name] = max(self.peaks[name], self._now[name])
        await asyncio.sleep(QUICK)
        for name in (order.merchant, ""):
            self._now[name] -= 1
        self.orders.append((key, order.id))
