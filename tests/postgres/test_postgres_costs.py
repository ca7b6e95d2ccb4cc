"""What a task costs the server: rows written and links of history, counted."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from postgres_servers import server, worker

from arriero import Agent, App, Attempt, workflow

TASKS = 20
TABLES = ("task", "body", "step")
COUNTS = """
SELECT relname, n_tup_ins::int, n_tup_upd::int FROM pg_stat_user_tables
 WHERE schemaname = 'arriero' AND relname = ANY (%s)
"""

clerk = Agent("clerk", max_in_flight=100)


@clerk.step
async def echo(attempt: Attempt, text: str) -> str:
    return text


@workflow
async def three(text: str) -> str:
    await echo(text)
    await echo(text)
    return await echo(text)


@pytest.fixture
def url() -> Iterator[str]:
    name = f"costs_{worker()}"
    server().drop_database(name)
    yield server().create_database(name)
    server().drop_database(name)


def counted(url: str) -> dict[str, tuple[int, int]]:
    """Rows inserted and updated so far, as the server's statistics have them; they come a moment after the commits."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(COUNTS, (list(TABLES),)).fetchall()
    return {name: (inserted, updated) for name, inserted, updated in rows}


async def test_a_task_of_three_steps_writes_as_many_rows_as_on_sqlite(url: str) -> None:
    app = App("costs", agents=[clerk], workflows=[three])
    async with app.running(store=url):
        await (await app.submit(three("first"), delay=0.001)).result()  # now nothing waits: others begin at once
        tasks = await asyncio.gather(*(app.submit(three(f"{number}")) for number in range(TASKS)))
        await asyncio.gather(*(task.result() for task in tasks))
    inserted, updated = TASKS + 1, 3 * TASKS + 5
    expected = {"task": (inserted, updated), "body": (inserted, 0), "step": (3 * inserted, 3 * inserted)}
    async with asyncio.timeout(60):
        while any(counted(url)[table] != rows for table, rows in expected.items()):
            await asyncio.sleep(0.05)
    with psycopg.connect(url) as connection:
        links = connection.execute("SELECT link, count(*) FROM arriero.task GROUP BY link").fetchall()
    assert sorted(links) == [(4, TASKS), (6, 1)]  # a link of history for each commit
