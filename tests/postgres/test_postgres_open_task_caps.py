"""The cap on open tasks on PostgreSQL: processes that submit at once, and how open tasks are counted."""

import asyncio

import psycopg
import pytest
from postgres_servers import database, emptied
from store_world import submission

from arriero.model.answers import TOO_MANY_OPEN_TASKS, Refusal, Submitted
from arriero.store.postgres.lanes import ENGINE
from arriero.store.postgres.session import Statements
from arriero.store.postgres.store import PostgresStore

CAP = 10
COUNT = "arriero.task WHERE submitter = 'partner'"


@pytest.fixture
def url() -> str:
    return emptied(database(kind="joined"))


async def test_two_processes_that_submit_at_once_do_not_pass_the_cap_together(url: str) -> None:
    stores = [PostgresStore(url) for _ in range(2)]
    for store in stores:
        await store.open()

    async def submit(number: int) -> str:
        command = submission(f"t{number}", submitter="partner", open_tasks_max=CAP, convoy=f"k{number % 3}")
        (answer,) = await stores[number % 2].submit([command])
        assert isinstance(answer, Submitted | Refusal), answer
        return "new" if isinstance(answer, Submitted) else answer.verdict

    answers = await asyncio.gather(*map(submit, range(4 * CAP)))
    assert sorted(answers) == ["new"] * CAP + [TOO_MANY_OPEN_TASKS] * (3 * CAP)
    for store in stores:
        await store.close()
    with psycopg.connect(url) as connection:
        assert connection.execute(f"SELECT count(*) FROM {COUNT}".encode()).fetchone() == (CAP,)


async def test_open_tasks_of_a_submitter_are_counted_by_an_index_whatever_the_statistics_are_of(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    for of, count in ((None, 1_000), ("partner", 30), ("other", 1_000)):
        cap = None if of is None else 1_000
        batch = [submission(f"{of}-{n}", submitter=of, open_tasks_max=cap) for n in range(count)]
        assert all(isinstance(answer, Submitted) for answer in await store.submit(batch))
    await store.close()
    statements = Statements("arriero")
    asked = {"submitter": "partner", "limit": 20}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE arriero.task SET state = 'processed' WHERE submitter = 'other'")
        for analyzed in (False, True):
            if analyzed:
                connection.execute("VACUUM ANALYZE arriero.task")
            with connection.transaction():
                connection.execute(statements("settings"), ENGINE.parameters(local=True))
                sql = f"EXPLAIN (ANALYZE, FORMAT JSON) {statements('count_open_tasks')}"
                explained = connection.execute(sql.encode(), asked).fetchone()
            assert explained is not None
            scan = explained[0][0]["Plan"]["Plans"][0]["Plans"][0]
            while "Index Name" not in scan:
                (scan,) = scan["Plans"]
            assert (scan["Index Name"], scan.get("Rows Removed by Filter", 0)) == ("task_submitter_open", 0)
            assert scan["Actual Rows"] <= 30
