"""A table that somebody keeps locked for long, to rebuild it, costs only what is kept in it."""

import asyncio

import psycopg
import pytest
from postgres_servers import database, emptied

from arriero import Agent, App, Attempt, Retry, Supervision, workflow

SECONDS_MAX = 60.0
slow = Agent("slow")


@slow.step(complete_within=0.2, supervision=Supervision(attempts=9, complete_within_factor=10), retry=Retry(tries=1))
async def hang_once(attempt: Attempt) -> int:
    if attempt.number == 1:
        await asyncio.Event().wait()
    return attempt.number


@workflow
async def once() -> int:
    return await hang_once()


@pytest.mark.parametrize("table", ["status", "alert", "ledger"])
async def test_what_expires_is_recovered_while_somebody_has_a_table_of_upkeep_or_alerts_locked(table: str) -> None:
    url = emptied(database())
    app = App("slow", agents=[slow], workflows=[once], store=url)
    async with app.running():
        assert app.session.node is not None
        assert app.session.node.session is not None
        with psycopg.connect(url) as stranger:
            stranger.execute(f"LOCK TABLE arriero.{table} IN ACCESS EXCLUSIVE MODE".encode())
            upkeep = app.session.node.session._plan.upkeep
            assert upkeep is not None
            upkeep._due = dict.fromkeys(upkeep._due, 0.0)
            leader = app.session.node.session.leader
            renewed = leader._renewed_at
            task = await app.submit(once())
            assert await asyncio.wait_for(task.result(), SECONDS_MAX) > 1
            async with asyncio.timeout(SECONDS_MAX):
                while leader._renewed_at <= renewed:
                    await asyncio.sleep(0.01)
            assert leader.term == 1
            stranger.rollback()
