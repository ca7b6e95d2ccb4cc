"""What the three services can do, each operation beside the one that undoes it.

Both sides read this table: the services to know what they are asked, the books to know what an order's whole effect is.
"""

from __future__ import annotations

from dataclasses import dataclass

from .ledger import Kind, Order

PIECES_PER_PARCEL_MAX = 250
"""What one parcel holds; an order of more pieces travels in several."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a service and its undo; ``unit`` is what its amounts count, ``sign`` how they enter the net."""

    service: str
    name: str
    undo: str
    unit: str
    sign: int

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"

    @property
    def undo_path(self) -> str:
        return f"/{self.service}/{self.undo}"


CHARGE = Operation("payments", "charges", "refunds", unit="pence", sign=1)
PAY_BACK = Operation("payments", "paybacks", "reclaims", unit="pence", sign=-1)
RESERVE = Operation("stock", "reservations", "releases", unit="pieces", sign=1)
TAKE_IN = Operation("stock", "returns", "withdrawals", unit="pieces", sign=-1)
CORRECT = Operation("stock", "corrections", "restorations", unit="pieces", sign=1)
SHIP = Operation("shipping", "parcels", "recalls", unit="parcels", sign=1)

OPERATIONS = (CHARGE, PAY_BACK, RESERVE, TAKE_IN, CORRECT, SHIP)
SERVICES = ("payments", "stock", "shipping")

DOWN_STATUS, DOWN_CODE = 503, "down"
"""The answer of a service that is down as a whole. It is given before the call is looked at, so nothing has happened."""


def parcels_of(order: Order) -> int:
    """How many parcels a purchase travels in: at least one."""
    return -(-order.pieces // PIECES_PER_PARCEL_MAX)


def whole_effect(order: Order) -> dict[Operation, int]:
    """Every operation that handling this order as a whole performs exactly once, with its amount (never negative).

    A purchase of price zero is still charged: the charge of 0 is an effect, and the books expect to find it.
    """
    match order.kind:
        case Kind.PURCHASE:
            return {CHARGE: order.pence, RESERVE: order.pieces, SHIP: parcels_of(order)}
        case Kind.CANCELLATION:
            return {PAY_BACK: -order.pence, TAKE_IN: -order.pieces}
        case Kind.CORRECTION:
            return {CORRECT: -order.pieces}
