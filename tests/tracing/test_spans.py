"""Which spans a command has ended: each thing once, whoever ends it."""

from typing import Any

import pytest
from core_rows import NOW, done, failed, failure_text, step_row, task_row, undo_row

from arriero.model import Instant, StepKind, StepRow, StepState, TaskState, later
from arriero.model.answers import Applied
from arriero.model.commands import Advance, AnyCommand, EndByLimit, FreeTask, Recover, Report
from arriero.model.failures import StepFailure, TaskFailure
from arriero.model.moves import GaveUp, Hold, Process, Reported, RetryAsked, Succeeded
from arriero.model.trace_context import SpanIds
from arriero.tracing.spans import EndedSpan, find_task_trace, list_ended_spans

LATER = later(NOW, 5.0)
IDS = SpanIds("store")
DECLINED = StepFailure("permanent", "declined", "declined")
SILENT = StepFailure("expired", "no answer within its time")


def spans(
    command: AnyCommand, *steps: StepRow, begun: dict[tuple[int, int], Instant] | None = None, **task: Any
) -> list[EndedSpan]:
    answer = Applied(task_row(**task), steps)
    trace = find_task_trace(IDS, answer.task.task_id, answer.task.trace_context)
    return list(list_ended_spans(command, answer, trace, IDS, lambda: LATER, (begun or {}).pop))


def advance(*delivered: Reported, ending: Any = None) -> Advance:
    return Advance(
        actor="p", task_no=1, process_no=1, fence=1, revision=1, state=TaskState.PROCESSING,
        delivered=delivered, opened=(), ending=ending or Process("null"),
    )  # fmt: skip


def recover(outcome: Any, *, starved: bool = False) -> Recover:
    return Recover(actor="p", step_no=1001, fence=1, starved=starved, outcome=outcome, term=1)


def report(outcome: Any, attempt: int = 1) -> Report:
    return Report(actor="p", process_no=1, report=Reported(1001, 1, outcome, LATER, 2, attempt, None))


def free(hold: TaskFailure | None) -> FreeTask:
    return FreeTask(
        actor="p", task_no=1, fence=1, steps=((1001, 1),), lost_by=2, stuck_since=None, charged=True, hold=hold
    )


ENDED: dict[str, Any] = {"state": TaskState.PROCESSED, "ended_at": LATER, "locked_by": None}
HELD: dict[str, Any] = {"state": TaskState.HELD, "ended_at": LATER, "locked_by": None}
HOLD = TaskFailure("lost", "it lost three processes", code="lost_processes")


def names(found: list[EndedSpan]) -> list[str]:
    return [span.name for span in found]


def test_one_commit_may_end_an_attempt_its_step_and_the_task() -> None:
    reported = Reported(1001, 1, Succeeded("1"), LATER, 3, 1, None)
    attempt, step, task = spans(advance(reported), done(1, finished_at=LATER), begun={(1001, 1): NOW}, **ENDED)
    assert names([attempt, step, task]) == ["step1 attempt", "step1", "fulfil"]
    assert (attempt.span_id, attempt.parent_id) == (IDS.derive_attempt(1001, 1), step.span_id)
    assert (step.span_id, step.parent_id) == (IDS.derive_step(1001, 1), task.span_id)
    assert (task.span_id, task.parent_id) == (IDS.derive_task(1, 1), 0)
    assert (attempt.start, attempt.end, step.start, task.end) == (NOW, LATER, NOW, LATER)
    assert attempt.attributes["arriero.attempt.tries"] == 3
    assert attempt.error is step.error is task.error is None


def test_a_step_that_is_tried_again_has_not_ended_and_its_attempt_has() -> None:
    asked = RetryAsked(DECLINED, LATER, False)
    (attempt,) = spans(report(asked), step_row(1, state=StepState.PENDING, attempt=2))
    assert (attempt.name, attempt.error, attempt.links) == ("step1 attempt", "declined", ())
    assert attempt.attributes["arriero.retried"] is True


def test_the_second_attempt_links_to_the_first() -> None:
    attempt, _ = spans(report(Succeeded("1"), attempt=2), done(1, attempt=2))
    assert attempt.links == ((IDS.derive_trace("t-1"), IDS.derive_attempt(1001, 1)),)


@pytest.mark.parametrize(
    ("outcome", "row", "expected"),
    [
        (RetryAsked(SILENT, LATER, True), step_row(1, state=StepState.PENDING, attempt=3), ["step1 attempt"]),
        (GaveUp(SILENT, True), failed(1, attempt=2), ["step1 attempt", "step1"]),
        (
            RetryAsked(SILENT, LATER, True),
            step_row(1, state=StepState.WITHDRAWN, attempt=3, finished_at=LATER),
            ["step1 attempt", "step1"],
        ),
    ],
    ids=["again", "failed", "withdrawn"],
)
def test_an_attempt_that_expired_is_told_by_the_supervisor_under_its_own_id(
    outcome: Any, row: StepRow, expected: list[str]
) -> None:
    found = spans(recover(outcome), row)
    assert names(found) == expected
    assert found[0].span_id == IDS.derive_attempt(1001, 2)


def test_the_start_of_an_attempt_of_another_process_is_estimated_and_says_so() -> None:
    found, _ = spans(recover(GaveUp(SILENT, True)), failed(1, finished_at=LATER))
    assert found.start == later(LATER, -30.0)  # its policy
    assert found.attributes["arriero.attempt.start_is_estimated"] is True
    known, _ = spans(recover(GaveUp(SILENT, True)), failed(1), begun={(1001, 1): NOW})
    assert "arriero.attempt.start_is_estimated" not in known.attributes


def test_a_request_that_nobody_took_in_time_had_no_attempt() -> None:
    assert names(spans(recover(GaveUp(SILENT, False), starved=True), failed(1, taken=False))) == ["step1"]


def test_a_report_after_the_end_of_its_task_does_not_end_the_task_again() -> None:
    found = spans(report(Succeeded("1")), done(1), failure=failure_text(), **HELD)
    assert names(found) == ["step1 attempt", "step1"]


def test_the_loss_of_a_process_ends_no_attempt_and_the_task_only_if_it_holds_it() -> None:
    pending = step_row(1, state=StepState.PENDING, fence=2)
    assert spans(free(HOLD), pending) == []
    assert spans(free(None), pending, failure=failure_text(), **HELD) == []
    assert (
        spans(free(HOLD), pending, failure=failure_text(), fence=2, **HELD) == []
    )  # it was held before, for another reason
    (task,) = spans(free(HOLD), pending, failure=failure_text("lost", HOLD.reason, code=HOLD.code), fence=2, **HELD)
    assert (task.name, task.error) == ("fulfil", HOLD.reason)


def test_a_limit_ends_the_task_and_withdraws_what_waited() -> None:
    command = EndByLimit(
        actor="p", task_no=1, fence=1, revision=1, state=TaskState.PROCESSING, ending=Hold(HOLD), term=1
    )
    waited = step_row(1, state=StepState.WITHDRAWN, finished_at=LATER, locked_by=None)
    assert names(spans(command, waited, failure=failure_text(), **HELD)) == ["step1", "fulfil"]


def test_timers_and_planned_compensations_are_no_spans() -> None:
    timer = done(1, kind=StepKind.TIMER)
    assert spans(advance(), timer, undo_row(2, done(1))) == []


def test_a_new_incarnation_has_spans_of_its_own_and_links_to_the_one_before() -> None:
    first = spans(advance(), done(1), **ENDED)
    second = spans(advance(), done(1), incarnation=2, submitted_at=LATER, **ENDED)
    assert {span.span_id for span in first}.isdisjoint(span.span_id for span in second)
    assert second[-1].links == ((IDS.derive_trace("t-1"), first[-1].span_id),)
    assert [span.start for span in second] == [LATER, LATER]


def test_a_task_with_a_trace_context_is_a_child_of_its_submitters_span() -> None:
    header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    (task,) = spans(advance(), trace_context=f"{header} vendor=x", **ENDED)
    assert f"{task.parent_id:016x}" == header[36:-3]
    found = find_task_trace(IDS, "t-1", f"{header} vendor=x")
    assert f"{found.trace_id:032x}" == header[3:35]
    assert found.state == "vendor=x"
