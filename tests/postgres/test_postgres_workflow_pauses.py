"""Paused workflows on PostgreSQL: who pauses one waits for claims under way, and SQL and callers' transactions are refused."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
from postgres_servers import database, emptied
from store_checks import disagreements, history_violations
from store_world import submission

from arriero import Agent, App, StoreError, WorkflowPaused, workflow
from arriero.model.answers import Claimed
from arriero.model.commands import Claim
from arriero.model.workflow_pauses import OperateWorkflow, PauseState, WorkflowPauseRow
from arriero.store.postgres import store as postgres_store
from arriero.store.postgres.store import PostgresStore

till = Agent("till")
WHY = {"by": "ana", "reason": "the release is wrong"}
PAUSE = OperateWorkflow(actor="client", app="shop", workflow="fulfil", state=PauseState.PAUSED, **WHY)


@till.step(effect_free=True)
def charge(order: str) -> str:
    return order


@workflow
async def fulfil(order: str) -> str:
    return await charge(order)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    found = emptied(database())
    yield found
    store = PostgresStore(found)
    await store.open()
    assert await history_violations(store) == []
    assert await disagreements(store) == []
    await store.close()


async def test_sql_and_a_callers_transaction_are_refused_by_name(url: str) -> None:
    app = App("shop", agents=[till], workflows=[fulfil], store=url)
    async with app.running():
        await app.workflow_named("fulfil").pause(refuse=True, **WHY)
        async with await psycopg.AsyncConnection.connect(url) as connection:
            with pytest.raises(
                WorkflowPaused, match=r"by ana since .*the release is wrong.*arriero workflow resume fulfil"
            ):
                await app.submit(fulfil("1"), task_id="1", connection=connection)
            submit = """SELECT arriero.submit('fulfil', '{"order": "1"}', task_id => '1')"""
            with pytest.raises(
                psycopg.errors.ObjectNotInPrerequisiteState, match="takes no new tasks: ana paused it"
            ) as raised:
                await connection.execute(submit)
            assert "arriero workflow resume fulfil --app-name shop" in (raised.value.diag.message_hint or "")
        await app.workflow_named("fulfil").resume(**WHY)
        async with await psycopg.AsyncConnection.connect(url) as connection:
            task = await app.submit(fulfil("1"), task_id="1", connection=connection)
        assert await task.result(timeout=60) == "1"


async def test_who_pauses_waits_for_the_claims_of_a_batch_under_way(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = PostgresStore(url), PostgresStore(url)
    await store.open()
    await other.open()
    number = await store.register("p1", 60.0)
    await store.submit([submission(app="shop")])
    with psycopg.connect(url) as batch:  # as begin_batch leaves it until the commit
        batch.execute(b"UPDATE arriero.writer SET batch_no = batch_no WHERE process_no = %s", (number,))
        monkeypatch.setattr(postgres_store, "PAUSE_SECONDS", 0.0)
        named = rf"a transaction of process {number} \(p1\) is still open after 0 s, .* nothing was changed\. Ask again"
        with pytest.raises(StoreError, match=named):
            await other.change_workflow_pause(PAUSE)
        assert await other.list_workflow_pauses() == []
        monkeypatch.undo()
    assert isinstance(await other.change_workflow_pause(PAUSE), WorkflowPauseRow)
    claim = Claim(actor="p1", process_no=number, workflows=("fulfil",), limit=1, probation=True, app="shop")
    (answer,) = await store.apply([claim])
    assert answer == Claimed(())
    await asyncio.gather(store.close(), other.close())


async def test_a_process_that_froze_in_its_batch_delays_a_pause_and_stops_no_other_process(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "PAUSE_SECONDS", 600.0)
    store, other = PostgresStore(url), PostgresStore(url)
    await store.open()
    await other.open()
    frozen, sound = await store.register("frozen", 60.0), await store.register("sound", 60.0)
    await store.submit([submission(str(number), app="shop") for number in range(2)])
    batch = psycopg.connect(url)
    batch.execute(b"UPDATE arriero.writer SET batch_no = batch_no WHERE process_no = %s", (frozen,))
    pausing = asyncio.ensure_future(other.change_workflow_pause(PAUSE))
    claim = Claim(actor="p1", process_no=sound, workflows=("fulfil",), limit=1, probation=True, app="shop")
    (answer,) = await store.apply([claim])
    assert isinstance(answer, Claimed)
    assert len(answer.tasks) == 1
    assert not pausing.done()
    batch.close()  # as the server ends it, 5 s after the process froze
    assert isinstance(await pausing, WorkflowPauseRow)
    (answer,) = await store.apply([claim])
    assert answer == Claimed(())
    await asyncio.gather(store.close(), other.close())
