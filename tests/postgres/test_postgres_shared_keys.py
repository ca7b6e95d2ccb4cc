"""Several processes drive the same convoys at once: each key strictly in its order, every task once."""

import asyncio
from collections import Counter, defaultdict
from contextlib import AsyncExitStack

import msgspec
import pytest
from postgres_servers import database, emptied
from store_checks import broken_links, disagreements, history_violations

import arriero
from arriero import Agent, App, Attempt, workflow
from arriero.store.postgres.store import PostgresStore

KEYS = 20
EACH = (
    120  # enough for every process to hear of the others with its first renewal, and to let its keys go several times
)
PATIENCE = 60.0

done: dict[str, list[int]] = defaultdict(list)
under_way: dict[str, int] = {}


desk = Agent("desk", max_in_flight=100)


@desk.step
async def note(attempt: Attempt, key: str, number: int) -> None:
    assert key not in under_way, f"{number} of {key} began while {under_way[key]} was under way"
    under_way[key] = number
    await asyncio.sleep(0)
    done[key].append(number)
    del under_way[key]


@workflow
async def pass_by(key: str, number: int) -> int:
    """Answers how many of its key were done before it, as the key itself knows."""
    before = arriero.convoy_state(int) or 0
    await note(key, number)
    arriero.keep_convoy_state(before + 1)
    return before


async def claims(store: PostgresStore) -> Counter[int]:
    """How many tasks each process has claimed."""
    found: Counter[int] = Counter()
    async for row in store.history():
        found.update(event["process"] for event in msgspec.json.decode(row.events) if event["type"] == "task.claimed")
    return found


@pytest.mark.parametrize("processes", [8])
async def test_processes_that_share_keys_keep_each_in_its_order(
    processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    url = emptied(database())
    done.clear()
    under_way.clear()
    apps = [App("shared", agents=[desk], workflows=[pass_by], store=url) for number in range(processes)]
    async with AsyncExitStack() as running:
        for app in apps:
            await running.enter_async_context(app.running())

        async def submit_all(key: str, app: App) -> None:
            for number in range(EACH):
                await app.submit(pass_by(key, number), task_id=f"{key}-{number}", convoy=key)

        keys = [f"k{number}" for number in range(KEYS)]
        await asyncio.gather(*(submit_all(key, apps[n % processes]) for n, key in enumerate(keys)))
        for key in keys:
            assert await apps[0].task(f"{key}-{EACH - 1}", pass_by).result(PATIENCE) == EACH - 1
    assert done == {key: list(range(EACH)) for key in keys}
    store = PostgresStore(url)
    await store.open()
    shares = await claims(store)
    # Seen: the least has half of an even share, and a twentieth on a busy machine. How even they are is a matter of the
    # moment; that they share is not.
    assert len(shares) == processes
    assert min(shares.values()) * processes >= KEYS * EACH / 100
    assert await history_violations(store) == []
    assert await disagreements(store) == []
    assert await broken_links(store) == []
    await store.close()
