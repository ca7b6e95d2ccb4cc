"""Starting, killing and awaiting the processes of the acceptance tests, and the balance that must stand at their end."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import caravan

from arriero.audit.check import History, find_convoy_differences, find_differences
from arriero.audit.export import encode_export, read_export
from arriero.runtime.crash_points import VARIABLE
from arriero.store.sqlite.store import SqliteStore

KILLED = -signal.SIGKILL
CONVOYS_MAX = 10_000
SECONDS_MAX = 30  # for one process; a hint that it hangs, not a measure
Process = subprocess.Popen[str]
ENDS = {  # by the state of a task: what its submitter was told
    "processed": [["received", "started", "completed"]],
    "compensated": [["received", "started", "failed", "compensated"]],
    "held": [["received", "started", *failed, "held"] for failed in ([], ["failed"])],
}


def started(program: str, *args: str, crash_at: str = "") -> Process:
    """A process of its own, which dies at a crash point when one is named."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ARRIERO_")}
    if crash_at:
        environment[VARIABLE] = crash_at
    command = [sys.executable, "-X", "faulthandler", program, *args]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def start(what: str, folder: Path, *args: str, crash_at: str = "") -> Process:
    """The caravan's ``submit`` or ``work``."""
    return started(caravan.__file__, what, str(folder), *args, crash_at=crash_at)


def end_of(process: Process) -> tuple[int, str]:
    """How it ended, and what it said of errors."""
    try:
        _, told = process.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # it has faulthandler: every thread tells where it stands
        _, told = process.communicate()
        raise AssertionError(f"it did not end within {SECONDS_MAX} s: {told}") from None
    return process.returncode, told


def run_until_killed(what: str, folder: Path, *args: str, crash_at: str) -> None:
    """Run the caravan; it must die at the point."""
    code, told = end_of(start(what, folder, *args, crash_at=crash_at))
    assert code == KILLED, f"{crash_at} was never reached: {code} {told}"


def run_to_the_end(what: str, folder: Path, *args: str) -> None:
    """Run the caravan; it must end well."""
    code, told = end_of(start(what, folder, *args))
    assert code == 0, told


def freeze(process: Process, folder: Path) -> None:
    """Stop a process, but not in the middle of a commit: the operating system would keep the file locked for it."""
    while True:
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)  # until every thread of it stands
        if not any(map(_is_locked, folder.glob("*.db"))):
            return
        process.send_signal(signal.SIGCONT)


def _is_locked(path: Path) -> bool:
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return True
        return False


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[SqliteStore]:
    """The folder's store."""
    store = SqliteStore(str(folder / "store.db"))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def check(store: SqliteStore) -> None:
    """Everything has ended, the exported history is clean, and the tables say the same as its fold."""
    rows = [row async for row in store.history()]
    history = History()
    for row in read_export(encode_export(rows, store.store_id)):
        history.add(row)
    assert history.end(complete=True) == []
    for number, fold in history.tasks.items():
        loaded = await store.load(number)
        assert loaded is not None
        assert find_differences(fold, loaded) == []
    for one in (*await store.list_convoys(limit=CONVOYS_MAX), *await store.list_convoys("idle", limit=CONVOYS_MAX)):
        assert find_convoy_differences(history, one.convoy) == []


async def balance(folder: Path, rounds: int = 1) -> list[str]:
    """Every task of the caravan has ended as it should, the book agrees, the history is clean.

    Returns: the tasks that are held because they were lost too often; of them nothing was done twice.
    """
    standing = caravan.standing(folder / "book.db")
    async with opened(folder) as store:
        tasks = await store.list_tasks(limit=10_000)
        assert {task.task_id for task in tasks} == {f"{kind}-{n}" for kind in caravan.EXPECTED for n in range(rounds)}
        held = [task.task_id for task in tasks if task.failure is not None and '"code":"lost"' in task.failure]
        for task in tasks:
            state, effects = caravan.EXPECTED[task.task_id.partition("-")[0]]
            found = standing.get(task.task_id, [])
            if task.task_id in held:
                assert len(found) == len(set(found)), f"{task.task_id} did one thing twice: {found}"
            else:
                told = f"{task.task_id} is {task.state} with {found}, not {state} with {effects}: {task.failure}"
                assert (task.state, found) == (state, effects), told
        await check(store)
        await check_told(store, caravan.QUEUE)
    return held


async def check_told(store: SqliteStore, queue: str) -> None:
    """Nobody has read the queue: every task's statuses are there, numbered, in order, and the last tells its end."""
    told: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for status in await store.load_statuses(queue, 100_000):
        told[status.task_id].append((status.number, status.kind))
    for task in await store.list_tasks(limit=10_000):
        assert_told(task.task_id, task.state, told[task.task_id])


def assert_told(task_id: str, state: str, told: list[tuple[int, str]]) -> None:
    """The statuses of one task that has ended, as (number, kind) in the order in which they came."""
    assert [number for number, _ in told] == list(range(1, len(told) + 1)), f"{task_id}: {told}"
    kinds = [kind for _, kind in told]
    assert kinds in ENDS[state], f"{task_id} is {state}, its submitter was told {kinds}"
