"""The App that the tests of the command line run, in this process and in others.

Steps that hold up are released by a file in the folder that ``SHOPFRONT_GATE`` names, never by time.
"""

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

from arriero import Agent, App, Attempt, Permanent, Retry, Supervision, Undo, sleep, workflow

payments, stock = Agent("payments"), Agent("stock")


@dataclass(frozen=True)
class Order:
    id: str
    pieces: int = 1


def folder() -> Path:
    return Path(os.environ["SHOPFRONT_GATE"])


def note(what: str) -> None:
    with (folder() / "effects").open("a") as file:
        file.write(f"{what}\n")


@payments.step(complete_within=60, retry=Retry(tries=2), supervision=Supervision(attempts=4, rounds=5))
async def charge(attempt: Attempt, order: Order) -> str:
    return f"receipt-{order.id}"


@charge.compensation
async def refund(undo: Undo[str], order: Order) -> None:
    pass


@stock.step
def reserve(attempt: Attempt, order: Order) -> None:
    if order.pieces > 10:
        raise Permanent("out of\nstock", code="out_of_stock")


@stock.step(complete_within=60)
async def pack(attempt: Attempt, order: Order) -> str:
    """Goes on only when the gate is open."""
    note(f"pack {order.id}")
    while not (folder() / "gate").exists():
        await asyncio.sleep(0.005)
    return "packed"


@stock.step(complete_within=0.4, supervision=Supervision(attempts=1))
def jam(attempt: Attempt, order: Order) -> None:
    """A thread that outlives its deadline by far."""
    note(f"jam {order.id}")
    time.sleep(120)


@workflow
async def fulfil(order: Order) -> str:
    receipt = await charge(order)
    await reserve(order)
    return receipt


@workflow
async def parcel(order: Order) -> str:
    await charge(order)
    packed = await pack(order)
    await charge(order)
    return packed


@workflow
async def jammed(order: Order) -> None:
    await jam(order)


@workflow
async def buggy(order: Order) -> None:
    await charge(order)
    raise ZeroDivisionError("a bug")


@workflow
async def later(order: Order) -> None:
    await sleep(3600)


app = App("shopfront", agents=[payments, stock], workflows=[fulfil, parcel, jammed, buggy, later])
not_an_app = 7
