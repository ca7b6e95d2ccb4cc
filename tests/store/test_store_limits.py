"""Limits in the store: never more than they allow, shared by all processes, with turns for the keys."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from store_world import FAILED, LEASE, TestClock, World, gave_up, kinds, retry_at, step
from test_store_verbs import verb

from arriero.core.limits import EXPIRED_SECONDS, KEYLESS_SECONDS
from arriero.core.routing import OVERFLOW_SECONDS, PINNED
from arriero.model import StepKind, StepRow, StepState, TaskRow, Verb
from arriero.model.agents import LimitPolicy, encode_limit_keys, encode_limits
from arriero.model.answers import AttemptApplied, Taken, TryDelayed
from arriero.model.commands import BeginTry, Start, Take
from arriero.model.moves import Hold, PlanUndo
from arriero.model.processes import ProcessAbout

TWO = LimitPolicy(name="concurrent", kind="concurrent", most=2)
ONE_EACH = LimitPolicy(name="of merchant", kind="concurrent", most=1, is_keyed=True)
THREE_A_SECOND = LimitPolicy(name="rate", kind="rate", most=3, per=1.0)


async def declare(world: World, *limits: LimitPolicy, instance: str = "p1", app: str = "shop") -> int:
    """A process start that hosts the Agent with these limits; answers its number."""
    texts = {"payments": encode_limits(limits)} if limits else {}
    about = ProcessAbout(app=app, steps=(("payments", "charge"),), limits=texts)
    return await world.store.register(instance, LEASE, msgspec.json.encode(about).decode())


async def hold(world: World, task_id: str = "order-1", app: str = "shop", **changes: Any) -> TaskRow:
    """A task of the App that a process holds."""
    await world.submit(task_id, app=app, **changes)
    (loaded,) = await world.claim(1, limit=1, app=app)
    return loaded.task


async def waiting(world: World, count: int, merchant: str | None = None, **changes: Any) -> TaskRow:
    """A task with so many requests that wait, under the keys of one merchant."""
    keys = "{}" if merchant is None else encode_limit_keys({"of merchant": merchant})
    fields = {"limit_keys": keys} | changes
    number = len(await world.store.list_tasks(limit=1_000))
    task = await hold(world, f"order-{number}")
    task, _ = await world.opened(task, *(step(key=f"{merchant}-{one}", **fields) for one in range(count)))
    return task


async def take(world: World, process_no: int = 1, **changes: Any) -> list[StepRow]:
    return [dispatch.step for dispatch in await world.take(process_no, **({"app": "shop"} | changes))]


async def take_answer(world: World, room: int = 100) -> Taken:
    command = Take(actor="p", process_no=1, room=(("payments", room),), names=("charge",), probation=None, app="shop")
    answer = await world.apply(command)
    assert isinstance(answer, Taken)
    return answer


def merchants(steps: list[StepRow]) -> list[str]:
    return [msgspec.json.decode(one.limit_keys or "{}").get("of merchant", "") for one in steps]


# --- attempts at once
async def test_two_processes_together_begin_no_more_than_the_limit(world: World) -> None:
    await declare(world, TWO)
    await declare(world, TWO, instance="p2")
    await waiting(world, 5)
    first = await take(world, 1, room=(("payments", 1),))
    second = await take(world, 2)
    assert (len(first), len(second)) == (1, 1)
    assert await take(world, 1) == []


async def test_what_waits_for_a_limit_has_spent_nothing(world: World) -> None:
    await declare(world, TWO)
    await waiting(world, 3)
    await take(world)
    (left,) = [one for loaded in await world.rows() for one in loaded.steps if one.state is StepState.PENDING]
    assert (left.attempt, left.failure_count, left.taken, left.fence) == (1, 0, False, 0)


@pytest.mark.parametrize("end", ["succeeded", "gave up", "retry"])
async def test_the_end_of_an_attempt_frees_its_slot_however_it_ended(world: World, clock: TestClock, end: str) -> None:
    await declare(world, TWO)
    await waiting(world, 3)
    first, _ = await take(world)
    match end:
        case "succeeded":
            await world.report(first)
        case "gave up":
            await world.report(first, gave_up())
        case _:
            await world.report(first, retry_at(clock.at + 60_000_000))
    assert [one.state for one in await take(world)] == [StepState.RUNNING]


async def test_the_slots_of_a_lost_process_come_back_with_its_lease(world: World) -> None:
    await declare(world, TWO)
    lost = await declare(world, TWO, instance="p2")
    task = await waiting(world, 2)
    running = await take(world, lost)
    assert await take(world, 1) == []
    await world.lose(lost)
    assert await take(world, 1) == []  # its attempts still count: they may be at the service
    await world.written(world.free_command(task, running, fence=None, lost_by=lost))
    assert {one.step_no for one in await take(world, 1)} == {one.step_no for one in running}


async def test_an_expired_attempt_keeps_its_slot_until_it_is_recovered(world: World, clock: TestClock) -> None:
    process = await declare(world, TWO)
    await waiting(world, 3)
    first, _ = await take(world)
    clock.move(11)
    assert await take(world) == []
    term = await world.lead(process)
    await world.written(world.recover_command(first, term, retry_at(clock.at + 60_000_000, in_doubt=True)))
    assert len(await take(world)) == 1


async def test_the_answer_of_a_take_tells_that_requests_are_held_back(world: World) -> None:
    await declare(world, TWO)
    await waiting(world, 3)
    (limited,) = (await take_answer(world)).limited
    assert (limited.agent, limited.is_full, limited.next_in) == ("payments", True, None)


# --- no other way in
async def test_an_attempt_of_a_limited_agent_begins_only_with_a_take(world: World) -> None:
    await declare(world, TWO)
    task = await hold(world)
    answer = await world.advance(task, opened=[step(take=True, limit_keys="{}")])
    assert (answer.dispatches, [one.state for one in answer.steps]) == ((), [StepState.PENDING])
    assert len(await take(world)) == 1


async def test_a_process_whose_code_knows_no_limits_does_not_begin_one_either(world: World) -> None:
    await declare(world, TWO)
    task = await hold(world)
    answer = await world.advance(task, opened=[step(key=str(n), take=True) for n in range(3)])
    assert answer.dispatches == ()
    assert len(await take(world)) == 2


async def test_a_submission_begins_no_attempt_of_a_limited_agent(world: World) -> None:
    process = await declare(world, TWO)
    await world.submit(app="shop", start=Start(process, (step(take=True, limit_keys="{}"),)))
    (loaded,) = await world.rows()
    assert all(one.state is StepState.PENDING for one in loaded.steps)
    await world.claim(process, app="shop")


async def test_a_compensation_of_a_limited_agent_waits_for_its_slot_too(world: World) -> None:
    await declare(world, TWO)
    task = await waiting(world, 1)
    (done,) = await take(world)
    await world.report(done)
    other = await waiting(world, 2)
    await take(world)
    task = await world.task(task.task_no)
    undo = step(
        kind=StepKind.COMPENSATION, undoes=done.step_no, undo="{}", compensation=None, take=True, limit_keys="{}"
    )
    answer = await world.advance(task, ending=PlanUndo(FAILED, (undo,)))
    assert answer.dispatches == ()
    assert await take(world) == []
    assert other.task_no != task.task_no


# --- rates
async def test_in_no_window_more_calls_begin_than_the_rate_allows(world: World, clock: TestClock) -> None:
    await declare(world, THREE_A_SECOND)
    await waiting(world, 9)
    begun: list[int] = []
    for _ in range(30):
        begun += [clock.at] * len(await take(world))
        clock.move(0.1)
    assert len(begun) == 9
    assert all(later - earlier >= 1_000_000 for earlier, later in zip(begun, begun[3:], strict=False))


async def test_the_answer_of_a_take_tells_when_the_next_call_may_begin(world: World, clock: TestClock) -> None:
    await declare(world, THREE_A_SECOND)
    await waiting(world, 4)
    (limited,) = (await take_answer(world)).limited
    assert limited.is_full
    assert limited.next_in is not None
    clock.move(limited.next_in)
    assert len(await take(world)) == 1


async def test_a_rate_counts_calls_that_ended_long_ago(world: World) -> None:
    await declare(world, THREE_A_SECOND)
    await waiting(world, 4)
    for one in await take(world):
        await world.report(one)
    assert await take(world) == []


async def test_old_calls_are_removed_and_no_decision_changes(world: World, clock: TestClock) -> None:
    await declare(world, THREE_A_SECOND)
    await waiting(world, 6)
    await take(world)
    await world.store.remove_old_rates()
    assert await take(world) == []
    clock.move(1.1)
    await world.store.remove_old_rates()
    (use,) = await world.store.list_limits()
    assert use.rates == ()
    assert len(await take(world)) == 3


# --- keys
async def test_each_key_has_a_room_of_its_own(world: World) -> None:
    await declare(world, ONE_EACH)
    await waiting(world, 3, "a")
    await waiting(world, 2, "b")
    assert merchants(await take(world)) == ["a", "b"]
    assert await take(world) == []


async def test_no_key_starves_another_however_many_wait_before_it(world: World, clock: TestClock) -> None:
    await declare(world, TWO, LimitPolicy(name="of merchant", kind="concurrent", most=2, is_keyed=True))
    await waiting(world, 12, "big")
    clock.move(60)
    for merchant in ("x", "y", "z"):
        await waiting(world, 1, merchant)
    begun: list[str] = []
    while len(begun) < 8:
        running = await take(world)
        begun += merchants(running)
        for one in running:
            await world.report(one)
    assert Counter(begun[:8])["big"] <= 5
    assert {"x", "y", "z"} <= set(begun[:8])


async def test_the_turn_goes_on_behind_the_key_that_came_last_also_in_another_process(world: World) -> None:
    await declare(world, LimitPolicy(name="one", kind="concurrent", most=1), ONE_EACH)
    await declare(world, LimitPolicy(name="one", kind="concurrent", most=1), ONE_EACH, instance="p2")
    for merchant in ("a", "b", "c"):
        await waiting(world, 2, merchant)
    begun: list[str] = []
    for number in range(6):
        world.clock.move(0.001)
        (one,) = await take(world, 1 + number % 2)
        begun += merchants([one])
        await world.report(one, process_no=1 + number % 2)
    assert begun == ["a", "b", "c", "a", "b", "c"]


async def test_within_a_key_the_priority_decides(world: World) -> None:
    await declare(world, ONE_EACH)
    await waiting(world, 1, "a")
    urgent = await hold(world, "urgent", priority=9)
    await world.opened(urgent, step(key="urgent", limit_keys=encode_limit_keys({"of merchant": "a"})))
    (one,) = await take(world)
    assert one.key == "urgent"


async def test_more_keys_than_one_page_all_get_their_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arriero.store.engine.take_requests.KEYS_AT_ONCE", 2)
    await declare(world, ONE_EACH)
    for merchant in "abcde":
        await waiting(world, 1, merchant)
    assert sorted(merchants(await take(world))) == list("abcde")


async def test_a_key_whose_requests_are_not_due_yet_keeps_no_other_from_its_turn(
    world: World, clock: TestClock
) -> None:
    await declare(world, ONE_EACH)
    await waiting(world, 1, "a")
    (one,) = await take(world)
    await world.report(one, retry_at(clock.at + 60_000_000))
    await waiting(world, 1, "b")
    assert merchants(await take(world, room=(("payments", 1),))) == ["b"]


async def test_one_key_that_waits_alone_uses_all_its_room(world: World) -> None:
    await declare(world, LimitPolicy(name="of merchant", kind="concurrent", most=3, is_keyed=True))
    await waiting(world, 5, "a")
    assert len(await take(world)) == 3


# --- what was kept before
async def test_requests_that_were_kept_before_the_limits_are_taken_within_them(world: World) -> None:
    await waiting(world, 4, limit_keys=None)
    await declare(world, TWO, ONE_EACH)
    assert len(await take(world)) == 1  # they share one key
    assert await take(world) == []


async def test_attempts_that_began_before_the_limits_count(world: World) -> None:
    process = await declare(world)
    await waiting(world, 4, limit_keys=None)
    assert len(await take(world, process, room=(("payments", 2),))) == 2
    await declare(world, TWO, instance="p2")
    assert await take(world, 2) == []


async def test_a_request_whose_code_knows_no_limits_goes_at_once_in_the_room_without_keys(
    world: World, clock: TestClock
) -> None:
    await declare(world, ONE_EACH)
    clock.move(KEYLESS_SECONDS + 1)
    await take(world)  # nothing without keys is there: it is not looked for at each Take from now on
    await waiting(world, 2, limit_keys=None)
    (one,) = await take(world)
    assert one.limit_keys == "{}"
    await world.report(one)
    assert len(await take(world)) == 1


async def test_a_request_from_before_the_limits_is_found_however_late_it_is_resumed(
    world: World, clock: TestClock
) -> None:
    task = await waiting(world, 1, limit_keys=None)
    await world.written(verb(Verb.PAUSE, task))
    await declare(world, ONE_EACH)
    clock.move(KEYLESS_SECONDS + 1)
    await take(world)  # what is paused is not looked for
    await world.written(verb(Verb.RESUME, task))
    clock.move(KEYLESS_SECONDS)
    assert len(await take(world) + await take(world)) == 1


# --- who declares
async def test_the_newest_declaration_holds(world: World) -> None:
    await declare(world, TWO)
    await declare(world, LimitPolicy(name="concurrent", kind="concurrent", most=3), instance="p2")
    await waiting(world, 5)
    assert len(await take(world, 1)) == 3
    (use,) = await world.store.list_limits()
    assert (use.row.app, use.row.agent, use.row.process_no, use.running) == ("shop", "payments", 2, (("{}", 3),))
    assert kinds(await world.events(0)).count("limits.declared") == 2


async def test_the_same_declaration_again_changes_nothing(world: World) -> None:
    await declare(world, TWO)
    await declare(world, TWO, instance="p2")
    assert kinds(await world.events(0)).count("limits.declared") == 1


async def test_a_process_without_limits_takes_them_away(world: World) -> None:
    await declare(world, TWO)
    await declare(world, instance="p2")
    await waiting(world, 5)
    assert len(await take(world, 1)) == 5
    assert await world.store.list_limits() == []


async def test_limits_of_one_app_are_not_anothers(world: World) -> None:
    of_travel = await declare(world, app="travel")
    await declare(world, TWO, instance="p2")
    task = await hold(world, "of-travel", app="travel")
    await world.opened(task, *(step(key=str(n)) for n in range(4)))
    assert len(await world.take(of_travel, app="travel")) == 4


async def test_lowered_limits_let_the_attempts_under_way_end(world: World) -> None:
    await declare(world, LimitPolicy(name="concurrent", kind="concurrent", most=4))
    await waiting(world, 6)
    running = await take(world)
    await declare(world, TWO, instance="p2")
    await world.report(running[0])
    await world.report(running[1])
    assert await take(world) == []
    await world.report(running[2])
    assert len(await take(world)) == 1


async def test_a_batch_frees_a_slot_and_takes_it_again_in_one_commit(world: World) -> None:
    await declare(world, TWO)
    await waiting(world, 3)
    first, _ = await take(world)
    command = Take(actor="p", process_no=1, room=(("payments", 9),), names=("charge",), probation=None, app="shop")
    _, taken = await world.store.apply([world.report_command(first), command])
    assert isinstance(taken, Taken)
    assert len(taken.dispatches) == 1


async def test_a_held_task_withdraws_what_waits_for_a_limit(world: World) -> None:
    await declare(world, TWO)
    task = await waiting(world, 3)
    await take(world)
    await world.advance(await world.task(task.task_no), ending=Hold(FAILED))
    (_, _, third) = (await world.load(task.task_no)).steps
    assert third.state is StepState.WITHDRAWN


async def test_a_dispatch_tells_under_which_limits_it_is_counted_and_hides_the_key(world: World) -> None:
    await declare(world, TWO, ONE_EACH)
    task = await waiting(world, 1, "4711")
    await take(world)
    event = (await world.events(task.task_no))[-1]
    assert event["limits"].keys() == {"concurrent", "of merchant"}
    assert event["limits"]["concurrent"] == ""
    assert "4711" not in str(event["limits"])


# --- further tries of an attempt
def try_command(one: StepRow, **changes: Any) -> BeginTry:
    fields = {"actor": "p", "process_no": 1, "step_no": one.step_no, "fence": one.fence}
    return BeginTry(**(fields | {"app": "shop", "agent": "payments"} | changes))  # type: ignore[arg-type]


async def test_a_further_try_counts_under_the_rate_and_waits_for_it(world: World, clock: TestClock) -> None:
    await declare(world, THREE_A_SECOND)
    task = await waiting(world, 2)
    one, _ = await take(world)
    answer = await world.apply(try_command(one))
    assert isinstance(answer, AttemptApplied)
    assert (answer.complete_by, answer.now) == (one.complete_by, clock.at)
    assert kinds(await world.events(task.task_no))[-1] == "attempt.tried"
    delayed = await world.apply(try_command(one))
    assert isinstance(delayed, TryDelayed)
    assert 0 < delayed.seconds <= 1.02
    clock.move(delayed.seconds)
    assert isinstance(await world.apply(try_command(one)), AttemptApplied)


async def test_a_further_try_after_one_that_may_have_happened_keeps_the_doubt_once(world: World) -> None:
    task = await waiting(world, 1)
    (one,) = await take(world)
    before = await world.load(task.task_no)
    assert isinstance(await world.apply(try_command(one)), AttemptApplied)
    assert await world.load(task.task_no) == before  # nothing counts it, and nothing is in doubt
    for _ in range(2):
        assert isinstance(await world.apply(try_command(one, in_doubt=True)), AttemptApplied)
    events = await world.events(task.task_no)
    assert events[-1] == {"type": "attempt.tried", "step": 1, "fence": 1, "limits": {}, "in_doubt": True}
    assert kinds(events).count("attempt.tried") == 1
    after = await world.load(task.task_no)
    assert after.steps[0].in_doubt
    assert after.task.revision == before.task.revision + 1  # what its holder decides from may be another thing now


async def test_a_rate_that_has_no_room_lets_no_doubt_begin_before_its_call(world: World) -> None:
    await declare(world, LimitPolicy(name="one a second", kind="rate", most=1, per=1.0))
    await waiting(world, 1)
    (one,) = await take(world)
    assert isinstance(await world.apply(try_command(one, in_doubt=True)), TryDelayed)
    assert not (await world.step(one.step_no)).in_doubt


async def test_a_further_try_needs_no_slot_of_its_own(world: World) -> None:
    await declare(world, LimitPolicy(name="one", kind="concurrent", most=1), THREE_A_SECOND)
    await waiting(world, 1)
    (one,) = await take(world)
    assert isinstance(await world.apply(try_command(one)), AttemptApplied)


async def test_a_further_try_is_refused_once_its_attempt_is_over(world: World, clock: TestClock) -> None:
    await declare(world, THREE_A_SECOND)
    await waiting(world, 2)
    one, other = await take(world)
    await world.refused(try_command(one, fence=7), "stale")
    await world.refused(try_command(one, process_no=2), "moved_on")
    await world.report(one)
    await world.refused(try_command(one), "moved_on")
    clock.move(11)
    await world.refused(try_command(other), "late")


async def test_a_further_try_is_free_once_the_limits_are_gone(world: World) -> None:
    await declare(world, THREE_A_SECOND)
    await waiting(world, 3)
    one, *_ = await take(world)
    await declare(world, instance="p2")
    assert isinstance(await world.apply(try_command(one)), AttemptApplied)


async def test_an_attempt_that_nobody_can_recover_gives_its_slot_back_after_a_minute(
    world: World, clock: TestClock
) -> None:
    await declare(world, TWO)
    await waiting(world, 4)
    await take(world)
    clock.move(10 + EXPIRED_SECONDS - 1)
    assert await take(world) == []
    clock.move(1)
    assert len(await take(world)) == 2


# --- requests of another Agent that provides the same steps
EU = "payments-eu"


async def declare_provider(world: World, *limits: LimitPolicy) -> int:
    about = ProcessAbout(app="shop", steps=((EU, "charge"),), limits={EU: encode_limits(limits)})
    return await world.store.register("eu", LEASE, msgspec.json.encode(about).decode())


async def take_over(world: World) -> list[StepRow]:
    return await take(world, 1, room=((EU, 5),), siblings=((EU, ("payments",)),))


async def test_a_key_without_room_keeps_no_other_key_from_moving_to_another_agent(
    world: World, clock: TestClock
) -> None:
    await declare_provider(world, ONE_EACH)
    await waiting(world, 12, "big", routing=PINNED)
    await waiting(world, 1, "small", routing=PINNED)
    clock.move(OVERFLOW_SECONDS + 1)
    assert merchants(await take_over(world)) == ["big", "small"]
    assert await take_over(world) == []


async def test_requests_without_keys_move_to_another_agent_within_its_limits(world: World, clock: TestClock) -> None:
    await declare_provider(world, TWO, ONE_EACH)
    await waiting(world, 3, limit_keys=None, routing=PINNED)
    clock.move(OVERFLOW_SECONDS + 1)
    assert len(await take_over(world)) == 1  # they share one key
    assert await take_over(world) == []
