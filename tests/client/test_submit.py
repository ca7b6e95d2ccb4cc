"""Accepted means durable, and the same task_id means the same task."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest
from runtime_world import Machine, within

from arriero import Agent, App, Attempt, InvalidInput, OutcomeUnknown, StoreError, testing, workflow
from arriero.store.sqlite.store import SqliteStore

echoes = Agent("echoes", max_in_flight=1)
seen: list[str] = []


@echoes.step
async def echo(attempt: Attempt, text: str) -> str:
    seen.append(text)
    return text


@workflow
async def greet(name: str) -> str:
    return await echo(name)


@workflow
async def part(name: str) -> str:
    return await echo(name)


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


# --- the same id
async def test_the_same_task_id_answers_with_the_same_task(machine: Machine) -> None:
    app = machine.app([echoes], [greet])
    async with app.running():
        first = await app.submit(greet("mule"), task_id="t")
        again = await app.submit(greet("mule"), task_id="t")
        assert first._task_no == again._task_no
        assert await within(again.result()) == "mule"
        late = await app.submit(greet("mule"), task_id="t", priority=9)
        assert await within(late.result()) == "mule"
    assert seen == ["mule"]
    assert len(await machine.events("task.submitted")) == 1


async def test_a_handle_says_whether_its_submission_created_the_task(machine: Machine) -> None:
    app = machine.app([echoes], [greet])
    async with app:
        first = await app.submit(greet("mule"), task_id="t")
        again = await app.submit(greet("mule"), task_id="t")
        assert (first.created, again.created, app.task("t").created) == (True, False, None)


async def test_a_thousand_at_once_under_one_id_are_one_task(machine: Machine) -> None:
    first, second = machine.app([echoes], [greet]), machine.app([echoes], [greet])
    async with first, second:
        tasks = await asyncio.gather(
            *(app.submit(greet("mule"), task_id="t") for app in (first, second) for _ in range(500))
        )
        assert len({task._task_no for task in tasks}) == 1
    assert len(await machine.events("task.submitted")) == 1


async def test_another_body_under_a_known_id_is_refused(machine: Machine) -> None:
    async with machine.app([echoes], [greet, part]) as app:
        await app.submit(greet("mule"), task_id="t")
        with pytest.raises(InvalidInput, match="task 't' exists with another body; use another task_id"):
            await app.submit(greet("donkey"), task_id="t")
        with pytest.raises(InvalidInput, match="task 't' exists with another workflow"):
            await app.submit(part("mule"), task_id="t")
        with pytest.raises(InvalidInput, match="task 't' exists with another workflow"):
            await app.submit(echo("mule"), task_id="t")
    assert len(await machine.events("task.submitted")) == 1


async def test_ids_that_arriero_makes_are_all_different_and_sort_by_time(machine: Machine) -> None:
    async with machine.app([echoes], [greet]) as app:
        ids = [(await app.submit(greet("mule"))).id for _ in range(20)]
    assert ids == sorted(set(ids))


# --- what is refused
@pytest.mark.parametrize("task_id", ["", "x" * 256, "a\nb", "a\0b", "a\ud800b", 7])
async def test_an_id_that_cannot_be_kept_is_refused_by_name(machine: Machine, task_id: Any) -> None:
    async with machine.app([echoes], [greet]) as app:
        with pytest.raises(InvalidInput, match="task_id"):
            await app.submit(greet("mule"), task_id=task_id)
        with pytest.raises(InvalidInput, match="task_id"):
            app.task(task_id)


@pytest.mark.parametrize("priority", [-1, 10, 5.0, True, "5", None])
async def test_a_priority_that_is_none_is_refused(machine: Machine, priority: Any) -> None:
    async with machine.app([echoes], [greet]) as app:
        with pytest.raises(InvalidInput, match="priority is .*; it must be a whole number from 0 to 9"):
            await app.submit(greet("mule"), priority=priority)


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, "1", None, 1e12])
async def test_a_delay_that_is_none_is_refused(machine: Machine, delay: Any) -> None:
    async with machine.app([echoes], [greet]) as app:
        with pytest.raises(InvalidInput, match="delay"):
            await app.submit(greet("mule"), delay=delay)


async def test_what_is_not_in_the_app_is_refused_by_name(machine: Machine) -> None:
    other = Agent("other")

    @other.step
    async def elsewhere(attempt: Attempt) -> None: ...

    async with machine.app([echoes], [greet]) as app:
        with pytest.raises(InvalidInput, match="workflow 'part' is not in App machine; it has greet"):
            await app.submit(part("mule"))
        with pytest.raises(
            InvalidInput, match="step 'elsewhere' of Agent 'other' is not in App machine: add the Agent"
        ):
            await app.submit(elsewhere())
        for value in (greet, None, "greet", greet.function):
            with pytest.raises(InvalidInput, match="submit takes the call of a workflow or step"):
                await app.submit(value)  # type: ignore[call-overload]  # bad on purpose


async def test_another_definition_under_the_same_name_is_not_in_the_app(machine: Machine) -> None:
    @workflow(name="greet")
    async def impostor(name: str) -> str:
        return name

    async with machine.app([echoes], [greet]) as app:
        with pytest.raises(InvalidInput, match="workflow 'greet' is not in App"):
            await app.submit(impostor("mule"))


# --- order and time
async def test_nine_goes_first(machine: Machine) -> None:
    app = machine.app([echoes], [greet])
    async with app:
        tasks = [await app.submit(greet(str(priority)), priority=priority) for priority in (0, 5, 9, 1, 8)]
        async with app.running():
            await within(asyncio.gather(*(task.result() for task in tasks)))
    assert seen == ["9", "8", "5", "1", "0"]


async def test_a_delayed_task_waits_and_then_runs() -> None:
    app = App("delayed", agents=[echoes], workflows=[greet])
    async with testing.running(app) as world:
        later = await world.app.submit(greet("later"), delay=7200)
        soon = await world.app.submit(greet("soon"), delay=60)
        began = world.clock.now()
        assert await soon.result() == "soon"
        assert 60 <= (world.clock.now() - began).total_seconds() < 61
        assert (await later.view()).state == "pending"
        assert await later.result() == "later"
        assert 7200 <= (world.clock.now() - began).total_seconds() < 7201


async def test_a_step_can_be_submitted_as_a_task_of_its_own(machine: Machine) -> None:
    app = machine.app([echoes])
    async with app.running():
        task = await app.submit(echo("mule").options(key="k"), task_id="t")
        assert await within(task.result()) == "mule"
        assert (await task.view()).workflow == "step:echo"


# --- a store that does not answer
class Trouble:
    """Makes the store fail from outside: before its effect, after it, or also when it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before = self.after = self.find_fails = False
        submit, find = SqliteStore.submit, SqliteStore.find

        async def bad_submit(store: SqliteStore, batch: Sequence[Any]) -> Any:
            if self.before:
                raise StoreError("store: gone before")
            answer = await submit(store, batch)
            if self.after:
                raise StoreError("store: gone after")
            return answer

        async def bad_find(store: SqliteStore, task_id: str) -> Any:
            if self.find_fails:
                raise StoreError("store: still gone")
            return await find(store, task_id)

        monkeypatch.setattr(SqliteStore, "submit", bad_submit)
        monkeypatch.setattr(SqliteStore, "find", bad_find)


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> Trouble:
    return Trouble(monkeypatch)


async def test_an_answer_lost_after_the_commit_is_found_again(machine: Machine, trouble: Trouble) -> None:
    async with machine.app([echoes], [greet]) as app:
        trouble.after = True
        task = await app.submit(greet("mule"), task_id="t")
        assert (await task.view()).state == "pending"
    assert len(await machine.events("task.submitted")) == 1


async def test_a_store_error_before_the_commit_leaves_nothing(machine: Machine, trouble: Trouble) -> None:
    async with machine.app([echoes], [greet]) as app:
        trouble.before = True
        with pytest.raises(StoreError, match="gone before"):
            await app.submit(greet("mule"), task_id="t")
        trouble.before = False
        await app.submit(greet("donkey"), task_id="t")  # another body: nothing stood there
    assert len(await machine.events("task.submitted")) == 1


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_outcome_nobody_can_find_out_is_told_and_may_be_asked_again(
    machine: Machine, trouble: Trouble, when: str
) -> None:
    async with machine.app([echoes], [greet]) as app:
        setattr(trouble, when, True)
        trouble.find_fails = True
        with pytest.raises(OutcomeUnknown, match="submit again under the same task_id") as unknown:
            await app.submit(greet("mule"), task_id="t")
        assert unknown.value.task_id == "t"
        trouble.before = trouble.after = trouble.find_fails = False
        await app.submit(greet("mule"), task_id="t")
    assert len(await machine.events("task.submitted")) == 1


async def test_a_lost_answer_does_not_hide_that_the_id_is_taken_by_another_body(
    machine: Machine, trouble: Trouble
) -> None:
    async with machine.app([echoes], [greet]) as app:
        await app.submit(greet("mule"), task_id="t")
        trouble.after = True
        with pytest.raises(InvalidInput, match="exists with another body"):
            await app.submit(greet("donkey"), task_id="t")
