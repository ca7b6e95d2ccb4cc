"""The App whose store and export lie here. Release 0.4.0 ran ``python small_shop.py`` in this folder to make them.

Tasks of every kind are left behind: ended, undone, in error, asleep, paused, in convoys with a gap and with an end mark, of a
ledger, with unread statuses, and one whose process was killed in the middle of an attempt.
"""

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import arriero
from arriero import Agent, App, Attempt, ConvoyPolicy, Entry, Permanent, Supervision, Undo, workflow

STORE = Path("store.db")
KILLED = 9


@dataclass(frozen=True)
class Order:
    """An order over so many pieces; ``what`` goes wrong with it."""

    id: str
    pieces: int = 1
    what: str = ""


payments, stock = Agent("payments"), Agent("stock")


@payments.step(complete_within=60)
async def charge(attempt: Attempt, order: Order) -> str:
    if order.what == "killed" and "--kill" in sys.argv:
        os._exit(KILLED)
    return f"receipt {order.id}"


@charge.compensation
async def refund(undo: Undo[str], order: Order) -> None:
    if order.what == "no refund":
        raise Permanent("the bank refuses the refund", code="no_refund")


@stock.step
def reserve(attempt: Attempt, order: Order) -> int:
    if order.pieces > 10:
        raise Permanent("out of stock", code="out_of_stock")
    return order.pieces


@reserve.compensation
def put_back(undo: Undo[int], order: Order) -> None:
    pass


@workflow
async def fulfil(order: Order) -> str:
    receipt = await charge(order)
    await reserve(order)
    if order.what == "bug":
        raise KeyError("nix")
    if order.what == "asleep":
        await arriero.sleep(30 * 86_400)
    return receipt


@workflow(convoy_policy=ConvoyPolicy(gap_within=365 * 86_400), supervision=Supervision(then="hold"))
async def move(order: Order) -> int:
    return await reserve(order)


app = App("small-shop", agents=[payments, stock], workflows=[fulfil, move], store=f"sqlite:///{STORE}")


async def _fill() -> None:
    async with app.running():
        ended = [
            await app.submit(fulfil(Order("processed")), task_id="processed", reply_to="web"),
            await app.submit(fulfil(Order("undone", 11)), task_id="undone", reply_to="web"),
            await app.submit(fulfil(Order("bug", 1, "bug")), task_id="bug", reply_to="web"),
            await app.submit(fulfil(Order("stuck", 11, "no refund")), task_id="stuck"),
            await app.submit(move(Order("set back", 2)), task_id="first of k", convoy="k"),
            await app.submit(move(Order("held", 12)), task_id="second of k", convoy="k"),
        ]
        for task in ended:
            with suppress(arriero.TaskFailed):
                await task.result(timeout=30)
        await app.submit(move(Order("waits", 1)), task_id="third of k", convoy="k")
        for number in (1, 2, 4):
            await app.submit(move(Order(f"n{number}")), task_id=f"number {number}", convoy="numbered", sequence=number)
        await app.submit(move(Order("last")), task_id="last", convoy="over", end_of_sequence=True)
        await app.submit_ledger(
            "morning", [Entry(move(Order(f"m{n}")), task_id=f"m{n}", convoy=f"c{n % 2}") for n in range(4)]
        )
        asleep = await app.submit(fulfil(Order("asleep", 1, "asleep")), task_id="asleep")
        await app.submit(fulfil(Order("later")), task_id="later", delay=30 * 86_400)
        await app.task("undone").resubmit(
            by="ann", reason="the shelf is full again", arguments={"order": Order("undone", 3)}
        )
        for task in (*(app.task(f"m{n}") for n in range(4)), app.task("undone"), app.task("number 2")):
            await task.result(timeout=30)
        while (await asleep.view()).state != "processing" or len(await _steps(asleep)) < 3:
            await asyncio.sleep(0.05)
        await app.task("later").pause(by="bob", reason="the customer asked")


async def _steps(task: object) -> tuple[object, ...]:
    loaded = await task._load()  # type: ignore[attr-defined]
    return tuple(loaded.steps)


async def _leave_one_behind() -> None:
    async with app.running():
        await app.submit(fulfil(Order("killed", 1, "killed")), task_id="killed")
        await asyncio.sleep(60)


if __name__ == "__main__":
    if "--kill" in sys.argv:
        asyncio.run(_leave_one_behind())
    asyncio.run(_fill())
    killed = subprocess.run([sys.executable, __file__, "--kill"], check=False)
    assert killed.returncode == KILLED
    with closing(sqlite3.connect(STORE)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with Path("export.jsonl").open("wb") as file:
        subprocess.run(
            [sys.executable, "-m", "arriero", "export", "--store", f"sqlite:///{STORE}"], stdout=file, check=True
        )
