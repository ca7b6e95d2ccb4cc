"""SELECT arriero.signal(...): a signal from any language, by plain SQL; judged as core.signals judges it."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from postgres_servers import database, emptied
from psycopg.rows import scalar_row
from psycopg.types.json import Jsonb
from store_checks import broken_links, disagreements, history_violations

from arriero import App, ContinueAs, Signal, SignalRefused, UnknownTask, workflow
from arriero.core.signals import find_refusal
from arriero.model import TaskState
from arriero.model.commands import SendSignal
from arriero.model.signals import INBOX_BYTES_MAX, INBOX_MAX, SIGNALS_MAX, Inbox
from arriero.store.postgres.store import PostgresStore

PATIENCE = 60.0
approved = Signal("approved", dict[str, str])


@workflow
async def waits(order: str) -> dict[str, str]:
    return await approved.wait()


@workflow
async def waits_twice(runs: int) -> dict[str, str]:
    found = await approved.wait()
    if runs > 1:
        raise ContinueAs(waits_twice(runs - 1))
    return found


@pytest.fixture
async def url(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """An empty store; at the end of every test its history is clean."""
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    found = emptied(database(kind="joined"))
    yield found
    store = PostgresStore(found)
    await store.open()
    assert await history_violations(store) == []
    assert await disagreements(store) == []
    assert await broken_links(store) == []
    await store.close()


def shop(url: str) -> App:
    return App("shop", workflows=[waits], store=url)


def run(url: str, sql: str, parameters: Any = None) -> list[Any]:
    """What a client of any language would send; the first column."""
    with psycopg.connect(url, row_factory=scalar_row) as connection:
        done = connection.execute(sql.encode(), parameters)
        return done.fetchall() if done.description else []


SIGNAL = "SELECT arriero.signal(task_id => %s, name => %s, value => %s, signal_id => %s, sent_by => %s)"


def send(
    url: str, value: Any = '{"by": "ana"}', signal_id: str = "s1", name: str = "approved", by: str = "bank"
) -> int:
    (number,) = run(url, SIGNAL, ("1", name, value, signal_id, by))
    assert isinstance(number, int)
    return number


async def test_a_signal_by_sql_wakes_the_task_that_waits_for_it(url: str) -> None:
    app = shop(url)
    async with app.running():
        task = await app.submit(waits("1"), task_id="1")
        while not await find_waits(app):
            await asyncio.sleep(0)
        assert await asyncio.to_thread(send, url) == 1
        assert await task.result(timeout=PATIENCE) == {"by": "ana"}


async def find_waits(app: App) -> bool:
    loaded = await app.session.store.load(1)
    return loaded is not None and bool(loaded.steps) and loaded.task.locked_by is None


async def test_a_signal_by_sql_is_kept_once_and_rolls_back_with_the_transaction(url: str) -> None:
    async with shop(url) as app:
        await app.submit(waits("1"), task_id="1")
        with psycopg.connect(url) as connection:
            connection.execute(SIGNAL, ("1", "approved", '{"by": "bob"}', "s0", ""))
            connection.rollback()
        assert [send(url), send(url), send(url, Jsonb({"by": "ana"})), send(url, signal_id="s2")] == [1, 1, 1, 2]
        (first, _) = await app.session.store.list_signals(1)
        assert (first.name, first.value, first.sent_by) == ("signal:approved", '{"by":"ana"}', "bank")
        async with app.running():
            assert await (app.task("1")).result(timeout=PATIENCE) == {"by": "ana"}
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="the task has ended"):
            send(url, signal_id="s3")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"value": "{"}, "value"),
        ({"value": None}, "value is null"),
        ({"value": json.dumps("x" * 100_001)}, "at most 100,000 are sent"),
        ({"name": "a#1"}, "without #"),
        ({"name": ""}, "1 to 255 characters"),
        ({"signal_id": "\n"}, "without control characters"),
        ({"by": "x" * 256}, "up to 255 characters"),
    ],
)
async def test_a_bad_signal_is_refused_by_name(url: str, asked: dict[str, Any], says: str) -> None:
    async with shop(url) as app:
        await app.submit(waits("1"), task_id="1")
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=says):
            send(url, **asked)
        assert await app.session.store.list_signals(1) == []


async def test_a_signal_to_a_task_that_is_not_there_is_refused(url: str) -> None:
    async with shop(url):
        with pytest.raises(psycopg.Error, match="there is no task '1'"):
            send(url)


def ask(url: str, **fields: Any) -> tuple[str, str, str]:
    sending = {
        "task_id": "1",
        "name": "signal:approved",
        "signal_id": "s1",
        "value": "1",
        "sent_by": "",
        "actor": "signal",
    }
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT verdict, detail, task_state FROM arriero.keep_signal(NULL, %s)", (json.dumps(sending | fields),)
        ).fetchone()
        connection.rollback()
    assert row is not None
    return row[0], row[1], row[2]


FILL = (
    "INSERT INTO arriero.signal (task_no, number, name, signal_id, value, sent_by, sent_at, wants_reply, step)"
    " SELECT 1, n, 'signal:approved', 'id ' || n, %s, '', 1, false, {} FROM generate_series(%s::integer, %s) AS n"
)


async def test_sql_refuses_with_the_words_of_core(url: str) -> None:
    async with shop(url) as app:
        await app.submit(waits("1"), task_id="1")
        loaded = await app.session.store.load(1)
        assert loaded is not None
        store = app.session.store
        before = run(url, "SELECT state FROM arriero.task")
        command = SendSignal(actor="signal", task_no=1, name="signal:approved", signal_id="s1", value="1", sent_by="")
        empty = Inbox(0, 0, 0, 0)

        async def compare(inbox: Inbox, task: Any, **fields: Any) -> None:
            asked = SendSignal(**{f: getattr(command, f) for f in command.__struct_fields__} | fields)
            refusal = find_refusal(asked, task, inbox, None, store.now())
            assert refusal is not None
            assert ask(url, **fields) == (refusal.verdict, refusal.detail, refusal.state)

        await compare(empty, loaded.task, app="other")
        for state in (TaskState.COMPENSATING, TaskState.COMPENSATED, TaskState.PROCESSED):
            run(url, "UPDATE arriero.task SET state = %s", (state.value,))
            changed = await app.session.store.load(1)
            assert changed is not None
            await compare(empty, changed.task)
        run(url, "UPDATE arriero.task SET state = %s, batch_no = 9", (before[0],))
        await compare(empty, replace(loaded.task, batch_no=9))
        run(url, "UPDATE arriero.task SET batch_no = NULL")
        run(url, FILL.format("NULL"), ("1", 1, INBOX_MAX))
        known = (await store.list_signals(1))[0]
        await compare(
            Inbox(INBOX_MAX, INBOX_MAX, INBOX_MAX, INBOX_MAX, known), loaded.task, signal_id="id 1", value="2"
        )
        await compare(Inbox(INBOX_MAX, INBOX_MAX, INBOX_MAX, INBOX_MAX), loaded.task)
        run(url, "DELETE FROM arriero.signal")
        run(url, FILL.format("NULL"), ("9" * (INBOX_BYTES_MAX // 40), 1, 40))
        await compare(Inbox(40, 40, INBOX_BYTES_MAX, 40), loaded.task)
        run(url, "DELETE FROM arriero.signal")
        run(url, FILL.format("1"), ("1", SIGNALS_MAX, SIGNALS_MAX))
        await compare(Inbox(SIGNALS_MAX, 0, 0, 0), loaded.task)
        run(url, "DELETE FROM arriero.signal")


async def test_a_signal_by_sql_goes_to_the_run_that_the_task_is_in_and_counts_once_over_all(url: str) -> None:
    app = App("shop", workflows=[waits_twice], store=url)
    async with app.running():
        task = await app.submit(waits_twice(2), task_id="1")
        assert await asyncio.to_thread(send, url) == 1
        while await app.session.store.find("1~1") is None:
            await asyncio.sleep(0.01)
        assert await asyncio.to_thread(send, url) == 1  # the first run took it
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="another signal has the id 's1'"):
            await asyncio.to_thread(send, url, '{"by": "bob"}')
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="this run of the task has ended"):
            await asyncio.to_thread(run, url, SIGNAL, ("1~1", "approved", "{}", "s9", ""))
        assert await asyncio.to_thread(send, url, '{"by": "eva"}', "s2") == 1
        assert await task.result(timeout=PATIENCE) == {"by": "eva"}


async def test_a_signal_by_sql_that_waits_for_the_lock_of_a_run_that_ends_goes_to_the_next_one(url: str) -> None:
    app = App("shop", workflows=[waits_twice], store=url)
    async with app:
        await app.submit(waits_twice(2), task_id="1")
        with psycopg.connect(url) as locking:
            locking.execute("UPDATE arriero.task SET task_id = '1~1' WHERE task_no = 1")
            locking.execute(
                'INSERT INTO arriero.task SELECT (jsonb_populate_record(t, \'{"task_no": 9, "task_id": "1"}\')).*'
                " FROM arriero.task AS t WHERE task_no = 1"
            )
            sending = asyncio.create_task(asyncio.to_thread(send, url))
            with psycopg.connect(url, autocommit=True) as looking:
                asked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%arriero.signal%'"
                while looking.execute(asked).fetchone() == (0,):
                    await asyncio.sleep(0.01)
            locking.commit()
        await sending
        assert run(url, "SELECT task_no FROM arriero.signal") == [9]
        run(url, "DELETE FROM arriero.task WHERE task_no = 9")
        run(url, "DELETE FROM arriero.history WHERE task_no = 9")
        run(url, "UPDATE arriero.task SET task_id = '1' WHERE task_no = 1")


async def test_a_signal_by_psycopg_commits_or_rolls_back_with_the_callers_rows(url: str) -> None:
    async with shop(url) as app, await psycopg.AsyncConnection.connect(url) as connection:
        task = app.task("1")
        with pytest.raises(UnknownTask, match="no task '1'"):
            await task.send(approved({"by": "ana"}), connection=connection)
        await app.submit(waits("1"), task_id="1", connection=connection)
        await task.send(approved({"by": "ana"}), signal_id="é", connection=connection)
        await connection.rollback()
        await app.submit(waits("1"), task_id="1", connection=connection)
        receipt = await task.send(approved({"by": "ana"}), signal_id="é", by="ana", connection=connection)
        assert (receipt.number, receipt.created) == (1, True)
        with pytest.raises(SignalRefused, match="another signal has the id 'é'"):
            await task.send(approved({"by": "bob"}), signal_id="é", connection=connection)
        await connection.commit()
        async with app.running():
            assert await task.result(timeout=PATIENCE) == {"by": "ana"}


def test_code_without_an_event_loop_sends_in_its_transaction(url: str) -> None:
    app = shop(url)
    with app.sync, psycopg.connect(url) as connection:
        app.sync.submit(waits("1"), task_id="1")
        assert app.sync.task("1").send(approved({"by": "ana"}), connection=connection).created
