"""What others have open, and what looks at everything, does not hold up the engine."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import psycopg
import pytest
from msgspec.structs import replace
from postgres_servers import server, worker

from arriero.model import Instant, StepState, TaskState
from arriero.model.answers import Applied, Claimed, Submitted, Taken
from arriero.model.commands import Claim, ClaimShare, Take
from arriero.store.contract import SUPERVISOR_LEASE, Busy, Purge
from arriero.store.postgres import task_rows
from arriero.store.postgres.session import Statements, Transaction
from arriero.store.postgres.store import PostgresStore
from bench.growth import AGENT, NAMES, WORKFLOW, Life, new_step, submission, untimed

ENDED = 20_000


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    name = f"growth_{worker()}"
    server().drop_database(name)
    yield server().create_database(name)
    server().drop_database(name)


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    """On a schema of its own."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS arriero CASCADE")
    store = PostgresStore(f"{url}?listen=off")
    await store.open()
    yield store
    await store.close()


@contextmanager
def opened(url: str, *statements: str) -> Iterator[psycopg.Connection[Any]]:
    """Another program's transaction that stays open after these statements."""
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement.encode())
        yield connection
        connection.rollback()


async def wait_until(url: str, query: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        async with asyncio.timeout(60):
            while connection.execute(query.encode()).fetchone() != (True,):
                await asyncio.sleep(0.01)


def claim(process_no: int, limit: int = 100) -> Claim:
    return Claim(actor="p", process_no=process_no, workflows=(WORKFLOW,), limit=limit, probation=True)


OLD_SNAPSHOT = ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM arriero.task")


async def test_a_round_of_life_goes_on_beside_an_old_snapshot(store: PostgresStore, url: str) -> None:
    life = Life(store)
    await life.begin()
    with psycopg.connect(url) as joining, opened(url, *OLD_SNAPSHOT):
        for _ in range(3):
            await life.round(untimed, joining)


async def test_what_is_due_is_claimed_behind_thousands_of_claimed_ones_that_an_old_snapshot_keeps(
    store: PostgresStore, url: str
) -> None:
    process_no = await store.register("p", 60.0)
    for first in range(0, ENDED, 5000):
        await store.submit([submission(f"before-{first + number}") for number in range(5000)])
    with opened(url, *OLD_SNAPSHOT):
        with psycopg.connect(url, autocommit=True) as others:  # as if they had been claimed and ended
            others.execute("UPDATE arriero.task SET locked_by = 1000, state = 'processing'")
            others.execute(
                "UPDATE arriero.task SET locked_by = NULL, not_before = NULL, state = 'processed', ended_at = 1"
            )
        await store.submit([submission(f"after-{number}") for number in range(100)])
        assert (await store.due((WORKFLOW,), ())).tasks
        claimed: list[str] = []
        for _ in range(5):
            (answer,) = await store.apply([claim(process_no, 20)])
            assert isinstance(answer, Claimed)
            claimed += [loaded.task.task_id for loaded in answer.tasks]
    assert sorted(claimed) == sorted(f"after-{number}" for number in range(100))


async def test_a_task_whose_row_somebody_has_locked_is_passed_over_and_all_others_go_on(
    store: PostgresStore, url: str
) -> None:
    life = Life(store)
    process_no = await store.register("p", 60.0)
    await store.submit([submission("held-1"), submission("held-2")])
    (answer,) = await store.apply([claim(process_no)])
    assert isinstance(answer, Claimed)
    held = [loaded.task for loaded in answer.tasks]
    requests = [life.advance(task, opened=[new_step("charge")]) for task in held]
    tasks = [one.task for one in await store.apply(requests) if isinstance(one, Applied)]
    await store.submit([submission("free-1"), submission("free-2")])
    locked = "SELECT 1 FROM arriero.task WHERE task_id IN ('held-1', 'free-1') FOR UPDATE"
    with opened(url, locked):
        (answer,) = await store.apply([claim(process_no)])
        assert isinstance(answer, Claimed)
        assert [loaded.task.task_id for loaded in answer.tasks] == ["free-2"]
        take = Take(actor="p", process_no=process_no, room=((AGENT, 10),), names=NAMES, probation=None)
        (taken,) = await store.apply([take])
        assert isinstance(taken, Taken)
        assert [dispatch.task_id for dispatch in taken.dispatches] == ["held-2"]
        found = [await store.load(task.task_no) for task in tasks]
        advances = [life.advance(loaded.task, opened=[new_step("ship")]) for loaded in found if loaded]
        first, second = await store.apply(advances)
        assert isinstance(first, Busy)
        assert isinstance(second, Applied)
        again = [submission("free-1"), submission("new"), submission("held-2")]
        busy, new, known = await store.submit(again)
        assert isinstance(busy, Busy)
        assert isinstance(new, Submitted)
        assert new.created
        assert known == Submitted(tasks[1].task_no, False)
        assert (await store.renew(process_no, 60.0)).renewed
        await store.load_overdue(10, 60.0, 2.0)
        await store.survey()
    (answer,) = await store.apply([claim(process_no)])
    assert isinstance(answer, Claimed)
    assert {loaded.task.task_id for loaded in answer.tasks} == {"free-1", "new"}


async def test_a_share_of_a_claim_does_not_read_the_backlog_of_another_workflow(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process_no = await store.register("p", 60.0)
    backlog = [replace(submission(f"report-{n}"), workflow="report", priority=9) for n in range(3_000)]
    await store.submit([*backlog, submission("mine-1"), submission("mine-2")])
    buffers: list[int] = []
    ask = Transaction.ask

    def counting(transaction: Transaction, name: str, parameters: Mapping[str, Any] | None = None) -> Any:
        if name == "select_claimable_of_share":
            transaction.plain("SAVEPOINT counted")
            sql = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + transaction._statements(name)
            row = transaction._pipeline.ask(sql, parameters).fetchone()
            transaction.plain("ROLLBACK TO SAVEPOINT counted")
            assert row is not None
            buffers.append(row[0][0]["Plan"]["Shared Hit Blocks"] + row[0][0]["Plan"]["Shared Read Blocks"])
        return ask(transaction, name, parameters)

    monkeypatch.setattr(Transaction, "ask", counting)
    shares = (ClaimShare((WORKFLOW,), 3, 0), ClaimShare(("nothing",), 1, 0))
    (answer,) = await store.apply([replace(claim(process_no), shares=shares)])
    assert isinstance(answer, Claimed)
    assert [loaded.task.task_id for loaded in answer.tasks] == ["mine-1", "mine-2"]
    assert len(buffers) >= 2
    assert max(buffers) < 200


async def test_others_that_hold_the_first_tasks_are_passed_over_and_the_next_ones_are_claimed(
    store: PostgresStore, url: str
) -> None:
    process_no = await store.register("p", 60.0)
    await store.submit([replace(submission(f"task-{n}"), priority=9 - n // 50) for n in range(150)])
    first = "SELECT 1 FROM arriero.task WHERE task_no <= (SELECT min(task_no) FROM arriero.task) + 79 FOR UPDATE"
    with opened(url, first):
        (answer,) = await store.apply([replace(claim(process_no), limit=30)])
        assert isinstance(answer, Claimed)
        assert [loaded.task.task_id for loaded in answer.tasks] == [f"task-{n}" for n in range(80, 110)]


async def test_a_purge_passes_over_an_ended_task_that_somebody_has_locked(store: PostgresStore, url: str) -> None:
    await store.register("p", 60.0)
    await store.submit([submission("locked"), submission("other")])
    with psycopg.connect(url, autocommit=True) as others:
        others.execute("UPDATE arriero.task SET state = 'processed', ended_at = 1, not_before = NULL")
    which = Purge(states=(TaskState.PROCESSED,), ended_before=Instant(2))
    with opened(url, "SELECT 1 FROM arriero.task WHERE task_id = 'locked' FOR UPDATE"):
        assert (await store.purge(which, actor="p", limit=10)).count == 1
    assert [task.task_id for task in await store.list_tasks()] == ["locked"]


@pytest.mark.parametrize("looking", [PostgresStore.survey, PostgresStore.counts, PostgresStore.list_tasks])
async def test_the_engine_goes_on_while_somebody_looks_at_everything(
    store: PostgresStore, url: str, looking: Callable[[PostgresStore], Coroutine[Any, Any, object]]
) -> None:
    """The look is made to take long by a lock on a table that the engine's question does not read."""
    with opened(url, "LOCK TABLE arriero.task IN ACCESS EXCLUSIVE MODE"):
        look = asyncio.create_task(looking(store))
        await wait_until(url, "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted")
        await store.known_processes()
        assert not look.done()
    await look


async def test_a_leader_renews_its_lease_while_a_purge_takes_long(store: PostgresStore, url: str) -> None:
    process_no = await store.register("p", 60.0)
    lease = await store.acquire_lease(SUPERVISOR_LEASE, process_no, "p", 60.0)
    which = Purge(states=(TaskState.PROCESSED,), ended_before=Instant(1))
    with opened(url, "LOCK TABLE arriero.task IN ACCESS EXCLUSIVE MODE"):
        purging = asyncio.create_task(store.purge(which, actor="p", limit=10))
        await wait_until(url, "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted")
        assert await store.renew_lease(SUPERVISOR_LEASE, process_no, lease.term, 60.0)
        assert not purging.done()
    await purging


async def test_the_tables_that_change_are_vacuumed_after_so_many_changes_however_large_they_are(
    store: PostgresStore, url: str
) -> None:
    query = "SELECT relname, reloptions FROM pg_class WHERE relnamespace = 'arriero'::regnamespace AND relkind = 'r'"
    with psycopg.connect(url) as connection:
        options = {
            name: dict(option.split("=") for option in given or ())
            for name, given in connection.execute(query.encode()).fetchall()
        }
    for table in ("task", "step", "process", "writer", "status"):
        assert float(options[table]["autovacuum_vacuum_scale_factor"]) == 0
        assert int(options[table]["autovacuum_vacuum_threshold"]) <= 20_000
    for table in ("task", "step"):
        assert float(options[table]["autovacuum_vacuum_cost_delay"]) == 0


async def test_room_is_left_in_the_page_of_a_task_which_changes_without_its_indexes_and_not_of_a_step_which_never_does(
    store: PostgresStore, url: str
) -> None:
    life = Life(store)
    process_no = await store.register("p", 60.0)
    await store.submit([submission("one")])
    (answer,) = await store.apply([claim(process_no)])
    assert isinstance(answer, Claimed)
    (applied,) = await store.apply([life.advance(answer.tasks[0].task, opened=[new_step("charge")])])
    assert isinstance(applied, Applied)
    between = msgspec.structs.replace(applied.task, revision=9, opened_count=2, result_count=1, link=9, head="next")
    ended = msgspec.structs.replace(between, state=TaskState.PROCESSED, locked_by=None)
    (step,) = applied.steps
    taken = msgspec.structs.replace(step, state=StepState.RUNNING, locked_by=process_no, complete_by=Instant(1))
    done = msgspec.structs.replace(taken, state=StepState.COMPLETED, locked_by=None, complete_by=None)
    statements, updates = Statements("arriero"), []
    with psycopg.connect(url) as connection:
        for table, write, row in (
            ("task", task_rows.UPDATE_TASKS, between),
            ("task", task_rows.UPDATE_TASKS, ended),
            ("step", task_rows.UPDATE_STEPS, taken),
            ("step", task_rows.UPDATE_STEPS, done),
        ):
            connection.execute(statements.fill(write.of_one).encode(), msgspec.structs.asdict(row))
            counted = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relid = %s::regclass"
            updates.append((table, connection.execute(counted.encode(), [f"arriero.{table}"]).fetchone()))
        connection.rollback()
        left = "SELECT relname FROM pg_class WHERE oid = ANY (%s::regclass[]) AND array_to_string(reloptions, ',') LIKE '%%fillfactor%%'"
        with_room = connection.execute(left.encode(), [["arriero.task", "arriero.step"]]).fetchall()
    assert updates == [("task", (1, 1)), ("task", (2, 1)), ("step", (1, 0)), ("step", (2, 0))]
    assert with_room == [("task",)]
