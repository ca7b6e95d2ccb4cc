"""An event loop that stands still is told once, with what ran, and once when it goes on; failures say that it was so."""

import asyncio
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from runtime_world import Machine, session_of, until, within

from arriero import Agent, Attempt, Retry, Supervision, TaskFailed, workflow
from arriero.explain.standstills import Standstill
from arriero.model import Instant, later
from arriero.model.failures import CapturedError, Frame
from arriero.runtime.loop_watch import LOOK_SECONDS, NOT_RUN_SECONDS, SEEN_SECONDS, TOLD_SECONDS, Doing, LoopWatch


class Lines(list[str]):
    """In place of the log."""

    def tell(self, _kind: object, line: str) -> None:
        self.append(line)


class Bench:
    """A loop that answers when the test says so, and a clock that it moves."""

    def __init__(self) -> None:
        self.at = 100.0
        self.lines = Lines()
        self.asked: list[Callable[[], None]] = []
        self.doing = Doing("step charge of task t-1")
        self.frame: FrameType | None = sys._getframe()
        self.watch = LoopWatch(
            self,  # type: ignore[arg-type]  # what is asked of a loop
            monotonic=lambda: self.at,
            now=lambda: Instant(round(self.at * 1_000_000)),
            doing=lambda: self.doing,
            log=self.lines,  # type: ignore[arg-type]  # what is asked of a log
        )

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        self.asked.append(callback)

    def look(self, seconds: float = LOOK_SECONDS) -> None:
        """Let so much time pass, in looks."""
        end = self.at + seconds
        while self.at < end - 1e-9:
            self.at += LOOK_SECONDS
            self.watch.look(lambda: self.frame)

    def answer(self) -> None:
        for callback in self.asked:
            callback()
        self.asked.clear()


def test_a_loop_that_answers_is_no_news() -> None:
    bench = Bench()
    for _ in range(50):
        bench.look()
        bench.answer()
    assert bench.lines == []
    assert list(bench.watch.list_standstills()) == []


def test_a_standstill_is_told_once_and_once_when_it_is_over() -> None:
    bench = Bench()
    bench.look()
    bench.look(20.0)
    (line,) = bench.lines
    assert line.startswith("the event loop has been blocked for 1.")
    assert "test_loop_watch.py" in line
    assert "(step charge of task t-1)" in line
    assert "make the step a plain function (def), or await asyncio.to_thread(...)" in line
    bench.answer()
    bench.look()
    bench.answer()
    assert len(bench.lines) == 2
    assert bench.lines[1].startswith("the event loop is running again after being blocked for 20 s, at ")
    bench.look()
    bench.look(20.0)
    assert len(bench.lines) == 3


def test_a_short_one_is_remembered_and_not_told() -> None:
    bench = Bench()
    bench.look()
    bench.look((SEEN_SECONDS + TOLD_SECONDS) / 2)
    assert [one.until for one in bench.watch.list_standstills()] == [Instant(round(bench.at * 1_000_000))]
    bench.answer()
    (over,) = bench.watch.list_standstills()
    assert over.doing == "step charge of task t-1"
    assert bench.watch.find_current() is None
    assert bench.lines == []


def test_the_first_line_of_the_users_that_is_seen_stays() -> None:
    bench = Bench()
    bench.frame = None
    bench.look()
    bench.look(SEEN_SECONDS + LOOK_SECONDS)
    bench.frame = sys._getframe()
    bench.look()
    bench.frame, bench.doing = None, Doing()
    bench.look(1.0)
    seen = bench.watch.find_current()
    assert isinstance(seen, Standstill)
    assert seen.doing == "step charge of task t-1"


def test_a_machine_that_slept_is_no_standstill_of_the_loop() -> None:
    bench = Bench()
    bench.look()
    bench.at += 3_600 + NOT_RUN_SECONDS
    bench.watch.look(lambda: bench.frame)
    bench.answer()
    bench.look()
    bench.answer()
    assert bench.lines == []
    assert list(bench.watch.list_standstills()) == []


def test_a_loop_that_has_ended_is_no_trouble() -> None:
    bench = Bench()

    def ended(_: object) -> None:
        raise RuntimeError("Event loop is closed")

    bench.call_soon_threadsafe = ended  # type: ignore[method-assign]
    bench.look(1.0)


async def test_a_blocking_call_in_an_async_step_is_named_in_the_log_and_in_the_failure(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    told = threading.Event()
    tell = LoopWatch._note

    def noted(self: LoopWatch, *arguments: Any) -> None:
        tell(self, *arguments)
        if self._is_told:
            told.set()

    agent = Agent("bank")

    @agent.step(complete_within=0.4, retry=Retry(tries=1), supervision=Supervision(attempts=1), effect_free=True)
    async def blocks(attempt: Attempt) -> None:
        told.wait(20)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoopWatch, "_note", noted)
        app = machine.app([agent], [])
        async with app.running():
            task = await app.submit(blocks(), task_id="t")
            with pytest.raises(TaskFailed) as failed:
                await within(task.result())
    assert "no answer within its 0.4 s; the event loop of its process was blocked for " in failed.value.reason
    assert "in blocks: `told.wait(20)` (step blocks of task t): make the step a plain function" in failed.value.reason
    about = [message for message in caplog.messages if message.startswith("the event loop")]
    assert len(about) == 2
    assert "(step blocks of task t)" in about[0]
    assert "is running again after being blocked for " in about[1]


async def test_workflow_code_that_blocks_is_named(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    told = threading.Event()
    tell = LoopWatch._note

    def noted(self: LoopWatch, *arguments: Any) -> None:
        tell(self, *arguments)
        if self._is_told:
            told.set()

    @workflow
    async def blocks() -> bool:
        return told.wait(20)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoopWatch, "_note", noted)
        app = machine.app([], [blocks])
        async with app.running():
            task = await app.submit(blocks(), task_id="t")
            assert await within(task.result())
    await until(lambda: any("is running again" in message for message in caplog.messages))
    about = [message for message in caplog.messages if message.startswith("the event loop has been blocked")]
    assert "(the code of workflow blocks, task t)" in about[0]
    assert about[0].endswith("move what takes long into a step that is a plain function (def)")


async def test_that_the_lease_is_not_renewed_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    from test_membership import Bench as MembershipBench

    bench = MembershipBench()
    membership = await bench.started()
    membership._standing_still = lambda: "at shop/steps.py:12"
    membership._note_alive = lambda: None  # type: ignore[method-assign]  # the loop does not answer
    for _ in range(7):
        bench.at += 30.0
        bench._turns.release()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    about = [message for message in caplog.messages if "the process's lease is not renewed" in message]
    assert len(about) == 1
    assert "at shop/steps.py:12" in about[0]
    await bench.stop()


async def test_a_supervisor_elsewhere_learns_from_the_process_s_row_that_its_loop_stood_still(machine: Machine) -> None:
    agent, gate = Agent("bank"), asyncio.Event()

    @agent.step(complete_within=1.5, retry=Retry(tries=1), supervision=Supervision(attempts=1), effect_free=True)
    async def waits(attempt: Attempt) -> None:
        await gate.wait()

    works, supervises = machine.app([agent], []), machine.app([agent], [])
    async with works.running(roles=["scheduler", "agents"]), supervises.running(roles=["supervisor"]):
        session = session_of(works)
        assert session._standstills.watch is not None
        now = session._store.now()
        frame = Frame("shop/steps.py", 12, "waits", "time.sleep(5)")
        seen = Standstill(now, later(now, 1.0), "step waits of task t", trace=(CapturedError("stood still", (frame,)),))
        session._standstills.watch.find_current = lambda: seen  # type: ignore[method-assign]  # as the thread would find
        task = await works.submit(waits(), task_id="t")
        with pytest.raises(TaskFailed) as failed:
            await within(task.result())
        gate.set()
    assert "the event loop of its process was blocked for " in failed.value.reason
    assert "at shop/steps.py:12, in waits: `time.sleep(5)`" in failed.value.reason
    await machine.check()
