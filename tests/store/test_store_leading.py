"""Who leads the Supervisors, what nobody's lead looks like to those who wait, and how often a former leader was refused."""

from store_world import LEASE, NOON, TestClock, World, step

from arriero.model import Instant, later
from arriero.model.processes import LeaderSurvey
from arriero.store.contract import SUPERVISOR_LEASE

SECONDS = 6.0


async def _lead(world: World, process_no: int) -> int:
    return (await world.store.acquire_lease(SUPERVISOR_LEASE, process_no, "leader", SECONDS)).term


async def _is_leaderless(world: World) -> bool:
    return (await world.store.due(("fulfil",), ("payments",))).is_leaderless


async def test_a_store_is_leaderless_once_its_leader_has_left_or_lapsed_and_not_before_there_was_one(
    world: World, clock: TestClock
) -> None:
    assert not await _is_leaderless(world)
    await world.store.acquire_lease("another", 1, "a", SECONDS)
    await world.store.release_lease("another", 1, 1, "a")
    assert not await _is_leaderless(world)
    first, second = await world.process("p1"), await world.process("p2")
    term = await _lead(world, first)
    assert not await _is_leaderless(world)
    clock.move(SECONDS - 0.001)
    assert not await _is_leaderless(world)
    clock.move(0.001)
    assert await _is_leaderless(world)
    term = await _lead(world, second)
    assert not await _is_leaderless(world)
    await world.store.release_lease(SUPERVISOR_LEASE, second, term, "leader")
    assert await _is_leaderless(world)


async def test_the_leader_is_named_with_its_term_and_its_times(world: World, clock: TestClock) -> None:
    assert await world.store.survey_leader() is None
    first, second = await world.process("p1"), await world.process("p2")
    await world.store.acquire_lease("another", first, "a", 60.0)
    assert await world.store.survey_leader() is None
    assert await _lead(world, first) == 1
    for _ in range(11):  # terms of one and of two digits begin alike
        clock.move(SECONDS)
        term = await _lead(world, second)
        since = clock()
    clock.move(2)
    assert await world.store.renew_lease(SUPERVISOR_LEASE, second, term, SECONDS)
    until = later(clock(), SECONDS)
    assert await world.store.survey_leader() == LeaderSurvey(clock(), "p2", 12, since, until)
    clock.to(until)
    assert await world.store.survey_leader() is None
    await _lead(world, first)
    await world.store.release_lease(SUPERVISOR_LEASE, first, 13, "leader")
    assert await world.store.survey_leader() is None


async def test_a_leader_that_is_known_to_be_dead_leads_no_more_and_one_that_is_only_silent_does(
    world: World, clock: TestClock
) -> None:
    first, second, other = await world.process("p1"), await world.process("p2"), await world.process("p3")
    await _lead(world, first)
    clock.move(LEASE)
    assert await world.store.retire(other, by="p2", known_dead=True)
    assert await world.store.retire(first, by="p2", known_dead=False)
    assert not await _is_leaderless(world)
    assert (await world.store.acquire_lease(SUPERVISOR_LEASE, second, "leader", SECONDS)).holder == first
    clock.move(SECONDS)
    await _lead(world, second)
    assert await world.store.retire(second, by="p4", known_dead=True)
    assert await _is_leaderless(world)
    assert await _lead(world, await world.process("p4")) == 3
    assert [event["type"] for event in await world.events(0)][-4:] == [
        "process.retired",
        "lease.lost",
        "process.started",
        "lease.granted",
    ]


async def test_a_write_under_a_past_term_is_counted_and_named_in_the_store_s_own_history(
    world: World, clock: TestClock
) -> None:
    assert await world.store.count_refused_terms() == (0, None)
    term = await _lead(world, await world.process())
    task, (charge,) = await world.running(await world.held(), "charge")
    clock.to(charge.complete_by)
    clock.move(SECONDS)
    assert await _lead(world, await world.process("p2")) == term + 1
    first = clock()
    await world.refused(world.recover_command(charge, term), "old_term")
    assert await world.store.count_refused_terms() == (1, first)
    clock.move(0.5)
    await world.refused(world.recover_command(charge, term), "old_term")
    await world.refused(world.recover_command(charge, term + 1, fence=99), "moved_on")  # refused, but it leads
    assert await world.store.count_refused_terms() == (2, clock())
    refused = [event for event in await world.events(0) if event["type"] == "leader.refused"]
    assert refused == [{"type": "leader.refused", "term": term, "current": term + 1, "task": task.task_no}] * 2
    await world.written(world.recover_command(charge, term + 1))
    assert await world.store.count_refused_terms() == (2, clock())


async def test_what_a_task_says_of_itself_is_not_counted(world: World) -> None:
    task = await world.held('"type":"leader.refused"')
    await world.opened(task, step(key='"type":"leader.refused"'))
    assert await world.store.count_refused_terms() == (0, None)
    assert Instant(NOON) == world.clock()
