"""The code of the next task of a convoy runs ahead of its turn: what it saves, and that nobody sees it."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
import pytest
from runtime_world import QUICK, Machine, session_of, until, within

import arriero
from arriero import Agent, App, Attempt, Permanent, StoreError, Task, TaskCompensated, testing, workflow
from arriero.core.task_run import AHEAD_MAX
from arriero.model.answers import Answer, Applied, Refusal
from arriero.model.commands import Advance, Ahead, AnyCommand, Claim
from arriero.model.instants import as_datetime
from arriero.runtime.speculative_start import ConvoyHandOver, ConvoyYield
from arriero.store.memory import MemoryStore
from arriero.store.sqlite.row_cache import READ_AT_ONCE
from arriero.store.sqlite.store import SqliteStore

MESSAGES = 50
# A process that cannot renew its lease in time opens a request without taking it, which costs a commit more. On a busy machine
# that happens to one with a lease of a second.
UNHURRIED = msgspec.structs.replace(QUICK, lease_seconds=60.0, leader_seconds=60.0)
WHO = {"by": "ana", "reason": "she says so"}
Noted = list[tuple[AnyCommand, Answer]]
Opened = Callable[[], AbstractAsyncContextManager[App]]


class Desk:
    """Messages that are booked one by one; those held wait at the gate."""

    def __init__(self, places: int = 100) -> None:
        self.gate = asyncio.Event()
        self.held = [0]
        self.booked: list[int] = []
        agent = Agent("desk", max_in_flight=places)

        @agent.step
        async def book(attempt: Attempt, number: int, note: str = "") -> int:
            if number in self.held:
                await self.gate.wait()
            self.booked.append(number)
            return number

        away = Agent("away")

        @away.step
        async def confirm(attempt: Attempt) -> None: ...

        @workflow
        async def message(number: int) -> int:
            return await book(number)

        @workflow
        async def counting(number: int) -> list[str]:
            count = (arriero.convoy_state(int) or 0) + 1
            drawn, name = arriero.random().random(), str(arriero.uuid())
            await book(number, f"{count} {drawn} {name}")
            if number == 3:
                await confirm()
            arriero.keep_convoy_state(count)
            return [str(count), str(drawn), name, str(arriero.random().random())]

        @workflow
        async def timed(number: int) -> str:
            began = arriero.now()
            await book(number)
            return str(began)

        @workflow
        async def sleeping(number: int) -> list[str]:
            await arriero.sleep(60)
            woke = arriero.now()
            await book(number)
            return [str(woke)]

        @workflow
        async def timed_later(number: int) -> list[str]:
            await book(number)
            return [str(arriero.now())]

        @workflow
        async def wide(number: int) -> None:
            await asyncio.gather(*(book(number).options(key=str(n)) for n in range(AHEAD_MAX + 1)))

        @workflow
        async def hasty(number: int) -> int:
            return number

        @workflow
        async def refusing(number: int) -> None:
            raise Permanent("no")

        self.agent, self.away, self.message, self.counting = agent, away, message, counting
        self.timed, self.timed_later, self.sleeping = timed, timed_later, sleeping
        self.wide, self.hasty, self.refusing = wide, hasty, refusing
        self.flows = [message, counting, timed, timed_later, sleeping, wide, hasty, refusing]

    def let_go(self) -> None:
        """Those at the gate go on; who comes later waits again."""
        self.gate.set()
        self.gate.clear()

    def app(self) -> App:
        app = App("desk", agents=[self.agent, self.away], workflows=self.flows)
        app.session.settings = UNHURRIED
        return app


@pytest.fixture
def desk() -> Desk:
    return Desk()


class Trouble:
    """What happens, once, to the command that ends a task: it is refused, or its answer is lost after the commit, or the
    process hears of what was written by another way before the answer."""

    def __init__(self) -> None:
        self.at: int | None = None
        self.kind = ""
        self.hears: Callable[[], Awaitable[None]] | None = None

    def meets(self, batch: Sequence[AnyCommand]) -> str:
        if not any(isinstance(c, Advance) and c.task_no == self.at and c.hand_over is not None for c in batch):
            return ""
        self.at = None
        return self.kind


@pytest.fixture
def trouble() -> Trouble:
    return Trouble()


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch, trouble: Trouble) -> Noted:
    """Commands that any store applied, in order, each with its answer."""
    noted: Noted = []
    for kind in (MemoryStore, SqliteStore):

        async def apply(store: Any, batch: Sequence[AnyCommand], of_kind: Any = kind.apply) -> list[Answer]:
            trouble_now = trouble.meets(batch)
            refused: list[Answer] = [Refusal("moved_on", "the test came first") for _ in batch]
            answers: list[Answer] = refused if trouble_now == "refused" else await of_kind(store, batch)
            noted.extend(zip(batch, answers, strict=True))
            if trouble_now == "answer lost":
                raise StoreError("the test lost the answer")
            if trouble_now == "answer late" and trouble.hears is not None:
                await trouble.hears()
            return answers

        monkeypatch.setattr(kind, "apply", apply)
    return noted


@pytest.fixture(params=["memory", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def opened(kind: str, machine: Machine, desk: Desk) -> Opened:
    """The App of the desk, running on a store of each kind; at the end no place of its Agent is taken."""

    @asynccontextmanager
    async def running() -> AsyncIterator[App]:
        async with desk.app().running(store="memory://" if kind == "memory" else machine.url) as app:
            yield app
            await all_free(app)
        if kind == "sqlite":
            await machine.check()

    return running


async def all_free(app: App) -> None:
    """Once nothing is held any more, no place is taken."""
    session = session_of(app)
    await until(lambda: not session.scheduler.is_busy() and not session.agents.is_busy())
    assert not any(hosted.used for hosted in session.agents.hosted.values())
    assert not any(hosted.used_by_others for hosted in session.agents.hosted.values())


async def line_of(app: App, desk: Desk, calls: Iterable[Any]) -> list[Task[Any]]:
    """A key whose first task is at work until the gate opens, and these behind it."""
    first = await app.submit(desk.message(0), convoy="k")
    await until(lambda: session_of(app).agents.in_flight)
    return [first, *[await app.submit(call, convoy="k") for call in calls]]


async def results(tasks: Iterable[Task[Any]]) -> list[Any]:
    return list(await within(asyncio.gather(*(task.result() for task in tasks))))


def aheads(noted: Noted) -> list[Ahead]:
    """What was handed over with code that had run ahead."""
    return [
        command.hand_over.ahead
        for command, _ in noted
        if isinstance(command, Advance) and command.hand_over is not None and command.hand_over.ahead is not None
    ]


def begun(noted: Noted) -> list[str]:
    """The tasks that began with the commit that ended the former."""
    return [a.next.task.task_id for _, a in noted if isinstance(a, Applied) and a.next and a.begun is not None]


# --- what it saves
async def test_a_message_costs_one_commit_once_the_line_is_known(
    desk: Desk, opened: Opened, kind: str, noted: Noted
) -> None:
    async with opened() as app:
        tasks = await line_of(app, desk, map(desk.message, range(1, MESSAGES)))
        committer = session_of(app).committer
        before = committer.commits
        noted.clear()
        desk.gate.set()
        assert await results(tasks) == list(range(MESSAGES))
        claims = sum(isinstance(command, Claim) for command, _ in noted)
        spare = 0 if kind == "memory" else MESSAGES // READ_AT_ONCE  # the file is asked anew who is behind
        commits = committer.commits - before
        assert commits >= MESSAGES + 1
        assert commits - claims <= MESSAGES + 1 + spare  # a poll's claim may be one by itself
        assert desk.booked == list(range(MESSAGES))


async def test_messages_of_many_keys_keep_their_order(desk: Desk, opened: Opened, noted: Noted) -> None:
    async with opened() as app:
        first = await line_of(app, desk, [])
        calls = [(number, f"key {number % 4}") for number in range(1, MESSAGES)]
        tasks = [await app.submit(desk.message(number), convoy=key) for number, key in calls]
        desk.gate.set()
        await results(first + tasks)
        for rest in range(4):
            booked = [number for number in desk.booked if number and number % 4 == rest]
            assert booked == sorted(booked)
        assert len(desk.booked) == MESSAGES


# --- what nobody sees
async def test_chance_and_state_are_the_same_with_it_and_without(
    desk: Desk, opened: Opened, noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened() as app:
        tasks = await line_of(app, desk, map(desk.counting, range(1, 10)))
        desk.gate.set()
        counted = (await results(tasks))[1:]
        assert len(begun(noted)) >= 8
        for number, (task, found) in enumerate(zip(tasks[1:], counted, strict=True), 1):
            loaded = await app.session.store.find(task.id)
            assert loaded is not None
            draws = [random.Random(f"{loaded.task.seed}:{draw}") for draw in (1, 2, 3)]
            name = uuid.UUID(int=draws[1].getrandbits(128), version=4)
            assert found == [str(number), str(draws[0].random()), str(name), str(draws[2].random())]
        monkeypatch.setattr(ConvoyHandOver, "_run_ahead", lambda *_: None)
        noted.clear()
        tasks = [await app.submit(desk.counting(number), convoy="k") for number in range(20, 25)]
        assert [found[0] for found in await results(tasks)] == ["10", "11", "12", "13", "14"]
        assert begun(noted) == []


async def test_what_ran_ahead_replays_the_same_in_another_process(machine: Machine, desk: Desk, noted: Noted) -> None:
    """Its step was asked for with what was drawn ahead: code that draws anything else would disagree with the record."""
    async with desk.app().running(store=machine.url, agents=["desk"]) as app:
        tasks = await line_of(app, desk, map(desk.counting, range(1, 5)))
        desk.gate.set()
        waits = await machine.event("step.opened", task=tasks[3].id, agent="away")
        assert waits["step"] == 2
        assert tasks[3].id in begun(noted)
    async with desk.app().running(store=machine.url) as app:
        found = await results(app.task(task.id) for task in tasks)
        assert [count for count, *_ in found[1:]] == ["1", "2", "3", "4"]
    await machine.check()


async def test_code_that_asks_the_time_first_is_told_when_it_was_started(
    desk: Desk, opened: Opened, noted: Noted
) -> None:
    async with opened() as app:
        tasks = await line_of(app, desk, map(desk.timed, range(1, 8)))
        desk.gate.set()
        for task, told in list(zip(tasks, await results(tasks), strict=True))[1:]:
            loaded = await app.session.store.find(task.id)
            assert loaded is not None
            assert loaded.task.started_at is not None
            assert told == str(as_datetime(loaded.task.started_at))
        assert aheads(noted) == []


async def test_code_that_asks_the_time_after_a_step_runs_ahead_and_is_told_when_that_was_recorded(
    desk: Desk, opened: Opened, noted: Noted
) -> None:
    async with opened() as app:
        tasks = await line_of(app, desk, map(desk.timed_later, range(1, 8)))
        desk.gate.set()
        for task, told in list(zip(tasks, await results(tasks), strict=True))[1:]:
            loaded = await app.session.store.find(task.id)
            assert loaded is not None
            (booked,) = loaded.steps
            assert booked.delivered_at is not None
            assert told == [str(as_datetime(booked.delivered_at))]
        assert len(begun(noted)) >= 6


async def test_code_that_sleeps_first_is_not_run_ahead_and_sleeps_from_its_start(desk: Desk, noted: Noted) -> None:
    async with testing.running(desk.app()) as world:
        kinds = [desk.message, desk.sleeping, desk.message, desk.sleeping, desk.message]
        tasks = await line_of(world.app, desk, [make(number) for number, make in enumerate(kinds, 1)])
        desk.gate.set()
        for task, told in zip(tasks, await results(tasks), strict=True):
            loaded = await world._store.find(task.id)
            assert loaded is not None
            assert loaded.task.started_at is not None
            if loaded.task.workflow == "sleeping":
                assert loaded.steps[0].not_before == loaded.task.started_at + 60_000_000
                assert loaded.steps[0].delivered_at is not None
                assert told == [str(as_datetime(loaded.steps[0].delivered_at))]
    assert [ahead.opened[0].kind for ahead in aheads(noted) if ahead.opened[0].kind != "step"] == []
    assert desk.booked == list(range(6))


async def test_code_that_asks_for_nothing_or_for_very_much_begins_by_itself(
    desk: Desk, opened: Opened, noted: Noted
) -> None:
    async with opened() as app:
        kinds = [desk.message, desk.hasty, desk.message, desk.wide, desk.refusing, desk.message]
        tasks = await line_of(app, desk, [make(number) for number, make in enumerate(kinds, 1)])
        desk.gate.set()
        found = await within(asyncio.gather(*(task.result() for task in tasks), return_exceptions=True))
        assert isinstance(found.pop(5), TaskCompensated)
        assert found == [0, 1, 2, 3, None, 6]
        assert desk.booked == [0, 1, 3, *[4] * (AHEAD_MAX + 1), 6]
        messages = {tasks[number].id for number in (1, 3, 6)}
        assert set(begun(noted)) <= messages
        assert {ahead.opened[0].name for ahead in aheads(noted)} <= {"book"}
        assert all(len(ahead.opened) == 1 for ahead in aheads(noted))


@pytest.mark.parametrize("flow", ["message", "hasty"])
async def test_since_when_a_key_is_here_is_known_however_soon_its_tasks_end(
    desk: Desk, opened: Opened, monkeypatch: pytest.MonkeyPatch, flow: str
) -> None:
    """By that it is let go for other processes after a while."""
    since: set[float] = set()
    monkeypatch.setattr(ConvoyYield, "should_release_key", lambda _, key_since: since.add(key_since))
    async with opened() as app:
        tasks = await line_of(app, desk, map(getattr(desk, flow), range(1, 10)))
        desk.gate.set()
        await results(tasks)
    assert len(since) < len(tasks) / 2  # a claim between two of them begins the time anew; their own ends do not


# --- places
async def test_one_place_is_enough_for_two_keys(machine: Machine) -> None:
    desk = Desk(places=1)
    async with desk.app().running(store=machine.url) as app:
        tasks = await line_of(app, desk, [])
        tasks += [await app.submit(desk.message(number), convoy=f"key {number % 2}") for number in range(1, 20)]
        desk.gate.set()
        assert await results(tasks) == list(range(20))
        await all_free(app)
    await machine.check()


async def stands_at_two(app: App, desk: Desk) -> list[Task[Any]]:
    """Six messages of a key; the third is at work, and it is known who stands behind it."""
    desk.held = [0, 2]
    tasks = await line_of(app, desk, map(desk.message, range(1, 6)))
    desk.let_go()
    await within(tasks[1].result())
    await until(lambda: session_of(app).agents.in_flight)
    return tasks


@pytest.mark.parametrize("resumes", ["at once", "later"])
async def test_what_ran_ahead_for_nothing_leaves_no_place_taken(
    desk: Desk, opened: Opened, noted: Noted, resumes: str
) -> None:
    """The next task has moved on since its code ran: it begins from its record."""
    async with opened() as app:
        tasks = await stands_at_two(app, desk)
        await tasks[3].pause(**WHO)
        if resumes == "at once":
            await tasks[3].resume(**WHO)
        desk.gate.set()
        await within(tasks[2].result())
        if resumes == "later":
            await tasks[3].resume(**WHO)
        assert await results(tasks) == list(range(6))
        assert desk.booked == list(range(6))
        (ahead,) = [ahead for ahead in aheads(noted) if ahead.task_no == 4]
        assert ahead.opened[0].take
        assert tasks[3].id not in begun(noted)


async def test_what_ran_ahead_for_nothing_costs_its_task_no_look_for_news(
    desk: Desk, opened: Opened, noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is this process's by the answer to the end before it, whatever its code had asked for ahead."""

    async def no_news(*_: Any) -> list[tuple[int, int]]:
        return []

    for store in (MemoryStore, SqliteStore):
        monkeypatch.setattr(store, "load_news", no_news)
    async with opened() as app:
        tasks = await stands_at_two(app, desk)
        await tasks[3].pause(**WHO)
        await tasks[3].resume(**WHO)
        desk.gate.set()
        assert await results(tasks) == list(range(6))
        assert tasks[3].id not in begun(noted)


@pytest.mark.parametrize(
    ("kind_of_trouble", "refused"),
    [("refused", [True, False]), ("answer lost", [False, True]), ("answer late", [False])],
)
async def test_after_a_hand_over_that_went_wrong_all_goes_on_and_no_place_is_taken(
    desk: Desk, opened: Opened, noted: Noted, trouble: Trouble, kind_of_trouble: str, refused: list[bool]
) -> None:
    async with opened() as app:
        tasks = await stands_at_two(app, desk)
        trouble.at, trouble.kind, trouble.hears = 3, kind_of_trouble, session_of(app).scheduler.reconcile
        desk.gate.set()
        assert await results(tasks) == list(range(6))
        assert desk.booked == list(range(6))
        ends = [a for c, a in noted if isinstance(c, Advance) and c.task_no == 3 and c.hand_over is not None]
        assert [isinstance(answer, Refusal) for answer in ends] == refused
        assert next(ahead for ahead in aheads(noted) if ahead.task_no == 4).opened[0].take
