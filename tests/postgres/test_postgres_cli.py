"""The command line on a server: every command, `arriero run` in split roles, and what the doctor finds."""

import asyncio
import json
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import cli_calls
import psycopg
import pytest
from cli_calls import Run, arriero, json_lines, order
from click.testing import CliRunner, Result
from postgres_servers import as_role, pooled, server, without_password, worker

from arriero import TaskFailed
from arriero.cli.main import commands
from arriero.explain import doctor_server as server_diagnosis
from arriero.store import schema_of
from arriero.store.migrate import Grant
from arriero.store.postgres import inspection as facts
from arriero.store.postgres import migrating
from arriero.store.postgres.store import PostgresStore
from arriero.testing.postgres import Server

Call = Callable[..., Result]
APP = cli_calls.APP
QUEUE = "web-1"
DAY = 86_400_000_000
SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server with which all is well, for those who change that."""
    with Server.start(16, settings={"max_prepared_transactions": "5"}) as running:
        yield running


def new_database(on: Server, name: str) -> str:
    on.drop_database(f"{name}_{worker()}")
    return on.create_database(f"{name}_{worker()}")


@pytest.fixture
def url() -> Iterator[str]:
    """URL of a database without any table, with a password in it."""
    yield new_database(server(), "cli")
    server().drop_database(f"cli_{worker()}")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the App's module in it."""
    shutil.copy(Path(cli_calls.__file__).parent / "shopfront.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "shopfront", raising=False)
    return tmp_path


@pytest.fixture
def call(shop: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line in this process; nothing that it says may hold the password."""
    monkeypatch.setenv("ARRIERO_STORE", url)

    def invoke(*arguments: str) -> Result:
        result = CliRunner().invoke(commands, list(arguments))
        assert server().password not in result.output
        assert server().password not in result.stderr
        return result

    return invoke


@pytest.fixture
def sold(call: Call) -> Call:
    """The command line on a store in which three tasks have happened and one sleeps."""
    from shopfront import Order, app, buggy, fulfil, later

    async def sell() -> None:
        async with app.running():
            for task_id, work in (
                ("processed", fulfil(Order("a"))),
                ("compensated", fulfil(Order("b", pieces=11))),
                ("buggy", buggy(Order("c"))),
            ):
                task = await app.submit(work, task_id=task_id, reply_to=QUEUE)
                with suppress(TaskFailed):
                    await task.result()
            await app.submit(later(Order("e")), task_id="later")

    asyncio.run(sell())
    return call


def done(url: str, statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statements.encode())


def made(url: str) -> str:
    """The database with arriero's tables."""
    schema_of(url).migrate()
    return url


# --- every command
def test_commands_read_a_store_on_a_server(sold: Call, shop: Path, url: str) -> None:
    listed = json_lines(sold("task", "list", "--json", "--after", "0").stdout)
    assert [(task["id"], task["state"]) for task in listed][:3] == [
        ("processed", "processed"),
        ("compensated", "compensated"),
        ("buggy", "held"),
    ]
    shown = json.loads(sold("task", "show", "processed", "--json").stdout)
    assert [(step["name"], step["state"]) for step in shown["steps"]] == [
        ("charge", "completed"),
        ("reserve", "completed"),
    ]
    assert "ZeroDivisionError" in sold("task", "explain", "buggy").stdout
    assert "submitted" in sold("history", "processed").stdout
    assert "task.submitted" in sold("history").stdout
    exported = sold("export")
    assert exported.exit_code == 0
    (shop / "history.jsonl").write_bytes(exported.stdout_bytes)
    assert sold("check", "history.jsonl").exit_code == 0
    kinds = [event["data"]["kind"] for event in json_lines(sold("replies", QUEUE, "--json").stdout)]
    assert kinds[:3] == ["received", "started", "completed"]
    assert "no message" in sold("replies", QUEUE).stderr


def test_commands_change_a_store_on_a_server(sold: Call, url: str) -> None:
    submitted = sold("submit", APP, "later", "--arguments", order("f"), "--task-id", "one", "--json")
    assert json.loads(submitted.stdout) == {
        "id": "one",
        "workflow": "later",
        "state": "pending",
        "created": True,
    }
    assert sold("task", "pause", "one", "--reason", "wait").exit_code == 0
    assert sold("replies", QUEUE).exit_code == 0
    done(
        url,
        f"UPDATE arriero.task SET submitted_at = submitted_at - {10 * DAY}, ended_at = ended_at - {10 * DAY}",
    )
    (removed,) = json_lines(sold("purge", "--older-than", "8d", "--yes", "--json").stdout)
    assert removed["removed"] == 2
    assert [task["id"] for task in json_lines(sold("task", "list", "--json").stdout)] == ["one", "later", "buggy"]


def test_the_settings_are_shown_without_a_password(call: Call, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "***@127.0.0.1" in call("config").stdout
    for form in (
        f"{without_password(url)}?password={server().password}",
        f"{url}?listen_url={quote(url, safe='')}",
    ):
        assert "***" in call("config", "--json", "--store", form).stdout
        assert "***" in call("task", "list", "--store", form).stderr
        assert "***" in call("migrate", "--check", "--json", "--store", form).stdout


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("postgresql:", "postgres-ql:", "is not known; use sqlite:///PATH"),
        ("/cli_", "/nowhere_", "does not exist; look at the names in the URL"),
        ("/cli_", "/?no_such_parameter=", "use postgresql://USER@HOST/DATABASE"),
        ("/cli_", "/cl\0i_", "must be the URL of a state store"),
    ],
)
@pytest.mark.parametrize("command", ["task list", "doctor", "migrate", "store new-epoch --reason x"])
def test_a_url_that_leads_nowhere_is_one_line_without_a_password(
    call: Call, url: str, command: str, old: str, new: str, part: str
) -> None:
    refused = call(*command.split(), "--store", url.replace(old, new))
    assert (refused.exit_code, refused.stdout) == (5 if "nowhere" in new else 2, "")
    (line,) = refused.stderr.splitlines()
    assert part in line


@pytest.mark.parametrize(
    "command",
    [
        ["task", "list"],
        ["task", "show", "one"],
        ["task", "pause", "one", "--reason", "x"],
        ["history"],
        ["export"],
        ["replies", QUEUE],
        ["purge", "--older-than", "8d", "--yes"],
        ["doctor"],
        ["store", "new-epoch", "--reason", "restored"],
    ],
    ids=" ".join,
)
def test_who_does_not_make_tasks_makes_no_store(call: Call, url: str, command: list[str]) -> None:
    refused = call(*command)
    assert (refused.exit_code, refused.stdout) == (5, "")
    assert "it holds no tasks of arriero (there are no tables in schema arriero); name the right one" in refused.stderr
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regnamespace('arriero')").fetchone() == (None,)


def test_migrate_makes_the_schema_once_and_checks_it(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = call("migrate", "--check")
    assert (absent.exit_code, "there is no schema yet" in absent.stdout) == (1, True)
    assert "CREATE SCHEMA arriero;" in call("migrate", "--sql").stdout
    assert "applied 0001_initial\n" in call("migrate").stdout
    assert json_lines(call("migrate", "--json").stdout)[0]["applied"] == []
    assert call("migrate", "--check").exit_code == 0
    later = migrating.Migration(99, "0099_later", "SELECT 1;")
    known = [*migrating.known_migrations(), later]
    monkeypatch.setattr(migrating, "known_migrations", lambda: known)
    (checked,) = json_lines(call("migrate", "--check", "--json").stdout)
    assert (checked["number"], checked["number_known"], checked["missing"]) == (known[-2].number, 99, ["0099_later"])
    assert "run arriero migrate" in call("task", "list").stderr


def test_a_role_gets_what_it_needs_by_sql_or_at_once(call: Call, url: str) -> None:
    assert 'GRANT USAGE ON SCHEMA arriero TO "it ""s";' in call("migrate", "--sql", "--role", "run", 'it "s').stdout
    refused = call("migrate", "--role", "run", "nobody_of_that_name")
    assert (refused.exit_code, 'role "nobody_of_that_name" does not exist' in refused.stderr) == (5, True)
    assert call("migrate", "--check").exit_code == 1  # nothing was made either
    role = f"cli_clerk_{worker()}"
    done(url, f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN PASSWORD '{server().password}'")
    assert f"role {role} may do what a process needs" in call("migrate", "--role", "run", role).stdout
    try:
        clerks = as_role(url, role)
        submitted = call("submit", APP, "fulfil", "--arguments", order("1"), "--store", clerks)
        assert submitted.exit_code == 0, submitted.stderr
    finally:
        done(url, f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_new_epoch_is_told_with_its_number_and_kept_with_its_reason(sold: Call) -> None:
    told = sold("store", "new-epoch", "--by", "maria", "--reason", "restored")
    assert (told.exit_code, told.stderr) == (0, "")
    assert "is in epoch 2; processes that run on it begin again" in told.stdout
    assert "reason=restored by operator maria" in sold("history").stdout


# --- processes
@pytest.mark.acceptance
def test_roles_split_over_processes_do_their_parts_and_nobody_tells_the_password(
    shop: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRIERO_STORE", url)
    (shop / "gate").touch()
    with ExitStack() as stack:
        runs: dict[str, Run] = {}
        for name, options in (
            ("scheduler", ["--roles", "scheduler"]),
            ("payments", ["--roles", "agents", "--agents", "payments"]),
            ("stock", ["--roles", "agents", "--agents", "stock"]),
            ("supervisor", ["--roles", "supervisor"]),
        ):
            runs[name] = Run(shop, *options)
            stack.callback(runs[name].close)
        ready = {name: run.until("ready: ") for name, run in runs.items()}
        instances = {name: line.rpartition("process ")[2] for name, line in ready.items()}
        assert ", roles agents, Agents payments, process " in ready["payments"]
        parcel = arriero(shop, "submit", APP, "parcel", "--arguments", order("1"), "--task-id", "one", "--wait")
        assert (parcel.returncode, parcel.stdout) == (0, 'task one is processed: "receipt-1 packed-1"\n'), parcel.stderr
        jammed = arriero(shop, "submit", APP, "jammed", "--task-id", "two", "--wait")
        assert jammed.returncode == 1
        exported = arriero(shop, "export")
        (shop / "history.jsonl").write_text(exported.stdout)
        assert arriero(shop, "check", "history.jsonl").returncode == 0
        doctor = arriero(shop, "doctor", "--json")
        said = [*ready.values(), exported.stdout, doctor.stdout, jammed.stderr]
        for run in runs.values():
            run.signal(signal.SIGTERM)
        for run in runs.values():
            code, output, errors = run.ended()
            assert code == 0
            said += [output, errors]
    assert server().password not in "".join(said)
    alive = next(finding for finding in json.loads(doctor.stdout)["findings"] if finding["about"] == "processes")
    assert "4 processes are alive" in alive["says"]
    actors = actors_by_event(exported.stdout)
    assert actors["task.claimed"] == {instances["scheduler"]}
    assert actors["step.dispatched charge"] == {instances["payments"]}
    assert actors["step.dispatched pack"] == actors["step.dispatched jam"] == {instances["stock"]}
    assert instances["supervisor"] in actors["step.expired jam"]


def actors_by_event(exported: str) -> dict[str, set[str]]:
    """Who recorded each kind of event, of a step with its name."""
    names: dict[tuple[int, int], str] = {}
    found: dict[str, set[str]] = {}
    for line in json_lines(exported):
        for event in line.get("events", ()):
            step = (line["task"], event.get("step", 0))
            if "name" in event:
                names[step] = event["name"]
            label = f"{event['type']} {names[step]}" if step in names else event["type"]
            found.setdefault(label, set()).add(line["actor"])
    return found


# --- the doctor
def findings(result: Result) -> dict[str, list[dict[str, Any]]]:
    """By what they are about."""
    told: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(result.stdout)["findings"]:
        told.setdefault(finding["about"], []).append(finding)
    return told


@pytest.fixture
def well(own: Server, shop: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """The command line on a store with which all is well, on a server of its own."""
    url = made(new_database(own, "doctor"))
    monkeypatch.setenv("ARRIERO_STORE", url)

    def invoke(*arguments: str) -> Result:
        result = CliRunner().invoke(commands, list(arguments))
        assert own.password not in result.output
        return result

    yield invoke
    own.drop_database(f"doctor_{worker()}")


def of_doctor(own: Server) -> str:
    return own.url(f"doctor_{worker()}")


def test_a_server_with_which_all_is_well_exits_with_0_and_is_told_with_its_version(well: Call) -> None:
    told = well("doctor", "--verbose")
    assert (told.exit_code, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    assert lines[0].startswith("store postgresql://arriero:***@127.0.0.1:")
    assert lines[-1] == "nothing needs care"
    assert ", PostgreSQL 16." in told.stdout
    assert "ok    fsync and full_page_writes are on: what was accepted is on the disk" in told.stdout
    assert "ok    wake-ups from other processes are heard (LISTEN)" in told.stdout
    assert json.loads(well("doctor", "--json").stdout)["healthy"] is True


def test_an_older_schema_is_told_and_left_as_it_is(well: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [*migrating.known_migrations(), migrating.Migration(99, "0099_later", "SELECT 1;")]
    for module in (migrating, facts):
        monkeypatch.setattr(module, "known_migrations", lambda: known)
    told = well("doctor", "--json")
    assert told.exit_code == 1
    assert (findings(told)["schema"][0]["level"], "rows" in findings(told)) == ("care", False)


def test_a_transaction_left_open_is_named_with_what_it_locks_and_who_waits(
    well: Call, own: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (facts, server_diagnosis):
        monkeypatch.setattr(module, "BLOCKING_SECONDS_MAX", 0.0)  # while others wait: without, after a minute
    locks = "UPDATE arriero.meta SET value = value WHERE name = 'epoch'"
    with psycopg.connect(of_doctor(own), application_name="nightly report") as idle:
        idle.execute(locks.encode())

        def wait() -> None:
            with suppress(psycopg.errors.AdminShutdown), psycopg.connect(of_doctor(own)) as waiting:
                waiting.execute(locks.encode())

        thread = threading.Thread(target=wait)
        thread.start()
        own.wait_until("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)", "nobody waits")
        told = well("doctor", "--json")
        pid = idle.info.backend_pid
        idle.rollback()
        thread.join(SECONDS_MAX)
    named = [finding for finding in findings(told)["transactions"] if f"session {pid} " in finding["says"]]
    assert [finding["level"] for finding in named] == ["care"]
    says = named[0]["says"]
    assert "of user arriero, application nightly report from 127.0.0.1, has a transaction open since " in says
    assert "(idle in transaction); it locks meta (RowExclusiveLock); 1 session waits for it; nothing that" in says
    assert named[0]["remedy"].endswith(f"SELECT pg_terminate_backend({pid})")
    assert told.exit_code == 1


def test_prepared_transactions_and_slots_that_hold_things_up_are_named(
    well: Call, own: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (facts, server_diagnosis):
        monkeypatch.setattr(module, "OPEN_SECONDS_MAX", 0.0)
    monkeypatch.setattr(server_diagnosis, "RETAINED_BYTES_MAX", -1)
    done(of_doctor(own), "BEGIN; UPDATE arriero.meta SET value = value; PREPARE TRANSACTION 'gone home'")
    done(of_doctor(own), "SELECT pg_create_physical_replication_slot('unread', true)")
    try:
        told = [finding["says"] for finding in findings(well("doctor", "--json"))["transactions"]]
    finally:
        done(of_doctor(own), "ROLLBACK PREPARED 'gone home'")
        done(of_doctor(own), "SELECT pg_drop_replication_slot('unread')")
    (prepared,) = [says for says in told if "'gone home' of user arriero, prepared for two-phase" in says]
    assert "it locks meta (RowExclusiveLock)" in prepared
    assert any(says.startswith("replication slot unread, which nobody reads, keeps ") for says in told)


def test_commits_that_hang_for_want_of_a_standby_are_told_although_they_hang(well: Call, own: Server) -> None:
    own.configure(synchronous_standby_names="nobody")
    try:
        own.wait_until("SELECT current_setting('synchronous_standby_names') = 'nobody'", "not read")
        told = well("doctor", "--json")
    finally:
        own.configure(synchronous_standby_names="")
        own.wait_until("SELECT current_setting('synchronous_standby_names') = ''", "not read")
    (finding,) = findings(told)["standby"]
    assert (finding["level"], "every commit hangs" in finding["says"]) == ("care", True)


def test_a_table_that_is_not_vacuumed_is_told(well: Call, own: Server) -> None:
    done(of_doctor(own), "ALTER TABLE arriero.history SET (autovacuum_enabled = off)")
    (finding,) = findings(well("doctor", "--json"))["vacuum"]
    assert finding["remedy"] == "ALTER TABLE arriero.history RESET (autovacuum_enabled)"


def test_a_user_without_rights_to_see_others_is_told_how_to_get_them(well: Call, own: Server) -> None:
    schema = of_doctor(own)
    done(schema, f"DROP ROLE IF EXISTS plain; CREATE ROLE plain LOGIN PASSWORD '{own.password}'")
    schema_of(schema).migrate([Grant("run", "plain")])
    with psycopg.connect(schema) as other:  # whose transaction number is all that the user may see
        other.execute("UPDATE arriero.meta SET value = value")
        as_plain = as_role(schema, "plain")
        told = findings(well("doctor", "--json", "--store", as_plain))
        found = facts.server_facts(as_plain)
        pid = other.info.backend_pid
    assert "GRANT pg_monitor TO plain" in [finding["remedy"] for finding in told["transactions"]]
    (seen,) = [held for held in found.transactions if held.pid == pid]
    assert (seen.since, seen.held is not None) == (None, True)


def test_wake_ups_that_cannot_be_heard_are_told(well: Call, own: Server) -> None:
    nowhere = "postgresql%3A%2F%2Farriero%3Asesame%40127.0.0.1%3A1%2Fx"
    (refused,) = findings(well("doctor", "--json", "--store", f"{of_doctor(own)}?listen_url={nowhere}"))["listen"]
    assert "cannot be listened for, processes poll: connection" in refused["says"]
    (off,) = findings(well("doctor", "--json", "--store", f"{of_doctor(own)}?listen=off"))["listen"]
    assert (refused["level"], off["level"]) == ("information", "fine")


def test_behind_a_pooler_the_doctor_hears_nothing_and_leaves_nothing_set(
    call: Call, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "HEARD_SECONDS_MAX", 0.2)
    made(url)
    behind = pooled(url)
    (finding,) = findings(call("doctor", "--json", "--store", behind))["listen"]
    assert (finding["level"], "as behind a pooler" in finding["says"]) == ("information", True)
    with psycopg.connect(behind, autocommit=True) as next_one:
        settings = "SELECT current_setting('statement_timeout'), current_setting('synchronous_commit')"
        assert next_one.execute(settings).fetchone() == ("0", "on")


async def test_the_facts_of_a_store_are_those_of_its_tables(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.close()
    found = facts.server_facts(url)
    assert found.schema == found.schema_known
    assert {table.name for table in found.tables} >= {"arriero.task", "arriero.step", "arriero.history"}
    assert all(table.is_automatic for table in found.tables)
    assert 0 < found.connections < found.connections_max < 300
