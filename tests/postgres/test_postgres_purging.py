"""A key that is purged while others submit to it: nobody fails for it, nothing is lost."""

import asyncio
import threading
from collections.abc import AsyncIterator

import psycopg
import pytest
from postgres_servers import database, emptied
from store_checks import broken_links, disagreements, history_violations
from store_world import TestClock, World, submission
from test_postgres_convoys import PATIENCE, SOMEBODY_WAITS, until

from arriero import TransactionConflict
from arriero.model import Verb
from arriero.model.answers import Submitted
from arriero.model.commands import Operate, Report
from arriero.model.moves import Process
from arriero.store.contract import Busy, PurgeNamed
from arriero.store.engine.transactions import Lane
from arriero.store.engine.upkeep import NamedRows, purge_named
from arriero.store.postgres.store import PostgresStore
from arriero.store.postgres.store_rows import PostgresRows

KEY = "customer-7"


@pytest.fixture
def url() -> str:
    return emptied(database(kind="purging"))


@pytest.fixture
async def world(url: str) -> AsyncIterator[World]:
    clock = TestClock()
    store = PostgresStore(f"{url}?listen=off", clock=clock)
    await store.open()
    yield World(store, clock, looks_often=False)
    assert await history_violations(store) == []
    assert await disagreements(store) == []
    assert await broken_links(store) == []
    await store.close()


class Slowly:
    """A purge of the key that has removed all of it, and does not commit before it is told."""

    def __init__(self, world: World, task_no: int) -> None:
        self.removed, self._may_commit = threading.Event(), threading.Event()
        self._found = NamedRows(True, (task_no,), 1)
        self._which = PurgeNamed(what="convoy", name=KEY, ended_before=world.clock())
        assert isinstance(world.store, PostgresStore)
        self.done = asyncio.create_task(world.store._write(self._purge, Lane.UPKEEP))

    def _purge(self, rows: PostgresRows) -> None:
        answer = purge_named(self._which, self._found, rows, rows.read_clock(), "janitor", 100)
        rows.flush()
        assert answer.is_done
        self.removed.set()
        assert self._may_commit.wait(PATIENCE)

    async def ends(self) -> None:
        self._may_commit.set()
        await self.done


@pytest.fixture
async def purged(world: World) -> AsyncIterator[Slowly]:
    await world.process()
    await world.submit("old", convoy=KEY)
    (loaded,) = await world.claim()
    await world.advance(loaded.task, ending=Process("1"))
    slowly = Slowly(world, loaded.task.task_no)
    assert await asyncio.to_thread(slowly.removed.wait, PATIENCE)
    yield slowly
    await slowly.ends()


async def test_a_submission_of_ours_is_told_to_wait_and_then_makes_the_key_anew(world: World, purged: Slowly) -> None:
    for task_id in ("old", "new"):
        assert isinstance((await world.store.submit([submission(task_id, convoy=KEY)]))[0], Busy)
    waiting = asyncio.create_task(world.store.submit([submission("new", convoy=KEY)]))
    await purged.ends()
    (answer,) = await waiting
    while isinstance(answer, Busy):
        (answer,) = await world.store.submit([submission("new", convoy=KEY)])
    assert answer == Submitted(answer.task_no, True)
    found = await world.store.find_convoy(KEY)
    assert found is not None
    assert ([task.task_id for task in found.members], found.convoy.convoy_no) == (["new"], 2)


async def test_a_stranger_who_waits_for_the_key_is_told_to_run_the_transaction_again(
    world: World, purged: Slowly, url: str
) -> None:
    assert isinstance(world.store, PostgresStore)
    with psycopg.connect(url) as theirs:
        submit = lambda: world.store.submit_joined(submission("new", convoy=KEY), theirs)  # type: ignore[attr-defined]  # noqa: E731
        waiting = asyncio.create_task(asyncio.to_thread(submit))
        await until(url, SOMEBODY_WAITS)
        await purged.ends()
        with pytest.raises(TransactionConflict, match="was purged just now"):
            await waiting
        theirs.rollback()
        again = submit()
        assert isinstance(again, Submitted)
        assert again.created


async def test_a_task_that_comes_between_the_look_and_the_locks_keeps_its_key(world: World) -> None:
    await world.process()
    task_no = await world.submit("old", convoy=KEY)
    (loaded,) = await world.claim()
    await world.advance(loaded.task, ending=Process("1"))
    await world.submit("new", convoy=KEY)
    assert isinstance(world.store, PostgresStore)
    which = PurgeNamed(what="convoy", name=KEY, ended_before=world.clock())
    found = NamedRows(True, (task_no,), 1)
    answer = await world.store._write(
        lambda rows: purge_named(which, found, rows, rows.read_clock(), "janitor", 100), Lane.UPKEEP
    )
    assert answer.kept == f"convoy '{KEY}': a task came to it just now; ask again"
    assert len(await world.store.list_tasks()) == 2


async def test_a_task_that_another_transaction_has_open_is_not_waited_for(world: World, url: str) -> None:
    await world.process()
    await world.held("old")
    with psycopg.connect(url) as theirs:
        theirs.execute("SELECT 1 FROM arriero.task FOR NO KEY UPDATE")
        which = PurgeNamed(what="task", name="old", ended_before=world.clock())
        with pytest.raises(Busy, match="another transaction has a task of it open"):
            await world.store.purge_named(which, actor="janitor", limit=1)


async def test_a_release_that_does_not_know_edits_and_late_answers_removes_them_with_the_task(
    world: World, url: str
) -> None:
    await world.process()
    task, (charge,) = await world.running(await world.held(), "charge")
    report = world.report_command(charge, attempt=1, complete_by=charge.complete_by).report
    await world.refused(Report(actor="p", process_no=1, report=report, late=True), "late")
    action = {"actor": "ann", "by": "ann", "reason": "in cash", "task_no": task.task_no, "incarnation": 1}
    await world.written(Operate(verb=Verb.ANSWER, step=1, result='"receipt"', **action))
    assert len(await world.store.edits(task.task_no)) == len(await world.store.late_answers(task.task_no)) == 1
    with psycopg.connect(url, autocommit=True) as connection:  # as a purge of release 0.4.0 does
        for table in ("history", "alert", "body", "step", "task"):
            connection.execute(f"DELETE FROM arriero.{table}".encode())
    assert await world.store.edits(task.task_no) == []
    assert await world.store.late_answers(task.task_no) == []
