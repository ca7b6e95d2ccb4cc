"""How the statements of schedules are executed beside 10,000 of them, idle or all due at once; and who may use their table."""

import msgspec
import psycopg
import pytest
from core_schedules import POLICY, fire_command
from postgres_servers import server, worker
from store_world import submission
from test_postgres_plans import Executed, Explaining

from arriero.model import MICROSECONDS
from arriero.model.schedules import DeclareSchedule, Overlap, ScheduleDeclaration, Timing
from arriero.store import schema_of
from arriero.store.contract import SUPERVISOR_LEASE
from arriero.store.postgres import migrating
from arriero.store.postgres.store import PostgresStore

SCHEDULES = 10_000
BATCH = 200
COPY = """
INSERT INTO arriero.schedule
SELECT (jsonb_populate_record(s, jsonb_build_object('name', 'copy-' || number))).*
  FROM arriero.schedule AS s, generate_series(2, %(count)s) AS number
"""

COPY_TASKS = """
INSERT INTO arriero.task
SELECT (jsonb_populate_record(t, jsonb_build_object(
            'task_no', number * 1000 + t.task_no, 'task_id', t.task_id || '-' || number || 'Z',
            'state', CASE WHEN t.task_id LIKE 'shop/%%' THEN 'processed' ELSE t.state END))).*
  FROM arriero.task AS t, generate_series(2, %(count)s) AS number
"""


def looked_at(executed: list[Executed], name: str) -> float:
    """How many rows of schedules a statement has looked at."""
    (one,) = [one for one in executed if one.name == name]
    scans = [scan for scan in one.scans() if scan["Relation Name"] == "schedule"]
    assert scans
    return sum(
        (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0) + scan.get("Rows Removed by Index Recheck", 0))
        * scan["Actual Loops"]
        for scan in scans
    )


@pytest.mark.parametrize("statistics", ["never", "now"])
async def test_a_pass_reads_what_is_due_and_one_row_more_whatever_number_of_schedules_there_is(
    monkeypatch: pytest.MonkeyPatch, statistics: str
) -> None:
    name = f"schedules_{statistics}_{worker()}"
    server().drop_database(name)
    url = server().create_database(name)
    store = PostgresStore(f"{url}?listen=off&prepare=off")
    await store.open()
    declaration = ScheduleDeclaration(
        workflow="fulfil", arguments="{}", policy=POLICY, timing=Timing(every=3_600 * MICROSECONDS), overlap=Overlap.ALL
    )
    await store.change_schedules([DeclareSchedule(actor="p", app="shop", name="first", declaration=declaration)])
    term = (await store.acquire_lease(SUPERVISOR_LEASE, await store.register("p", 60.0), "p", 60.0)).term
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(COPY.encode(), {"count": SCHEDULES})
        if statistics == "now":
            connection.execute(b"ANALYZE")
    explaining = Explaining(monkeypatch)
    assert (await store.load_due_schedules(BATCH)).found == ()
    idle = explaining.taken()
    assert looked_at(idle, "select_due_schedules") == 0
    assert looked_at(idle, "select_next_look") == 1
    with psycopg.connect(url, autocommit=True) as connection:  # an hour passes
        connection.execute(b"UPDATE arriero.schedule SET look_at = 1, decided_until = decided_until - 3600000000,"
                           b" anchor = anchor - 3600000000")  # fmt: skip
        connection.execute(b"VACUUM ANALYZE arriero.schedule")
    due = await store.load_due_schedules(BATCH)
    assert len(due.found) == BATCH
    assert looked_at(explaining.taken(), "select_due_schedules") <= 2 * BATCH
    await store.change_schedules([fire_command(one.row, due.now, term) for one in due.found])
    written = explaining.taken()
    assert looked_at(written, "lock_schedules") <= 2 * BATCH
    await store.close()
    server().drop_database(name)


def test_roles_of_the_release_before_write_and_read_schedules_once_the_schema_is_brought_up_to_date() -> None:
    running, name = server(), f"rights_schedules_{worker()}"
    rights = {f"schedules_read_{worker()}": "SELECT", f"schedules_run_{worker()}": "SELECT, INSERT"}
    running.drop_database(name)
    owner = running.create_database(name)
    known = migrating.known_migrations
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrating, "known_migrations", lambda: known()[:2])
        schema_of(owner).migrate()
    asked = "SELECT has_table_privilege(%s, 'arriero.schedule', %s)"
    with psycopg.connect(owner, autocommit=True) as connection:
        for role, granted in rights.items():
            running.create_role(role)
            connection.execute(f"GRANT {granted} ON arriero.task TO {role}".encode())
        schema_of(owner).migrate()
        for role, granted in rights.items():
            found = {
                right for right in ("SELECT", "INSERT", "UPDATE", "DELETE")
                if connection.execute(asked.encode(), (role, right)).fetchone() == (True,)
            }  # fmt: skip
            assert found == ({"SELECT"} if granted == "SELECT" else {"SELECT", "INSERT", "UPDATE", "DELETE"})
    running.drop_database(name)
    with psycopg.connect(running.url(), autocommit=True) as connection:
        for role in rights:
            connection.execute(f"DROP ROLE {role}".encode())


@pytest.mark.parametrize("statistics", ["never", "now"])
async def test_a_pass_reads_no_run_that_has_ended_and_no_task_of_others(
    monkeypatch: pytest.MonkeyPatch, statistics: str
) -> None:
    name = f"runs_{statistics}_{worker()}"
    server().drop_database(name)
    url = server().create_database(name)
    store = PostgresStore(f"{url}?listen=off&prepare=off")
    await store.open()
    declaration = ScheduleDeclaration(
        workflow="fulfil", arguments="{}", policy=POLICY, timing=Timing(every=MICROSECONDS), overlap=Overlap.SKIP
    )
    await store.change_schedules([DeclareSchedule(actor="p", app="shop", name="first", declaration=declaration)])
    term = (await store.acquire_lease(SUPERVISOR_LEASE, await store.register("p", 60.0), "p", 60.0)).term
    await store.submit([submission("shop/first@2020-01-01T00:00:00Z"), submission("order-1")])
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(COPY_TASKS.encode(), {"count": SCHEDULES})
        connection.execute(b"UPDATE arriero.schedule SET look_at = 1, decided_until = decided_until - 3600000000")
        if statistics == "now":
            connection.execute(b"ANALYZE")
    explaining = Explaining(monkeypatch)
    (due,) = (await store.load_due_schedules(BATCH)).found
    (one,) = [one for one in explaining.taken() if one.name == "select_due_schedules"]
    assert (due.is_open, due.cancellable) == (True, "shop/first@2020-01-01T00:00:00Z")
    of_tasks = [scan for scan in one.scans() if scan["Relation Name"] == "task"]
    assert [scan.get("Index Name") for scan in of_tasks] == ["task_open_run"] * 2
    assert sum(scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0) for scan in of_tasks) == 2
    command = fire_command(due.row, store.now(), term)
    await store.change_schedules([msgspec.structs.replace(command, cancels=True)])
    (one,) = [one for one in explaining.taken() if one.name == "select_cancellable_runs"]
    assert [scan.get("Index Name") for scan in one.scans()] == ["task_open_run"]
    await store.close()
    server().drop_database(name)
