"""The shop's work: what becomes of an order after the customer has been answered. All of it is code that a user would write."""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass

import arriero
from arriero import Agent, App, Callback, Permanent, Undo, callback, workflow
from arriero.http import AsyncClient

LIMIT = 100_000  # cents: an order above it waits for an operator
LIMIT_OF_ONE = 10 * LIMIT  # above it two operators must agree


@dataclass
class Receipt:
    """A payment, as the bank's webhook reports it."""

    payment: str
    cents: int


@dataclass
class Decision:
    """The answer of finance to a question."""

    approved: bool
    note: str = ""


bank = Agent("bank")
warehouse = Agent("warehouse")


@bank.resource
async def bank_client() -> AsyncIterator[AsyncClient]:
    async with AsyncClient(base_url=os.environ["SHOP_BANK"]) as opened:
        yield opened


@bank.step
async def collect(order: str, cents: int, paid: Callback[Receipt]) -> None:
    """Ask the bank to collect the money. It reports each payment by its webhook, with the token as the reference."""
    await bank_client().post("/collections", json={"order": order, "cents": cents, "reference": paid.token})


@collect.compensation
async def withdraw(undo: Undo[None], order: str, cents: int, paid: Callback[Receipt]) -> None:
    """Take the collection back. The bank refunds what was paid."""
    await bank_client().post("/withdrawals", json={"collected_under": undo.forward_key})


@bank.step(pivot=True)  # a refund is final
async def give_back(payment: str) -> None:
    """Refund one payment."""
    await bank_client().post("/refunds", json={"payment": payment})


@warehouse.resource
async def warehouse_client() -> AsyncIterator[AsyncClient]:
    async with AsyncClient(base_url=os.environ["SHOP_WAREHOUSE"]) as opened:
        yield opened


@warehouse.step(pivot=True)  # a parcel that was sent stays sent
async def deliver(order: str) -> None:
    await warehouse_client().post("/parcels", json={"order": order})


@workflow
async def sell(order: str, cents: int, open_for: float) -> str:
    """Sell an order that the customer may pay within ``open_for`` seconds."""
    paid = callback(Receipt, within=open_for)  # from here on a payment counts, whatever the code waits for
    await collect(order, cents, paid)
    if cents > LIMIT:
        decision = await arriero.ask(
            f"Sell order {order} for {cents / 100:,.2f} EUR?",
            Decision,
            of="finance",
            within=open_for,
            otherwise=Decision(False, "not answered in time"),
            operators=2 if cents > LIMIT_OF_ONE else 1,
        )
        if not decision.approved:
            raise Permanent(f"finance refused: {decision.note}", code="refused")
    receipt = await paid
    if receipt.cents != cents:
        raise Permanent(f"{receipt.cents} cents were paid instead of {cents}", code="wrong_amount")
    await deliver(order)
    return receipt.payment


app = App("shop", agents=[bank, warehouse], workflows=[sell])
