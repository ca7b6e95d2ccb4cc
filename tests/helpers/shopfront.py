"""The App that the tests of the command line run, in other processes and in their own.

Steps say on standard output that they are at work; some go on only when there is a file ``gate`` in the working folder.
"""

import asyncio
import sys
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path

from arriero import (
    Agent,
    App,
    Attempt,
    MissingCompensationWarning,
    Permanent,
    Retry,
    Supervision,
    Undo,
    sleep,
    workflow,
)

payments, stock = Agent("payments"), Agent("stock")
GATE = Path("gate")


@dataclass(frozen=True)
class Order:
    id: str
    pieces: int = 1


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@payments.step(complete_within=60, retry=Retry(tries=2), supervision=Supervision(attempts=4, rounds=5))
async def charge(attempt: Attempt, order: Order) -> str:
    return f"receipt-{order.id}"


@charge.compensation(supervision=Supervision(attempts=1))
async def refund(undo: Undo[str], order: Order) -> None:
    if order.id == "unrefundable":
        raise Permanent("the bank says no", code="closed")


@stock.step
def reserve(attempt: Attempt, order: Order) -> None:
    if order.pieces > 10:
        raise Permanent("out of\nstock", code="out_of_stock")


@stock.step(complete_within=60)
async def pack(attempt: Attempt, order: Order) -> str:
    say(f"packing {order.id}")
    while not GATE.exists():  # it is opened by another process
        await asyncio.sleep(0.005)
    return f"packed-{order.id}"


@stock.step(complete_within=0.3, supervision=Supervision(attempts=1), effect_free=True)
def jam(attempt: Attempt) -> None:
    say("jammed")
    threading.Event().wait()


@stock.step(pivot=True)
def ship(attempt: Attempt, order: Order) -> None:
    pass


@payments.step(retry=Retry(tries=1), supervision=Supervision(attempts=1))
def transfer(attempt: Attempt, order: Order) -> str:
    raise TimeoutError("no answer")


@workflow
async def fulfil(order: Order) -> str:
    receipt = await charge(order)
    await reserve(order)
    return receipt


@workflow
async def parcel(order: Order) -> str:
    receipt = await charge(order)
    return f"{receipt} {await pack(order)}"


@workflow
async def jammed() -> None:
    await jam()


@workflow
async def buggy(order: Order) -> None:
    await charge(order)
    raise ZeroDivisionError("a bug")


@workflow
async def later(order: Order) -> None:
    await sleep(3600)


@workflow(complete_within=3600, supervision=Supervision(then="hold"))
async def held(order: Order) -> str:
    receipt = await charge(order)
    await reserve(order)
    return receipt


@workflow(supervision=Supervision(then="hold"))
async def shipped(order: Order) -> None:
    await ship(order)
    await reserve(order)


@workflow(supervision=Supervision(then="hold"))
async def wired(order: Order) -> str:
    return await transfer(order)


warnings.simplefilter("ignore", MissingCompensationWarning)  # tests compare what commands write
app = App(
    "shopfront",
    agents=[payments, stock],
    workflows=[fulfil, parcel, jammed, buggy, later, held, shipped, wired],
)
broken = 7
