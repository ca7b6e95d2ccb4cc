"""Two Apps that start at once on one database, each from a process of its own."""

import asyncio

import msgspec
import psycopg
import pytest
from postgres_servers import database, emptied
from store_world import submission

from arriero import Agent, App
from arriero.errors import AppCollision
from arriero.model.processes import ProcessAbout
from arriero.store.postgres.store import PostgresStore

PATIENCE = 60.0
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0 AND datname = current_database()"


def about(app: str) -> str:
    return msgspec.json.encode(ProcessAbout(app=app, workflows=("fulfil",))).decode()


async def test_who_registers_while_another_app_is_registering_waits_and_is_then_refused() -> None:
    url = emptied(database())
    store = PostgresStore(url)
    await store.open()
    await store.submit([submission()])  # nobody says whose it is
    with psycopg.connect(url) as first, psycopg.connect(url, autocommit=True) as watching:
        first.execute("SELECT 1 FROM arriero.meta WHERE name = 'store_id' FOR NO KEY UPDATE")
        row = ("shop-1", about("shop"))
        first.execute(
            "INSERT INTO arriero.process (instance, lease_until, retired, about) VALUES (%s, 0, true, %s)", row
        )
        second = asyncio.ensure_future(store.register("travel-1", 3.0, about("travel")))
        async with asyncio.timeout(PATIENCE):
            while not second.done() and watching.execute(BLOCKED.encode()).fetchone() == (0,):
                await asyncio.sleep(0.01)
        assert not second.done()
        first.commit()
        with pytest.raises(AppCollision, match="App 'travel' and App 'shop'"):
            await second
    await store.close()


async def test_threads_join_the_server_that_the_event_loop_was_given_with_its_password() -> None:
    url = emptied(database())
    echoes = Agent("echoes")

    @echoes.step
    async def echo(text: str) -> str:
        return text

    app = App("threads", agents=[echoes])

    def submit_in_a_transaction(task_id: str) -> str:
        with psycopg.connect(url) as connection:
            app.sync.submit(echo(task_id), task_id=task_id, connection=connection)
        result: str = app.sync.task(task_id).result(PATIENCE)
        return result

    async with app.running(store=url):
        threads = [asyncio.to_thread(submit_in_a_transaction, f"t-{number}") for number in range(4)]
        tasks = [await app.submit(echo("loop"), task_id=f"l-{number}") for number in range(4)]
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.gather(*threads) == [f"t-{number}" for number in range(4)]
            assert [await task.result() for task in tasks] == ["loop"] * 4
        await asyncio.to_thread(lambda: app.sync.__enter__().__exit__())
    assert app.session.users == 0
