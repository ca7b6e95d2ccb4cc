"""The shop: one Agent for each remote service, its steps with what undoes them, and three workflows.

    arriero run examples.orders.shop:app

Read this file to see what a user writes; everything else in the folder is the world around it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass

from arriero import Agent, App, Attempt, Breaker, ConvoyPolicy, Retry, Supervision, Undo, workflow

from .ledger import Order
from .operations import CHARGE, CORRECT, PAY_BACK, RESERVE, SHIP, TAKE_IN, parcels_of
from .remote import Service, open_service
from .variables import BREAK_VARIABLE

SECONDS_PER_ATTEMPT = 2.0
"""Short, so that a call that hangs is given up while somebody watches; a real bank deserves more."""
PATIENT = Supervision(attempts=12)
"""The services fail in passing at most 4 times under one key; the rest is for calls that wait behind others."""
UNDOING = Supervision(attempts=30)
"""An undo that is given up needs an operator, so it is given up late."""
TRIES = Retry(tries=2, delay=0.1)
IN_TURN = ConvoyPolicy(head="skip")
"""A customer's orders are one convoy. One that was undone has been handled, and the next one's turn comes. One that is
held for an operator is set aside: what the customer orders later does not wait for it."""

DOWN = Breaker(failure_rate=0.8)
"""In a storm of the demo half of all calls fail, and the services are still there: nothing should wait for them then."""

payments = Agent("payments", max_in_flight=40, breaker=DOWN)
stock = Agent("stock", max_in_flight=40, breaker=DOWN)
shipping = Agent("shipping", max_in_flight=40, breaker=DOWN)


@dataclass(frozen=True)
class Handled:
    """The services' own numbers for what was done for an order."""

    receipt: str
    reservation: str
    shipment: str


@payments.resource
async def bank() -> AsyncIterator[Service]:
    async with open_service() as service:
        yield service


@stock.resource
async def warehouse() -> AsyncIterator[Service]:
    async with open_service() as service:
        yield service


@shipping.resource
async def carrier() -> AsyncIterator[Service]:
    async with open_service() as service:
        yield service


@payments.step(complete_within=SECONDS_PER_ATTEMPT, retry=TRIES, supervision=PATIENT)
async def charge(attempt: Attempt, order: Order) -> str:
    """Charge the customer's card."""
    return await bank().perform(CHARGE, attempt, order.id, order.pence)


@charge.compensation(complete_within=SECONDS_PER_ATTEMPT, retry=TRIES, supervision=UNDOING)
async def refund(undo: Undo[str], order: Order) -> None:
    if os.environ.get(BREAK_VARIABLE) == "refund":
        return  # the demo's negative control: the books must convict an undo that does nothing
    await bank().undo(CHARGE, undo, order.id)


@payments.step(complete_within=SECONDS_PER_ATTEMPT, retry=TRIES, supervision=PATIENT)
async def pay_back(attempt: Attempt, order: Order) -> str:
    """Give a cancelled purchase's money back."""
    return await bank().perform(PAY_BACK, attempt, order.id, -order.pence)


@pay_back.compensation(complete_within=SECONDS_PER_ATTEMPT, retry=TRIES, supervision=UNDOING)
async def reclaim(undo: Undo[str], order: Order) -> None:
    await bank().undo(PAY_BACK, undo, order.id)


@stock.step(complete_within=SECONDS_PER_ATTEMPT, retry=TRIES, supervision=PATIENT)
async def reserve(attempt: Attempt, order: Order) -> str:
    """Set the pieces aside for the customer."""
    return await warehouse().perform(RESERVE, attempt, order.id, order.pieces)


@reserve.compensation(complete_within=SECONDS_PER_ATTEMPT, retry=TRIES, supervision=UNDOING)
async def release(undo: Undo[str], order: Order) -> None:
    await warehouse().undo(RESERVE, undo, order.id)


@stock.step(complete_within=SECONDS_PER_ATTEMPT, retry=TRIES, supervision=PATIENT)
async def take_in(attempt: Attempt, order: Order) -> str:
    """Put the pieces that came back on the shelf."""
    return await warehouse().perform(TAKE_IN, attempt, order.id, -order.pieces)


@take_in.compensation(complete_within=SECONDS_PER_ATTEMPT, retry=TRIES, supervision=UNDOING)
async def withdraw(undo: Undo[str], order: Order) -> None:
    await warehouse().undo(TAKE_IN, undo, order.id)


@stock.step(complete_within=SECONDS_PER_ATTEMPT, retry=TRIES, supervision=PATIENT)
async def write_off(attempt: Attempt, order: Order) -> str:
    """Take pieces out of the books that are not on the shelf any more."""
    return await warehouse().perform(CORRECT, attempt, order.id, -order.pieces)


@write_off.compensation(complete_within=SECONDS_PER_ATTEMPT, retry=TRIES, supervision=UNDOING)
async def restore(undo: Undo[str], order: Order) -> None:
    await warehouse().undo(CORRECT, undo, order.id)


@shipping.step(complete_within=SECONDS_PER_ATTEMPT, retry=TRIES, supervision=PATIENT)
async def ship(attempt: Attempt, order: Order) -> str:
    """Hand the parcels to the carrier."""
    return await carrier().perform(SHIP, attempt, order.id, parcels_of(order))


@ship.compensation(complete_within=SECONDS_PER_ATTEMPT, retry=TRIES, supervision=UNDOING)
async def recall(undo: Undo[str], order: Order) -> None:
    await carrier().undo(SHIP, undo, order.id)


@workflow(supervision=PATIENT, convoy_policy=IN_TURN)
async def fulfil(order: Order) -> Handled:
    """A purchase: the money first, then pieces and parcels side by side. Whatever fails, all of it is undone."""
    receipt = await charge(order)
    reservation, shipment = await asyncio.gather(reserve(order), ship(order))
    return Handled(receipt, reservation, shipment)


@workflow(supervision=PATIENT, convoy_policy=IN_TURN)
async def take_back(order: Order) -> tuple[str, str]:
    """A cancellation: money and pieces go back."""
    paid_back, taken_in = await asyncio.gather(pay_back(order), take_in(order))
    return paid_back, taken_in


@workflow(supervision=PATIENT, convoy_policy=IN_TURN)
async def correct(order: Order) -> str:
    """A correction of the stock, which no customer ordered."""
    return await write_off(order)


shop = App("shop", agents=[payments, stock, shipping], workflows=[fulfil, take_back, correct])
app = shop
