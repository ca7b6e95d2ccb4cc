"""Trips of three child bookings while the worker is killed. A trip that has no place left is undone whole. The books balance.

    python examples/travel/run.py
    python examples/travel/run.py --forget-refunds    # a bank that gives no money back is found out

About 20 s. Exit code 1: something is not as promised.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from arriero import TaskCompensated  # noqa: E402
from examples.travel.trips import FULL, KINDS, app, journey, open_books  # noqa: E402  # found from the repository's root
from examples.worker import Worker  # noqa: E402

TRIPS = 30
PATIENCE = 60  # seconds for all trips
KILLS = 6
BETWEEN_KILLS = 1.0  # seconds


def draw_places(number: int) -> dict[str, str]:
    """Draw where a trip goes. Every third one has a part for which no place is left."""
    places = dict.fromkeys(KINDS, f"city {number}")
    if number % 3 == 0:
        places[list(KINDS)[number // 3 % len(KINDS)]] = FULL
    return places


async def book(trip: str, places: dict[str, str]) -> str:
    """Book a trip. Returns: how it has ended."""
    task = await app.submit(journey(trip, places), task_id=trip)
    try:
        await task.result(timeout=PATIENCE)
    except TaskCompensated:
        return "compensated"
    return "processed"


async def kill_now_and_then(worker: Worker) -> None:
    for _ in range(KILLS):
        await asyncio.sleep(BETWEEN_KILLS)
        worker.kill_and_restart()


async def find_errors(ends: dict[str, str], wanted: dict[str, dict[str, str]]) -> list[str]:
    """Find what is not as promised: in the ends of trips, in the states of their children, and in the books."""
    errors = []
    with open_books() as books:
        entries = books.execute("SELECT trip, account, sum(amount) FROM entry GROUP BY trip, account").fetchall()
    found = {(trip, account): amount for trip, account, amount in entries if amount}
    for trip, places in wanted.items():
        is_full = FULL in places.values()
        if ends[trip] != ("compensated" if is_full else "processed"):
            errors.append(f"{trip} is {ends[trip]}")
        states = [child.state for child in await app.task(trip).children()]
        asked = list(places.values()).index(FULL) + 1 if is_full else len(places)
        if states != [ends[trip]] * asked:
            errors.append(f"{trip} is {ends[trip]}, its children are {', '.join(states)}")
        for kind, cents in KINDS.items():
            for account, amount in ((f"places: {kind}", 1), (f"money: {kind}", cents)):
                expected = 0 if is_full else amount
                if found.get((trip, account), 0) != expected:
                    errors.append(f"{trip}: {account} are {found.get((trip, account), 0)}, not {expected}")
    return errors


async def run(folder: Path) -> list[str]:
    """Book all trips. Returns: what is not as promised."""
    worker = Worker("examples.travel.trips:app", folder / "worker.log")
    try:
        async with app:
            wanted = {f"trip-{number:02}": draw_places(number) for number in range(1, TRIPS + 1)}
            killing = asyncio.create_task(kill_now_and_then(worker))
            ended = await asyncio.gather(*(book(trip, places) for trip, places in wanted.items()))
            await killing
            ends = dict(zip(wanted, ended, strict=True))
            errors = await find_errors(ends, wanted)
    finally:
        worker.kill()
    booked = sum(end == "processed" for end in ended)
    print(f"{booked} trips were booked, {len(ended) - booked} were undone; the worker was killed {worker.kills} times")
    return errors


def main(arguments: Sequence[str]) -> int:
    """Run it. Returns: the exit code."""
    parser = argparse.ArgumentParser(description="Trips of child bookings, while the worker is killed.")
    parser.add_argument("--forget-refunds", action="store_true", help="the bank gives no money back: it is found out")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="arriero-travel-") as folder:
        os.environ["ARRIERO_STORE"] = f"sqlite:///{folder}/travel.db"
        os.environ["TRAVEL_BOOKS"] = f"{folder}/books.db"
        if options.forget_refunds:
            os.environ["TRAVEL_FORGETS_REFUNDS"] = "1"
        errors = asyncio.run(run(Path(folder)))
    for error in errors:
        print(f"WRONG: {error}", file=sys.stderr)
    print("not as promised" if errors else "as promised: every trip is booked whole or undone whole, to the cent")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
