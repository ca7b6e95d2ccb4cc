"""A small App with a durable book of its effects, run by the kill tests in processes of their own.

    python caravan.py submit FOLDER NUMBER     submit that many rounds of the tasks, then end
    python caravan.py work FOLDER [LEASE]      run the App until every task has ended, then end; LEASE: seconds
    python caravan.py serve FOLDER TASK        run the App until this task has come and ended, then end
    python caravan.py consume FOLDER           read the reply queue until it is empty, then end
    python caravan.py join FOLDER NAME MOMENT  note an order and submit its task in one transaction; die at the moment
    python caravan.py trade FOLDER NAME        note orders and submit their tasks, or roll them back, until it is killed

``work`` writes the name of each task that ends to its standard output, ``trade`` that of each order that it has noted.
``consume`` writes each status to its standard output and to FOLDER/log.jsonl before it takes the next.
The state store is FOLDER/store.db with the table ``orders`` of those who join, the book is FOLDER/book.db.
"""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import arriero
from arriero import Agent, App, ArrieroError, Attempt, Permanent, Retry, StepFailed, Undo, workflow
from arriero.runtime.settings import Settings

SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS effects (key TEXT PRIMARY KEY, task TEXT, name TEXT, undone INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS barred (key TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS calls (no INTEGER PRIMARY KEY, key TEXT);
"""


class Book:
    """What the remote services did. The same key acts once; an undone key is barred from landing later."""

    def __init__(self, path: str) -> None:
        # A killed process loses nothing that it wrote, so the book need not wait for the disk.
        self._one_at_a_time = threading.Lock()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.executescript("PRAGMA synchronous = OFF;" + SCHEMA)

    def close(self) -> None:
        self._connection.close()

    def calls(self, attempt: Attempt) -> int:
        """How often the service was called under this key."""
        rows = self._connection.execute("SELECT count(*) FROM calls WHERE key = ?", (attempt.idempotency_key,))
        return int(rows.fetchone()[0])

    def act(self, attempt: Attempt, name: str) -> str:
        key = attempt.idempotency_key
        with self._one_at_a_time, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("INSERT INTO calls (key) VALUES (?)", (key,))
            if self._connection.execute("SELECT 1 FROM barred WHERE key = ?", (key,)).fetchone():
                raise Permanent("this key was undone: nothing may land under it", code="barred")
            row = (key, attempt.task_id, name)
            self._connection.execute("INSERT OR IGNORE INTO effects (key, task, name) VALUES (?, ?, ?)", row)
        return f"{name} for {attempt.task_id}"

    def undo(self, undo: Undo[str]) -> None:
        with self._one_at_a_time, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("INSERT OR IGNORE INTO barred VALUES (?)", (undo.forward_key,))
            self._connection.execute("UPDATE effects SET undone = 1 WHERE key = ?", (undo.forward_key,))


def standing(path: Path) -> dict[str, list[str]]:
    """By task: the names of the effects that stand, sorted."""
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute("SELECT task, name FROM effects WHERE NOT undone ORDER BY task, name").fetchall()
    finally:
        connection.close()
    found: dict[str, list[str]] = {}
    for task, name in rows:
        found.setdefault(task, []).append(name)
    return found


QUICK = Retry(tries=2, delay=0.001)
mules, hands = Agent("mules", max_in_flight=20), Agent("hands", max_in_flight=4)
folder = Path()


@mules.resource
def book() -> Iterator[Book]:
    opened = Book(str(folder / "book.db"))
    yield opened
    opened.close()


@hands.resource
def second_book() -> Iterator[Book]:
    opened = Book(str(folder / "book.db"))
    yield opened
    opened.close()


@mules.step(retry=QUICK)
async def load(attempt: Attempt, name: str) -> str:
    return book().act(attempt, name)


@load.compensation(retry=QUICK)
async def unload(undo: Undo[str], name: str) -> None:
    book().undo(undo)


@hands.step(retry=QUICK)
def pay(attempt: Attempt, name: str) -> str:
    """A plain function, in a thread."""
    return second_book().act(attempt, name)


@pay.compensation(retry=QUICK)
def refund(undo: Undo[str], name: str) -> None:
    second_book().undo(undo)


@mules.step(retry=QUICK)
async def stumble(attempt: Attempt, name: str) -> str:
    """Acts, but its answer is lost the first time; so it is in doubt until it is asked again."""
    done = book().act(attempt, name)
    if book().calls(attempt) == 1:
        raise ConnectionError("the answer was lost")
    return done


@stumble.compensation
async def recover(undo: Undo[str], name: str) -> None:
    book().undo(undo)


@mules.step(effect_free=True)
async def refuse(attempt: Attempt) -> None:
    raise Permanent("the pass is closed", code="closed")


@workflow
async def plain() -> list[str]:
    return [await pay("toll"), await load("salt"), await stumble("wool")]


@workflow
async def undone() -> None:
    await pay("toll")
    await load("salt")
    await load("wool")
    await stumble("oats")
    await refuse()


@workflow
async def together() -> list[str]:
    first = await pay("toll")
    return [first, *await asyncio.gather(load("salt"), load("wool"), pay("oats"))]


@workflow
async def rested() -> str:
    await load("salt")
    await arriero.sleep(0.05)
    return await pay("toll")


@workflow
async def detour() -> str:
    await pay("toll")
    try:
        await refuse()
    except StepFailed:
        return await load("salt")
    raise AssertionError("the pass is never open")


caravan = App("caravan", agents=[mules, hands], workflows=[plain, undone, together, rested, detour])
QUEUE = "caravanserai"  # where whoever submits is told what became of it
ORDERS = 40  # of one trader
MOMENTS = ("before_submit", "before_commit", "after_rollback", "after_commit")
EXPECTED: dict[str, tuple[str, list[str]]] = {
    "plain": ("processed", ["salt", "toll", "wool"]),
    "undone": ("compensated", []),
    "returned": ("compensated", []),
    "together": ("processed", ["oats", "salt", "toll", "wool"]),
    "rested": ("processed", ["salt", "toll"]),
    "detour": ("processed", ["salt", "toll"]),
    "single": ("processed", ["salt"]),
}


def calls_of(round_number: int) -> dict[str, object]:
    """One task of each kind, by task_id."""
    made = {
        "plain": plain(),
        "undone": undone(),
        "returned": undone(),
        "together": together(),
        "rested": rested(),
        "detour": detour(),
        "single": load("salt"),
    }
    return {f"{kind}-{round_number}": call for kind, call in made.items()}


async def submit(rounds: int) -> None:
    """Submit all tasks; those that are there already stay as they are."""
    async with caravan:
        for number in range(rounds):
            made = calls_of(number)
            await asyncio.gather(
                *(caravan.submit(call, task_id=name, reply_to=QUEUE) for name, call in made.items())  # type: ignore[arg-type]
            )


async def work() -> None:
    """Run until every task has ended."""
    async with caravan.running():
        tasks = await caravan.session.store.list_tasks(limit=10_000)
        await asyncio.gather(*(_told(task.task_id) for task in tasks if task.ended_at is None))


async def _told(name: str) -> None:
    with contextlib.suppress(ArrieroError):
        await caravan.task(name).result()
    tell(name)


async def serve(name: str) -> None:
    """Run until a task that is not there yet has ended."""
    async with caravan.running():
        tell("runs")
        while await caravan.session.store.find(name) is None:
            await asyncio.sleep(0.005)
        await _told(name)


# --- who reads the reply queue
async def consume() -> None:
    """Take every status there is; each is in the log before the next is taken."""
    async with caravan:
        replies = caravan.replies(QUEUE)
        with (folder / "log.jsonl").open("a") as log:
            while (status := await replies.next_ready()) is not None:
                line = json.dumps(status.cloud_event())
                log.write(line + "\n")
                log.flush()
                tell(line)


# --- who joins
@contextlib.contextmanager
def orders() -> Iterator[sqlite3.Connection]:
    """The caller's own connection and table."""
    with contextlib.closing(arriero.connect(str(caravan.session.given_store))) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)")
        yield connection


def die(moment: str, reached: str) -> None:
    if moment == reached:
        os.kill(os.getpid(), signal.SIGKILL)


async def join(name: str, moment: str) -> None:
    """One order with its task; the same again is the same."""
    async with caravan:
        with orders() as connection:
            connection.execute("INSERT OR IGNORE INTO orders VALUES (?)", (name,))
            die(moment, "before_submit")
            await caravan.submit(plain(), task_id=name, reply_to=QUEUE, connection=connection)
            die(moment, "before_commit")
            if moment == "after_rollback":
                connection.rollback()
            connection.commit()
            if moment:
                die(moment, moment)


async def trade(name: str) -> None:
    """Orders until it is killed, at most ORDERS; every third is rolled back."""
    async with caravan:
        with orders() as connection:
            for number in range(ORDERS):
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("INSERT INTO orders VALUES (?)", (f"{name}-{number}",))
                await caravan.submit(load("salt"), task_id=f"{name}-{number}", reply_to=QUEUE, connection=connection)
                if number % 3:
                    connection.commit()
                    tell(f"{name}-{number}")
                else:
                    connection.rollback()
        signal.pause()


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    global folder
    what, folder, given = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    caravan.session.given_store = f"sqlite:///{folder}/store.db"
    if what == "work" and given:
        caravan.session.settings = Settings(lease_seconds=float(given[0]), tasks_max=12)
    match what:
        case "submit":
            asyncio.run(submit(int(given[0])))
        case "work":
            asyncio.run(work())
        case "serve":
            asyncio.run(serve(*given))
        case "consume":
            asyncio.run(consume())
        case "join":
            asyncio.run(join(*given))
        case "trade":
            asyncio.run(trade(*given))
        case _:
            sys.exit(f"{what} is nothing that a caravan does")


if __name__ == "__main__":
    main()
