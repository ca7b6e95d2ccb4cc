"""Makes a ledger like a shop's: mostly purchases, some brought back, some corrections, some customers unknown."""

from __future__ import annotations

import csv
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

from .ledger import CANCELLATION_MARK, COLUMNS, UNKNOWN_CUSTOMER

FIRST_INVOICE = 600_001
OPENING = datetime(2026, 1, 5, 8, 30)
COUNTRIES = ("United Kingdom",) * 8 + ("Germany", "France", "Spain", "Portugal")
CANCELLATIONS = 0.12
CORRECTIONS = 0.05
UNKNOWN = 0.15
GIFTS = 0.03
"""The share of purchases at a price of zero."""


def write_ledger(path: Path, orders: int, seed: int) -> None:
    """Write a ledger of so many lines; the same seed writes the same lines."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(_rows(orders, Random(seed)))


def _rows(orders: int, random: Random) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    purchases: list[tuple[str, ...]] = []
    at = OPENING
    for number in range(FIRST_INVOICE, FIRST_INVOICE + orders):
        at += timedelta(minutes=random.randint(1, 9))
        drawn = random.random()
        if drawn < CORRECTIONS:
            row = _correction(number, at, random)
        elif drawn < CORRECTIONS + CANCELLATIONS and purchases:
            row = _cancellation(number, at, purchases.pop(random.randrange(len(purchases))))
        else:
            row = _purchase(number, at, random)
            purchases.append(row)
        rows.append(row)
    return rows


def _purchase(number: int, at: datetime, random: Random) -> tuple[str, ...]:
    customer = UNKNOWN_CUSTOMER if random.random() < UNKNOWN else str(random.randint(12_346, 12_446))
    price = "0" if random.random() < GIFTS else f"{random.randint(1_000, 99_999) / 10_000:.4f}"
    pieces = round(random.lognormvariate(4, 1.2)) + 1
    return (str(number), at.isoformat(), customer, random.choice(COUNTRIES), str(pieces), price)


def _cancellation(number: int, at: datetime, purchase: tuple[str, ...]) -> tuple[str, ...]:
    _, _, customer, country, pieces, price = purchase
    return (f"{CANCELLATION_MARK}{number}", at.isoformat(), customer, country, f"-{pieces}", price)


def _correction(number: int, at: datetime, random: Random) -> tuple[str, ...]:
    return (str(number), at.isoformat(), UNKNOWN_CUSTOMER, "United Kingdom", str(-random.randint(1, 60)), "0")
