"""Tags in every store: kept with the task, found by an index, changed by an operator, gone with the task."""

from typing import Any

import pytest
from store_world import FAILED, World, kinds, submission

from arriero.core.ledger_batches import LedgerBatch, LedgerEntry
from arriero.model import Instant, TaskState, Verb, later
from arriero.model.answers import Refusal, Submitted
from arriero.model.commands import AssignApp, Operate
from arriero.model.moves import Hold, Process
from arriero.model.tags import encode_changes, encode_tags
from arriero.store.contract import Purge
from arriero.store.task_filter import TaskFilter

ACME, GLOBEX = {"tenant": "acme"}, {"region": "eu", "tenant": "globex"}


async def found(world: World, tags: dict[str, str], **which: Any) -> list[str]:
    listing = {name: which.pop(name) for name in ("after", "before", "newest_first", "limit") if name in which}
    return [task.task_id for task in await world.store.list_tasks(TaskFilter(tags=tags, **which), **listing)]


async def change(world: World, number: int, put: dict[str, str], remove: tuple[str, ...] = ()) -> None:
    task = await world.task(number)
    await world.written(_change(task.task_no, task.incarnation, put, remove))


def _change(task_no: int, incarnation: int, put: dict[str, str], remove: tuple[str, ...] = ()) -> Operate:
    tags = encode_changes(put, remove)
    return Operate(
        actor="operator", verb=Verb.TAG, task_no=task_no, incarnation=incarnation, by="ana", reason="r", tags=tags
    )


@pytest.mark.parametrize("place", [{}, {"convoy": "k"}], ids=["free", "in convoy"])
async def test_they_are_kept_with_the_task_and_in_its_history(world: World, place: dict[str, str]) -> None:
    number = await world.submit("order-1", tags=encode_tags(GLOBEX), **place)
    task = await world.task(number)
    assert (task.tags, task.submitted_tags) == ('{"region":"eu","tenant":"globex"}', None)
    (event, *_) = await world.events(number)
    assert event["tags"] == GLOBEX
    await world.process()
    (claimed,) = await world.claim()
    assert claimed.task.tags == task.tags


async def test_a_filter_names_the_tasks_that_have_all_of_its_tags(world: World) -> None:
    for number, tags in enumerate((ACME, None, GLOBEX, ACME, {"tenant": "acme", "region": "eu"})):
        await world.submit(f"t{number}", tags=None if tags is None else encode_tags(tags))
    assert await found(world, ACME) == ["t0", "t3", "t4"]
    assert await found(world, {"region": "eu"}) == ["t2", "t4"]
    assert await found(world, {"region": "eu", "tenant": "acme"}) == ["t4"]
    assert await found(world, {"tenant": "acm"}) == await found(world, {"tenan": "acme"}) == []
    assert await world.store.count_listed(TaskFilter(tags=ACME), limit=10) == 3
    assert await found(world, ACME, workflow="other") == []
    assert await found(world, ACME, state="pending") == ["t0", "t3", "t4"]


async def test_pages_of_it_are_in_the_order_of_submission_or_the_newest_first(world: World) -> None:
    for number in range(7):
        await world.submit(f"t{number}", tags=encode_tags(ACME if number % 2 == 0 else GLOBEX))
    numbers = [task.task_no for task in await world.store.list_tasks(TaskFilter(tags=ACME))]
    assert numbers == sorted(numbers)
    assert await found(world, ACME, limit=2) == ["t0", "t2"]
    assert await found(world, ACME, after=numbers[1], limit=5) == ["t4", "t6"]
    assert await found(world, ACME, newest_first=True, limit=2) == ["t6", "t4"]
    assert await found(world, ACME, newest_first=True, before=numbers[2]) == ["t2", "t0"]
    assert await world.store.count_listed(TaskFilter(tags=ACME), after=numbers[1], limit=10) == 2


async def test_a_filter_keeps_to_the_apps_and_workflows_that_a_caller_reaches(world: World) -> None:
    await world.submit("mine", tags=encode_tags(ACME), app="shop")
    await world.submit("theirs", tags=encode_tags(ACME), app="travel")
    assert await found(world, ACME, apps=("shop",)) == ["mine"]
    assert await found(world, ACME, apps=("shop",), workflows=("other",)) == []
    assert await found(world, ACME, app="travel") == ["theirs"]


async def test_the_same_submission_with_other_tags_is_the_same_task_and_keeps_the_first_ones(world: World) -> None:
    (created,) = await world.store.submit([submission(tags=encode_tags(ACME))])
    (known,) = await world.store.submit([submission(tags=encode_tags(GLOBEX))])
    assert isinstance(created, Submitted)
    assert isinstance(known, Submitted)
    assert (created.created, known.created, known.task_no) == (True, False, created.task_no)
    assert (await found(world, ACME), await found(world, GLOBEX)) == (["order-1"], [])


async def test_a_change_is_found_at_once_and_keeps_the_old_values_in_the_history(world: World) -> None:
    number = await world.submit("order-1", tags=encode_tags(GLOBEX))
    await change(world, number, ACME, ("region",))
    assert (await found(world, ACME), await found(world, GLOBEX), await found(world, {"region": "eu"})) == (
        ["order-1"], [], [],
    )  # fmt: skip
    (event,) = await world.last_events(number)
    assert (event["tags_before"], event["tags"], event["by"]) == (GLOBEX, ACME, "ana")
    await change(world, number, {"x": "1"}, ("tenant",))
    task = await world.task(number)
    assert (task.tags, task.submitted_tags) == ('{"x":"1"}', encode_tags(GLOBEX))
    await change(world, number, {}, ("x", "other"))
    task = await world.task(number)
    assert (task.tags, task.submitted_tags, await found(world, {"x": "1"})) == (None, encode_tags(GLOBEX), [])


async def test_a_task_without_tags_gets_some_and_its_code_still_sees_none(world: World) -> None:
    number = await world.submit("order-1")
    await change(world, number, ACME)
    task = await world.task(number)
    assert (task.tags, task.submitted_tags, await found(world, ACME)) == (encode_tags(ACME), "{}", ["order-1"])


async def test_more_tags_than_a_task_may_have_are_refused_and_nothing_changes(world: World) -> None:
    number = await world.submit("order-1", tags=encode_tags(ACME))
    task = await world.task(number)
    (answer,) = await world.store.apply([_change(number, 1, {f"t{one}": "x" for one in range(20)})])
    assert isinstance(answer, Refusal)
    assert (answer.verdict, answer.detail) == (
        "not_allowed",
        "task 'order-1' would have 21 tags; a task has at most 20",
    )
    assert await world.task(number) == task


async def test_a_change_frees_the_task_like_every_verb_so_that_its_holder_loads_it_again(world: World) -> None:
    await world.process()
    task = await world.held("order-1", tags=encode_tags(ACME))
    await change(world, task.task_no, GLOBEX)
    freed = await world.task(task.task_no)
    assert (freed.locked_by, freed.state, freed.fence) == (None, TaskState.PROCESSING, task.fence + 1)
    assert await world.claimed_ids() == ["order-1"]


@pytest.mark.parametrize("ending", [Process("1"), Hold(FAILED)], ids=["processed", "held"])
async def test_a_task_that_has_ended_is_tagged_and_stays_as_it_ended(world: World, ending: Any) -> None:
    await world.process()
    task = await world.held("order-1", convoy="k")
    ended = (await world.advance(task, ending=ending)).task
    await change(world, task.task_no, ACME)
    tagged = await world.task(task.task_no)
    assert (tagged.state, tagged.ended_at, tagged.not_before, tagged.turn, tagged.incarnation) == (
        ended.state, ended.ended_at, ended.not_before, ended.turn, 1,
    )  # fmt: skip
    assert await found(world, ACME, state=ended.state) == ["order-1"]
    assert kinds(await world.last_events(task.task_no)) == ["operator.action"]


async def test_an_alert_names_the_tags_that_its_task_has_now(world: World) -> None:
    await world.process()
    task = await world.held("order-1", tags=encode_tags(GLOBEX))
    await world.advance(task, ending=Hold(FAILED))
    assert [alert.tags for alert in await world.store.alerts()] == [encode_tags(GLOBEX)]
    await change(world, task.task_no, ACME, ("region",))
    assert [alert.tags for alert in await world.store.alerts()] == [encode_tags(ACME)]
    held = await world.store.take_alerts(10, 60.0)
    assert [alert.tags for alert in held] == [encode_tags(ACME)]


async def test_entries_of_a_ledger_have_tags_once_they_are_there(world: World) -> None:
    ledger = await world.store.begin_ledger("day")
    submit = submission("t1", tags=encode_tags(ACME))
    entry = LedgerEntry(line=1, digest="d1", submit=submit)
    written = await world.store.write_ledger(
        LedgerBatch(ledger_no=ledger.ledger_no, after=0, entries=(entry,), refuses=True)
    )
    assert written.ledger is not None
    assert await found(world, ACME) == []
    await world.store.open_ledger(ledger.ledger_no, 1, "d1", "client")
    assert await found(world, ACME) == ["t1"]
    assert await found(world, ACME, ledger="day") == ["t1"]
    assert await found(world, GLOBEX, ledger="day") == []
    await world.store.let_go(ledger.ledger_no, 10, "client")
    assert (await world.task(1)).tags == encode_tags(ACME)
    (event, *_) = await world.events(1)
    assert event["tags"] == ACME


async def test_they_stay_with_a_task_that_another_app_gets(world: World) -> None:
    number = await world.submit("order-1", tags=encode_tags(ACME), app="shop")
    await world.written(
        AssignApp(actor="cli", task_no=number, app="travel", from_app="shop", by="ana", reason="it moves")
    )
    assert (await found(world, ACME, app="travel"), await found(world, ACME, app="shop")) == (["order-1"], [])


async def test_they_stay_over_a_resubmission(world: World) -> None:
    await world.process()
    task = await world.held("order-1", tags=encode_tags(GLOBEX))
    await world.advance(task, ending=Hold(FAILED))
    await change(world, task.task_no, ACME)
    again = Operate(actor="operator", verb=Verb.RESUBMIT, task_no=1, incarnation=1, by="ana", reason="r", store_id="s")
    await world.written(again)
    task = await world.task(1)
    assert (task.incarnation, task.submitted_tags) == (2, encode_tags(GLOBEX))
    assert await found(world, ACME) == ["order-1"]


async def test_the_index_of_a_purged_task_goes_with_it(store: Any, clock: Any) -> None:
    world = World(store, clock)
    await world.process()
    task = await world.held("order-1", tags=encode_tags(ACME))
    await world.advance(task, ending=Process("1"))
    which = Purge(states=(TaskState.PROCESSED,), ended_before=Instant(later(store.now(), 60.0)))
    assert (await store.purge(which, actor="janitor", limit=10)).count == 1
    assert await found(world, ACME) == []
    number = await world.submit("order-1", tags=encode_tags(GLOBEX))
    assert (await found(world, ACME), await found(world, GLOBEX)) == ([], ["order-1"])
    assert number != task.task_no
