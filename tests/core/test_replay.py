"""Workflow code on its own loop: what it may do, what it is refused, and that a replay sees the same."""

import asyncio
import contextlib
import gc
import sys
from typing import Any

import msgspec
import pytest
from core_runs import Run

import arriero
from arriero import Agent, Permanent, StepFailed, workflow
from arriero.core import workflow_loop
from arriero.core.replay import Execution
from arriero.declare.steps import StepCall
from arriero.declare.workflows import Workflow
from arriero.model import StepKind, StepState

remote = Agent("remote")


@remote.step
def fetch(attempt: arriero.Attempt, number: int = 0) -> int:
    return number


@remote.step
def send(attempt: arriero.Attempt, text: str = "") -> None: ...


def declared(function: Any) -> Workflow[..., Any]:
    return workflow(function)


def run(function: Any, *arguments: Any) -> Run:
    return Run(declared(function), *arguments)


def end_by_bug(function: Any) -> str:
    """Run code that breaks before any result; answers with the reason."""
    failure = run(function).failure
    assert failure.kind == "bug"
    return failure.reason


# --- one result after the other
def test_steps_in_sequence_are_asked_for_one_after_the_other() -> None:
    async def code() -> int:
        return await fetch(1) + await fetch(2)

    live = run(code)
    assert live.open == ["fetch"]
    live.deliver("fetch", 10)
    assert live.open == ["fetch[#2]"]
    live.deliver("fetch[#2]", 20)
    assert live.output == 30


def test_gather_asks_for_all_at_once_and_keeps_the_order_of_its_arguments() -> None:
    async def code() -> list[int]:
        return await asyncio.gather(fetch(1), fetch(2), fetch(3))

    live = run(code)
    assert live.open == ["fetch", "fetch[#2]", "fetch[#3]"]
    live.deliver("fetch[#3]", 30).deliver("fetch", 10).deliver("fetch[#2]", 20)
    assert live.output == [10, 20, 30]


def test_a_task_group_runs_its_steps_side_by_side() -> None:
    async def code() -> int:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(fetch(number)) for number in range(3)]
        return sum(task.result() for task in tasks)

    live = run(code)
    assert live.open == ["fetch", "fetch[#2]", "fetch[#3]"]
    live.deliver("fetch[#2]", 2).deliver("fetch", 1).deliver("fetch[#3]", 3)
    assert live.output == 6


def test_wait_answers_with_the_first_recorded_result() -> None:
    async def code() -> tuple[str, int]:
        tasks = {asyncio.create_task(fetch(n), name=f"n{n}") for n in range(3)}
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        (first,) = done
        return first.get_name(), first.result()

    live = run(code).deliver("fetch[#2]", 7)
    assert live.output == ("n1", 7)


def test_sets_of_tasks_and_futures_iterate_alike_in_every_replay() -> None:
    async def code() -> list[str]:
        tasks = {asyncio.create_task(fetch(n), name=str(n)) for n in range(40)}
        shields = {asyncio.shield(task) for task in tasks}
        order = [str(list(tasks).index(task)) for task in sorted(tasks, key=lambda task: int(task.get_name()))]
        await asyncio.wait(shields)
        return order + [task.get_name() for task in tasks] + [str(future.result()) for future in shields]

    live = run(code)
    for number, label in enumerate(list(live.open)):
        live.deliver(label, number)
    for _ in range(3):
        keep = [object() for _ in range(1000)]  # other addresses in every replay
        execution, fresh, why = live.replayed()
        assert (fresh, why) == ([], None)
        assert execution.end == live.end
        del keep


def test_tasks_of_many_workflows_have_hashes_of_their_own() -> None:
    """asyncio keeps one set of all tasks in the process; equal hashes would make each new one compare with all."""

    async def code() -> None:
        await fetch()

    flow = declared(code)
    hashes = [hash(Run(flow, seed=seed * 7919).execution._main) for seed in range(500)]
    assert len(set(hashes)) == len(hashes)


def test_loops_and_branches_follow_the_recorded_results() -> None:
    async def code() -> list[str]:
        said: list[str] = []
        while (number := await fetch()) > 0:
            if number % 2:
                await send(f"odd {number}")
                said.append("odd")
            else:
                said.append("even")
        return said

    live = run(code)
    live.deliver("fetch", 3).deliver("send").deliver("fetch[#2]", 2).deliver("fetch[#3]", 0)
    assert live.output == ["odd", "even"]


def test_a_failed_step_raises_step_failed_with_all_that_is_known() -> None:
    async def code() -> tuple[Any, ...]:
        try:
            await fetch()
        except StepFailed as failed:
            return failed.step, failed.code, failed.message, failed.details, failed.attempts, failed.cause
        return ()

    assert run(code).fail("fetch", "declined", "transient").output == (
        "fetch",
        "declined",
        "it failed",
        {"why": 1},
        1,
        "transient",
    )


def test_after_a_caught_failure_the_code_goes_another_way() -> None:
    async def code() -> int:
        try:
            return await fetch(1)
        except StepFailed:
            return await fetch(2)

    live = run(code).fail("fetch")
    assert live.open == ["fetch[#2]"]
    assert live.deliver("fetch[#2]", 5).output == 5


def test_except_star_catches_the_failed_steps_of_a_group() -> None:
    async def code() -> int:
        failed = 0
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fetch(1))
                group.create_task(fetch(2))
        except* StepFailed as errors:
            failed = len(errors.exceptions)
        return failed + await fetch(3)

    live = run(code).fail("fetch[#2]")
    assert live.open == ["fetch", "fetch[#3]"]  # the group dropped its wait; the step itself goes on
    assert live.deliver("fetch", 9).deliver("fetch[#3]", 10).output == 11


def test_a_step_whose_wait_was_cancelled_stays_and_its_result_is_dropped() -> None:
    async def code() -> int:
        slow = asyncio.create_task(fetch(1))
        await fetch(2)
        slow.cancel()
        return await fetch(3)

    live = run(code).deliver("fetch", 1)
    assert live.open == ["fetch[#2]", "fetch[#3]"]
    live.deliver("fetch[#2]", 0)
    assert live.end is None
    assert live.deliver("fetch[#3]", 3).output == 3
    assert live.replayed()[0].end == live.end


# --- time and chance
def test_sleep_is_a_timer_that_fires_after_the_recorded_time() -> None:
    async def code() -> None:
        await fetch()
        await arriero.sleep(90)

    live = run(code).deliver("fetch", 1)
    timer = live.rows[-1]
    assert (timer.kind, timer.name, timer.arguments) == (StepKind.TIMER, "sleep", '{"seconds":90.0}')
    assert timer.not_before is not None
    assert timer.not_before - live.execution.now == 90_000_000
    assert live.deliver("sleep").output is None


@pytest.mark.parametrize("duration", [-1, float("nan"), float("inf"), "1", True])
def test_sleep_refuses_what_is_no_duration(duration: Any) -> None:
    async def code() -> None:
        await arriero.sleep(duration)

    assert "arriero.sleep" in end_by_bug(code)


def test_now_is_the_time_of_the_result_delivered_last() -> None:
    async def code() -> list[float]:
        times = [arriero.now()]
        for _ in range(2):
            await fetch()
            times.append(arriero.now())
        return [(time - times[0]).total_seconds() for time in times]

    assert run(code).deliver("fetch", 0).deliver("fetch[#2]", 0).output == [0, 1, 2]


def test_now_uuid_and_random_are_the_same_in_every_replay_and_each_draw_is_another() -> None:
    async def code() -> list[Any]:
        drawn: list[Any] = []
        for _ in range(3):
            drawn += [arriero.now(), arriero.uuid(), arriero.random().random(), arriero.random().random()]
            await fetch()
        return drawn

    live = run(code).deliver_all()
    assert live.replayed()[0].end == live.end
    assert len(set(live.output)) == len(live.output)
    assert {value.version for value in live.output if hasattr(value, "version")} == {4}
    other = Run(declared(code), seed=8).deliver_all()
    assert set(live.output) & set(other.output) == {value for value in live.output if hasattr(value, "year")}


@pytest.mark.parametrize("name", ["now", "uuid", "random"])
def test_time_and_chance_outside_of_a_workflow_are_refused(name: str) -> None:
    with pytest.raises(arriero.ArrieroError, match=rf"arriero\.{name} works only inside a workflow"):
        getattr(arriero, name)()


# --- identities
def test_a_step_is_known_by_its_name_and_key_or_else_its_occurrence() -> None:
    async def code() -> None:
        await asyncio.gather(fetch(1), fetch(2).options(key="b"), fetch(3), send(), fetch(4).options(key="a"))

    asked = run(code).opened_by[0]
    assert [one.identity[1:] for one in asked] == [
        ("fetch", "#1"),
        ("fetch", "b"),
        ("fetch", "#2"),
        ("send", "#1"),
        ("fetch", "a"),
    ]


def test_steps_with_keys_may_change_their_order() -> None:
    order = ["a", "b"]

    async def code() -> None:
        await asyncio.gather(*(fetch().options(key=key) for key in order))

    live = run(code).deliver("fetch[b]", 0)
    order.reverse()
    execution, fresh, why = live.replayed()
    assert (fresh, why) == ([], None)
    assert execution.end is None


def test_the_same_key_twice_is_refused_with_the_step_and_the_key() -> None:
    async def code() -> None:
        await asyncio.gather(fetch(1).options(key="k"), fetch(2).options(key="k"))

    assert end_by_bug(code) == "step fetch was asked for twice under the key 'k'; give each its own key"


def test_the_same_key_twice_is_refused_even_when_the_code_swallows_it() -> None:
    async def code() -> None:
        await fetch(1).options(key="k")
        while True:
            try:
                await fetch(2).options(key="k")
            except Exception:
                continue

    failure = run(code).deliver("fetch[k]", 0).failure
    assert (failure.kind, failure.code) == ("bug", "forbidden")
    assert "twice under the key 'k'" in failure.reason


# --- code and record disagree
def changed(function: Any, other: Any, *labels: str) -> str:
    """Run ``function`` up to the results named, replay the record with ``other``; answers with the disagreement."""
    live = run(function)
    for label in labels:
        live.deliver(label, None if label.startswith("send") else 0)
    execution = run(other).fresh_execution()
    _, fresh, why = live.replayed(execution=execution)
    assert fresh == []
    assert why is not None
    assert (why.kind, why.code) == ("replay", "replay")
    assert "run the release that recorded it, or give a changed step another name or key" in why.reason
    execution.close()
    return why.reason


async def fetch_one() -> None:
    await fetch(1)
    await send("a")


def test_other_arguments_than_recorded_stop_the_task_and_both_sides_are_named() -> None:
    async def other() -> None:
        await fetch(2)

    reason = changed(fetch_one, other)
    assert '{"number":1}' in reason
    assert '{"number":2}' in reason
    assert "step fetch" in reason


def test_other_arguments_are_found_also_behind_a_recorded_result() -> None:
    async def other() -> None:
        await fetch(1)
        await send("b")

    reason = changed(fetch_one, other, "fetch")
    assert '{"text":"a"}' in reason
    assert '{"text":"b"}' in reason


def test_another_time_to_sleep_than_recorded_stops_the_task() -> None:
    async def code() -> None:
        await arriero.sleep(1)

    async def other() -> None:
        await arriero.sleep(2)

    assert "step sleep" in changed(code, other)


def test_an_open_step_that_is_no_longer_asked_for_stops_the_task() -> None:
    async def other() -> None:
        await fetch(1)
        await fetch(2)

    reason = changed(fetch_one, other, "fetch")
    assert "the code no longer asks for the recorded step send; it asks for fetch[#2] instead" in reason


def test_a_step_with_a_result_that_is_no_longer_asked_for_stops_the_task() -> None:
    async def other() -> None:
        await send("a")

    reason = changed(fetch_one, other, "fetch")
    assert "step fetch has a recorded result, but the code no longer asks for it there" in reason


def test_code_that_returns_before_its_record_ends_stops_the_task() -> None:
    async def other() -> None:
        await fetch(1)

    assert "no longer asks for the recorded step send; it ends without it" in changed(fetch_one, other, "fetch", "send")


def test_a_new_step_behind_the_record_is_just_asked_for() -> None:
    async def other() -> None:
        await fetch(1)
        await send("a")
        await fetch(2)

    live = run(fetch_one).deliver("fetch", 0).deliver("send")
    execution, fresh, why = live.replayed(execution=run(other).fresh_execution())
    assert why is None
    assert [one.identity[1:] for one in fresh] == [("fetch", "#2")]
    execution.close()


def test_a_withdrawn_step_need_not_be_asked_for() -> None:
    live = run(fetch_one)
    withdrawn = msgspec.structs.replace(live.rows[0], name="gone", state=StepState.WITHDRAWN, ordinal=2)
    assert live.replayed([*live.rows, withdrawn])[1:] == ([], None)


# --- what was never awaited
def test_call_values_never_awaited_are_named_when_the_code_returns() -> None:
    async def code() -> None:
        send("a")
        fetch(1).options(key="k")
        await fetch(2)

    failure = run(code).deliver("fetch", 0).failure
    assert failure.kind == "unawaited"
    assert "fetch, send" in failure.reason
    assert "await each" in failure.reason


def test_the_original_of_a_call_value_with_options_need_not_be_awaited() -> None:
    async def code() -> int:
        return await fetch(1).options(key="k").options(complete_within=3)

    assert run(code).deliver("fetch[k]", 4).output == 4


def test_awaiting_a_call_value_of_another_run_hides_none_that_was_never_awaited() -> None:
    others: list[StepCall[Any]] = []

    async def other() -> None:
        others.append(send("a"))

    async def code() -> None:
        send("b")
        await others[0]

    run(other)
    assert run(code).deliver("send").failure.kind == "unawaited"


def test_call_values_never_awaited_are_not_judged_when_the_code_raises() -> None:
    async def code() -> None:
        send("a")
        raise Permanent("no")

    assert run(code).failure.kind == "refused"


def test_a_background_task_that_opened_its_step_just_before_the_return_is_named() -> None:
    async def code() -> None:
        asyncio.create_task(send("a"))  # noqa: RUF006 - left on purpose

    failure = run(code).failure
    assert failure.kind == "unawaited"
    assert "send" in failure.reason


def test_a_background_step_opened_earlier_ends_on_its_own() -> None:
    async def code() -> int:
        task = asyncio.create_task(send("a"))
        result = await fetch(1)
        assert not task.done()
        return result

    live = run(code).deliver("fetch", 6)
    assert live.output == 6
    assert live.open == ["send"]
    live.deliver("send")  # its result comes after the end and moves nothing
    assert live.output == 6
    assert live.replayed()[0].end == live.end


# --- what is refused
async def _sleep() -> None:
    await asyncio.sleep(1)


async def _timeout() -> None:
    async with asyncio.timeout(1):
        await fetch()


async def _wait_for() -> None:
    await asyncio.wait_for(fetch(), timeout=1)


async def _wait() -> None:
    await asyncio.wait([asyncio.create_task(fetch())], timeout=1)


async def _to_thread() -> None:
    await asyncio.to_thread(print)


async def _socket() -> None:
    await asyncio.open_connection("localhost", 1)


async def _process() -> None:
    await asyncio.create_subprocess_exec("true")


async def _time() -> None:
    asyncio.get_running_loop().time()


async def _executor() -> None:
    await asyncio.get_running_loop().run_in_executor(None, print)


async def _call_later() -> None:
    asyncio.get_running_loop().call_later(1, print)


REFUSED = [
    (_sleep, "call_later", "arriero.sleep"),
    (_timeout, "time", "complete_within="),
    (_wait_for, "call_later|time", "complete_within="),
    (_wait, "call_later", "arriero.sleep"),
    (_to_thread, "run_in_executor", "move the call into a step"),
    (_socket, "create_connection", "move the call into a step"),
    (_process, "subprocess_exec", "move the call into a step"),
    (_time, "time", "arriero.now()"),
    (_executor, "run_in_executor", "move the call into a step"),
    (_call_later, "call_later", "arriero.sleep"),
]


@pytest.mark.parametrize(("function", "named", "remedy"), REFUSED, ids=lambda value: getattr(value, "__name__", ""))
def test_what_cannot_be_replayed_is_refused_by_name_with_the_remedy(function: Any, named: str, remedy: str) -> None:
    failure = run(function).failure
    assert (failure.kind, failure.code) == ("bug", "forbidden")
    assert any(f"its loop for {name}," in failure.reason for name in named.split("|"))
    assert remedy in failure.reason


@pytest.mark.parametrize("function", [function for function, _, _ in REFUSED], ids=lambda value: value.__name__)
def test_it_is_refused_also_when_the_code_swallows_the_exception(function: Any) -> None:
    async def code() -> int:
        with contextlib.suppress(Exception):
            await function()
        return await fetch()

    live = run(code)
    assert live.failure.code == "forbidden"
    assert live.rows == []  # nothing is opened for it any more


def test_code_that_swallows_refusals_for_ever_is_stopped() -> None:
    async def code() -> None:
        while True:
            try:
                await asyncio.sleep(1)
            except Exception:
                continue

    assert run(code).failure.code == "forbidden"


def test_sleep_0_is_allowed() -> None:
    async def code() -> int:
        await asyncio.sleep(0)
        return await fetch()

    assert run(code).deliver("fetch", 1).output == 1


def test_locks_queues_and_events_inside_the_workflow_are_allowed() -> None:
    async def code() -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue()
        lock, event = asyncio.Lock(), asyncio.Event()

        async def produce() -> None:
            async with lock:
                for number in range(3):
                    await queue.put(await fetch(number))
            event.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            got = [await queue.get() for _ in range(3)]
            await event.wait()
        return got

    live = run(code).deliver("fetch", 1).deliver("fetch[#2]", 2).deliver("fetch[#3]", 3)
    assert live.output == [1, 2, 3]
    assert live.replayed()[0].end == live.end


def test_code_that_spins_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow_loop, "RUNS_MAX", 1000)

    async def code() -> None:
        while True:
            await asyncio.sleep(0)

    failure = run(code).failure
    assert (failure.kind, failure.code) == ("bug", "spins")


def test_a_future_of_another_loop_is_a_bug() -> None:
    other = asyncio.new_event_loop()
    try:

        async def code() -> None:
            await other.create_future()

        assert "attached to a different loop" in end_by_bug(code)
    finally:
        other.close()


def test_waiting_for_what_is_no_step_is_found_at_once() -> None:
    async def code() -> None:
        await fetch()
        await asyncio.Event().wait()

    failure = run(code).deliver("fetch", 0).failure
    assert (failure.kind, failure.code) == ("bug", "stuck")


def test_waiting_for_what_is_no_step_is_found_also_when_only_cancelled_waits_are_left() -> None:
    async def code() -> None:
        task = asyncio.create_task(fetch(1))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.Event().wait()

    assert run(code).failure.code == "stuck"


def test_a_workflow_that_is_awaited_is_asked_for_as_a_child_under_a_key_of_its_own() -> None:
    @workflow
    async def child(number: int) -> None: ...

    async def code() -> None:
        await asyncio.gather(child(1), child(2).options(key="second"), child(3))

    asked = run(code).opened_by[0]
    assert [one.identity for one in asked] == [
        (StepKind.CHILD, "child", "#1"),
        (StepKind.CHILD, "child", "second"),
        (StepKind.CHILD, "child", "#2"),
    ]
    assert [one.definition for one in asked] == [child] * 3


def test_a_call_of_a_workflow_that_is_never_awaited_is_found() -> None:
    @workflow
    async def child() -> None: ...

    async def code() -> None:
        child()

    failure = run(code).failure
    assert (failure.kind, "child" in failure.reason) == ("unawaited", True)


def test_a_call_of_a_workflow_is_awaited_once() -> None:
    @workflow
    async def child() -> None: ...

    async def code() -> None:
        call = child()

        async def wait() -> None:
            await call

        await asyncio.gather(wait(), wait())

    assert "a call value of child was awaited twice" in end_by_bug(code)


# --- how code may end
def test_a_step_failed_that_leaves_the_code_is_the_steps_failure() -> None:
    async def code() -> None:
        await fetch()

    live = run(code).fail("fetch", "declined")
    assert (live.failure.kind, live.failure.step, live.failure.code) == ("step", "fetch", "declined")
    assert live.failure.reason == "it failed"
    assert live.end.steps == ((StepKind.STEP, "fetch", "#1"),)  # type: ignore[union-attr]


def test_permanent_raised_by_the_code_is_its_refusal() -> None:
    async def code() -> None:
        raise Permanent("not today", code="closed")

    failure = run(code).failure
    assert (failure.kind, failure.reason, failure.code) == ("refused", "not today", "closed")


def test_a_group_of_nothing_but_failed_steps_is_a_failure_and_names_them_all() -> None:
    async def code() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fetch(1))
            group.create_task(send())

    async def both() -> None:
        results = await asyncio.gather(fetch(), send(), return_exceptions=True)
        raise ExceptionGroup("both", [error for error in results if isinstance(error, Exception)])

    assert run(code).fail("send").failure.step == "send"
    live = run(both).fail("send").fail("fetch")
    assert live.failure.kind == "step"
    assert [name for _, name, _ in live.end.steps] == ["fetch", "send"]  # type: ignore[union-attr]


def test_a_nested_group_of_failed_steps_and_permanent_is_a_failure() -> None:
    async def code() -> None:
        try:
            await fetch()
        except StepFailed as failed:
            raise ExceptionGroup("outer", [ExceptionGroup("inner", [Permanent("no")]), failed]) from failed

    live = run(code).fail("fetch")
    assert (live.failure.kind, live.failure.reason) == ("refused", "no")
    assert [name for _, name, _ in live.end.steps] == ["fetch"]  # type: ignore[union-attr]


def test_a_group_with_anything_else_in_it_is_a_bug_and_names_it() -> None:
    async def code() -> None:
        try:
            await fetch()
        except StepFailed as failed:
            raise ExceptionGroup("mixed", [failed, KeyError("x")]) from failed

    failure = run(code).fail("fetch").failure
    assert (failure.kind, failure.reason) == ("bug", "KeyError: 'x'")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("v"),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        BaseException("b"),
        GeneratorExit(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("inside", ["main", "task"])
def test_any_other_exception_is_a_bug(error: BaseException, inside: str) -> None:
    async def leave() -> None:
        await fetch()
        raise error

    async def in_task() -> None:
        await asyncio.create_task(leave())

    assert run(leave if inside == "main" else in_task).deliver("fetch", 0).failure.kind == "bug"


def test_an_error_text_is_cleaned_and_never_lost() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    async def code(error: Any) -> None:
        raise error

    assert run(code, ValueError("a\0b\ud800")).failure.reason == "ValueError: a\\x00b\\ud800"
    assert run(code, Permanent("a\0", code="\ud800")).failure.code == "\\ud800"
    assert "Broken: (its text cannot be made: ValueError)" in run(code, Broken()).failure.reason
    long = run(code, ValueError("x" * 10_000)).failure.reason
    assert len(long) < 5_000
    assert "[cut, " in long
    assert run(code, ValueError()).failure.reason == "ValueError"


# --- dropping code
@pytest.mark.filterwarnings("error")
def test_dropping_code_runs_no_more_effects_and_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    asked_while_dropped: list[str] = []

    async def helper() -> None:
        try:
            await fetch(9)
        finally:
            await send("from a task")
            asked_while_dropped.append("task")

    async def code() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(helper())
                group.create_task(fetch(1))
                await fetch(2)
        finally:
            await asyncio.gather(send("a"), send("b"), helper())
            asked_while_dropped.append("gather")

    live = run(code)
    before = dict(live.execution.asked)
    live.execution.close()
    live.execution.close()
    assert live.execution.asked == before
    del live
    gc.collect()
    assert asked_while_dropped == []
    assert capfd.readouterr() == ("", "")


async def test_code_dropped_inside_a_running_loop_leaves_nothing_to_that_loop() -> None:
    async def items() -> Any:
        try:
            while True:
                yield await fetch()
        finally:
            await send("closing")

    async def code() -> None:
        try:
            async for _ in items():
                pass
        finally:
            await asyncio.gather(send("a"), send("b"))

    live = run(code).deliver("fetch", 0)
    around = asyncio.all_tasks()
    live.execution.close()
    del live
    gc.collect()
    assert asyncio.all_tasks() == around


async def test_an_async_generator_left_half_way_is_not_handed_to_the_loop_around() -> None:
    closed: list[str] = []

    async def items() -> Any:
        try:
            yield await fetch()
            yield await fetch()
        finally:
            await send("closing")
            closed.append("closed")

    async def first() -> int:
        async for item in items():
            return item  # type: ignore[no-any-return]
        return 0

    async def code() -> int:
        return await first() + await fetch(2)

    hooks = sys.get_asyncgen_hooks()
    around = asyncio.all_tasks()
    live = run(code).deliver("fetch", 4)
    assert live.open == ["fetch[#2]", "send"]
    live.deliver("send").deliver("fetch[#2]", 5)
    assert live.output == 9
    assert closed == ["closed"]
    assert asyncio.all_tasks() == around
    assert sys.get_asyncgen_hooks() == hooks


def test_code_that_never_lets_itself_be_dropped_is_left_standing() -> None:
    async def code() -> None:
        while True:
            try:
                await fetch()
            except BaseException:
                continue

    live = run(code)
    live.execution.close()
    del live
    gc.collect()  # freeing the coroutine would run its loop for ever


def test_a_finally_block_that_fails_while_being_dropped_decides_nothing() -> None:
    async def code(error: Any) -> None:
        try:
            await fetch()
        finally:
            raise error

    for error in (ValueError("v"), SystemExit(1), KeyboardInterrupt()):
        live = run(code, error)
        live.execution.close()
        assert live.end is None


async def test_workflow_code_runs_inside_a_task_of_another_loop_and_leaves_it_as_it_was() -> None:
    outer = asyncio.get_running_loop()
    task = asyncio.current_task()

    async def code() -> Any:
        assert asyncio.get_running_loop() is not outer
        mine = asyncio.current_task()
        await fetch()
        return mine is asyncio.current_task() and mine is not task

    live = run(code)
    assert asyncio.get_running_loop() is outer
    assert asyncio.current_task() is task
    assert live.deliver("fetch", 0).output is True


def test_context_variables_of_the_caller_are_not_seen() -> None:
    from contextvars import ContextVar

    seen: ContextVar[str] = ContextVar("seen", default="nothing")
    seen.set("the caller's")

    async def code() -> str:
        return seen.get()

    assert run(code).output == "nothing"


def test_a_result_for_a_step_the_code_never_asked_for_is_refused() -> None:
    live = run(fetch_one)
    with pytest.raises(KeyError):
        live.execution.deliver((StepKind.STEP, "other", "#1"), None, live.execution.now)
    live.execution.close()


def test_an_execution_is_no_use_twice() -> None:
    """Its code is a coroutine: the runtime makes a new one for each replay."""
    execution: Execution = run(fetch_one).fresh_execution()
    assert [one.identity[1] for one in execution.begin()] == ["fetch"]
    execution.close()


def test_arguments_that_differ_as_times_do_are_told_what_to_use_instead() -> None:
    async def recorded() -> None:
        await send("booked at 2026-11-20T14:15:31Z")

    async def replayed() -> None:
        await send("booked at 2026-11-20T14:15:33Z")

    reason = changed(recorded, replayed)
    assert "is a time that each run makes again, as it looks, take it from arriero.now()" in reason
    assert "arriero.now()" not in changed(fetch_one, send_one)


async def send_one() -> None:
    await send("a")
