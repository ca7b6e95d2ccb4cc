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
        runs: at most so many turns, where one takes minutes.
    """

    name: str
    title: str
    figures: Mapping[str, str]
    best: Callable[..., str]
    tasks: int = 0
    stores: tuple[str, ...] = STORES
    zero: tuple[str, ...] = ()
    runs: int | None = None


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
    Work(
        "w1x2", "the same, of ours by two processes", {"throughput": "tasks/s"}, max, tasks=2_000, stores=("postgres",)
    ),
    # 500: the 99th percentile is then the sixth slowest, not a single accident.
    Work("w2", "one task at a time, submit to result", {"p50": "ms", "p99": "ms"}, min, tasks=500),
    Work("w3", "50 tasks a second, submit to result", {"p99": "ms", "p50": "ms"}, min, tasks=1_000),
    Work(
        "w4",
        "tasks in flight, SIGKILL at a third of their steps, restart: until all are done",
        {"recovery": "s", "lost": "", "run twice": ""},
        min,
        tasks=1_000,
        zero=("lost",),
    ),
    Work(
        "w5",
        "messages over 100 keys, in strict order per key, one no-op step each",
        {"throughput": "messages/s", "out of order": ""},
        max,
        tasks=10_000,
        zero=("out of order",),
    ),
    Work("w6", "what a task of w1 costs, with its server", {"cpu": "s/1,000 tasks", "memory": "MB"}, min, tasks=2_000),
    Work(
        "w7",
        "w1 beside finished tasks",
        {
            "ratio": "",
            "at 0": "tasks/s",
            "at 100,000": "tasks/s",
            "at 1,000,000": "tasks/s",
            "random ids": "tasks/s",
        },
        max,
        tasks=2_000,
        runs=1,  # it takes turns itself
    ),
    Work(
        "w8",
        "sleeping tasks due within 10 seconds, until the last one woke",
        {"late": "s", "throughput": "tasks/s"},
        min,
        tasks=100_000,
        runs=1,
    ),
    Work("w9", "w1 with the Agents in another process", {"throughput": "tasks/s"}, max, tasks=2_000),
    Work("w10", "3 steps of 50 ms a task, 1,000 in flight", {"share": "", "throughput": "tasks/s"}, min, tasks=5_000),
    Work(
        "cold",
        "cold keys alone, and beside a hot key with ten times as many waiting",
        {"p99 alone": "ms", "p99 beside": "ms", "ratio": ""},
        min,
        tasks=5_000,
    ),
    Work(
        "flood",
        "w1, and beside it one task of priority 9 after the other, and one attempt after the other past its deadline",
        {"high p99": "ms", "high p50": "ms", "high p50 alone": "ms", "overdue": "ms", "overdue alone": "ms"},
        min,
        tasks=20_000,
    ),
    Work(
        "breaker_cost",
        "w1 and w2 with the defaults of Agents, divided by those without breaker and retry budget",
        {"w1 throughput": "", "w1 cpu": "", "w2 p50": "", "w2 cpu": "", "noise": ""},
        max,
        tasks=8_000,
    ),
    Work(
        "outage",
        "4 simulated processes; their service is down for 60 simulated seconds, and all requests wait",
        {
            "calls an interval": "",
            "charged": "",
            "full flow": "s",
            "canaries an interval": "",
            "canaries": "",
            "under way": "",
            "before": "",
            "first success": "s",
            "closed": "s",
            "last end": "s",
        },
        min,
        tasks=10_000,
        stores=("sqlite",),  # it has its own, in memory
        zero=("charged",),
        runs=1,  # the next one would give the same
    ),
    Work(
        "limits",
        "limits of an Agent that 4 processes share; its service answers after 100 ms, and more requests wait",
        {
            "in use": "",
            "most": "",
            "calls": "calls/s",
            "keyed in use": "",
            "keyed most": "",
            "most of a key": "",
            "keyed calls": "calls/s",
            "rate": "",
            "most a second": "",
        },
        max,
        tasks=4_000,
    ),
    Work(
        "takeover",
        "two Supervisors; the leading one is frozen, killed or asked to end: until the other one leads",
        {
            "freeze p50": "s",
            "freeze p100": "s",
            "kill p50": "s",
            "kill p100": "s",
            "stop p50": "s",
            "stop p100": "s",
            "bound": "s",
        },
        min,
        tasks=20,  # losses of each kind
        runs=1,  # it takes minutes, and its figures are those of all losses
    ),
    Work(
        "schedules",
        "schedules that are due in one moment, submitted by a leader alone; an idle pass beside all and beside 10 of them",
        {"submitted in": "s", "idle": "ms", "idle beside few": "ms", "ratio": ""},
        min,
        tasks=10_000,
    ),
    Work(
        "http",
        "submissions over HTTP: 400 in a request, divided by the same in process; one in a request on 16 connections, on one",
        {
            "ratio": "",
            "in process": "tasks/s",
            "batches": "tasks/s",
            "single": "tasks/s",
            "one connection": "tasks/s",
        },
        max,
        tasks=16_000,
    ),
    Work(
        "pull",
        "a program that pulls over HTTP; the Scheduler is the gateway's, or that of another process",
        {
            "steps": "steps/s",
            "deliver": "ms",
            "report": "ms",
            "steps, apart": "steps/s",
            "deliver, apart": "ms",
            "report, apart": "ms",
        },
        max,
        tasks=1_000,
    ),
    Work(
        "trace_cost",
        "CPU of w1 with traces, divided by that without: an exporter that drops its spans, and one that reads them",
        {
            "dropped": "",
            "dropped, quartile 1": "",
            "dropped, quartile 3": "",
            "read": "",
            "noise": "",
            "off": "s/1,000 tasks",
            "on": "s/1,000 tasks",
        },
        min,
        tasks=20_000,
    ),
    Work(
        "signals",
        "1,000 waiting tasks, from a signal to the code, and a step's way, in turn; then more tasks that wait",
        {"ratio": "", "signal p50": "ms", "step p50": "ms", "memory": "MB"},
        min,
        tasks=100_000,
        runs=1,  # it takes turns itself
    ),
    Work(
        "children",
        "a parent with children of one step each, beside as many submitted tasks, in turn",
        {"ratio": "", "children": "s", "submitted": "s"},
        min,
        tasks=1_000,
        runs=1,  # it takes turns itself
    ),
    Work(
        "batches",
        "messages of one hot key, one no-op step each, beside the same in batches of 100, in turn",
        {"ratio": "", "batches": "messages/s", "one by one": "messages/s"},
        max,
        tasks=2_000,
        runs=1,  # it takes turns itself
    ),
    Work(
        "replay",
        "today's code over the records of stored tasks with three results each, from the store and from an export",
        {"store": "s", "export": "s"},
        min,
        tasks=10_000,
        runs=1,
    ),
    Work("import", "import of the library, bare interpreter taken off", {"time": "ms"}, min, stores=("sqlite",)),
    Work("sleeping", "memory of a process that holds sleeping tasks", {"memory": "MB"}, min, 100_000, ("sqlite",)),
)

ONE_WAY = ("",)
OWN = "arriero"
CEILING = "ceiling"
FUSED = "fused"  # the ceiling with as few commits as record each intent before its step

SIDES = (
    Side(OWN, dict.fromkeys(STORES, "arriero_side.py"), dict.fromkeys((work.name for work in WORKS), ONE_WAY)),
    # No queue in w2 and w3: its worker polls, so it can only add to what a direct call takes.
    Side(
        "dbos",
        dict.fromkeys(STORES, "dbos_side.py"),
        {
            "w1": ("direct", "threads", "async", "queue"),
            "w1x2": ("threads",),
            "w2": ("direct", "async"),
            "w3": ("direct", "async"),
            "w4": ONE_WAY,
            "w5": ("threads", "transaction"),
            "w6": ("direct", "threads"),
            "import": ONE_WAY,
        },
    ),
    # It has its own store, so its figures belong beside those of every store.
    Side(
        "restate",
        dict.fromkeys(STORES, "restate_side.py"),
        {"w1": ONE_WAY, "w2": ONE_WAY, "w5": ("ingress", "handler")},
    ),
    Side(
        CEILING,
        {"sqlite": "ceiling_sqlite.py", "postgres": "ceiling_postgres.py"},
        dict.fromkeys(("w1", "w2"), ONE_WAY),
    ),
    Side(
        FUSED,
        {"sqlite": "ceiling_sqlite.py", "postgres": "ceiling_postgres.py"},
        dict.fromkeys(("w1", "w2"), ("fused",)),
    ),
)

PEERS = tuple(side.name for side in SIDES if side.name not in {OWN, CEILING, FUSED})


@dataclass(frozen=True)
class Goal:
    """What a figure of ours is to reach; ``--require`` fails a run that misses one.

    Attributes:
        to: the side whose figure ours is divided by; empty: our figure itself counts.
        bounds: for each store.
        at_least: whether the bound is the lowest that will do, or else the highest.
    """

    work: str
    figure: str
    to: str
    bounds: Mapping[str, float]
    at_least: bool = True


def _on_both(bound: float) -> Mapping[str, float]:
    return dict.fromkeys(STORES, bound)


GOALS = (
    Goal("w1", "throughput", "dbos", {"sqlite": 15, "postgres": 10}),
    Goal("w1", "throughput", "restate", {"sqlite": 4, "postgres": 2.5}),
    Goal("w1", "throughput", CEILING, _on_both(0.2)),
    Goal("w1x2", "throughput", "dbos", {"postgres": 10}),
    Goal("w2", "p50", "dbos", _on_both(0.45), at_least=False),
    Goal("w3", "p99", "dbos", _on_both(1), at_least=False),
    Goal("w4", "recovery", "dbos", _on_both(0.5), at_least=False),
    Goal("w5", "throughput", "dbos", _on_both(10)),
    Goal("w5", "throughput", "restate", _on_both(2)),
    Goal("w6", "cpu", "dbos", {"sqlite": 0.12, "postgres": 0.2}, at_least=False),
    Goal("w7", "ratio", "", _on_both(0.9)),
    Goal("cold", "ratio", "", _on_both(1.5), at_least=False),
    Goal("breaker_cost", "w1 throughput", "", _on_both(0.97)),
    Goal("breaker_cost", "w1 cpu", "", _on_both(1.03), at_least=False),
    Goal("breaker_cost", "w2 p50", "", _on_both(1.03), at_least=False),
    Goal("breaker_cost", "w2 cpu", "", _on_both(1.03), at_least=False),
    Goal("pull", "steps", "", _on_both(1_000)),
    Goal("pull", "report", "", _on_both(5), at_least=False),
    Goal("trace_cost", "dropped", "", _on_both(1.10), at_least=False),
    Goal("limits", "in use", "", _on_both(0.9)),
    Goal("limits", "most", "", _on_both(50), at_least=False),
    Goal("limits", "keyed in use", "", _on_both(0.9)),
    Goal("limits", "keyed most", "", _on_both(50), at_least=False),
    Goal("limits", "most of a key", "", _on_both(2), at_least=False),
    Goal("limits", "rate", "", _on_both(0.9)),
    Goal("limits", "most a second", "", _on_both(200), at_least=False),
    Goal("takeover", "freeze p100", "", _on_both(10), at_least=False),
    Goal("takeover", "kill p100", "", _on_both(3), at_least=False),
    Goal("takeover", "stop p100", "", _on_both(1), at_least=False),
    Goal("children", "ratio", "", _on_both(1.3), at_least=False),
    Goal("batches", "ratio", "", _on_both(3)),
    Goal("replay", "store", "", _on_both(60), at_least=False),
    Goal("replay", "export", "", _on_both(60), at_least=False),
    Goal("signals", "ratio", "", _on_both(1.5), at_least=False),
    Goal("schedules", "submitted in", "", _on_both(10), at_least=False),
    Goal("http", "ratio", "", _on_both(0.6)),
    Goal("schedules", "ratio", "", _on_both(1.5), at_least=False),
    Goal("outage", "calls an interval", "", {"sqlite": 1}, at_least=False),
    Goal("outage", "charged", "", {"sqlite": 0}, at_least=False),
    Goal("outage", "full flow", "", {"sqlite": 31}, at_least=False),  # the ramp of 30 s, and the look after it
)
