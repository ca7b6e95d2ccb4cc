"""An attempt that asks for more time while it runs, and what it keeps for the attempts after it, on real loops and threads."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from runtime_world import Machine, session_of, within

from arriero import (
    Agent,
    App,
    Attempt,
    AttemptOver,
    InvalidInput,
    Retry,
    StoreError,
    Supervision,
    Transient,
    Undo,
    testing,
    workflow,
)
from arriero.model.commands import AnyCommand, ExtendAttempt, SaveCheckpoint
from arriero.testing import World

ONCE: dict[str, Any] = {"retry": Retry(tries=1), "supervision": Supervision(attempts=9, complete_within_factor=10)}


def asking(machine: Machine, agent: Agent, step: Any) -> tuple[Any, Any]:
    @workflow
    async def ask_once() -> Any:
        return await step()

    return machine.app([agent], [ask_once]), ask_once


async def events_in(world: World, kind: str) -> list[dict[str, Any]]:
    """The events of a kind in the history of a world."""
    rows = [row async for row in world.app.session.store.history()]
    return [event for row in rows for event in msgspec.json.decode(row.events) if event["type"] == kind]


async def test_an_attempt_that_extends_its_time_answers_after_its_first_deadline() -> None:
    agent, seen = Agent("slow"), []

    @agent.step(complete_within=5, extend_max=60, **ONCE)
    async def slow(attempt: Attempt) -> int:
        first = attempt.complete_by
        seen.append(await attempt.extend(30))
        assert attempt.complete_by > first
        await world._ports.clock.sleep(7)  # past the first deadline
        return attempt.number

    async with testing.running(App("slow", agents=[agent])) as world:
        task = await world.app.submit(slow())
        assert await task.result() == 1
        (extended,) = await events_in(world, "attempt.extended")
        (dispatched,) = await events_in(world, "step.dispatched")
    assert seen == [pytest.approx(30, abs=0.01)]
    assert extended["complete_by"] - dispatched["complete_by"] == pytest.approx(25_000_000, abs=10_000)


async def test_an_attempt_is_extended_no_further_than_extend_max() -> None:
    agent, seen = Agent("slow"), []

    @agent.step(complete_within=5, extend_max=8, **ONCE)
    async def slow(attempt: Attempt) -> int:
        seen.extend([await attempt.extend(100), await attempt.extend(100), await attempt.extend(1)])
        return 1

    async with testing.running(App("slow", agents=[agent])) as world:
        task = await world.app.submit(slow())
        assert await task.result() == 1
        assert len(await events_in(world, "attempt.extended")) == 1
    assert seen == [pytest.approx(8, abs=0.01)] * 3


async def test_an_attempt_that_was_taken_away_is_told_so_and_its_answer_does_not_count(machine: Machine) -> None:
    agent, told = Agent("slow"), asyncio.Event()
    caught: list[BaseException] = []

    @agent.step(complete_within=0.4, **ONCE)
    async def slow(attempt: Attempt) -> int:
        if attempt.number > 1:
            await told.wait()
            return 2
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            for call in (attempt.extend(30), attempt.checkpoint(1)):
                try:
                    await call
                except AttemptOver as over:
                    caught.append(over)
            told.set()
        return 1

    app, ask_once = asking(machine, agent, slow)
    async with app.running():
        assert await within((await app.submit(ask_once())).result()) == 2
    assert len(caught) == 2
    assert "attempt 1 of step slow is over" in str(caught[0])
    assert await machine.events("attempt.extended", "attempt.checkpoint") == []
    await machine.check()


@pytest.mark.parametrize("kind", [ExtendAttempt, SaveCheckpoint])
async def test_a_lost_answer_is_asked_for_again_and_the_local_deadline_waits_for_it(
    machine: Machine, kind: type[AnyCommand], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, seen = Agent("slow"), []
    asked, go_on = asyncio.Event(), asyncio.Event()

    @agent.step(complete_within=20, **ONCE)
    async def slow(attempt: Attempt) -> int:
        before = attempt.complete_by
        call = attempt.extend(100) if kind is ExtendAttempt else attempt.checkpoint({"page": 3})
        under_way = asyncio.ensure_future(call)
        await asked.wait()
        seen.append((attempt.complete_by == before, attempt.checkpointed))
        go_on.set()
        await under_way
        seen.append((attempt.complete_by == before, attempt.checkpointed))
        return 1

    app, ask_once = asking(machine, agent, slow)
    async with app.running():
        committer = session_of(app).committer
        write = committer._write

        async def lose_first_answer(batch: Sequence[AnyCommand]) -> Any:
            answers = await write(batch)
            if any(isinstance(command, kind) for command in batch) and not asked.is_set():
                asked.set()
                await go_on.wait()
                raise StoreError("the answer was lost")
            return answers

        monkeypatch.setattr(committer, "_write", lose_first_answer)
        assert await within((await app.submit(ask_once())).result()) == 1
    is_extension = kind is ExtendAttempt
    assert seen == [(True, None), (not is_extension, None if is_extension else {"page": 3})]
    # The second extension moves the deadline again; the same checkpoint is kept once.
    assert len(await machine.events("attempt.extended", "attempt.checkpoint")) == (2 if is_extension else 1)
    await machine.check()


async def test_a_caller_that_stops_waiting_for_a_checkpoint_may_keep_the_next_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent("slow")
    asked, go_on = asyncio.Event(), asyncio.Event()

    @agent.step(complete_within=20, retry=Retry(tries=1), supervision=Supervision(attempts=1))
    async def slow(attempt: Attempt) -> int:
        first = asyncio.ensure_future(attempt.checkpoint(1))
        await asked.wait()
        first.cancel()
        go_on.set()
        await attempt.checkpoint(2)
        return int(attempt.checkpointed)

    app, ask_once = asking(machine, agent, slow)
    async with app.running():
        committer = session_of(app).committer
        write = committer._write

        async def hold_the_first(batch: Sequence[AnyCommand]) -> Any:
            if any(isinstance(command, SaveCheckpoint) for command in batch):
                asked.set()
                await go_on.wait()
            return await write(batch)

        monkeypatch.setattr(committer, "_write", hold_the_first)
        assert await within((await app.submit(ask_once())).result()) == 2
    assert len(await machine.events("attempt.checkpoint")) == 2
    await machine.check()


async def test_the_next_attempt_goes_on_from_what_the_one_before_kept(machine: Machine) -> None:
    agent, seen = Agent("pages"), []

    @agent.step(complete_within=20, retry=Retry(tries=2, delay=0), supervision=Supervision(attempts=4))
    async def read_pages(attempt: Attempt) -> int:
        page = attempt.checkpointed or 0
        seen.append(page)
        if page < 3:
            await attempt.checkpoint(page + 1)
            raise Transient("the connection was closed")
        return int(page)

    app, ask_once = asking(machine, agent, read_pages)
    async with app.running():
        assert await within((await app.submit(ask_once())).result()) == 3
    assert seen == [0, 1, 2, 3]  # two tries of each attempt
    await machine.check()


async def test_a_compensation_reads_what_the_step_in_doubt_kept(machine: Machine) -> None:
    agent, seen = Agent("transfers"), []

    @agent.step(complete_within=20, retry=Retry(tries=1), supervision=Supervision(attempts=1))
    async def transfer(attempt: Attempt) -> int:
        await attempt.checkpoint({"transfer": "t-7"})
        raise ValueError("nobody knows what became of it")

    @transfer.compensation
    async def cancel_transfer(undo: Undo[int]) -> None:
        seen.append((undo.outcome, undo.forward_checkpointed, undo.checkpointed))

    app, ask_once = asking(machine, agent, transfer)
    async with app.running():
        with pytest.raises(Exception, match="nobody knows"):
            await within((await app.submit(ask_once())).result())
    assert seen == [("unknown", {"transfer": "t-7"}, None)]
    await machine.check()


async def test_a_plain_function_extends_and_keeps_from_its_thread(machine: Machine) -> None:
    agent, seen = Agent("files"), []

    @agent.step(complete_within=20, **ONCE)
    def count_lines(attempt: Attempt) -> int:
        seen.append(threading.current_thread() is threading.main_thread())
        assert attempt.extend_sync(100) > 90
        attempt.checkpoint_sync([1, 2])
        return len(attempt.checkpointed)

    app, ask_once = asking(machine, agent, count_lines)
    async with app.running():
        assert await within((await app.submit(ask_once())).result()) == 2
    assert seen == [False]
    await machine.check()


async def test_a_plain_function_whose_time_is_over_is_told_so_in_its_thread(machine: Machine) -> None:
    agent, told = Agent("files"), threading.Event()
    caught: list[str] = []

    @agent.step(complete_within=0.4, **ONCE)
    def stuck(attempt: Attempt) -> int:
        if attempt.number > 1:
            told.wait()
            return 2
        while attempt.remaining > 0:  # as a call that takes too long
            told.wait(0.01)
        try:
            attempt.extend_sync(100)
        except AttemptOver as over:
            caught.append(str(over))
        told.set()
        return 1

    app, ask_once = asking(machine, agent, stuck)
    async with app.running():
        assert await within((await app.submit(ask_once())).result()) == 2
    assert "its time has passed" in caught[0]
    await machine.check()


async def test_async_code_that_would_hold_up_its_own_loop_is_told_what_to_write(machine: Machine) -> None:
    agent = Agent("slow")
    caught: list[str] = []

    @agent.step(complete_within=20, **ONCE)
    async def slow(attempt: Attempt) -> int:
        for call in (lambda: attempt.extend_sync(9), lambda: attempt.checkpoint_sync(1)):
            try:
                call()
            except InvalidInput as refusal:
                caught.append(str(refusal))
        return 1

    app, ask_once = asking(machine, agent, slow)
    async with app.running():
        assert await within((await app.submit(ask_once())).result()) == 1
    assert "await attempt.extend(...)" in caught[0]
    assert "await attempt.checkpoint(...)" in caught[1]


@pytest.mark.parametrize("bad", [0, -1, "soon", float("nan")])
async def test_a_time_that_is_none_is_refused_by_its_name(machine: Machine, bad: Any) -> None:
    agent = Agent("slow")

    @agent.step(**ONCE)
    async def slow(attempt: Attempt) -> str:
        try:
            await attempt.extend(bad)
        except InvalidInput as refusal:
            return str(refusal)
        return "taken"

    app, ask_once = asking(machine, agent, slow)
    async with app.running():
        assert "extend is" in await within((await app.submit(ask_once())).result())


async def test_what_has_no_json_form_is_not_kept(machine: Machine) -> None:
    agent = Agent("slow")

    @agent.step(**ONCE)
    async def slow(attempt: Attempt) -> str:
        try:
            await attempt.checkpoint("x" * 1_000_001)
        except InvalidInput as refusal:
            return str(refusal)
        return "taken"

    app, ask_once = asking(machine, agent, slow)
    async with app.running():
        assert "checkpoint of slow has 1,000,003 bytes" in await within((await app.submit(ask_once())).result())
