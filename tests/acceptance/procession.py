"""A small App whose tasks belong to convoys, with a durable book of what they did; run by the kill tests in processes.

    python procession.py submit FOLDER KEYS EACH   submit so many tasks to each of so many keys, then end
    python procession.py work FOLDER [LEASE]       run the App until every task has ended, then end; LEASE: seconds

``work`` writes the name of each task that ends to its standard output. The state store is FOLDER/store.db, the book is
FOLDER/steps.db. A held task does not stop its key: it is set aside.
"""

import asyncio
import contextlib
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import arriero
from arriero import Agent, App, ArrieroError, Attempt, ConvoyPolicy, workflow
from arriero.runtime.settings import Settings

SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS steps (no INTEGER PRIMARY KEY, idempotency_key TEXT UNIQUE, key TEXT, number INTEGER, side TEXT);
"""
SIDES = ("left", "right")  # what each task does, one after the other

walkers = Agent("walkers", max_in_flight=20)
folder = Path()


@walkers.resource
def book() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(folder / "steps.db", isolation_level=None)
    connection.executescript("PRAGMA synchronous = OFF;" + SCHEMA)
    yield connection
    connection.close()


@walkers.step
async def step_on(attempt: Attempt, key: str, number: int, side: str) -> None:
    """The same idempotency key acts once."""
    row = (attempt.idempotency_key, key, number, side)
    book().execute("INSERT OR IGNORE INTO steps (idempotency_key, key, number, side) VALUES (?, ?, ?, ?)", row)


@workflow(convoy_policy=ConvoyPolicy(head="skip"))
async def walk(key: str, number: int) -> int:
    """Answers how many of its key were done before it, as the key itself knows."""
    done = arriero.convoy_state(int) or 0
    for side in SIDES:
        await step_on(key, number, side)
    arriero.keep_convoy_state(done + 1)
    return done


procession = App("procession", agents=[walkers], workflows=[walk])


def task_id_of(key: str, number: int) -> str:
    return f"{key}-{number}"


async def submit(keys: int, each: int) -> None:
    """Number after number of all keys; those that are there already stay as they are."""
    async with procession:
        for number in range(1, each + 1):
            for key in (f"k{n}" for n in range(keys)):
                await procession.submit(walk(key, number), task_id=task_id_of(key, number), convoy=key)


async def work() -> None:
    """Run until every task has ended."""
    async with procession.running():
        tasks = await procession.session.store.list_tasks(limit=10_000)
        await asyncio.gather(*(_told(task.task_id) for task in tasks if task.ended_at is None))


async def _told(name: str) -> None:
    with contextlib.suppress(ArrieroError):
        await procession.task(name).result()
    sys.stdout.write(f"{name}\n")
    sys.stdout.flush()


def steps_in_order(path: Path) -> dict[str, list[tuple[int, str]]]:
    """By key: what was done, in the order in which it was done."""
    found: dict[str, list[tuple[int, str]]] = {}
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for key, number, side in connection.execute("SELECT key, number, side FROM steps ORDER BY no"):
            found.setdefault(key, []).append((number, side))
    return found


def main() -> None:
    global folder
    what, folder, given = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    procession.session.given_store = f"sqlite:///{folder}/store.db"
    if what == "submit":
        asyncio.run(submit(int(given[0]), int(given[1])))
    elif what == "work":
        if given:
            procession.session.settings = Settings(lease_seconds=float(given[0]))
        asyncio.run(work())
    else:
        sys.exit(f"{what} is nothing that a procession does")


if __name__ == "__main__":
    main()
