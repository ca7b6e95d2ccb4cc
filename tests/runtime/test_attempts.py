"""Attempts: when a step is not called at all, what stays in doubt, and that each is made once, however it is heard of."""

from collections import deque
from collections.abc import Sequence

import pytest
from runtime_world import session_of, within
from shop_world import DECLINED, Shop, opened, undone

from arriero import Agent, App, Attempt, Retry, StoreError, Supervision, Transient, testing, workflow
from arriero.model.answers import Answer, Applied, Taken
from arriero.model.commands import AnyCommand
from arriero.store.memory import MemoryStore


class Desk:
    """A step that answers with the number of its attempt; the first one fails if the test says so."""

    def __init__(self, *, fails_first: bool) -> None:
        self.called: list[int] = []
        agent = Agent("desk", max_in_flight=1)

        @agent.step(complete_within=30, retry=Retry(tries=1), supervision=Supervision(attempts=2))
        async def ask(attempt: Attempt) -> int:
            self.called.append(attempt.number)
            if fails_first and attempt.number == 1:
                raise Transient("busy")
            return attempt.number

        @workflow
        async def ask_once() -> int:
            return await ask()

        self.ask_once = ask_once
        self.app = App("desk", agents=[agent], workflows=[ask_once])


async def test_an_attempt_that_is_heard_of_when_its_time_is_over_calls_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, worlds, apply = Desk(fails_first=False), list[testing.World](), MemoryStore.apply

    async def answer_late(store: MemoryStore, batch: Sequence[AnyCommand]) -> list[Answer]:
        answers = await apply(store, batch)
        if worlds and any(isinstance(answer, Applied) and answer.dispatches for answer in answers):
            virtual = worlds.pop()._virtual
            virtual.jump_to(virtual.monotonic() + 31)
        return answers

    monkeypatch.setattr(MemoryStore, "apply", answer_late)
    async with testing.running(desk.app) as world:
        worlds.append(world)
        task = await world.app.submit(desk.ask_once())
        assert await within(task.result()) == 2
    assert not worlds
    assert desk.called == [2]


@pytest.mark.parametrize("answer_is", ["late", "lost"])
async def test_an_attempt_that_is_heard_of_by_another_way_is_made_once_and_keeps_no_place(
    monkeypatch: pytest.MonkeyPatch, answer_is: str
) -> None:
    """As the answer to its Take is on its way, or when that was lost, the process asks what is its own."""
    desk, heard, apply = Desk(fails_first=True), list[App](), MemoryStore.apply

    async def trouble(store: MemoryStore, batch: Sequence[AnyCommand]) -> list[Answer]:
        answers = await apply(store, batch)
        if heard and any(isinstance(answer, Taken) and answer.dispatches for answer in answers):
            app = heard.pop()
            if answer_is == "lost":
                raise StoreError("the test lost the answer")
            await session_of(app).scheduler.reconcile()
        return answers

    monkeypatch.setattr(MemoryStore, "apply", trouble)
    async with testing.running(desk.app) as world:
        heard.append(world.app)
        for _ in range(2):  # the Agent has one place: were it lost, the second would never be attempted
            task = await world.app.submit(desk.ask_once())
            assert await within(task.result()) == 2
    assert not heard
    assert desk.called == [1, 2, 1, 2]


async def test_a_step_that_is_declined_after_a_try_without_a_sure_answer_is_undone_too() -> None:
    shop = Shop()
    shop.script["charge"] = deque(["lost", DECLINED])
    async with opened(shop) as world:
        await undone(await world.app.submit(shop.strict("card", 2)), "declined")
    assert shop.undone == ["charge", "reserve"]
    assert shop.standing == 0
