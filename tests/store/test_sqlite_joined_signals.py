"""``task.send(connection=)`` on SQLite: the signal is there if the caller's rows are, and not otherwise."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from store_checks import broken_links, disagreements, history_violations

import arriero
from arriero import App, InvalidInput, Signal, SignalRefused, UnknownTask, workflow

approved = Signal("approved", str)


@workflow
async def waits() -> str:
    return await approved.wait()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    yield App("shop", workflows=[waits], store=f"sqlite:///{tmp_path}/shop.db")


async def list_sent(app: App) -> list[tuple[str, str]]:
    return [(signal.signal_id, signal.value) for signal in await app.session.store.list_signals(1)]


async def test_a_signal_commits_or_rolls_back_with_the_callers_rows(app: App) -> None:
    async with app:
        await app.submit(waits(), task_id="1")
        task = app.task("1")
        connection = arriero.connect(app.store)
        connection.execute("CREATE TABLE note (id TEXT)")
        with pytest.raises(ValueError, match="no"), connection:
            connection.execute("INSERT INTO note VALUES ('a')")
            await task.send(approved("a"), signal_id="a", connection=connection)
            raise ValueError("no")
        assert await list_sent(app) == []
        with connection:
            connection.execute("INSERT INTO note VALUES ('b')")
            first = await task.send(approved("b"), signal_id="b", connection=connection)
            again = await task.send(approved("b"), signal_id="b", connection=connection)
        assert (first.number, first.created, again.number, again.created) == (1, True, 1, False)
        assert await list_sent(app) == [("b", '"b"')]
        async with app.running():
            assert await task.result(timeout=60) == "b"
        with pytest.raises(SignalRefused, match="has ended") as refused, connection:
            connection.execute("INSERT INTO note VALUES ('c')")
            await task.send(approved("c"), connection=connection)
        assert refused.value.because == "ended"
        connection.close()
        assert await history_violations(app.session.store) == []
        assert await disagreements(app.session.store) == []
        assert await broken_links(app.session.store) == []


async def test_a_task_that_is_new_in_the_transaction_is_found_in_it_alone(app: App) -> None:
    async with app:
        connection = arriero.connect(app.store)
        with connection:
            connection.execute("CREATE TABLE note (id TEXT)")
            connection.execute("INSERT INTO note VALUES ('a')")
            with pytest.raises(UnknownTask, match="no task '1'"):
                await app.task("1").send(approved("a"), connection=connection)
            await app.submit(waits(), task_id="1", connection=connection)
            await app.task("1").send(approved("a"), signal_id="a", connection=connection)
        connection.close()
        assert await list_sent(app) == [("a", '"a"')]


def test_code_without_an_event_loop_sends_in_its_transaction(app: App) -> None:
    with app.sync:
        app.sync.submit(waits(), task_id="1")
        connection = arriero.connect(app.store)
        with connection:
            connection.execute("CREATE TABLE note (id TEXT)")
            connection.execute("INSERT INTO note VALUES ('a')")
            assert app.sync.task("1").send(approved("a"), connection=connection).created
        with pytest.raises(InvalidInput, match=r"send\(connection=\): no transaction is open"):
            app.sync.task("1").send(approved("b"), connection=connection)
        connection.close()
