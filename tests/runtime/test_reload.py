"""Records are read again in few questions, and no task's trouble is another's."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import nullcontext
from typing import Any

import msgspec
import pytest
from runtime_world import QUICK, Machine, until, within

from arriero import Agent, Attempt, workflow
from arriero.errors import StoreError
from arriero.model import Instant
from arriero.model.moves import Reported, Succeeded
from arriero.runtime.reload import TASKS_MAX, ReloadQueue
from arriero.store.sqlite.store import SqliteStore


class Record:
    """Stands for a task's record."""

    def __init__(self, task_no: int) -> None:
        self.task = self
        self.task_no = task_no


class Store:
    """Answers when it is let, from the records that it has; some it cannot read."""

    def __init__(self) -> None:
        self.questions: list[list[int]] = []
        self.answers = asyncio.Semaphore(1000)
        self.missing: set[int] = set()
        self.unreadable: set[int] = set()
        self.never: set[int] = set()
        self.at_most = TASKS_MAX
        self.silent = 0

    async def load_tasks(self, task_nos: Sequence[int]) -> list[Record]:
        self.questions.append(list(task_nos))
        await self.answers.acquire()
        if self.silent or len(task_nos) > self.at_most or self.never & set(task_nos):
            self.silent = max(0, self.silent - 1)
            raise StoreError("no answer")
        if self.unreadable & set(task_nos):
            raise ValueError("not JSON")
        return [Record(task_no) for task_no in reversed(task_nos) if task_no not in self.missing]


class Bench:
    """A ReloadQueue on that store, and what it tells."""

    def __init__(self) -> None:
        self.store = Store()
        self.slept: list[float] = []
        self.told: list[tuple[int, bool, tuple[int, ...]]] = []
        self.stumbles: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.clock = self
        self.rereading = ReloadQueue(
            store=self.store, ports=self, spawn=self._spawn, on_read=self._on_read, reading=nullcontext
        )

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(coroutine))

    def _on_read(self, task_no: int, loaded: Record | None, reports: tuple[Reported, ...]) -> None:
        if task_no in self.stumbles:
            raise RuntimeError("it stumbled")
        assert loaded is None or loaded.task_no == task_no
        self.told.append((task_no, loaded is not None, tuple(report.step_no for report in reports)))

    async def quiet(self) -> None:
        """Until nothing is asked any more."""
        while self._tasks:
            await within(self._tasks.pop())


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    yield Bench()


def report(step_no: int) -> Reported:
    return Reported(step_no, 1, Succeeded("1"), Instant(1))


async def test_what_is_asked_for_while_a_question_is_under_way_goes_with_the_next(bench: Bench) -> None:
    bench.store.answers = asyncio.Semaphore(0)
    bench.rereading.ask(1, ())
    await until(lambda: bench.store.questions)
    for task_no in (2, 3, 2, 4):
        bench.rereading.ask(task_no, ())
    for _ in range(10):
        await asyncio.sleep(0)
    assert bench.store.questions == [[1]]
    assert [task_no in bench.rereading.pending for task_no in (1, 2, 5)] == [True, True, False]
    bench.store.answers.release()
    bench.store.answers.release()
    await bench.quiet()
    assert bench.store.questions == [[1], [2, 3, 4]]
    assert bench.told == [(1, True, ()), (2, True, ()), (3, True, ()), (4, True, ())]
    assert not bench.rereading.pending


async def test_what_is_asked_for_again_while_it_is_being_read_is_read_once_more(bench: Bench) -> None:
    """What is being read may be older than what the second who asked has seen."""
    bench.store.answers = asyncio.Semaphore(0)
    bench.rereading.ask(1, ())
    await until(lambda: bench.store.questions)
    bench.rereading.ask(1, (report(7),))
    bench.store.answers.release()
    bench.store.answers.release()
    await bench.quiet()
    assert bench.store.questions == [[1], [1]]
    assert bench.told == [(1, True, (7,)), (1, True, ())]


async def test_a_question_names_a_bounded_number_of_tasks(bench: Bench) -> None:
    for task_no in range(2 * TASKS_MAX + 1):
        bench.rereading.ask(task_no, ())
    await bench.quiet()
    assert [len(question) for question in bench.store.questions] == [TASKS_MAX, TASKS_MAX, 1]
    assert [task_no for task_no, _, _ in bench.told] == list(range(2 * TASKS_MAX + 1))


async def test_reports_that_come_meanwhile_are_told_once_and_in_their_order(bench: Bench) -> None:
    bench.rereading.ask(1, (report(11),))
    bench.rereading.ask(1, (report(12), report(13)))
    await bench.quiet()
    bench.rereading.ask(1, ())
    await bench.quiet()
    assert bench.told == [(1, True, (11, 12, 13)), (1, True, ())]


async def test_a_task_that_is_gone_is_told_as_gone_with_its_reports(bench: Bench) -> None:
    bench.store.missing = {2}
    bench.rereading.ask(1, ())
    bench.rereading.ask(2, (report(21),))
    await bench.quiet()
    assert bench.told == [(1, True, ()), (2, False, (21,))]


async def test_while_the_store_is_silent_the_same_is_asked_again_after_a_pause(bench: Bench) -> None:
    bench.store.silent = 2
    bench.rereading.ask(1, (report(11),))
    await bench.quiet()
    assert bench.store.questions == [[1], [1], [1]]
    assert len(bench.slept) == 2
    assert bench.told == [(1, True, (11,))]


async def test_a_task_that_cannot_be_taken_up_costs_the_others_nothing(bench: Bench) -> None:
    bench.stumbles = {2}
    for task_no in (1, 2, 3):
        bench.rereading.ask(task_no, (report(task_no),))
    await until(lambda: len(bench.told) == 2)
    assert [task_no for task_no, _, _ in bench.told] == [1, 3]
    bench.stumbles = set()  # nobody asks for it again: it is not forgotten, nor is what came for it
    await bench.quiet()
    assert bench.told[-1] == (2, True, (2,))


async def test_what_is_too_much_for_one_answer_is_asked_for_in_smaller_questions(bench: Bench) -> None:
    bench.store.at_most = 30
    for task_no in range(TASKS_MAX):
        bench.rereading.ask(task_no, ())
    await bench.quiet()
    assert [len(question) for question in bench.store.questions] == [100, 50, 25, 25, 25, 25]
    assert sorted(task_no for task_no, _, _ in bench.told) == list(range(TASKS_MAX))


async def test_a_task_that_is_too_much_by_itself_holds_up_no_other(bench: Bench) -> None:
    bench.store.never = {1}
    for task_no in range(4):
        bench.rereading.ask(task_no, ())
    await until(lambda: len(bench.told) == 3)
    assert sorted(task_no for task_no, _, _ in bench.told) == [0, 2, 3]
    bench.store.never = set()
    await bench.quiet()
    assert bench.told[-1] == (1, True, ())


async def test_others_have_their_turn_between_two_tasks_that_are_taken_up(bench: Bench) -> None:
    for task_no in range(3):
        bench.rereading.ask(task_no, ())
    seen: list[int] = []
    while len(bench.told) < 3:
        await asyncio.sleep(0)
        seen.append(len(bench.told))
    assert {1, 2} <= set(seen)


async def test_a_reading_that_breaks_costs_the_others_nothing_and_forgets_no_task(bench: Bench) -> None:
    """A store sets unreadable rows apart; whatever else a reading raises may be over a moment later."""
    bench.store.unreadable = {2}
    for task_no in (1, 2, 3):
        bench.rereading.ask(task_no, (report(task_no),))
    await until(lambda: len(bench.told) == 2)
    assert sorted(bench.told) == [(1, True, (1,)), (3, True, (3,))]
    bench.store.unreadable = set()
    await bench.quiet()
    assert bench.told[-1] == (2, True, (2,))
    assert not bench.rereading.pending


# The Scheduler keeps its tasks: a lapsed lease, or a task that was put down, would be a reason to claim it again.
UNHURRIED = msgspec.structs.replace(QUICK, lease_seconds=60.0, linger_seconds=60.0)


# --- with Agents in another process
class Remote:
    """Tasks whose steps run in another App; counts how often their code was begun."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.agent = agent = Agent("afar", max_in_flight=100)

        @agent.step
        async def double(attempt: Attempt, number: int) -> int:
            return 2 * number

        @workflow
        async def doubled(number: int, times: int) -> int:
            self.begun.append(number)
            total = 0
            for _ in range(times):
                total += sum(await asyncio.gather(double(number), double(total)))
            return total

        self.doubled = doubled


async def test_code_whose_results_come_from_another_process_is_run_once_from_its_start(machine: Machine) -> None:
    remote = Remote()
    here, there = (machine.app([remote.agent], [remote.doubled], settings=UNHURRIED) for _ in range(2))
    async with there.running(roles=["agents"]), here.running(roles=["scheduler", "supervisor"]):
        task = await here.submit(remote.doubled(1, 6))
        assert await within(task.result()) == sum(2 * 3**n for n in range(6))
    assert remote.begun == [1]
    await machine.check()


async def test_a_task_whose_record_could_once_not_be_read_goes_on_with_the_next_news(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [ValueError("not JSON"), ValueError("not JSON")]
    load_tasks = SqliteStore.load_tasks

    async def failing(store: SqliteStore, task_nos: Sequence[int]) -> Any:
        if failures:
            raise failures.pop()
        return await load_tasks(store, task_nos)

    monkeypatch.setattr(SqliteStore, "load_tasks", failing)
    remote = Remote()
    here, there = (machine.app([remote.agent], [remote.doubled]) for _ in range(2))
    async with there.running(roles=["agents"]), here.running(roles=["scheduler", "supervisor"]):
        task = await here.submit(remote.doubled(1, 2))
        assert await within(task.result()) == 2 + 6
    assert not failures
    await machine.check()


async def test_many_tasks_with_news_are_read_in_few_questions(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    load_tasks = SqliteStore.load_tasks

    async def counting(store: SqliteStore, task_nos: Sequence[int]) -> Any:
        asked.append(len(task_nos))
        return await load_tasks(store, task_nos)

    monkeypatch.setattr(SqliteStore, "load_tasks", counting)
    remote = Remote()
    here, there = (machine.app([remote.agent], [remote.doubled], settings=UNHURRIED) for _ in range(2))
    async with here.running(roles=["scheduler", "supervisor"]):
        tasks = await asyncio.gather(*(here.submit(remote.doubled(number, 1)) for number in range(60)))
        async with there.running(roles=["agents"]):
            for number, task in enumerate(tasks):
                assert await within(task.result()) == 2 * number
    assert sum(asked) >= 60
    assert len(asked) < sum(asked) / 2
    await machine.check()
