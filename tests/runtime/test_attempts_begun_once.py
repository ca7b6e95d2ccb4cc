"""An attempt begun in a process is never begun there again, and begins there in time, whatever answer was slow or lost."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from runtime_world import Write, around_commits, session_in

from arriero import (
    Agent,
    App,
    Attempt,
    Retry,
    StoreError,
    Supervision,
    TaskCompensated,
    Transient,
    Undo,
    testing,
    workflow,
)
from arriero.model import Instant
from arriero.model.answers import Answer, Taken
from arriero.model.commands import Advance, AnyCommand, Report, Submit
from arriero.runtime import ports
from arriero.system import boot_clock

ONCE = Supervision(attempts=1)


def opens(batch: Sequence[AnyCommand], step: str) -> bool:
    return any(isinstance(c, Advance) and any(new.name == step for new in c.opened) for c in batch)


class Bank:
    """A charge that books, and whose answer never comes; a second call would be refused."""

    def __init__(self) -> None:
        self.calls = 0
        self.booked: set[str] = set()
        self.refunds: list[str] = []
        agent = Agent("bank")

        @agent.step(complete_within=3, retry=Retry(tries=1), supervision=ONCE)
        async def charge(attempt: Attempt) -> str:
            self.calls += 1
            if self.calls > 1:
                raise Transient("connection refused")
            self.booked.add(attempt.idempotency_key)
            await asyncio.Event().wait()
            return "never"

        @charge.compensation
        async def refund(undo: Undo[str]) -> None:
            self.refunds.append(undo.outcome)
            self.booked.discard(undo.forward_key)

        @workflow
        async def pay() -> str:
            return await charge()

        self.app = App("bank", agents=[agent], workflows=[pay])
        self.pay = pay


async def test_an_attempt_that_ended_in_silence_is_not_begun_again_when_its_task_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bank = Bank()
    async with testing.running(bank.app) as world:

        async def slow(write: Write, batch: Sequence[AnyCommand]) -> list[Answer]:
            if opens(batch, "charge"):
                await world._ports.clock.sleep(2)  # so its own deadline is two seconds earlier than the store's
            answers: list[Answer] = await write(batch)
            return answers

        around_commits(world, monkeypatch, slow)
        task = await world.app.submit(bank.pay())
        await world.clock.advance(3.5)
        assert (bank.calls, session_in(world).agents.in_flight) == (1, {})
        scheduler = session_in(world).scheduler
        (task_no,) = scheduler.drivers
        scheduler.reload_soon(task_no, ())
        await world.clock.advance(0.5)
        with pytest.raises(TaskCompensated, match="no answer within its time"):
            await task.result()
    assert bank.calls == 1
    assert bank.refunds == ["unknown"]
    assert not bank.booked


async def test_an_attempt_whose_take_was_answered_by_an_error_begins_though_its_task_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    narrow, wide = Agent("narrow", max_in_flight=1), Agent("wide")
    let_go, ready = asyncio.Event(), asyncio.Event()
    began: list[tuple[int, float]] = []

    @narrow.step(complete_within=600)
    async def block(attempt: Attempt) -> None:
        await let_go.wait()

    @narrow.step(complete_within=8)
    async def taken(attempt: Attempt) -> str:
        began.append((attempt.number, attempt.remaining))
        return "taken"

    @wide.step(complete_within=600)
    async def beside(attempt: Attempt) -> str:
        await ready.wait()
        return "beside"

    @workflow
    async def first() -> None:
        await block()

    @workflow
    async def both() -> list[str]:
        return await asyncio.gather(taken(), beside())

    async with testing.running(App("lost", agents=[narrow, wide], workflows=[first, both])) as world:
        is_lost = slow_once = False

        async def losing(write: Write, batch: Sequence[AnyCommand]) -> list[Answer]:
            nonlocal is_lost, slow_once
            if is_lost and not slow_once and any(isinstance(c, Advance) and c.delivered for c in batch):
                slow_once = True
                await world._ports.clock.sleep(5)
            answers: list[Answer] = await write(batch)
            if not is_lost and any(isinstance(answer, Taken) and answer.dispatches for answer in answers):
                is_lost = True
                ready.set()  # now the task becomes busy, with a commit that takes its time
                raise StoreError("effect, then error")
            return answers

        await world.app.submit(first())
        await world.clock.advance(0.1)
        task = await world.app.submit(both())
        await world.clock.advance(0.1)
        around_commits(world, monkeypatch, losing)
        let_go.set()
        assert await task.result() == ["taken", "beside"]
        assert (is_lost, slow_once) == (True, True)
        view = world._store.load_as_is(await task._find_number())
        assert [step.failure_count for step in view.steps] == [0, 0]
    assert [number for number, _ in began] == [1]
    assert began[0][1] > 5  # seconds of its time were left


async def test_places_kept_for_a_lost_submission_come_back_though_looks_for_news_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent("one", max_in_flight=1)

    @agent.step
    async def go(attempt: Attempt) -> str:
        return "done"

    @workflow
    async def work() -> str:
        return await go()

    async with testing.running(App("places", agents=[agent], workflows=[work])) as world:
        for _ in range(3):
            await (await world.app.submit(work())).result()  # by now a task begins with its submission
        store = world._store
        assert world.app.session.submissions is not None
        committer = world.app.session.submissions._committer
        submit, load_news = committer._write, store.load_news
        failing = {"submit": 1, "news": 0}
        begun_with: list[bool] = []

        async def losing(batch: Sequence[Submit]) -> list[Answer]:
            if failing["submit"]:
                failing.update(submit=0, news=2)
                begun_with.extend(command.start is not None for command in batch)
                raise StoreError("nothing was written")
            answers: list[Answer] = await submit(batch)
            return answers

        async def failing_news(process_no: int) -> Any:
            if failing["news"]:
                failing["news"] -= 1
                raise StoreError("no answer")
            return await load_news(process_no)

        monkeypatch.setattr(committer, "_write", losing)
        monkeypatch.setattr(store, "load_news", failing_news)
        with pytest.raises(StoreError):
            await world.app.submit(work(), task_id="lost")
        for _ in range(5):  # each lets the polls pass
            await world.clock.advance(10)
        assert (begun_with, failing["news"]) == ([True], 0)
        assert session_in(world).agents.count_leaked_places() == 0
        assert await (await world.app.submit(work())).result() == "done"


async def test_an_attempt_that_ended_before_its_submission_was_answered_is_not_begun_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent("one")
    calls: list[str] = []

    @agent.step(complete_within=600)
    async def go(attempt: Attempt) -> str:
        calls.append(attempt.task_id)
        return "done"

    @workflow
    async def work() -> str:
        return await go()

    async with testing.running(App("late", agents=[agent], workflows=[work])) as world:
        for _ in range(3):
            await (await world.app.submit(work())).result()  # by now a task begins with its submission
        assert world.app.session.submissions is not None
        committer = world.app.session.submissions._committer
        submit, is_answered = committer._write, asyncio.Event()

        async def slow(batch: Sequence[Submit]) -> list[Answer]:
            assert all(command.start is not None for command in batch)
            answers: list[Answer] = await submit(batch)
            await is_answered.wait()
            return answers

        monkeypatch.setattr(committer, "_write", slow)
        late = asyncio.create_task(world.app.submit(work(), task_id="late"))
        for _ in range(5):  # the news bring the task; it runs, ends and is let go
            await world.clock.advance(10)
        assert (calls.count("late"), (await world.app.task("late").view()).state) == (1, "processed")
        is_answered.set()
        assert await (await late).result() == "done"
        await world.clock.advance(10)
        assert calls.count("late") == 1
        assert session_in(world).agents.count_leaked_places() == 0


async def test_no_try_is_made_once_complete_by_has_passed_while_the_machine_slept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent("one")
    sent: list[int] = []

    @agent.step(complete_within=10, retry=Retry(tries=3, delay=2, factor=1))
    async def pay(attempt: Attempt) -> str:
        sent.append(attempt.number)
        if attempt.number == 1:
            raise Transient("busy")
        return "paid"

    @workflow
    async def work() -> str:
        return await pay()

    async with testing.running(App("asleep", agents=[agent], workflows=[work])) as world:
        task = await world.app.submit(work())
        await world.clock.advance(0.5)
        assert sent == [1]
        before = world._store._clock
        monkeypatch.setattr(world._store, "_clock", lambda: Instant(before() + 3_600_000_000))
        assert await task.result() == "paid"
    assert sent == [1, 2]  # attempt 1 has been asked for once: the next request belongs to attempt 2


def test_a_process_counts_the_time_that_its_machine_slept() -> None:
    assert ports.LoopClock.monotonic is boot_clock.seconds_since_boot
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= ports.LoopClock().monotonic() <= time.clock_gettime(time.CLOCK_BOOTTIME)


async def test_a_late_report_is_offered_with_its_advance_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent("late")

    @agent.step(complete_within=1, retry=Retry(tries=1), supervision=ONCE)
    async def work(attempt: Attempt) -> str:
        return "done"

    @workflow
    async def once() -> str:
        return await work()

    async with testing.running(App("late", agents=[agent], workflows=[once])) as world:
        offered: list[str] = []
        slept = False

        async def slow(write: Write, batch: Sequence[AnyCommand]) -> list[Answer]:
            nonlocal slept
            for command in batch:
                if isinstance(command, Report) or (isinstance(command, Advance) and command.delivered):
                    offered.append(type(command).__name__)
                    if not slept:
                        slept = True
                        await world._ports.clock.sleep(2)
            answers: list[Answer] = await write(batch)
            return answers

        # Nobody recovers it: else a look at the record could show it as ended before it is offered again.
        monkeypatch.setattr(session_in(world).supervisor, "tick", lambda term: asyncio.sleep(0, 0))
        around_commits(world, monkeypatch, slow)
        await world.app.submit(once())
        await world.clock.advance(10)
    assert offered == ["Advance", "Report"]
