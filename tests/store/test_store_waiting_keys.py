"""Keys of limits under which requests wait: a Take looks at those that can have room, and forgets none; on every store."""

from typing import Any

import pytest
from store_world import TestClock, World, retry_at, step
from test_store_limits import declare, hold, merchants, take, take_answer, waiting
from test_store_verbs import verb

from arriero.commands import AssignApp, Hold
from arriero.failures import TaskFailure
from arriero.limits import LimitPolicy, WaitingKeysRow, encode_limit_keys
from arriero.model import Instant, StepRow, Verb, later
from arriero.store.engine.limits import ABANDONED_SECONDS

AN_HOUR = LimitPolicy(name="of merchant", kind="rate", most=1, per=3600.0, is_keyed=True)
TWO_AN_HOUR = LimitPolicy(name="of merchant", kind="rate", most=2, per=3600.0, is_keyed=True)
OF_REGION = LimitPolicy(name="of region", kind="concurrent", most=1, is_keyed=True)
ONE_EACH = LimitPolicy(name="of merchant", kind="concurrent", most=1, is_keyed=True)
ENDED = Instant(2**62)


async def list_keys(world: World, now: Instant = ENDED) -> list[WaitingKeysRow]:
    """Keys of the Agent that are to be looked at by then."""
    store: Any = world.store
    found: list[WaitingKeysRow] = await store._write(
        lambda rows: rows.lock_waiting_keys("payments", ("", "shop", "new"), now, None, 1_000)
    )
    return found


async def used_up(world: World, *names: str) -> list[StepRow]:
    """Merchants that have used up their rate, each with a request that waits."""
    await declare(world, AN_HOUR)
    for name in names:
        await waiting(world, 2, name)
    begun = await take(world)
    assert merchants(begun) == list(names)
    return begun


async def test_keys_whose_rate_is_used_up_are_looked_at_again_when_it_has_room(world: World, clock: TestClock) -> None:
    await used_up(world, "a", "b")
    assert await list_keys(world, clock()) == []
    clock.move(3600 * 1.02)
    assert merchants(await take(world)) == ["a", "b"]


async def test_a_new_key_begins_at_once_beside_others_without_room(world: World, clock: TestClock) -> None:
    await used_up(world, "a", "b")
    clock.move(1)
    await waiting(world, 1, "c")
    await waiting(world, 1, "a")
    assert merchants(await take(world)) == ["c"]
    assert await list_keys(world, clock()) == []


async def test_the_answer_of_a_take_tells_when_a_key_that_it_did_not_look_at_has_room(
    world: World, clock: TestClock
) -> None:
    await used_up(world, "a")
    clock.move(60)
    (limited,) = (await take_answer(world)).limited
    assert limited.is_full
    assert limited.next_in is not None
    assert 3540 <= limited.next_in <= 3540 + 72


async def test_other_limits_have_all_keys_looked_at_again(world: World, clock: TestClock) -> None:
    await used_up(world, "a", "b")
    clock.move(1)
    await declare(world, TWO_AN_HOUR, instance="p2")
    assert merchants(await take(world)) == ["a", "b"]


async def test_a_request_that_is_tried_again_later_goes_when_it_is_due(world: World, clock: TestClock) -> None:
    await declare(world, ONE_EACH)
    await waiting(world, 1, "a")
    (one,) = await take(world)
    await world.report(one, retry_at(clock.at + 60_000_000))
    assert await take(world) == []
    assert await list_keys(world, clock()) == []
    clock.move(60)
    assert merchants(await take(world)) == ["a"]


async def test_a_request_that_comes_while_another_of_its_key_waits_for_later_goes_at_once(
    world: World, clock: TestClock
) -> None:
    await declare(world, ONE_EACH)
    await waiting(world, 1, "a")
    (one,) = await take(world)
    await world.report(one, retry_at(clock.at + 60_000_000))
    assert await take(world) == []
    await waiting(world, 1, "a")
    assert merchants(await take(world)) == ["a"]


@pytest.mark.parametrize("ended", ["held", "paused"])
async def test_keys_under_which_nothing_waits_any_more_are_forgotten(world: World, ended: str) -> None:
    await declare(world, AN_HOUR)
    task = await waiting(world, 1, "a")
    if ended == "held":
        await world.advance(task, ending=Hold(TaskFailure("bug", "it broke")))
    else:
        await world.written(verb(Verb.PAUSE, task))
    assert await take(world) == []
    assert await list_keys(world) == []
    if ended == "paused":
        await world.written(verb(Verb.RESUME, task))
        assert merchants(await take(world)) == ["a"]


async def test_many_keys_that_share_a_full_limit_do_not_hide_others(
    world: World, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("take_by_turns", "limits"):
        monkeypatch.setattr(f"arriero.store.engine.{module}.KEYS_AT_ONCE", 2)
    monkeypatch.setattr("arriero.store.engine.take_by_turns.FRUITLESS_PAGES_MAX", 1)
    await declare(world, OF_REGION, ONE_EACH)
    task = await hold(world)
    for number in range(7):
        region = "there" if number == 6 else "here"
        keys = encode_limit_keys({"of region": region, "of merchant": f"m-{number}"})
        task, _ = await world.opened(task, step(key=f"{number}", limit_keys=keys))
        clock.move(0.001)
    (first,) = await take(world, room=(("payments", 1),))
    begun = []
    for _ in range(4):
        clock.move(0.001)
        begun += await take(world)
    assert (first.key, [one.key for one in begun]) == ("0", ["6"])
    await world.report(first)
    again = []
    for _ in range(4):
        clock.move(0.5)
        again += await take(world)
    assert len(again) == 1  # the slot of the region goes to one of those that waited for it


async def test_a_task_that_gets_another_app_is_found_under_its_keys(world: World, clock: TestClock) -> None:
    await declare(world, AN_HOUR)
    await declare(world, AN_HOUR, instance="p2", app="new")
    task = await waiting(world, 1, "a")
    assign = AssignApp(actor="cli", task_no=task.task_no, app="new", from_app="shop", by="ana", reason="renamed")
    await world.written(assign)
    assert await take(world) == []
    assert merchants(await take(world, 2, app="new")) == ["a"]


async def test_keys_that_nobody_looks_at_are_removed_if_nothing_waits_under_them(
    world: World, clock: TestClock
) -> None:
    await declare(world, ONE_EACH)
    task = await waiting(world, 1, "a")
    await waiting(world, 1, "b")
    await world.advance(task, ending=Hold(TaskFailure("bug", "it broke")))
    await world.store.remove_old_rates()
    assert [row.keys for row in await list_keys(world)] == [
        encode_limit_keys({"of merchant": name}) for name in ("a", "b")
    ]
    clock.to(later(clock(), ABANDONED_SECONDS + 1))
    await world.store.remove_old_rates()
    assert [row.keys for row in await list_keys(world)] == [encode_limit_keys({"of merchant": "b"})]
