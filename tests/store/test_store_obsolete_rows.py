"""Rows of processes, leases and breakers go once nothing refers to them, and what they knew does not come again."""

from typing import Any

import msgspec
import pytest
from store_checks import disagreements
from store_world import LEASE, TestClock, World, step

from arriero.core.breaker import REMEMBERED_SECONDS
from arriero.core.purging import KEPT_SECONDS
from arriero.errors import AppCollision
from arriero.model import Instant, later
from arriero.model.agents import AgentVerb, BreakerRow
from arriero.model.answers import BreakerApplied, Claimed, Refusal
from arriero.model.commands import OperateAgent
from arriero.model.processes import ProcessAbout, ProcessRow
from arriero.store.contract import RemovedRows
from arriero.store.sqlite.store import SqliteStore

HOUR = 3_600.0
ALL = 1_000


def about(app: str = "", *workflows: str) -> str:
    return msgspec.json.encode(ProcessAbout(app=app, workflows=workflows)).decode()


async def started(world: World, name: str, text: str = "{}") -> int:
    number = await world.store.register(name, LEASE, text)
    await world.store.retire(number, by=name, known_dead=True)
    return number


async def removed(world: World, before: Instant | None = None, limit: int = ALL) -> RemovedRows:
    at = later(world.clock(), -1.0) if before is None else before
    return await world.store.remove_obsolete_rows(at, at, limit)


async def processes(world: World) -> list[int]:
    rows: list[ProcessRow] = await world.store._read(lambda rows: rows.select_shared(ProcessRow, None, ALL))  # type: ignore[attr-defined]
    return sorted(row.process_no for row in rows)


async def operate(world: World, verb: AgentVerb, target: str = "t") -> BreakerRow:
    command = OperateAgent(actor="c", app="", agent="payments", target=target, by="ana", reason="test", verb=verb)
    answer = await world.apply(command)
    assert isinstance(answer, BreakerApplied), answer
    return answer.breaker


# --- processes
async def test_of_process_starts_with_the_same_code_the_last_one_stays(world: World, clock: TestClock) -> None:
    for n in range(40):
        await started(world, f"p{n}", about("shop", "fulfil"))
    living = await world.store.register("living", LEASE, about("shop", "fulfil"))
    clock.move(2)
    assert (await removed(world, limit=25)).processes == 25
    assert (await removed(world)).processes == 15
    assert await processes(world) == [living]
    assert await world.store.register("next", LEASE) > living


async def test_a_process_stays_until_its_lease_has_lapsed_for_long_enough(world: World, clock: TestClock) -> None:
    first, _ = await started(world, "first"), await started(world, "second")
    assert (await removed(world, later(clock(), -KEPT_SECONDS))).processes == 0
    clock.move(KEPT_SECONDS + 1)
    assert (await removed(world, later(clock(), -KEPT_SECONDS))).processes == 1
    assert first not in await processes(world)


async def test_a_process_that_a_row_names_stays(world: World, clock: TestClock) -> None:
    holder = await world.store.register("holder", LEASE)
    task = await world.held("t0", holder)
    _, (running,) = await world.running(task, "charge")
    await world.lose(holder)
    for name in ("next", "last"):
        await started(world, name)
    clock.move(2)
    assert (await removed(world)).processes == 1
    assert holder in await processes(world)
    await world.written(world.free_command(await world.task(task.task_no), [running]))
    assert (await removed(world)).processes == 1
    assert holder not in await processes(world)


async def test_a_process_that_wakes_up_after_its_row_was_removed_claims_takes_and_renews_nothing(
    world: World, clock: TestClock
) -> None:
    frozen = await world.store.register("frozen", LEASE)
    other = await world.process("other")
    await world.lose(frozen)
    clock.move(2)
    assert (await removed(world)).processes == 1
    await world.submit("t0")
    assert await world.apply(world.claim_command(frozen)) == Claimed(())
    assert not (await world.store.renew(frozen, LEASE)).renewed
    assert await world.store.retire(frozen, by="other", known_dead=True)
    task = (await world.claim(other))[0].task
    await world.opened(task, step())
    assert await world.take(frozen) == []
    assert len(await world.take(other)) == 1


async def test_an_app_is_refused_because_of_code_that_only_a_removed_process_shared_with_another(
    world: World, clock: TestClock
) -> None:
    for n in range(3):
        await started(world, f"shop-{n}", about("shop", "fulfil"))
    await started(world, "tools", about("tools"))
    clock.move(2)
    assert (await removed(world)).processes == 2
    await world.submit("t0")  # it names no App
    with pytest.raises(AppCollision):
        await world.store.register("other", LEASE, about("other", "fulfil"))


# --- leases
async def test_a_lease_that_is_taken_again_after_it_was_removed_has_a_higher_term(
    world: World, clock: TestClock
) -> None:
    for n in range(3):
        granted = await world.store.acquire_lease("nightly", f"host-{n}", f"host-{n}", 1.0)
        clock.move(2)
    assert granted.term == 3
    assert (await removed(world, later(clock(), -10.0))).leases == 0
    clock.move(20)
    assert (await removed(world, later(clock(), -10.0))).leases == 1
    assert (await world.store.find_lease("nightly"))[1] is None
    assert not await world.store.renew_lease("nightly", "host-2", 3, 1.0)
    assert (await world.store.acquire_lease("nightly", "host-9", "host-9", 1.0)).term == 4
    assert (await world.store.acquire_lease("weekly", "host-9", "host-9", 1.0)).term == 4


async def test_the_supervisors_lease_and_one_that_is_held_stay(world: World, clock: TestClock) -> None:
    await world.lead(await world.process())
    await world.store.acquire_lease("nightly", "host", "host", 10 * HOUR)
    clock.move(HOUR)
    assert (await removed(world)).leases == 0
    assert len((await world.store.list_leases())[1]) == 2


# --- breakers
async def test_a_breaker_that_has_been_closed_for_an_hour_goes_and_its_next_fence_is_higher(
    world: World, clock: TestClock
) -> None:
    await operate(world, AgentVerb.OPEN)
    closed = await operate(world, AgentVerb.CLOSE)
    await operate(world, AgentVerb.OPEN, "open")
    await operate(world, AgentVerb.PAUSE, "paused")
    assert (await removed(world)).breakers == 0
    clock.move(REMEMBERED_SECONDS - 1)
    assert (await removed(world)).breakers == 0
    clock.move(2)
    assert (await removed(world)).breakers == 1
    assert [row.target for row in await world.store.list_breakers()] == ["open", "paused"]
    again = await operate(world, AgentVerb.OPEN)
    assert again.fence == closed.fence + 1
    assert isinstance(await world.apply(_open_again()), Refusal)


async def test_a_breaker_that_gets_a_row_again_without_being_opened_agrees_with_its_history(
    world: World, clock: TestClock
) -> None:
    """Its fence begins above those of removed breakers, which no event says."""
    for _ in range(2):
        await operate(world, AgentVerb.OPEN)
        await operate(world, AgentVerb.CLOSE)
    clock.move(REMEMBERED_SECONDS + 1)
    assert (await removed(world)).breakers == 1
    for target in ("t", "other"):
        await operate(world, AgentVerb.PAUSE, target)
        await operate(world, AgentVerb.RESUME, target)
    assert {row.target for row in await world.store.list_breakers()} == {"other", "t"}
    assert await disagreements(world.store) == []


def _open_again() -> OperateAgent:
    return OperateAgent(actor="c", app="", agent="payments", target="t", by="ana", reason="test", verb=AgentVerb.OPEN)


async def test_alerts_of_no_task_go_once_they_are_closed_and_told(world: World, clock: TestClock) -> None:
    from test_store_breakers import tripped

    await tripped(world)
    await operate(world, AgentVerb.CLOSE, "")
    clock.move(HOUR + 2)
    assert (await removed(world)).alerts == 0
    (alert,) = await world.store.take_alerts(10, 5.0)
    await world.store.settle_alert(alert.no, alert.attempts, ("log",), None, "")
    assert (await removed(world)).alerts == 1
    assert await world.store.alerts(open_only=False) == []


# --- costs
async def count_steps(store: SqliteStore, work: Any) -> int:
    """Instructions of SQLite's machine, in hundreds, that a write takes."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    assert store._writer is not None
    await store._writer.run(lambda connection: connection.set_progress_handler(count, 100))
    await work()
    await store._writer.run(lambda connection: connection.set_progress_handler(None, 0))
    return counted


async def test_a_renewal_on_sqlite_reads_only_processes_that_live(world: World) -> None:
    if not isinstance(world.store, SqliteStore):
        return
    store = world.store
    living = await store.register("living", LEASE)

    async def renew() -> None:
        await store.renew(living, LEASE)

    await renew()
    few = await count_steps(store, renew)
    for n in range(300):
        await started(world, f"p{n}", about("shop", f"workflow-{n}"))
    await renew()
    assert await count_steps(store, renew) <= few + 2
