"""Schedules on PostgreSQL beside transactions of others: what is locked keeps only its own schedule waiting."""

import asyncio

import psycopg
from core_schedules import POLICY, fire_command
from postgres_servers import database, emptied
from store_world import TestClock

from arriero.model import MICROSECONDS
from arriero.model.answers import Submitted
from arriero.model.schedules import DeclareSchedule, Overlap, ScheduleApplied, ScheduleDeclaration, Timing
from arriero.store.contract import SUPERVISOR_LEASE, Busy
from arriero.store.postgres.store import PostgresStore

HOURLY = Timing(every=3_600 * MICROSECONDS)


async def opened(clock: TestClock, url: str, *, overlap: Overlap = Overlap.ALL) -> tuple[PostgresStore, int]:
    """A store with three schedules that are due, and the term of its leader."""
    store = PostgresStore(url, clock=clock)
    await store.open()
    declaration = ScheduleDeclaration(workflow="fulfil", arguments="{}", policy=POLICY, timing=HOURLY, overlap=overlap)
    await store.change_schedules(
        [DeclareSchedule(actor="p", app="shop", name=name, declaration=declaration) for name in "abc"]
    )
    number = await store.register("leader", 60.0)
    term = (await store.acquire_lease(SUPERVISOR_LEASE, number, "leader", 60.0)).term
    clock.move(3_600)
    return store, term


async def test_an_id_that_an_open_transaction_has_keeps_only_its_own_schedule_waiting() -> None:
    url, clock = emptied(database(16)), TestClock()
    store, term = await opened(clock, url)
    commands = [fire_command(one.row, clock(), term) for one in (await store.load_due_schedules(10)).found]
    async with await psycopg.AsyncConnection.connect(url) as theirs:
        joined = store.submit_joined(commands[1].submits[0], theirs)
        assert asyncio.iscoroutine(joined)
        answer = await joined
        assert isinstance(answer, Submitted)
        answers = await store.change_schedules(commands)
        assert [type(one) for one in answers] == [ScheduleApplied, Busy, ScheduleApplied]
        await theirs.commit()
    (due,) = (await store.load_due_schedules(10)).found
    (again,) = await store.change_schedules([fire_command(due.row, clock(), term)])
    assert isinstance(again, ScheduleApplied)
    assert [isinstance(one, Submitted) and one.created for one in again.submitted] == [False]
    assert len(await store.list_tasks()) == 3
    await store.close()


async def test_two_stores_that_fire_the_same_at_once_submit_each_run_once() -> None:
    url, clock = emptied(database(16)), TestClock()
    store, term = await opened(clock, url, overlap=Overlap.QUEUE)
    other = PostgresStore(url, clock=clock)
    await other.open()
    for _ in range(5):
        found = (await store.load_due_schedules(10)).found
        commands = [fire_command(one.row, clock(), term) for one in found]
        await asyncio.gather(*(each.change_schedules(commands) for each in (store, other)))
        clock.move(3_600)
    tasks = await store.list_tasks()
    assert (len(tasks), len({task.task_id for task in tasks})) == (15, 15)
    rows = await store.list_schedules()
    assert [row.runs for row in rows] == [5, 5, 5]
    await other.close()
    await store.close()
