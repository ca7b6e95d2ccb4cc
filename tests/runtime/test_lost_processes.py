"""A process that is declared lost drops everything and begins again; its tasks go on and still end once."""

import asyncio
from copy import copy
from typing import Any

import msgspec
import pytest
from runtime_world import QUICK, Machine, eventually, session_of, until, within

from arriero import Agent, App, Attempt, InvalidInput, StoreError, TaskFailed, workflow
from arriero.core.lease import read_process_about
from arriero.runtime.node import NodeSession
from arriero.runtime.settings import Settings


class Road:
    """An Agent whose step stops at its first calls, and says so."""

    def __init__(self, stops: int) -> None:
        self.calls: list[tuple[int, str]] = []
        self.cancelled = 0
        self.stop = asyncio.Event()
        agent = self.agent = Agent("road")

        @agent.step
        async def walk(attempt: Attempt) -> int:
            self.calls.append((attempt.number, attempt.idempotency_key))
            if len(self.calls) <= stops:
                try:
                    await self.stop.wait()
                except asyncio.CancelledError:
                    self.cancelled += 1
                    raise
            return len(self.calls)

        @agent.step
        async def rest(attempt: Attempt) -> str:
            return "rested"

        @workflow
        async def journey() -> list[int | str]:
            return [await walk(), await rest()]

        self.walk, self.rest, self.journey = walk, rest, journey


async def declare_lost(session: NodeSession) -> None:
    """As another process would that believes it dead."""
    await session._store.retire(session.context.process_no, by="test", known_dead=True)


async def cut_off(app: App) -> None:
    """From now on no renewal of the process arrives, and nobody answers it when it asks what is due."""

    async def no_answer(*_args: Any, **_kwargs: Any) -> Any:
        raise StoreError("store: cut off")

    session_of(app)._store.renew = no_answer  # type: ignore[method-assign]


def mend(app: App) -> None:
    """It is reached again."""
    assert app.session._store is not None
    del app.session._store.renew  # the instance's own: the class's method shows again


async def test_it_drops_everything_begins_again_under_a_new_name_and_the_task_ends_once(machine: Machine) -> None:
    road = Road(stops=1)
    app = machine.app([road.agent], [road.journey])
    async with app.running():
        task = await app.submit(road.journey())
        await until(lambda: len(road.calls) == 1)
        first = session_of(app)
        await declare_lost(first)
        assert await within(task.result()) == [2, "rested"]
        second = session_of(app)
        assert second.context.actor != first.context.actor
        assert second.context.process_no == first.context.process_no + 1
        assert not first.context.is_trusted()
        assert road.cancelled == 1
        view = await task.view()
        assert (view.failure_count, view.lost_count) == (
            0,
            0,
        )  # no attempt was spent, and its steps were recorded since
    assert {number for number, _ in road.calls} == {1}
    assert len({key for _, key in road.calls}) == 1
    assert [e["lost_count"] for e in await machine.events("task.lost")] == [1]
    assert len(await machine.events("task.terminal")) == 1
    await machine.check()


async def test_a_process_that_is_cut_off_loses_its_tasks_to_another_and_its_late_answer_never_counts(
    machine: Machine,
) -> None:
    road = Road(stops=1)
    slow, other = machine.app([road.agent], [road.journey]), machine.app([road.agent], [road.journey])
    async with slow.running():
        task = await slow.submit(road.journey())
        await until(lambda: len(road.calls) == 1)
        before = session_of(slow)
        await cut_off(slow)
        await until(lambda: not before.context.is_trusted())
        async with other.running():
            assert await within(other.task(task.id, road.journey).result()) == [2, "rested"]
        road.stop.set()  # only now its own attempt answers
        await machine.event("step.report", verdict="stale")
        mend(slow)
        await until(lambda: slow.session.node is not None and slow.session.node.session not in (None, before))
        assert await within((await slow.submit(road.rest())).result()) == "rested"
    assert [e["verdict"] for e in await machine.events("step.report") if e["task"] == task.id] == [
        "applied",
        "applied",
        "stale",
    ]
    await machine.check()


async def test_a_store_that_is_away_for_long_does_not_pass_for_a_loop_that_stands_still(machine: Machine) -> None:
    road = Road(stops=0)
    app = machine.app([road.agent], [road.journey], settings=Settings(lease_seconds=0.4, hang_seconds=0.3))
    asked: list[Any] = []

    async def no_answer(*arguments: Any, **_options: Any) -> Any:
        asked.append(arguments)
        raise StoreError("store: away")

    async with app.running():
        session_of(app)._store.renew = no_answer  # type: ignore[method-assign]
        await until(lambda: len(asked) == 8)  # each a quarter of a lease after the one before it
        mend(app)
        assert await within((await app.submit(road.journey())).result()) == [1, "rested"]


async def test_a_process_that_does_not_trust_its_lease_takes_nothing_on(machine: Machine) -> None:
    """What it claimed would be freed again, and the task would be charged with a loss each time."""
    road = Road(stops=0)
    slow, other = machine.app([road.agent], [road.journey]), machine.app([road.agent], [road.journey])
    async with slow.running():
        session = session_of(slow)
        await cut_off(slow)
        await until(lambda: not session.context.is_trusted())
        task = await slow.submit(road.journey())
        session.scheduler.claim_soon()
        session.agents.note_due()
        assert not session.scheduler._claiming
        async with other.running():
            assert await within(task.result()) == [1, "rested"]
        mend(slow)
    assert {event["process"] for event in await machine.events("task.claimed", "step.dispatched")} == {2}
    assert await machine.events("task.lost") == []
    await machine.check()


async def test_an_attempt_whose_process_lost_its_trust_before_the_call_is_not_begun(machine: Machine) -> None:
    road = Road(stops=0)
    app = machine.app([road.agent], [road.journey])
    async with app.running():
        session = session_of(app)
        parts = session.agents._parts
        lapsed = copy(parts.context)
        lapsed.trusted_until = 0.0  # to its attempts; the place is reserved all the same
        session.agents._parts = msgspec.structs.replace(parts, context=lapsed)
        task = await app.submit(road.walk())
        await machine.event("step.dispatched", task=task.id)
        await until(lambda: bool(session.agents.in_flight))
        assert road.calls == []
        await declare_lost(session)
        assert await within(task.result()) == 1
    await machine.check()


async def test_an_attempt_begun_while_the_lease_is_late_is_carried_out_once_it_is_renewed(machine: Machine) -> None:
    road = Road(stops=0)
    app = machine.app([road.agent], [road.journey])
    async with app.running():
        session = session_of(app)
        trusts = iter([False, False, False])  # the place is reserved; its attempt may begin after three looks
        session.agents.is_trusted = lambda: next(trusts, True)
        task = await app.submit(road.walk())
        assert await within(task.result()) == 1
    (dispatched,) = await machine.events("step.dispatched")
    assert dispatched["attempt"] == 1
    await machine.check()


async def test_what_begins_again_waits_for_a_store_that_is_away(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    road = Road(stops=1)
    app = machine.app([road.agent], [road.journey])
    async with app.running():
        task = await app.submit(road.journey())
        await until(lambda: len(road.calls) == 1)
        assert app.session._store is not None
        register, refused = app.session._store.register, 0

        async def away_once(*args: Any) -> int:
            nonlocal refused
            refused += 1
            if refused == 1:
                raise StoreError("store: away")
            return await register(*args)

        monkeypatch.setattr(app.session._store, "register", away_once)
        await declare_lost(session_of(app))
        assert await within(task.result()) == [2, "rested"]
    assert refused == 2
    await machine.check()


async def test_an_app_can_be_left_while_it_begins_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    road = Road(stops=1)
    app = machine.app([road.agent], [road.journey])
    tasks = asyncio.all_tasks()
    async with app.running():
        task = await app.submit(road.journey())
        await until(lambda: len(road.calls) == 1)
        asked = asyncio.Event()
        assert app.session._store is not None

        async def away(*_args: Any) -> int:
            asked.set()
            raise StoreError("store: away")

        monkeypatch.setattr(app.session._store, "register", away)
        await declare_lost(session_of(app))
        await within(asked.wait())
    assert asyncio.all_tasks() == tasks
    monkeypatch.undo()
    async with app.running():
        assert await within(app.task(task.id, road.journey).result()) == [2, "rested"]
    await machine.check()


async def test_the_third_loss_holds_the_task_alone_and_charges_nobody_else(machine: Machine) -> None:
    """It goes on probation at the second: from then on a death is charged to it only."""
    road = Road(stops=3)
    app = machine.app([road.agent], [road.journey])
    gate, inside = asyncio.Event(), asyncio.Event()
    calm = Agent("calm")

    @calm.step
    async def wait(attempt: Attempt) -> str:
        inside.set()
        await gate.wait()
        return "calm"

    app = machine.app([road.agent, calm], [road.journey])
    async with app.running():
        task = await app.submit(road.journey())
        for losses in (1, 2):
            await until(lambda n=losses: len(road.calls) == n)
            await declare_lost(session_of(app))
        await until(lambda: len(road.calls) == 3)
        assert (await task.view()).lost_count == 2
        bystander = await app.submit(wait())
        await within(inside.wait())
        inside.clear()
        await declare_lost(session_of(app))
        with pytest.raises(TaskFailed, match="3 processes died or froze while they held it") as failed:
            await within(task.result())
        assert (failed.value.state, failed.value.code) == ("held", "lost")
        await within(inside.wait())
        assert (await bystander.view()).lost_count == 0
        gate.set()
        assert await within(bystander.result()) == "calm"
    assert len(road.calls) == 3
    assert [e["cause"] for e in await machine.events("alert.opened")] == ["lost"]
    await machine.check()


async def test_a_process_killed_while_it_drains_charges_nobody(machine: Machine) -> None:
    """As a platform does that restarts everything, and has no patience."""
    road = Road(stops=1)
    app, other = machine.app([road.agent], [road.journey]), machine.app([road.agent], [road.journey])
    running = app.running()
    await running.__aenter__()
    task = await app.submit(road.journey())
    await until(lambda: len(road.calls) == 1)
    session = session_of(app)
    leaving = asyncio.create_task(running.__aexit__(None, None, None))

    async def is_told() -> bool | None:
        _, processes = await session._store.known_processes()
        return any(read_process_about(process).leaving for process in processes) or None

    await eventually(is_told)
    await declare_lost(session)
    async with other.running():
        assert await within(other.task(task.id, road.journey).result()) == [2, "rested"]
    road.stop.set()
    await within(leaving)
    assert [e["lost_count"] for e in await machine.events("step.lost")] == [1]  # in doubt, as after every loss
    assert await machine.events("task.lost") == []
    await machine.check()


async def test_a_setting_says_at_which_loss_a_task_is_held(machine: Machine) -> None:
    road = Road(stops=4)
    settings = msgspec.structs.replace(QUICK, lost_processes_max=5)
    app = machine.app([road.agent], [road.journey], settings=settings)
    async with app.running():
        task = await app.submit(road.journey())
        for losses in (1, 2, 3, 4):
            await until(lambda n=losses: len(road.calls) == n)
            await declare_lost(session_of(app))
        assert await within(task.result()) == [5, "rested"]
    assert [e["lost_count"] for e in await machine.events("task.lost")] == [1, 2, 3, 4]
    await machine.check()


@pytest.mark.parametrize("losses", [0, 2, True, 1_000_001])
async def test_a_task_cannot_be_held_before_it_was_alone(machine: Machine, losses: int) -> None:
    road = Road(stops=0)
    app = machine.app([road.agent], [road.journey])
    with pytest.raises(InvalidInput, match=r"lost.processes.max.* a whole number from 3 to 1,000,000; from loss 2 on"):
        app.running(lost_processes_max=losses)
    assert session_settings(app, 7) == 7


def session_settings(app: App, losses: int) -> int:
    return app.session.configure(lost_processes_max=losses).node_settings().lost_processes_max


async def test_a_recorded_step_ends_the_probation(machine: Machine) -> None:
    road = Road(stops=2)
    app = machine.app([road.agent], [road.journey])
    async with app.running():
        task = await app.submit(road.journey())
        for losses in (1, 2):
            await until(lambda n=losses: len(road.calls) == n)
            await declare_lost(session_of(app))
        assert await within(task.result()) == [3, "rested"]
        assert (await task.view()).lost_count == 0
    await machine.check()


async def test_two_tasks_on_probation_are_handled_one_after_the_other(machine: Machine) -> None:
    road = Road(stops=6)  # two tasks, twice lost together: then one alone, and both its and the other's last stop
    app = machine.app([road.agent], [road.journey])
    async with app.running():
        tasks = [await app.submit(road.walk()) for _ in range(2)]
        for calls in (2, 4):
            await until(lambda n=calls: len(road.calls) == n)
            await declare_lost(session_of(app))
        await until(lambda: len(road.calls) == 5)
        assert sorted([(await task.view()).lost_count for task in tasks]) == [2, 2]
        assert await within((await app.submit(road.rest())).result()) == "rested"  # others do not wait for either
        assert len(road.calls) == 5
        road.stop.set()
        assert sorted([await within(task.result()) for task in tasks]) == [5, 6]
    await machine.check()


async def test_a_lost_process_that_held_nothing_harms_nobody(machine: Machine) -> None:
    road = Road(stops=0)
    app = machine.app([road.agent], [road.journey])
    async with app.running():
        for _ in range(3):
            session = session_of(app)
            await declare_lost(session)

            async def begun_again(old: NodeSession = session) -> NodeSession | None:
                node = app.session.node
                return node.session if node is not None and node.session not in (None, old) else None

            await eventually(begun_again)
        assert await within((await app.submit(road.journey())).result()) == [1, "rested"]
    assert await machine.events("task.lost") == []
    await machine.check()
