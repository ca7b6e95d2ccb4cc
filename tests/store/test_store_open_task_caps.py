"""The cap on the open tasks of one submitter: the same answers in every store."""

from typing import Any

from store_world import FAILED, World, submission
from test_store_ledgers import Ledgers, entry

from arriero.model import TaskState, Verb
from arriero.model.answers import TOO_MANY_OPEN_TASKS, Refusal, Submitted
from arriero.model.commands import Operate, Submit
from arriero.model.moves import Hold, Process
from arriero.store.contract import Purge


def capped(task_id: str, cap: int = 2, *, of: str = "partner", **changes: Any) -> Submit:
    return submission(task_id, submitter=of, open_tasks_max=cap, **changes)


async def ask(world: World, *commands: Submit) -> list[str]:
    """Submit, and say of each whether it is new, known or refused."""
    return [_name(answer) for answer in await world.store.submit(commands)]


def _name(answer: Any) -> str:
    if isinstance(answer, Submitted):
        return "new" if answer.created else "known"
    assert isinstance(answer, Refusal), answer
    return answer.verdict


async def test_a_submission_beyond_the_cap_is_refused_and_nothing_of_it_is_kept(world: World) -> None:
    assert await ask(world, capped("a"), capped("b")) == ["new", "new"]
    before = await world.rows()
    (refused,) = await world.store.submit([capped("c", convoy="never used")])
    assert refused == Refusal(
        TOO_MANY_OPEN_TASKS,
        "2 tasks of token partner are open, and its open_tasks_max is 2: wait until some have ended, or ask for a token with a"
        " higher one (`arriero token create --open-tasks-max`)",
    )
    assert await world.rows() == before
    assert await world.store.find_convoy("never used") is None


async def test_submissions_of_one_batch_count_together_and_others_are_not_held_up(world: World) -> None:
    batch = [
        capped("a"),
        submission("free"),
        capped("b", convoy="k"),
        capped("c", convoy="m"),
        capped("x", 1, of="other"),
    ]
    assert await ask(world, *batch, capped("d", convoy="k"), capped("y", 1, of="other")) == [
        "new", "new", "new", TOO_MANY_OPEN_TASKS, "new", TOO_MANY_OPEN_TASKS, TOO_MANY_OPEN_TASKS,
    ]  # fmt: skip
    assert await world.store.find_convoy("m") is None
    tasks = {task.task_id: task.submitter for task in await world.store.list_tasks(limit=10)}
    assert tasks == {"a": "partner", "free": None, "b": "partner", "x": "other"}


async def test_a_known_task_answers_also_when_the_cap_is_reached(world: World) -> None:
    assert await ask(world, capped("a"), capped("b", convoy="n", sequence=1)) == ["new", "new"]
    known = [capped("a"), capped("a"), capped("another-id", convoy="n", sequence=1), capped("c"), capped("c")]
    assert await ask(world, *known) == ["known", "known", "known", TOO_MANY_OPEN_TASKS, TOO_MANY_OPEN_TASKS]
    assert await ask(world, capped("a", body_hash="another")) == ["conflict"]
    assert await ask(world, capped("d", 4), capped("d", 4), capped("e", 4)) == ["new", "known", "new"]


async def test_a_task_that_ends_frees_a_place_and_one_that_is_resubmitted_counts_again(world: World) -> None:
    assert await ask(world, capped("a"), capped("b")) == ["new", "new"]
    (first, second) = await world.claim()
    await world.advance(first.task, ending=Process('"done"'))
    held = (await world.advance(second.task, ending=Hold(FAILED))).task
    assert await ask(world, capped("c"), capped("d"), capped("e")) == ["new", "new", TOO_MANY_OPEN_TASKS]
    assert await ask(world, capped("f", 3)) == ["new"]
    again = Operate(
        actor="operator", task_no=held.task_no, verb=Verb.RESUBMIT, incarnation=1, by="ana", reason="mended"
    )
    await world.written(again)  # an operator may open a task beyond the cap; it counts
    assert await ask(world, capped("g", 4), capped("g", 5)) == [TOO_MANY_OPEN_TASKS, "new"]


async def test_a_purge_of_ended_tasks_changes_nothing(world: World) -> None:
    assert await ask(world, capped("a"), capped("b")) == ["new", "new"]
    (first, _) = await world.claim()
    await world.advance(first.task, ending=Process('"done"'))
    await world.store.purge(Purge(states=(TaskState.PROCESSED,), ended_before=world.clock()), actor="ana", limit=10)
    assert await ask(world, capped("c"), capped("d")) == ["new", TOO_MANY_OPEN_TASKS]


async def test_a_ledger_beyond_the_cap_is_refused_whole(world: World) -> None:
    ledgers = Ledgers(world)
    limit: dict[str, Any] = {"submitter": "partner", "open_tasks_max": 2}
    assert await ask(world, capped("a")) == ["new"]
    ledger = await ledgers.begun()
    answer = await ledgers.write(ledger, *(entry(line, **limit) for line in (1, 2, 3)), refuses=True)
    assert answer.refused is not None
    assert answer.refused[0] == 2
    assert "its open_tasks_max is 2" in answer.refused[1]
    assert answer.verdict == TOO_MANY_OPEN_TASKS
    await world.store.discard_ledger(ledger.ledger_no, 100, "client", "refused")
    assert [task.task_id for task in await world.store.list_tasks(limit=10)] == ["a"]
    assert await ask(world, capped("b"), capped("c")) == ["new", TOO_MANY_OPEN_TASKS]


async def test_entries_of_a_ledger_count_from_when_they_are_written_and_keep_their_submitter(world: World) -> None:
    ledgers = Ledgers(world)
    limit: dict[str, Any] = {"submitter": "partner", "open_tasks_max": 2}
    assert await ask(world, capped("a")) == ["new"]
    ledger = await ledgers.written(entry(1, "a", **limit), entry(2, "b", **limit), entry(3, "c", **limit))
    assert (ledger.accepted, ledger.duplicates, ledger.aside) == (1, 1, 1)
    assert await ask(world, capped("d")) == [TOO_MANY_OPEN_TASKS]
    await ledgers.let_go(await ledgers.open(ledger))
    assert (await ledgers.task("b")).submitter == "partner"
    assert await ask(world, capped("d")) == [TOO_MANY_OPEN_TASKS]
