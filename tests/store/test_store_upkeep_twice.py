"""Upkeep carries no term: two processes that do it at once, one of which leads no more, do each thing once."""

import asyncio

from store_world import World, submission

from arriero.core.ledger_batches import LedgerBatch, LedgerEntry
from arriero.core.purging import KEPT_SECONDS
from arriero.model import LedgerState
from arriero.model.workflow_pauses import OperateWorkflow, PauseState
from arriero.runtime.ports import SystemPorts
from arriero.runtime.upkeep import BATCH, Upkeep

ACTOR = "client"
SECONDS_MAX = 60.0
STATUSES = 5


async def _open_ledger(world: World, ledger_id: str, entries: int) -> int:
    ledger = await world.store.begin_ledger(ledger_id)
    lines = tuple(
        LedgerEntry(line=line, digest=f"d{line}", submit=submission(f"{ledger_id}-{line}"))
        for line in range(1, entries + 1)
    )
    written = await world.store.write_ledger(
        LedgerBatch(ledger_no=ledger.ledger_no, after=0, entries=lines, refuses=False)
    )
    assert written.ledger is not None
    opened = await world.store.open_ledger(ledger.ledger_no, written.ledger.written, written.ledger.digest, ACTOR)
    assert opened.opened
    return ledger.ledger_no


async def test_two_that_do_the_upkeep_at_once_do_each_thing_once(world: World) -> None:
    for number in range(STATUSES):
        await world.submit(f"told-{number}", reply_to="web")
    await _open_ledger(world, "may", BATCH + 1)  # more than one transaction lets go
    world.clock.move(2)
    upkeeps = [Upkeep(store=world.store, ports=SystemPorts(), replies_keep_seconds=1.0) for _ in range(2)]
    async with asyncio.timeout(SECONDS_MAX):
        assert all(await asyncio.gather(*(upkeep.finish() for upkeep in upkeeps)))
    dropped = [event["count"] for event in await world.events(0) if event["type"] == "statuses.dropped"]
    assert (sum(dropped), sum(upkeep.done["statuses"] for upkeep in upkeeps)) == (STATUSES, STATUSES)
    (ledger,) = await world.store.list_ledgers()
    assert (ledger.state, ledger.let_go) == (LedgerState.DONE, BATCH + 1)
    claimed = await world.claimed_ids(await world.process(), limit=2 * BATCH)
    assert sorted(claimed) == sorted({f"told-{n}" for n in range(STATUSES)} | {f"may-{n}" for n in range(1, BATCH + 2)})


async def test_a_second_upkeep_finds_nothing_left_to_do(world: World) -> None:
    await world.submit("told", reply_to="web")
    await _open_ledger(world, "may", 3)
    world.clock.move(2)
    first, second = (Upkeep(store=world.store, ports=SystemPorts(), replies_keep_seconds=1.0) for _ in range(2))
    async with asyncio.timeout(SECONDS_MAX):
        assert await first.finish()
        before = await world.events(0)
        assert await second.finish()
    assert first.done["statuses"] == first.done["ledgers"] == 1
    assert not +second.done
    assert await world.events(0) == before


async def test_upkeep_removes_what_nothing_refers_to_once_and_keeps_what_was_in_use_today(world: World) -> None:
    for name in ("old", "older"):
        number = await world.process(name)
        await world.lose(number)
    await world.store.acquire_lease("nightly", "host", "host", 1.0)
    world.clock.move(KEPT_SECONDS + 10)
    await world.lose(await world.process("young"))
    upkeeps = [Upkeep(store=world.store, ports=SystemPorts(), replies_keep_seconds=1.0) for _ in range(2)]
    async with asyncio.timeout(SECONDS_MAX):
        assert all(await asyncio.gather(*(upkeep.finish() for upkeep in upkeeps)))
    assert sum(upkeep.done["obsolete"] for upkeep in upkeeps) == 3  # two processes and a lease
    assert (await world.store.find_lease("nightly"))[1] is None


async def test_two_that_let_the_tasks_of_a_resumed_workflow_begin_do_so_once(world: World) -> None:
    def operate(state: PauseState) -> OperateWorkflow:
        return OperateWorkflow(actor="cli", app="", workflow="fulfil", state=state, by="ana", reason="test")

    await world.store.change_workflow_pause(operate(PauseState.PAUSED))
    process_no = await world.process()
    for number in range(3):
        await world.submit(f"waits-{number}")
    assert await world.claimed_ids(process_no) == []
    await world.store.change_workflow_pause(operate(PauseState.RESUMING))
    upkeeps = [Upkeep(store=world.store, ports=SystemPorts(), replies_keep_seconds=1.0) for _ in range(2)]
    async with asyncio.timeout(SECONDS_MAX):
        assert all(await asyncio.gather(*(upkeep.finish() for upkeep in upkeeps)))
    assert await world.store.list_workflow_pauses() == []
    assert sorted(await world.claimed_ids(process_no)) == ["waits-0", "waits-1", "waits-2"]
    released = [
        event for number in (1, 2, 3) for event in await world.events(number) if event["type"] == "task.released"
    ]
    assert len(released) == 6  # put off, and let begin, once each
