"""Reads from the state store how far the tasks are: cheap enough to ask several times a second.

The connection is read-only and short: it can neither hold up the engine nor move a checkpoint.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .orders_table import without_partner

SQLITE = "sqlite:///"
ENDED = ("processed", "compensated", "error")


@dataclass(frozen=True)
class Counts:
    """How many tasks are in each state, and what their steps are doing."""

    tasks: Mapping[str, int] = field(default_factory=dict)
    steps_running: int = 0
    steps_done: int = 0
    retries: int = 0
    undos: int = 0

    @property
    def ended(self) -> int:
        return sum(self.tasks.get(state, 0) for state in ENDED)


def store_path(store_url: str) -> Path:
    """The file of a SQLite store. Raises: ValueError - another kind of store."""
    if not store_url.startswith(SQLITE):
        raise ValueError(f"the demo watches its tasks in a SQLite file, sqlite:///PATH, not in {store_url}")
    return Path(store_url.removeprefix(SQLITE))


def task_counts(store_url: str) -> Counts:
    """The counts of this moment; all zero before the store's tables are there."""
    try:
        with _reading(store_url) as connection:
            tasks = dict(connection.execute("SELECT state, count(*) FROM arriero_task GROUP BY state").fetchall())
            steps = connection.execute(
                "SELECT kind, state, count(*), sum(failure_count) FROM arriero_step"
                " WHERE kind != 'timer' GROUP BY kind, state"
            ).fetchall()
    except sqlite3.OperationalError:
        return Counts()
    failed = sum(count for _, state, count, _ in steps if state == "failed")
    return Counts(
        tasks=tasks,
        steps_running=sum(count for _, state, count, _ in steps if state == "running"),
        steps_done=sum(count for _, state, count, _ in steps if state == "completed"),
        # The last attempt of a step that was given up is a failure that nothing followed.
        retries=max(0, sum(failures for *_, failures in steps) - failed),
        undos=sum(count for kind, state, count, _ in steps if (kind, state) == ("compensation", "completed")),
    )


def task_states(store_url: str) -> dict[str, str]:
    """``process_state`` by task id, of every task; empty before the store's tables are there."""
    try:
        with _reading(store_url) as connection:
            return dict(connection.execute("SELECT task_id, state FROM arriero_task").fetchall())
    except sqlite3.OperationalError:
        return {}


def unpaired(store_url: str) -> tuple[list[str], list[str]]:
    """Orders of the shop's table without a task, and tasks without an order."""
    with _reading(store_url) as connection:
        return without_partner(connection)


@contextmanager
def _reading(store_url: str) -> Iterator[sqlite3.Connection]:
    uri = f"{store_path(store_url).absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=5)) as connection:
        connection.execute("BEGIN")  # one snapshot for all that is read
        yield connection
