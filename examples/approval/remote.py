"""The bank and the warehouse, with a ledger of what they did. Each does what came under an idempotency key once."""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import FastAPI, Header, Response

Key = Annotated[str, Header(alias="Idempotency-Key")]


@dataclass
class Payment:
    """Money that a customer paid to a collection. ``is_refunded``: it went back."""

    id: str
    order: str
    cents: int
    reference: str
    is_refunded: bool = False


@dataclass
class Collection:
    """Money that the shop asked for, under one key."""

    order: str
    cents: int
    reference: str
    is_withdrawn: bool = False
    payments: list[Payment] = field(default_factory=list)


OnCall = Callable[[str, str], Awaitable[None]]


class Remote:
    """Both services in one server, and what they know.

    Args:
        on_call: awaited after each call has had its effect and before it is answered, with its kind and its order.
    """

    def __init__(self, on_call: OnCall) -> None:
        self._on_call = on_call
        self.collections: dict[str, Collection] = {}  # by key
        self.by_order: defaultdict[str, list[Collection]] = defaultdict(list)
        self.payments: dict[str, Payment] = {}
        self.parcels: dict[str, str] = {}  # orders by key
        self.calls: Counter[str] = Counter()
        self.api = FastAPI()
        self.api.post("/collections", status_code=201)(self._collect)
        self.api.post("/withdrawals")(self._withdraw)
        self.api.post("/refunds")(self._refund)
        self.api.post("/parcels", status_code=201)(self._send_parcel)

    def pay(self, order: str, cents: int) -> Payment:
        """Pay an order as its customer. The bank takes the money even if the collection was withdrawn meanwhile."""
        collection = self.by_order[order][0]
        payment = Payment(f"{order}-p{len(collection.payments) + 1}", order, cents, collection.reference)
        collection.payments.append(payment)
        self.payments[payment.id] = payment
        return payment

    def count_net(self, order: str) -> int:
        """Count the cents of an order that the shop has."""
        return sum(
            payment.cents for payment in self.payments.values() if payment.order == order and not payment.is_refunded
        )

    # --- what the shop calls
    async def _collect(self, asked: dict[str, str | int], key: Key) -> dict[str, str]:
        if key not in self.collections:
            made = Collection(str(asked["order"]), int(asked["cents"]), str(asked["reference"]))
            self.collections[key] = made
            self.by_order[made.order].append(made)
        await self._note("collection", self.collections[key].order)
        return {}

    async def _withdraw(self, asked: dict[str, str], key: Key) -> dict[str, str]:
        """Withdraw a collection, also one that has not come yet: it must not take effect later."""
        known = self.collections.setdefault(asked["collected_under"], Collection("", 0, "", is_withdrawn=True))
        known.is_withdrawn = True
        for payment in known.payments:
            payment.is_refunded = True
        await self._note("withdrawal", known.order)
        return {}

    async def _refund(self, asked: dict[str, str], key: Key, response: Response) -> dict[str, str]:
        payment = self.payments.get(asked["payment"])
        if payment is None:
            response.status_code = 422
            return {"code": "unknown_payment", "message": "the bank has no such payment"}
        payment.is_refunded = True
        await self._note("refund", payment.order)
        return {}

    async def _send_parcel(self, asked: dict[str, str], key: Key) -> dict[str, str]:
        self.parcels.setdefault(key, asked["order"])
        await self._note("parcel", asked["order"])
        return {}

    async def _note(self, kind: str, order: str) -> None:
        self.calls[kind] += 1
        await self._on_call(kind, order)
