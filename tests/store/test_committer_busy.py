"""A command whose task another transaction has open waits by itself; the others of its batch are answered."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from store_world import World, step

from arriero.errors import StoreError
from arriero.model.answers import Answer, Applied, Refusal
from arriero.model.commands import AnyCommand
from arriero.store.committer import BUSY_SECONDS, BUSY_SECONDS_MAX, Committer, apply_patiently
from arriero.store.contract import Busy, Unanswered

Answered = dict[str, str | BaseException]


class Writer:
    """Answers words with their capitals, or Busy while the word is held; the answer to some is lost."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.lost: list[str] = []  # once
        self.batches: list[list[str]] = []
        self.troubles: list[StoreError] = []
        self.monotonic = 0.0

    async def write(self, batch: Sequence[str]) -> list[str | StoreError]:
        self.batches.append(list(batch))
        return [self._answer(word) for word in batch]

    def _answer(self, word: str) -> str | StoreError:
        if word in self.lost:
            self.lost.remove(word)
            return Unanswered(f"{word} is lost")
        return Busy(f"{word} is held") if word in self.held else word.upper()

    async def sleep(self, seconds: float) -> None:
        self.monotonic += seconds
        await asyncio.sleep(0)


@pytest.fixture
async def writer() -> Writer:
    return Writer()


@pytest.fixture
async def committer(writer: Writer) -> AsyncIterator[Committer[str, str]]:
    made: Committer[str, str] = Committer(
        writer.write,
        sleep=writer.sleep,
        monotonic=lambda: writer.monotonic,
        repeat=lambda command: not command.startswith("once"),
        on_trouble=writer.troubles.append,
    )
    made.start()
    yield made
    made.abandon()


async def test_the_others_of_the_batch_are_answered_and_the_busy_one_later(
    committer: Committer[str, str], writer: Writer
) -> None:
    writer.held = {"b"}
    waiting = asyncio.gather(committer.ask("a"), committer.ask("b"), committer.ask("c"))
    assert await asyncio.gather(committer.ask("d"), committer.ask("e")) == ["D", "E"]
    assert not waiting.done()
    writer.held = set()
    assert await waiting == ["A", "B", "C"]
    assert writer.batches[0] == ["a", "b", "c", "d", "e"]
    assert ["b"] in writer.batches


async def test_a_busy_command_is_not_asked_again_at_once(committer: Committer[str, str], writer: Writer) -> None:
    writer.held = {"a"}
    waiting = asyncio.ensure_future(committer.ask("a"))
    while len(writer.batches) < 4:
        await asyncio.sleep(0)
    assert writer.monotonic >= BUSY_SECONDS * (1 + 2 + 4) - 1e-9
    writer.held = set()
    assert await waiting == "A"


async def test_who_does_not_repeat_is_told_after_a_while(committer: Committer[str, str], writer: Writer) -> None:
    writer.held = {"once"}
    with pytest.raises(Busy, match="once is held"):
        await committer.ask("once")
    assert BUSY_SECONDS_MAX < writer.monotonic < BUSY_SECONDS_MAX * 2


async def test_who_repeats_goes_on_for_ever_and_says_so(committer: Committer[str, str], writer: Writer) -> None:
    writer.held = {"a"}
    waiting = asyncio.ensure_future(committer.ask("a"))
    while not writer.troubles:
        await asyncio.sleep(0)
    assert writer.monotonic > BUSY_SECONDS_MAX
    assert not waiting.done()
    writer.held = set()
    assert await waiting == "A"


async def test_who_still_waits_at_the_end_is_told(committer: Committer[str, str], writer: Writer) -> None:
    writer.held = {"a"}
    waiting = asyncio.ensure_future(committer.ask("a"))
    while not writer.batches:
        await asyncio.sleep(0)
    await committer.stop()
    with pytest.raises(Busy):
        await waiting


async def test_one_command_whose_answer_was_lost_is_sent_again_and_the_others_are_told(
    committer: Committer[str, str], writer: Writer
) -> None:
    writer.lost = ["b", "once"]
    told = await asyncio.gather(*map(committer.ask, ("a", "b", "once", "c")), return_exceptions=True)
    assert [str(answer) for answer in told] == ["A", "B", "once is lost", "C"]
    assert isinstance(told[2], Unanswered)  # whoever may have got more than they know is told so
    assert writer.batches == [["a", "b", "once", "c"], ["b"]]
    assert [str(trouble) for trouble in writer.troubles] == ["b is lost", "once is lost"]


class Held:
    """A store in which another transaction has every task open for so many questions."""

    def __init__(self, world: World, times: int) -> None:
        self._world = world
        self._times = times
        self.now = 0.0

    async def apply(self, batch: Sequence[AnyCommand]) -> Sequence[Answer | Busy]:
        self._times -= 1
        return [Busy("held") for _ in batch] if self._times >= 0 else await self._world.store.apply(batch)

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


async def test_who_asks_a_store_directly_waits_for_the_task(world: World) -> None:
    command = world.advance_command(await world.held(), opened=(step(),))
    held = Held(world, 3)
    (answer,) = await apply_patiently(held, [command], held)  # type: ignore[arg-type]  # only apply is asked
    assert isinstance(answer, Applied)
    assert held.now == pytest.approx(BUSY_SECONDS * (1 + 2 + 4))


async def test_what_was_done_is_told_although_another_task_is_held(world: World) -> None:
    first = world.advance_command(await world.held("order-1"), opened=(step(),))
    second = world.advance_command(await world.held("order-2"), opened=(step(),))

    class OneHeld(Held):
        async def apply(self, batch: Sequence[AnyCommand]) -> Sequence[Answer | Busy]:
            free = [command for command in batch if command is not second]
            answers = iter(await world.store.apply(free))
            return [Busy("held") if command is second else next(answers) for command in batch]

    held = OneHeld(world, 0)
    one, other = await apply_patiently(held, [first, second], held)  # type: ignore[arg-type]  # only apply is asked
    assert isinstance(one, Applied)
    assert other == Refusal("busy", "held")


async def test_who_asks_a_store_directly_is_told_when_it_takes_too_long(world: World) -> None:
    command = world.advance_command(await world.held(), opened=(step(),))
    held = Held(world, 1_000_000)
    with pytest.raises(Busy, match="held"):
        await apply_patiently(held, [command], held)  # type: ignore[arg-type]  # only apply is asked
    assert held.now < BUSY_SECONDS_MAX * 2
