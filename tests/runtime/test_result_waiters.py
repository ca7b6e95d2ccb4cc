"""Who waits for tasks that end in another process: each hears of its own, also of one that is gone."""

import asyncio
from collections.abc import Sequence

import pytest
from runtime_world import Machine, until, within

from arriero import Agent, Attempt, StoreError, UnknownTask, workflow
from arriero.model import TaskState
from arriero.store.contract import Ended, Purge
from arriero.store.sqlite.store import SqliteStore
from arriero.store.state_store import StateStore

agent = Agent("desk")
gate = asyncio.Event()


@agent.step
async def book(attempt: Attempt, number: int) -> int:
    if number < 0:
        await gate.wait()
    return number


@workflow
async def order(number: int) -> int:
    return await book(number)


@pytest.fixture(autouse=True)
def closed_gate() -> None:
    gate.clear()


async def purged(store: StateStore) -> None:
    """What has ended is removed."""
    which = Purge(states=(TaskState.PROCESSED,), ended_before=store.now())
    assert (await store.purge(which, actor="ann", limit=100)).count == 1


async def test_who_waits_for_a_task_that_was_purged_is_told_so_and_who_waits_for_another_goes_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    front, back = machine.app([agent], [order]), machine.app([agent], [order])
    async with front, back.running():
        deaf = True
        load_ended = front.session.store.load_ended

        async def heard(task_nos: Sequence[int]) -> list[Ended]:
            return [] if deaf else await load_ended(task_nos)

        monkeypatch.setattr(front.session.store, "load_ended", heard)
        alive, gone = [await front.submit(order(number)) for number in (-1, 1)]
        for_alive, for_gone = [asyncio.create_task(task.result()) for task in (alive, gone)]
        await until(lambda: len(front.session.waiting.list_awaited()) == 2)
        await within(back.task(gone.id).result())
        await purged(back.session.store)
        deaf = False
        with pytest.raises(UnknownTask, match=gone.id):
            await within(for_gone)
        assert not for_alive.done()
        gate.set()
        assert await within(for_alive) == -1


async def test_who_waits_goes_on_waiting_while_the_store_does_not_answer(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    front = machine.app([agent], [order])
    load_ended, silent = SqliteStore.load_ended, 3

    async def asked(store: SqliteStore, task_nos: Sequence[int]) -> list[Ended]:
        nonlocal silent
        if silent:
            silent -= 1
            raise StoreError("no answer")
        return await load_ended(store, task_nos)

    monkeypatch.setattr(SqliteStore, "load_ended", asked)
    async with front, machine.app([agent], [order]).running():
        task = await front.submit(order(1))
        assert await within(task.result()) == 1
    assert not silent
