"""What the programs of all sides share: their command line, the measuring, and the line they print.

`python SIDE.py WORK FOLDER TASKS [WAY]` does one work once, in an empty folder, and prints one JSON object:
`{"figures": {name: number}, "settings": {name: text}}`. The standard library only: each side has its own environment.
"""

import json
import math
import os
import platform
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

PAYLOAD = "x" * 200  # the argument of every step, and its result
WARM_UP_TASKS = 50  # before the clock starts, so that codecs, statements and pools exist
KEYS = 100  # of w5
INTERPRETERS = 7  # fresh ones for each import time; the best of them counts


@dataclass(frozen=True)
class Assignment:
    """What this program was asked to do.

    Attributes:
        folder: empty, for what a side keeps in files of its own.
        url: of the store: a file that does not exist yet, or an empty database on a server.
    """

    work: str
    folder: Path
    url: str
    tasks: int
    way: str

    @property
    def store(self) -> str:
        """``sqlite`` or ``postgres``."""
        return "sqlite" if self.url.startswith("sqlite:") else "postgres"

    @property
    def database(self) -> Path:
        """The file, on SQLite."""
        return Path(self.url.removeprefix("sqlite:///"))


def assignment() -> Assignment:
    """Read the command line."""
    work, folder, tasks, *way = sys.argv[1:]
    url = os.environ.get("BENCH_STORE_URL", f"sqlite:///{folder}/store.db")
    return Assignment(work, Path(folder), url, int(tasks), way[0] if way else "")


def deliver(figures: dict[str, float], settings: dict[str, str], package: str = "") -> None:
    """Print the figures with versions and settings: the last thing a side does."""
    versions = {package: version(package)} if package else {}
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    common = {"machine": machine, "python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    print(json.dumps({"figures": figures, "settings": versions | common | settings}))


def throughput(tasks: int, started_at: float, ended_at: float) -> dict[str, float]:
    """The figure of w1 and the first of w5, from the first submit to the last end."""
    return {"throughput": tasks / (ended_at - started_at)}


def numbers_of(key: int, messages: int) -> range:
    """The numbers of one key's messages in w5: message m has key m % KEYS and number m // KEYS."""
    return range(len(range(key, messages, KEYS)))


def keyed(messages: int, started_at: float, ended_at: float, ran: Mapping[int, Sequence[int]]) -> dict[str, float]:
    """The figures of w5, from the first submit to the last end.

    Args:
        ran: for each key the numbers of its messages, in the order in which their steps ran.
    Raises: SystemExit - a message did not run.
    """
    late = 0
    for key in range(KEYS):
        if missing := set(numbers_of(key, messages)).difference(ran.get(key, ())):
            raise SystemExit(f"of key {key} {len(missing)} messages did not run")
        highest = -1
        for number in ran.get(key, ()):
            late += number < highest
            highest = max(highest, number)
    return throughput(messages, started_at, ended_at) | {"out of order": late}


def latency(seconds: Sequence[float]) -> dict[str, float]:
    """The figures of w2."""
    return {"p50": percentile(seconds, 0.50) * 1_000, "p99": percentile(seconds, 0.99) * 1_000}


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of them do not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def import_time(module: str) -> dict[str, float]:
    """What `import module` adds to the start of a fresh interpreter, each the best of several."""
    bare = min(_seconds_of("pass") for _ in range(INTERPRETERS))
    loaded = min(_seconds_of(f"import {module}") for _ in range(INTERPRETERS))
    return {"time": (loaded - bare) * 1_000}


def _seconds_of(code: str) -> float:
    started_at = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - started_at


def durability_of(asked: Assignment) -> dict[str, str]:
    """Settings by which commits are durable; of a server, those that the harness has given it."""
    if asked.store == "postgres":
        return {"fsync": "on", "synchronous_commit": "on"}
    return _durability_of_file(asked.database)


def _durability_of_file(database: Path) -> dict[str, str]:
    """Settings of the file and of the SQLite library as this process has them.

    Raises: SystemExit - the file is not in WAL, or the library does not start with FULL: the figures would not compare.
    """
    connection = sqlite3.connect(database)
    try:
        journal_mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
        synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
    finally:
        connection.close()
    if (journal_mode, synchronous) != ("wal", 2):
        raise SystemExit(f"{database.name}: journal_mode {journal_mode}, synchronous {synchronous}; wants wal and 2")
    return {"journal_mode": "wal", "synchronous": "full"}
