"""What the programs of all sides share: their command line, the measuring, and the line they print.

`python SIDE.py WORK FOLDER TASKS [WAY]` does one work once, in an empty folder, and prints one JSON object:
`{"figures": {name: number}, "settings": {name: text}}`. The standard library only: each side has its own environment.
"""

import asyncio
import json
import math
import os
import platform
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

PAYLOAD = "x" * 200  # the argument of every step, and its result
WARM_UP_TASKS = 50  # before the clock starts, so that codecs, statements and pools exist
KEYS = 100  # of w5
PER_SECOND = 50  # tasks of w3
HTTP_SECONDS = 0.05  # what a call of w10 takes
HANGS_SECONDS = 0.5  # until the deadline of an attempt of `flood` that says nothing
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


class Ends:
    """Counts what ended; ``all_there`` is set at the awaited number."""

    def __init__(self) -> None:
        self.count = 0
        self.awaited = 0
        self.all_there = asyncio.Event()

    def expect(self, messages: int) -> None:
        self.count, self.awaited = 0, messages
        self.all_there.clear()

    def add(self) -> None:
        self.count += 1
        if self.count == self.awaited:
            self.all_there.set()


async def paced(count: int, per_second: float, one: Callable[[int], Awaitable[None]]) -> list[float]:
    """Begin one after the other at a steady pace; how long after it was due each one ended."""

    async def timed(index: int, due_at: float) -> float:
        await one(index)
        return time.perf_counter() - due_at

    under_way = []
    started_at = time.perf_counter()
    for index in range(count):
        due_at = started_at + index / per_second
        # Also when it is late already: a pace that is not kept up counts as latency, it does not thin out the load.
        await asyncio.sleep(max(0.0, due_at - time.perf_counter()))
        under_way.append(asyncio.create_task(timed(index, due_at)))
    return await asyncio.gather(*under_way)


class Spending:
    """CPU seconds of this process from here on, and of the server whose postmaster the harness names, if any."""

    def __init__(self) -> None:
        self._server = int(os.environ.get("BENCH_SERVER_PID", "0"))
        self._before = time.process_time() + _cpu_of_server(self._server)

    def figures(self, tasks: int) -> dict[str, float]:
        """The figures of w6: CPU per 1,000 tasks, and the most memory this process has held."""
        spent = time.process_time() + _cpu_of_server(self._server) - self._before
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024
        return {"cpu": spent * 1_000 / tasks, "memory": peak / 1_000_000}


def _cpu_of_server(postmaster: int) -> float:
    """CPU seconds of a process, its children, and those of them that have ended (Linux)."""
    if not postmaster:
        return 0.0
    ticks = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        parent, spent, of_ended = int(fields[1]), fields[11:13], fields[13:15]
        if int(entry.name) == postmaster:
            ticks += sum(map(int, spent + of_ended))
        elif parent == postmaster:
            ticks += sum(map(int, spent))
    return ticks / os.sysconf("SC_CLK_TCK")


class Marks:
    """A file in which every step that runs leaves a mark, whatever becomes of its process."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "marks"
        self._file = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def add(self, index: int, position: int) -> None:
        os.write(self._file, f"{index:06} {position}\n".encode())

    def count(self) -> int:
        return self._path.stat().st_size // len("000000 0\n")

    def counted(self) -> Counter[str]:
        """How often each step ran."""
        return Counter(self._path.read_text().splitlines())


STEPS = 3  # of a task of w4
LOOK_SECONDS = 0.002
RECOVERED_SECONDS_MAX = 600


def recovered(asked: Assignment, command: Sequence[str]) -> dict[str, float]:
    """The figures of w4: kill a process at a third of its steps, start another, and wait until that has ended all tasks.

    Args:
        command: a program that takes ``begin`` (submit all, let them run) and ``resume`` (print a line when all have
            ended, then end), then the folder with the marks, the number of tasks and the way.
    Raises: SystemExit - one of the two ended before its time, or the second one took too long.
    """
    marks = Marks(asked.folder)
    rest = [str(asked.folder), str(asked.tasks), asked.way]
    first = subprocess.Popen([*command, "begin", *rest], stdout=sys.stderr)
    while marks.count() < asked.tasks * STEPS // 3:
        if first.poll() is not None:
            raise SystemExit("the process that was to be killed has ended")
        time.sleep(LOOK_SECONDS)
    os.kill(first.pid, signal.SIGKILL)
    killed_at = time.perf_counter()
    first.wait()
    second = subprocess.Popen([*command, "resume", *rest], stdout=subprocess.PIPE, text=True)
    late = threading.Timer(RECOVERED_SECONDS_MAX, second.kill)
    late.start()
    assert second.stdout is not None
    line = second.stdout.readline()
    ended_at = time.perf_counter()
    second.communicate()
    late.cancel()
    if not line:
        raise SystemExit("the process that was to go on has ended")
    ran = marks.counted()
    lost = sum(f"{index:06} {position}" not in ran for index in range(asked.tasks) for position in range(STEPS))
    twice = sum(times - 1 for times in ran.values())
    return {"recovery": ended_at - killed_at, "lost": lost, "run twice": twice}
