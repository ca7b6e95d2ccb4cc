"""Ledgers: entries nobody sees until all are there, opened in one commit, then let go in their order."""

from typing import Any

import pytest
from store_world import KNOWN, NOON, OTHERWISE, World, submission

from arriero.core.ledger_batches import LedgerBatch, LedgerEntry, LedgerTasks, LedgerWritten, extend_digest
from arriero.model import LedgerRow, LedgerState, TaskRow, TaskState, Turn, Verb
from arriero.model.answers import Refusal, Submitted
from arriero.model.commands import AssignApp, Operate
from arriero.model.moves import Process
from arriero.store.contract import Purge
from arriero.store.task_filter import TaskFilter

ACTOR = "client"


def entry(line: int, task_id: str | None = None, *, bad: str = "", **changes: Any) -> LedgerEntry:
    """An entry; its digest tells only its line and its id."""
    if bad:
        return LedgerEntry(line=line, digest=f"d{line}", bad=bad)
    return LedgerEntry(line=line, digest=f"d{line}", submit=submission(task_id or f"t{line}", **changes))


class Ledgers:
    """Short forms of the calls."""

    def __init__(self, world: World) -> None:
        self.store = world.store

    async def begun(self, ledger_id: str = "may") -> LedgerRow:
        return await self.store.begin_ledger(ledger_id)

    async def write(self, ledger: LedgerRow, *entries: LedgerEntry, refuses: bool = False) -> LedgerWritten:
        batch = LedgerBatch(ledger_no=ledger.ledger_no, after=ledger.written, entries=entries, refuses=refuses)
        return await self.store.write_ledger(batch)

    async def written(self, *entries: LedgerEntry, ledger_id: str = "may") -> LedgerRow:
        answer = await self.write(await self.begun(ledger_id), *entries)
        assert answer.ledger is not None
        return answer.ledger

    async def open(self, ledger: LedgerRow) -> LedgerRow:
        answer = await self.store.open_ledger(ledger.ledger_no, ledger.written, ledger.digest, ACTOR)
        assert answer.opened
        assert answer.ledger is not None
        return answer.ledger

    async def let_go(self, ledger: LedgerRow, limit: int = 100) -> LedgerRow:
        answer = await self.store.let_go(ledger.ledger_no, limit, ACTOR)
        assert answer is not None
        return answer

    async def submitted(self, *entries: LedgerEntry, ledger_id: str = "may") -> LedgerRow:
        return await self.let_go(await self.open(await self.written(*entries, ledger_id=ledger_id)))

    async def task(self, task_id: str) -> TaskRow:
        found = await self.store.find(task_id)
        assert found is not None
        return found.task

    async def ids(self) -> list[str]:
        return [task.task_id for task in await self.store.list_tasks()]


@pytest.fixture
def ledgers(world: World) -> Ledgers:
    return Ledgers(world)


async def test_what_is_written_is_seen_by_nobody_and_begun_by_nobody(world: World, ledgers: Ledgers) -> None:
    ledger = await ledgers.written(entry(1), entry(2, convoy="a"), entry(3, convoy="b", sequence=1))
    assert (ledger.state, ledger.written, ledger.accepted) == (LedgerState.WRITING, 3, 3)
    await world.process()
    store = world.store
    assert await store.find("t1") is None
    assert await ledgers.ids() == []
    assert await store.list_tasks(TaskFilter(workflow="fulfil")) == []
    assert sum((await store.counts()).values()) == 0
    assert sum((await store.survey()).states.values()) == 0
    assert not (await store.due(["fulfil"], [])).tasks
    assert await world.claim() == []
    assert await store.list_convoys() == []
    purged = await store.purge(Purge(states=tuple(TaskState), ended_before=store.now()), actor="x", limit=10)
    assert purged.count == 0
    assert [row.task_no async for row in store.history() if row.task_no > 0] == []


async def test_one_commit_opens_it_and_then_all_of_it_is_there(world: World, ledgers: Ledgers) -> None:
    ledger = await ledgers.open(await ledgers.written(entry(1), entry(2, convoy="a"), entry(3)))
    assert (ledger.state, ledger.opened_at) == (LedgerState.OPENED, world.store.now())
    assert await ledgers.ids() == ["t1", "t2", "t3"]
    assert (await world.store.counts())[TaskState.PENDING] == 3
    found = await world.store.find("t2")
    assert found is not None
    assert found.arguments == '{"pieces":2}'
    assert (await ledgers.let_go(ledger)).state is LedgerState.DONE


async def test_an_opened_ledger_whose_tasks_are_not_let_go_answers_for_its_ids_but_takes_no_verbs(
    world: World, ledgers: Ledgers
) -> None:
    ledger = await ledgers.open(await ledgers.written(entry(1, convoy="a")))
    (answer,) = await world.store.submit([submission("t1", convoy="a")])
    assert answer == Submitted(1, False)
    task = await world.task(1)
    assert (task.not_before, task.turn, task.link) == (None, None, 0)
    verb = Operate(actor="cli", verb=Verb.CANCEL, task_no=1, incarnation=1, by="ada", reason="a test")
    (refused,) = await world.store.apply([verb])
    assert isinstance(refused, Refusal)
    assert "letting its tasks go" in refused.detail
    await ledgers.let_go(ledger)


async def test_they_are_let_go_in_the_order_of_their_lines_a_batch_at_a_time(world: World, ledgers: Ledgers) -> None:
    await world.process()
    await world.submit("before", convoy="a")
    entries = [entry(line, convoy="a" if line % 2 else None) for line in range(1, 6)]
    ledger = await ledgers.open(await ledgers.written(*entries))
    ledger = await ledgers.let_go(ledger, 2)
    assert (ledger.state, ledger.let_go) == (LedgerState.OPENED, 2)
    await world.submit("between", convoy="a")
    ledger = await ledgers.let_go(ledger, 3)
    assert (ledger.state, ledger.let_go) == (LedgerState.DONE, 5)
    await world.submit("after", convoy="a")
    loaded = await world.store.find_convoy("a")
    assert loaded is not None
    assert [task.task_id for task in loaded.members] == ["before", "t1", "between", "t3", "t5", "after"]
    assert [task.place for task in loaded.members] == [1, 2, 3, 4, 5, 6]
    assert await world.claimed_ids() == ["before", "t2", "t4"]


async def test_a_task_let_go_is_as_if_it_was_submitted_then(world: World, ledgers: Ledgers) -> None:
    ledger = await ledgers.open(await ledgers.written(entry(1)))
    world.clock.move(60.0)
    await ledgers.let_go(ledger)
    task = await world.task(1)
    assert task.submitted_at == NOON + 60_000_000
    assert (task.not_before, task.ledger_no, task.link) == (task.submitted_at, None, 1)
    (event,) = await world.events(1)
    assert (event["type"], event["ledger"], event["not_before"]) == ("task.submitted", "may", task.not_before)


async def test_the_opening_stands_in_the_history_of_the_store(world: World, ledgers: Ledgers) -> None:
    await ledgers.submitted(entry(1), entry(2, bad="no number"))
    (event,) = [e for e in await world.events(0) if e["type"] == "ledger.opened"]
    assert (event["ledger"], event["written"], event["accepted"], event["aside"]) == ("may", 2, 1, 1)


async def test_a_batch_counts_once_however_often_it_is_sent(world: World, ledgers: Ledgers) -> None:
    begun = await ledgers.begun()
    first = await ledgers.write(begun, entry(1), entry(2))
    again = await ledgers.write(begun, entry(1), entry(2))
    assert again.ledger == first.ledger
    assert first.ledger is not None
    ledger = await ledgers.let_go(await ledgers.open(first.ledger))
    assert (ledger.written, ledger.accepted, ledger.duplicates) == (2, 2, 0)
    late = await ledgers.write(begun, entry(1))
    assert late.ledger == ledger
    assert await world.store.let_go(ledger.ledger_no, 10, ACTOR) == ledger
    assert await ledgers.ids() == ["t1", "t2"]


async def test_it_is_opened_only_as_it_is_written_and_only_once(world: World, ledgers: Ledgers) -> None:
    ledger = await ledgers.written(entry(1), entry(2))
    for written, digest in ((1, "d1"), (2, "other")):
        answer = await world.store.open_ledger(ledger.ledger_no, written, digest, ACTOR)
        assert (answer.opened, answer.ledger) == (False, ledger)
    opened = await ledgers.open(ledger)
    again = await world.store.open_ledger(ledger.ledger_no, 2, "d2", ACTOR)
    assert (again.opened, again.ledger) == (False, opened)
    await ledgers.let_go(opened)


async def test_an_empty_ledger_is_done_as_soon_as_it_is_opened(world: World, ledgers: Ledgers) -> None:
    assert (await ledgers.open(await ledgers.begun())).state is LedgerState.DONE
    assert [ledger.ledger_id for ledger in await world.store.list_ledgers()] == ["may"]


async def test_a_task_that_is_there_already_is_a_duplicate_and_another_body_is_bad(
    world: World, ledgers: Ledgers
) -> None:
    await world.submit("old", convoy="a")
    ledger = await ledgers.submitted(
        entry(1, "old", convoy="a"),
        entry(2, "old", body_hash="x", convoy="a"),
        entry(3, "old"),
        entry(4, "new"),
        entry(5, "new"),
        entry(6, "new", workflow="another"),
    )
    assert (ledger.accepted, ledger.duplicates, ledger.aside) == (1, 2, 3)
    reasons = await world.store.ledger_aside(ledger.ledger_no)
    assert [line for line, _ in reasons] == [2, 3, 6]
    assert "another body" in reasons[0][1]
    assert reasons[1][1] == "task 'old' exists with another convoy"
    assert "another workflow" in reasons[2][1]
    assert await world.store.ledger_aside(ledger.ledger_no, after=2, limit=1) == reasons[1:2]


@pytest.mark.parametrize(
    ("task_id", "changes", "what"), [one for one in OTHERWISE if "end_of_sequence" not in one[1]], ids=str
)
async def test_an_entry_under_a_known_id_with_another_part_is_refused_as_a_submission_is(
    world: World, ledgers: Ledgers, task_id: str, changes: dict[str, Any], what: str
) -> None:
    for known, part in KNOWN.items():
        await world.submit(known, **part)
    other = KNOWN[task_id] | {"end_of_sequence": False} | changes
    answer = await ledgers.write(await ledgers.begun(), entry(1, task_id, **other), refuses=True)
    assert answer.refused == (1, f"task {task_id!r} exists with another {what}")
    assert await world.store.find_convoy("never used") is None


async def test_one_bad_entry_refuses_all_of_it_and_names_its_line(world: World, ledgers: Ledgers) -> None:
    ledger = await ledgers.written(entry(1), entry(2))
    answer = await ledgers.write(ledger, entry(3), entry(4, bad="no number"), entry(5), refuses=True)
    assert answer.refused == (4, "no number")
    assert answer.ledger is not None
    assert answer.ledger.state is LedgerState.DISCARDING
    assert await ledgers.ids() == []
    refused = await world.store.open_ledger(ledger.ledger_no, 2, "d2", ACTOR)
    assert not refused.opened
    assert await world.store.discard_ledger(ledger.ledger_no, 10, ACTOR, "refused") is None
    assert await world.store.find_ledger("may") is None
    assert (await ledgers.submitted(entry(1), entry(2))).accepted == 2


async def test_too_many_bad_entries_refuse_it_also_where_they_are_set_aside(
    ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arriero.store.engine.ledgers.ASIDE_MAX", 2)
    ledger = await ledgers.written(*(entry(line, bad="no") for line in (1, 2)))
    assert ledger.aside == 2
    answer = await ledgers.write(ledger, entry(3), entry(4, bad="no number"))
    assert answer.refused is not None
    assert answer.refused == (4, "no number; with it more than 2 entries are bad")


async def test_ids_and_sequences_that_an_unopened_ledger_keeps_answer_for_nobody(
    world: World, ledgers: Ledgers
) -> None:
    ledger = await ledgers.written(entry(1), entry(2, convoy="a", sequence=1))
    before = await world.rows()
    for command in (submission("t1"), submission("other", convoy="a", sequence=1)):
        (answer,) = await world.store.submit([command])
        assert isinstance(answer, Refusal)
        assert "belongs to ledger 'may', which is not complete" in answer.detail
    assert await world.rows() == before
    other = await ledgers.written(entry(1, "t1"), entry(2, "u", convoy="a", sequence=1), ledger_id="june")
    assert (other.accepted, other.duplicates, other.aside) == (0, 0, 2)
    await ledgers.let_go(await ledgers.open(ledger))
    answers = await world.store.submit([submission("t1"), submission("other", convoy="a", sequence=1)])
    assert answers == [Submitted(1, False), Submitted(2, False, "t2")]


async def test_a_number_that_a_ledger_keeps_is_missing_until_it_is_let_go(world: World, ledgers: Ledgers) -> None:
    await world.process()
    ledger = await ledgers.written(entry(1, convoy="a", sequence=1), entry(2, convoy="a", sequence=3))
    await world.submit("two", convoy="a", sequence=2)
    assert await world.claim() == []
    found = await world.store.find_convoy("a")
    assert found is not None
    assert (found.convoy.state, found.missing) == ("gap", ((1, 1),))
    await ledgers.let_go(await ledgers.open(ledger))
    assert await world.claimed_ids() == ["t1"]


async def test_the_same_number_twice_in_a_ledger_is_a_duplicate_or_bad(ledgers: Ledgers) -> None:
    numbered: dict[str, Any] = {"convoy": "a", "sequence": 1}
    ledger = await ledgers.submitted(entry(1, **numbered), entry(2, **numbered), entry(3, **numbered, body_hash="x"))
    assert (ledger.accepted, ledger.duplicates, ledger.aside) == (1, 1, 1)


async def test_the_same_task_twice_in_a_batch_is_one_task_also_with_others_between(ledgers: Ledgers) -> None:
    ledger = await ledgers.written(entry(1, "a"), entry(2, "b"), entry(3, "a"))
    assert (ledger.accepted, ledger.duplicates) == (2, 1)


async def test_entries_of_one_key_are_ordered_in_one_way(world: World, ledgers: Ledgers) -> None:
    ledger = await ledgers.submitted(
        entry(1, convoy="a"), entry(2, convoy="a", sequence=1), entry(3, convoy="b", sequence=1), entry(4, convoy="b")
    )
    assert [line for line, _ in await world.store.ledger_aside(ledger.ledger_no)] == [2, 4]


async def test_a_key_of_a_discarded_ledger_may_be_ordered_anew(world: World, ledgers: Ledgers) -> None:
    ledger = await ledgers.written(entry(1, convoy="a", sequence=5), entry(2, convoy="b"))
    assert await world.store.discard_ledger(ledger.ledger_no, 10, ACTOR, "a mistake") is None
    assert await world.store.find_convoy("a") is None
    await ledgers.submitted(entry(1, convoy="a"), entry(2, convoy="b", sequence=1))
    await world.submit("t9", convoy="a")


async def test_an_entry_whose_convoy_has_ended_meanwhile_is_held_for_a_person(world: World, ledgers: Ledgers) -> None:
    await world.process()
    await world.submit("first", convoy="a")
    ledger = await ledgers.open(await ledgers.written(entry(1, convoy="a"), entry(2)))
    await world.submit("last", convoy="a", end_of_sequence=True)
    ledger = await ledgers.let_go(ledger)
    assert ledger.state is LedgerState.DONE
    task = await ledgers.task("t1")
    assert (task.state, task.turn, task.place) == (TaskState.HELD, Turn.SET_ASIDE, 3)
    (alert,) = await world.store.alerts()
    assert (alert.task_id, alert.cause) == ("t1", "late")
    assert "came with ledger 'may', and convoy 'a' has ended" in alert.reason
    assert await world.claimed_ids() == ["first", "t2"]


async def test_an_entry_whose_convoy_is_ordered_otherwise_meanwhile_is_held_for_a_person(
    world: World, ledgers: Ledgers
) -> None:
    await world.process()
    ledger = await ledgers.written(entry(1, convoy="a", sequence=1), entry(2, convoy="b"))
    await world.submit("by place", convoy="a")
    await world.submit("by sequence", convoy="b", sequence=1)
    await ledgers.let_go(await ledgers.open(ledger))
    for task_id in ("t1", "t2"):
        task = await ledgers.task(task_id)
        assert (task.state, task.turn) == (TaskState.HELD, Turn.SET_ASIDE)
    assert sorted(await world.claimed_ids()) == ["by place", "by sequence"]


async def test_what_is_discarded_is_gone_and_its_ids_are_free(world: World, ledgers: Ledgers) -> None:
    ledger = await ledgers.written(*(entry(line) for line in range(1, 6)), entry(6, bad="no"))
    left = await world.store.discard_ledger(ledger.ledger_no, 3, "ada", "the wrong file")
    assert left is not None
    assert left.state is LedgerState.DISCARDING
    assert (await ledgers.write(ledger, entry(7))).ledger == left
    assert await world.store.discard_ledger(ledger.ledger_no, 3, "ada", "the wrong file") is None
    assert await world.store.list_ledgers() == []
    (event,) = [e for e in await world.events(0) if e["type"] == "ledger.discarded"]
    assert (event["ledger"], event["written"], event["reason"]) == ("may", 6, "the wrong file")
    assert await world.submit("t1") > 5  # no number is given twice
    again = await ledgers.submitted(entry(1), entry(2))
    assert (again.accepted, again.duplicates) == (1, 1)
    assert await world.store.ledger_aside(again.ledger_no) == []


async def test_an_opened_ledger_is_not_discarded(world: World, ledgers: Ledgers) -> None:
    ledger = await ledgers.open(await ledgers.written(entry(1)))
    assert await world.store.discard_ledger(ledger.ledger_no, 10, ACTOR, "x") == ledger
    done = await ledgers.let_go(ledger)
    assert await world.store.discard_ledger(ledger.ledger_no, 10, ACTOR, "x") == done
    assert await ledgers.ids() == ["t1"]


async def test_ledgers_are_listed_by_state_in_the_order_of_their_beginning(world: World, ledgers: Ledgers) -> None:
    await ledgers.submitted(entry(1), ledger_id="done")
    await ledgers.written(entry(1, "x"), ledger_id="writing")
    opened = await ledgers.open(await ledgers.written(entry(1, "y"), ledger_id="opened"))
    store = world.store
    assert [one.ledger_id for one in await store.list_ledgers()] == ["done", "writing", "opened"]
    assert [one.ledger_id for one in await store.list_ledgers(limit=1)] == ["done"]
    assert [one.ledger_id for one in await store.list_ledgers(after=1)] == ["writing", "opened"]
    assert [one.ledger_id for one in await store.list_ledgers((LedgerState.OPENED,))] == ["opened"]
    await ledgers.let_go(opened)


def test_a_digest_tells_every_field_and_all_that_came_before() -> None:
    said: dict[str, Any] = {"workflow": "w", "arguments": "{}", "convoy": "a", "sequence": 1, "task_id": "t", "bad": ""}
    digests = {extend_digest("", **said), extend_digest("x", **said)}
    for name in said:
        digests.add(extend_digest("", **said | {name: 2 if name == "sequence" else "other"}))
    assert len(digests) == 8


# --- the tasks that it brought
async def test_a_task_keeps_the_number_of_its_ledger_and_lists_select_by_its_id(world: World, ledgers: Ledgers) -> None:
    await world.process()
    await world.submit("alone")
    may = await ledgers.submitted(entry(1, convoy="a"), entry(2), entry(3, "alone"), entry(4, bad="no number"))
    june = await ledgers.submitted(entry(1, "j1"), ledger_id="june")
    assert (may.linked, june.linked) == (2, 1)
    store = world.store

    async def ids(**which: Any) -> list[str]:
        newest_first = bool(which.pop("newest_first", False))
        return [task.task_id for task in await store.list_tasks(TaskFilter(**which), newest_first=newest_first)]

    assert await ids(ledger="may") == ["t1", "t2"]
    assert await ids(ledger="may", newest_first=True) == ["t2", "t1"]
    assert await ids(ledger="june", workflow="fulfil") == ["j1"]
    assert await ids(ledger="may", state=TaskState.HELD) == []
    assert await ids(ledger="july") == []
    assert await store.list_tasks(TaskFilter(ledger="may"), after=(await world.task(2)).task_no, limit=5) == [
        await ledgers.task("t2")
    ]
    assert await store.count_listed(TaskFilter(ledger="may"), limit=10) == 2
    assert (await ledgers.task("alone")).from_ledger is None
    assert [(await ledgers.task(one)).from_ledger for one in ("t1", "j1")] == [may.ledger_no, june.ledger_no]


async def test_nobody_selects_tasks_by_a_ledger_that_is_not_opened(world: World, ledgers: Ledgers) -> None:
    ledger = await ledgers.written(entry(1))
    assert await world.store.list_tasks(TaskFilter(ledger="may")) == []
    opened = await ledgers.open(ledger)
    assert [task.task_id for task in await world.store.list_tasks(TaskFilter(ledger="may"))] == ["t1"]
    await ledgers.let_go(opened)


async def test_a_ledger_names_its_first_open_task_until_all_have_ended(world: World, ledgers: Ledgers) -> None:
    process = await world.process()
    may = await ledgers.submitted(entry(1), entry(2))
    june = await ledgers.submitted(entry(1, "j1"), ledger_id="june")
    empty = await ledgers.open(await ledgers.begun("empty"))
    numbers = [may.ledger_no, june.ledger_no, empty.ledger_no]
    first, second, of_june = [(await ledgers.task(one)).task_no for one in ("t1", "t2", "j1")]
    store = world.store
    assert await store.find_open_of_ledgers(numbers) == {may.ledger_no: first, june.ledger_no: of_june}
    assert await store.count_of_ledger(may.ledger_no) == LedgerTasks({"pending": 2}, None)
    for loaded in await world.claim(process):
        if loaded.task.task_no != second:
            await world.advance(loaded.task, ending=Process('"done"'))
    assert await store.find_open_of_ledgers(numbers) == {may.ledger_no: second}
    assert await store.count_of_ledger(may.ledger_no) == LedgerTasks({"processed": 1, "processing": 1}, NOON)
    assert await store.find_open_of_ledgers([empty.ledger_no]) == {}
    assert await store.count_of_ledger(empty.ledger_no) == LedgerTasks({}, None)


async def test_a_task_of_a_ledger_that_is_set_aside_keeps_its_number(world: World, ledgers: Ledgers) -> None:
    ledger = await ledgers.open(await ledgers.written(entry(1, convoy="a")))
    await world.submit("last", convoy="a", end_of_sequence=True)
    await ledgers.let_go(ledger)
    task = await ledgers.task("t1")
    assert (task.state, task.ledger_no, task.from_ledger) == (TaskState.HELD, None, ledger.ledger_no)
    assert await world.store.find_open_of_ledgers([ledger.ledger_no]) == {}


async def test_a_task_that_is_given_to_another_app_stays_one_of_its_ledger(world: World, ledgers: Ledgers) -> None:
    ledger = await ledgers.submitted(entry(1, app="shop"))
    task_no = (await ledgers.task("t1")).task_no
    await world.apply(
        AssignApp(actor="cli", task_no=task_no, app="store", from_app="shop", by="ana", reason="its name")
    )
    task = await ledgers.task("t1")
    assert (task.app, task.from_ledger) == ("store", ledger.ledger_no)
    assert [found.task_id for found in await world.store.list_tasks(TaskFilter(ledger="may", app="store"))] == ["t1"]
