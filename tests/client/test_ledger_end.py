"""The tasks of a ledger are selected as one, and it says when all of them have ended."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from runtime_world import Machine, within

from arriero import Agent, App, Attempt, Entry, InvalidInput, Ledger, LedgerView, Permanent, testing, workflow
from arriero.errors import UnknownName
from arriero.model import TaskState
from arriero.store.contract import Purge

WHY = {"by": "ana", "reason": "a test"}
mules = Agent("mules")
lame: set[str] = set()


@mules.step
async def load(attempt: Attempt, what: str) -> str:
    if what in lame:
        raise Permanent(f"{what} is lame")
    return what


@load.compensation
async def unload(undo: Any, what: str) -> None:
    if f"un{what}" in lame:
        raise Permanent("it does not stand still")


@workflow
async def carry(what: str) -> str:
    return await load(what)


def new_app() -> App:
    return App("caravan", agents=[mules], workflows=[carry])


@pytest.fixture(autouse=True)
def nobody_is_lame() -> None:
    lame.clear()


def entries(*names: str) -> list[Entry]:
    return [Entry(carry(name), task_id=name) for name in names]


def tasks_of(view: LedgerView) -> tuple[Any, Any, Any]:
    return view.tasks, view.purged, view.ended


async def test_the_tasks_of_a_ledger_are_selected_counted_and_cancelled_as_one(machine: Machine) -> None:
    async with machine.app([mules], [carry]) as app:
        await app.submit(carry("before"), task_id="before")
        await app.submit_ledger("may", entries("a", "b", "before"))
        await app.submit_ledger("june", entries("c"))
        assert [task.id async for task in app.tasks(ledger="may")] == ["a", "b"]
        assert [task.id for task in await app.tasks(ledger="may").newest(1)] == ["b"]
        assert await app.tasks(ledger="may", state="pending").count() == 2
        assert await app.tasks(ledger="none").count() == 0
        acted = await app.tasks(ledger="may").cancel(**WHY)
        assert acted.done == ("a", "b")
        assert await app.tasks(ledger="may", state="pending").count() == 0
        assert await app.tasks(state="pending").count() == 2
        with pytest.raises(InvalidInput, match="ledger is empty"):
            app.tasks(ledger=" ")


async def test_a_wait_for_a_ledger_ends_when_its_last_task_has_ended_in_whatever_state() -> None:
    lame.add("b")
    async with testing.running(new_app()) as world:
        app = world.app
        await app.submit_ledger("may", entries("a", "b", "c"))
        view = await app.ledger("may").wait()
        assert tasks_of(view) == ({"processed": 2, "compensated": 1}, 0, True)
        assert view.ended_at == max([task.ended_at async for task in app.tasks(ledger="may")])
        assert await app.ledger("may").view() == view


async def test_a_resubmitted_task_opens_the_ledger_again_and_a_second_wait_follows_it() -> None:
    lame.update(("b", "unb"))
    async with testing.running(new_app()) as world:
        app = world.app
        await app.submit_ledger("may", entries("a", "b"))
        first = await app.ledger("may").wait()
        assert first.ended is True
        lame.clear()
        acted = await app.tasks(ledger="may", state="compensated").resubmit(**WHY)
        assert acted.done == ("b",)
        again = await app.ledger("may").wait()
        assert tasks_of(again) == ({"processed": 2}, 0, True)


async def test_a_ledger_with_an_open_task_says_so_and_a_wait_for_it_may_be_limited(machine: Machine) -> None:
    async with machine.app([mules], [carry]) as app:
        await app.submit_ledger("may", entries("a", "b"))
        view = await app.ledger("may").view()
        assert tasks_of(view) == ({"pending": 2}, 0, False)
        assert view.ended_at is None
        with pytest.raises(TimeoutError, match=r"'may' have not all ended within 0 s; they continue; no Scheduler"):
            await app.ledger("may").wait(timeout=0)
        with pytest.raises(TimeoutError, match="within 0.05 s"):
            await app.ledger("may").wait(timeout=0.05)


async def test_an_empty_ledger_and_one_of_duplicates_alone_have_ended_at_once(machine: Machine) -> None:
    async with machine.app([mules], [carry]) as app:
        await app.submit(carry("a"), task_id="a")
        for _ in range(2):
            assert await app.submit_ledger("empty", []) == Ledger(0, 0, [])
        with pytest.raises(InvalidInput, match="'empty' is known with another content"):
            await app.submit_ledger("empty", entries("b"))
        await app.submit_ledger("known", entries("a"))
        for ledger_id in ("empty", "known"):
            assert tasks_of(await app.ledger(ledger_id).wait(timeout=0)) == ({}, 0, True)


async def test_purged_tasks_of_a_ledger_count_as_ended() -> None:
    async with testing.running(new_app()) as world:
        app = world.app
        await app.submit_ledger("may", entries("a", "b"))
        await app.ledger("may").wait()
        store = app.session.store
        ended = Purge(states=tuple(TaskState), ended_before=store.now())
        assert (await store.purge(ended, actor="a test", limit=1)).count == 1
        assert tasks_of(await app.ledger("may").wait(timeout=0)) == ({"processed": 1}, 1, True)


async def test_a_wait_follows_a_ledger_that_is_still_being_written_and_says_that_it_was_discarded(
    machine: Machine,
) -> None:
    async with machine.app([mules], [carry]) as app:
        store = app.session.store
        begun = await store.begin_ledger("may")
        assert tasks_of(await app.ledger("may").view()) == ({}, 0, False)
        waiting = asyncio.ensure_future(app.ledger("may").wait())
        await asyncio.sleep(0)
        await app.submit_ledger("may", [])
        assert tasks_of(await within(waiting)) == ({}, 0, True)
        assert begun.state == "writing"
        june = await store.begin_ledger("june")
        waiting = asyncio.ensure_future(app.ledger("june").wait())
        await asyncio.sleep(0)
        assert await store.discard_ledger(june.ledger_no, 10, "a test", "nobody wants it") is None
        with pytest.raises(UnknownName, match="there is no ledger 'june'"):
            await within(waiting)


async def test_a_ledger_of_an_earlier_release_does_not_claim_that_its_tasks_have_ended(machine: Machine) -> None:
    async with machine.app([mules], [carry]) as app:
        await app.submit_ledger("may", entries("a"))
    with closing(sqlite3.connect(machine.path)) as database, database:
        database.execute("UPDATE arriero_task SET from_ledger = NULL")
        database.execute("UPDATE arriero_ledger SET linked = 0")
    async with machine.app([mules], [carry]) as app:
        assert tasks_of(await app.ledger("may").view()) == ({}, 0, None)
        with pytest.raises(InvalidInput, match="a release before 0.5 wrote some of its tasks"):
            await app.ledger("may").wait()


def test_code_without_a_loop_waits_for_a_ledger_and_selects_its_tasks(tmp_path: Path) -> None:
    app = App("caravan", agents=[mules], workflows=[carry], store=f"sqlite:///{tmp_path}/caravan.db")
    with app.sync.running() as front:
        front.submit_ledger("may", entries("a", "b"))
        view = front.ledger("may").wait(timeout=60)
        assert tasks_of(view) == ({"processed": 2}, 0, True)
        assert front.ledger("may").view() == view
        assert [task.id for task in front.tasks(ledger="may")] == ["a", "b"]
        assert (repr(front.ledger("may")), front.ledger("may").id) == ("<ledger may>", "may")
