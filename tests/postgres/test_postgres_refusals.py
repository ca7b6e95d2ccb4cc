"""What PostgreSQL refuses is one line that names store and remedy and no password; and a store that was away is back."""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from postgres_servers import as_role, database, emptied, pooled
from store_world import TestClock, World, step, submission
from waiting import call_until_answered, wait_until_async

from arriero import Agent, App, ArrieroError, Attempt, InvalidInput, SchemaOutdated, StoreError, workflow
from arriero.cli.main import commands
from arriero.model.answers import Applied, Submitted
from arriero.store import open_store
from arriero.store.contract import Purge
from arriero.store.postgres import connect_pauses
from arriero.store.postgres import session as session_module
from arriero.store.postgres.migrating import known_migrations
from arriero.store.postgres.session import PostgresSession, find_unfit
from arriero.store.postgres.store import PostgresStore
from arriero.store.postgres.target import target_of
from arriero.testing.postgres import Server

SECONDS_MAX = 60.0  # when a test counts as hanging
PASSWORD = "Tr0ub4dor"

# What a process needs that must not change the schema. The page about PostgreSQL says the same.
GRANTS = (
    "GRANT USAGE ON SCHEMA arriero TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA arriero TO {role}",
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA arriero TO {role}",
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA arriero TO {role}",
)

pay = Agent("pay")


@pay.step
async def charge(attempt: Attempt, order: str) -> str:
    return order


@workflow
async def fulfil(order: str) -> str:
    return await charge(order)


# --- helpers
def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


async def refusal(url: str) -> str:
    """What ``open`` says: one line, with the store's name, without the password."""
    store = open_store(url)
    with pytest.raises((StoreError, InvalidInput)) as caught:
        await asyncio.wait_for(store.open(), SECONDS_MAX)
    return checked(str(caught.value))


def checked(told: str) -> str:
    assert told.startswith("store")
    assert "\n" not in told
    assert PASSWORD not in told
    return told


async def told_by(error: type[ArrieroError], call: Any) -> str:
    with pytest.raises(error) as caught:
        await asyncio.wait_for(call, SECONDS_MAX)
    return checked(str(caught.value))


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[World]:
    clock = TestClock()
    store = PostgresStore(url, clock=clock)
    await store.open()
    try:
        yield World(store, clock)
    finally:
        await asyncio.wait_for(store.close(), SECONDS_MAX)


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server with a role of its own password, and one that it lets in nowhere."""
    with Server.start(durable=False) as running:
        rules = running.data / "pg_hba.conf"
        rules.write_text(
            "local all all scram-sha-256\n"
            "host all stranger 127.0.0.1/32 reject\n"
            "host all all 127.0.0.1/32 scram-sha-256\n"
        )
        running.configure()
        execute(running.url(), f"CREATE ROLE keeper LOGIN PASSWORD '{PASSWORD}'", "CREATE ROLE stranger LOGIN")
        running.wait_until("SELECT count(*) = 3 FROM pg_hba_file_rules", "the rules were not read")
        yield running


@pytest.fixture
def url(own: Server) -> Iterator[str]:
    """An empty database, for the superuser."""
    name = f"shop_{secrets.token_hex(4)}"
    yield own.create_database(name)
    own.drop_database(name)


@pytest.fixture
async def made(url: str) -> str:
    """A database with arriero's tables, for the superuser."""
    async with opened(f"{url}?listen=off"):
        pass
    return url


def as_keeper(url: str, password: str = PASSWORD) -> str:
    return as_role(url, "keeper", password)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


# --- at open
async def test_a_wrong_password_is_named_and_not_shown(url: str) -> None:
    told = await refusal(as_keeper(url, "Tr0ub4dor-wrong"))
    assert "the password is wrong: mend the URL, PGPASSWORD or the .pgpass file" in told
    assert "keeper:***@" in told


async def test_a_missing_password_is_asked_for(url: str) -> None:
    told = await refusal(as_keeper(url, ""))
    assert "the server wants a password: put it into the URL, PGPASSWORD or the .pgpass file" in told


async def test_a_role_that_does_not_exist_is_named(url: str) -> None:
    told = await refusal(as_role(url, "nobody", PASSWORD))
    assert 'password authentication failed for user "nobody"' in told


async def test_a_role_that_the_server_rejects_is_told_where_to_look(url: str) -> None:
    assert "pg_hba.conf" in await refusal(as_role(url, "stranger"))


async def test_an_unknown_host_is_named() -> None:
    told = await refusal(f"postgresql://keeper:{PASSWORD}@no-such-host.invalid/shop")
    assert "no such host is known: look at the URL and the name service" in told
    assert "no-such-host.invalid" in told


@pytest.mark.parametrize("host", ["a" * 64 + ".invalid", ".."])
async def test_a_name_that_no_host_can_have_is_refused(host: str) -> None:
    assert "host" in await refusal(f"postgresql://keeper:{PASSWORD}@{host}/shop")


async def test_a_port_where_nobody_listens_is_named() -> None:
    port = free_port()
    told = await refusal(f"postgresql://keeper:{PASSWORD}@127.0.0.1:{port}/shop")
    assert "nobody listens there: start the server, or look at host and port in the URL" in told
    assert str(port) in told


async def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        told = await refusal(f"postgresql://keeper@127.0.0.1:{silent.getsockname()[1]}/shop?connect_timeout=2")
    assert "the host does not answer: look at the network, the firewall and the URL" in told


async def test_an_unknown_database_is_named(own: Server) -> None:
    told = await refusal(own.url("no_such_shop"))
    assert 'database "no_such_shop" does not exist' in told
    assert "look at the names in the URL; what is missing must be created" in told


@pytest.fixture(params=["LATIN1", "EUC_JP", "SQL_ASCII"])
def encoded(own: Server, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Encoding and URL of a database whose encoding is not UTF8."""
    name = f"encoded_{secrets.token_hex(4)}"
    make = f"CREATE DATABASE {name} ENCODING '{request.param}' LOCALE 'C' TEMPLATE template0"
    execute(own.url(), make)
    yield request.param, own.url(name)
    own.drop_database(name)


async def test_a_database_of_another_encoding_is_refused_with_the_remedy_and_left_empty(
    encoded: tuple[str, str],
) -> None:
    encoding, url = encoded
    told = await refusal(url)
    assert f"the encoding of the database is {encoding}" in told
    assert "CREATE DATABASE NAME ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0" in told
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regnamespace('arriero')").fetchone() == (None,)


def test_migrate_and_doctor_refuse_a_database_of_another_encoding(encoded: tuple[str, str]) -> None:
    encoding, url = encoded
    for command in (["migrate"], ["migrate", "--check"], ["migrate", "--sql"], ["doctor"]):
        ended = CliRunner().invoke(commands, [*command, "--store", url])
        assert ended.exit_code == 5, command
        assert f"the encoding of the database is {encoding}" in ended.output
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regnamespace('arriero')").fetchone() == (None,)


def test_the_encoding_is_known_behind_a_pooler() -> None:
    with psycopg.connect(pooled(emptied(database()))) as connection:
        assert find_unfit(connection) is None


async def test_a_database_that_is_read_only_is_named(made: str) -> None:
    name = made.rpartition("/")[2]
    execute(made, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    told = await refusal(made)
    assert "default_transaction_read_only is on for this database, user or server: turn it off" in told


async def test_writing_to_a_server_that_is_read_only_is_refused_although_any_was_asked_for(made: str) -> None:
    name = made.rpartition("/")[2]
    execute(made, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    async with opened(f"{made}?target_session_attrs=any&listen=off") as world:
        told = await told_by(StoreError, world.store.submit([submission()]))
        assert "the server is a standby" in told
        assert await world.store.list_tasks() == []


async def test_a_server_that_became_read_only_is_left_for_another_connection(made: str) -> None:
    name = made.rpartition("/")[2]
    async with opened(f"{made}?listen=off") as world:
        await world.submit()
        execute(made, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        execute(
            f"{made}?options=-c%20default_transaction_read_only%3Doff",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'arriero'",
        )
        with pytest.raises(StoreError):
            await answered_twice(lambda: world.store.submit([submission("order-2")]))
        execute(
            f"{made}?options=-c%20default_transaction_read_only%3Doff",
            f"ALTER DATABASE {name} RESET default_transaction_read_only",
        )
        assert (await call_until_answered(lambda: world.store.submit([submission("order-2")]), StoreError))[0].created


async def answered_twice(call: Callable[[], Any]) -> Any:
    try:
        return await call()
    except StoreError:
        return await call()


async def test_a_standby_alone_is_named_as_read_only() -> None:
    with Server.start(durable=False) as primary, Server.start(durable=False, following=primary) as standby:
        assert "the server is a standby" in await refusal(standby.url("postgres"))


async def test_a_server_older_than_fifteen_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "SERVER_VERSION_MIN", 10**9)
    assert "the server is PostgreSQL 16; use 15 or newer" in await refusal(url)


# --- rights
async def test_a_role_that_may_create_nothing_is_told_so_on_an_empty_database(url: str) -> None:
    told = await refusal(as_keeper(url))
    assert "permission denied for database" in told
    assert "this user lacks a right" in told


async def test_a_role_without_rights_on_the_schema_is_told_so(made: str) -> None:
    told = await refusal(as_keeper(made))
    assert "permission denied for schema arriero" in told
    assert "this user lacks a right" in told


async def test_a_role_without_rights_on_the_tables_is_told_so(made: str) -> None:
    execute(made, "GRANT USAGE ON SCHEMA arriero TO keeper")
    told = await refusal(as_keeper(made))
    assert "permission denied for table" in told
    assert "this user lacks a right" in told


async def test_a_right_taken_away_from_a_running_store_is_named_and_it_goes_on_when_it_is_back(made: str) -> None:
    execute(made, *(grant.format(role="keeper") for grant in GRANTS))
    async with opened(as_keeper(made) + "?listen=off") as world:
        await world.submit()
        execute(made, "REVOKE INSERT ON arriero.history FROM keeper")
        told = await told_by(StoreError, world.store.submit([submission("order-2")]))
        assert "permission denied for table history" in told
        execute(made, "GRANT INSERT ON arriero.history TO keeper")
        assert (await world.store.submit([submission("order-2")]))[0].created


async def test_a_role_with_the_rights_to_read_and_write_needs_none_to_change_the_schema(made: str) -> None:
    execute(made, *(grant.format(role="keeper") for grant in GRANTS))
    async with opened(as_keeper(made)) as world:
        store = world.store
        about = '{"policies":{"fulfil":"{\\"complete_within\\":null}"}}'
        assert await store.register("p1", 3.0, about) == 1
        assert (await store.renew(1, 3.0)).renewed
        term = await world.lead(1)
        assert await store.renew_lease("supervisor", 1, term, 6.0)
        task = await world.held(reply_to="desk")
        task, (first,) = await world.running(task, "charge")
        await world.report(first)
        await store.release_lease("supervisor", 1, term, "p1")
        (status,) = await store.load_statuses("desk", 1)
        await store.acknowledge([("desk", status.no)])
        assert await store.drop_statuses(world.clock(), 10) == 0
        assert await store.take_alerts(10, 60.0) == []
        assert (await store.survey()).states["processing"] == 1
        assert (await store.purge(Purge(states=(), ended_before=world.clock()), actor="p", limit=10)).count == 0
        assert not await store.retire(1, by="p1", known_dead=False)
        assert len([row async for row in store.history()]) > 3
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        execute(as_keeper(made), "CREATE TABLE arriero.more (number int)")


# --- the schema
@pytest.mark.parametrize("ahead", [1, 2])
async def test_a_schema_newer_by_one_is_worked_with_and_one_newer_by_two_is_refused(made: str, ahead: int) -> None:
    number = known_migrations()[-1].number + ahead
    execute(made, f"INSERT INTO arriero.migration (number, name, applied_at) VALUES ({number}, 'later', 0)")
    if ahead == 1:
        async with opened(f"{made}?listen=off") as world:
            assert await world.submit() == 1
        return
    told = await refusal(made)
    assert f"its schema is number {number}" in told
    assert "install" in told


async def test_an_older_schema_is_refused_with_the_command_that_mends_it(made: str) -> None:
    execute(made, "DELETE FROM arriero.migration")
    store = PostgresStore(made)
    assert "arriero migrate" in await told_by(SchemaOutdated, store.open())


@pytest.mark.parametrize(
    "theirs",
    [
        "CREATE TABLE arriero.task (number int)",
        "CREATE TABLE arriero.migration (number int, step text)",
        "CREATE TABLE arriero.migration (version text)",
        "CREATE VIEW arriero.migration AS SELECT 1 AS one",
        "CREATE SEQUENCE arriero.task_number",
        "CREATE TABLE arriero.horses (name text)",
    ],
)
async def test_a_schema_of_that_name_which_is_somebody_elses_is_left_alone(url: str, theirs: str) -> None:
    execute(url, "CREATE SCHEMA arriero", theirs)
    told = await refusal(url)
    assert "schema" in told
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT count(*) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            " WHERE n.nspname = 'arriero' AND c.relkind IN ('r', 'v', 'S')"
        ).fetchone()
    assert rows == (1,)


async def test_another_schema_in_the_url_is_a_store_of_its_own(url: str) -> None:
    execute(url, "CREATE SCHEMA arriero", "CREATE TABLE arriero.task (number int)")
    async with opened(f"{url}?schema=mule&listen=off") as world:
        assert await world.submit() == 1


async def test_tables_that_vanish_under_a_store_are_named(made: str) -> None:
    async with opened(f"{made}?listen=off") as world:
        execute(made, "DROP SCHEMA arriero CASCADE")
        told = await told_by(SchemaOutdated, world.store.list_tasks())
        assert "run arriero migrate" in told


# --- while it runs
async def test_a_store_with_no_connection_left_is_told_at_open_and_one_that_runs_goes_on(made: str) -> None:
    name = made.rpartition("/")[2]
    execute(made, *(grant.format(role="keeper") for grant in GRANTS))
    async with opened(as_keeper(made) + "?listen=off") as world:
        execute(made, f"ALTER DATABASE {name} CONNECTION LIMIT 1")  # it has one already
        told = await told_by(StoreError, world.store.submit([submission()]))
        assert "too many connections for database" in told
        assert "CONNECTION LIMIT" in told
        assert "too many connections" in await refusal(as_keeper(made))
        execute(made, f"ALTER DATABASE {name} CONNECTION LIMIT -1")
        assert (await call_until_answered(lambda: world.store.submit([submission()]), StoreError))[0] == Submitted(
            1, True
        )


async def test_a_server_without_free_connections_says_so() -> None:
    with Server.start(durable=False, settings={"max_connections": "5", "superuser_reserved_connections": "1"}) as small:
        small.create_database("shop")
        small.create_role("keeper")
        held = [psycopg.connect(small.url("shop", "keeper")) for _ in range(4)]
        told = await refusal(small.url("shop", "keeper"))
        assert "the server has no connection left: raise max_connections, or put a pooler before it" in told
        for connection in held:
            connection.close()


async def test_a_database_that_is_dropped_under_a_store_is_named(own: Server) -> None:
    name = f"shop_{secrets.token_hex(4)}"
    url = own.create_database(name)
    async with opened(f"{url}?listen=off") as world:
        await world.submit()
        own.drop_database(name)
        for _ in range(3):
            told = await told_by(StoreError, world.store.submit([submission("order-2")]))
        assert "does not exist" in told


async def test_a_full_disk_is_named_nothing_is_half_written_and_the_store_goes_on(made: str) -> None:
    async with opened(f"{made}?listen=off") as world:
        await world.process()
        task = await world.held()
        before = await world.rows()
        execute(
            made,
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$",
            "CREATE TRIGGER full_disk BEFORE INSERT ON arriero.history EXECUTE FUNCTION full_disk()",
        )
        command = world.advance_command(task, opened=[step()])
        for call in (world.store.apply([command]), world.store.submit([submission("order-2")])):
            told = await told_by(StoreError, call)
            assert "the server's disk is full: free space there; nothing that was accepted is lost" in told
        assert await world.rows() == before
        execute(made, "DROP TRIGGER full_disk ON arriero.history")
        (answer,) = await world.store.apply([command])
        assert isinstance(answer, Applied)


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"], ids=["NUL", "lone surrogate"])
async def test_a_text_that_cannot_be_kept_is_refused_as_bad_input_and_never_repeated(made: str, text: str) -> None:
    async with opened(f"{made}?listen=off") as world:
        await world.process()
        task = await world.held()
        command = world.advance_command(task, opened=[step(idempotency_key=text)])
        await told_by(InvalidInput, world.store.apply([command]))
        await told_by(InvalidInput, world.store.submit([submission("order-2", workflow=text)]))
        await told_by(InvalidInput, world.store.find(text))
        assert len(await world.rows()) == 1
        assert isinstance((await world.store.apply([world.advance_command(task, opened=[step()])]))[0], Applied)


# --- the URL
@pytest.mark.parametrize(
    "parameter, told",
    [
        ("schema=Bad-Name", "is not a name for a schema; use up to 48 small letters, digits and underscores"),
        ("schema=", "is not a name for a schema"),
        ("schema=pg%22%3BDROP", "is not a name for a schema"),
        ("listen=maybe", "listen='maybe' is neither on nor off"),
        ("prepare=1", "prepare='1' is neither on nor off"),
        ("no_such_thing=1", 'invalid URI query parameter: "no_such_thing"'),
        ("connect_timeout=soon", "connect_timeout"),
        ("sslmode=sometimes", "sslmode"),
        ("target_session_attrs=best", "target_session_attrs"),
        ("port=99999", "port"),
        ("options=-c%20no_such_setting%3D1", "no_such_setting"),
        ("listen_url=mysql://keeper:Tr0ub4dor@host/shop", "listen_url"),
    ],
)
async def test_a_bad_parameter_is_named(url: str, parameter: str, told: str) -> None:
    with pytest.raises((InvalidInput, StoreError)) as caught:
        await open_store(f"{as_keeper(url)}?{parameter}").open()
    assert told in checked(str(caught.value))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://keeper:Tr0/ub4dor@host/shop",
        "postgresql://keeper:Tr0?ub4dor@host/shop",
        "postgresql://keeper:Tr0@ub4dor@host/shop",
        "postgresql://keeper:Tr0%ub4dor@host/shop",
        "postgresql://keeper:Tr0%00ub4dor@host/shop",
        "postgresql://keeper:Tr0ub4dor@host:ub4dor/shop",
        "postgresql://keeper:Tr0ub4dor@[host/shop",
        "postgresql://keeper:Tr0ub4dor@ho\ud800st/shop",
        "postgresql://keeper@host/shop?listen_url=postgresql%3A%2F%2Fkeeper%3ATr0/ub4dor%40host%2Fshop",
    ],
)
def test_a_url_whose_password_may_end_elsewhere_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        target_of(url)
    told = str(caught.value)
    assert "%40 %2F %3F" in told
    assert "ub4dor" not in told


@pytest.mark.parametrize(
    "url, shown",
    [
        ("postgresql://keeper:a%40b%2Fc@h/shop", "postgresql://keeper:***@h/shop"),
        ("postgresql://keeper:a:b#c@h/shop", "postgresql://keeper:***@h/shop"),
        ("postgresql://keeper@h/shop?password=secret", "postgresql://keeper@h/shop?password=***"),
        ("postgresql://h/shop?sslpassword=secret&sslkey=k", "postgresql://h/shop?sslpassword=***&sslkey=k"),
        (
            "postgresql://k:secret@h/s?listen_url=postgresql%3A%2F%2Fk%3Asec%252Fret%40h2%2Fs",
            "postgresql://k:***@h/s?listen_url=postgresql://k:***@h2/s",
        ),
        ("postgresql:///shop?host=/run/there", "postgresql:///shop?host=/run/there"),
        ("postgresql://a:1,b:2,[::1]:3/shop", "postgresql://a:1,b:2,[::1]:3/shop"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert target_of(url).shown == shown


def test_what_the_driver_gets_is_what_the_url_says() -> None:
    taken = psycopg.conninfo.conninfo_to_dict
    found = taken(target_of("postgresql://k:a%40b:c#d@a:1,[::1]:3/s%2Fx?options=a+b%20c&schema=mule").conninfo)
    assert (found["user"], found["password"], found["dbname"]) == ("k", "a@b:c#d", "s/x")
    assert (found["host"], found["port"], found["options"]) == ("a,::1", "1,3", "a+b c")
    assert "schema" not in found
    assert taken(target_of("postgresql:///shop?host=/run/there").conninfo)["host"] == "/run/there"
    listening = target_of("postgresql://a/s?listen_url=postgresql://k:p%2540q@b:6/s&connect_timeout=3")
    assert taken(listening.listen_conninfo)["password"] == "p@q"
    assert taken(listening.conninfo)["connect_timeout"] == "3"


async def test_a_store_on_a_socket_needs_no_host(own: Server, made: str) -> None:
    name = made.rpartition("/")[2]
    url = (
        f"postgresql:///{name}?host={own.socket_folder}&port={own.port}&user=arriero&password={own.password}&listen=off"
    )
    async with opened(url) as world:
        assert await world.submit() == 1


# --- the command line
def test_the_command_line_says_it_in_one_line_and_ends_with_an_exit_code(own: Server, url: str) -> None:
    for store, code in (
        (as_keeper(url, "Tr0ub4dor-wrong"), 5),
        (as_keeper(own.url("no_such_shop")), 5),
        (f"postgresql://keeper:{PASSWORD}@127.0.0.1:{free_port()}/shop", 5),
        (as_keeper(url), 5),
        (f"{as_keeper(url)}?schema=Bad-Name", 2),
        (f"{as_keeper(url)}?no_such_thing=1", 2),
        ("postgresql://keeper:Tr0/ub4dor@host/shop", 2),
    ):
        result = CliRunner().invoke(commands, ["task", "list", "--store", store])
        assert result.exit_code == code, store
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        assert line.startswith("arriero: store")
        assert "ub4dor" not in line


# --- a node while its store is away
async def test_a_node_whose_server_is_away_connects_once_in_each_pause_and_continues_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also after a commit whose answer was lost: then each read asks first, on a connection of its own."""
    now, requests, tries = 100.0, 0, 0
    get_connection, connect = PostgresSession.get_connection, PostgresSession._connect

    def get_counted(session: PostgresSession) -> Any:
        nonlocal requests
        requests += 1
        return get_connection(session)

    def connect_counted(session: PostgresSession) -> Any:
        nonlocal tries
        tries += 1
        return connect(session)

    async def move_to_next_pause() -> None:
        nonlocal requests, now
        now += connect_pauses.CONNECT_SECONDS_MAX
        requests = 0
        await wait_until_async(lambda: requests > 30, "whoever polls")

    with Server.start(durable=False) as lonely:
        app = App("shop", agents=[pay], workflows=[fulfil])
        async with app.running(store=lonely.create_database("shop")):
            assert await (await app.submit(fulfil("one"), task_id="one")).result() == "one"
            monkeypatch.setattr(connect_pauses, "time", SimpleNamespace(monotonic=lambda: now))
            lonely.shut_down("immediate")
            app.session.store._note_undecided()  # type: ignore[attr-defined]
            monkeypatch.setattr(PostgresSession, "get_connection", get_counted)
            monkeypatch.setattr(PostgresSession, "_connect", connect_counted)
            await move_to_next_pause()
            at_first = tries  # several connections were lost at the same time
            for pause in range(1, 4):
                await move_to_next_pause()
                assert tries == at_first + pause
            with pytest.raises(ArrieroError):
                await app.submit(fulfil("lost"), task_id="lost")
            lonely.restart()
            now += connect_pauses.CONNECT_SECONDS_MAX
            task = await call_until_answered(lambda: app.submit(fulfil("two"), task_id="two"), StoreError)
            assert await asyncio.wait_for(task.result(), SECONDS_MAX) == "two"
