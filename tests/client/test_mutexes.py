"""Mutexes of an App, on an event loop and without one; guarded writes in a file; who leads."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from runtime_world import Machine, until

import arriero
from arriero import App, DefinitionError, InvalidInput, Leadership, LeadershipLost, LeaseRefused, guarded, guarded_sync
from arriero.leases import open_lease


@pytest.fixture
async def app(machine: Machine) -> AsyncIterator[App]:
    async with machine.app([], []) as opened:
        connection = arriero.connect(opened.store)
        connection.execute("CREATE TABLE note (term INTEGER)")
        connection.commit()
        connection.close()
        yield opened


def notes(app: App) -> list[int]:
    connection = sqlite3.connect(app.store.removeprefix("sqlite:///"))
    try:
        return [row[0] for row in connection.execute("SELECT term FROM note")]
    finally:
        connection.close()


async def test_a_mutex_of_an_app_runs_its_work_under_a_lease_in_the_store(app: App) -> None:
    async def work(leadership: Leadership) -> str:
        view = await app.lease("nightly").inspect()
        assert (view.holder, view.term, view.duration) == (leadership.holder, leadership.term, 15.0)
        return "done"

    assert await app.mutex("nightly").run_once(work) == "done"
    view = await app.lease("nightly").inspect()
    assert (view.holder, view.term) == ("", 1)


async def test_the_leases_of_a_store_are_listed_with_the_supervisors(machine: Machine) -> None:
    async with machine.app([], []).running(roles=["supervisor"]) as app:

        async def work(_: Leadership) -> dict[str, str]:
            return {view.name: view.holder for view in await app.leases()}

        await until(lambda: app.session.node is not None and app.session.node.session.leader.term == 1)
        held = await app.mutex("nightly").run_once(work)
        assert held is not None
        assert list(held) == ["nightly", "supervisor"]
        assert held["nightly"]
        assert held["supervisor"] == "process 1"


async def test_a_name_has_one_duration_in_an_app(app: App) -> None:
    app.mutex("nightly", duration=15)
    app.mutex("nightly", duration=15)
    with pytest.raises(DefinitionError, match=r"mutex 'nightly' has two durations in App .*: 15 s and 30 s"):
        app.mutex("nightly", duration=30)


@pytest.mark.parametrize("name", ["", "supervisor", "a\nb", "x" * 256])
async def test_a_name_that_cannot_be_one_is_refused(app: App, name: str) -> None:
    with pytest.raises(LeaseRefused):
        app.mutex(name)


async def test_a_mutex_of_an_app_that_is_not_open_says_so(machine: Machine) -> None:
    async def work(_: Leadership) -> None:
        raise AssertionError("nobody leads")

    with pytest.raises(InvalidInput, match="is not open"):
        await machine.app([], []).mutex("nightly").run_once(work)


def test_a_program_without_a_loop_leads_until_another_thread_stops_it(machine: Machine) -> None:
    app = machine.app([], [])
    begun = threading.Event()

    def work(leadership: Leadership) -> None:
        begun.set()
        while leadership.is_held() and not stopped.is_set():
            pass

    stopped = threading.Event()
    with app.sync as front:
        mutex = front.mutex("nightly")
        leading = threading.Thread(target=mutex.run, args=(work,))
        leading.start()
        begun.wait()
        assert [view.name for view in front.leases()] == ["nightly"]
        assert front.lease("nightly").inspect().term == 1
        mutex.stop()
        stopped.set()
        leading.join()
        assert front.lease("nightly").inspect().holder == ""


# --- guarded writes in a file
async def test_the_leader_writes_to_its_file_under_its_term(app: App) -> None:
    async def work(leadership: Leadership) -> None:
        async with arriero.transaction(app.store) as connection:
            await guarded(connection, leadership)
            connection.execute("INSERT INTO note VALUES (?)", (leadership.term,))

    await app.mutex("nightly").run_once(work)
    assert notes(app) == [1]


async def test_a_past_term_writes_nothing_to_the_file(app: App) -> None:
    async def work(leadership: Leadership) -> None:
        await app.lease("nightly").break_lease("ops", "it hangs", at_once=True)
        async with app.lease("nightly").connected() as other:
            assert await other.acquire("ben", 15.0) is not None
        with pytest.raises(LeadershipLost, match="term 1 is past"):
            async with arriero.transaction(app.store) as connection:
                connection.execute("INSERT INTO note VALUES (?)", (leadership.term,))
                await guarded(connection, leadership)
        connection = arriero.connect(app.store)
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(LeadershipLost):
            guarded_sync(connection, leadership)
        connection.close()

    await app.mutex("nightly").run_once(work)
    assert notes(app) == []


async def test_a_guard_waits_for_another_transaction_without_stopping_the_loop(app: App) -> None:
    async def work(leadership: Leadership) -> None:
        writing = sqlite3.connect(app.store.removeprefix("sqlite:///"), isolation_level=None)
        writing.execute("BEGIN IMMEDIATE")
        mine = arriero.connect(app.store)
        mine.execute("SELECT 1")
        mine.execute("BEGIN")
        guarding = asyncio.create_task(guarded(mine, leadership))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not guarding.done()
        writing.execute("ROLLBACK")
        await guarding
        mine.rollback()
        mine.close()
        writing.close()

    await app.mutex("nightly").run_once(work)


async def test_what_no_file_can_guard_is_refused_with_the_remedy(app: App, tmp_path: Path) -> None:
    async def work(leadership: Leadership) -> None:
        with pytest.raises(InvalidInput, match=r"^guarded\(connection\) takes a sqlite3\.Connection"):
            await guarded(object(), leadership)
        other = sqlite3.connect(tmp_path / "other.db")
        other.execute("BEGIN")
        with pytest.raises(InvalidInput, match=r"^guarded\(connection\): it is open on .*other\.db"):
            await guarded(other, leadership)
        other.rollback()
        with pytest.raises(InvalidInput, match=r"^guarded\(connection\): no transaction is open"):
            guarded_sync(other, leadership)
        other.close()

    await app.mutex("nightly").run_once(work)


# --- two that do not agree
async def test_contenders_with_other_durations_are_told_whose_and_wait(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(leadership: Leadership) -> None:
        async with open_lease(app.store, "nightly").connected() as other:
            for _ in range(3):
                assert await other.acquire("ben", 30.0) is None
        assert caplog.text.count("is held for 15 s") == 1
        assert f"by {leadership.holder!r}" in caplog.text

    await app.mutex("nightly").run_once(work)
