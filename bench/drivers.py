"""Which driver, and how rows travel: psycopg beside asyncpg, way by way, on the writes of arriero's PostgreSQL store.

Run from the root of the repository, in the environment of the tests:

    .venv/bin/python bench/drivers.py
    .venv/bin/python bench/drivers.py --sizes 10 --rounds 3 --json drivers.json
    .venv/bin/python bench/drivers.py --plans        # only: the planner and each way to update

It starts a server of its own (version 16, fsync on) unless ``--url`` names one; there it uses a schema ``drivers``, which
it drops. asyncpg is installed at the version of requirements-drivers.txt into an environment that is thrown away.

One transaction does what one batch of the store does for N tasks: load and lock N tasks, update them, update N steps,
insert N steps, insert N rows of history, commit. All ways take turns within a round, the order moves on from round to
round, and the figures are medians over rounds, in ms per transaction. Compare ratios of one run only.

- wall: from BEGIN to the answer of COMMIT; an fsync is part of it.
- client: CPU time of the process of the driver. It is what limits one Python process.
- server: CPU time of the back-end (Linux only).
- load, write: the share of ``client`` up to the rows being there as structs, and from there on.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from statistics import median
from types import GenericAlias
from typing import TYPE_CHECKING, Any, cast

import msgspec

if TYPE_CHECKING:
    from arriero.testing.postgres import Server

PINS = Path(__file__).with_name("requirements-drivers.txt")
VERSION = 16
URL_VARIABLE = "BENCH_STORE_URL"
TASKS = 20_000  # rows there before a round: indexes of the usual depth, and little of a batch is in one page
SEED = 16
WARM_UPS = 6  # a prepared statement is planned for its own parameters five times, then perhaps for all

# The columns of the store's three busiest tables.
TASK = dict.fromkeys(("task_no", "priority", "not_before", "locked_by", "fence", "revision", "incarnation"), "bigint")
TASK |= dict.fromkeys(("failure_count", "lost_count", "opened_count", "open_count", "result_count"), "bigint")
TASK |= dict.fromkeys(("unseen_since", "seed", "submitted_at", "started_at", "ended_at", "complete_by"), "bigint")
TASK |= dict.fromkeys(("task_id", "workflow", "state", "policy", "body_hash", "output", "failure", "head"), "text")
TASK |= dict.fromkeys(("link", "paused_at", "past_count", "branched_at", "status_count"), "bigint")
TASK |= {"undoing": "boolean", "reply_to": "text"}
TASK_CHANGES = ["state", "not_before", "locked_by", "fence", "revision", "failure_count", "lost_count"]
TASK_CHANGES += ["opened_count", "open_count", "result_count", "unseen_since", "started_at", "ended_at", "output"]
TASK_CHANGES += ["failure", "link", "head", "paused_at", "undoing", "status_count"]

STEP = dict.fromkeys(("step_no", "task_no", "ordinal", "priority", "undoes", "attempt", "failure_count"), "bigint")
STEP |= dict.fromkeys(("lost_count", "fence", "locked_by", "not_before", "complete_by", "wait_by"), "bigint")
STEP |= dict.fromkeys(("result_number", "delivered_at", "opened_at", "finished_at"), "bigint")
STEP |= dict.fromkeys(("kind", "name", "key", "agent", "state", "arguments", "policy", "idempotency_key"), "text")
STEP |= dict.fromkeys(("compensation", "undo", "result", "failure", "asked"), "text")
STEP |= dict.fromkeys(("pivot", "effect_free", "taken", "in_doubt"), "boolean")
STEP_CHANGES = ["state", "attempt", "failure_count", "lost_count", "taken", "in_doubt", "fence", "locked_by"]
STEP_CHANGES += ["not_before", "complete_by", "result", "failure", "result_number", "delivered_at", "finished_at"]

HISTORY = {"task_no": "bigint", "link": "bigint", "at": "bigint", "actor": "text", "events": "text", "hash": "text"}
HISTORY |= {"no": "bigint"}

TABLES = {"task": TASK, "step": STEP, "history": HISTORY}
KEYS = {"task": "task_no", "step": "step_no", "history": "no"}
INDEXES = (
    "CREATE UNIQUE INDEX ON drivers.task (task_id)",
    "CREATE INDEX ON drivers.task (priority, not_before) WHERE locked_by IS NULL AND not_before IS NOT NULL",
    "CREATE INDEX ON drivers.task (locked_by) WHERE locked_by IS NOT NULL",
    "CREATE INDEX ON drivers.task (unseen_since) WHERE unseen_since IS NOT NULL",
    "CREATE INDEX ON drivers.step (agent, priority, not_before) WHERE state = 'pending'",
    "CREATE INDEX ON drivers.step (complete_by) WHERE complete_by IS NOT NULL",
    "CREATE INDEX ON drivers.step (locked_by) WHERE locked_by IS NOT NULL",
    "CREATE UNIQUE INDEX ON drivers.history (task_no, link)",
)

PLAN_TASKS = 1_000_000
GROWN_FROM, GROWN_TO = 1_000, 200_000
PLAN_TASK = {"state": "processing", "fence": 2, "revision": 2, "failure_count": 0, "lost_count": 0, "opened_count": 2}
PLAN_TASK |= {"open_count": 1, "result_count": 1, "link": 2, "head": "0123456789abcdef", "undoing": False}
PLAN_TASK |= {"status_count": 0, "locked_by": 7}
PYTHON_TYPES = {"bigint": int, "text": str, "boolean": bool}


def struct_of(table: str) -> type[msgspec.Struct]:
    """The model of a table: frozen, every column optional; its fields stand in the order of the columns."""
    fields = [(name, PYTHON_TYPES[kind] | None, None) for name, kind in TABLES[table].items()]
    return msgspec.defstruct(table.title(), fields, frozen=True)


MODELS = {table: struct_of(table) for table in TABLES}
Model = Any  # a struct made above


@dataclass(frozen=True)
class Way:
    """One way to do the transaction. The plain one is sync psycopg with defaults off; each other one changes something.

    Attributes:
        rows: how the rows of a set-based write travel: ``json_to_recordset``, ``jsonb_to_recordset``, ``elements`` (an
            array of arrays, taken apart by ``->>``), ``unnest`` (an array a column), ``executemany`` (a row at a time).
        changes_only: updates send the changed columns alone, not the whole struct.
        copy: inserts go by COPY straight into the table.
        pipeline: everything after BEGIN and the load goes out together, COMMIT included.
        prepare: statements are prepared at their first execution; off: never.
        custom_plans: what is prepared is planned anew each time all the same.
        binary: results come in binary.
        binary_arrays: arrays of ``unnest`` go out in binary.
        load_json: the loaded rows come as one JSON text.
    """

    name: str
    driver: str = "psycopg"
    rows: str = "json_to_recordset"
    changes_only: bool = True
    copy: bool = False
    pipeline: bool = False
    prepare: bool = False
    custom_plans: bool = False
    binary: bool = False
    binary_arrays: bool = False
    load_json: bool = False


PLAIN = Way("psycopg json")
WAYS = (
    PLAIN,
    replace(PLAIN, name="psycopg json, whole rows", changes_only=False),
    replace(PLAIN, name="psycopg jsonb", rows="jsonb_to_recordset"),
    replace(PLAIN, name="psycopg json arrays", rows="elements"),
    replace(PLAIN, name="psycopg unnest", rows="unnest"),
    replace(PLAIN, name="psycopg unnest, binary", rows="unnest", binary_arrays=True),
    replace(PLAIN, name="psycopg executemany", rows="executemany"),
    replace(PLAIN, name="psycopg executemany, prepared", rows="executemany", prepare=True),
    replace(PLAIN, name="psycopg json, COPY", copy=True),
    replace(PLAIN, name="psycopg json, binary results", binary=True),
    replace(PLAIN, name="psycopg json, load json", load_json=True),
    replace(PLAIN, name="psycopg json, prepared", prepare=True),
    replace(PLAIN, name="psycopg json, prepared, custom plans", prepare=True, custom_plans=True),
    replace(PLAIN, name="psycopg json, pipeline", pipeline=True),
    replace(PLAIN, name="psycopg json, pipeline, prepared", pipeline=True, prepare=True),
    replace(PLAIN, name="psycopg json, pipeline, prep., custom pl.", pipeline=True, prepare=True, custom_plans=True),
    replace(
        PLAIN,
        name="psycopg unnest, binary, pipeline, prep.",
        rows="unnest",
        binary_arrays=True,
        pipeline=True,
        prepare=True,
    ),
    Way("asyncpg json", driver="asyncpg", prepare=True),
    Way("asyncpg json, not prepared", driver="asyncpg"),
    Way("asyncpg unnest", driver="asyncpg", rows="unnest", prepare=True),
    Way("asyncpg unnest, not prepared", driver="asyncpg", rows="unnest"),
    Way("asyncpg json, COPY", driver="asyncpg", copy=True, prepare=True),
    Way("asyncpg unnest, COPY", driver="asyncpg", rows="unnest", copy=True, prepare=True),
    Way("asyncpg executemany", driver="asyncpg", rows="executemany", prepare=True),
)


GROWTH_WAYS = [way for way in WAYS if way.name in ("psycopg json", "psycopg json, prepared")]
GROWTH_WAYS += [way for way in WAYS if way.name == "psycopg json, prepared, custom plans"]
GROWTH_WAYS += [
    replace(PLAIN, name="psycopg unnest, binary, prepared", rows="unnest", binary_arrays=True, prepare=True)
]


# --- The statements ---------------------------------------------------------------------------------------------


class Statements:
    """The SQL of one way. ``mark(n)`` is the n-th parameter, from 1, as its driver writes it."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self.load = self._load()
        self.update = {"task": self._update("task", TASK_CHANGES), "step": self._update("step", STEP_CHANGES)}
        self.insert = {table: self._insert(table) for table in ("step", "history")}

    def _mark(self, number: int) -> str:
        return f"${number}" if self._way.driver == "asyncpg" else "%s"

    def _load(self) -> str:
        select = f"SELECT {', '.join(TASK)} FROM drivers.task WHERE task_no = ANY({self._mark(1)}::bigint[])"
        select += " ORDER BY task_no FOR NO KEY UPDATE SKIP LOCKED"
        if not self._way.load_json:
            return select
        return f"SELECT json_agg(loaded)::text FROM ({select}) AS loaded"

    def _source(self, table: str, columns: Sequence[str]) -> str:
        types = [TABLES[table][column] for column in columns]
        pairs = list(zip(columns, types, strict=True))
        if self._way.rows == "unnest":
            arrays = ", ".join(f"{self._mark(at)}::{kind}[]" for at, kind in enumerate(types, start=1))
            return f"unnest({arrays}) AS source ({', '.join(columns)})"
        # Through text: asyncpg would take a parameter of type json for something to encode.
        if self._way.rows == "elements":
            picks = ", ".join(f"(item ->> {at})::{kind} AS {column}" for at, (column, kind) in enumerate(pairs))
            return f"(SELECT {picks} FROM json_array_elements({self._mark(1)}::text::json) AS item) AS source"
        kind = self._way.rows.removesuffix("_to_recordset")
        declared = ", ".join(f"{column} {kind}" for column, kind in pairs)
        return f"{self._way.rows}({self._mark(1)}::text::{kind}) AS source ({declared})"

    def _update(self, table: str, changes: Sequence[str]) -> str:
        key = KEYS[table]
        if self._way.rows == "executemany":
            sets = ", ".join(f"{column} = {self._mark(at)}" for at, column in enumerate(changes, start=2))
            sets = sets if self._way.driver == "asyncpg" else ", ".join(f"{column} = %s" for column in changes)
            # The key is the last parameter of psycopg, which counts none, and the first of asyncpg.
            return f"UPDATE drivers.{table} SET {sets} WHERE {key} = {self._mark(1)}"
        sets = ", ".join(f"{column} = source.{column}" for column in changes)
        source = self._source(table, [key, *changes])
        return f"UPDATE drivers.{table} SET {sets} FROM {source} WHERE {table}.{key} = source.{key}"

    def _insert(self, table: str) -> str:
        columns = list(TABLES[table])
        names = ", ".join(columns)
        if self._way.rows == "executemany":
            marks = ", ".join(self._mark(at) for at in range(1, len(columns) + 1))
            return f"INSERT INTO drivers.{table} ({names}) VALUES ({marks})"
        return f"INSERT INTO drivers.{table} ({names}) SELECT {names} FROM {self._source(table, columns)}"


class Parameters:
    """What goes out with the statements of one way, made of structs as the store has them in hand."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._changed = {
            table: msgspec.defstruct(f"{table.title()}Changes", [(name, Any) for name in (KEYS[table], *changes)])
            for table, changes in (("task", TASK_CHANGES), ("step", STEP_CHANGES))
        }
        self._pick: dict[Any, Callable[[Model], tuple[Any, ...]]] = {}
        for table, changes in (("task", TASK_CHANGES), ("step", STEP_CHANGES)):
            self._pick["update", table] = attrgetter(KEYS[table], *changes)
            self._pick["psycopg", table] = attrgetter(*changes, KEYS[table])
        for table, columns in TABLES.items():
            self._pick["insert", table] = attrgetter(*columns)

    def set_based(self, verb: str, table: str, rows: Sequence[Model]) -> list[Any]:
        """The parameters of one statement for all rows."""
        pick = self._pick[verb, table]
        if self._way.rows == "unnest":
            return [list(column) for column in zip(*map(pick, rows), strict=True)]
        if self._way.rows == "elements":
            return [msgspec.json.encode([pick(row) for row in rows]).decode()]
        if self._way.changes_only and verb == "update":
            changed = self._changed[table]
            return [msgspec.json.encode([changed(*pick(row)) for row in rows]).decode()]
        return [msgspec.json.encode(rows).decode()]

    def row_by_row(self, verb: str, table: str, rows: Sequence[Model]) -> list[tuple[Any, ...]]:
        """The parameters of one row's statement, for each row."""
        psycopg_update = verb == "update" and self._way.driver == "psycopg"
        return list(map(self._pick["psycopg" if psycopg_update else verb, table], rows))


# --- The work ---------------------------------------------------------------------------------------------------


@dataclass
class Batch:
    """What one transaction does; its steps and history have numbers that no other has."""

    task_numbers: list[int]
    steps: list[Model]
    new_steps: list[Model]
    history: list[Model]


def transactions(size: int) -> int:
    """How many a turn measures: a turn takes some tenths of a second at every size."""
    return max(4, min(60, 2_000 // size))


def json_text(chance: random.Random, length: int) -> str:
    """A JSON text of about ``length`` characters, as arguments and results are."""
    names = [f"{chance.getrandbits(64):016x}" for _ in range(length // 26)]
    return json.dumps({name: chance.randrange(1_000_000) for name in names})


def step_of(chance: random.Random, step_no: int, task_no: int) -> Model:
    """A step as it is opened."""
    text = json_text(chance, chance.randrange(200, 1_000))
    return MODELS["step"](
        step_no=step_no, task_no=task_no, ordinal=2, priority=0, undoes=None, attempt=1, failure_count=0, lost_count=0,
        fence=1, locked_by=7, not_before=None, complete_by=1_800_000_000_000_000 + step_no, wait_by=None,
        result_number=None, delivered_at=None, opened_at=1_700_000_000_000_000 + step_no, finished_at=None,
        kind="step", name="reserve_stock", key=f"reserve_stock:{step_no}", agent="warehouse", state="running",
        arguments=text, policy='{"attempts":3,"rounds":2,"cool_off":60000000,"timeout":30000000,"first":1000000}',
        idempotency_key=f"{step_no:032x}", compensation="release_stock", undo=None, result=None, failure=None,
        asked=None, pivot=False, effect_free=False, taken=True, in_doubt=False,
    )  # fmt: skip


def batches_of(size: int, count: int, first: int, chance: random.Random) -> list[Batch]:
    """``count`` batches for ``size`` tasks each; ``first`` is the first number of new rows."""
    batches = []
    for _ in range(count):
        numbers = sorted(chance.sample(range(1, TASKS + 1), size))
        steps = [step_of(chance, number, number) for number in numbers]
        done = [
            msgspec.structs.replace(
                step, state="completed", result=json_text(chance, 300), finished_at=1_700_000_000_000_000, fence=2,
                result_number=1, locked_by=None, complete_by=None,
            )
            for step in steps
        ]  # fmt: skip
        fresh = range(first, first + size)
        first += size
        new_steps = [step_of(chance, new, number) for new, number in zip(fresh, numbers, strict=True)]
        history = [
            MODELS["history"](
                task_no=number, link=new, at=1_700_000_000_000_000, actor="node-7:12345", hash=f"{new:032x}", no=new,
                events=json_text(chance, 250),
            )
            for new, number in zip(fresh, numbers, strict=True)
        ]  # fmt: skip
        batches.append(Batch(numbers, done, new_steps, history))
    return batches


def changed(task: Model) -> Model:
    """A task after one more commit."""
    return msgspec.structs.replace(
        task, state="processing", fence=task.fence + 1, revision=task.revision + 1, link=task.link + 1, locked_by=7,
        opened_count=task.opened_count + 1, result_count=task.result_count + 1, head=f"{task.revision:032x}",
    )  # fmt: skip


# --- The drivers ------------------------------------------------------------------------------------------------


def server_seconds(pid: int) -> float:
    """CPU time of a back-end so far; 0 where the system does not tell it this way."""
    accounts = Path(f"/proc/{pid}/schedstat")
    return int(accounts.read_text().split()[0]) / 1e9 if accounts.exists() else 0.0


class Watch:
    """Adds up what a turn costs: ``with watch:`` around a transaction, ``loaded()`` once its rows are there."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._sums = dict.fromkeys(("wall", "client", "server", "load", "write"), 0.0)
        self._count = 0

    def __enter__(self) -> None:
        self._server = server_seconds(self._pid)
        self._client = self._loaded = time.process_time()
        self._wall = time.perf_counter()

    def loaded(self) -> None:
        self._loaded = time.process_time()

    def __exit__(self, *_: object) -> None:
        wall, client = time.perf_counter(), time.process_time()
        self._sums["wall"] += wall - self._wall
        self._sums["client"] += client - self._client
        self._sums["load"] += self._loaded - self._client
        self._sums["write"] += client - self._loaded
        self._sums["server"] += server_seconds(self._pid) - self._server
        self._count += 1

    def figures(self) -> dict[str, float]:
        """Milliseconds per transaction."""
        return {name: total / self._count * 1_000 for name, total in self._sums.items()}


def task_rows(way: Way, rows: Sequence[Any]) -> list[Model]:
    """Structs of what the load delivered; also proves that no row is missing where a way is broken."""
    make = MODELS["task"]
    return [make(*row) for row in rows]


decode_tasks: Callable[[str], list[Model]] = msgspec.json.Decoder(GenericAlias(list, MODELS["task"])).decode


class PsycopgSide:
    """Sync psycopg, one connection a way."""

    def __init__(self, url: str, way: Way) -> None:
        import psycopg
        from psycopg.types.array import ListBinaryDumper, ListDumper

        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=0 if way.prepare else None)
        self._connection.adapters.register_dumper(list, ListBinaryDumper if way.binary_arrays else ListDumper)
        self._way = way
        self._statements, self._parameters = Statements(way), Parameters(way)
        self._cursor = self._connection.cursor(binary=way.binary)
        if way.custom_plans:
            self._connection.execute("SET plan_cache_mode = force_custom_plan")

    def run(self, warm_ups: Sequence[Batch], batches: Sequence[Batch]) -> dict[str, float]:
        """One turn."""
        backend = self._connection.info.backend_pid
        for batch in warm_ups:
            self._transaction(batch, Watch(backend))
        watch = Watch(backend)
        for batch in batches:
            self._transaction(batch, watch)
        return watch.figures()

    def update_tasks(self, tasks: Sequence[Model]) -> float:
        """Seconds that one update takes, outside of any turn."""
        started = time.perf_counter()
        self._write("update", "task", tasks)
        return time.perf_counter() - started

    def _transaction(self, batch: Batch, watch: Watch) -> None:
        execute = self._cursor.execute
        with watch, self._connection.pipeline() if self._way.pipeline else nullcontext():
            execute("BEGIN")
            rows = execute(self._statements.load, [batch.task_numbers]).fetchall()
            tasks = decode_tasks(rows[0][0]) if self._way.load_json else task_rows(self._way, rows)
            watch.loaded()
            assert len(tasks) == len(batch.task_numbers)
            self._write("update", "task", [changed(task) for task in tasks])
            self._write("update", "step", batch.steps)
            self._write("insert", "step", batch.new_steps)
            self._write("insert", "history", batch.history)
            execute("COMMIT")

    def _write(self, verb: str, table: str, rows: Sequence[Model]) -> None:
        if verb == "insert" and self._way.copy:
            with self._cursor.copy(f"COPY drivers.{table} ({', '.join(TABLES[table])}) FROM STDIN") as copy:
                for row in self._parameters.row_by_row("insert", table, rows):
                    copy.write_row(row)
            return
        statement = (self._statements.update if verb == "update" else self._statements.insert)[table]
        if self._way.rows == "executemany":
            self._cursor.executemany(statement, self._parameters.row_by_row(verb, table, rows))
        else:
            self._cursor.execute(statement, self._parameters.set_based(verb, table, rows))


class AsyncpgSide:
    """asyncpg, one connection a way. Its transactions begin and end by plain statements, as the other side's do."""

    def __init__(self, url: str, way: Way) -> None:
        self._url, self._way = url, way
        self._statements, self._parameters = Statements(way), Parameters(way)
        self._connection: Any = None
        self._runner = asyncio.Runner(loop_factory=self._new_loop)

    @staticmethod
    def _new_loop() -> asyncio.AbstractEventLoop:
        return cast(asyncio.AbstractEventLoop, import_module("uvloop").new_event_loop())

    def run(self, warm_ups: Sequence[Batch], batches: Sequence[Batch]) -> dict[str, float]:
        """One turn."""
        return self._runner.run(self._run(warm_ups, batches))

    async def _run(self, warm_ups: Sequence[Batch], batches: Sequence[Batch]) -> dict[str, float]:
        if self._connection is None:
            self._connection = await import_module("asyncpg").connect(
                self._url, statement_cache_size=100 if self._way.prepare else 0
            )
        backend = self._connection.get_server_pid()
        for batch in warm_ups:
            await self._transaction(batch, Watch(backend))
        watch = Watch(backend)
        for batch in batches:
            await self._transaction(batch, watch)
        return watch.figures()

    async def _transaction(self, batch: Batch, watch: Watch) -> None:
        with watch:
            await self._connection.execute("BEGIN")
            rows = await self._connection.fetch(self._statements.load, batch.task_numbers)
            tasks = decode_tasks(rows[0][0]) if self._way.load_json else task_rows(self._way, rows)
            watch.loaded()
            assert len(tasks) == len(batch.task_numbers)
            await self._write("update", "task", [changed(task) for task in tasks])
            await self._write("update", "step", batch.steps)
            await self._write("insert", "step", batch.new_steps)
            await self._write("insert", "history", batch.history)
            await self._connection.execute("COMMIT")

    async def _write(self, verb: str, table: str, rows: Sequence[Model]) -> None:
        if verb == "insert" and self._way.copy:
            records = self._parameters.row_by_row("insert", table, rows)
            columns = list(TABLES[table])
            await self._connection.copy_records_to_table(table, records=records, columns=columns, schema_name="drivers")
            return
        statement = (self._statements.update if verb == "update" else self._statements.insert)[table]
        if self._way.rows == "executemany":
            await self._connection.executemany(statement, self._parameters.row_by_row(verb, table, rows))
        else:
            await self._connection.execute(statement, *self._parameters.set_based(verb, table, rows))


SIDES: dict[str, Callable[[str, Way], Any]] = {"psycopg": PsycopgSide, "asyncpg": AsyncpgSide}


def serve(url: str) -> None:
    """The program of one driver: a turn asked for on each line of standard input, its figures on a line of output."""
    sides: dict[str, Any] = {}
    ways = {way.name: way for way in WAYS}
    for line in sys.stdin:
        name, size, first, seed = json.loads(line)
        if name not in sides:
            sides[name] = SIDES[ways[name].driver](url, ways[name])
        batches = batches_of(size, WARM_UPS + transactions(size), first, random.Random(seed))
        print(json.dumps(sides[name].run(batches[:WARM_UPS], batches[WARM_UPS:])), flush=True)


# --- The referee ------------------------------------------------------------------------------------------------


def prepare_database(execute: Callable[[str], object]) -> None:
    """Tables as the store has them, with their first rows."""
    execute("DROP SCHEMA IF EXISTS drivers CASCADE")
    execute("CREATE SCHEMA drivers")
    for table, columns in TABLES.items():
        declared = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        execute(f"CREATE TABLE drivers.{table} ({declared}, PRIMARY KEY ({KEYS[table]})) WITH (fillfactor = 85)")
    for index in INDEXES:
        execute(index)


def fill(execute: Callable[[str], object], rows: int, tables: Sequence[str] = ("task", "step")) -> None:
    """Put the tables back to ``rows`` tasks with one step each, or only some of them."""
    execute("TRUNCATE drivers.task, drivers.step, drivers.history")
    for table in tables:
        add_rows(execute, table, 1, rows)
    execute("VACUUM ANALYZE drivers.task, drivers.step, drivers.history")
    execute("CHECKPOINT")


def add_rows(execute: Callable[[str], object], table: str, first: int, last: int) -> None:
    """Rows with these numbers, made by the server."""
    made = {"task_no": "no", "step_no": "no", "task_id": "'task-' || no", "policy": "repeat('p', 150)"}
    made |= {"arguments": "repeat('a', 500)", "not_before": "NULL", "locked_by": "7", "unseen_since": "NULL"}
    made |= dict.fromkeys(("output", "failure", "paused_at", "branched_at", "reply_to", "ended_at"), "NULL")
    made |= dict.fromkeys(("compensation", "undo", "result", "asked", "undoes", "wait_by"), "NULL")
    by_type = {"bigint": "1", "text": "'0123456789abcdef'", "boolean": "false"}
    values = ", ".join(made.get(name, by_type[kind]) for name, kind in TABLES[table].items())
    names = ", ".join(TABLES[table])
    execute(f"INSERT INTO drivers.{table} ({names}) SELECT {values} FROM generate_series({first}, {last}) AS no")


@contextmanager
def programs(url: str) -> Iterator[dict[str, "subprocess.Popen[str]"]]:
    """One program a driver; asyncpg's in an environment that is thrown away."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*pip, "-r", str(PINS)], check=True)
        running = {}
        for driver, python in (("psycopg", Path(sys.executable)), ("asyncpg", home / "bin" / "python")):
            program = subprocess.Popen(
                [python, __file__, "--serve"],
                env={**os.environ, URL_VARIABLE: url},  # its password is nothing for a command line
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(program.wait, 10)
            stack.callback(cast(Any, program.stdin).close)
            running[driver] = program
        yield running


def turn(program: "subprocess.Popen[str]", way: Way, size: int, first: int, seed: int) -> dict[str, float]:
    """Ask a program for one turn. Raises: RuntimeError - it ended instead; its words are on standard error."""
    assert program.stdin is not None
    assert program.stdout is not None
    print(json.dumps([way.name, size, first, seed]), file=program.stdin, flush=True)
    answer = program.stdout.readline()
    if not answer:
        raise RuntimeError(f"{way.name} gave no figures")
    return cast(dict[str, float], json.loads(answer))


def measure(url: str, ways: Sequence[Way], sizes: Sequence[int], rounds: int) -> list[dict[str, Any]]:
    """Rows of medians, one for each way and size."""
    import psycopg

    rows: list[dict[str, Any]] = []
    with psycopg.connect(url, autocommit=True) as connection, programs(url) as running:
        prepare_database(connection.execute)
        for size in sizes:
            figures: dict[str, list[dict[str, float]]] = {way.name: [] for way in ways}
            for number in range(rounds):
                fill(connection.execute, TASKS)
                first = TASKS + 1
                start = number * len(ways) // rounds
                for way in (*ways[start:], *ways[:start]):
                    figures[way.name].append(turn(running[way.driver], way, size, first, SEED + number))
                    first += size * (WARM_UPS + transactions(size))
            for way in ways:
                medians = {name: median(each[name] for each in figures[way.name]) for name in figures[way.name][0]}
                rows.append({"way": way.name, "size": size, **medians, "settings": asdict(way)})
            print_size(rows, size)
    return rows


def print_size(rows: Sequence[Mapping[str, Any]], size: int) -> None:
    """A plain table; the ratios are to the plain way: below 1 is better."""
    mine = [row for row in rows if row["size"] == size]
    plain = mine[0]
    print(f"\n{size} tasks a transaction, ms; ratios to {plain['way']}")
    print(f"{'way':44}{'wall':>9}{'ratio':>7}{'client':>9}{'ratio':>7}{'server':>9}{'ratio':>7}{'load':>8}{'write':>8}")
    for row in mine:
        cells = "".join(
            f"{row[name]:9.2f}{row[name] / plain[name] if plain[name] else 0:7.2f}"
            for name in ("wall", "client", "server")
        )
        print(f"{row['way']:44}{cells}{row['load']:8.2f}{row['write']:8.2f}", flush=True)


def nodes_of(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A plan's nodes, from the top."""
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes_of(below)


def explain(connection: Any, way: Way, size: int, mode: str) -> dict[str, Any]:
    """The plan of the update of ``size`` tasks, as it was carried out (and taken back)."""
    statement = Statements(replace(way, driver="asyncpg")).update["task"]
    values = Parameters(way).set_based("update", "task", tasks_among(size, PLAN_TASKS))
    marks = ", ".join("%s" for _ in values)
    cursor = connection.cursor()
    try:
        cursor.execute(f"BEGIN; SET LOCAL plan_cache_mode = {mode}; PREPARE looked_at AS {statement}")
        found = cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE looked_at ({marks})", values).fetchone()[0][0]
    finally:
        cursor.execute("ROLLBACK; DEALLOCATE ALL")
    nodes = list(nodes_of(found["Plan"]))
    scans = " + ".join(node["Node Type"] for node in nodes[1:])
    source = next(node for node in nodes if node["Node Type"] == "Function Scan")
    times = {"planning": found["Planning Time"], "execution": found["Execution Time"]}
    return {"way": way.rows, "size": size, "mode": mode, "estimate": source["Plan Rows"], **times, "nodes": scans}


def tasks_among(size: int, rows: int) -> list[Model]:
    """``size`` tasks as they are updated, spread over a table of ``rows``."""
    return [MODELS["task"](task_no=at * (rows // size), **PLAN_TASK) for at in range(1, size + 1)]


def growth(url: str) -> list[dict[str, Any]]:
    """What an update of 10 tasks costs when the table has grown and nothing has analyzed it since."""
    import psycopg

    print(f"\n{'way':44}{'at ' + str(GROWN_FROM):>12}{'at ' + str(GROWN_TO):>12}  ms, update of 10 tasks")
    found = []
    for way in GROWTH_WAYS:
        with psycopg.connect(url, autocommit=True) as connection:
            prepare_database(connection.execute)
            # As between two rounds of autovacuum, which analyzes a table once a minute at best.
            connection.execute("ALTER TABLE drivers.task SET (autovacuum_enabled = off)")
            add_rows(connection.execute, "task", 1, GROWN_FROM)
            update = PsycopgSide(url, way).update_tasks
            before = [update(tasks_among(10, GROWN_FROM)) for _ in range(WARM_UPS + 5)]
            add_rows(connection.execute, "task", GROWN_FROM + 1, GROWN_TO)
            after = [update(tasks_among(10, GROWN_TO)) for _ in range(5)]
        row = {"before": median(before[WARM_UPS:]) * 1_000, "after": median(after) * 1_000}
        print(f"{way.name:44}{row['before']:12.2f}{row['after']:12.2f}", flush=True)
        found.append({"way": way.name, **row})
    return found


def plans(url: str) -> list[dict[str, Any]]:
    """The plan of each way to update among a million tasks."""
    import psycopg

    rows = []
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        prepare_database(connection.execute)
        fill(connection.execute, PLAN_TASKS, ("task",))
        print(f"{'way':20}{'size':>6} {'mode':20}{'estimate':>9}{'planning':>10}{'execution':>11}  nodes")
        for size in (10, 1_000):
            for kind in ("json_to_recordset", "jsonb_to_recordset", "elements", "unnest"):
                for mode in ("force_custom_plan", "force_generic_plan"):
                    row = explain(connection, replace(PLAIN, rows=kind), size, mode)
                    print(
                        "{way:20}{size:6} {mode:20}{estimate:9}{planning:10.2f}{execution:11.2f}  {nodes}".format(**row)
                    )
                    rows.append(row)
    return rows


def started_server() -> "Server":
    """A durable server of one's own; imported here, for asyncpg's environment has neither arriero nor psycopg."""
    from arriero.testing.postgres import Server

    return Server.start(VERSION, durable=True)


def main() -> None:
    """Parse, start what is needed, measure, print."""
    parser = argparse.ArgumentParser(description="Measure drivers and how rows travel; the docstring says more.")
    parser.add_argument("--url", help="a server that is there; without it one is started")
    parser.add_argument("--sizes", default="10,100,1000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", default="", help="only ways whose name contains this")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--plans", action="store_true", help="look at the plans of updates among a million tasks, only")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(os.environ[URL_VARIABLE])
        return
    with ExitStack() as stack:
        url = options.url or stack.enter_context(started_server()).url()
        if options.plans:
            rows = plans(url) + growth(url)
        else:
            ways = [way for way in WAYS if options.ways in way.name]
            rows = measure(url, ways, [int(size) for size in options.sizes.split(",")], options.rounds)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
