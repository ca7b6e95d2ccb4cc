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


async def test_who_pauses_waits_for_the_claims_of_a_batch_under_way(url: str) -> None:
    store, other = PostgresStore(url), PostgresStore(url)
    await store.open()
    await other.open()
    number = await store.register("p1", 60.0)
    await store.submit([submission(app="shop")])
    with psycopg.connect(url) as batch:  # as begin_batch leaves it until the commit
        batch.execute(b"UPDATE arriero.writer SET batch_no = batch_no WHERE process_no = %s", (number,))
        with pytest.raises(StoreError, match="lock timeout"):
            await other.change_workflow_pause(PAUSE)
    assert isinstance(await other.change_workflow_pause(PAUSE), WorkflowPauseRow)
    claim = Claim(actor="p1", process_no=number, workflows=("fulfil",), limit=1, probation=True, app="shop")
    (answer,) = await store.apply([claim])
    assert answer == Claimed(())
    await asyncio.gather(store.close(), other.close())
