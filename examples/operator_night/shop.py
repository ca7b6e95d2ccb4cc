"""A small shop whose bank refuses cards permanently, and whose refunds may fail until the bank is repaired."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from arriero import Agent, App, Attempt, Permanent, Supervision, Undo, workflow


@dataclass
class Bank:
    """The remote side: it deduplicates by key, and bars a key that was refunded from being charged later."""

    refunds_work: bool = True
    charged: dict[str, int] = field(default_factory=dict)
    barred: set[str] = field(default_factory=set)
    calls: Counter[str] = field(default_factory=Counter)

    def charge(self, key: str, card: str, pence: int) -> str:
        self.calls["charge"] += 1
        if key in self.barred:
            raise Permanent("this charge was taken back", code="barred")
        if card == "expired":
            raise Permanent("the card has expired", code="card_expired")
        self.charged.setdefault(key, pence)
        return f"receipt-{key[:8]}"

    def refund(self, key: str) -> None:
        self.calls["refund"] += 1
        if not self.refunds_work:
            raise ConnectionError("the bank's refund service answers nothing")
        self.barred.add(key)
        self.charged.pop(key, None)

    @property
    def pence(self) -> int:
        return sum(self.charged.values())


bank = Bank()
payments = Agent("payments")
stock = Agent("stock")


@stock.step
def reserve(order: str) -> str:
    return f"shelf-{order}"


@reserve.compensation
def release(order: str) -> None:
    return


@payments.step(supervision=Supervision(attempts=2, then="hold"))  # refused permanently: an operator decides
def charge(attempt: Attempt, card: str, pence: int) -> str:
    return bank.charge(attempt.idempotency_key, card, pence)


@charge.compensation(supervision=Supervision(attempts=1))
def refund(undo: Undo[str], card: str, pence: int) -> None:
    bank.refund(undo.forward_key)


@stock.step(effect_free=True)  # it only names the parcel
def pack(order: str) -> str:
    return f"parcel-{order}"


@workflow
async def fulfil(order: str, card: str, pence: int) -> str:
    await reserve(order)
    receipt = await charge(card, pence)
    await pack(order)
    return receipt


app = App("night_shop", agents=[payments, stock], workflows=[fulfil])
