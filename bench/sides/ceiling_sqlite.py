"""The ceiling: what SQLite and the interpreter allow, with nothing of an engine around them.

Every task makes 8 durable transitions: created, then intent and result of each of 3 steps, then its end. They go
out in group commits: one transition of every task in flight, then COMMIT, then the next ones. No claim, no guard,
no history, no types, no event loop; one thread. A file in WAL with `synchronous=FULL`, so each commit is one fsync.

The way `fused` commits as seldom as one can that records each intent before its step: a task with its first intent, each
result with the next intent, the last result with the end. So 4 commits a task.
"""

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from common import PAYLOAD, WARM_UP_TASKS, assignment, deliver, durability_of, latency, throughput

Write = tuple[str, list[tuple[int | str, ...]]]  # a statement, and its rows
Drive = Callable[[sqlite3.Connection, Sequence[int]], None]

IN_FLIGHT = 256
STEPS = 3

SCHEMA = """
CREATE TABLE task (task_no INTEGER PRIMARY KEY, state TEXT NOT NULL, input TEXT NOT NULL, output TEXT);
CREATE TABLE step (
    task_no INTEGER NOT NULL, position INTEGER NOT NULL, state TEXT NOT NULL, argument TEXT NOT NULL, result TEXT,
    PRIMARY KEY (task_no, position)) WITHOUT ROWID;
"""
CREATE = "INSERT INTO task (task_no, state, input) VALUES (?, 'processing', ?)"
INTEND = "INSERT INTO step (task_no, position, state, argument) VALUES (?, ?, 'running', ?)"
REPORT = "UPDATE step SET state = 'completed', result = ? WHERE task_no = ? AND position = ? AND state = 'running'"
END = "UPDATE task SET state = 'processed', output = ? WHERE task_no = ? AND state = 'processing'"


def main() -> None:
    asked = assignment()
    connection = open_store(asked.database)
    drive = fused if asked.way == "fused" else apart
    drive(connection, range(WARM_UP_TASKS))
    started_at = time.perf_counter()
    tasks = range(WARM_UP_TASKS, WARM_UP_TASKS + asked.tasks)
    if asked.work == "w1":
        for first in range(tasks.start, tasks.stop, IN_FLIGHT):
            drive(connection, range(first, min(first + IN_FLIGHT, tasks.stop)))
        figures = throughput(asked.tasks, started_at, time.perf_counter())
    else:
        figures = latency([seconds_of(drive, connection, task_no) for task_no in tasks])
    check(connection, tasks.stop)
    deliver(figures, durability_of(asked) | {"in_flight": str(IN_FLIGHT)})


def open_store(database: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.executescript(SCHEMA)
    return connection


def apart(connection: sqlite3.Connection, task_nos: Sequence[int]) -> None:
    """Take these tasks from their creation to their end: eight commits, a transition of each task in every one."""
    commit(connection, create(task_nos))
    for position in range(STEPS):
        commit(connection, intend(task_nos, position))
        commit(connection, report(task_nos, position))
    commit(connection, end(task_nos))


def fused(connection: sqlite3.Connection, task_nos: Sequence[int]) -> None:
    """The same in four commits."""
    commit(connection, create(task_nos), intend(task_nos, 0))
    for position in range(1, STEPS):
        commit(connection, report(task_nos, position - 1), intend(task_nos, position))
    commit(connection, report(task_nos, STEPS - 1), end(task_nos))


def create(task_nos: Sequence[int]) -> Write:
    return CREATE, [(task_no, PAYLOAD) for task_no in task_nos]


def intend(task_nos: Sequence[int], position: int) -> Write:
    return INTEND, [(task_no, position, PAYLOAD) for task_no in task_nos]


def report(task_nos: Sequence[int], position: int) -> Write:
    return REPORT, [(PAYLOAD, task_no, position) for task_no in task_nos]


def end(task_nos: Sequence[int]) -> Write:
    return END, [(PAYLOAD, task_no) for task_no in task_nos]


def commit(connection: sqlite3.Connection, *writes: Write) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement, rows in writes:
        connection.executemany(statement, rows)
    connection.execute("COMMIT")


def seconds_of(drive: Drive, connection: sqlite3.Connection, task_no: int) -> float:
    started_at = time.perf_counter()
    drive(connection, (task_no,))
    return time.perf_counter() - started_at


def check(connection: sqlite3.Connection, tasks: int) -> None:
    """Refuse to report on work that was not done."""
    ended = connection.execute("SELECT count(*) FROM task WHERE state = 'processed'").fetchone()[0]
    completed = connection.execute("SELECT count(*) FROM step WHERE state = 'completed'").fetchone()[0]
    connection.close()
    if (ended, completed) != (tasks, tasks * STEPS):
        raise SystemExit(f"{ended} of {tasks} tasks ended, {completed} steps completed")


if __name__ == "__main__":
    main()
