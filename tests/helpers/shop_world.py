"""A shop whose steps fail as a test says, books that show what stands at its services, and checks of its record."""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from arriero import (
    Agent,
    App,
    Attempt,
    Permanent,
    Supervision,
    Task,
    TaskCompensated,
    TaskFailed,
    Undo,
    sleep,
    testing,
    workflow,
)
from arriero.audit.check import History, find_convoy_differences, find_differences
from arriero.model import Loaded, StepRow
from arriero.testing.world import World

WHO: dict[str, Any] = {"by": "ana", "reason": "she says so"}
HOLD = Supervision(attempts=1, then="hold")
UNDO = Supervision(attempts=1)
DECLINED = Permanent("declined", code="declined")


class Call(NamedTuple):
    """One call of a step by the Agent."""

    step: str
    number: int
    key: str
    arguments: tuple[Any, ...]


class Shop:
    """Steps that do what ``script`` says, one entry a call: an exception is raised, anything else lets it happen.

    ``"lost"``: it happens and its answer is lost. ``books``: effects that stand, by idempotency key.
    """

    def __init__(self) -> None:
        self.script: defaultdict[str, deque[Any]] = defaultdict(deque)
        self.calls: list[Call] = []
        self.undone: list[str] = []
        self.books: Counter[str] = Counter()
        agent = self.agent = Agent("shop", breaker=None)  # its script may say that every call fails

        def happen(attempt: Attempt, name: str, *arguments: Any) -> None:
            self.calls.append(Call(name, attempt.number, attempt.idempotency_key, arguments))
            todo = self.script[name].popleft() if self.script[name] else None
            if isinstance(todo, Exception):
                raise todo
            self.books[attempt.idempotency_key] = 1
            if todo == "lost":
                raise ConnectionError("reset after it happened")

        def take_back(undo: Undo[Any], name: str) -> None:
            todo = self.script[f"undo {name}"]
            if todo:
                raise todo.popleft()
            self.undone.append(name)
            self.books[undo.forward_key] = 0

        @agent.step(complete_within=30)
        def charge(attempt: Attempt, card: str, pence: int) -> str:
            happen(attempt, "charge", card, pence)
            return f"receipt for {pence}"

        @charge.compensation(supervision=Supervision(attempts=1))
        def refund(undo: Undo[str], card: str, pence: int) -> None:
            take_back(undo, "charge")

        @agent.step(complete_within=30)
        def reserve(attempt: Attempt, pieces: int) -> int:
            happen(attempt, "reserve", pieces)
            return pieces

        @reserve.compensation(supervision=Supervision(attempts=1))
        def release(undo: Undo[int], pieces: int) -> None:
            take_back(undo, "reserve")

        @agent.step(complete_within=30)
        def post(attempt: Attempt, text: str) -> str:
            """Cannot be undone."""
            happen(attempt, "post", text)
            return text

        @agent.step(complete_within=30, pivot=True)
        def ship(attempt: Attempt, pieces: int) -> str:
            happen(attempt, "ship", pieces)
            return f"{pieces} shipped"

        @workflow(supervision=HOLD)
        async def order(card: str, pieces: int) -> str:
            await reserve(pieces)
            receipt: str = await charge(card, 100 * pieces)
            await post(receipt)
            return receipt

        @workflow(supervision=UNDO, undo_on_doubt="stop")
        async def strict(card: str, pieces: int) -> str:
            await reserve(pieces)
            receipt: str = await charge(card, 100 * pieces)
            await post(receipt)
            return receipt

        @workflow(supervision=HOLD)
        async def at_once(card: str, pieces: int) -> list[Any]:
            return list(await asyncio.gather(reserve(pieces), charge(card, pieces), post("hello")))

        @workflow(supervision=HOLD)
        async def shipped(card: str, pieces: int) -> str:
            await reserve(pieces)
            first: str = await ship(pieces)
            await charge(card, pieces)
            return first

        @workflow(supervision=HOLD, complete_within=600)
        async def slow(card: str, pieces: int) -> str:
            await reserve(pieces)
            await sleep(60)
            receipt: str = await charge(card, pieces)
            return receipt

        self.charge, self.reserve, self.post, self.ship = charge, reserve, post, ship
        self.order, self.strict, self.at_once, self.shipped, self.slow = order, strict, at_once, shipped, slow

    def app(self, *more: Any) -> App:
        """An App of this shop, with workflows of a test besides its own."""
        own = [self.order, self.strict, self.at_once, self.shipped, self.slow]
        return App("shop", agents=[self.agent], workflows=[*own, *more])

    def called(self, name: str | None = None) -> list[str]:
        """Steps called so far, in order; or the keys under which one was."""
        return [call.step for call in self.calls] if name is None else [c.key for c in self.calls if c.step == name]

    @property
    def standing(self) -> int:
        """Effects that stand at the services."""
        return sum(self.books.values())


@asynccontextmanager
async def opened(shop: Shop, *more: Any, approvals: dict[str, int] | None = None) -> AsyncIterator[World]:
    """The shop in a world of its own, whose history is checked at the end."""
    async with testing.running(shop.app(*more), approvals=approvals) as world:
        yield world
        check(world)


def check(world: World) -> None:
    """Every invariant holds, and the tables say what the history says."""
    store = world._store
    history = History()
    for row in store.log:
        history.add(row)
    assert history.end() == []
    for task_no in store.tasks:
        assert find_differences(history.tasks[task_no], store.load_as_is(task_no)) == []
    for convoy in store.convoys.values():
        assert find_convoy_differences(history, convoy) == []


async def held(task: Task[Any], match: str | None = None) -> TaskFailed:
    """The task is held."""
    with pytest.raises(TaskFailed, match=match) as failed:
        await task.result()
    assert not isinstance(failed.value, TaskCompensated)
    return failed.value


async def undone(task: Task[Any], match: str | None = None) -> TaskCompensated:
    """The task ends undone."""
    with pytest.raises(TaskCompensated, match=match) as failed:
        await task.result()
    return failed.value


def record(world: World, task: Task[Any]) -> Loaded:
    """The task's rows."""
    store = world._store
    return store.load_as_is(store.numbers[task.id])


def row_of(world: World, task: Task[Any], label: str) -> StepRow:
    """The last row of a step of the task."""
    return [step for step in record(world, task).steps if step.label == label and step.kind == "step"][-1]
