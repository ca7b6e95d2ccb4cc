"""However much waits: a high priority comes through soon, and no queue grows without bound."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from runtime_world import SECONDS_MAX, Machine, until, within

from arriero import Agent, App, Attempt, InvalidInput, workflow
from arriero.model.commands import Submit
from arriero.runtime.settings import Settings
from arriero.runtime.submissions import ON_THE_WAY_MAX
from arriero.store.contract import Busy, Unwritten

MANY = 3_000
HELD = 200
CALM = Settings(tasks_max=HELD)  # with so many under way a machine may be slow to renew a short lease


class Mill:
    """A workflow of two quick steps, and a note of what ended."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.ground: list[int] = []  # in the order the second steps ran
        agent = Agent("mill", max_in_flight=2_000)

        @agent.step(complete_within=300)
        async def grind(attempt: Attempt, number: int) -> None:
            return

        @agent.step(complete_within=300)
        async def sift(attempt: Attempt, number: int) -> None:
            self.ground.append(number)

        @workflow
        async def mill(number: int) -> None:
            await grind(number)
            await sift(number)

        self.mill = mill
        self.app: App = machine.app([agent], [mill], settings=CALM)

    async def finish(self, numbers: range) -> None:
        tasks = await asyncio.gather(*(self.app.submit(self.mill(number)) for number in numbers))
        await asyncio.gather(*(task.result() for task in tasks))


@pytest.fixture
def mill(machine: Machine) -> Mill:
    return Mill(machine)


def commits_of(app: App) -> list[Sequence[Submit]]:
    """What each commit of submissions brings, from here on."""
    submissions: Any = app.session.submissions
    write, seen = submissions._committer._write, []

    async def noting(batch: Sequence[Submit]) -> Any:
        seen.append(tuple(batch))
        return await write(batch)

    submissions._committer._write = noting
    return seen


async def test_a_high_priority_passes_those_that_wait_to_be_submitted_and_claimed(mill: Mill) -> None:
    async with mill.app.running():
        await mill.finish(range(50))
        mill.ground.clear()
        seen = commits_of(mill.app)
        flood = asyncio.create_task(mill.finish(range(MANY)))
        await asyncio.sleep(0)  # all of them are on their way or in line from here on
        await asyncio.sleep(0)
        high = await within(mill.app.submit(mill.mill(-1), priority=9))
        await within(high.result())
        submitted = [command.task_id for batch in seen for command in batch]
        assert submitted.index(high.id) <= ON_THE_WAY_MAX + 2
        assert mill.ground.index(-1) <= ON_THE_WAY_MAX + 3 * HELD
        await asyncio.wait_for(flood, 120)
    assert Counter(mill.ground) == Counter([-1, *range(MANY)])


async def test_no_commit_brings_more_submissions_than_may_be_on_their_way(mill: Mill) -> None:
    async with mill.app:
        seen = commits_of(mill.app)
        await within(asyncio.gather(*(mill.app.submit(mill.mill(number)) for number in range(MANY))))
    assert sum(map(len, seen)) == MANY
    assert max(map(len, seen)) <= ON_THE_WAY_MAX


async def test_whoever_leaves_an_app_while_many_submit_has_all_committed_that_wait(mill: Mill) -> None:
    async with mill.app:
        seen = commits_of(mill.app)
        callers = [asyncio.create_task(mill.app.submit(mill.mill(number))) for number in range(3 * ON_THE_WAY_MAX)]
        await until(lambda: seen)
    await within(asyncio.gather(*callers))
    assert sum(map(len, seen)) == 3 * ON_THE_WAY_MAX


async def test_whoever_never_ceases_to_submit_does_not_keep_an_app_from_closing_and_is_told_the_truth(
    mill: Mill,
) -> None:
    async def keeps_submitting(number: int) -> int:
        """Until the App is closed; how many were kept."""
        kept = 0
        for _ in range(100_000):  # at most so often while the App closes
            try:
                await mill.app.submit(mill.mill(number), task_id=f"{number}-{kept}")
            except Unwritten:  # it tries again at once
                continue
            except InvalidInput:
                return kept
            kept += 1
        raise AssertionError("the App does not come to its closing")

    async with asyncio.timeout(SECONDS_MAX), mill.app:
        seen = commits_of(mill.app)
        callers = [asyncio.create_task(keeps_submitting(number)) for number in range(2 * ON_THE_WAY_MAX)]
        await until(lambda: len(seen) > 2)
    told = await within(asyncio.gather(*callers))
    submitted = {event["task"] for event in await mill.machine.events("task.submitted")}
    assert submitted == {f"{number}-{kept}" for number, all_kept in enumerate(told) for kept in range(all_kept)}
    assert sum(told) > ON_THE_WAY_MAX


async def test_submissions_to_a_key_that_a_transaction_has_open_hold_up_no_others(mill: Mill) -> None:
    """Those wait beside the line for that transaction's end."""
    async with mill.app:
        submissions: Any = mill.app.session.submissions
        write = submissions._committer._write

        async def busy_key(batch: Sequence[Submit]) -> Any:
            free = [command for command in batch if command.convoy != "locked"]
            answers = iter(await write(free) if free else ())
            return [next(answers) if command in free else Busy("its convoy is open") for command in batch]

        submissions._committer._write = busy_key
        locked = [
            asyncio.create_task(mill.app.submit(mill.mill(number), convoy="locked")) for number in range(ON_THE_WAY_MAX)
        ]
        await until(lambda: len(submissions._committer._busy) == ON_THE_WAY_MAX)
        await within(mill.app.submit(mill.mill(-1)))
        assert not any(caller.done() for caller in locked)
        submissions._committer._write = write
        await within(asyncio.gather(*locked))


async def test_workflows_with_shares_divide_the_room_of_a_process_and_use_what_others_leave(machine: Machine) -> None:
    agent = Agent("ward", max_in_flight=100)
    places = asyncio.Semaphore(0)
    begun: list[str] = []

    @agent.step(complete_within=300)
    async def work(attempt: Attempt, name: str) -> None:
        begun.append(name)
        await places.acquire()

    @workflow(share=3)
    async def fulfil() -> None:
        await work("fulfil")

    @workflow(share=1)
    async def report() -> None:
        await work("report")

    settings = Settings(tasks_max=8)
    app = machine.app([agent], [fulfil, report], settings=settings)
    async with app:
        tasks = [await app.submit(report(), priority=9) for _ in range(20)]
        tasks += [await app.submit(fulfil()) for _ in range(9)]
    async with app.running():
        await until(lambda: len(begun) == 8)
        first = Counter(begun)
        for _ in range(len(tasks)):
            places.release()
        await within(asyncio.gather(*(task.result() for task in tasks)))
    assert first == {"fulfil": 6, "report": 2}
    assert Counter(begun) == {"fulfil": 9, "report": 20}
    await machine.check()
