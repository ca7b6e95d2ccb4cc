"""Several processes on one store at once: nothing is taken twice, nothing goes back in time, work is shared."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest
from postgres_servers import database, emptied
from store_checks import broken_links, disagreements, history_violations
from store_world import ALL, TASK_POLICY, step, submission

from arriero.model import Instant, Loaded, TaskState
from arriero.model.answers import Applied, Claimed, Taken
from arriero.model.commands import Advance, Claim, Take
from arriero.model.moves import PutDown
from arriero.store.postgres.store import PostgresStore

PROCESSES = 4
TASKS = 200


@pytest.fixture
async def stores() -> AsyncIterator[Sequence[PostgresStore]]:
    """Each as a process of its own would have it, on the server's clock."""
    url = emptied(database())
    made = [PostgresStore(url) for _ in range(PROCESSES)]
    for number, store in enumerate(made):
        await store.open()
        await store.register(f"process {number}", 60.0)
    yield made
    assert await history_violations(made[0]) == []
    assert await disagreements(made[0]) == []
    assert await broken_links(made[0]) == []
    for store in made:
        await store.close()


def _claim(process_no: int, limit: int) -> Claim:
    return Claim(
        actor=f"process {process_no}", process_no=process_no, workflows=("fulfil",), limit=limit, probation=True
    )


async def _submitted(store: PostgresStore, count: int) -> None:
    await store.submit([submission(f"order-{number}", policy=TASK_POLICY) for number in range(count)])


async def _claimed(store: PostgresStore, process_no: int, limit: int) -> list[Loaded]:
    (answer,) = await store.apply([_claim(process_no, limit)])
    assert isinstance(answer, Claimed)
    return list(answer.tasks)


async def test_processes_that_claim_at_once_share_the_tasks_and_none_gets_one_twice(
    stores: Sequence[PostgresStore],
) -> None:
    await _submitted(stores[0], TASKS)

    async def claims(store: PostgresStore, process_no: int) -> list[int]:
        return [loaded.task.task_no for loaded in await _claimed(store, process_no, 10)]

    async def claims_all(store: PostgresStore, process_no: int, mine: list[int]) -> list[int]:
        while tasks := await _claimed(store, process_no, 10):
            mine += [loaded.task.task_no for loaded in tasks]
        return mine

    numbered = list(enumerate(stores, start=1))
    firsts = await asyncio.gather(*(claims(store, number) for number, store in numbered))
    assert all(firsts), "a process got nothing, though there was enough for all"
    taken = await asyncio.gather(
        *(claims_all(store, number, first) for (number, store), first in zip(numbered, firsts, strict=True))
    )
    assert sorted(task_no for mine in taken for task_no in mine) == sorted(set().union(*taken))
    assert sum(map(len, taken)) == TASKS


async def test_processes_that_take_at_once_never_dispatch_a_request_twice(stores: Sequence[PostgresStore]) -> None:
    await _submitted(stores[0], TASKS)
    held = await _claimed(stores[0], 1, TASKS)
    opened = [
        Advance(
            actor="process 1",
            task_no=task.task_no,
            process_no=1,
            fence=task.fence,
            revision=task.revision,
            state=task.state,
            unseen_since=task.unseen_since,
            opened=(step("charge"), step("reserve"), step("ship")),
        )
        for task in (loaded.task for loaded in held)
    ]
    assert all(isinstance(answer, Applied) for answer in await stores[0].apply(opened))

    async def takes_all(store: PostgresStore, process_no: int) -> list[int]:
        mine: list[int] = []
        while True:
            asked = Take(
                actor=f"process {process_no}", process_no=process_no, room=(("payments", 7),), names=ALL, probation=None
            )
            (answer,) = await store.apply([asked])
            assert isinstance(answer, Taken)
            if not answer.dispatches and not (await store.due((), ("payments",))).steps:
                return mine
            mine += [dispatch.step.step_no for dispatch in answer.dispatches]

    taken = await asyncio.gather(*(takes_all(store, number + 1) for number, store in enumerate(stores)))
    times = Counter(step_no for mine in taken for step_no in mine)
    assert len(times) == TASKS * 3
    assert set(times.values()) == {1}


async def test_a_task_s_commits_never_go_back_in_time_also_within_one_batch(stores: Sequence[PostgresStore]) -> None:
    await _submitted(stores[0], 1)
    released = Advance(
        actor="process 1",
        task_no=1,
        process_no=1,
        fence=1,
        revision=1,
        state=TaskState.PROCESSING,
        ending=PutDown(Instant(0)),
    )
    answers = await stores[0].apply([_claim(1, 1), released, _claim(1, 1)])
    assert isinstance(answers[1], Applied)
    instants = [row.at async for row in stores[0].history(1)]
    assert len(instants) == 4
    assert instants == sorted(instants)
