"""Start PostgreSQL and the shop, be its customer, and say what happened. Exit code 1: something is not as promised.

python examples/fastapi_shop/run.py
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from fastapi.testclient import TestClient  # noqa: E402

from arriero.testing.postgres import Server  # noqa: E402

ORDERS = (("1001", 2, 4_200), ("1002", 99, 900), ("1003", 1, 999_999))


def visit() -> list[str]:
    """Place and look up orders; answers what went wrong."""
    from examples.fastapi_shop.web import api

    seen: dict[str, tuple[int, int, object]] = {}
    with TestClient(api) as customer:
        for name, pieces, pence in ORDERS:
            placed = customer.post("/orders", json={"id": name, "pieces": pieces, "pence": pence})
            print(f"POST /orders {name}: {placed.status_code} {placed.json()}")
            found = customer.get(f"/orders/{name}")
            print(f"GET  /orders/{name}: {found.status_code} {found.json()}")
            seen[name] = (placed.status_code, found.status_code, found.json())
        rows = customer.get("/orders").json()
        print(f"rows of the shop: {rows}")
    expected = {
        "1001": (202, 200, {"receipt": "receipt-1001-4200"}),
        "1002": (202, 409, {"detail": "out of stock"}),
        "1003": (422, 404, {"detail": "no such order"}),  # rolled back: neither row nor task
    }
    wrong = [f"order {name}: {seen[name]}, not {expected[name]}" for name in expected if seen[name] != expected[name]]
    return wrong + ([] if rows == ["1001", "1002"] else [f"rows {rows}"])


def main() -> int:
    with Server.start(durable=False) as server:
        os.environ["SHOP_DATABASE"] = server.create_database("shop")
        wrong = visit()
    for what in wrong:
        print(f"WRONG: {what}", file=sys.stderr)
    print("not as promised" if wrong else "as promised: each order has its task, what was rolled back has neither")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
