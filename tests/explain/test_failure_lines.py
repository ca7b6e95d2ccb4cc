"""What the log says of failed attempts and broken code, and which lines count as alike."""

from typing import Any

import msgspec
import pytest
from core_rows import NOW, step_policy_text, step_row, task_row

from arriero.explain.failure_lines import describe_failed_attempt, describe_held_task, describe_lost_attempt
from arriero.model import StepKind, StepRow, StepState, TaskState, later
from arriero.model.failures import CapturedError, Frame, StepFailure, TaskFailure
from arriero.model.moves import GaveUp, RetryAsked
from arriero.text.escaping import escape_text

LINE = Frame("shop/bank.py", 12, "charge", "reply = client.get(url)")
REFUSED = StepFailure("transient", "connection refused", "refused", trace=(CapturedError("Transient", (LINE,)),))


def told(failure: StepFailure = REFUSED, *, state: StepState = StepState.PENDING, **changes: Any) -> str:
    step = step_row(name="charge", **({"attempt": 2, "state": state, "not_before": later(NOW, 4.0)} | changes))
    return describe_failed_attempt(step, outcome(step, failure), task_row(), NOW).says


def outcome(step: StepRow, failure: StepFailure) -> RetryAsked | GaveUp:
    return GaveUp(failure, False) if step.state is StepState.FAILED else RetryAsked(failure, False, NOW)


def test_a_line_names_step_task_attempt_why_where_and_when_it_is_tried_again() -> None:
    assert told() == (
        "step charge of task t-1: attempt 1 failed: transient: connection refused [refused] (the line to fix:"
        " shop/bank.py:12, in charge: `reply = client.get(url)`); again at 13:46:44Z (in 4.0 s)"
    )


def test_it_says_why_no_attempt_comes() -> None:
    policy = step_policy_text(attempts=3, rounds=2)
    assert told(state=StepState.FAILED, attempt=6, policy=policy).endswith("; no attempt left of 6")
    permanent = StepFailure("permanent", "declined")
    assert told(permanent, state=StepState.FAILED).endswith("attempt 2 failed: permanent: declined; not tried again")
    starved = StepFailure("expired", "no Agent took it within wait_within", "not_taken")
    assert "no attempt began: expired: no Agent took it" in told(starved, state=StepState.FAILED)
    assert told(state=StepState.WITHDRAWN).endswith("; not tried again: its task is being undone or needs an operator")
    assert told(not_before=None).endswith("; again when its task is resumed")
    undo = {"kind": StepKind.COMPENSATION, "state": StepState.FAILED}
    assert told(permanent, **undo).startswith("the undo of charge of task t-1: attempt 2 failed: ")
    assert told(permanent, **undo).endswith("; not tried again: the undo needs an operator")
    assert told(**(undo | {"state": StepState.PLANNED})).endswith("; it is set aside until its task is resubmitted")


def test_an_instant_far_away_has_its_day() -> None:
    assert told(not_before=later(NOW, 200_000)).endswith("; again at 1970-01-14 21:20:00Z (in 2 d 7 h)")


def test_a_lost_attempt_names_the_process() -> None:
    step = step_row(name="charge", state=StepState.PENDING, not_before=NOW)
    says = describe_lost_attempt(step, task_row(), 7, NOW).says
    assert (
        says == "step charge of task t-1: attempt 1 was lost with process 7 and may have happened; retried immediately"
    )
    assert "its process, which is stuck," in describe_lost_attempt(step, task_row(), None, NOW).says


def test_alike_are_lines_of_one_step_that_fails_for_one_reason_whatever_its_text_says() -> None:
    def kind(failure: StepFailure = REFUSED, **changes: Any) -> object:
        step = step_row(**({"name": "charge", "state": StepState.PENDING, "not_before": NOW} | changes))
        return describe_failed_attempt(step, outcome(step, failure), task_row(), NOW).kind

    assert kind() == kind(msgspec.structs.replace(REFUSED, message="order 17: connection refused"))
    other_line = (CapturedError("Transient", (msgspec.structs.replace(LINE, line=13),)),)
    others = [
        kind(msgspec.structs.replace(REFUSED, code="busy")),
        kind(msgspec.structs.replace(REFUSED, cause="unknown")),
        kind(msgspec.structs.replace(REFUSED, trace=other_line)),
        kind(state=StepState.FAILED),
        kind(name="refund"),
        kind(agent="stock"),
        kind(kind=StepKind.COMPENSATION),
    ]
    assert len({kind(), *others}) == 8


def test_whatever_a_text_holds_an_attempt_is_one_short_line_that_moves_no_cursor() -> None:
    says = told(StepFailure("unknown", "\x1b[2J\nline two" + "x" * 4_000))
    assert escape_text(says) == says
    assert len(says) < 600


def test_a_task_that_is_held_by_its_code_is_told_with_the_traceback_and_any_other_is_not() -> None:
    trace = (CapturedError("KeyError", (LINE,)),)
    held = describe_held_task(
        task_row(state=TaskState.HELD), TaskFailure("bug", "KeyError: 'nix'", code="bug", trace=trace)
    )
    assert held is not None
    assert held.says.splitlines() == [
        "task t-1 of fulfil is held: KeyError: 'nix'; the line to fix: shop/bank.py:12, in charge:"
        " `reply = client.get(url)`",
        "  KeyError",
        "    shop/bank.py:12, in charge",
        "      reply = client.get(url)",
    ]
    assert describe_held_task(task_row(), TaskFailure("step", "charge: declined", "charge")) is None


@pytest.mark.parametrize("source", ["a\nb", "\x1b[2J"])
def test_source_that_would_move_a_cursor_is_escaped(source: str) -> None:
    trace = (CapturedError("KeyError", (msgspec.structs.replace(LINE, source=source),)),)
    held = describe_held_task(task_row(), TaskFailure("bug", "x", trace=trace))
    assert held is not None
    assert escape_text(held.says, keep="\n") == held.says
    assert len(held.says.splitlines()) == 4
