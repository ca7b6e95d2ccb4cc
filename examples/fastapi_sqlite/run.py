"""Fifty customers at once, then look whether the books agree. Exit code 1: something is not as promised.

python examples/fastapi_sqlite/run.py
"""

import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import httpx2  # noqa: E402

CUSTOMERS = 50


async def visit() -> list[str]:
    """Be the customers, half of them at async endpoints; answers what went wrong."""
    from examples.fastapi_sqlite.web import api, lifespan

    names = [f"b-{number:02}" for number in range(CUSTOMERS)]
    transport = httpx2.ASGITransport(app=api, raise_app_exceptions=False)
    async with lifespan(api), httpx2.AsyncClient(transport=transport, base_url="http://tickets", timeout=60) as web:
        placed = await asyncio.gather(
            *(web.post(f"/{'async' if at % 2 else 'sync'}/bookings/{name}") for at, name in enumerate(names))
        )
        print("POST, fifty at once:", _counted(answer.status_code for answer in placed))
        found = await asyncio.gather(*(web.get(f"/bookings/{name}") for name in names))
        print("GET, each one's end:", _counted(answer.status_code for answer in found))
        rows = (await web.get("/bookings")).json()
    wrong = [f"POST answered {answer.status_code}" for answer in placed if answer.status_code != 202]
    return wrong + compare(names, rows, [answer.status_code for answer in found])


def compare(names: list[str], rows: list[str], ends: list[int]) -> list[str]:
    """What the books of customers, shop, bank and hall disagree in."""
    from examples.fastapi_sqlite.tickets import PRICE, SEATS, charged, refunded, seats

    kept = sum(charged.values()) - sum(refunded.values())
    print(f"rows of the shop: {len(rows)}; seats taken: {len(seats)}; the bank keeps {kept} pence")
    books = {
        "rows of the shop": (sorted(rows), names),
        "customers with a seat": (ends.count(200), SEATS),
        "customers undone": (ends.count(409), CUSTOMERS - SEATS),
        "seats taken": (len(seats), SEATS),
        "charges": (len(charged), CUSTOMERS),
        "refunds": (len(refunded), CUSTOMERS - SEATS),
        "pence kept": (kept, SEATS * PRICE),
    }
    return [f"{what}: {is_}, not {wanted}" for what, (is_, wanted) in books.items() if is_ != wanted]


def _counted(codes: Iterable[int]) -> str:
    return ", ".join(f"{count} x {code}" for code, count in sorted(Counter(codes).items()))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TICKETS_STORE"] = f"sqlite:///{folder}/tickets.db"
        wrong = asyncio.run(visit())
    for what in wrong:
        print(f"WRONG: {what}", file=sys.stderr)
    print("not as promised" if wrong else "as promised: fifty bookings ended, and the books agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
