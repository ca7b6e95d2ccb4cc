"""What an operator names is removed with all that is kept of it, or not at all; the history that is left stays checkable."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from store_checks import broken_links, disagreements, history_violations
from store_world import FAILED, NOON, TestClock, World, kinds
from test_store_ledgers import Ledgers, entry

from arriero.audit.export import encode_export, read_export
from arriero.core.purging import Named
from arriero.errors import MutilatedExport
from arriero.events import ERASED
from arriero.model import ConvoyVerb, Instant, Verb
from arriero.model.answers import ConvoyApplied, Refusal
from arriero.model.commands import Operate, OperateConvoy
from arriero.model.moves import Hold, Process
from arriero.store.contract import PurgedNamed, PurgeNamed
from arriero.store.state_store import StateStore

NEVER = Instant(NOON + 10**15)
SECRET = "Miss Marple"
DONE = PurgedNamed(count=1, is_done=True)


@pytest.fixture
async def world(store: StateStore, clock: TestClock) -> AsyncIterator[World]:
    """What is left keeps all invariants, also when exported, and folded it equals the state tables."""
    yield World(store, clock, looks_often=False)
    assert await history_violations(store) == []
    assert await disagreements(store) == []
    assert await broken_links(store) == []


async def purge(world: World, what: Named, name: str, limit: int | None = 100, before: Instant = NEVER) -> PurgedNamed:
    which = PurgeNamed(what=what, name=name, ended_before=before)
    return await world.store.purge_named(which, actor="janitor", limit=limit)


async def kept(world: World, what: Named, name: str, **how: Any) -> str:
    """Why it stays; nothing of it is removed."""
    before = [row async for row in world.store.history()]
    answer = await purge(world, what, name, **how)
    assert (answer.count, answer.is_done) == (0, False)
    assert [row async for row in world.store.history()] == before
    return answer.kept


async def done(world: World, task_id: str, **changes: Any) -> int:
    """A task that was processed at once."""
    task_no = await world.submit(task_id, **changes)
    (loaded,) = [one for one in await world.claim() if one.task.task_no == task_no]
    await world.advance(loaded.task, ending=Process('"done"'))
    return task_no


async def on_key(world: World, key: str, verb: ConvoyVerb, **changes: Any) -> None:
    found = await world.store.find_convoy(key)
    assert found is not None
    fields = {"convoy_no": found.convoy.convoy_no, "fence": None, "by": SECRET, "reason": f"{SECRET} says so"}
    answer = await world.apply(OperateConvoy(actor=SECRET, verb=verb, **(fields | changes)))
    assert isinstance(answer, ConvoyApplied), answer


async def said(world: World) -> str:
    """All that an export of the history says."""
    rows = [row async for row in world.store.history()]
    return b"".join(encode_export(rows, world.store.store_id)).decode()


# --- a task
async def test_a_task_that_has_ended_goes_with_all_that_is_kept_of_it(world: World) -> None:
    await world.process()
    task_no = await done(world, f"of {SECRET}")
    assert await purge(world, "task", f"of {SECRET}", limit=None) == DONE
    assert await world.store.find(f"of {SECRET}") is not None  # it was only judged
    assert await purge(world, "task", f"of {SECRET}") == DONE
    assert await world.store.load(task_no) is None
    assert SECRET not in await said(world)
    assert (await world.events(0))[-1]["type"] == "tasks.purged"
    assert (await purge(world, "task", f"of {SECRET}")).kept == f"there is no task 'of {SECRET}'"
    assert await world.submit(f"of {SECRET}") > task_no


async def test_a_task_that_somebody_still_needs_is_kept_and_the_reason_named(world: World, clock: TestClock) -> None:
    await world.process()
    await world.submit("pending", workflow="other")
    assert "task 'pending' is pending: wait for its end, or cancel it" in await kept(world, "task", "pending")
    await done(world, "unread", reply_to="web")
    assert "its messages in the reply queue 'web'" in await kept(world, "task", "unread")
    await world.submit("held")
    (loaded,) = await world.claim()
    await world.advance(loaded.task, ending=Hold(FAILED))
    assert "an alert of it is not delivered yet" in await kept(world, "task", "held")
    await done(world, "young")
    clock.move(5)
    assert "ended within purge.idempotency_keep_seconds" in await kept(world, "task", "young", before=Instant(NOON - 1))
    await world.submit("stopped", convoy="k")
    await world.submit("behind", convoy="k")
    (loaded,) = await world.claim()
    await world.advance(loaded.task, ending=Hold(FAILED))
    for alert in await world.store.take_alerts(10, 5.0):
        await world.store.settle_alert(alert.no, alert.attempts, ("log",), None, "")
    assert "its convoy is blocked on it" in await kept(world, "task", "stopped")
    assert "task 'behind' is pending" in await kept(world, "task", "behind")
    assert await purge(world, "task", "held") == DONE


async def test_a_task_whose_number_would_be_missing_is_kept(world: World) -> None:
    await world.process()
    await world.submit("s1", convoy="k", sequence=1)
    await world.submit("s3", convoy="k", sequence=3)
    (loaded,) = await world.claim()
    await world.advance(loaded.task, ending=Process('"done"'))
    assert await purge(world, "task", "s1") == DONE
    assert "task 's3' is pending" in await kept(world, "convoy", "k")


# --- a convoy
async def fill(world: World, key: str, count: int = 3) -> None:
    """A key with tasks that have ended, a value, and an operator's words in its history."""
    await world.process()
    for number in range(count):
        await world.submit(f"{key}-{number}", convoy=key)
    for number in range(count):
        (loaded,) = await world.claim()
        assert loaded.task.task_id == f"{key}-{number}"
        await world.advance(loaded.task, ending=Process('"done"', convoy_state=f'"{SECRET}"'))
    for verb in (ConvoyVerb.PARK, ConvoyVerb.RELEASE):
        await on_key(world, key, verb)


@pytest.mark.parametrize("limit", [100, 2, 1])
async def test_a_convoy_goes_with_its_key_its_value_and_its_tasks(world: World, limit: int) -> None:
    await fill(world, SECRET)
    await done(world, "another's", convoy="other key")
    assert SECRET in await said(world)
    answers = [await purge(world, "convoy", SECRET, limit)]
    while not answers[-1].is_done:
        answers.append(await purge(world, "convoy", SECRET, limit))
        assert await history_violations(world.store) == []
    assert sum(answer.count for answer in answers) == 3
    assert await world.store.find_convoy(SECRET) is None
    assert [task.task_id for task in await world.store.list_tasks()] == ["another's"]
    assert SECRET not in await said(world)
    assert kinds(await world.events(0))[-2:] == ["tasks.purged", "convoys.purged"]
    assert (await purge(world, "convoy", SECRET)).kept == f"there is no convoy '{SECRET}'"


async def test_a_purged_key_is_a_new_key_under_a_new_number(world: World) -> None:
    await fill(world, "k")
    before = await world.store.find_convoy("k")
    assert before is not None
    assert (await purge(world, "convoy", "k")).is_done
    late = OperateConvoy(
        actor="ann", verb=ConvoyVerb.PARK, convoy_no=before.convoy.convoy_no, fence=None, by="a", reason="r"
    )
    answer = await world.apply(late)
    assert isinstance(answer, Refusal)
    assert answer.verdict == "unknown"
    await done(world, "again", convoy="k", sequence=1)
    after = await world.store.find_convoy("k")
    assert after is not None
    assert after.convoy.convoy_no > before.convoy.convoy_no
    assert (after.convoy.value, after.tail.placed, after.tail.ordering) == (None, 1, "sequence")


async def test_a_key_without_tasks_goes_too(world: World) -> None:
    await fill(world, "k")
    for number in range(3):
        assert await purge(world, "task", f"k-{number}") == DONE
    assert await purge(world, "convoy", "k") == PurgedNamed(is_done=True)
    assert kinds(await world.events(0))[-1] == "convoys.purged"


async def test_a_convoy_is_kept_as_a_whole_while_anything_of_it_is_open_or_it_is_parked(world: World) -> None:
    await fill(world, "k")
    await on_key(world, "k", ConvoyVerb.PARK)
    assert "is parked: release it before" in await kept(world, "convoy", "k")
    await on_key(world, "k", ConvoyVerb.RELEASE)
    await world.submit("open", convoy="k")
    assert "task 'open' is pending: wait for its end" in await kept(world, "convoy", "k", limit=1)
    (loaded,) = await world.claim()
    await world.advance(loaded.task, ending=Process('"done"'))
    ledgers = Ledgers(world)
    ledger = await ledgers.written(entry(1, convoy="k"))
    assert "belongs to a ledger" in await kept(world, "convoy", "k")
    await world.store.discard_ledger(ledger.ledger_no, 100, "ann", "a test")
    assert (await purge(world, "convoy", "k")).count == 4


async def test_a_convoy_is_purged_though_its_last_number_was_never_reached(world: World) -> None:
    """Each task alone would be missed in its sequence; with the key they go."""
    await world.process()
    for number in (1, 2):
        await world.submit(f"s{number}", convoy="k", sequence=number)
    await on_key(world, "k", ConvoyVerb.PARK)
    verb: dict[str, Any] = {"actor": "ann", "by": "ann", "reason": "a test", "incarnation": 1}
    for number in (2, 1):
        found = await world.store.find(f"s{number}")
        assert found is not None
        await world.apply(Operate(verb=Verb.CANCEL, task_no=found.task.task_no, **verb))
    await on_key(world, "k", ConvoyVerb.RELEASE)
    await world.claim()
    assert (await purge(world, "convoy", "k")).is_done


# --- a ledger
async def test_a_ledger_goes_with_its_name_its_lines_set_aside_and_its_tasks(world: World) -> None:
    await world.process()
    ledgers = Ledgers(world)
    await ledgers.submitted(entry(1), entry(2, bad=SECRET), ledger_id="kept")
    ledger = await ledgers.submitted(entry(3, "a"), entry(4, "b", convoy="k"), entry(5, bad=SECRET), ledger_id=SECRET)
    assert "task 'a' is pending" in await kept(world, "ledger", SECRET)
    for loaded in await world.claim():
        await world.advance(loaded.task, ending=Process('"done"'))
    rows = {row.link: row.hash async for row in world.store.history(0)}
    assert await purge(world, "ledger", SECRET, limit=1) == PurgedNamed(count=1)
    assert await purge(world, "ledger", SECRET, limit=1) == DONE
    assert await world.store.find_ledger(SECRET) is None
    assert await world.store.ledger_aside(ledger.ledger_no) == []
    assert SECRET not in await said(world)
    told = {row.link: row async for row in world.store.history(0)}
    assert {link: told[link].hash for link in rows} == rows
    (event,) = [event for event in await world.events(0) if event["type"] == "ledger.purged"]
    ((link, digest),) = event["erased"]
    assert (bytes(told[link].events).decode(), told[link].actor, told[link].hash) == (ERASED, "", digest)
    assert (await world.store.ledger_aside((await ledgers.begun("kept")).ledger_no))[0][1] == SECRET
    assert (await ledgers.submitted(entry(1, "a"), ledger_id=SECRET)).accepted == 1


async def test_a_discarded_ledger_leaves_its_name_until_it_is_purged(world: World) -> None:
    ledgers = Ledgers(world)
    ledger = await ledgers.written(entry(1), ledger_id=SECRET)
    assert f"ledger '{SECRET}' is writing: submit it to its end" in await kept(world, "ledger", SECRET)
    await world.store.discard_ledger(ledger.ledger_no, 100, SECRET, f"{SECRET} called")
    assert SECRET in await said(world)
    assert await purge(world, "ledger", SECRET) == PurgedNamed(is_done=True)
    assert SECRET not in await said(world)
    assert (await purge(world, "ledger", SECRET)).kept == f"there is no ledger '{SECRET}'"


async def test_a_young_ledger_is_kept(world: World) -> None:
    ledgers = Ledgers(world)
    await ledgers.open(await ledgers.begun("may"))
    assert "was opened within purge.idempotency" in await kept(world, "ledger", "may", before=Instant(NOON - 1))


async def test_an_erased_row_of_which_no_later_row_tells_is_convicted(world: World) -> None:
    ledgers = Ledgers(world)
    await ledgers.open(await ledgers.begun("may"))
    assert (await purge(world, "ledger", "may")).is_done
    rows = [row async for row in world.store.history()]
    assert read_export(encode_export(rows, "store")) == rows
    at = next(at for at, row in enumerate(rows) if bytes(row.events).decode() == ERASED)
    telling = next(row for row in rows if b"ledger.purged" in bytes(row.events))
    for changed in (
        rows[: rows.index(telling)],
        [msgspec.structs.replace(row, hash="0" * 32) if row is rows[at] else row for row in rows],
        [msgspec.structs.replace(row, events=msgspec.Raw(ERASED.encode())) for row in rows],
    ):
        with pytest.raises(MutilatedExport):
            read_export(encode_export(changed, "store"))


async def test_a_row_of_a_task_that_claims_to_be_erased_is_convicted(world: World) -> None:
    await world.submit("a")
    rows = [msgspec.structs.replace(row, events=msgspec.Raw(ERASED.encode())) async for row in world.store.history()]
    with pytest.raises(MutilatedExport, match="does not have the hash it names"):
        read_export(encode_export(rows, "store"))
