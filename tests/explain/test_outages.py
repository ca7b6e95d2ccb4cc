"""Whether it is one task, or everything: what doctor makes of attempts."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.explain.doctor import WAIT_SECONDS_MAX, Finding, needs_care
from arriero.explain.outages import (
    FAILING_ATTEMPTS_MIN,
    OUTAGE_ATTEMPTS_SURE,
    OUTAGE_SECONDS_MIN,
    REASON_LENGTH_MAX,
    REFUSED_TASKS_MIN,
    REPEATED_MIN,
    WINDOW_SECONDS,
    diagnose_attempts,
    failure_kind,
    is_outage,
    measure_agents,
    summarize_failures,
)
from arriero.inspection.attempts import AttemptEnd, AttemptSurvey, Requests, Retrying
from arriero.model import Instant, later, seconds_between
from arriero.model.failures import StepFailure
from arriero.model.processes import ProcessAbout, ProcessRow

NOW = Instant(1_700_000_000_000_000)
REFUSED = StepFailure("transient", "connection refused")
DECLINED = StepFailure("permanent", "card declined", "declined")


def ago(seconds: float) -> Instant:
    return later(NOW, -seconds)


def end(task_no: int, seconds_ago: float, failure: StepFailure | None = REFUSED, agent: str = "payments") -> AttemptEnd:
    return AttemptEnd(at=ago(seconds_ago), agent=agent, task_no=task_no, failure=failure)


def retrying(task_no: int, failure_count: int = 1, **changes: Any) -> Retrying:
    step = Retrying(
        agent="payments",
        task_no=task_no,
        task_id=f"order-{task_no}",
        step="charge",
        attempt=failure_count + 1,
        failure_count=failure_count,
        failure=REFUSED,
        is_running=False,
        next_at=later(NOW, 20),
    )
    return msgspec.structs.replace(step, **changes)


def survey(
    ends: Sequence[AttemptEnd] = (), tried: Sequence[Retrying] = (), requests: Sequence[Requests] = (), **changes: Any
) -> AttemptSurvey:
    in_order = tuple(sorted(ends, key=lambda one: one.at))
    found = AttemptSurvey(now=NOW, retrying=tuple(tried), requests=tuple(requests), ends=in_order, ends_from=None)
    return msgspec.structs.replace(found, **changes)


def process(steps: tuple[tuple[str, str], ...] = (("payments", "charge"),)) -> ProcessRow:
    about = ProcessAbout(app="shop", roles=("agents",), steps=steps)
    return ProcessRow(1, "host-1-abcdef012345", later(NOW, 3), False, msgspec.json.encode(about).decode())


def test_requests_that_wait_for_a_url_are_no_matter_of_room() -> None:
    steps = (("payments", "charge"), ("payments", "collect"))
    about = ProcessAbout(app="shop", roles=("agents",), steps=steps, without_url=steps[1:])
    lacking = ProcessRow(2, "host-2-abcdef012345", later(NOW, 3), False, msgspec.json.encode(about).decode())
    found = survey(requests=[Requests(agent="payments", due=7, oldest_at=ago(600), running=3)])
    (starved,) = [one for one in diagnose_attempts(found, [lacking]) if one.about == "starved"]
    assert "; step collect: its callback needs a URL, and no public_url is set for process 2" in starved.says
    assert starved.remedy.startswith("set public_url in arriero.toml")
    other = msgspec.structs.replace(about, without_url=())
    with_url = msgspec.structs.replace(lacking, process_no=3, about=msgspec.json.encode(other).decode())
    (starved,) = [one for one in diagnose_attempts(found, [lacking, with_url]) if one.about == "starved"]
    assert "max_in_flight" in starved.remedy


def diagnosed(found: AttemptSurvey) -> list[Finding]:
    return diagnose_attempts(found, (process(),))


def care(found: AttemptSurvey) -> Finding:
    (one,) = [finding for finding in diagnosed(found) if finding.level == "care"]
    return one


def outage(tasks: int = 12, attempts: int = 7) -> AttemptSurvey:
    """Every task failed so many times in the last half minute."""
    ends = [end(task, 30 - 4 * attempt - task / 100) for task in range(1, tasks + 1) for attempt in range(attempts)]
    return survey(ends, [retrying(task, attempts) for task in range(1, tasks + 1)])


# --- everything, or one task
def test_an_outage_is_told_with_its_agent_tasks_reason_and_beginning() -> None:
    found = care(outage())
    assert found.about == "outage"
    assert found.says == (
        "Agent payments: all 12 tasks that asked it failed since 2023-11-14 22:12:50Z (29 s ago): transient: connection"
        " refused; 84 attempts failed and nothing succeeded; 12 tasks wait for their next attempt, the first in 20 s"
    )
    assert found.remedy == (
        "see whether its service answers; arriero task list --agent payments, then arriero task explain order-1"
    )


def test_an_outage_begins_after_the_last_success() -> None:
    before = outage()
    ends = [end(99, 200), end(98, 100, None), *before.ends]
    found = care(msgspec.structs.replace(before, ends=tuple(ends)))
    assert "all 12 tasks" in found.says
    assert "since 2023-11-14 22:12:50Z (29 s ago): " in found.says


def test_one_task_among_many_is_named_and_the_others_are_counted() -> None:
    ends = [end(task, 200 - task / 2, None) for task in range(1, 240)] + [end(240, 60 - at) for at in range(5)]
    found = care(survey(ends, [retrying(240, 5, task_id="order-17")]))
    assert found.about == "repeating"
    assert found.says == (
        "Agent payments: 1 of 240 tasks fails again and again: order-17 (step charge failed 5 times in a row, last with"
        " transient: connection refused; attempt 6 in 20 s); 239 attempts succeeded in the last 5 min"
    )
    assert found.remedy.endswith("arriero task explain order-17")


def test_the_only_task_there_is_tells_nothing_of_the_service() -> None:
    found = care(survey([end(1, 60 - at) for at in range(4)], [retrying(1, 4)]))
    assert found.about == "repeating"
    assert "the only task that asked it in the last 5 min fails again and again: order-1" in found.says


def test_a_success_ends_an_outage() -> None:
    down = outage(attempts=2)
    up = msgspec.structs.replace(down, ends=(*down.ends, end(99, 0, None)))
    assert needs_care(diagnosed(down))
    assert [finding.about for finding in diagnosed(up) if finding.level == "care"] == ["failing"]
    few = outage(tasks=3, attempts=2)
    assert not needs_care(diagnosed(msgspec.structs.replace(few, ends=(*few.ends, end(99, 0, None)))))


def test_attempts_that_failed_and_were_tried_again_with_success_need_nobody() -> None:
    ends = [end(task, 100 - task) for task in range(1, 8)] + [end(task, 50 - task, None) for task in range(1, 40)]
    assert not needs_care(diagnosed(survey(ends)))
    assert not needs_care(diagnosed(survey([*ends, end(50, 0.5)], [retrying(50)])))


def test_most_attempts_that_fail_are_an_ill_service_though_some_succeed() -> None:
    ends = [end(task, 100 - task) for task in range(FAILING_ATTEMPTS_MIN)] + [end(90 + at, 50, None) for at in range(9)]
    found = care(survey(ends))
    assert found.about == "failing"
    assert found.says == (
        "Agent payments: 10 of 19 attempts failed in the last 5 min, and 10 of 19 tasks have no other answer: transient:"
        " connection refused; 9 succeeded"
    )
    since_then = [end(task, 10, None) for task in range(1, FAILING_ATTEMPTS_MIN)]
    assert not needs_care(diagnosed(survey([*ends[:9], *since_then, *ends[9:]])))  # the service is back
    assert not needs_care(diagnosed(survey([*ends, end(200, 40, None), end(201, 40, None)])))


def test_answers_that_refuse_are_an_outage_only_when_many_come_without_one_success() -> None:
    declined = [end(task, 100 - task, DECLINED) for task in range(REFUSED_TASKS_MIN)]
    assert care(survey(declined)).about == "outage"
    assert "permanent: card declined [declined]" in care(survey(declined)).says
    assert not needs_care(diagnosed(survey(declined[1:])))
    assert not needs_care(diagnosed(survey([*declined, end(99, 0, None)])))


def test_tasks_that_cool_off_for_longer_than_anybody_looked_are_still_an_outage() -> None:
    cooling = [retrying(task, 3, next_at=later(NOW, 600)) for task in (1, 2)]
    found = care(survey([end(9, 1, None, "stock")], cooling, ends_from=ago(5)))
    assert found.about == "outage"
    assert "all 2 tasks that asked it failed in the last 5.0 s and before: transient: connection refused;" in found.says
    assert found.says.endswith("2 tasks wait for their next attempt, the first in 10 min")


def test_what_was_not_looked_at_is_not_left_out_of_the_numbers() -> None:
    requests = [Requests(agent="payments", later=20_000)]
    cut = msgspec.structs.replace(outage(), requests=tuple(requests), ends_from=ago(40))
    says = care(cut).says
    assert "at least 12 tasks, all that asked it, failed since 2023-11-14 22:12:50Z (29 s ago) or earlier: " in says
    assert "20,000 requests wait for their next attempt" in says


def test_failures_of_long_ago_whose_tasks_have_ended_need_nobody() -> None:
    assert not needs_care(diagnosed(survey([end(task, WINDOW_SECONDS + 60 + task) for task in range(40)])))


def test_a_step_of_a_paused_task_and_one_that_runs_are_told_as_that() -> None:
    paused, running = retrying(1, 3, next_at=None), retrying(2, 3, next_at=None, is_running=True)
    due = retrying(3, 3, next_at=NOW)
    ends = [end(task, 1, None) for task in range(10, 90)]
    says = care(survey(ends, [paused, running, due])).says
    assert "attempt 4 waits until the task is resumed" in says
    assert "attempt 4 runs now" in says
    assert "attempt 4 is due" in says


def test_each_agent_is_judged_alone() -> None:
    found = outage()
    ends = (*found.ends, *(end(task, 1, None, "stock") for task in range(500)))
    findings = diagnosed(msgspec.structs.replace(found, ends=ends))
    assert [finding.about for finding in findings if finding.level == "care"] == ["outage"]


def test_names_from_data_are_quoted_in_what_is_to_be_typed() -> None:
    odd = [msgspec.structs.replace(step, agent="it's", task_id="-x; y") for step in outage().retrying]
    ends = [msgspec.structs.replace(one, agent="it's") for one in outage().ends]
    assert care(survey(ends, odd)).remedy.endswith(
        "arriero task list --agent 'it'\"'\"'s', then arriero task explain -- '-x; y'"
    )


# --- reasons
def test_reasons_are_grouped_by_what_they_have_in_common() -> None:
    orders = [StepFailure("transient", f"order {number} at host '{number}' failed") for number in range(4)]
    assert len({failure_kind(failure) for failure in orders}) == 1
    assert summarize_failures(orders) == "transient: order 3 at host '3' failed"
    assert summarize_failures([*orders, DECLINED]).endswith("(4 tasks); permanent: card declined [declined] (1 task)")
    many = [StepFailure("unknown", "", f"c{number}") for number in range(5)]
    assert summarize_failures(many).endswith("; and 2 other reasons")


def test_a_long_reason_is_cut() -> None:
    assert len(summarize_failures([StepFailure("unknown", "x" * 9_000)])) == REASON_LENGTH_MAX


# --- requests that nobody takes
@pytest.mark.parametrize(
    ("running", "steps", "says", "remedy"),
    [
        (10, (("payments", "charge"),), "10 attempts of it are running, so its places may all be taken", "more room"),
        (0, (("payments", "charge"),), "no attempt of it is running although", "more room"),
        (0, (("stock", "pack"),), "7 requests are due and untaken", "no process alive hosts it"),
    ],
)
def test_requests_that_wait_too_long_are_told_by_agent(
    running: int, steps: tuple[tuple[str, str], ...], says: str, remedy: str
) -> None:
    waiting = Requests(agent="payments", due=7, oldest_at=ago(WAIT_SECONDS_MAX + 1), running=running)
    (found,) = [one for one in diagnose_attempts(survey(requests=[waiting]), [process(steps)]) if one.level == "care"]
    assert found.about == "starved"
    assert found.says.startswith("Agent payments: 7 requests are due and untaken, the oldest since ")
    assert says in found.says
    assert remedy in found.remedy


def test_requests_that_wait_a_while_are_counted_and_need_nobody() -> None:
    waiting = [Requests(agent=name, due=2, oldest_at=ago(WAIT_SECONDS_MAX)) for name in ("payments", "stock")]
    (found,) = [one for one in diagnosed(survey(requests=waiting)) if one.about == "starved"]
    assert (found.level, found.says[:30]) == ("fine", "4 requests are due and untaken")


def test_where_nothing_happens_nothing_needs_care() -> None:
    assert [(one.level, one.says) for one in diagnosed(survey())] == [
        ("fine", "no attempt ended in the last 5 min"),
        ("fine", "no request is due and untaken by any Agent"),
    ]


# --- properties
FAILURES = st.sampled_from([None, REFUSED, DECLINED, StepFailure("expired", "no answer", "expired")])
ENDS = st.lists(
    st.builds(
        end, st.integers(1, 6), st.floats(0, 2 * WINDOW_SECONDS), FAILURES, st.sampled_from(["payments", "stock"])
    ),
    max_size=40,
)
TRIED = st.lists(
    st.builds(
        retrying,
        st.integers(1, 6),
        st.integers(1, 9),
        agent=st.sampled_from(["payments", "stock"]),
        is_running=st.booleans(),
        next_at=st.one_of(st.none(), st.integers(-60, 900).map(ago)),
    ),
    max_size=8,
)
SURVEYS = st.builds(survey, ENDS, TRIED, ends_from=st.one_of(st.none(), st.floats(0, WINDOW_SECONDS).map(ago)))


@given(SURVEYS)
def test_every_agent_is_told_of_at_most_once_and_numbers_agree(found: AttemptSurvey) -> None:
    of_agents = [finding.says for finding in diagnosed(found) if finding.says.startswith("Agent ")]
    names = [says.split(":")[0] for says in of_agents]
    assert len(names) == len(set(names))
    assert all("\n" not in says for says in of_agents)
    for health in measure_agents(found):
        assert health.refused <= health.down <= health.last.keys()
        assert health.down | health.unhelped <= health.asked
        assert not health.down or health.attempts_down > 0


@given(SURVEYS)
def test_no_outage_where_the_last_attempt_succeeded_or_fewer_than_two_tasks_failed(found: AttemptSurvey) -> None:
    for health in measure_agents(found):
        of_agent = [one for one in found.ends if one.agent == health.agent]
        has_just_succeeded = bool(of_agent) and of_agent[-1].failure is None
        if has_just_succeeded or len(health.down) < 2:
            assert not is_outage(health, found.now)


@given(SURVEYS)
def test_one_failure_of_each_task_needs_nobody_while_something_succeeds(found: AttemptSurvey) -> None:
    once = {(one.agent, one.task_no): one for one in found.ends if one.failure is not None}
    succeeded = [end(99, 0, None, agent) for agent in {agent for agent, _ in once}]
    tried = [retrying(one.task_no, agent=one.agent) for one in once.values()]
    assert not needs_care(diagnosed(survey([*once.values(), *succeeded], tried)))


@given(st.integers(2, 40), st.integers(1, 9), st.floats(0, WINDOW_SECONDS))
def test_whatever_fails_often_enough_or_long_enough_without_a_success_is_an_outage(
    tasks: int, attempts: int, seconds: float
) -> None:
    ends = [end(task, seconds) for task in range(tasks) for _ in range(attempts)]
    found = survey(ends, [retrying(task, attempts) for task in range(tasks)])
    (health,) = measure_agents(found)
    expected = len(ends) >= 3 and (len(ends) >= OUTAGE_ATTEMPTS_SURE or _seconds_ago(ends[0]) >= OUTAGE_SECONDS_MIN)
    assert is_outage(health, NOW) == expected
    if expected or attempts >= REPEATED_MIN:
        assert needs_care(diagnosed(found))


def _seconds_ago(one: AttemptEnd) -> float:
    return seconds_between(one.at, NOW)
