"""Breakers in the store: nothing is taken while one is open, canaries go one by one, and an outage spends no attempt."""

from typing import Any

import msgspec
import pytest
from store_world import DECLINED, FAILED, UNSURE, TestClock, World, gave_up, kinds, retry_at, step

from arriero import Breaker, Supervision
from arriero.model import NUMBER_MAX, StepRow, StepState, TaskRow, Verb, later
from arriero.model.agents import AgentVerb, BreakerRow, BreakerState
from arriero.model.answers import BreakerApplied, Refusal, Submitted, Taken
from arriero.model.commands import Operate, OperateAgent, Start, Take, TripBreaker
from arriero.model.failures import StepFailure, TaskFailure
from arriero.model.moves import GaveUp, Hold, PlanUndo, RetryAsked
from arriero.model.policies import Retry, StepPolicy

POLICY = msgspec.json.encode(Breaker(cool_off=10, ramp=30)).decode()
CHARGES = msgspec.json.encode(StepPolicy(10.0, None, Retry(), Supervision(charge_outages=True))).decode()


def trip_command(world: World, **changes: Any) -> TripBreaker:
    fields: dict[str, Any] = {
        "actor": "p",
        "app": "",
        "agent": "payments",
        "target": "",
        "policy": POLICY,
        "reason": "20 of 20 calls failed",
        "failing_since": later(world.clock(), -5),
    }
    return TripBreaker(**(fields | changes))


async def tripped(world: World, **changes: Any) -> BreakerRow:
    answer = await world.apply(trip_command(world, **changes))
    assert isinstance(answer, BreakerApplied), answer
    return answer.breaker


async def operated(world: World, verb: AgentVerb, **changes: Any) -> BreakerRow:
    answer = await world.apply(_operate(verb, **changes))
    assert isinstance(answer, BreakerApplied), answer
    return answer.breaker


def _operate(verb: AgentVerb, **changes: Any) -> OperateAgent:
    fields: dict[str, Any] = {
        "actor": "cli",
        "app": "",
        "agent": "payments",
        "target": "",
        "by": "ana",
        "reason": "asked",
    }
    return OperateAgent(verb=verb, **(fields | changes))


async def waiting(world: World, *names: str, task_id: str = "order-1", **changes: Any) -> TaskRow:
    """A held task whose steps wait in the store."""
    task = await world.held(task_id)
    task, _ = await world.opened(task, *(step("charge", key=name, **changes) for name in names))
    return task


async def canary(world: World) -> StepRow:
    """A breaker whose cool-off is over, and its canary."""
    await tripped(world)
    world.clock.move(10)
    (dispatch,) = await world.take()
    return dispatch.step


async def store_events(world: World) -> list[dict[str, Any]]:
    return [event for event in await world.events(0) if event["type"].startswith(("breaker.", "agent."))]


async def find_breaker(world: World) -> BreakerRow:
    (row,) = await world.store.list_breakers()
    return row


# --- opening
async def test_of_two_processes_that_ask_to_open_it_one_does(world: World) -> None:
    row = await tripped(world)
    assert (row.state, row.fence) == (BreakerState.OPEN, 1)
    assert await world.store.list_breakers() == [row]
    await world.refused(trip_command(world), "moved_on")
    assert kinds(await store_events(world)) == ["breaker.opened"]


async def test_calls_that_began_before_it_was_closed_do_not_open_it_again(world: World) -> None:
    await tripped(world)
    world.clock.move(2)
    await operated(world, AgentVerb.CLOSE)
    await world.refused(trip_command(world), "moved_on")
    world.clock.move(10)
    assert (await tripped(world)).state is BreakerState.OPEN


async def test_opening_and_closing_is_one_alert(world: World) -> None:
    await tripped(world)
    (alert,) = await world.store.alerts()
    assert (alert.cause, alert.step, alert.task_no, alert.reason) == ("breaker", "payments", 0, "20 of 20 calls failed")
    assert [told.no for told in await world.store.take_alerts(10, 30.0)] == [alert.no]
    await operated(world, AgentVerb.CLOSE)
    assert await world.store.alerts() == []
    (closed,) = await world.store.alerts(open_only=False)
    assert (closed.no, closed.closed_at, closed.told) == (alert.no, world.clock(), ())


async def test_alerts_come_in_the_order_of_their_opening_or_the_newest_first(world: World) -> None:
    for _ in range(3):
        await tripped(world)
        await operated(world, AgentVerb.CLOSE)
        world.clock.move(10)
    await tripped(world)
    every = await world.store.alerts(open_only=False)
    numbers = [alert.no for alert in every]
    assert numbers == sorted(numbers)
    assert len(numbers) == 4
    assert await world.store.alerts(open_only=False, before=NUMBER_MAX) == every[::-1]
    assert await world.store.alerts(open_only=False, before=numbers[3], limit=2) == every[2:0:-1]
    assert await world.store.alerts(open_only=False, after=numbers[0], before=numbers[2]) == [every[1]]
    assert await world.store.alerts(before=NUMBER_MAX, questions=False) == [every[3]]
    assert await world.store.alerts(before=numbers[3]) == []


# --- while it is open
async def test_while_it_is_open_nothing_is_taken_and_nothing_is_spent(world: World) -> None:
    await waiting(world, "a", "b")
    before = await world.rows()
    await tripped(world)
    answer = await world.apply(
        Take(actor="p", process_no=1, room=(("payments", 9),), names=("charge",), probation=None)
    )
    assert isinstance(answer, Taken)
    assert answer.dispatches == ()
    assert [row.state for row in answer.breakers] == [BreakerState.OPEN]
    assert await world.rows() == before


async def test_a_step_that_its_own_process_would_take_at_once_waits(world: World) -> None:
    task = await world.held()
    await tripped(world)
    answer = await world.advance(task, opened=[step(take=True)])
    assert answer.dispatches == ()
    (charge,) = answer.steps
    assert (charge.state, charge.fence, charge.taken, charge.attempt) == (StepState.PENDING, 0, False, 1)


async def test_a_task_begins_with_its_submission_and_its_first_step_waits(world: World) -> None:
    process_no = await world.process()
    await tripped(world)
    (answer,) = await world.store.submit(
        [msgspec.structs.replace(_submission(), start=Start(process_no, (step(take=True),)))]
    )
    assert isinstance(answer, Submitted)
    assert answer.begun is not None
    assert answer.begun.dispatches == ()
    assert [one.state for one in answer.begun.task.steps] == [StepState.PENDING]


def _submission() -> Any:
    from store_world import submission

    return submission("order-9")


async def test_compensations_wait_too(world: World) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    answer = await world.advance(task, delivered=[world.reported(charge)])
    await tripped(world)
    from store_world import undo_of

    failure = TaskFailure("refused", "not today")
    planned = await world.advance(answer.task, ending=PlanUndo(failure, (undo_of(charge, take=True),)))
    assert planned.dispatches == ()
    assert [one.state for one in planned.steps] == [StepState.PENDING]


async def test_other_agents_targets_and_apps_go_on(world: World) -> None:
    task = await world.held()
    await world.opened(
        task,
        step("charge", key="north", target="north"),
        step("charge", key="south", target="south"),
        step("charge", key="stock", agent="stock"),
    )
    await tripped(world, target="north")
    await tripped(world, app="another shop")
    taken = await world.take(room=(("payments", 9), ("stock", 9)))
    assert sorted(dispatch.step.key for dispatch in taken) == ["south", "stock"]


async def test_a_long_row_of_barred_requests_does_not_hide_those_behind_it(world: World) -> None:
    task = await world.held()
    barred = [step("charge", key=f"n{number}", target="north") for number in range(30)]
    await world.opened(task, *barred, step("charge", key="south", target="south"))
    await tripped(world, target="north")
    (dispatch,) = await world.take(room=(("payments", 1),))
    assert dispatch.step.key == "south"


# --- canaries
async def test_after_the_cool_off_one_canary_goes_whoever_asks(world: World) -> None:
    await waiting(world, "a", "b", "c")
    await tripped(world)
    world.clock.move(9.9)
    assert await world.take(1) == []
    world.clock.move(0.1)
    (dispatch,) = await world.take(1)
    assert dispatch.step.canary == (await find_breaker(world)).fence
    assert await world.take(2) == []
    assert await world.take(1) == []
    assert kinds(await store_events(world)) == ["breaker.opened", "breaker.probed"]


async def test_a_process_that_begins_no_step_of_the_name_gets_no_canary_and_keeps_none_from_others(
    world: World,
) -> None:
    await waiting(world, "a")
    await tripped(world)
    world.clock.move(10)
    before = await find_breaker(world)
    assert await world.take(names=("refund",)) == []
    assert await find_breaker(world) == before
    (dispatch,) = await world.take()
    assert dispatch.step.canary == (await find_breaker(world)).fence


async def test_a_step_taken_at_once_may_be_the_canary(world: World) -> None:
    task = await world.held()
    await tripped(world)
    world.clock.move(10)
    answer = await world.advance(task, opened=[step(take=True), step("reserve", take=True)])
    assert [dispatch.step.name for dispatch in answer.dispatches] == ["charge"]
    assert [one.state for one in answer.steps] == [StepState.RUNNING, StepState.PENDING]


async def test_a_canary_that_succeeds_lets_a_wave_of_two_go(world: World) -> None:
    await waiting(world, *"abcdef")
    charge = await canary(world)
    await world.report(charge)
    assert (await find_breaker(world)).ramp_from == world.clock()
    assert len(await world.take()) == 2


async def test_a_refusal_is_an_answer_too(world: World) -> None:
    await waiting(world, "a", "b", "c")
    await world.report(await canary(world), GaveUp(DECLINED, False))
    assert len(await world.take()) == 2


async def test_a_canary_that_fails_opens_it_again_and_is_not_charged(world: World) -> None:
    await waiting(world, "a", "b")
    charge = await canary(world)
    await world.report(charge, retry_at(world.clock.at, in_doubt=True))
    row = await find_breaker(world)
    assert (row.state, row.probe_at) == (BreakerState.OPEN, later(world.clock(), 10))
    after = await world.step(charge.step_no)
    assert (after.failure_count, after.attempt, after.in_doubt, after.canary) == (0, 2, True, 0)
    assert await world.take() == []
    assert kinds(await store_events(world)) == [
        "breaker.opened",
        "breaker.probed",
        "breaker.answered",
        "breaker.opened",
    ]
    assert len(await world.store.alerts()) == 1


async def test_a_canary_that_says_nothing_counts_as_failed(world: World) -> None:
    await waiting(world, "a")
    charge = await canary(world)
    term = await world.lead(await world.process("leader"))
    world.clock.to(charge.complete_by)
    await world.written(world.recover_command(charge, term))
    assert (await find_breaker(world)).state is BreakerState.OPEN
    assert (await world.step(charge.step_no)).failure_count == 0


async def test_a_canary_whose_process_is_lost_lets_another_go(world: World) -> None:
    task = await waiting(world, "a", "b")
    await world.process("p1")
    await tripped(world)
    doomed = await world.process("doomed")
    world.clock.move(10)
    (dispatch,) = await world.take(doomed)
    await world.lose(doomed)
    loaded = await world.task(task.task_no)
    free = world.free_command(loaded, [dispatch.step], fence=None, lost_by=doomed, charged=False)
    await world.written(free)
    assert (await find_breaker(world)).state is BreakerState.HALF_OPEN
    (again,) = await world.take(1)
    assert again.step.canary == dispatch.step.canary


async def test_when_the_ramp_is_over_it_closes_and_everything_goes(world: World) -> None:
    await waiting(world, *(str(number) for number in range(40)))
    charge = await canary(world)
    await world.report(charge)
    for _ in range(6):
        for dispatch in await world.take():
            await world.report(dispatch.step)
        world.clock.move(6)
    await waiting(world, "late", task_id="order-2")
    taken = await world.take()
    row = await find_breaker(world)
    assert (row.state, row.closed_at) == (BreakerState.CLOSED, world.clock())
    assert [dispatch.step.canary for dispatch in taken] == [None]
    assert await world.store.alerts() == []
    assert kinds(await store_events(world))[-1] == "breaker.closed"


async def test_when_nothing_waits_any_more_upkeep_closes_it(world: World) -> None:
    await waiting(world, "a")
    await world.report(await canary(world))
    world.clock.move(29)
    assert await world.store.close_recovered_breakers("upkeep") == 0
    world.clock.move(1)
    assert await world.store.close_recovered_breakers("upkeep") == 1
    assert await world.store.close_recovered_breakers("upkeep") == 0
    assert (await find_breaker(world)).state is BreakerState.CLOSED
    assert await world.store.alerts() == []


# --- attempts in an outage
async def test_an_attempt_that_fails_while_it_is_open_is_not_charged(world: World) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    await tripped(world)
    await world.report(charge, retry_at(world.clock.at, in_doubt=True))
    after = await world.step(charge.step_no)
    assert (after.state, after.failure_count, after.attempt) == (StepState.PENDING, 0, 2)
    assert (await world.task(task.task_no)).failure_count == 0
    (_, recovered) = await world.last_events()
    assert (recovered["failure_count"], recovered["is_charged"]) == (0, False)


async def test_the_last_attempt_of_a_step_does_not_end_it_in_an_outage(world: World) -> None:
    _, (charge,) = await world.running(await world.held(), "charge")
    await tripped(world)
    await world.report(charge, GaveUp(UNSURE, True))
    after = await world.step(charge.step_no)
    assert (after.state, after.failure_count, after.in_doubt) == (StepState.PENDING, 0, True)


async def test_who_drives_the_task_is_refused_and_reports_it_alone(world: World) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    await tripped(world)
    reported = world.reported(charge, GaveUp(UNSURE, True))
    await world.refused(world.advance_command(task, [reported]), "outage")
    answer = await world.advance(task, [world.reported(charge, retry_at(world.clock.at))])
    assert [one.failure_count for one in answer.steps] == [0]


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [
        (CHARGES, RetryAsked(UNSURE, True, later(TestClock()(), 0))),
        (None, GaveUp(DECLINED, False)),
        (None, GaveUp(StepFailure("unknown", "no JSON", "unrecordable_result"), True)),
    ],
)
async def test_what_the_outage_did_not_cause_counts_as_always(world: World, policy: str | None, outcome: Any) -> None:
    fields = {} if policy is None else {"policy": policy}
    _, (charge,) = await world.opened(await world.held(), step(take=True, **fields))
    await tripped(world)
    await world.report(charge, outcome)
    assert (await world.step(charge.step_no)).failure_count == 1


async def test_attempts_burnt_in_the_window_that_opened_it_are_given_back_once(world: World, clock: TestClock) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    await world.report(charge, retry_at(clock.at))
    clock.move(60)
    (dispatch,) = await world.take()
    await world.report(dispatch.step, retry_at(clock.at))
    clock.move(2)
    await tripped(world)
    clock.move(10)
    (again,) = await world.take()
    assert (again.step.failure_count, again.step.attempt) == (1, 3)
    assert (await world.task(task.task_no)).failure_count == 1
    assert kinds(await world.last_events()) == ["step.attempts_returned", "step.dispatched"]
    await world.report(again.step, retry_at(clock.at))
    clock.move(10)
    (last,) = await world.take()
    assert last.step.failure_count == 1


async def test_a_policy_that_charges_outages_gets_nothing_back(world: World, clock: TestClock) -> None:
    _, (charge,) = await world.opened(await world.held(), step(take=True, policy=CHARGES))
    await world.report(charge, retry_at(clock.at))
    clock.move(1)
    await tripped(world)
    clock.move(10)
    (again,) = await world.take()
    assert again.step.failure_count == 1


async def test_what_an_attempt_that_outlived_the_outage_failed_of_counts(world: World, clock: TestClock) -> None:
    _, (charge,) = await world.running(await world.held(), "charge")
    await world.report(charge, retry_at(clock.at))
    clock.move(1)
    (outlives,) = await world.take()
    await tripped(world)
    clock.move(1)
    await operated(world, AgentVerb.CLOSE)
    clock.move(1)
    await world.report(outlives.step, retry_at(clock.at))
    clock.move(1)
    (again,) = await world.take()
    assert again.step.failure_count == 1
    await world.report(again.step, retry_at(clock.at))
    clock.move(1)
    (last,) = await world.take()
    assert last.step.failure_count == 2


async def test_opening_by_hand_gives_nothing_back_from_before(world: World, clock: TestClock) -> None:
    await operated(world, AgentVerb.OPEN)
    await operated(world, AgentVerb.CLOSE)
    clock.move(3600)
    _, (charge,) = await world.running(await world.held(), "charge")
    await world.report(charge, retry_at(clock.at))
    clock.move(3600)
    assert (await operated(world, AgentVerb.OPEN)).failing_since == clock.at
    await operated(world, AgentVerb.CLOSE)
    (again,) = await world.take()
    assert again.step.failure_count == 1


async def test_a_step_that_a_person_lets_run_again_has_nothing_to_be_given_back(world: World, clock: TestClock) -> None:
    task, (charge,) = await world.running(await world.held(), "charge")
    await world.report(charge, retry_at(clock.at))
    (last,) = await world.take()
    await world.report(last.step, gave_up())
    await world.advance(await world.task(task.task_no), ending=Hold(msgspec.structs.replace(FAILED, redo=(1,))))
    await tripped(world)
    await operated(world, AgentVerb.CLOSE)
    clock.move(1)
    await world.written(
        Operate(actor="cli", verb=Verb.RESUBMIT, task_no=task.task_no, incarnation=1, by="ana", reason="again")
    )
    (claimed,) = await world.claim()
    answer = await world.advance(claimed.task, opened=[step(reopens=charge.step_no, take=True)])
    await world.report(answer.dispatches[0].step, retry_at(clock.at))
    (again,) = await world.take()
    assert again.step.failure_count == 1


# --- people
async def test_a_person_opens_and_closes_it_and_the_history_says_who_and_why(world: World) -> None:
    await waiting(world, "a")
    await operated(world, AgentVerb.OPEN, reason="they move")
    world.clock.move(10_000)
    assert await world.take() == []
    await operated(world, AgentVerb.CLOSE, by="ben", reason="they moved")
    assert len(await world.take()) == 1
    opened, closed = await store_events(world)
    assert (opened["by"], opened["reason"], closed["by"], closed["reason"]) == ("ana", "they move", "ben", "they moved")
    assert await world.store.alerts(open_only=False) == []


async def test_a_paused_agent_takes_nothing_of_any_target_until_it_is_resumed(world: World) -> None:
    task = await world.held()
    await world.opened(task, step("charge", key="a", target="north"), step("charge", key="b"))
    await operated(world, AgentVerb.PAUSE)
    assert await world.take() == []
    answer = await world.advance(await world.task(task.task_no), opened=[step("reserve", take=True, target="south")])
    assert answer.dispatches == ()
    await operated(world, AgentVerb.RESUME)
    assert len(await world.take()) == 3


async def test_an_agent_opened_as_a_whole_makes_no_calls_to_any_target_until_it_is_closed(world: World) -> None:
    task = await world.held()
    task, (under_way,) = await world.opened(task, step("charge", key="a", target="north", take=True))
    await world.opened(task, step("charge", key="b", target="south"))
    await operated(world, AgentVerb.OPEN)
    await world.report(under_way, retry_at(world.clock.at))
    assert (await world.step(under_way.step_no)).failure_count == 0
    assert await world.take() == []
    answer = await world.advance(await world.task(task.task_no), opened=[step("reserve", take=True, target="south")])
    assert answer.dispatches == ()
    await operated(world, AgentVerb.CLOSE)
    world.clock.move(1)
    assert len(await world.take()) == 3


async def test_a_pause_in_the_middle_of_a_wave_leaves_the_wave_as_it_was(world: World) -> None:
    await waiting(world, *"abcd")
    charge = await canary(world)
    await operated(world, AgentVerb.PAUSE)
    await world.report(charge)
    assert await world.take() == []
    await operated(world, AgentVerb.RESUME)
    assert len(await world.take()) == 2


@pytest.mark.parametrize("verb", [AgentVerb.CLOSE, AgentVerb.RESUME])
async def test_a_verb_that_would_change_nothing_is_refused(world: World, verb: AgentVerb) -> None:
    answer = await world.apply(_operate(verb))
    assert isinstance(answer, Refusal)
    assert answer.verdict == "not_allowed"
    assert await store_events(world) == []


async def test_an_answer_given_by_hand_gives_the_place_of_a_canary_back(world: World) -> None:

    task = await waiting(world, "a", "b")
    charge = await canary(world)
    command = Operate(
        actor="cli",
        verb=Verb.ANSWER,
        task_no=task.task_no,
        incarnation=1,
        by="ana",
        reason="seen",
        step=1,
        result='"r"',
    )
    await world.written(command)
    assert (await world.step(charge.step_no)).canary is None
    assert len(await world.take()) == 1
