"""How the engine's statements are executed beside 50,000 finished tasks: by an index, touching what they ask for only.

Every statement that a round of tasks' lives sends is explained with its own parameters, inside its own transaction.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import psycopg
import pytest
from postgres_servers import server, worker

from arriero.model.answers import Refusal, Submitted
from arriero.model.commands import HandOver, Take
from arriero.model.moves import Process
from arriero.store import columns
from arriero.store.postgres import ledger_rows, submitting, task_rows
from arriero.store.postgres.columns import Write, step_as_is, task_as_is
from arriero.store.postgres.lanes import ENGINE
from arriero.store.postgres.pipeline import PendingAnswer, parse_statement
from arriero.store.postgres.session import Statements, Transaction, TransactionLimits
from arriero.store.postgres.store import PostgresStore
from bench.growth import AGENT, NAMES, WORKFLOW, Life, fill, submission, untimed

FINISHED = 50_000
GROWING = {"task", "body", "step", "history"}
LOOKED_AT_MAX = 400  # rows: a round's steps and the tasks in the background
REMOVED_MAX = 200  # rows that a scan may look at in vain: more mean that an index is missing or the wrong one
PAGES_MORE_MAX = (
    4  # times as many pages as without the finished tasks: each row is found through an index that is deeper
)
PAGES_FEW = 300  # more than that: what is dead and not vacuumed yet differs

EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "

Plan = dict[str, Any]


class Executed(msgspec.Struct):
    """One statement as it was executed."""

    name: str
    plan: Plan

    @property
    def pages(self) -> int:
        """Pages of shared buffers that it looked at."""
        return int(self.plan["Shared Hit Blocks"] + self.plan["Shared Read Blocks"])

    def scans(self) -> Iterator[Plan]:
        """Its scans of tables."""
        return (node for node in _nodes(self.plan) if "Relation Name" in node and "Scan" in node["Node Type"])


def _nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


TAKE_OVER = Take(
    actor="p", process_no=1, room=(("elsewhere", 9),), names=NAMES, probation=None, siblings=(("elsewhere", (AGENT,)),)
)


class Explaining:
    """Explains what transactions ask, then has them ask it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.executed: list[Executed] = []
        ask, write = Transaction.ask, Transaction.write

        def explained_ask(
            transaction: Transaction, name: str, parameters: Mapping[str, Any] | None = None
        ) -> PendingAnswer:
            self._explain(
                transaction,
                name,
                lambda: transaction._pipeline.ask(EXPLAIN + transaction._statements(name), parameters),
            )
            return ask(transaction, name, parameters)

        def explained_write(transaction: Transaction, statement: Write, rows: Sequence[Any]) -> PendingAnswer:
            explained = msgspec.structs.replace(
                statement, of_one=EXPLAIN + statement.of_one, of_many=EXPLAIN + statement.of_many
            )
            name = " ".join(transaction._statements.fill(statement.of_one).split()[:3])
            self._explain(transaction, name, lambda: write(transaction, explained, rows))
            return write(transaction, statement, rows)

        monkeypatch.setattr(Transaction, "ask", explained_ask)
        monkeypatch.setattr(Transaction, "write", explained_write)

    def _explain(self, transaction: Transaction, name: str, execute: Callable[[], PendingAnswer]) -> None:
        transaction.plain("SAVEPOINT explained")
        self.executed.append(Executed(name, _plan_in(execute())))
        transaction.plain("ROLLBACK TO SAVEPOINT explained")

    def taken(self) -> list[Executed]:
        """What was executed since the last call."""
        executed, self.executed = self.executed, []
        return executed


def _plan_in(explained: Any) -> Plan:
    row = explained.fetchone()
    assert row is not None
    plan: Plan = row[0][0]["Plan"]
    return plan


def faults(executed: Executed) -> list[str]:
    """What is wrong with how a statement was executed."""
    found = []
    for scan in executed.scans():
        table, loops = scan["Relation Name"], scan["Actual Loops"]
        where = f"{executed.name}: {scan['Node Type']} of {table} by {scan.get('Index Name')}"
        removed = (scan.get("Rows Removed by Filter", 0) + scan.get("Rows Removed by Index Recheck", 0)) * loops
        looked_at = scan["Actual Rows"] * loops + removed
        if scan["Node Type"] == "Bitmap Heap Scan":
            found.append(f"{where}: it never marks what is dead")
        if table in GROWING and scan["Node Type"] == "Seq Scan":
            found.append(f"{where}, {looked_at} rows")
        elif looked_at > LOOKED_AT_MAX or removed > REMOVED_MAX:
            found.append(f"{where} looked at {looked_at} rows, {removed} in vain")
    return found


class Grown:
    """A store's database: some tasks alive, ``finished`` ones besides, and statistics from before those were there."""

    def __init__(self, finished: int, kind: str = "") -> None:
        name = f"plans_{kind or finished}_{worker()}"
        server().drop_database(name)
        self.url = server().create_database(name)
        self.store = PostgresStore(f"{self.url}?listen=off&prepare=off")
        self.life = Life(self.store)
        asyncio.run(self._make(finished))

    async def _make(self, finished: int) -> None:
        await self.store.open()
        for table in sorted(GROWING):  # its statistics are the test's
            self.execute(f"ALTER TABLE arriero.{table} SET (autovacuum_enabled = off)")
        await self.life.begin()
        await self.round()
        self.execute("ANALYZE")
        if finished:
            fill(self.url, finished, with_history=False, vacuum=False)
        await self.store.close()

    async def round(self) -> None:
        with psycopg.connect(self.url) as joining:
            await self.life.round(untimed, joining)

    def execute(self, sql: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.encode())

    def statistics_of(self, when: str) -> None:
        """Statistics as they are ``never`` made, made of ``empty`` tables, or made ``now``."""
        tables = "(SELECT oid FROM pg_class WHERE relnamespace = 'arriero'::regnamespace)"
        match when:
            case "now":
                self.execute("ANALYZE")
            case "empty" | "never":
                density = 0 if when == "empty" else -1
                self.execute(f"DELETE FROM pg_statistic WHERE starelid IN {tables}")
                self.execute(f"UPDATE pg_class SET reltuples = {density}, relpages = 0 WHERE oid IN {tables}")


@pytest.fixture(scope="module")
def grown() -> Iterator[Grown]:
    made = Grown(FINISHED)
    yield made
    server().drop_database(made.url.rpartition("/")[2])


@pytest.fixture(scope="module")
def small() -> Iterator[Grown]:
    made = Grown(0)
    yield made
    server().drop_database(made.url.rpartition("/")[2])


async def test_every_statement_of_the_engine_has_its_index_whatever_the_statistics_are_of(
    grown: Grown, monkeypatch: pytest.MonkeyPatch
) -> None:
    explaining = Explaining(monkeypatch)
    await grown.store.open()
    found = []
    for when in ("of few", "never", "empty", "now"):
        grown.statistics_of(when)
        await grown.round()
        await grown.store.apply([TAKE_OVER])
        executed = explaining.taken()
        wanted = {"select_claimable", "select_takeable", "select_movable", "select_due", "select_held"}
        assert wanted <= {one.name for one in executed}
        found += [f"statistics {when}: {fault}" for one in executed for fault in faults(one)]
    await grown.store.close()
    assert found == []


async def test_what_was_planned_on_an_empty_store_finds_its_rows_by_an_index_for_good() -> None:
    made = await asyncio.to_thread(Grown, 0, "empty")
    made.statistics_of("never")
    store = PostgresStore(f"{made.url}?listen=off")
    made.life.store = store
    await store.open()
    for number in range(3):
        await made.round()
        await _handle_a_convoy(made.life, f"key-{number}")
    found: list[str] = []
    for lane in ("engine", "submissions"):
        connection = store._lanes[lane][0].get_connection()
        plans = _plans_kept(connection)
        assert len(plans) >= 8
        for statement, plan in plans:
            scans = [
                node for node in _nodes(plan) if node.get("Relation Name") in GROWING and "Scan" in node["Node Type"]
            ]
            found += [f"{statement}: {scan}" for scan in scans if not _is_bounded(scan)]
            found += [
                f"{statement}: {n['Node Type']}" for n in _nodes(plan) if n["Node Type"] in ("Hash Join", "Merge Join")
            ]
    await store.close()
    server().drop_database(made.url.rpartition("/")[2])
    assert found == []


async def _handle_a_convoy(life: Life, key: str) -> None:
    await life.store.submit([submission(f"{key}-{number}", convoy=key) for number in range(3)])
    (task,) = await life._claim(life.process_no, 10)
    while True:
        command = life.advance(task, ending=Process('"done"'))
        handed = msgspec.structs.replace(command, convoy_no=task.convoy_no, hand_over=HandOver((WORKFLOW,)))
        (applied,) = await life._apply([handed])
        if applied.next is None:
            return
        task = applied.next.task


def _plans_kept(connection: psycopg.Connection[Any]) -> list[tuple[str, Plan]]:
    """The plans of the statements that the connection has prepared, each made for whatever parameters come."""
    connection.execute("BEGIN", prepare=False)
    connection.execute(Statements("arriero")("settings"), ENGINE.parameters(local=True), prepare=False)
    kept = (
        "SELECT name, statement, cardinality(parameter_types) FROM pg_prepared_statements WHERE statement !~ '^[A-Z]+$'"
    )
    plans = []
    for name, statement, count in connection.execute(kept, prepare=False).fetchall():
        nulls = f"({', '.join(['NULL'] * count)})" if count else ""
        asked = f"EXPLAIN (FORMAT JSON, VERBOSE) EXECUTE {name}{nulls}"
        row = connection.execute(asked.encode(), prepare=False).fetchone()
        assert row is not None
        plans.append((" ".join(statement.split()[:6]), row[0][0]["Plan"]))
    connection.execute("ROLLBACK", prepare=False)
    return plans


def _is_bounded(scan: Plan) -> bool:
    """By a condition on an index, or through an index that holds only what is not finished."""
    index = scan.get("Index Name", "")
    if scan["Node Type"] == "Bitmap Heap Scan":
        return all(_is_bounded(below) for below in scan["Plans"])
    return "Index Cond" in scan or index.startswith(("task_claimable", "step_takeable"))


async def test_no_statement_of_the_engine_touches_more_pages_for_all_the_finished_tasks(
    grown: Grown, small: Grown, monkeypatch: pytest.MonkeyPatch
) -> None:
    explaining = Explaining(monkeypatch)
    pages: list[dict[str, int]] = []
    for database in (small, grown):
        database.statistics_of("now")
        await database.store.open()
        await database.round()
        explaining.taken()
        await database.round()
        await database.store.close()
        most: dict[str, int] = {}
        for one in explaining.taken():
            most[one.name] = max(most.get(one.name, 0), one.pages)
        pages.append(most)
    of_small, of_grown = pages
    assert of_small.keys() == of_grown.keys()
    more = {
        name: (of_small[name], count)
        for name, count in of_grown.items()
        if count > of_small[name] * PAGES_MORE_MAX + PAGES_FEW
    }
    assert more == {}


@pytest.mark.parametrize("when", ["never", "empty", "now"])
def test_a_thousand_rows_are_changed_by_their_keys(grown: Grown, when: str) -> None:
    grown.statistics_of(when)
    statements = Statements("arriero")
    with psycopg.connect(grown.url) as connection:
        limits = TransactionLimits(lock=1.0, statement=60.0, idle=60.0)
        connection.execute(statements("settings"), limits.parameters(local=True))
        for names, read, table, key, writes in (
            (columns.TASK, task_as_is, "task", "task_no", (task_rows.UPDATE_TASKS, task_rows.REWRITE_TASKS)),
            (columns.STEP, step_as_is, "step", "step_no", (task_rows.UPDATE_STEPS, task_rows.REWRITE_STEPS)),
        ):
            last = f"SELECT {columns.list_columns(names)} FROM arriero.{table} WHERE state <> 'pending' ORDER BY {key} DESC"
            found = connection.execute(f"{last} LIMIT 1000".encode()).fetchall()
            rows = [read(row) for row in found]
            for write in writes:
                sql = EXPLAIN + statements.fill(write.of_many)
                plan = _plan_in(connection.execute(sql.encode(), {"rows": write.as_json(rows)}))
                (scan,) = Executed("", plan).scans()
                assert (scan["Index Name"], scan["Actual Rows"] * scan["Actual Loops"]) == (f"{table}_pkey", 1000)


@pytest.mark.parametrize("when", ["never", "empty", "now"])
def test_one_row_is_written_by_its_key(grown: Grown, when: str) -> None:
    """Planned once for whatever comes, as the engine and submissions have it."""
    grown.statistics_of(when)
    statements = Statements("arriero")
    modules = (task_rows, submitting, ledger_rows)
    writes = {name: w for module in modules for name, w in vars(module).items() if isinstance(w, Write)}
    with psycopg.connect(grown.url) as connection:
        connection.execute(statements("settings"), ENGINE.parameters(local=True))
        for name, write in writes.items():
            one = parse_statement(statements.fill(write.of_one))
            connection.execute(b"PREPARE one AS " + one.sql)
            given = ", ".join("NULL" for _ in one.names)
            plan = _plan_in(connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE one ({given})".encode()))
            connection.execute("DEALLOCATE one")
            for scan in Executed(name, plan).scans():
                assert scan["Node Type"] in ("Index Scan", "Index Only Scan"), (name, scan)
                assert scan["Index Name"] == f"{scan['Relation Name']}_pkey", (name, scan)
    assert len(writes) > 10


async def test_a_joined_submission_reads_no_table_as_a_whole(grown: Grown) -> None:
    read = (
        "SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_xact_user_tables"
        " WHERE relname = ANY(%s) AND schemaname = 'arriero'"
    )
    await grown.store.open()
    for when in ("never", "empty", "now"):
        grown.statistics_of(when)
        with psycopg.connect(grown.url) as connection:
            for _ in range(10):  # its plans are made for good after some
                for task_id in ("joined", "joined-too", "asleep-1"):
                    answer = grown.store.submit_joined(submission(task_id, delay=1.0), connection)
                    assert isinstance(answer, Submitted | Refusal)
            assert connection.execute(read, (list(GROWING),)).fetchone() == (0,)
            connection.rollback()
    await grown.store.close()


async def test_a_process_asks_what_is_due_without_reading_through_the_backlog_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = await asyncio.to_thread(Grown, 0, "backlog")
    explaining = Explaining(monkeypatch)
    await made.store.open()
    backlog = [submission(f"others-{number}", workflow="others", delay=1.0 * (number % 2)) for number in range(5000)]
    backlog += [
        submission(f"of-another-app-{number}", app="travel", delay=1.0 * (number % 2)) for number in range(5000)
    ]
    await made.store.submit(backlog)
    found = []
    for when in ("of few", "never", "empty", "now"):
        made.statistics_of(when)
        for workflows in ((), (WORKFLOW,), (WORKFLOW, "more")):
            explaining.taken()
            await made.store.due(workflows, (AGENT,), "shop")
            found += [f"statistics {when}, {workflows}: {fault}" for one in explaining.taken() for fault in faults(one)]
    await made.store.close()
    server().drop_database(made.url.rpartition("/")[2])
    assert found == []
