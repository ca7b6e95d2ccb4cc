"""Leases: one holder at a time under a growing term, prolonged, given back, and taken away by an operator."""

from store_world import NOON, TestClock, World, kinds

from arriero.model import Instant, later
from arriero.model.leases import LeaseRow


def _row(name: str, term: int, holder: int | str, until: Instant, since: Instant = NOON) -> LeaseRow:
    return LeaseRow(name, term, holder, until, 5_000_000, since)


async def test_a_lease_has_one_holder_and_a_growing_term(world: World, clock: TestClock) -> None:
    store = world.store
    assert await store.acquire_lease("l", 1, "a", 5.0) == _row("l", 1, 1, later(clock(), 5))
    clock.move(4)
    assert await store.acquire_lease("l", 2, "b", 5.0) == _row("l", 1, 1, Instant(NOON + 5_000_000))
    assert await store.acquire_lease("l", 1, "a", 5.0) == _row("l", 1, 1, later(clock(), 5))
    clock.move(5)
    assert await store.acquire_lease("l", 2, "b", 5.0) == _row("l", 2, 2, later(clock(), 5), since=clock())
    assert [(e["type"], e["term"], e["process"]) for e in await world.events(0)] == [
        ("lease.granted", 1, 1),
        ("lease.granted", 2, 2),
    ]
    await world.check_chains()


async def test_leases_of_other_names_do_not_meet(world: World) -> None:
    assert (await world.store.acquire_lease("a", 1, "a", 5.0)).holder == 1
    assert (await world.store.acquire_lease("b", 2, "b", 5.0)).holder == 2


async def test_a_holder_that_let_its_lease_lapse_gets_a_new_term(world: World, clock: TestClock) -> None:
    await world.store.acquire_lease("l", 1, "a", 5.0)
    clock.move(5)
    assert (await world.store.acquire_lease("l", 1, "a", 5.0)).term == 2


async def test_only_its_holder_renews_a_lease_under_its_term_before_it_lapses(world: World, clock: TestClock) -> None:
    store = world.store
    assert not await store.renew_lease("l", 1, 0, 5.0)
    await store.acquire_lease("l", 1, "a", 5.0)
    clock.move(4)
    assert not await store.renew_lease("l", 2, 1, 5.0)
    assert not await store.renew_lease("l", 1, 2, 5.0)
    assert await store.renew_lease("l", 1, 1, 5.0)
    clock.move(4.999)
    assert await store.renew_lease("l", 1, 1, 5.0)
    clock.move(5)
    assert not await store.renew_lease("l", 1, 1, 5.0)


async def test_a_lease_given_back_is_another_s_at_once_under_a_new_term(world: World) -> None:
    store = world.store
    await store.acquire_lease("l", 1, "a", 5.0)
    await store.release_lease("l", 2, 1, "b")
    await store.release_lease("l", 1, 9, "a")
    assert (await store.acquire_lease("l", 2, "b", 5.0)).holder == 1
    await store.release_lease("l", 1, 1, "a")
    assert not await store.renew_lease("l", 1, 1, 5.0)
    lease = await store.acquire_lease("l", 2, "b", 5.0)
    assert (lease.holder, lease.term) == (2, 2)
    assert kinds(await world.events(0)) == ["lease.granted", "lease.lost", "lease.granted"]
    await world.check_chains()


# --- holders that are no processes
async def test_the_holder_of_a_mutex_is_known_by_its_name(world: World, clock: TestClock) -> None:
    store = world.store
    assert await store.acquire_lease("m", "left", "ana", 5.0) == _row("m", 1, "left", later(NOON, 5))
    assert (await store.acquire_lease("m", "right", "ben", 5.0)).holder == "left"
    assert not await store.renew_lease("m", "right", 1, 5.0)
    assert await store.renew_lease("m", "left", 1, 5.0)
    await store.release_lease("m", "left", 1, "ana")
    assert (await store.acquire_lease("m", "right", "ben", 5.0)).term == 2
    assert [(e["type"], e["term"], e["process"], e["owner"]) for e in await world.events(0)] == [
        ("lease.granted", 1, 0, "left"),
        ("lease.lost", 1, 0, "left"),
        ("lease.granted", 2, 0, "right"),
    ]
    await world.check_chains()


async def test_a_lease_shows_how_it_stands_with_the_clock_that_it_lapses_by(world: World, clock: TestClock) -> None:
    assert await world.store.find_lease("m") == (NOON, None)
    await world.store.acquire_lease("m", "left", "ana", 5.0)
    await world.store.acquire_lease("a", 1, "one", 5.0)
    clock.move(1)
    row = _row("m", 1, "left", later(NOON, 5))
    assert await world.store.find_lease("m") == (clock(), row)
    now, rows = await world.store.list_leases()
    assert (now, list(rows)) == (clock(), [_row("a", 1, 1, later(NOON, 5)), row])


# --- taken away by an operator
async def test_a_broken_lease_is_not_prolonged_and_stays_taken_until_it_would_have_lapsed(
    world: World, clock: TestClock
) -> None:
    store = world.store
    await store.acquire_lease("m", "left", "ana", 5.0)
    broken = await store.break_lease("m", "ops", "it hangs", at_once=False)
    assert broken is not None and (broken.broken_by, broken.broken_reason) == ("ops", "it hangs")
    assert not await store.renew_lease("m", "left", 1, 5.0)
    clock.move(4.999)
    assert (await store.acquire_lease("m", "right", "ben", 5.0)).holder == "left"
    assert (await store.acquire_lease("m", "left", "ana", 5.0)).until == later(NOON, 5), "not even its holder gets it"
    clock.move(0.001)
    granted = await store.acquire_lease("m", "right", "ben", 5.0)
    assert (granted.holder, granted.term, granted.broken_by) == ("right", 2, "")


async def test_a_lease_broken_at_once_is_another_s_at_once(world: World, clock: TestClock) -> None:
    await world.store.acquire_lease("m", "left", "ana", 5.0)
    assert await world.store.break_lease("m", "ops", "it is dead", at_once=True) is not None
    assert (await world.store.acquire_lease("m", "right", "ben", 5.0)).term == 2
    last = (await world.events(0))[-2]
    assert (last["type"], last["owner"], last["at_once"], last["reason"]) == (
        "lease.broken",
        "left",
        True,
        "it is dead",
    )


async def test_a_holder_that_lost_its_lease_to_a_person_may_still_give_it_back(world: World) -> None:
    await world.store.acquire_lease("m", "left", "ana", 5.0)
    await world.store.break_lease("m", "ops", "it hangs", at_once=False)
    await world.store.release_lease("m", "left", 1, "ana")
    assert (await world.store.acquire_lease("m", "right", "ben", 5.0)).term == 2, "no need to wait"


async def test_a_lease_that_nobody_holds_cannot_be_broken(world: World, clock: TestClock) -> None:
    assert await world.store.break_lease("m", "ops", "why", at_once=True) is None
    await world.store.acquire_lease("m", "left", "ana", 5.0)
    clock.move(5)
    assert await world.store.break_lease("m", "ops", "why", at_once=True) is None
    assert kinds(await world.events(0)) == ["lease.granted"]
