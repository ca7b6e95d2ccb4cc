"""Keys of limits under which requests wait: a Take looks at those that can have room, and forgets none; on every store."""

from typing import Any

import msgspec
import pytest
from store_world import DONE, TestClock, World, gave_up, retry_at, step, undo_of
from test_store_limits import declare, hold, merchants, take, take_answer, waiting
from test_store_verbs import FAILED, REDO, verb

from arriero.model import Instant, StepRow, Verb, later
from arriero.model.agents import LimitPolicy, WaitingKeysRow, encode_limit_keys
from arriero.model.commands import AssignApp
from arriero.model.failures import TaskFailure
from arriero.model.moves import BeginUndo, Hold, PlanUndo, Process
from arriero.runtime.ports import SystemPorts
from arriero.runtime.upkeep import Upkeep
from arriero.store.contract import PurgeNamed
from arriero.store.engine.limits import ABANDONED_SECONDS
from arriero.store.sql.store_rows import StoreRows
from arriero.store.sqlite.store import SqliteStore

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
    for module in ("take_requests", "limits"):
        monkeypatch.setattr(f"arriero.store.engine.{module}.KEYS_AT_ONCE", 2)
    monkeypatch.setattr("arriero.store.engine.take_requests.FRUITLESS_PAGES_MAX", 1)
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


# --- what else changes requests that wait
async def test_the_undo_of_a_step_waits_under_keys_of_its_own(world: World) -> None:
    await declare(world, ONE_EACH)
    task = await waiting(world, 1, "a")
    (one,) = await take(world)
    task = (await world.advance(task, [world.reported(one, DONE)], ending=BeginUndo(FAILED))).task
    keys = encode_limit_keys({"of merchant": "b"})
    planned = PlanUndo(FAILED, (undo_of(one, agent="payments", limit_keys=keys),))
    await world.advance(task, ending=planned)
    (undo,) = await take(world, names=("charge", one.name))
    assert (undo.kind, undo.limit_keys) == ("compensation", keys)


async def test_a_step_that_a_person_has_done_again_waits_under_its_keys(world: World, clock: TestClock) -> None:
    await declare(world, ONE_EACH)
    task = await waiting(world, 1, "a")
    (one,) = await take(world)
    redo = msgspec.structs.replace(REDO, redo=(one.ordinal,))
    task = (await world.advance(task, [world.reported(one, gave_up())], ending=Hold(redo))).task
    assert await take(world) == []
    assert await list_keys(world) == []
    await world.written(verb(Verb.RESUBMIT, task))
    (loaded,) = await world.claim(app="shop")
    await world.opened(loaded.task, step(key=one.key, limit_keys=one.limit_keys, reopens=one.step_no))
    assert merchants(await take(world)) == ["a"]


async def test_the_keys_of_a_process_that_is_lost_are_looked_at_again(world: World, clock: TestClock) -> None:
    await declare(world, ONE_EACH)
    task = await waiting(world, 1, "a")
    (one,) = await take(world)
    await world.lose(1)
    await declare(world, ONE_EACH, instance="p2")
    await world.written(world.free_command(task, [one]))
    assert merchants(await take(world, 2)) == ["a"]
    assert (await world.step(one.step_no)).fence > one.fence


# --- rows that are damaged or missing
async def change_keys(world: World, *removed: WaitingKeysRow, add: tuple[WaitingKeysRow, ...] = ()) -> None:
    """Change rows of keys as a stray statement would."""
    store: Any = world.store
    world.keys_are_damaged = True

    def change(rows: StoreRows) -> None:
        rows.remove_waiting_keys(removed)
        if add:
            rows.add_waiting_keys(add)

    await store._write(change)


@pytest.mark.parametrize("text", ["nonsense", "[3]", ""])
async def test_requests_begin_although_the_text_of_their_keys_row_was_damaged(world: World, text: str) -> None:
    await declare(world, AN_HOUR)
    await waiting(world, 1, "a")
    await waiting(world, 1, "b")
    (row, _) = await list_keys(world)
    await change_keys(world, row, add=(msgspec.structs.replace(row, keys=text),))
    assert merchants(await take(world)) == ["b"]
    assert await world.store.repair_waiting_keys() == 1
    assert merchants(await take(world)) == ["a"]
    assert await world.store.repair_waiting_keys() == 0
    assert text not in [row.keys for row in await list_keys(world)]


async def test_requests_begin_although_the_instant_of_their_keys_row_was_damaged(world: World) -> None:
    if not isinstance(world.store, SqliteStore):
        return  # its column is a number elsewhere
    await declare(world, AN_HOUR)
    await waiting(world, 1, "a")
    world.keys_are_damaged = True
    damage = "UPDATE arriero_waiting_keys SET look_at = 'nonsense'"
    await world.store._write(lambda rows: rows.connection.execute(damage))
    assert await take(world) == []
    assert await world.store.repair_waiting_keys() == 1
    assert merchants(await take(world)) == ["a"]


async def test_upkeep_keeps_keys_again_whose_row_is_missing_and_no_others(world: World, clock: TestClock) -> None:
    await declare(world, AN_HOUR)
    await waiting(world, 1, "a")
    await waiting(world, 2, "b")
    await waiting(world, 1, None)
    rows = await list_keys(world)
    await change_keys(world, *rows)
    upkeep = Upkeep(store=world.store, ports=SystemPorts(), replies_keep_seconds=60.0)
    await upkeep.finish()
    assert (upkeep.done["keys"], await list_keys(world)) == (2, rows)
    assert sorted(merchants(await take(world))) == ["", "a", "b"]


async def test_keys_that_wait_for_their_rate_have_their_turn_after_a_new_epoch_and_no_earlier(
    world: World, clock: TestClock
) -> None:
    await used_up(world, "a", "b")
    clock.move(60)
    await world.store.new_epoch("operator")
    process = await declare(world, AN_HOUR, instance="of the new epoch")
    assert merchants(await take(world, process)) == []
    clock.move(3600 * 1.02)
    assert sorted(set(merchants(await take(world, process)))) == ["a", "b"]


async def test_a_purged_task_leaves_the_keys_and_the_rate_under_which_others_wait(
    world: World, clock: TestClock
) -> None:
    await declare(world, AN_HOUR)
    first = await waiting(world, 1, "a")
    (one,) = await take(world)
    task = (await world.task(first.task_no)).task_no
    loaded = await world.load(task)
    await world.advance(loaded.task, delivered=(world.reported(one, DONE),), ending=Process('"done"'))
    await waiting(world, 1, "a")
    assert await take(world) == []
    which = PurgeNamed(what="task", name=first.task_id, ended_before=later(clock(), 1.0))
    assert (await world.store.purge_named(which, actor="janitor", limit=100)).count == 1
    assert await take(world) == [], "the call of the purged task counts"
    clock.move(3600 * 1.02)
    assert merchants(await take(world)) == ["a"]
    clock.move(3600 * 1.02)
    assert await take(world) == []
    assert await list_keys(world) == [], "nothing waits under it any more"
