"""One verb for many tasks: what a filter names, what a dry run foretells, and that each is carried out or refused alone."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from runtime_world import QUICK, Machine, within
from shop_world import DECLINED, HOLD, WHO, Shop, held, opened, record

from arriero import InvalidInput, Permanent, TaskFailed, workflow
from arriero.client.task_verbs import PAGE, Acted
from arriero.testing.world import World


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def world(shop: Shop) -> AsyncIterator[World]:
    """A shop with seven orders: two processed, two held by their card, one by its letter, one asleep, one undone."""
    async with opened(shop) as world:
        app = world.app
        for name in ("done-1", "done-2"):
            await (await app.submit(shop.order("good", 1), task_id=name)).result()
        for name in ("card-1", "card-2"):
            shop.script["charge"] += [Permanent("the Bank refused", code="declined")]
            await held(await app.submit(shop.order("bad", 1), task_id=name))
        shop.script["post"] += [ConnectionError("reset"), ConnectionError("reset"), ConnectionError("reset")]
        await held(await app.submit(shop.order("good", 1), task_id="letter"))
        shop.script["post"] += [DECLINED]
        undone = await app.submit(shop.strict("good", 1), task_id="undone")
        with pytest.raises(TaskFailed):
            await undone.result()
        await world.clock.advance(100)
        await app.submit(shop.slow("good", 1), task_id="asleep")
        await world.clock.advance(5)
        yield world


async def named(world: World, **which: Any) -> list[str]:
    tasks = world.app.tasks(**which)
    found = [view.id async for view in tasks]
    assert await tasks.count() == len(found)
    return found


ALL = ["done-1", "done-2", "card-1", "card-2", "letter", "undone", "asleep"]


# --- what is meant
@pytest.mark.parametrize(
    ("which", "found"),
    [
        ({}, ALL),
        ({"state": "held"}, ["card-1", "card-2", "letter"]),
        ({"state": "compensating"}, []),
        ({"workflow": "strict"}, ["undone"]),
        ({"workflow": "nothing"}, []),
        ({"agent": "shop", "state": "held"}, ["card-1", "card-2", "letter"]),
        ({"agent": "nobody"}, []),
        ({"step": "charge"}, ["card-1", "card-2"]),
        ({"step": "post"}, ["letter", "undone"]),
        ({"code": "declined"}, ["card-1", "card-2", "undone"]),
        ({"code": "declined", "state": "held"}, ["card-1", "card-2"]),
        ({"text": "the bank"}, ["card-1", "card-2"]),
        ({"text": "THE BANK REFUSED"}, ["card-1", "card-2"]),
        ({"text": "100%"}, []),
        ({"older_than": 60}, ALL[:-1]),
        ({"older_than": timedelta(hours=1)}, []),
        ({"older_than": 0}, ALL),
        ({"since": 60}, ["asleep"]),
        ({"since": timedelta(hours=1)}, ALL),
        ({"since": timedelta(hours=1), "older_than": 60}, ALL[:-1]),
        ({"since": datetime(2000, 1, 1, tzinfo=UTC)}, ALL),
        ({"since": datetime(2999, 1, 1, tzinfo=UTC)}, []),
        ({"older_than": datetime(2000, 1, 1, tzinfo=UTC)}, []),
        ({"older_than": datetime(2999, 1, 1, tzinfo=UTC)}, ALL),
        ({"paused": True}, []),
        ({"snoozed": True}, []),
        ({"snoozed": False}, ALL),
        ({"paused": False, "state": "processing"}, ["asleep"]),
    ],
    ids=str,
)
async def test_a_filter_names_tasks_in_the_order_of_their_submission(
    world: World, which: dict[str, Any], found: list[str]
) -> None:
    assert await named(world, **which) == found


async def test_tasks_are_seen_as_they_stand(world: World) -> None:
    views = {view.id: view async for view in world.app.tasks()}
    assert (views["card-1"].state, views["card-1"].reason) == ("held", "the Bank refused")
    assert views["asleep"].waiting_for.startswith("the time ")
    await world.app.tasks(workflow="slow").pause(**WHO)
    assert await named(world, paused=True) == ["asleep"]


async def test_a_filter_names_what_is_snoozed_until_the_snooze_ends(world: World) -> None:
    await world.app.tasks(workflow="slow").snooze(**WHO, delay=60)
    assert await named(world, snoozed=True) == ["asleep"]
    assert "asleep" not in await named(world, snoozed=False)
    await world.clock.advance(61)
    assert await named(world, snoozed=True) == []


@pytest.mark.parametrize(
    ("which", "match"),
    [
        ({"state": "broken"}, "states are pending, processing"),
        ({"older_than": -1}, "older_than"),
        ({"older_than": "long"}, "older_than"),
        ({"since": -1}, "since"),
        ({"since": "2h"}, "since"),
        ({"older_than": datetime(2026, 1, 1)}, "give it a time zone"),
        ({"since": datetime(2026, 1, 1)}, "give it a time zone"),  # that is what is refused
    ],
    ids=str,
)
async def test_a_filter_that_means_nothing_is_refused(world: World, which: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        world.app.tasks(**which)


async def test_the_newest_are_seen_first_and_a_bound_of_the_look_bounds_no_verb(world: World) -> None:
    tasks = world.app.tasks(since=3_600)
    assert [view.id for view in await tasks.newest()] == ALL[::-1]
    assert [view.id for view in await tasks.newest(2)] == ["asleep", "undone"]
    assert [view.id for view in await world.app.tasks(state="held").newest(1)] == ["letter"]
    paused = await tasks.pause(**WHO, dry_run=True)
    assert paused.meant + paused.left_out_count == len(ALL)
    for limit in (0, 10_001, True, "5"):
        with pytest.raises(InvalidInput, match="it must be a whole number from 1 to 10,000"):
            await tasks.newest(limit)  # type: ignore[arg-type]  # that is what is refused


# --- one verb for each
@pytest.mark.parametrize(
    "verb", ["resubmit", "compensate", "cancel", "extend", "adjust", "answer", "pause", "resume", "snooze"]
)
async def test_a_verb_for_all_there_are_is_refused(world: World, verb: str) -> None:
    what: dict[str, Any] = {
        "extend": {"within": 60},
        "adjust": {"attempts": 5},
        "snooze": {"delay": 60},
        "answer": {"step": "charge", "result": "x"},
    }.get(verb, {})
    with pytest.raises(InvalidInput, match=f"{verb} of all tasks there are: name at least one thing"):
        await getattr(world.app.tasks(), verb)(**WHO, **what, dry_run=True)


async def test_nobody_acts_on_many_without_saying_who_and_why(world: World) -> None:
    with pytest.raises(InvalidInput, match="by"):
        await world.app.tasks(state="held").resubmit(by="", reason="x")
    with pytest.raises(InvalidInput, match="reason"):
        await world.app.tasks(state="held").resubmit(by="ana", reason=" ", dry_run=True)
    with pytest.raises(InvalidInput, match="within"):
        await world.app.tasks(state="processing").extend(**WHO, within=-1)


async def test_all_that_failed_by_one_cause_are_resubmitted(world: World, shop: Shop) -> None:
    acted = await world.app.tasks(state="held", code="declined").resubmit(**WHO)
    assert acted == Acted(2, ("card-1", "card-2"), ())
    for name in ("card-1", "card-2"):
        assert await world.app.task(name).result() == "receipt for 100"
    assert await named(world, state="held") == ["letter"]
    assert await world.app.tasks(state="held", code="declined").resubmit(**WHO) == Acted(0, (), ())


async def test_those_that_are_refused_are_named_with_the_reason_and_stop_nobody(world: World, shop: Shop) -> None:
    shop.script["charge"] += [DECLINED]
    await held(await world.app.submit(shop.shipped("bad", 1), task_id="past-pivot"))
    acted = await world.app.tasks(older_than=0).compensate(**WHO)
    assert set(acted.done) == {"done-1", "done-2", "card-1", "card-2", "letter", "asleep"}
    ((refused, why),) = acted.refused
    assert (refused, "step ship is a pivot and has or may have happened" in why) == ("past-pivot", True)
    assert (acted.meant, acted.left_out) == (7, (("compensated", 1),))


async def test_what_has_ended_is_left_out_and_counted_by_its_state(world: World) -> None:
    dry = await world.app.tasks(older_than=0).cancel(**WHO, dry_run=True)
    assert dry == Acted(1, ("asleep",), (), (("held", 3), ("processed", 2), ("compensated", 1)))
    assert dry.left_out_count == 6
    assert await world.app.tasks(older_than=0).cancel(**WHO) == dry


async def test_what_is_paused_already_is_left_out_of_a_pause_and_what_is_not_of_a_resume(world: World) -> None:
    asleep = world.app.tasks(workflow="slow")
    assert await asleep.resume(**WHO) == Acted(0, (), (), (("not paused", 1),))
    assert (await asleep.pause(**WHO)).done == ("asleep",)
    assert await asleep.pause(**WHO) == Acted(0, (), (), (("paused already", 1),))


ALLOWING = {  # by its state alone
    "resubmit": {"card-1", "card-2", "letter", "undone"},
    "compensate": set(ALL) - {"undone"},
    "cancel": {"asleep"},
    "extend": {"asleep"},
    "adjust": {"asleep"},
    "answer": {"card-1", "card-2", "letter", "asleep"},
    "pause": {"asleep"},
    "resume": set(),
    "snooze": {"asleep"},
}


@pytest.mark.parametrize(
    ("verb", "what"),
    [
        ("resubmit", {}),
        ("compensate", {}),
        ("cancel", {}),
        ("extend", {"within": 6000}),
        ("adjust", {"deadline": 60}),
        ("adjust", {"attempts": 5}),
        ("answer", {"step": "charge", "result": "by hand"}),
        ("answer", {"step": "post", "did_not_happen": True}),
        ("answer", {"step": "charge", "result": 5}),
        ("pause", {}),
        ("resume", {}),
        ("snooze", {"delay": 60}),
    ],
    ids=str,
)
async def test_a_dry_run_changes_nothing_and_foretells_what_happens(
    world: World, verb: str, what: dict[str, Any]
) -> None:
    before = {name: record(world, world.app.task(name)) for name in ALL}
    commits = len(world._store.log)
    foretold = await getattr(world.app.tasks(older_than=0), verb)(**WHO, **what, dry_run=True)
    assert {name: record(world, world.app.task(name)) for name in ALL} == before
    assert len(world._store.log) == commits
    done = await getattr(world.app.tasks(older_than=0), verb)(**WHO, **what)
    assert done == foretold
    assert {*foretold.done, *(name for name, _ in foretold.refused)} == ALLOWING[verb]
    assert foretold.meant == len(ALLOWING[verb])
    assert foretold.left_out_count == len(ALL) - foretold.meant


async def test_each_act_is_in_the_history_of_its_task_with_who_and_why(world: World) -> None:
    await world.app.tasks(state="held").resubmit(by="bo", reason="the bank is back")
    events = [
        (row.task_id, event["by"], event["reason"])
        for row in world._store.log
        for event in msgspec.json.decode(row.events)
        if event["type"] == "operator.action"
    ]
    assert events == [(name, "bo", "the bank is back") for name in ("card-1", "card-2", "letter")]


# --- many
async def test_more_than_a_page_is_acted_on_and_progress_is_told(shop: Shop) -> None:
    many = 2 * PAGE + 3
    progress: list[int] = []
    async with opened(shop) as world:
        for number in range(many):
            await world.app.submit(shop.order("good", 1), task_id=f"o-{number}", delay=3600)
        tasks = world.app.tasks(state="pending")
        assert await tasks.count() == many
        dry = await tasks.cancel(**WHO, dry_run=True, progress=progress.append)
        assert (len(dry.done), progress) == (many, [PAGE, 2 * PAGE, many])
        acted = await tasks.cancel(**WHO, progress=progress.append)
        assert (len(set(acted.done)), acted.refused) == (many, ())
        await world.clock.advance(60)
        assert await world.app.tasks(state="compensated").count() == many


async def test_tasks_that_leave_the_filter_as_they_are_acted_on_skip_nobody(shop: Shop) -> None:
    @workflow(supervision=HOLD)
    async def failing(number: int) -> None:
        raise Permanent("no", code="no")

    many = PAGE + 20
    async with opened(shop, failing) as world:
        for number in range(many):
            await world.app.submit(failing(number))
        await world.clock.advance(10)
        acted = await world.app.tasks(state="held").resubmit(**WHO)  # each leaves the state held
        assert (acted.meant, len(acted.done)) == (many, many)
        await world.clock.advance(10)
        views = [view async for view in world.app.tasks(state="held")]
        assert {view.incarnation for view in views} == {2}


async def test_on_a_file_the_same_is_done_by_a_process_that_runs_nothing(machine: Machine, shop: Shop) -> None:
    def process() -> Any:
        app = shop.app()
        app.session.given_store = machine.url
        app.session.settings = QUICK
        return app

    shop.script["charge"] += [DECLINED] * 3
    async with process().running(store=machine.url) as app:
        tasks = [await app.submit(shop.order("bad", 1), task_id=f"o-{number}") for number in range(4)]
        for task in tasks:
            try:
                await within(task.result())
            except TaskFailed as failed:
                assert failed.code == "declined"
    async with process() as app:
        failed = app.tasks(state="held", code="declined", text="DECL", agent="shop", step="charge", workflow="order")
        assert await failed.count() == 3
        dry = await failed.resubmit(**WHO, dry_run=True)
        assert await failed.resubmit(**WHO) == dry
        assert (len(dry.done), await failed.count()) == (3, 0)
    async with process().running(store=machine.url) as app:
        for task_id in dry.done:
            assert await within(app.task(task_id).result()) == "receipt for 100"
    await machine.check()
