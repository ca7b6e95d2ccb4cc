"""The services of a shop, which all its releases call. They keep books, and act once for a key.

The books are one SQLite file, so that what the services did survives the processes that are killed.
"""

import os
import sqlite3
from contextlib import closing

from arriero import Agent, Attempt, Signal

bank = Agent("bank", breaker=None)
stock = Agent("stock", breaker=None)
approved = Signal("approved", str)


def open_books() -> closing[sqlite3.Connection]:
    """Open the books of the services."""
    books = sqlite3.connect(os.environ["UPGRADE_BOOKS"], timeout=30, isolation_level=None)
    books.execute("CREATE TABLE IF NOT EXISTS entry (key TEXT PRIMARY KEY, number INTEGER, what TEXT)")
    return closing(books)


def enter(key: str, number: int, what: str) -> None:
    """Enter what a service did for an order. Under a key that is known nothing is entered."""
    with open_books() as books:
        books.execute("INSERT OR IGNORE INTO entry VALUES (?, ?, ?)", (key, number, what))


@bank.step(effect_free=True)
def charge(attempt: Attempt, number: int) -> str:
    """Charge an order."""
    enter(attempt.idempotency_key, number, "charged")
    return f"receipt {number}"


@stock.step(effect_free=True)
def reserve(attempt: Attempt, number: int) -> None:
    """Reserve the goods of an order."""
    enter(attempt.idempotency_key, number, "reserved")


@stock.step(effect_free=True)
def ship(attempt: Attempt, number: int) -> None:
    """Ship an order."""
    enter(attempt.idempotency_key, number, "shipped")
