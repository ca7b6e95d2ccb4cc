"""Group commit: what comes during a commit shares the next, a bad command costs only itself, trouble is waited out."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from store_world import TestClock, World, step, submission

from arriero.errors import StoreError
from arriero.model.answers import Answer
from arriero.model.commands import AnyCommand, Claim, Take
from arriero.store.committer import BATCH_MAX, RETRY_SECONDS, RETRY_SECONDS_MAX, Committer
from arriero.store.contract import Unanswered, Unwritten
from arriero.store.state_store import StateStore

Answered = dict[str, str | BaseException]


class Writer:
    """Writes commands (words) and answers with their capitals; each batch waits for the test's word."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.errors: list[Exception] = []  # for the next batches
        self.bad: set[str] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.slept: list[float] = []
        self.troubles: list[Exception] = []
        self.monotonic = 0.0

    async def write(self, batch: Sequence[str]) -> list[str]:
        self.batches.append(list(batch))
        self.monotonic += 1
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        if self.bad & set(batch):
            raise ValueError("cannot be written")
        return [word.upper() for word in batch]

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
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
    writer.gate.set()
    made.abandon()


def _put(committer: Committer[str, str], answered: Answered, *commands: str) -> None:
    for command in commands:
        committer.put(command, lambda answer, c=command: answered.__setitem__(c, answer))


async def _until(happened: Callable[[], bool]) -> None:
    while not happened():
        await asyncio.sleep(0)


async def test_an_answer_comes_back_to_whoever_asked(committer: Committer[str, str]) -> None:
    assert await asyncio.gather(committer.ask("a"), committer.ask("b")) == ["A", "B"]


async def test_what_was_put_during_a_commit_shares_the_next_in_its_order(
    committer: Committer[str, str], writer: Writer
) -> None:
    answered: Answered = {}
    writer.gate.clear()
    _put(committer, answered, "a")
    await _until(lambda: writer.batches == [["a"]])
    _put(committer, answered, "b", "c")
    _put(committer, answered, "d")
    assert answered == {}
    writer.gate.set()
    await _until(lambda: len(answered) == 4)
    assert writer.batches == [["a"], ["b", "c", "d"]]
    assert answered == {"a": "A", "b": "B", "c": "C", "d": "D"}
    assert (committer.commits, committer.commands) == (2, 4)


async def test_one_commit_takes_so_many_and_the_rest_goes_next(committer: Committer[str, str], writer: Writer) -> None:
    answered: Answered = {}
    words = [f"w{n}" for n in range(BATCH_MAX + 5)]
    _put(committer, answered, *words)
    await _until(lambda: len(answered) == len(words))
    assert [len(batch) for batch in writer.batches] == [BATCH_MAX, 5]
    assert [word for batch in writer.batches for word in batch] == words


async def test_when_the_batch_left_is_told_from_before_it_left(committer: Committer[str, str], writer: Writer) -> None:
    writer.monotonic = 41.0
    await committer.ask("a")
    assert committer.left_at == 41.0
    assert writer.monotonic == 42.0


async def test_a_command_that_cannot_be_written_is_found_by_halving_and_only_it_fails(
    committer: Committer[str, str], writer: Writer
) -> None:
    answered: Answered = {}
    writer.bad = {"f"}
    _put(committer, answered, *"abcdefgh")
    await _until(lambda: len(answered) == 8)
    failed = answered.pop("f")
    assert isinstance(failed, ValueError)
    assert answered == {word: word.upper() for word in "abcdegh"}
    sizes = [len(batch) for batch in writer.batches]
    assert sizes == [8, 4, 4, 2, 1, 1, 1, 2]  # the one that fails is sent once more, alone and a moment later


async def test_a_command_alone_in_its_batch_is_sent_once_more_before_it_is_to_blame(
    committer: Committer[str, str], writer: Writer
) -> None:
    writer.errors = [MemoryError()]
    assert await committer.ask("a") == "A"
    assert writer.batches == [["a"], ["a"]]
    writer.errors = [MemoryError(), MemoryError()]
    with pytest.raises(MemoryError):
        await committer.ask("b")
    writer.errors = [MemoryError()]
    with pytest.raises(MemoryError):
        await committer.ask("once")  # what must not be repeated is not
    assert writer.batches[2:] == [["b"], ["b"], ["once"]]
    assert [type(error) for error in writer.troubles] == [MemoryError] * 4  # what was written is to be looked for


async def test_what_breaks_between_two_answers_of_a_batch_costs_nobody_an_answer(
    committer: Committer[str, str], writer: Writer
) -> None:
    async def one_answer_less(batch: Sequence[str]) -> list[str]:
        committer._write = writer.write  # type: ignore[assignment]
        return [word.upper() for word in batch[1:]]

    committer._write = one_answer_less  # type: ignore[assignment]
    answered: Answered = {}
    _put(committer, answered, "a", "b")
    await _until(lambda: len(answered) == 2)
    assert isinstance(answered["b"], ValueError)
    assert await committer.ask("c") == "C"


async def test_who_is_cancelled_while_it_stops_a_committer_cancels_no_commit(
    committer: Committer[str, str], writer: Writer
) -> None:
    writer.gate.clear()
    asked = asyncio.ensure_future(committer.ask("a"))
    await _until(lambda: bool(writer.batches))
    stopping = asyncio.ensure_future(committer.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.wait({stopping})
    writer.gate.set()
    assert await asked == "A"


async def test_in_a_hurry_what_waits_is_told_so_at_once_and_what_is_on_its_way_gets_its_answer(
    committer: Committer[str, str], writer: Writer
) -> None:
    answered: Answered = {}
    writer.gate.clear()
    _put(committer, answered, "a")
    await _until(lambda: bool(writer.batches))
    _put(committer, answered, "b")
    committer.hurry()
    assert isinstance(answered["b"], Unwritten)
    _put(committer, answered, "c")
    writer.gate.set()
    await _until(lambda: len(answered) == 3)
    assert answered["a"] == "A"
    assert isinstance(answered["c"], Unwritten)
    await committer.stop()
    assert not committer.is_alive()


async def test_several_bad_commands_are_all_found_and_the_committer_goes_on(
    committer: Committer[str, str], writer: Writer
) -> None:
    answered: Answered = {}
    writer.bad = {"a", "c", "d"}
    _put(committer, answered, *"abcde")
    await _until(lambda: len(answered) == 5)
    assert [word for word, answer in answered.items() if isinstance(answer, ValueError)] == ["a", "c", "d"]
    assert await committer.ask("z") == "Z"


async def test_after_a_store_error_the_same_batch_is_sent_again_with_growing_pauses(
    committer: Committer[str, str], writer: Writer
) -> None:
    writer.errors = [StoreError("busy") for _ in range(7)]
    assert await committer.ask("a") == "A"
    assert writer.batches == [["a"]] * 8
    assert writer.slept == [min(RETRY_SECONDS * 2**n, RETRY_SECONDS_MAX) for n in range(7)]
    assert [str(error) for error in writer.troubles] == ["busy"] * 7


async def test_what_must_not_be_repeated_gets_the_error_and_the_rest_goes_on(
    committer: Committer[str, str], writer: Writer
) -> None:
    answered: Answered = {}
    writer.errors = [StoreError("busy")]
    _put(committer, answered, "a", "once-b", "c", "once-d")
    await _until(lambda: len(answered) == 4)
    assert writer.batches == [["a", "once-b", "c", "once-d"], ["a", "c"]]
    assert (answered["a"], answered["c"]) == ("A", "C")
    assert [str(answered["once-b"]), str(answered["once-d"])] == ["busy", "busy"]


async def test_trouble_in_the_middle_of_halving_is_waited_out(committer: Committer[str, str], writer: Writer) -> None:
    answered: Answered = {}
    writer.bad = {"b"}
    writer.errors = [ValueError("some command of this batch"), StoreError("busy")]
    _put(committer, answered, "a", "b")
    await _until(lambda: len(answered) == 2)
    assert writer.batches == [["a", "b"], ["a"], ["a"], ["b"], ["b"]]
    assert answered["a"] == "A"
    assert isinstance(answered["b"], ValueError)


async def test_on_the_way_is_all_that_has_no_answer_yet_also_what_is_being_committed(
    committer: Committer[str, str], writer: Writer
) -> None:
    answered: Answered = {}
    writer.gate.clear()
    _put(committer, answered, "a", "b")
    assert committer.on_the_way == 2
    await _until(lambda: bool(writer.batches))
    _put(committer, answered, "c")
    assert committer.on_the_way == 3
    writer.gate.set()
    await _until(lambda: len(answered) == 3)
    assert committer.on_the_way == 0


@pytest.mark.parametrize("fails", ["b", "once-b"])
async def test_what_failed_is_no_longer_on_the_way(committer: Committer[str, str], writer: Writer, fails: str) -> None:
    answered: Answered = {}
    writer.bad, writer.errors = {"b"}, [StoreError("busy")]
    _put(committer, answered, fails)
    await _until(lambda: bool(answered))
    await asyncio.sleep(0)
    assert committer.on_the_way == 0


async def test_stopping_writes_what_waits_also_what_came_meanwhile(
    committer: Committer[str, str], writer: Writer
) -> None:
    answered: Answered = {}
    writer.gate.clear()
    _put(committer, answered, "a")
    await _until(lambda: bool(writer.batches))
    _put(committer, answered, "b")
    stopping = asyncio.ensure_future(committer.stop())
    await asyncio.sleep(0)
    _put(committer, answered, "c")
    writer.gate.set()
    await stopping
    assert answered == {"a": "A", "b": "B", "c": "C"}
    await committer.stop()


async def test_a_committer_with_nothing_to_do_stops_at_once(committer: Committer[str, str], writer: Writer) -> None:
    await committer.stop()
    assert writer.batches == []


async def test_who_asks_after_the_end_is_told_that_nothing_was_written(
    committer: Committer[str, str], writer: Writer
) -> None:
    writer.gate.clear()
    first = asyncio.ensure_future(committer.ask("a"))
    while not writer.batches:
        await asyncio.sleep(0)
    stopping = asyncio.ensure_future(committer.stop())
    late: list[asyncio.Future[str]] = []
    first.add_done_callback(lambda _: late.append(asyncio.ensure_future(committer.ask("b"))))  # as it ends
    writer.gate.set()
    await stopping
    assert await first == "A"
    for asked in (late[0], asyncio.ensure_future(committer.ask("c"))):
        with pytest.raises(Unwritten, match="is being closed"):
            await asyncio.wait_for(asked, 60)
    assert writer.batches == [["a"]]


async def test_stopping_does_not_wait_for_a_store_that_never_answers_again(
    committer: Committer[str, str], writer: Writer
) -> None:
    answered: Answered = {}
    writer.errors = [StoreError("gone") for _ in range(100)]
    _put(committer, answered, "a")
    await _until(lambda: len(writer.batches) > 3)
    await committer.stop()
    assert str(answered["a"]) == "gone"


async def test_abandoned_commands_are_not_written_and_whoever_asked_is_told_so(
    committer: Committer[str, str], writer: Writer
) -> None:
    answered: Answered = {}
    writer.gate.clear()
    _put(committer, answered, "a")
    await _until(lambda: bool(writer.batches))
    _put(committer, answered, "b")
    committer.abandon()
    writer.gate.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert writer.batches == [["a"]]
    assert [type(answered[command]) for command in "ab"] == [Unanswered, Unwritten]  # one was on its way


async def test_an_asker_that_went_away_costs_nobody_an_answer(committer: Committer[str, str], writer: Writer) -> None:
    writer.gate.clear()
    asking = [asyncio.ensure_future(committer.ask(word)) for word in "ab"]
    await _until(lambda: bool(writer.batches))
    asking[0].cancel()
    writer.gate.set()
    assert await asking[1] == "B"


async def test_an_answer_that_cannot_be_handled_is_told_to_the_loop_and_costs_nobody_else(
    committer: Committer[str, str],
) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    committer.put("a", lambda _: {}["missing"])
    assert await committer.ask("b") == "B"
    assert [type(context["exception"]) for context in told] == [KeyError]
    assert await committer.ask("c") == "C"


# --- with a real store behind it
class Flaky:
    """Loses the answer of every other batch, after it was written."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self.calls = 0

    async def apply(self, batch: Sequence[AnyCommand]) -> list[Answer]:
        answers = await self._store.apply(batch)
        self.calls += 1
        if self.calls % 2:
            raise StoreError("the answer was lost")
        return answers


async def test_guards_make_a_repeated_batch_safe(world: World, store: StateStore, clock: TestClock) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    await store.submit([submission("order-2")])
    flaky = Flaky(store)

    async def no_wait(_: float) -> None:
        return

    committer: Committer[AnyCommand, Answer] = Committer(
        flaky.apply,
        sleep=no_wait,
        monotonic=lambda: clock.at,
        repeat=lambda command: not isinstance(command, Claim | Take),
        on_trouble=lambda _: None,
    )
    committer.start()
    advance = world.advance_command(task, opened=[step("reserve")])
    answers = await asyncio.gather(
        committer.ask(advance),
        committer.ask(world.report_command(charge)),
        committer.ask(world.claim_command(2)),
        return_exceptions=True,
    )
    await committer.stop()
    assert [getattr(answer, "verdict", type(answer).__name__) for answer in answers] == [
        "moved_on",
        "duplicate",
        "StoreError",
    ]
    loaded = await world.load(task.task_no)
    assert [one.name for one in loaded.steps] == ["charge", "reserve"]
    assert (loaded.task.result_count, loaded.task.revision) == (1, task.revision + 2)
    assert (await world.task(2)).locked_by == 2  # the claim counted; load_held finds it
    assert [held.task.task_no for held in await store.load_held(2, 10)] == [2]
    await world.check_chains()
