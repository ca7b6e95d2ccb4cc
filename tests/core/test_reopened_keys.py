"""The keys of a step whose arguments an operator has edited: those of the arguments that are sent."""

from core_rows import step_row, task_row

from arriero import Agent, Attempt, Concurrent
from arriero.core.drive import build_reopened_step
from arriero.core.replay import RequestedStep
from arriero.model import StepKind, StepState
from arriero.model.agents import encode_limit_keys


def of_merchant(merchant: str) -> str:
    return merchant


payments = Agent("payments", limits=[Concurrent(1, key=of_merchant, name="of merchant")], breaker_key=of_merchant)


@payments.step
async def charge(attempt: Attempt, merchant: str) -> None: ...


def test_a_reopened_step_is_counted_under_the_keys_of_its_edited_arguments() -> None:
    call = charge("first")
    asked = RequestedStep((StepKind.STEP, "charge", "#1"), call.arguments, call, definition=call.step)
    edited = step_row(
        1, state=StepState.WITHDRAWN, arguments='{"merchant":"edited"}', asked=call.arguments, agent="payments"
    )
    new = build_reopened_step(asked, edited, task_row(), "store")
    assert new.limit_keys == encode_limit_keys({"of merchant": "edited"})
    assert new.target == "edited"
