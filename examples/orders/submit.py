"""Submits a ledger: each order becomes a row of the shop's own table and a task, both in one transaction.

    python -m examples.orders.submit LEDGER

A process of its own, as a shop's front would be. A customer's orders are one convoy, in the ledger's order: they are
submitted in that order and each batch is committed before the next begins, so whoever submits an order has found all those
before it kept. It may therefore be killed, and run again over the same ledger, even twice at once: an order that is a task
already stays that task, at its place. The store is the one that the settings name, as for every client of an App.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from arriero.config import load_configuration

from .ledger import Kind, LedgerError, Order, read_ledger
from .orders_table import keep_order, make_table
from .places import Place, UnusablePlace, place_of
from .shop import correct, fulfil, shop, take_back

BATCH = 50
"""Orders in one transaction: few enough that the worker's own writes get their turn."""


async def submit_orders(orders: Sequence[Order], place: Place) -> None:
    """Submit all, in their order, a batch at a time."""
    remaining = iter(orders)
    async with shop:
        with place.connected() as connection:
            make_table(connection, place)
            while batch := list(islice(remaining, BATCH)):
                while not await submitted_together(batch, place, connection):
                    pass  # another transaction came first: ours was rolled back as a whole, and runs again


async def submitted_together(batch: Sequence[Order], place: Place, connection: Any) -> bool:
    """Rows and tasks of a batch, all or none. False: none, because of another transaction."""
    try:
        with place.transaction(connection):
            for order in batch:
                keep_order(connection, place, order)
                await shop.submit(_task_of(order), task_id=order.id, convoy=order.customer_id, connection=connection)
    except place.conflicts:
        return False
    return True


def _task_of(order: Order) -> Any:
    match order.kind:
        case Kind.PURCHASE:
            return fulfil(order)
        case Kind.CANCELLATION:
            return take_back(order)
        case Kind.CORRECTION:
            return correct(order)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Submit a ledger to the shop.")
    parser.add_argument("ledger", type=Path, help="a CSV file, gzipped or plain")
    options = parser.parse_args(arguments)
    try:
        ledger = read_ledger(options.ledger)
        place = place_of(load_configuration().store)
    except (LedgerError, UnusablePlace) as error:
        print(error, file=sys.stderr)
        return 2
    asyncio.run(submit_orders(ledger.orders, place))
    print(f"submitted {len(ledger.orders)} orders, {len(ledger.set_aside)} lines set aside", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
