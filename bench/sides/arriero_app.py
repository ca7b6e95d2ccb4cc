"""What the programs of arriero's side run: an App as its README shows it, with room for the tasks."""

import asyncio
import time
from collections import defaultdict
from datetime import timedelta

from common import HANGS_SECONDS, HTTP_SECONDS, PAYLOAD, WARM_UP_TASKS, Ends, Marks

import arriero
from arriero import Agent, App, Attempt, ConvoyPolicy, Signal, workflow

HOT_KEY = -2

echoes = Agent("echoes", max_in_flight=1_000)
asleep = bytearray()  # one byte a task, set by the task itself
woken: set[int] = set()  # of tasks that slept
wakings = Ends()
ran: defaultdict[int, list[int]] = defaultdict(list)  # by key, the numbers of messages in the order their steps ran
hot_may_run = asyncio.Event()
hung_at: list[float] = []  # when each attempt of ``hang`` began, of the task under way
all_accepted = asyncio.Event()
go = Signal("go", int)
went: dict[object, float] = {}  # when the code of a task got somewhere
marks: list[Marks] = []  # where steps write down that they ran, if anywhere


@echoes.step
async def echo(attempt: Attempt, payload: str) -> str:
    return payload


@workflow
async def three(payload: str) -> str:
    await echo(payload)
    await echo(payload)
    return await echo(payload)


@workflow
async def three_and_sleep(index: int, payload: str) -> None:
    for _ in range(3):
        await echo(payload)
    asleep[index] = 1
    await arriero.sleep(timedelta(days=30))


@workflow
async def one_echo(payload: str) -> str:
    return await echo(payload)


@echoes.step
async def count_lines(lines: list[int]) -> int:
    return len(lines)


@workflow
async def one_of_key(lines: list[int]) -> int:
    return await count_lines(lines)


@workflow(convoy_policy=ConvoyPolicy(handle_batch=100))
async def batch_of_key(lines: list[int]) -> int:
    return await count_lines(lines)


@workflow
async def parent_of(count: int) -> int:
    return len(await asyncio.gather(*(one_echo(str(number)) for number in range(count))))


@echoes.step
async def call(attempt: Attempt, payload: str) -> str:
    """As long as an HTTP call takes."""
    await asyncio.sleep(HTTP_SECONDS)
    return payload


@workflow
async def three_calls(payload: str) -> str:
    await call(payload)
    await call(payload)
    return await call(payload)


@echoes.step
async def mark(attempt: Attempt, index: int, position: int) -> None:
    await all_accepted.wait()
    marks[0].add(index, position)


@workflow
async def marked(index: int) -> None:
    for position in range(3):
        await mark(index, position)


@workflow
async def slumber(index: int) -> None:
    asleep[index] = 1
    await arriero.sleep(timedelta(days=30))


@echoes.step
async def wake(attempt: Attempt, index: int) -> None:
    woken.add(index)
    wakings.add()


@workflow
async def nap(index: int, seconds: float) -> None:
    await arriero.sleep(seconds)
    await wake(index)


@echoes.step
async def note(attempt: Attempt, key: int, number: int) -> None:
    ran[key].append(number)


@workflow
async def handle(key: int, number: int) -> None:
    await note(key, number)


@echoes.step
async def note_hot(attempt: Attempt, number: int) -> None:
    await hot_may_run.wait()
    ran[HOT_KEY].append(number)


@workflow
async def handle_hot(number: int) -> None:
    await note_hot(number)


@echoes.step(complete_within=HANGS_SECONDS)
async def hang(attempt: Attempt) -> None:
    """Say nothing at the first attempt."""
    hung_at.append(time.perf_counter())
    if len(hung_at) == 1:
        await asyncio.Event().wait()


@workflow
async def hung_once() -> None:
    await hang()


@workflow
async def await_signal(index: int) -> None:
    asleep[index] = 1
    await go.wait()
    went[index] = time.perf_counter()


@workflow
async def two_notes(number: int) -> None:
    await note(0, number)
    went[number, "asks"] = time.perf_counter()
    await note(0, number)
    went[number] = time.perf_counter()


app = App(
    "bench",
    agents=[echoes],
    workflows=[
        three,
        three_calls,
        three_and_sleep,
        marked,
        slumber,
        nap,
        handle,
        handle_hot,
        hung_once,
        await_signal,
        two_notes,
        one_echo,
        parent_of,
        one_of_key,
        batch_of_key,
    ],
)


async def finish(tasks: int) -> None:
    """Submit as fast as possible; until the last end."""
    submitted = await asyncio.gather(*(app.submit(three(PAYLOAD)) for _ in range(tasks)))
    await asyncio.gather(*(task.result() for task in submitted))


async def warm_up() -> None:
    """Codecs, statements and pools exist from here on."""
    await finish(WARM_UP_TASKS)
