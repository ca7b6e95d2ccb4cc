"""Looks at the store's tables as any client of the database might, while everything runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from examples.orders.progress import STATE

LEASE_SECONDS = 3.0
"""Of a process; one that runs further has been renewed."""


@dataclass(frozen=True)
class Numbers:
    """What may only grow: fences by task and by step, the Supervisors' terms, the processes' batches."""

    by_name: Mapping[str, int]

    def gone_back(self, earlier: Numbers) -> list[str]:
        """Which are lower than they were, or gone."""
        return [name for name, number in earlier.by_name.items() if self.by_name.get(name, -1) < number]


class Look:
    """Questions to whichever server of the URL is read-write."""

    def __init__(self, url: str) -> None:
        self._url = url

    def numbers(self) -> Numbers:
        """In one snapshot. A number that can be read is on both servers."""
        with self._connected() as connection:
            return Numbers(
                dict(
                    connection.execute(
                        "SELECT 'fence of task ' || task_no, fence FROM arriero.task"
                        " UNION ALL SELECT 'fence of step ' || step_no, fence FROM arriero.step"
                        " UNION ALL SELECT 'term of lease ' || name, term FROM arriero.lease"
                        " UNION ALL SELECT 'batch of process ' || process_no, batch_no FROM arriero.writer"
                    ).fetchall()
                )
            )

    def states(self) -> dict[str, str]:
        """By task id."""
        with self._connected() as connection:
            return dict(connection.execute(f"SELECT task_id, {STATE} FROM arriero.task").fetchall())

    def open_tasks(self) -> int:
        """How many have not ended."""
        with self._connected() as connection:
            return int(_one(connection, "SELECT count(*) FROM arriero.task WHERE ended_at IS NULL"))

    def first_end(self, after: float) -> float:
        """When the first task ended after an instant; seconds since 1970 by the machine's clock, infinite for never."""
        query = "SELECT min(ended_at) FROM arriero.task WHERE ended_at > %s"
        with self._connected() as connection:
            found = _one(connection, query, round(after * 1_000_000))
        return math.inf if found is None else found / 1_000_000

    def went_on(self, after: float) -> int:
        """How many processes have kept their lease and written history since an instant."""
        query = (
            "SELECT count(*) FROM arriero.process WHERE NOT retired AND lease_until > %(renewed)s"
            " AND instance IN (SELECT actor FROM arriero.history WHERE at > %(after)s)"
        )
        with self._connected() as connection:
            asked = {"after": round(after * 1_000_000), "renewed": round((after + LEASE_SECONDS) * 1_000_000)}
            row = connection.execute(query, asked).fetchone()
        return int(row[0]) if row else 0

    def starts(self) -> int:
        """How many process starts the store has seen: more than there are processes when one was declared lost."""
        with self._connected() as connection:
            return int(_one(connection, "SELECT count(*) FROM arriero.process"))

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        with psycopg.connect(self._url, connect_timeout=10) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            yield connection


def _one(connection: psycopg.Connection[tuple[Any, ...]], query: str, *parameters: object) -> Any:
    row = connection.execute(query.encode(), parameters).fetchone()
    assert row is not None
    return row[0]
