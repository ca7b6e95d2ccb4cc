"""Every statement of every SQL file runs on every supported server, and none of them is compiled by PostgreSQL's JIT.

Each statement is prepared, so the server says of which types its parameters are, and is executed with one value of each.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial
from importlib import resources
from typing import Any

import msgspec
import psycopg
import pytest
from postgres_servers import STOCK, database, emptied, server, worker
from store_world import submission

from arriero import Agent, App, Attempt, Leadership, guarded, workflow
from arriero.idempotency.connections import write_for_psycopg
from arriero.metrics import MetricsCollector
from arriero.store import task_filter
from arriero.store.columns import load_statements
from arriero.store.postgres import lanes, ledger_rows, migrating, submitting, task_rows
from arriero.store.postgres.columns import Write
from arriero.store.postgres.inspection import server_facts
from arriero.store.postgres.pipeline import parse_statement
from arriero.store.postgres.session import Statements, TransactionLimits
from arriero.store.postgres.store import PostgresStore
from arriero.testing.postgres import Server
from bench.growth import Life, untimed

SUPPORTED = (15, 16, 18)
LIMITS = {name: value for name, value in vars(lanes).items() if isinstance(value, TransactionLimits)}
OF_INSPECTION = {
    "read_clock", "limit_inspection", "wait_for_no_standby", "survey_server", "survey_standbys", "survey_tables",
    "survey_sessions", "survey_prepared", "survey_slots",
}  # fmt: skip
WITHOUT_JIT = "PostgreSQL 15 was built without JIT: install Debian's postgresql-15"

# One value of each type, as SQL has it; of task and process 1, which exist.
SAMPLES = {
    "bigint": "1",
    "integer": "1",
    "boolean": "true",
    "text": "'sample'",
    "name": "'arriero'",
    "double precision": "1.0",
    "json": "'[]'",
    "text[]": "ARRAY['sample']",
    "bigint[]": "ARRAY[1]::bigint[]",
    "integer[]": "ARRAY[1, 5]",
    "boolean[]": "ARRAY[true]",
    "double precision[]": "ARRAY[1.0]",
}
# Of rows that would be there already.
NEW = {"bigint": "7000"}
NEW_ROWS = ("INSERT_HISTORY", "INSERT_TASKS", "INSERT_BODIES", "INSERT_FIRST_LINKS", "insert_body_of_run")
# Where any value of the type will not do: by parameter.
SPECIAL = {
    "lock": "'1s'",
    "statement": "'60s'",
    "idle": "'60s'",
    "plans": "'force_custom_plan'",
    "others": "'on'",
    "whole": "'on'",
    "tags": "'{}'",  # a trigger reads them
    "submission": "'"
    + json.dumps({**msgspec.structs.asdict(submission("sampled")), "given": None}).replace("'", "''")
    + "'",
}


def all_statements() -> Iterator[tuple[str, str]]:
    """Name and text of every statement: of the files, of the writes that are made of columns, of users' own services."""
    statements = Statements("arriero")
    for name in load_statements("arriero.store.postgres"):
        yield name, statements(name)
    for module in (task_rows, submitting, ledger_rows):
        for name, write in vars(module).items():
            if isinstance(write, Write):
                yield f"{name} of one", statements.fill(write.of_one)
                yield f"{name} of many", statements.fill(write.of_many)
    filtered = statements("select_filtered")
    yield "select_filtered, newest first", task_filter.order_newest_first(filtered)
    yield "select_filtered, counted", task_filter.build_count(filtered)
    for name in load_statements("arriero.idempotency"):
        yield f"idempotency {name}", write_for_psycopg(name)


def execute(connection: psycopg.Connection[Any], name: str, text: str, before: str = "") -> list[Any]:
    """Execute a statement with one value of each parameter; returns its rows. Raises psycopg.Error."""
    if is_utility(text):
        connection.execute(text.encode())
        return []
    parsed = parse_statement(text)
    connection.execute(b"PREPARE sampled AS " + parsed.sql)
    asked = "SELECT parameter_types::text[] FROM pg_catalog.pg_prepared_statements WHERE name = 'sampled'"
    (types,) = connection.execute(asked).fetchone() or ([],)
    values = [
        SPECIAL.get(parameter) or (NEW if name.startswith(NEW_ROWS) else SAMPLES).get(kind) or SAMPLES[kind]
        for parameter, kind in zip(parsed.names, types, strict=True)
    ]
    given = f"({', '.join(values)})" if values else ""
    cursor = connection.execute(f"{before} EXECUTE sampled{given}".encode())
    rows = cursor.fetchall() if cursor.description else []
    connection.execute("DEALLOCATE sampled")
    return rows


def is_utility(text: str) -> bool:
    """Returns True for what PostgreSQL neither plans nor prepares."""
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return lines[0].startswith(("SET ", "CREATE TABLE"))


async def filled(version: int, name: str) -> str:
    """A database with a round of tasks' lives; its URL."""
    url = await asyncio.to_thread(recreated, version, name)
    store = PostgresStore(f"{url}?listen=off")
    await store.open()
    life = Life(store)
    await life.begin()
    with psycopg.connect(url) as joining:
        await life.round(untimed, joining)
    await store.close()
    return url


def recreated(version: int, name: str) -> str:
    own = f"{name}_{worker()}"
    server(version).drop_database(own)
    return server(version).create_database(own)


@pytest.mark.parametrize("version", SUPPORTED)
async def test_every_statement_runs_on_every_supported_server(version: int) -> None:
    url = await filled(version, "statements")
    failed: list[str] = []
    count = 0
    with psycopg.connect(url, prepare_threshold=None) as connection:
        connection.execute(load_statements("arriero.idempotency")["create_table"].encode())
        for name, text in all_statements():
            connection.execute("SAVEPOINT before")
            try:
                execute(connection, name, text)
            except psycopg.Error as error:
                failed.append(f"{name}: {error}")
                connection.execute("ROLLBACK TO SAVEPOINT before")
                connection.execute("DEALLOCATE ALL")
            else:
                connection.execute("ROLLBACK TO SAVEPOINT before")
            count += 1
        connection.rollback()
    server(version).drop_database(url.rpartition("/")[2])
    assert failed == []
    assert count > 250


@pytest.mark.parametrize("version", SUPPORTED)
async def test_the_store_is_measured_for_prometheus_on_every_supported_server(version: int) -> None:
    app = App("shop", agents=[clerk], workflows=[greet])
    async with app.running(store=emptied(database(version))):
        body, _ = await MetricsCollector(app).render()
    assert b"arriero_store_up 1.0" in body


@pytest.mark.parametrize("version", SUPPORTED)
def test_the_schema_can_be_made_on_every_supported_server(version: int) -> None:
    url = recreated(version, "schemas")
    text = resources.files("arriero.store.postgres").joinpath("schema.sql").read_text() + migrating.read_functions()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA arriero")
        connection.execute(migrating.fill(text, "arriero", "wake_up").encode())
    server(version).drop_database(url.rpartition("/")[2])


def stock_server() -> Server:
    """The server with JIT and the default settings. Skips where it cannot be had."""
    running = server(STOCK)
    with psycopg.connect(running.url()) as connection:
        if connection.execute("SELECT pg_jit_available()").fetchone() != (True,):
            pytest.skip(WITHOUT_JIT)
    return running


def test_the_oldest_server_of_the_tests_has_the_settings_that_users_have() -> None:
    with psycopg.connect(stock_server().url()) as connection:
        changed = "SELECT name FROM pg_catalog.pg_settings WHERE source = 'configuration file' AND sourcefile LIKE '%arriero.conf'"
        assert connection.execute(changed).fetchall() == [("dynamic_shared_memory_type",)]
        shown = [connection.execute(f"SHOW {name}".encode()).fetchone() for name in ("jit", "fsync")]
        assert shown == [("on",), ("on",)]


async def test_no_plan_of_a_statement_is_compiled() -> None:
    """A plan above ``jit_above_cost`` is compiled, which costs up to a second of CPU at each execution."""
    stock_server()
    url = await filled(STOCK, "jit")
    costly: list[str] = []
    with psycopg.connect(url, prepare_threshold=None) as connection:
        connection.execute(load_statements("arriero.idempotency")["create_table"].encode())
        for kind, settings, is_asked in sessions():
            connection.execute("SAVEPOINT before")
            settings(connection)
            asked = "SELECT current_setting('jit')::boolean, current_setting('jit_above_cost')::float"
            is_on, above = connection.execute(asked).fetchone() or (True, 0.0)
            for name, text in all_statements():
                if is_asked(name) and not is_utility(text):
                    ((explained,),) = execute(connection, name, text, "EXPLAIN (FORMAT JSON)")
                    cost = explained[0]["Plan"]["Total Cost"]
                    costly += [f"{name} in {kind}: {cost:.0f}"] if is_on and cost > above else []
            connection.execute("ROLLBACK TO SAVEPOINT before")
        connection.rollback()
    server(STOCK).drop_database(url.rpartition("/")[2])
    assert costly == []


Session = tuple[str, Callable[[psycopg.Connection[Any]], object], Callable[[str], bool]]


def sessions() -> Iterator[Session]:
    """Name, settings and statements of each kind of session: of the store, of its inspection, and of users."""
    statements = Statements("arriero")
    for name, limits in LIMITS.items():
        settings = (statements("settings"), limits.parameters(local=True))
        yield name, lambda connection, settings=settings: connection.execute(*settings), is_of_store  # type: ignore[misc]
    limited = statements("limit_inspection").encode()
    yield "an inspection", lambda connection: connection.execute(limited), lambda name: name in OF_INSPECTION
    yield "a user's session", lambda connection: None, is_of_users


def is_of_store(name: str) -> bool:
    return name not in OF_INSPECTION and not name.startswith("idempotency")


def is_of_users(name: str) -> bool:
    return name in ("keep_task", "keep_signal", "check_term", "find_schema") or name.startswith("idempotency")


clerk = Agent("clerk")


@clerk.step
async def say_hello(attempt: Attempt, name: str) -> str:
    return f"hello {name}"


@workflow
async def greet(name: str) -> str:
    return await say_hello(name)


async def write_guarded(url: str, leadership: Leadership) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await guarded(connection, leadership)


async def test_nothing_that_users_call_is_compiled() -> None:
    """The server itself says what it compiled, of the statements inside of functions, too."""
    settings = {
        "session_preload_libraries": "auto_explain",
        "auto_explain.log_min_duration": "0",
        "auto_explain.log_analyze": "on",
        "auto_explain.log_nested_statements": "on",
    }
    stock_server()
    with Server.start(STOCK, tuned=False, settings=settings) as explaining:
        url = explaining.create_database("explained")
        app = App("shop", agents=[clerk], workflows=[greet], store=url)
        async with app.running():
            task = await app.submit(greet("you"), task_id="mine", convoy="queue")
            assert await task.result() == "hello you"
            with psycopg.connect(url) as connection:
                submitted = "SELECT arriero.submit('greet', '{\"name\": \"them\"}', task_id => 'theirs', app => 'shop')"
                connection.execute(submitted)
                await app.submit(greet("both"), task_id="joined", connection=connection)
            assert await app.task("theirs").result() == "hello them"
            assert (await task.view()).state == "processed"
            assert len([each async for each in app.tasks()]) == 3
            assert [each async for each in app.convoys()] == []
            await app.metrics()
            await app.agents_view()
            await app.leases()
            await app.mutex("nightly").run_once(partial(write_guarded, url))
        assert server_facts(url).version.startswith("15")
        store = PostgresStore(url)
        await store.open()
        assert [row async for row in store.history()]
        await store.measure_backlog()
        await store.survey()
        await store.close()
        log = explaining.log
    assert log.count("Query Text") > 100
    assert "JIT:" not in log
