"""``App.replay`` over many kinds of tasks: the code that recorded them agrees with each of them, and a changed one does not."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed_row

import arriero
from arriero import (
    Agent,
    App,
    Attempt,
    InvalidInput,
    Permanent,
    Signal,
    Supervision,
    TaskFailed,
    Undo,
    Workflow,
    workflow,
)
from arriero.audit.export import TrailerSum, encode_record, encode_trailer
from arriero.client.replaying import Replayer, ReplayReport, list_records
from arriero.core.replay_judgement import STATES
from arriero.testing import running
from arriero.testing.world import World

approved = Signal("approved", int)
desk = Agent("desk", breaker=None)
WHO: dict[str, Any] = {"by": "ana", "reason": "she says so"}
fails: set[str] = set()


@desk.step(supervision=Supervision(attempts=1))
async def book(attempt: Attempt, place: str) -> str:
    if place in fails:
        raise Permanent("full", code="full")
    return f"{place} is booked"


@book.compensation
async def cancel(undo: Undo[str], place: str) -> None: ...


@workflow
async def booking(place: str) -> str:
    return await book(place)


@workflow
async def trip(places: list[str]) -> None:
    """Children, one of them detached, one that sleeps."""
    await tell("started").options(detach=True)
    await asyncio.gather(*(booking(place) for place in places))
    await nap()


@workflow
async def tell(what: str) -> None:
    await book(what)


@workflow
async def nap() -> None:
    await arriero.sleep(3_600)


@workflow
async def tour(stops: int) -> None:
    for number in range(stops):
        await book(f"stop {number}")
    await arriero.sleep(3_600)


@workflow
async def in_turn(place: str) -> None:
    """The state of its key decides what it asks for."""
    before = arriero.convoy_state(list[str]) or []
    await book(f"{place} after {len(before)}")
    arriero.keep_convoy_state([*before, place])
    if before:
        await arriero.sleep(3_600)


@workflow(supervision=Supervision(then="hold"))
async def retried(place: str) -> None:
    """A failure leads into a branch, which a resubmission leaves."""
    await book("the office")
    await arriero.sleep(1)
    try:
        await book(place)
    except arriero.StepFailed:
        await book(f"instead of {place}")
        raise
    await arriero.sleep(3_600)


@workflow
async def waits(seconds: float) -> None:
    while True:
        await approved.wait(within=seconds)


WORKFLOWS = [booking, trip, tell, nap, tour, in_turn, retried, waits]
app = App("agency", agents=[desk], workflows=WORKFLOWS)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    fails.clear()
    async with running(app) as found:
        yield found


async def replay(world: World, *changed: Workflow[..., Any], state: str = "open", without: str = "") -> ReplayReport:
    """Replay with some workflows in place of those of the same name."""
    names = {one.name for one in changed} | {without}
    kept = [one for one in WORKFLOWS if one.name not in names]
    new = App("agency", agents=[desk], workflows=[*kept, *changed])
    return await Replayer(new.session, state, None).replay_store(world.app.session.store)


async def agrees(world: World, replayed: int, state: str = "open") -> None:
    """Today's code, which is the one that recorded them, agrees with all tasks."""
    report = await replay(world, state=state)
    assert (report.replayed, report.held) == (replayed, ())


def changed(name: str, *asks: str) -> Workflow[..., Any]:
    """A workflow of that name that books these places instead."""

    @workflow(name=name)
    async def code(place: str) -> None:
        for asked in asks:
            await book(asked)
        await arriero.sleep(3_600)

    return code


async def test_a_parent_and_its_children_detached_or_not(world: World) -> None:
    await world.app.submit(trip(["Lima", "Oslo"]), task_id="trip")
    await world.clock.advance(1)
    await agrees(world, 2)  # the parent, and the child that sleeps
    await agrees(world, 5, state="all")

    @workflow(name="trip")
    async def other_children(places: list[str]) -> None:
        await asyncio.gather(*(booking(place) for place in places))

    (held,) = (await replay(world, other_children)).held
    assert (held.id, held.step) == ("trip", "tell")
    (orphan,) = (await replay(world, without="nap")).held
    assert (orphan.workflow, orphan.code, orphan.where) == ("nap", "no_code", "")


async def test_a_task_with_5000_steps(world: World) -> None:
    await world.app.submit(tour(5_000), task_id="tour")
    async with asyncio.timeout(60):
        while (await world.app.task("tour").view()).state != "processing" or len(world.calls(book)) < 5_000:
            await world.clock.advance(1)
    await world.clock.advance(1)
    await agrees(world, 1)

    @workflow(name="tour")
    async def one_differs(stops: int) -> None:
        for number in range(stops):
            await book(f"stop {number}" if number != 4_999 else "the sea")
        await arriero.sleep(3_600)

    (held,) = (await replay(world, one_differs)).held
    assert held.step == "book[#5000]"
    assert held.at is not None
    assert "the sea" in held.at.source


async def test_the_state_of_a_convoy_is_that_of_the_record(world: World) -> None:
    for place in ("Lima", "Oslo", "Rome"):
        await world.app.submit(in_turn(place), task_id=place, convoy="ana")
    await world.clock.advance(1)
    await agrees(world, 2)  # the second sleeps, the third waits for its turn
    (held,) = (await replay(world, changed("in_turn", "Oslo after 0"))).held
    assert (held.id, held.step) == ("Oslo", "book")
    assert held.reason.count("Oslo after") == 2


async def test_a_resubmitted_task_may_leave_the_branch_of_its_failure(world: World) -> None:
    fails.add("Lima")
    task = await world.app.submit(retried("Lima"), task_id="retried")
    with pytest.raises(TaskFailed):
        await task.result()
    await agrees(world, 1, state="held")
    (held,) = (await replay(world, changed("retried", "the agency"), state="held")).held
    assert held.step == "book"
    fails.clear()
    await task.resubmit(**WHO)
    await world.clock.advance(1)
    await agrees(world, 1)


async def test_a_past_life_is_not_compared(world: World) -> None:
    fails.add("Oslo")
    task = await world.app.submit(trip(["Lima", "Oslo"]), task_id="trip")
    with pytest.raises(TaskFailed):
        await task.result()
    report = await replay(world, state="compensated")
    assert (report.replayed, report.skipped["compensated"]) == (0, sum(report.skipped.values()))
    fails.clear()
    await task.resubmit(**WHO)
    await world.clock.advance(1)
    await agrees(world, 2)


async def test_waits_and_signals_that_none_has_taken(world: World) -> None:
    task = await world.app.submit(waits(60.0), task_id="waits")
    await world.clock.advance(1)
    for number in range(3):
        await task.send(approved(number))
    await world.clock.advance(1)
    await agrees(world, 1)

    @workflow(name="waits")
    async def two_at_once(seconds: float) -> None:
        await asyncio.gather(approved.wait(within=seconds), approved.wait(within=seconds))

    (held,) = (await replay(world, two_at_once)).held
    assert held.step.startswith("signal:approved")


async def test_tasks_of_another_app_are_left_out_and_counted(world: World) -> None:
    await world.app.submit(nap(), task_id="nap")
    await world.clock.advance(1)
    other = App("bank", agents=[desk], workflows=WORKFLOWS)
    report = await Replayer(other.session, "open", None).replay_store(world.app.session.store)
    assert (report.replayed, report.held, report.skipped) == (0, (), {"of another App": 1})


async def test_a_workflow_may_be_chosen_and_one_that_nobody_has_finds_nothing(world: World) -> None:
    await world.app.submit(nap(), task_id="nap")
    await world.app.submit(waits(60.0), task_id="waits")
    await world.clock.advance(1)
    assert (await world.app.replay()).replayed == 2
    assert (await world.app.replay(workflow="nap")).replayed == 1
    assert (await world.app.replay(workflow="nobody")).replayed == 0


async def test_bad_input_is_refused(world: World, tmp_path: Path) -> None:
    export = tmp_path / "export.jsonl"
    export.write_bytes(b"")
    for arguments, says in (
        ({"state": "lost"}, "state 'lost' is not known"),
        ({"workflow": ""}, "workflow"),
        ({"export": tmp_path / "absent"}, "cannot be read: No such file"),
        ({"export": export}, "the trailer is missing"),
        ({"export": export, "store": "sqlite:///x.db"}, "not both"),
    ):
        with pytest.raises(InvalidInput, match=says):
            await world.app.replay(**arguments)


async def test_each_state_can_be_asked_for(world: World) -> None:
    await world.app.submit(nap(), task_id="nap")
    await world.clock.advance(1)
    counts = {state: (await world.app.replay(state=state)).replayed for state in STATES}
    assert {state for state, count in counts.items() if count} == {"open", "all", "processing"}
    pages = [page async for page in list_records(world.app.session.store, "all")]
    assert [loaded.task.task_id for page in pages for loaded in page] == ["nap"]


def test_the_sync_front_replays_without_opening_the_app(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        App("agency", workflows=[nap], store=f"sqlite:///{tmp_path}/absent.db").sync.replay(export=tmp_path / "absent")
    with pytest.raises(arriero.StoreError, match="there is no such file"):
        App("agency", workflows=[nap], store=f"sqlite:///{tmp_path}/absent.db").sync.replay()
    assert list(tmp_path.iterdir()) == []


async def test_a_row_that_cannot_be_read_is_counted_and_the_others_are_replayed(world: World) -> None:
    for name in ("a", "b"):
        await world.app.submit(nap(), task_id=name)
    await world.clock.advance(1)
    ((first, second),) = [page async for page in list_records(world.app.session.store, "open")]
    damaged = changed_row(first, task=changed_row(first.task, policy="{"))
    summed = TrailerSum()
    lines = [encode_record(damaged), encode_record(second)]
    for line in lines:
        summed.add_record(line)
    lines.append(encode_trailer(summed.trailer("store", "open")))
    report = await Replayer(app.session, "open", None).replay_lines(lines)
    assert (report.replayed, report.held) == (1, ())
    assert report.skipped == {"with a row that cannot be read": 1}


async def test_code_that_spins_is_reported_and_the_next_task_is_replayed(world: World) -> None:
    for name in ("a", "b"):
        await world.app.submit(waits(60.0 if name == "a" else 61.0), task_id=name)
    await world.clock.advance(1)

    @workflow(name="waits")
    async def spins(seconds: float) -> None:
        while seconds < 61:
            await asyncio.sleep(0)
        await approved.wait(within=seconds)

    report = await replay(world, spins)
    assert [(one.id, one.code) for one in report.held] == [("a", "replay")]
    assert report.replayed == 2
