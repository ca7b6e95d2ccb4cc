"""The App of this example: cancellations and corrections of the shop in ``examples/orders``, with more patience.

There an attempt has two seconds, for somebody who watches. Here the machine is busy on purpose, and an attempt that is
given up only because it had to wait would tell nothing about the fail-over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from arriero import Agent, App, Attempt, workflow
from examples.orders.ledger import Order
from examples.orders.operations import CORRECT, PAY_BACK, TAKE_IN
from examples.orders.remote import Service, open_service

SECONDS_PER_ATTEMPT = 20.0
payments, stock = Agent("payments", max_in_flight=8), Agent("stock", max_in_flight=8)


@payments.resource
async def bank() -> AsyncIterator[Service]:
    async with open_service() as service:
        yield service


@stock.resource
async def warehouse() -> AsyncIterator[Service]:
    async with open_service() as service:
        yield service


@payments.step(complete_within=SECONDS_PER_ATTEMPT)
async def pay_back(attempt: Attempt, order: Order) -> str:
    return await bank().perform(PAY_BACK, attempt, order.id, -order.pence)


@stock.step(complete_within=SECONDS_PER_ATTEMPT)
async def take_in(attempt: Attempt, order: Order) -> str:
    return await warehouse().perform(TAKE_IN, attempt, order.id, -order.pieces)


@stock.step(complete_within=SECONDS_PER_ATTEMPT)
async def write_off(attempt: Attempt, order: Order) -> str:
    return await warehouse().perform(CORRECT, attempt, order.id, -order.pieces)


@workflow
async def take_back(order: Order) -> tuple[str, str]:
    """Two steps side by side."""
    paid_back, taken_in = await asyncio.gather(pay_back(order), take_in(order))
    return paid_back, taken_in


@workflow
async def correct(order: Order) -> str:
    """One step."""
    return await write_off(order)


app = App("shop", agents=[payments, stock], workflows=[take_back, correct])
