"""The customer of the web shops beside this file, and what a run of either prints. See their ``run.py``."""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from arriero.testing.postgres import Server
from examples.payment_service import running_service

ORDERS = (("1001", 2, 4_200), ("1002", 99, 900), ("1003", 1, 999_999))
EXPECTED = {
    "1001": (202, 200, {"receipt": "receipt-1001-4200"}),
    "1002": (202, 409, {"detail": "out of stock"}),
    "1003": (422, 404, {"detail": "no such order"}),  # rolled back: neither row nor task
}


def buy(post: Callable[[str, Mapping[str, object]], Any], get: Callable[[str], Any]) -> list[str]:
    """Place and look up orders; answers what went wrong.

    Args:
        post: sends an object as JSON to a path; answers with ``status_code`` and ``json()``, as ``get`` does.
    """
    seen: dict[str, tuple[int, int, object]] = {}
    for name, pieces, pence in ORDERS:
        placed = post("/orders", {"id": name, "pieces": pieces, "pence": pence})
        print(f"POST /orders {name}: {placed.status_code} {placed.json()}")
        found = get(f"/orders/{name}")
        print(f"GET  /orders/{name}: {found.status_code} {found.json()}")
        seen[name] = (placed.status_code, found.status_code, found.json())
    rows = get("/orders").json()
    print(f"rows of the shop: {rows}")
    wrong = [f"order {name}: {seen[name]}, not {EXPECTED[name]}" for name in EXPECTED if seen[name] != EXPECTED[name]]
    return wrong + ([] if rows == ["1001", "1002"] else [f"rows {rows}"])


def run(visit: Callable[[], list[str]]) -> int:
    """Start a database server and the payment service, visit the shop, and say what went wrong; the exit code.

    The shop finds both by SHOP_DATABASE and SHOP_PAYMENTS.
    """
    with Server.start(durable=False) as server, running_service() as payments:
        os.environ["SHOP_DATABASE"] = server.create_database("shop")
        os.environ["SHOP_PAYMENTS"] = payments
        wrong = visit()
    for what in wrong:
        print(f"WRONG: {what}", file=sys.stderr)
    print("not as promised" if wrong else "as promised: each order has its task, what was rolled back has neither")
    return 1 if wrong else 0
