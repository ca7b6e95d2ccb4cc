"""What is submitted: orders as in ``examples/orders``, made from their ids alone.

So the client that submits an order, and the judge who balances the books afterwards, need not tell each other.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from examples.orders.ledger import UNKNOWN_CUSTOMER, Kind, Order

from .shop import correct, take_back

PLACED_AT = datetime(2011, 12, 9, 12, 0)


def order_of(id: str) -> Order:
    """The order of an id that ends in ``-NUMBER``: by turns a cancellation and a correction."""
    number = int(id.rpartition("-")[2])
    kind = Kind.CORRECTION if number % 2 else Kind.CANCELLATION
    pieces = -1 - number % 400
    pence = 0 if kind is Kind.CORRECTION else pieces * 125
    return Order(id, kind, UNKNOWN_CUSTOMER, "United Kingdom", PLACED_AT, pieces, pence)


def call_of(order: Order) -> Any:
    """The workflow that handles it."""
    return correct(order) if order.kind is Kind.CORRECTION else take_back(order)
