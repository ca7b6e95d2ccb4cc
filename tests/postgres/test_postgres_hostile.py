"""What others do on the same server costs only what it must: locks, functions of their own, ended connections, clocks."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from postgres_servers import database, emptied
from store_world import TestClock, World, step, submission

from arriero.errors import ArrieroError, InvalidInput
from arriero.model import MICROSECONDS
from arriero.model.answers import Applied, Claimed, Refusal, Submitted
from arriero.model.commands import Claim
from arriero.store import committer
from arriero.store.contract import Busy
from arriero.store.postgres import lanes
from arriero.store.postgres.session import PostgresSession, Statements, TransactionLimits
from arriero.store.postgres.store import PostgresStore
from arriero.store.postgres.target import target_of

WITHIN_SECONDS = 60.0
QUICK = TransactionLimits(lock=0.2, statement=10.0, idle=5.0)


@pytest.fixture
def url() -> str:
    return emptied(database())


@pytest.fixture
async def store(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresStore]:
    for name in ("ENGINE", "OTHERS", "RENEWALS"):
        monkeypatch.setattr(lanes, name, QUICK)
    made = PostgresStore(f"{url}?listen=off", clock=TestClock())
    await made.open()
    yield made
    await made.close()


NUMBER_OF_BATCH = "SELECT batch_no FROM arriero.writer WHERE process_no = %s"


@pytest.fixture
def world(store: PostgresStore) -> World:
    assert isinstance(store._clock, TestClock)
    return World(store, store._clock)


def _stranger(url: str) -> "psycopg.Connection[tuple[Any, ...]]":
    return psycopg.connect(url)


# --- locks
@pytest.mark.parametrize("table", ["step", "task", "writer", "body"])
async def test_a_row_that_a_stranger_has_locked_holds_up_its_own_task_and_no_other(
    world: World, url: str, table: str
) -> None:
    another = await world.store.register("p2", 3600.0)
    await world.store.register("p1", 3600.0)
    first, second = await world.held("order-1"), await world.held("order-2")
    first, (charge,) = await world.running(first, "charge")
    second, (other,) = await world.running(second, "charge")
    batch = [world.report_command(charge), world.report_command(other)]
    with _stranger(url) as stranger:
        by = {"step": f"step_no = {charge.step_no}", "writer": f"process_no = {another}"}.get(
            table, f"task_no = {first.task_no}"
        )
        locked = stranger.execute(f"SELECT 1 FROM arriero.{table} WHERE {by} FOR UPDATE".encode())
        assert locked.rowcount == 1
        one, two = await asyncio.wait_for(world.store.apply(batch), WITHIN_SECONDS)
        assert isinstance(two, Applied)
        assert isinstance(one, Busy if table in ("step", "task") else Applied)
        stranger.rollback()
    if isinstance(one, Busy):
        (again,) = await world.store.apply(batch[:1])
        assert isinstance(again, Applied)


async def test_a_lease_that_another_is_just_changing_holds_up_only_what_is_done_under_it(
    world: World, url: str
) -> None:
    process_no = await world.store.register("p1", 3600.0)
    term = await world.lead(process_no)
    first, (charge,) = await world.running(await world.held("order-1"), "charge")
    second, (other,) = await world.running(await world.held("order-2"), "charge")
    world.clock.to(charge.complete_by)
    with _stranger(url) as stranger:
        stranger.execute("SELECT 1 FROM arriero.lease FOR UPDATE")
        batch = [world.recover_command(charge, term), world.report_command(other, fence=99)]
        one, two = await asyncio.wait_for(world.store.apply(batch), WITHIN_SECONDS)
        assert isinstance(one, Busy)
        assert isinstance(two, Refusal)
        lease = await asyncio.wait_for(world.store.acquire_lease("supervisor", 99, "p2", 6.0), WITHIN_SECONDS)
        assert lease.holder == process_no
        stranger.rollback()
    (recovered,) = await world.store.apply(batch[:1])
    assert isinstance(recovered, Applied)
    assert first.task_no != second.task_no


async def test_who_cannot_be_kept_is_found_and_the_others_are_kept(world: World) -> None:
    tasks = [await world.held(f"order-{number}") for number in range(3)]
    good = [world.advance_command(task, opened=(step(),)) for task in tasks]
    with psycopg.connect(database(), autocommit=True) as connection:
        connection.execute(
            f"ALTER TABLE arriero.step ADD CONSTRAINT unlucky CHECK (task_no <> {tasks[1].task_no})".encode()
        )
        try:
            answers = await world.store.apply(good)
        finally:
            connection.execute("ALTER TABLE arriero.step DROP CONSTRAINT unlucky")
    assert [isinstance(answer, Applied) for answer in answers] == [True, False, True]
    assert isinstance(answers[1], ArrieroError)
    assert "unlucky" in str(answers[1])


async def test_a_submission_that_is_unfit_beside_a_locked_one_costs_the_others_neither_their_answers_nor_a_second_try(
    world: World, url: str
) -> None:
    await world.submit("locked")
    batch = [submission(task_id) for task_id in ("first", "second", "locked")] + [
        submission("unfit", workflow="a\ud800b")
    ]
    with _stranger(url) as stranger:
        stranger.execute("SELECT 1 FROM arriero.task WHERE task_id = 'locked' FOR UPDATE")
        first, second, locked, unfit = await asyncio.wait_for(world.store.submit(batch), WITHIN_SECONDS)
    assert [getattr(answer, "created", None) for answer in (first, second)] == [True, True]
    assert isinstance(locked, Busy)
    assert isinstance(unfit, InvalidInput)


# --- epochs
async def test_a_registration_under_way_does_not_slip_past_a_new_epoch(url: str, store: PostgresStore) -> None:
    target = target_of(url)
    session = PostgresSession(target, Statements(target.schema), limits=QUICK)
    with _stranger(url) as slow:
        slow.execute(session._statements("insert_process"), {"instance": "slow", "lease_until": 2**60, "about": "{}"})
        opening = asyncio.ensure_future(store.new_epoch("operator"))
        with pytest.raises(ArrieroError):  # it waits for the registration, as long as its lock limit lets it
            await asyncio.wait_for(opening, WITHIN_SECONDS)
        slow.commit()
    assert await store.new_epoch("operator") == 2
    assert (await store.known_processes())[1] == []
    session.close()


async def test_a_batch_that_waits_for_a_new_epoch_to_open_is_refused_and_has_written_nothing(
    world: World, url: str
) -> None:
    process_no = await world.store.register("p1", 3600.0)
    task, (charge,) = await world.running(await world.held("order-1"), "charge")
    waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ('tuple', 'transactionid')"
    with _stranger(url) as opening, psycopg.connect(url, autocommit=True) as observer:
        opening.execute("UPDATE arriero.writer SET epoch = NULL")
        (before,) = opening.execute(NUMBER_OF_BATCH, (process_no,)).fetchone() or (None,)
        reporting = asyncio.ensure_future(world.store.apply([world.report_command(charge)]))
        while observer.execute(waits).fetchone() == (0,):
            await asyncio.wait({reporting}, timeout=0.001)
            assert not reporting.done(), "it did not wait for the epoch"
        opening.commit()
        (answer,) = await asyncio.wait_for(reporting, WITHIN_SECONDS)
        assert observer.execute(NUMBER_OF_BATCH, (process_no,)).fetchone() == (before,)
    assert isinstance(answer, Refusal)
    assert answer.verdict == "old_epoch"
    assert await world.task(task.task_no) == task


# --- functions of others
async def test_functions_and_operators_in_somebody_s_search_path_are_not_run(url: str) -> None:
    trap = """
        CREATE FUNCTION public.to_json(text) RETURNS json LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
        CREATE FUNCTION public.trap(double precision, integer) RETURNS double precision LANGUAGE plpgsql
            AS $$ BEGIN RAISE 'trapped'; END $$;
        CREATE OPERATOR public.* (LEFTARG = double precision, RIGHTARG = integer, FUNCTION = public.trap)
    """
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(trap.encode())
        try:
            store = PostgresStore(f"{url}?listen=off")
            await store.open()
            process_no = await store.register("p1", 60.0)
            await store.renew(process_no, 60.0)
            with psycopg.connect(url) as callers:
                joined = store.submit_joined(submission("joined", delay=1.5, reply_to="web"), callers)
                assert isinstance(joined, Submitted)
                callers.commit()
            (answer,) = await store.submit([submission("order-1")])
            assert isinstance(answer, Submitted)
            await store.close()
        finally:
            connection.execute(
                "DROP OPERATOR public.* (double precision, integer); DROP FUNCTION public.trap; DROP FUNCTION public.to_json"
            )


# --- connections and clocks
async def test_what_is_asked_on_a_connection_that_the_server_has_ended_is_asked_again(
    store: PostgresStore, url: str
) -> None:
    process_no = await store.register("p1", 3600.0)
    await store.submit([submission("order-1")])
    await store.renew(process_no, 3600.0)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    (answer,) = await store.submit([submission("order-2")])
    assert isinstance(answer, Submitted)
    assert (await store.renew(process_no, 3600.0)).renewed
    (claimed,) = await store.apply(
        [Claim(actor="p1", process_no=process_no, workflows=("fulfil",), limit=5, probation=True)]
    )
    assert isinstance(claimed, Claimed)
    assert len(claimed.tasks) == 2


async def test_where_the_server_s_clock_goes_back_the_store_s_goes_on_and_never_back(url: str) -> None:
    store = PostgresStore(f"{url}?listen=off")
    await store.open()
    process_no = await store.register("p1", 3600.0)
    before = (await store.renew(process_no, 3600.0)).now
    ahead = 3600 * MICROSECONDS
    with psycopg.connect(url, autocommit=True) as connection:  # as if it had been an hour ahead until now
        connection.execute("UPDATE arriero.process SET renewed_at = renewed_at + %s", (ahead,))
    instants = [(await store.renew(process_no, 3600.0)).now for _ in range(3)]
    assert before + ahead <= instants[0] < instants[1] < instants[2]
    await store.close()


async def test_a_drain_ends_although_a_stranger_keeps_a_task(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from arriero import Agent, App, Attempt, workflow
    from arriero.runtime import node

    monkeypatch.setattr(node, "DRAIN_SECONDS_MAX", 0.5)
    monkeypatch.setattr(committer, "BUSY_SECONDS_MAX", 0.3)
    doors = Agent("doors")
    opened, waits = asyncio.Event(), asyncio.Event()

    @doors.step
    async def wait(attempt: Attempt) -> None:
        opened.set()
        await waits.wait()

    @workflow
    async def stay() -> None:
        await wait()

    app = App("kept", agents=[doors], workflows=[stay], store=f"{url}?listen=off")
    with _stranger(url) as stranger:
        async with app.running():
            await app.submit(stay(), task_id="kept")
            await asyncio.wait_for(opened.wait(), WITHIN_SECONDS)
            stranger.execute("SELECT 1 FROM arriero.task FOR UPDATE")
            waits.set()
        stranger.rollback()
    async with app.running():
        assert await app.task("kept", stay).result(timeout=WITHIN_SECONDS) is None
