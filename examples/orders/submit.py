"""Submits a ledger: each order becomes one task, under the order's own id.

    python -m examples.orders.submit LEDGER

A process of its own, as a shop's front would be. It may be run again over the same ledger: an order that is a task
already stays that task. The store is the one the environment names, as for every client of an App.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from .ledger import Kind, LedgerError, Order, read_ledger
from .shop import correct, fulfil, shop, take_back

BATCH = 100
"""Submissions under way at once: they share their commits, and the other processes still get their turn."""


async def submit_orders(orders: Sequence[Order]) -> None:
    """Submit all, in their order, a batch at a time."""
    remaining = iter(orders)
    async with shop:
        while batch := list(islice(remaining, BATCH)):
            async with asyncio.TaskGroup() as group:
                for order in batch:
                    group.create_task(_submit(order))


async def _submit(order: Order) -> None:
    match order.kind:
        case Kind.PURCHASE:
            await shop.submit(fulfil(order), task_id=order.id)
        case Kind.CANCELLATION:
            await shop.submit(take_back(order), task_id=order.id)
        case Kind.CORRECTION:
            await shop.submit(correct(order), task_id=order.id)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Submit a ledger to the shop.")
    parser.add_argument("ledger", type=Path, help="a CSV file, gzipped or plain")
    options = parser.parse_args(arguments)
    try:
        ledger = read_ledger(options.ledger)
    except LedgerError as error:
        print(error, file=sys.stderr)
        return 2
    asyncio.run(submit_orders(ledger.orders))
    print(f"submitted {len(ledger.orders)} orders, {len(ledger.set_aside)} lines set aside", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
