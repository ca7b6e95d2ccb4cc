"""Random concurrent workflows, replayed from every prefix of their record: the same steps, arguments and results.

A workflow is a small tree, interpreted by one ``async def``. Its steps' arguments hold what was seen so far, so that a
result seen in another order shows at the next step.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from core_rows import NOW, failed, task_row
from core_runs import Replay, Run, asked_as, result_of
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

import arriero
from arriero import Agent, StepFailed, workflow
from arriero.core.code_end import Raised, Returned
from arriero.core.replay import Execution, RequestedStep, identify_step, replay
from arriero.core.task_run import find_new_results
from arriero.model import Loaded, StepKind, StepRow, StepState, later
from arriero.model.failures import TaskFailure
from arriero.model.signals import is_note, is_patch

remote = Agent("remote")


@remote.step
def first(attempt: arriero.Attempt, value: int, seen: int) -> int: ...


@remote.step
def second(attempt: arriero.Attempt, value: int, seen: int) -> int: ...


STEPS = (first, second)
Node = tuple[Any, ...]
CatchUp = Callable[[Execution, list[StepRow], list[StepRow]], None]


def nodes() -> st.SearchStrategy[Node]:
    leaves = st.one_of(
        st.tuples(st.just("step"), st.sampled_from(range(len(STEPS)))),
        st.tuples(st.just("sleep"), st.integers(0, 3)),
        st.tuples(st.just("draw")),
    )

    def extend(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        several = st.lists(inner, min_size=1, max_size=4)
        return st.one_of(
            st.tuples(st.just("sequence"), several),
            st.tuples(st.just("gather"), several),
            st.tuples(st.just("group"), several),
            st.tuples(st.just("wait"), several, st.sampled_from(["await", "cancel", "leave"])),
            st.tuples(st.just("branch"), inner, inner),
            st.tuples(st.just("try"), inner, inner),
            st.tuples(st.just("patch"), st.integers(0, 2), inner),
        )

    return st.recursive(leaves, extend, max_leaves=12)


class Seen:
    """What all parts of one run have seen, in the order in which they saw it."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.knows_patches = True

    def __call__(self, value: Any) -> Any:
        self.values.append(value)
        return value

    @property
    def digest(self) -> int:
        return hash(tuple(self.values)) % 1000  # of numbers only: the same in every process


async def interpret(node: Node, value: int, seen: Seen) -> int:
    match node:
        case ("step", which):
            return int(seen(await STEPS[which](value, seen.digest)))
        case ("sleep", duration):
            await arriero.sleep(duration)
            return value + int(seen(arriero.now().timestamp() % 1000))
        case ("draw",):
            seen(arriero.uuid().int % 1000)
            return value + int(seen(arriero.random().randrange(10)))
        case ("sequence", parts):
            for part in parts:
                value = await interpret(part, value, seen)
            return value
        case ("gather", parts):
            return sum(await asyncio.gather(*(interpret(part, value + i, seen) for i, part in enumerate(parts))))
        case ("group", parts):
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(interpret(part, value + i, seen)) for i, part in enumerate(parts)]
            return sum(task.result() for task in tasks)
        case ("wait", parts, then):
            return await interpret_wait(parts, then, value, seen)
        case ("branch", even, odd):
            return await interpret(odd if value % 2 else even, value, seen)
        case ("try", body, handler):
            try:
                value = await interpret(body, value, seen)
            except* StepFailed as failed:
                value += len(failed.exceptions)
                seen(-1)
                value = await interpret(handler, value, seen)
            return value
        case ("patch", name, inner):
            if seen.knows_patches and arriero.patched(f"change-{name}"):
                value = int(seen(await first(value, seen.digest)))
            return await interpret(inner, value, seen)
    raise AssertionError(node)


async def interpret_wait(parts: Sequence[Node], then: str, value: int, seen: Seen) -> int:
    tasks = {asyncio.create_task(interpret(part, value + i, seen)) for i, part in enumerate(parts)}
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        value = value * 3 + int(seen(-2 if task.exception() else task.result()))
    for task in pending:
        if then == "cancel":
            task.cancel()
        elif then == "await":
            value += await task
    return value


@workflow
async def program(node: Any) -> tuple[int, list[Any]]:
    seen = Seen()
    value = await interpret(node, 1, seen)
    return value, seen.values


@workflow
async def program_before(node: Any) -> tuple[int, list[Any]]:
    """The release before, which knows no patch."""
    seen = Seen()
    seen.knows_patches = False
    value = await interpret(node, 1, seen)
    return value, seen.values


def live_run(node: Node, chance: int) -> tuple[Run, list[list[StepRow]]]:
    """Run it, results recorded in an order and with failures by chance; answers also with the record after each."""
    run = Run(program, node, seed=chance)
    records = [list(run.rows)]
    go_on_live(run, random.Random(chance), lambda: records.append(list(run.rows)))
    return run, records


def go_on_live(run: Run, draw: random.Random, note: Callable[[], None], results_max: int = 10**6) -> None:
    """Record results until the code ends. ``note``: called after each."""
    for _ in range(results_max):
        if run.end is not None:
            return
        row = draw.choice([row for row in run.rows if row.state is StepState.PENDING])
        if row.kind is StepKind.TIMER:
            run.deliver(row.label)
        elif draw.random() < 0.2:
            run.fail(row.label)
        else:
            run.deliver(row.label, draw.randrange(10))
        note()


def replays_alike(node: Node, chance: int, by: Replay = replay) -> bool:
    """The property: from every prefix of the record, and then on along the rest of it, all is the same."""
    run, records = live_run(node, chance)
    for number, record in enumerate(records):
        # As it stands after a commit, and as if the process died before the steps its last result opened were recorded.
        without_last = record[: len(records[max(number - 1, 0)])]
        if not all(replays_alike_from(run, number, rows, by) for rows in (record, without_last)):
            return False
    return True


def replays_alike_from(run: Run, number: int, rows: list[StepRow], by: Replay) -> bool:
    """The same for a record of ``number`` results and these rows."""
    recorded = {identify_step(row) for row in rows}
    asked_before = [one for asked in run.opened_by[: number + 1] for one in asked]
    all_awaited = [asked_as(one) for asked in run.opened_by for one in asked if not is_note(*one.identity[:2])]
    execution, fresh, why = run.replayed(rows, by=by)
    try:
        return (
            why is None
            and [asked_as(one) for one in fresh] == [asked_as(o) for o in asked_before if o.identity not in recorded]
            and [asked_as(one) for one in execution.asked.values()]
            == [asked_as(one) for one in asked_before if not is_note(*one.identity[:2])]
            and goes_on_alike(run, execution, number)
            and [asked_as(one) for one in execution.asked.values()] == all_awaited
            and execution.end == run.end
        )
    finally:
        execution.close()


def goes_on_alike(run: Run, execution: Execution, number: int) -> bool:
    later_rows = sorted(
        (r for r in run.rows if (r.result_number or 0) > number), key=lambda row: row.result_number or 0
    )
    for row in later_rows:
        if execution.end is not None or identify_step(row) not in execution.asked:
            return False
        assert row.delivered_at is not None
        asked = execution.deliver(identify_step(row), result_of(execution, row), row.delivered_at)
        wanted = run.opened_by[row.result_number or 0]
        if [asked_as(one) for one in asked] != [asked_as(one) for one in wanted]:
            return False
    return True


def go_on(execution: Execution, known: list[StepRow], now: list[StepRow]) -> None:
    """Deliver the results that are new in a record."""
    found = find_new_results(task_row(), {row.step_no: row for row in known}, Loaded(task_row(), "{}", tuple(now)))
    assert found is not None
    for row in found:
        assert row.delivered_at is not None
        execution.deliver(identify_step(row), result_of(execution, row), row.delivered_at)


def catches_up_alike(node: Node, chance: int, by: CatchUp = go_on) -> bool:
    """The property: code that goes on with results of others stands where a replay of their record stands."""
    run, records = live_run(node, chance)
    draw = random.Random(chance + 1)
    for record in records:
        newer = with_results_of_others(record, draw)
        going_on, _, _ = run.replayed(record)
        anew, _, why = run.replayed(newer)
        try:
            if going_on.end is None and newer != record:
                by(going_on, record, newer)
                if why is not None or stands(going_on) != stands(anew):
                    return False
        finally:
            going_on.close()
            anew.close()
    return True


def with_results_of_others(record: list[StepRow], draw: random.Random) -> list[StepRow]:
    """Some of the open steps with a result each, recorded in any order."""
    newer = list(record)
    number = max((row.result_number or 0 for row in record), default=0)
    open_steps = [i for i, row in enumerate(record) if row.result_number is None and row.kind is StepKind.STEP]
    for index in draw.sample(open_steps, draw.randint(0, len(open_steps))):
        number += 1
        result: dict[str, Any] = {"state": StepState.COMPLETED, "result": str(draw.randrange(10))}
        if draw.random() < 0.2:
            result = {"state": StepState.FAILED, "failure": failed().failure}
        at = later(NOW, number)
        newer[index] = msgspec.structs.replace(record[index], result_number=number, delivered_at=at, **result)
    return newer


def stands(execution: Execution) -> tuple[Any, ...]:
    """Where code stands: all it has asked for, in order, how it ended, what came too late, and its time."""
    asked = [asked_as(one) for one in execution.asked.values()]
    return asked, execution.end, execution.unseen, execution.now


def replay_all_at_once(
    execution: Execution, steps: Sequence[StepRow], result_of: Callable[[StepRow], Any]
) -> tuple[list[RequestedStep], TaskFailure | None]:
    """What replay must not do: hand over every recorded result before the code runs again."""
    new = execution.begin()
    left = sorted((s for s in steps if s.result_number is not None), key=lambda step: step.result_number or 0)
    run_code = execution._run
    while ready := [step for step in left if identify_step(step) in execution._waiting and execution.end is None]:
        execution._run = list  # type: ignore[method-assign]
        for step in ready:
            assert step.delivered_at is not None
            execution.deliver(identify_step(step), result_of(step), step.delivered_at)
        new += run_code()
        left = [step for step in left if step not in ready]
    recorded = {identify_step(step) for step in steps}
    vars(execution).pop("_run", None)  # the class's own again
    return [one for one in new if one.identity not in recorded], None


cases = st.tuples(nodes(), st.integers(0, 2**32))
quick = settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@quick
@given(cases)
def test_from_every_prefix_of_its_record_a_workflow_asks_for_the_same_and_ends_alike(case: tuple[Node, int]) -> None:
    assert replays_alike(*case)


def test_the_random_workflows_reach_every_construct_and_every_end() -> None:
    reached: set[str] = set()

    def note(node: Any) -> None:
        if isinstance(node, tuple):
            reached.add(node[0])
        for part in node if isinstance(node, tuple | list) else ():
            note(part)

    @quick
    @given(cases)
    def collect(case: tuple[Node, int]) -> None:
        run, _ = live_run(*case)
        note(case[0])
        if isinstance(run.end, Returned):
            reached.add("returned")
        elif isinstance(run.end, Raised):
            reached.add(f"raised {run.end.failure.kind}")
        if any(row.state is StepState.PENDING for row in run.rows):
            reached.add("steps left open")
        if any(map(is_patch, run.rows)):
            reached.add("patched")
        if run.results > 5:
            reached.add("many results")

    collect()
    assert reached >= {
        "step", "sleep", "draw", "sequence", "gather", "group", "wait", "branch", "try", "patch", "patched",
        "returned", "raised step", "raised unawaited", "steps left open", "many results",
    }  # fmt: skip


def test_results_delivered_all_at_once_would_be_convicted() -> None:
    """The property is not vacuous: it finds the workflow that tells one result at a time from all at once."""
    found = find(
        cases,
        lambda case: replays_alike(*case) and not replays_alike(*case, by=replay_all_at_once),
        settings=settings(quick, max_examples=2000, database=None),
    )
    assert replays_alike(*found)


def test_results_delivered_in_another_order_would_be_convicted() -> None:
    def by_opening(
        execution: Execution, steps: Sequence[StepRow], result_of: Callable[[StepRow], Any]
    ) -> tuple[list[RequestedStep], TaskFailure | None]:
        ended = [step for step in steps if step.result_number is not None]
        number = {step.step_no: i for i, step in enumerate(ended, 1)}
        other = [msgspec.structs.replace(step, result_number=number.get(step.step_no)) for step in steps]
        return replay(execution, other, result_of)

    find(
        cases,
        lambda case: not replays_alike(*case, by=by_opening),
        settings=settings(quick, max_examples=2000, database=None),
    )


@quick
@given(cases)
def test_code_that_goes_on_with_results_of_others_stands_where_a_replay_of_the_record_stands(
    case: tuple[Node, int],
) -> None:
    assert catches_up_alike(*case)


def test_results_of_others_delivered_in_the_order_of_opening_would_be_convicted() -> None:
    def by_opening(execution: Execution, known: list[StepRow], now: list[StepRow]) -> None:
        numbers = sorted(row.result_number for row in now if row not in known and row.result_number is not None)
        new = iter(numbers)
        other = [row if row in known else msgspec.structs.replace(row, result_number=next(new)) for row in now]
        go_on(execution, known, other)

    find(
        cases,
        lambda case: not catches_up_alike(*case, by=by_opening),
        settings=settings(quick, max_examples=2000, database=None),
    )


def test_what_is_searched_for_in_vain_is_not_found() -> None:
    """The convictions above rest on this: a search that finds nothing says so."""
    with pytest.raises(NoSuchExample):
        find(cases, lambda _: False, settings=settings(quick, max_examples=10, database=None))


def upgraded_run(node: Node, chance: int, results: int) -> tuple[Run, list[list[StepRow]]]:
    """Let the code of the release before record some results, then today's code take the task up and end it."""
    draw, run, records = random.Random(chance), Run(program_before, node, seed=chance), []
    go_on_live(run, draw, lambda: None, results)
    if run.end is None:
        run.upgrade(program)
        records.append(list(run.rows))
        go_on_live(run, draw, lambda: records.append(list(run.rows)))
    return run, records


def upgrades_alike(node: Node, chance: int, results: int) -> bool:
    """The property: code with a patch takes up every record of code without it, and each later replay sees the same."""
    run, records = upgraded_run(node, chance, results)
    return all(replays_alike_from(run, number, rows, replay) for number, rows in enumerate(records, start=results))


def put_patch_between(before: Node, name: int, inside: Node, after: Node) -> Node:
    return ("sequence", [before, ("patch", name, inside), after])


patched_nodes = st.builds(put_patch_between, nodes(), st.integers(0, 2), nodes(), nodes())
upgrades = st.tuples(patched_nodes, st.integers(0, 2**32), st.integers(0, 6))


@quick
@given(upgrades)
def test_code_with_a_patch_takes_up_every_record_of_the_code_before_it(case: tuple[Node, int, int]) -> None:
    assert upgrades_alike(*case)


def test_the_random_upgrades_reach_both_branches() -> None:
    answers: set[bool] = set()

    @quick
    @given(upgrades)
    def collect(case: tuple[Node, int, int]) -> None:
        answers.update(upgraded_run(*case)[0].execution._patches.values())

    collect()
    assert answers == {True, False}


def test_a_patch_that_leaves_no_mark_would_be_convicted(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer_only(execution: Execution, name: str) -> bool:
        return execution._patches.setdefault(name, not any(map(execution._is_ahead, execution._ahead)))

    monkeypatch.setattr(Execution, "patched", answer_only)
    find(
        upgrades,
        lambda case: not upgrades_alike(*case),
        settings=settings(quick, max_examples=2000, database=None, phases=[Phase.generate]),
    )
