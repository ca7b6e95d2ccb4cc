"""What is measured: the works, their figures, and the sides that take part in each.

A side may know several ways to do one work (call directly, concurrently, through its queue). All of them are
measured in every run, and the side is then judged by its best one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

STORES = ("sqlite", "postgres")


@dataclass(frozen=True)
class Work:
    """One thing to do, the same for every side.

    Attributes:
        figures: name to unit, in the order of the table; the first one says which of a side's ways is its best.
        best: picks the way with the better one of that first figure: ``max`` or ``min``.
        tasks: how many tasks one run does unless the caller says otherwise; 0 when the work runs none.
        stores: on which it differs; the others need not be measured.
        zero: the figures that must be 0; one that is not fails the run.
    """

    name: str
    title: str
    figures: Mapping[str, str]
    best: Callable[..., str]
    tasks: int = 0
    stores: tuple[str, ...] = STORES
    zero: tuple[str, ...] = ()


@dataclass(frozen=True)
class Side:
    """A program that takes part.

    Attributes:
        programs: the file under ``sides/`` for each store.
        ways: for each work it takes part in, the ways it can do it; one empty name when there is only one.
    """

    name: str
    programs: Mapping[str, str]
    ways: Mapping[str, tuple[str, ...]]


WORKS = (
    # Large enough for some seconds of the slowest side, and for some tenths of a second of the fastest.
    Work("w1", "3 no-op steps a task, as fast as possible", {"throughput": "tasks/s"}, max, tasks=2_000),
    # 500: the 99th percentile is then the sixth slowest, not a single accident.
    Work("w2", "one task at a time, submit to result", {"p50": "ms", "p99": "ms"}, min, tasks=500),
    Work(
        "w5",
        "messages over 100 keys, in strict order per key, one no-op step each",
        {"throughput": "messages/s", "out of order": ""},
        max,
        tasks=10_000,
        zero=("out of order",),
    ),
    Work(
        "w6",
        "cold keys alone, and beside a hot key with ten times as many waiting",
        {"p99 alone": "ms", "p99 beside": "ms", "ratio": ""},
        min,
        tasks=5_000,
    ),
    Work("import", "import of the library, bare interpreter taken off", {"time": "ms"}, min, stores=("sqlite",)),
    Work("sleeping", "memory of a process that holds sleeping tasks", {"memory": "MB"}, min, 100_000, ("sqlite",)),
)

ONE_WAY = ("",)
OWN = "arriero"
CEILING = "ceiling"

SIDES = (
    Side(
        OWN,
        dict.fromkeys(STORES, "arriero_side.py"),
        dict.fromkeys(("w1", "w2", "w5", "w6", "import", "sleeping"), ONE_WAY),
    ),
    # No queue in w2: its worker polls, so it can only add to what a direct call takes.
    Side(
        "dbos",
        dict.fromkeys(STORES, "dbos_side.py"),
        {
            "w1": ("direct", "threads", "async", "queue"),
            "w2": ("direct", "async"),
            "w5": ("threads", "transaction"),
            "import": ONE_WAY,
        },
    ),
    # It has its own store, so its figures belong beside those of every store.
    Side("restate", dict.fromkeys(STORES, "restate_side.py"), {"w5": ("ingress", "handler")}),
    Side(
        CEILING,
        {"sqlite": "ceiling_sqlite.py", "postgres": "ceiling_postgres.py"},
        dict.fromkeys(("w1", "w2"), ONE_WAY),
    ),
)

PEERS = tuple(side.name for side in SIDES if side.name not in {OWN, CEILING})
