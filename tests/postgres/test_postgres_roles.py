"""Roles of the database: each may do all that it must, and nothing else."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_servers import as_role, server, worker
from store_checks import broken_links, disagreements, history_violations

from arriero import Agent, App, Attempt, Entry, Permanent, StoreError, TaskFailed, Undo, workflow
from arriero.payloads.codec import PAYLOAD_BYTES_MAX
from arriero.server.cursors import open_cursors
from arriero.server.problems import Problem
from arriero.store import schema_of
from arriero.store.migrate import RIGHTS, Grant

PATIENCE = 60.0
SECRET = "sesame-payload"
payments = Agent("payments")


@payments.step
async def charge(attempt: Attempt, card: str) -> str:
    if card == "closed":
        raise Permanent("the card is closed")
    return f"charged {card}"


@payments.step
async def reserve(attempt: Attempt, card: str) -> str:
    return f"reserved {card}"


@reserve.compensation
async def release(undo: Undo[str], card: str) -> None: ...


@workflow
async def pay(card: str) -> str:
    await reserve(card)
    return await charge(card)


def shop(url: str) -> App:
    return App("shop", agents=[payments], workflows=[pay], store=url)


class Place:
    """A store on a database of its own, and its URL for each role."""

    def __init__(self, owner: str, roles: dict[str, str]) -> None:
        self.owner = owner
        self.roles = roles

    def url(self, rights: str) -> str:
        return as_role(self.owner, self.roles[rights])

    def ask(self, rights: str, statement: str) -> list[tuple[object, ...]]:
        """What a role is answered, in a transaction of its own."""
        with psycopg.connect(self.url(rights), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def refuses(self, rights: str, statement: str) -> None:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            self.ask(rights, statement)


@pytest.fixture(scope="module")
def made() -> Iterator[Place]:
    running = server()
    name = f"rights_{worker()}"
    running.drop_database(name)
    owner = running.create_database(name)
    roles = {rights: f"{rights}_{name}" for rights in (*RIGHTS, "nobody")}
    for role in roles.values():
        running.create_role(role)
    schema_of(owner).migrate([Grant(rights, roles[rights]) for rights in RIGHTS])
    yield Place(owner, roles)
    running.drop_database(name)
    with psycopg.connect(running.url(), autocommit=True) as connection:
        for role in roles.values():
            connection.execute(f"DROP ROLE {role}".encode())


@pytest.fixture
async def place(made: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """With two tasks in it, done by a whole App that runs as ``run``."""
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    async with shop(made.url("run")).running() as app:
        known = await app.submit(pay(SECRET), task_id="paid", reply_to="desk")
        assert await known.result(PATIENCE) == f"charged {SECRET}"
        with suppress(TaskFailed):
            await (await app.submit(pay("closed"), task_id="closed", convoy="anna")).result(PATIENCE)
    return made


# --- run
async def test_a_whole_app_runs_as_run_with_verbs_convoys_replies_and_ledgers_and_its_history_is_sound(
    place: Place,
) -> None:
    async with shop(place.url("run")).running() as app:
        for key in ("a", "b"):
            await app.submit(pay(key), task_id=f"of-{key}", convoy="bert", reply_to="desk")
        token = await app.tokens.create("ci", scopes=["read"], by="ana")
        await app.session.store.note_token_used(token.about.id, app.session.store.now())
        assert (await app.tokens.revoke(token.about.id, by="ana", reason="lost")).state == "revoked"
        await app.submit_ledger("may", [Entry(pay("x"), convoy="carl"), Entry(pay("y"), convoy="carl")])
        assert await app.task("may:2", pay).result(PATIENCE) == "charged y"
        assert await app.task("of-b", pay).result(PATIENCE) == "charged b"
        await app.submit(pay("later"), task_id="later", delay=3_600)
        await app.task("later").cancel(by="ana", reason="not wanted")
        with suppress(TaskFailed):
            await app.task("later").result(PATIENCE)
        assert await app.replies("desk").next_ready() is not None
        store = app.session.store
        assert await history_violations(store) == []
        assert await disagreements(store) == []
        assert await broken_links(store) == []
    ((calls,),) = place.ask("read", "SELECT sum(calls) FROM arriero.agent_metrics")
    assert int(str(calls)) >= 9  # two steps of each task, and the one whose card is closed


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE arriero.history SET actor = 'ana'",
        "DELETE FROM arriero.history",
        "TRUNCATE arriero.history",
        "UPDATE arriero.edit SET reason = ''",
        "DELETE FROM arriero.edit",
        "UPDATE arriero.late_answer SET answer = '1'",
        "DELETE FROM arriero.late_answer",
        "DELETE FROM arriero.step",
        "DELETE FROM arriero.convoy",
        "DELETE FROM arriero.convoy_tail",
        "DELETE FROM arriero.token",
        "TRUNCATE arriero.token",
        "UPDATE arriero.token SET scopes = '[\"admin\"]'",
        "UPDATE arriero.token SET digest = 'forged'",
        "UPDATE arriero.token SET expires_at = NULL",
        "INSERT INTO arriero.migration VALUES (99, '0099_forged', 0)",
        "CREATE TABLE arriero.mine (x integer)",
        "ALTER FUNCTION arriero.keep_task SECURITY INVOKER",
    ],
)
def test_run_neither_changes_nor_removes_history_nor_the_schema(place: Place, statement: str) -> None:
    place.refuses("run", statement)


async def test_only_purge_removes_the_history_of_tasks(place: Place) -> None:
    (counted,) = place.ask("read", "SELECT count(*) FROM arriero.history WHERE task_no > 0")
    place.ask("purge", "UPDATE arriero.task SET ended_at = ended_at - 864000000000")
    place.ask("purge", "DELETE FROM arriero.status")
    place.ask("purge", "UPDATE arriero.alert SET next_at = NULL")
    place.refuses("purge", "UPDATE arriero.history SET actor = 'ana'")
    purging = [sys.executable, "-m", "arriero", "purge", "--older-than", "8d", "--yes"]
    refused = _ran(purging, place.url("run"))
    assert (refused.returncode, "Traceback" in refused.stderr) == (5, False)
    assert "permission denied for table history" in refused.stderr
    assert "run|purge NAME" in refused.stderr
    assert place.ask("read", "SELECT count(*) FROM arriero.history WHERE task_no > 0") == [counted]
    done = _ran(purging, place.url("purge"))
    assert done.returncode == 0, done.stderr
    assert place.ask("read", "SELECT count(*) FROM arriero.task WHERE task_id = 'paid'") == [(0,)]


def _ran(command: list[str], url: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "ARRIERO_STORE": url}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=2 * PATIENCE)


# --- submit
async def test_submit_submits_by_sql_and_joined_to_its_own_transaction(place: Place) -> None:
    text = '\'{"card": "sql"}\''
    (answer,) = place.ask("submit", f"SELECT arriero.submit('pay', {text}, 'by-sql', convoy => 'dora')")
    assert answer == ("by-sql",)
    async with shop(place.url("submit")) as app:
        with psycopg.connect(place.url("submit")) as connection:
            await app.submit(pay("joined"), task_id="joined", convoy="dora", reply_to="web", connection=connection)
        with psycopg.connect(place.url("submit")) as connection:
            await app.submit(pay("joined"), task_id="joined", convoy="dora", reply_to="web", connection=connection)
            await app.submit(pay("undone"), task_id="undone", connection=connection)
            connection.rollback()
        with pytest.raises(StoreError, match="permission denied"):
            await app.submit(pay("direct"), task_id="direct")
    assert place.ask("read", "SELECT count(*) FROM arriero.task WHERE task_id IN ('undone', 'direct')") == [(0,)]
    async with shop(place.url("run")).running() as app:
        assert await app.task("by-sql", pay).result(PATIENCE) == "charged sql"
        assert await app.task("joined", pay).result(PATIENCE) == "charged joined"
        assert await history_violations(app.session.store) == []


TABLES = (
    "task", "body", "edit", "late_answer", "step", "history", "store_head", "process", "writer", "lease", "status", "alert", "workflow",
    "convoy", "convoy_tail", "ledger", "ledger_aside",
)  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_submit_reads_and_forges_nothing(place: Place, table: str) -> None:
    place.refuses("submit", f"SELECT * FROM arriero.{table}")
    place.refuses("submit", f"DELETE FROM arriero.{table}")
    place.refuses("submit", f"INSERT INTO arriero.{table} OVERRIDING SYSTEM VALUE SELECT * FROM arriero.{table}")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE arriero.step SET result = '\"forged\"', state = 'completed'",
        "UPDATE arriero.task SET output = '\"forged\"'",
        "UPDATE arriero.meta SET value = '2' WHERE name = 'epoch'",
        "DELETE FROM arriero.migration",
        "SELECT nextval('arriero.task_number')",
        "SELECT arriero.add_convoys(ARRAY['x'], ARRAY['place'], NULL)",
        "SELECT arriero.is_kept(1)",
        "SELECT lease_until FROM arriero.process",
        "SELECT * FROM arriero.task FOR UPDATE",
    ],
)
def test_submit_forges_no_result_and_calls_nothing_but_its_doors(place: Place, statement: str) -> None:
    place.refuses("submit", statement)


WELL_MADE = {
    "task_id": "made", "workflow": "pay", "arguments": "{}", "body_hash": "x", "policy": "{}", "priority": 5, "delay": 0,
    "seed": 1, "actor": "ana", "end_of_sequence": False,
}  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [
        {"task_id": ""},
        {"task_id": "x" * 256},
        {"task_id": None},
        {"task_id": "a\nb"},
        {"convoy": ""},
        {"reply_to": "x" * 256},
        {"priority": 10},
        {"priority": None},
        {"delay": -1},
        {"delay": 4e9},
        {"complete_within": "NaN"},
        {"complete_within": -1},
        {"seed": -1},
        {"sequence": -5, "convoy": "c"},
        {"sequence": 2**63 - 1, "convoy": "c"},
        {"workflow": None},
        {"workflow": "x" * 256},
        {"workflow": "\x1b[31m"},
        {"app": "x" * 256},
        {"policy": " " * 4_001},
        {"body_hash": "x" * 256},
        {"trace_context": "x" * 1_001},
    ],
    ids=lambda changed: repr(changed)[:40],
)
def test_no_task_is_kept_with_an_id_or_a_number_that_nobody_could_show(place: Place, changed: dict[str, Any]) -> None:
    submission = json.dumps(WELL_MADE | changed).replace("'", "''")
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        place.ask("submit", f"SELECT arriero.keep_task(NULL, '{submission}')")


@pytest.mark.parametrize("version", [15, 16, 18])
def test_the_database_refuses_arguments_that_python_refuses(version: int) -> None:
    running = server(version)
    name, role = f"arguments_{worker()}", f"submit_arguments_{worker()}"
    running.drop_database(name)
    owner = running.create_database(name)
    running.create_role(role)
    try:
        schema_of(owner).migrate([Grant("submit", role)])
        with psycopg.connect(as_role(owner, role), autocommit=True) as submitter, psycopg.connect(owner) as run:
            fits, large = ({"order": "x" * (PAYLOAD_BYTES_MAX - 12 + more)} for more in (0, 1))
            _keep(submitter, "fits", json.dumps(fits, separators=(",", ":")))
            for connection in (submitter, run):
                with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
                    _keep(connection, "large", json.dumps(large, separators=(",", ":")))
                assert "arguments have 1000001 bytes; the limit is 1000000" in str(refused.value)
                assert "keep large data elsewhere and pass its address" in str(refused.value)
            for broken in (
                "}{",
                "[]",
                "1",
                '{"a": 1, "a": 2}',
                '{"a": "\\u0000"}',
                '{"a": ' + "[" * 101 + "]" * 101 + "}",
            ):
                with pytest.raises(psycopg.errors.InvalidParameterValue, match="arguments"):
                    _keep(submitter, "broken", broken)
    finally:
        running.drop_database(name)
        with psycopg.connect(running.url(), autocommit=True) as connection:
            connection.execute(f"DROP ROLE {role}".encode())


def _keep(connection: "psycopg.Connection[Any]", task_id: str, arguments: str) -> None:
    submission = WELL_MADE | {"task_id": task_id, "arguments": arguments}
    connection.execute("SELECT arriero.keep_task(NULL, %s)", (json.dumps(submission),))


def test_who_may_only_submit_sets_no_clock_and_speaks_in_nobody_s_name(place: Place) -> None:
    place.refuses("submit", f"SELECT arriero.keep_task(NULL, '{json.dumps(WELL_MADE | {'given': 9 * 10**18})}')")
    place.ask("submit", f"SELECT arriero.keep_task(NULL, '{json.dumps(WELL_MADE | {'actor': 'person:ceo'})}')")
    actor = "SELECT actor FROM arriero.history WHERE events::text LIKE '%task.submitted%' ORDER BY no DESC LIMIT 1"
    assert place.ask("read", actor) == [("sql",)]


def test_a_submitted_id_tells_submit_no_payload_of_another(place: Place) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation) as raised:
        place.ask("submit", "SELECT arriero.submit('pay', '{\"card\": \"guessed\"}', 'paid')")
    assert SECRET not in str(raised.value)


def test_whoever_submits_with_objects_of_his_own_does_not_run_them_with_the_owner_s_rights(place: Place) -> None:
    """A table or function of the caller's, in front of the path, is not what the functions use."""
    with psycopg.connect(place.url("submit"), autocommit=True) as connection:
        connection.execute("CREATE TEMP TABLE workflow (name text, policy text, complete_within double precision)")
        connection.execute("CREATE FUNCTION pg_temp.now_at(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 1/0'")
        connection.execute("CREATE FUNCTION pg_temp.length(text) RETURNS integer LANGUAGE sql AS 'SELECT 1/0'")
        connection.execute("SET search_path = pg_temp, pg_catalog")
        found = connection.execute("SELECT arriero.submit('pay', '{\"card\": \"own\"}', 'own-objects')").fetchone()
    assert found == ("own-objects",)


# --- read
READING = (
    ("task", "list"), ("task", "show", "paid"), ("task", "explain", "paid"), ("history",), ("history", "paid"),
    ("export",), ("export", "--payloads", "all"), ("doctor",), ("convoy", "list"), ("convoy", "show", "anna"), ("ledger", "list"),
    ("replies", "desk", "--peek"), ("migrate", "--check"), ("config",),
)  # fmt: skip


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_read_looks_at_everything(place: Place, command: tuple[str, ...], tmp_path: Path) -> None:
    ran = _ran([sys.executable, "-m", "arriero", *command], place.url("read"))
    assert ran.returncode in ((0, 1) if command == ("doctor",) else (0,)), ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("table", [*TABLES, "meta", "migration"])
def test_read_changes_nothing(place: Place, table: str) -> None:
    place.ask("read", f"SELECT * FROM arriero.{table}")
    place.refuses("read", f"DELETE FROM arriero.{table}")
    place.refuses("read", f"INSERT INTO arriero.{table} OVERRIDING SYSTEM VALUE SELECT * FROM arriero.{table}")


async def test_read_replays_the_code_of_a_release_over_all_tasks(place: Place) -> None:
    report = await shop(place.url("read")).replay(state="all")
    assert (report.replayed > 0, report.held, report.skipped["compensated"] > 0) == (True, (), True)


def test_who_may_only_read_sees_nothing_that_signs(place: Place) -> None:
    place.refuses("read", "SELECT * FROM arriero.secret")
    place.ask("run", "SELECT * FROM arriero.secret")


async def test_a_server_that_may_only_read_its_store_writes_cursors_of_its_own_and_reads_them(place: Place) -> None:
    async with shop(place.url("run")) as app:
        of_run = await open_cursors(app.session.store)
    async with shop(place.url("read")) as app:
        of_read = await open_cursors(app.session.store)
        assert (await open_cursors(app.session.store)).read(of_read.write("tasks", 7), "tasks", int) == 7
    with pytest.raises(Problem):
        of_run.read(of_read.write("tasks", 7), "tasks", int)


def test_read_submits_nothing_and_acts_on_nothing(place: Place) -> None:
    place.refuses("read", "SELECT arriero.submit('pay', '{\"card\": \"x\"}', 'by-reader')")
    place.refuses("read", "UPDATE arriero.task SET output = '\"forged\"'")
    acted = _ran(
        [sys.executable, "-m", "arriero", "task", "pause", "paid", "--by", "ana", "--reason", "x"], place.url("read")
    )
    assert acted.returncode == 5


# --- who gets what
def test_nobody_else_gets_anything(place: Place) -> None:
    for statement in (
        "SELECT * FROM arriero.task",
        "SELECT arriero.submit('pay', '{}')",
        "SELECT arriero.now_at(NULL)",
    ):
        place.refuses("nobody", statement)
    functions = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'arriero'::regnamespace"
    assert place.ask("read", f"{functions} AND has_function_privilege('public', oid, 'EXECUTE')") == [(0,)]
    doors = place.ask("read", f"{functions.replace('count(*)', 'proname')} AND prosecdef ORDER BY proname")
    assert doors == [
        ("keep_signal",),
        ("keep_task",),
        ("signal",),
        ("signal",),
        ("submit",),
        ("submit",),
    ]
    unsafe = (
        f"{functions} AND prosecdef AND NOT coalesce(proconfig, '{{}}') @> '{{\"search_path=pg_catalog, pg_temp\"}}'"
    )
    assert place.ask("read", unsafe) == [(0,)]


def test_a_grant_takes_away_what_it_does_not_name_and_several_add_up(made: Place) -> None:
    role = made.roles["nobody"]
    schema = schema_of(made.owner)
    schema.migrate([Grant("purge", role)])
    made.ask("nobody", "DELETE FROM arriero.history WHERE false")
    schema.migrate([Grant("run", role)])
    made.refuses("nobody", "DELETE FROM arriero.history WHERE false")
    made.ask("nobody", "DELETE FROM arriero.task WHERE false")
    schema.migrate([Grant("read", role), Grant("submit", role)])
    made.ask("nobody", "SELECT count(*) FROM arriero.body")
    made.ask("nobody", "SELECT arriero.submit('pay', '{\"card\": \"x\"}', 'both')") if _is_known(made) else None
    made.refuses("nobody", "DELETE FROM arriero.task WHERE false")
    with psycopg.connect(made.owner, autocommit=True) as connection:
        connection.execute(f"DROP OWNED BY {role}".encode())


def _is_known(made: Place) -> bool:
    return made.ask("read", "SELECT count(*) FROM arriero.workflow WHERE name = 'pay'") == [(1,)]


def test_the_owner_keeps_his_rights(made: Place) -> None:
    with pytest.raises(StoreError, match="the role owns the schema arriero, so it may do everything there"):
        schema_of(made.owner).migrate([Grant("read", "arriero")])
    with psycopg.connect(made.owner) as connection:
        connection.execute("UPDATE arriero.history SET actor = actor WHERE false")


def test_roles_of_the_release_before_may_do_with_what_is_kept_beside_the_history_what_they_may_do_with_it() -> None:
    from arriero.store.postgres import migrating

    running = server()
    name = f"rights_kept_{worker()}"
    rights = {f"kept_read_{worker()}": "SELECT", f"kept_run_{worker()}": "SELECT, INSERT"}
    running.drop_database(name)
    owner = running.create_database(name)
    known = migrating.known_migrations
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrating, "known_migrations", lambda: known()[:2])
        schema_of(owner).migrate()
    with psycopg.connect(owner, autocommit=True) as connection:
        for role, granted in rights.items():
            running.create_role(role)
            connection.execute(f"GRANT {granted} ON arriero.history TO {role}".encode())
    schema_of(owner).migrate()
    asked = (
        "SELECT string_agg(privilege_type, ', ' ORDER BY privilege_type DESC) FROM information_schema.role_table_grants"
    )
    with psycopg.connect(owner, autocommit=True) as connection:
        for table in ("edit", "late_answer"):
            for role, granted in rights.items():
                where = " WHERE table_schema = 'arriero' AND table_name = %s AND grantee = %s"
                assert connection.execute((asked + where).encode(), (table, role)).fetchone() == (granted,)
    running.drop_database(name)
    with psycopg.connect(running.url(), autocommit=True) as connection:
        for role in rights:
            connection.execute(f"DROP ROLE {role}".encode())


async def test_a_role_that_had_a_process_s_rights_keeps_its_functions_when_the_schema_is_brought_up_to_date() -> None:
    """As the release before granted them, with functions that were everybody's."""
    from arriero.store.postgres import migrating

    running = server()
    name, role = f"rights_old_{worker()}", f"old_{worker()}"
    running.drop_database(name)
    owner = running.create_database(name)
    running.create_role(role)
    known = migrating.known_migrations
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrating, "known_migrations", lambda: known()[:2])
        schema_of(owner).migrate()
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(f"GRANT USAGE ON SCHEMA arriero TO {role}".encode())
        connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA arriero TO {role}".encode())
        connection.execute(f"GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA arriero TO {role}".encode())
    schema_of(owner).migrate()
    async with shop(as_role(owner, role)).running() as app:
        with psycopg.connect(as_role(owner, role)) as connection:
            await app.submit(pay("old"), task_id="old", convoy="eve", connection=connection)
        assert await app.task("old", pay).result(PATIENCE) == "charged old"
    running.drop_database(name)
    with psycopg.connect(running.url(), autocommit=True) as connection:
        connection.execute(f"DROP ROLE {role}".encode())


async def test_a_role_that_could_submit_still_can_by_every_call_when_the_schema_is_brought_up_to_date() -> None:
    """With the rights that the release before granted; its submit had no App."""
    from arriero.store.postgres import migrating

    running = server()
    name, role = f"submit_old_{worker()}", f"submitter_{worker()}"
    running.drop_database(name)
    owner = running.create_database(name)
    running.create_role(role)
    known = migrating.known_migrations
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrating, "known_migrations", lambda: known()[:2])
        schema_of(owner).migrate()
    of_old = "text, jsonb, text, integer, double precision, text, text, bigint, boolean"
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(f"GRANT USAGE ON SCHEMA arriero TO {role}".encode())
        connection.execute(f"GRANT EXECUTE ON FUNCTION arriero.submit({of_old}) TO {role}".encode())
    schema_of(owner).migrate()
    async with shop(owner).running() as app:
        with psycopg.connect(as_role(owner, role), autocommit=True) as connection:
            for task_id, arguments in (("a", "%s"), ("b", "%s::text"), ("c", "%s::jsonb")):
                call = f"SELECT arriero.submit('pay', {arguments}, '{task_id}')".encode()
                connection.execute(call, ('{"card": "old"}',))
        for task_id in "abc":
            assert await app.task(task_id, pay).result(PATIENCE) == "charged old"
    running.drop_database(name)
    with psycopg.connect(running.url(), autocommit=True) as connection:
        connection.execute(f"DROP ROLE {role}".encode())
