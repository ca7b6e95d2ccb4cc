"""The box office's work: what becomes of a booking after the customer has been answered."""

import os

from arriero import Agent, App, Attempt, Permanent, Undo, workflow

PRICE = 3_000  # pence
SEATS = 45

bank = Agent("bank")
hall = Agent("hall")

# What the two remote services know. They deduplicate by the key, as a real service must.
charged: dict[str, int] = {}
refunded: dict[str, int] = {}
seats: dict[str, str] = {}


@bank.step
async def charge(attempt: Attempt, booking: str) -> int:
    charged.setdefault(attempt.idempotency_key, PRICE)
    return PRICE


@charge.compensation
async def refund(undo: Undo[int], booking: str) -> None:
    refunded.setdefault(undo.idempotency_key, PRICE)


@hall.step
async def seat(attempt: Attempt, booking: str) -> str:
    if attempt.idempotency_key not in seats and len(seats) == SEATS:
        raise Permanent("sold out", public="sold out")
    return seats.setdefault(attempt.idempotency_key, f"seat {len(seats) + 1}")


@seat.compensation
async def free(undo: Undo[str], booking: str) -> None:
    seats.pop(undo.forward_key, None)


@workflow
async def book(booking: str) -> str:
    await charge(booking)
    return await seat(booking)


STORE = os.environ.get("TICKETS_STORE", "sqlite:///tickets.db")

app = App("tickets", agents=[bank, hall], workflows=[book], store=STORE)
