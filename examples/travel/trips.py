"""Trips of three bookings. Each booking is a child task of its trip, with a place and a payment; the services keep books.

The books are one SQLite file, so that what the services did survives the processes that are killed. A service acts once for a key.
"""

import os
import sqlite3
from contextlib import closing

from arriero import Agent, App, Attempt, Permanent, Undo, workflow

KINDS = {"flight": 42_050, "hotel": 31_999, "car": 8_700}
"""What can be booked, and what it costs, in cents."""
FULL = "full"
"""The place where nothing is left."""
FORGETS_REFUNDS = "TRAVEL_FORGETS_REFUNDS"
"""In the environment: the bank of the negative control."""

bookings = Agent("bookings", breaker=None)
bank = Agent("bank", breaker=None)


def open_books() -> closing[sqlite3.Connection]:
    """Open the books of the services."""
    books = sqlite3.connect(os.environ["TRAVEL_BOOKS"], timeout=30, isolation_level=None)
    books.execute("CREATE TABLE IF NOT EXISTS entry (key TEXT PRIMARY KEY, trip TEXT, account TEXT, amount INTEGER)")
    return closing(books)


def enter(key: str, trip: str, account: str, amount: int) -> None:
    """Enter one movement. Under a key that is known nothing is entered."""
    with open_books() as books:
        books.execute("INSERT OR IGNORE INTO entry VALUES (?, ?, ?, ?)", (key, trip, account, amount))


@bookings.step
def hold_place(attempt: Attempt, trip: str, kind: str, place: str) -> str:
    """Hold a place."""
    if place == FULL:
        raise Permanent(f"no {kind} is left", code="full")
    enter(attempt.idempotency_key, trip, f"places: {kind}", 1)
    return f"{kind} in {place}"


@hold_place.compensation
def release_place(undo: Undo[str], trip: str, kind: str, place: str) -> None:
    """Release the place, if it was held."""
    if is_entered(undo.forward_key):
        enter(undo.idempotency_key, trip, f"places: {kind}", -1)


@bank.step
def pay(attempt: Attempt, trip: str, kind: str) -> int:
    """Take the money for one booking."""
    enter(attempt.idempotency_key, trip, f"money: {kind}", KINDS[kind])
    return KINDS[kind]


@pay.compensation
def refund(undo: Undo[int], trip: str, kind: str) -> None:
    """Give the money back, if it was taken."""
    if is_entered(undo.forward_key) and FORGETS_REFUNDS not in os.environ:
        enter(undo.idempotency_key, trip, f"money: {kind}", -KINDS[kind])


def is_entered(key: str) -> bool:
    """Returns True if a service has acted for a key: an attempt that was killed may have."""
    with open_books() as books:
        return books.execute("SELECT 1 FROM entry WHERE key = ?", (key,)).fetchone() is not None


@workflow
async def booking(trip: str, kind: str, place: str) -> str:
    """Book one part of a trip."""
    held = await hold_place(trip, kind, place)
    await pay(trip, kind)
    return held


@workflow
async def journey(trip: str, places: dict[str, str]) -> list[str]:
    """Book a trip, one part after the other. If a part fails permanently, the parts before it are undone in reverse order."""
    return [await booking(trip, kind, places[kind]) for kind in KINDS]


app = App("travel", agents=[bookings, bank], workflows=[booking, journey])
