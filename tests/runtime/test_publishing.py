"""What workflow code and steps publish while they run: the latest value is shown, few are written, none comes back."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from runtime_world import Machine, eventually, session_of, within

import arriero
from arriero import (
    Agent,
    App,
    ArrieroError,
    Attempt,
    InvalidInput,
    Permanent,
    Retry,
    Supervision,
    TaskCompensated,
    TaskHeld,
    Undo,
    testing,
    workflow,
)
from arriero.client.task_view import TaskView
from arriero.model.commands import Advance, AnyCommand, PublishProgress
from arriero.testing import World

ONCE: dict[str, Any] = {"retry": Retry(tries=1), "supervision": Supervision(attempts=2)}


def app_of(*steps: Agent, code: Any = None) -> App:
    return App("machine", agents=list(steps), workflows=[] if code is None else [code])


async def publications(world: World) -> int:
    """How many values were written in a world, of its first task and its steps."""
    return sum(row.number for row in await world.app.session.store.published(1))


def by_label(view: TaskView) -> dict[str, Any]:
    return {step.label: step.published for step in view.steps}


def noting(world: World, kind: type[AnyCommand], monkeypatch: pytest.MonkeyPatch) -> list[AnyCommand]:
    """The commands of a kind that the world's process sends from now on."""
    committer, sent = session_of(world.app).committer, []
    write = committer._write

    async def note(batch: Sequence[AnyCommand]) -> Any:
        sent.extend(command for command in batch if isinstance(command, kind))
        return await write(batch)

    monkeypatch.setattr(committer, "_write", note)
    return sent


# --- workflow code
async def test_what_the_code_publishes_is_written_with_its_next_commit_and_costs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = Agent("shop")

    @shop.step(complete_within=5)
    async def pack(box: int) -> int:
        return box

    @workflow
    async def pack_three(publishes: bool) -> int:
        for box in range(3):
            await pack(box)
            if publishes:
                arriero.publish({"packed": box + 1})
        return 3

    counts = []
    for publishes in (False, True):
        async with testing.running(app_of(shop, code=pack_three)) as world:
            sent = noting(world, Advance, monkeypatch)
            task = await world.app.submit(pack_three(publishes))
            await task.result()
            counts.append(len(sent))
            view = await task.view()
            assert view.published == ({"packed": 3} if publishes else None)
            assert (view.published_at is not None) == publishes
    assert counts[0] == counts[1]


async def test_code_that_publishes_and_then_only_waits_is_shown_while_it_waits() -> None:
    @workflow
    async def wait_a_day() -> int:
        arriero.publish("waiting")
        await arriero.sleep(timedelta(days=1))
        arriero.publish("awake")
        await arriero.sleep(timedelta(days=1))
        return 1

    async with testing.running(app_of(code=wait_a_day)) as world:
        task = await world.app.submit(wait_a_day())
        await world.clock.advance(60)
        assert (await task.view()).published == "waiting"
        await world.clock.advance(timedelta(days=1))
        assert (await task.view()).published == "awake"


async def test_what_is_published_before_the_first_step_is_shown_although_that_began_with_the_submission(
    machine: Machine,
) -> None:
    agent, go_on = Agent("shop"), asyncio.Event()

    @agent.step(complete_within=60)
    async def pack() -> int:
        await go_on.wait()
        return 1

    @workflow
    async def pack_once() -> int:
        arriero.publish("begun")
        return await pack()

    app = machine.app([agent], [pack_once])
    async with app.running():
        task = await app.submit(pack_once())

        async def look() -> bool | None:
            return True if (await task.view()).published == "begun" else None

        await eventually(look)
        go_on.set()
        assert await within(task.result()) == 1
    await machine.check()


async def test_a_replay_in_another_process_publishes_no_older_value_over_a_newer_one(machine: Machine) -> None:
    agent, reached, go_on = Agent("shop"), asyncio.Event(), asyncio.Event()
    runs: list[str] = []

    @agent.step(complete_within=60)
    async def pack(box: int) -> int:
        if box == 1:
            reached.set()
            await go_on.wait()
        return box

    @workflow
    async def pack_two() -> int:
        runs.append("run")
        arriero.publish("first")
        await pack(0)
        arriero.publish("second")
        return await pack(1)

    first, second = machine.app([agent], [pack_two]), machine.app([agent], [pack_two])
    seen = []
    async with first.running():
        task = await first.submit(pack_two())
        await within(reached.wait())
        seen.append((await task.view()).published)
        rows = await first.session.store.published(1)
        session_of(first).agents.abandon()
    async with second.running():
        go_on.set()
        found = second.task(task.id)
        assert await within(found.result()) == 1
        assert (await second.session.store.published(1)) == rows  # the replay has changed nothing
    assert seen == ["second"]
    assert len(runs) > 1
    await machine.check()


async def test_code_that_fails_shows_what_it_published_last() -> None:
    @workflow
    async def break_down() -> None:
        arriero.publish("nearly there")
        raise ValueError("a bug")

    async with testing.running(app_of(code=break_down)) as world:
        task = await world.app.submit(break_down())
        with pytest.raises(TaskHeld):
            await task.result()
        assert (await task.view()).published == "nearly there"


async def test_a_value_that_cannot_be_kept_is_refused_where_it_is_published() -> None:
    @workflow
    async def publish_too_much() -> list[str]:
        said = []
        for value in ("x" * 10_001, object(), float("nan")):
            try:
                arriero.publish(value)
            except InvalidInput as error:
                said.append(str(error))
        return said

    async with testing.running(app_of(code=publish_too_much)) as world:
        said = await (await world.app.submit(publish_too_much())).result()
    assert said[0] == (
        "what the workflow publishes has 10,003 bytes as JSON; at most 10,000 are kept: publish a summary, and return the"
        " rest as a result"
    )
    assert len(said) == 3


def test_outside_of_a_workflow_the_error_names_what_to_call_there() -> None:
    with pytest.raises(ArrieroError, match=r"works only inside a workflow: elsewhere use attempt.publish"):
        arriero.publish(1)


# --- steps
async def test_a_step_that_publishes_often_writes_once_a_second_and_its_last_value_always() -> None:
    agent = Agent("pages")

    @agent.step(complete_within=600, **ONCE)
    async def read_pages(attempt: Attempt) -> int:
        for page in range(101):
            attempt.publish({"page": page})
            await world._ports.clock.sleep(0.1)
        attempt.publish({"page": "all"})
        return 100

    async with testing.running(app_of(agent)) as world:
        task = await world.app.submit(read_pages())
        await task.result()
        (step,) = (await task.view()).steps
        assert step.published == {"page": "all"}
        assert await publications(world) <= 13  # in ten seconds


async def test_a_plain_function_publishes_from_its_thread(machine: Machine) -> None:
    agent = Agent("pages")

    @agent.step(complete_within=60, **ONCE)
    def read_pages(attempt: Attempt) -> int:
        for page in range(3):
            attempt.publish(page)
        return 3

    app = machine.app([agent])
    async with app.running():
        task = await app.submit(read_pages())
        assert await within(task.result()) == 3
        assert by_label(await task.view()) == {"read_pages": 2}
    await machine.check()


async def test_a_step_in_a_child_process_publishes(machine: Machine) -> None:
    from child_steps import child, report_pages

    app = machine.app([child])
    async with app.running():
        task = await app.submit(report_pages(3))
        assert await within(task.result()) == 3
        assert by_label(await task.view()) == {"report_pages": {"page": 2}}
    await machine.check()


async def test_an_attempt_that_is_over_publishes_nothing() -> None:
    agent, left = Agent("pages"), []

    @agent.step(complete_within=5, **ONCE)
    async def read_pages(attempt: Attempt) -> int:
        attempt.publish(f"attempt {attempt.number}")
        left.append(attempt)
        return 1

    async with testing.running(app_of(agent)) as world:
        task = await world.app.submit(read_pages())
        await task.result()
        left[0].publish("too late")
        await world.clock.advance(10)
        assert by_label(await task.view()) == {"read_pages": "attempt 1"}


async def test_an_attempt_whose_time_is_over_leaves_what_the_next_one_publishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent("pages")

    @agent.step(complete_within=2, **ONCE)
    async def read_pages(attempt: Attempt) -> int:
        attempt.publish(attempt.number)
        if attempt.number == 1:
            try:
                await world._ports.clock.sleep(100)
            finally:
                attempt.publish("of the one before")
        return attempt.number

    async with testing.running(app_of(agent)) as world:
        sent = noting(world, PublishProgress, monkeypatch)
        task = await world.app.submit(read_pages())
        assert await task.result() == 2
        assert by_label(await task.view()) == {"read_pages": 2}
        assert "of the one before" not in {command.value for command in sent if isinstance(command, PublishProgress)}


async def test_a_step_publishes_at_most_10_kb() -> None:
    agent = Agent("pages")

    @agent.step(complete_within=2, **ONCE)
    async def read_pages(attempt: Attempt) -> str:
        with pytest.raises(InvalidInput) as raised:
            attempt.publish(["x" * 10_000])
        return str(raised.value)

    async with testing.running(app_of(agent)) as world:
        said = await (await world.app.submit(read_pages())).result()
    assert said.startswith("what step read_pages publishes has 10,004 bytes as JSON; at most 10,000 are kept")


# --- undo, resubmission, convoys
async def test_a_compensation_publishes_beside_its_step() -> None:
    agent = Agent("shop")

    @agent.step(complete_within=5)
    async def reserve(attempt: Attempt) -> int:
        attempt.publish("reserved")
        return 1

    @reserve.compensation(complete_within=5)
    async def give_back(undo: Undo[int]) -> None:
        undo.publish("given back")

    @workflow
    async def refuse() -> None:
        await reserve()
        arriero.publish("refused")
        raise Permanent("no", code="no")

    async with testing.running(app_of(agent, code=refuse)) as world:
        task = await world.app.submit(refuse())
        with pytest.raises(TaskCompensated):
            await task.result()
        view = await task.view()
        assert view.published == "refused"
        assert [(step.kind, step.published) for step in view.steps] == [
            ("step", "reserved"),
            ("compensation", "given back"),
        ]


async def test_a_resubmitted_task_publishes_from_where_it_continues_and_one_run_again_from_its_start() -> None:
    agent, stock = Agent("shop"), [0]

    @agent.step(complete_within=5, supervision=Supervision(attempts=1, then="hold"))
    async def reserve() -> int:
        if not stock[0]:
            raise Permanent("sold out")
        return stock[0]

    @workflow
    async def buy() -> int:
        arriero.publish("begun")
        found = await reserve()
        arriero.publish("reserved")
        await arriero.sleep(60)
        return found

    async with testing.running(app_of(agent, code=buy)) as world:
        task = await world.app.submit(buy())
        with pytest.raises(TaskHeld):
            await task.result()
        assert (await task.view()).published == "begun"
        stock[0] = 1
        await task.resubmit(by="ana", reason="it is there again")
        await world.clock.advance(30)
        assert (await task.view()).published == "reserved"
        assert await task.result() == 1
        assert (await task.view()).published == "reserved"


async def test_a_task_that_begins_with_the_end_of_the_one_before_it_publishes_too(machine: Machine) -> None:
    agent = Agent("shop")

    @agent.step(complete_within=60)
    async def pack(box: int) -> int:
        return box

    @workflow
    async def pack_one(box: int) -> int:
        arriero.publish({"box": box})
        return await pack(box)

    app = machine.app([agent], [pack_one])
    async with app.running():
        tasks = [await app.submit(pack_one(box), convoy="belt") for box in range(4)]
        assert [await within(task.result()) for task in tasks] == [0, 1, 2, 3]
        assert [(await task.view()).published for task in tasks] == [{"box": box} for box in range(4)]
    await machine.check()


# --- statuses
async def test_a_reply_queue_gets_progress_merged_and_the_last_value_before_the_end() -> None:
    agent = Agent("pages")

    @agent.step(complete_within=600, **ONCE)
    async def read_pages(attempt: Attempt) -> int:
        for page in range(50):
            attempt.publish({"page": page})
            await world._ports.clock.sleep(0.1)
        return 50

    async with testing.running(app_of(agent)) as world:
        task = await world.app.submit(read_pages(), reply_to="web")
        await task.result()
        replies, told = world.app.replies("web"), []
        while (status := await replies.next_ready()) is not None:
            told.append(status)
    kinds = [status.kind for status in told]
    assert kinds[:2] == ["received", "started"]
    assert kinds[-1] == "completed"
    assert 1 <= kinds.count("progress") <= 2  # nobody has read meanwhile
    last = told[-2]
    assert (last.value, last.step, last.number) == ({"page": 49}, "read_pages", 0)
    assert last.cloud_event()["type"] == "arriero.task.progress"
    assert last.cloud_event()["data"]["value"] == {"page": 49}
    assert len({status.id for status in told}) == len(told)
