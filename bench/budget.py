"""What a task of w1 costs: commits, rows, bytes of the log, CPU by thread. `python bench/budget.py`; docs/performance.md tells.

Counted, not timed, except for the CPU seconds, which the kernel keeps for each thread (Linux).
"""

import asyncio
import json
import os
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import psycopg

sys.path.insert(0, str(Path(__file__).parent / "sides"))
sys.path.insert(0, str(Path(__file__).parents[1]))
from arriero_app import app, finish, warm_up

import arriero.store.sqlite.connection as sqlite_connection
import arriero.store.sqlite.store as sqlite_store
from arriero.testing.postgres import Server
from bench.counting import CountingConnection

TABLES = ("task", "body", "step", "history")
SERVER_COUNTS = "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_user_tables WHERE schemaname = 'arriero'"
SERVER_COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
SERVER_LOG = "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"
SERVER_SETTLE_SECONDS = 11  # a session that does nothing tells the server within ten seconds what it has counted


class Counted:
    """Commits, reads and rows of all connections to a file; a statement for many rows counts once for each of them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def note(self, statement: str, rows: int) -> None:
        """What a connection was asked for."""
        text = "\n".join(line for line in statement.splitlines() if not line.startswith("--"))
        verb = text.split(None, 1)[0]
        if verb == "COMMIT":
            self.counts["commits"] += 1
        elif verb == "SELECT":
            self.counts["reads"] += 1
        elif any(f"arriero_{table} " in text for table in TABLES):
            self.counts["rows"] += rows


def on_file(tasks: int, at_once: bool) -> dict[str, float]:
    """Figures of a task on SQLite."""
    connect, counted = sqlite_connection.connect, Counted()

    def counting(*args: Any, **options: Any) -> CountingConnection:
        return CountingConnection(connect(*args, **options), counted.note)

    # under the name that the store has for it
    with tempfile.TemporaryDirectory() as folder, patch.object(sqlite_store, "connect", counting):

        def measured() -> dict[str, float]:
            counts: dict[str, float] = {name: counted.counts[name] for name in ("commits", "rows", "reads")}
            return counts | {"bytes written": bytes_written()}

        return asyncio.run(difference(f"sqlite:///{folder}/store.db", tasks, at_once, measured))


def bytes_written() -> int:
    """What this process has given the system to write so far: log, and file at checkpoints (Linux)."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


def on_server(tasks: int, at_once: bool) -> dict[str, float]:
    """Figures of a task on PostgreSQL."""
    with Server.start(16, durable=True) as server:
        url = server.create_database("budget")

        def measured() -> dict[str, float]:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("SELECT pg_stat_force_next_flush()")
                asked = {"transactions": SERVER_COMMITS, "rows": SERVER_COUNTS, "log bytes": SERVER_LOG}
                return {
                    name: float((connection.execute(sql.encode()).fetchone() or (0,))[0]) for name, sql in asked.items()
                }

        return asyncio.run(difference(url, tasks, at_once, measured, settle_seconds=SERVER_SETTLE_SECONDS))


async def difference(
    url: str, tasks: int, at_once: bool, measured: Callable[[], dict[str, float]], settle_seconds: float = 0
) -> dict[str, float]:
    """What each of so many tasks adds to the counts, and to the CPU microseconds of each thread."""
    async with app.running(store=url):
        await warm_up()
        await asyncio.sleep(settle_seconds)
        idle = measured()
        await asyncio.sleep(settle_seconds)
        before, cpu_before = measured(), cpu_of_threads()
        if at_once:
            await finish(tasks)
        else:
            for _ in range(tasks):
                await finish(1)
        cpu = cpu_of_threads()
        await asyncio.sleep(settle_seconds)
        after = measured()
    # Less what the process does by itself while its counts settle.
    figures = {name: (after[name] - count - (count - idle[name])) / tasks for name, count in before.items()}
    spent = {f"{name}, CPU us": (seconds - cpu_before.get(name, 0.0)) * 1e6 / tasks for name, seconds in cpu.items()}
    return figures | {name: us for name, us in spent.items() if us >= 1}


def cpu_of_threads() -> dict[str, float]:
    """CPU seconds of this process's threads by name, as the kernel counts them."""
    spent: defaultdict[str, float] = defaultdict(float)
    for thread in threading.enumerate():
        stat = (Path("/proc/self/task") / str(thread.native_id) / "stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
        spent[thread.name] += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return spent


@click.command()
@click.option("--tasks", default=2_000, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures here."
)
def main(tasks: int, json_file: Path | None) -> None:
    """Print what one task of w1 costs, alone and among many at once, on both stores."""
    figures: dict[str, dict[str, float]] = {}
    for store, measure in (("sqlite", on_file), ("postgres", on_server)):
        for at_once in (False, True):
            label = f"{store}, {'all at once' if at_once else 'one at a time'}"
            figures[label] = measure(tasks if at_once else max(tasks // 10, 1), at_once)
            print(label)
            for name, value in figures[label].items():
                print(f"  {name:<28}{value:>12,.2f}")
    if json_file is not None:
        json_file.write_text(json.dumps({"tasks": tasks, "figures": figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
