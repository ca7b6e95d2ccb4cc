"""The schema on a server: made, brought up to date, refused, and written out for somebody else to run."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import resources
from typing import Any

import psycopg
import pytest
from postgres_servers import USUAL, as_role, password_of, server, without_password, worker

from arriero.errors import SchemaOutdated, StoreError
from arriero.store import existing_store, open_store, schema_of
from arriero.store.migrate import Grant, Migration
from arriero.store.postgres import migrating
from arriero.store.postgres.store import PostgresStore
from arriero.store.postgres.target import target_of
from arriero.testing.postgres.binaries import binaries_of

RELEASED = [migration.name for migration in migrating.known_migrations()]
LATEST = migrating.known_migrations()[-1]
SECOND = Migration(LATEST.number + 1, "9001_second", "CREATE TABLE {schema}.second (x bigint);")
THIRD = Migration(LATEST.number + 2, "9002_third", "ALTER TABLE {schema}.second ADD COLUMN y text;")
BROKEN = Migration(LATEST.number + 2, "9002_broken", "ALTER TABLE {schema}.second ADD COLUMN y text; SELECT 1 / 0;")
SECONDS_MAX = 60.0
Fresh = Callable[[], str]


@pytest.fixture
def fresh() -> Iterator[Fresh]:
    """Makes an empty database; answers its URL."""
    names: list[str] = []

    def make() -> str:
        names.append(f"migrating_{worker()}_{len(names)}")
        server().drop_database(names[-1])
        return server().create_database(names[-1])

    yield make
    for name in names:
        server().drop_database(name)


@pytest.fixture
def url(fresh: Fresh) -> str:
    return fresh()


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def asked(url: str, query: str) -> list[tuple[Any, ...]]:
    with connected(url) as connection:
        return connection.execute(query.encode()).fetchall()


def done(url: str, statements: str) -> None:
    with connected(url) as connection:
        connection.execute(statements.encode())


def release(monkeypatch: pytest.MonkeyPatch, *more: Migration) -> None:
    """From now on this is a release that knows these migrations too."""
    known = [*migrating.migrations("arriero.store.postgres"), *more]
    monkeypatch.setattr(migrating, "known_migrations", lambda: known)


def numbers(url: str) -> list[int]:
    return [number for (number,) in asked(url, "SELECT number FROM arriero.migration ORDER BY number")]


def psql(url: str, script: str) -> "subprocess.CompletedProcess[str]":
    command = [binaries_of(USUAL) / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", without_password(url)]
    environment = {**os.environ, "PGPASSWORD": password_of(url)}
    return subprocess.run(
        command, input=script, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )


# --- what a schema is made of
CATALOG = {
    "relations": "SELECT c.relname, c.relkind, c.relpersistence, c.reloptions, c.relreplident FROM pg_class AS c"
    " WHERE c.relnamespace = 'arriero'::regnamespace",
    "columns": "SELECT a.attrelid::regclass::text, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,"
    " a.attidentity, a.attgenerated, a.attstorage, a.attcompression, a.attoptions, pg_get_expr(d.adbin, d.adrelid)"
    " FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid"
    " LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum"
    " WHERE c.relnamespace = 'arriero'::regnamespace AND NOT a.attisdropped",
    "indexes": "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid), indisunique, indisvalid FROM pg_index AS i"
    " JOIN pg_class AS c ON c.oid = i.indexrelid WHERE c.relnamespace = 'arriero'::regnamespace",
    "constraints": "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE connamespace = 'arriero'::regnamespace",
    "functions": "SELECT oid::regprocedure::text, pg_get_functiondef(oid), proacl::text FROM pg_proc"
    " WHERE pronamespace = 'arriero'::regnamespace",
    "sequences": "SELECT seqrelid::regclass::text, seqtypid::regtype::text, seqstart, seqincrement, seqmax, seqmin, seqcache,"
    " seqcycle, (SELECT refobjid::regclass::text || ':' || refobjsubid FROM pg_depend WHERE objid = seqrelid"
    " AND deptype IN ('a', 'i') AND refclassid = 'pg_class'::regclass)"
    " FROM pg_sequence JOIN pg_class AS c ON c.oid = seqrelid WHERE c.relnamespace = 'arriero'::regnamespace",
    "triggers": "SELECT pg_get_triggerdef(t.oid) FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid"
    " WHERE c.relnamespace = 'arriero'::regnamespace AND NOT t.tgisinternal",
    "types": "SELECT typname, typtype FROM pg_type WHERE typnamespace = 'arriero'::regnamespace",
    "rows": "SELECT number, name FROM arriero.migration",
    "head": "SELECT link, head FROM arriero.store_head",
    "names": "SELECT name, length(value) FROM arriero.meta",
}


def catalog(url: str, *, without: tuple[str, ...] = ()) -> dict[str, list[tuple[Any, ...]]]:
    """All that makes a schema, by kind; ``without``: kinds that do not matter."""
    found = {kind: asked(url, query) for kind, query in CATALOG.items() if kind not in without}
    return {kind: sorted(rows, key=repr) for kind, rows in found.items()}


def test_schema_sql_is_the_sum_of_the_migrations(fresh: Fresh) -> None:
    migrated, written = fresh(), fresh()
    schema_of(migrated).migrate()
    text = resources.files("arriero.store.postgres").joinpath("schema.sql").read_text() + migrating.read_functions()
    done(written, f"CREATE SCHEMA arriero; {migrating.fill(text, 'arriero', 'arriero_wake_up')}")
    ours = ("rows", "names")  # what was applied, and who the store is, is no part of a schema
    one, other = catalog(migrated, without=ours), catalog(written, without=ours)
    for kind, rows in one.items():
        assert rows == other[kind], kind
    assert all(one[kind] for kind in ("relations", "columns", "indexes", "constraints", "functions", "sequences"))


def test_the_script_run_by_psql_makes_the_same_schema_as_migrate(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    migrated, scripted = fresh(), fresh()
    for later in ((), (SECOND,), (SECOND, THIRD)):
        release(monkeypatch, *later)
        schema_of(migrated).migrate()
        ran = psql(scripted, schema_of(scripted).script())
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
        assert catalog(migrated) == catalog(scripted)
    assert numbers(scripted) == [*range(1, LATEST.number + 3)]
    assert schema_of(scripted).migrate() == []
    assert schema_of(scripted).script().startswith("-- nothing to do: ")


def test_a_script_that_comes_too_late_changes_nothing_and_says_why(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = schema_of(url).script()
    schema_of(url).migrate()
    before = catalog(url)
    late = psql(url, first)
    assert late.returncode == 3
    assert "the schema arriero is there meanwhile; make the script again: arriero migrate --sql" in late.stderr
    assert catalog(url) == before
    release(monkeypatch, SECOND)
    second = schema_of(url).script()
    schema_of(url).migrate()
    late = psql(url, second)
    assert late.returncode == 3
    assert f"the schema arriero is no longer number {LATEST.number}" in late.stderr


def test_a_script_that_fails_leaves_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    release(monkeypatch, SECOND, BROKEN)
    assert "division by zero" in psql(url, schema_of(url).script()).stderr
    assert asked(url, "SELECT to_regnamespace('arriero')") == [(None,)]


# --- bringing it up to date
def test_it_applies_what_is_missing_in_order_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schema_of(url)
    assert schema.state().number is None
    assert schema.migrate() == RELEASED
    assert schema.migrate() == []
    release(monkeypatch, SECOND, THIRD)
    assert [migration.name for migration in schema.state().missing] == ["9001_second", "9002_third"]
    assert schema.migrate() == ["9001_second", "9002_third"]
    assert schema.state().missing == []
    assert numbers(url) == [*range(1, LATEST.number + 3)]


def test_a_migration_that_fails_leaves_nothing_of_itself_and_of_those_before(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema_of(url).migrate()
    before = catalog(url)
    release(monkeypatch, SECOND, BROKEN)
    with pytest.raises(StoreError, match="division by zero"):
        schema_of(url).migrate()
    assert catalog(url) == before
    release(monkeypatch, SECOND, THIRD)
    assert schema_of(url).migrate() == ["9001_second", "9002_third"]


@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
def test_of_two_at_once_one_applies_and_the_other_waits_and_finds_nothing_to_do(
    url: str, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    done(url, f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_isolation = '{isolation}'")
    applying, may_go_on = threading.Event(), threading.Event()
    recorded = migrating.Plan.changes

    def slowly(plan: migrating.Plan) -> Iterator[str]:
        for change in recorded(plan):
            applying.set()
            assert may_go_on.wait(SECONDS_MAX)
            yield change

    monkeypatch.setattr(migrating.Plan, "changes", slowly)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(schema_of(url).migrate)
        assert applying.wait(SECONDS_MAX)
        second = pool.submit(schema_of(url).migrate)
        waiting = "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        server().wait_until(waiting, "the second one does not wait")
        may_go_on.set()
        assert (first.result(SECONDS_MAX), second.result(SECONDS_MAX)) == (RELEASED, [])


def test_many_processes_may_open_the_same_new_database_at_once(url: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        applied = [future.result(SECONDS_MAX) for future in [pool.submit(schema_of(url).migrate) for _ in range(8)]]
    assert sorted(map(len, applied)) == [0] * 7 + [len(RELEASED)]


def test_statements_are_not_prepared_whatever_the_url_says(url: str) -> None:
    assert schema_of(f"{url}?prepare=on").migrate() == RELEASED


def test_a_schema_of_another_name_stands_beside(url: str) -> None:
    other = schema_of(f"{url}?schema=other_tasks")
    assert schema_of(url).migrate() == other.migrate() == RELEASED
    (found,) = asked(url, "SELECT count(DISTINCT value) FROM (TABLE arriero.meta UNION TABLE other_tasks.meta) AS m"
                     " WHERE name = 'store_id'")  # fmt: skip
    assert found == (2,)


def test_a_schema_that_stands_empty_is_filled_without_the_right_to_make_one(url: str) -> None:
    role = f"owner_{worker()}"
    done(
        url,
        f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN PASSWORD '{server().password}'; CREATE SCHEMA arriero AUTHORIZATION {role}",
    )
    assert schema_of(as_role(url, role)).migrate() == RELEASED
    done(url, f"DROP OWNED BY {role}; DROP ROLE {role}")


# --- what is refused
async def test_an_older_schema_is_refused_naming_the_command_and_left_as_it_is(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema_of(url).migrate()
    release(monkeypatch, SECOND)
    store = PostgresStore(url)
    with pytest.raises(SchemaOutdated) as raised:
        await store.open()
    assert str(raised.value) == (
        f"store {target_of(url).shown}: its schema is number {LATEST.number}, this release of arriero needs {SECOND.number}:"
        " run arriero migrate"
    )
    assert numbers(url) == [*range(1, LATEST.number + 1)]


async def test_a_schema_newer_by_one_is_worked_with_and_by_two_refused(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(monkeypatch, SECOND)
    schema_of(url).migrate()
    monkeypatch.undo()
    store = PostgresStore(url)
    await store.open()
    assert await store.counts() is not None
    await store.close()
    assert schema_of(url).state().missing == []
    assert schema_of(url).migrate() == []
    release(monkeypatch, SECOND, THIRD)
    schema_of(url).migrate()
    monkeypatch.undo()
    refusal = f"store {target_of(url).shown}: its schema is number {THIRD.number}, this release of arriero knows {LATEST.number}: install"
    with pytest.raises(SchemaOutdated, match="install the newer release") as raised:
        await PostgresStore(url).open()
    assert str(raised.value).startswith(refusal)
    for ask in (schema_of(url).state, lambda: schema_of(url).migrate(), lambda: schema_of(url).script()):
        with pytest.raises(SchemaOutdated) as raised:
            ask()
        assert str(raised.value).startswith(refusal)


@pytest.mark.parametrize("table", ["invoice (x integer)", "migration (x integer)"])
async def test_another_programs_schema_of_our_name_is_refused_and_left_alone(url: str, table: str) -> None:
    done(url, f"CREATE SCHEMA arriero; CREATE TABLE arriero.{table}")
    refusal = "the schema arriero holds tables that are not arriero's: name another one in the URL, "
    with pytest.raises(SchemaOutdated, match=refusal):
        await PostgresStore(url).open()
    with pytest.raises(SchemaOutdated, match=refusal):
        schema_of(url).migrate()
    with pytest.raises(SchemaOutdated, match=refusal):
        existing_store(url)
    assert len(asked(url, "SELECT FROM pg_tables WHERE schemaname = 'arriero'")) == 1


async def test_who_only_reads_makes_no_schema(url: str) -> None:
    with pytest.raises(StoreError) as raised:
        existing_store(url)
    assert str(raised.value) == (
        f"store {target_of(url).shown}: it holds no tasks of arriero (there are no tables in schema arriero);"
        " name the right one with --store or ARRIERO_STORE, or make it with arriero migrate"
    )
    assert asked(url, "SELECT to_regnamespace('arriero')") == [(None,)]
    store = open_store(url)
    await store.open()
    await store.close()
    assert existing_store(url).url == target_of(url).shown


# --- rights
@pytest.mark.parametrize("way", ["migrate", "script"])
async def test_a_role_that_was_granted_to_works_without_the_right_to_change_the_schema(url: str, way: str) -> None:
    role = f'clerk "{worker()}"'
    quoted = '"' + role.replace('"', '""') + '"'
    done(url, f"DROP ROLE IF EXISTS {quoted}; CREATE ROLE {quoted} LOGIN PASSWORD '{server().password}'")
    try:
        clerks = as_role(url, role)
        schema_of(url).migrate()
        done(url, "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA arriero FROM PUBLIC")
        with pytest.raises(StoreError, match="this user lacks a right"):
            await PostgresStore(clerks).open()
        if way == "migrate":
            assert schema_of(url).migrate([Grant("run", role)]) == []
        else:
            assert psql(url, schema_of(url).script([Grant("run", role)])).returncode == 0
        store = PostgresStore(clerks)
        await store.open()
        number = await store.register("clerk", 3.0)
        assert (await store.renew(number, 3.0)).renewed
        assert (await store.acquire_lease("supervisor", number, "clerk", 3.0)).term == 1
        assert await store.new_epoch("clerk") == 2
        await store.close()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            done(clerks, "CREATE TABLE arriero.mine (x integer)")
    finally:
        done(url, f"DROP OWNED BY {quoted}; DROP ROLE {quoted}")
