"""What customers may read of a task that failed, apart from its reason, which is for operators."""

import pytest

from arriero import (
    Agent,
    App,
    Attempt,
    InDoubt,
    Permanent,
    Retry,
    StepFailed,
    Supervision,
    TaskCompensated,
    TaskFailed,
    Transient,
    Undo,
    testing,
    workflow,
)

SECRET = "http://psp-3.internal:8080/charge says 500"
SAID = "Your bank does not answer. Please try again later."
UNDONE = "The operation could not be completed and was undone."
HELD = "The operation could not be completed yet. It is being looked into."
bank = Agent("bank")


@bank.step
async def book(attempt: Attempt, order: str) -> str:
    return order


@book.compensation(retry=Retry(tries=1), supervision=Supervision(attempts=1))
async def unbook(undo: Undo[str], order: str) -> None:
    raise Permanent(SECRET, public="the undo says nothing to customers")


@bank.step(retry=Retry(tries=1), supervision=Supervision(attempts=1))
async def charge(attempt: Attempt, order: str) -> str:
    return order


@charge.compensation
async def refund(undo: Undo[str], order: str) -> None:
    pass


@workflow
async def sell(order: str) -> str:
    return await charge(order)


@workflow
async def book_and_sell(order: str) -> str:
    await book(order)
    return await charge(order)


@workflow
async def explain_failure(order: str) -> str:
    try:
        return await charge(order)
    except StepFailed as failed:
        raise Permanent(f"no sale: {failed.message}", public=failed.public) from failed


@workflow(supervision=Supervision(then="hold"))
async def hold(order: str) -> str:
    return await charge(order)


@workflow
async def buggy(order: str) -> str:
    raise RuntimeError(SECRET)


shop = App("shop", agents=[bank], workflows=[sell, book_and_sell, explain_failure, hold, buggy])


@pytest.mark.parametrize("flow", [sell, explain_failure])
@pytest.mark.parametrize(
    "error", [Permanent(SECRET, public=SAID), Transient(SECRET, public=SAID), InDoubt(SECRET, public=SAID)]
)
async def test_the_text_of_a_step_s_error_reaches_the_caller_and_the_reason_stays_beside_it(
    flow: object, error: Exception
) -> None:
    async with testing.running(shop) as world:
        world.answers(charge, error)
        task = await world.app.submit(flow("o-1"))  # type: ignore[operator]
        with pytest.raises(TaskCompensated) as ended:
            await task.result()
        assert ended.value.public == SAID
        assert SECRET in ended.value.reason
        assert (await task.view()).public == SAID


@pytest.mark.parametrize(("flow", "neutral"), [(sell, UNDONE), (explain_failure, UNDONE), (hold, HELD), (buggy, HELD)])
@pytest.mark.parametrize("error", [Permanent(SECRET, code="psp_down"), ConnectionError(SECRET)])
async def test_without_a_text_customers_get_a_neutral_sentence_and_never_the_reason(
    flow: object, neutral: str, error: Exception
) -> None:
    async with testing.running(shop) as world:
        world.answers(charge, error)
        task = await world.app.submit(flow("o-1"))  # type: ignore[operator]
        with pytest.raises(TaskFailed) as ended:
            await task.result()
        assert ended.value.public == (await task.view()).public == neutral
        assert SECRET in ended.value.reason


async def test_an_undo_that_fails_keeps_the_text_of_what_the_customer_asked_for() -> None:
    async with testing.running(shop) as world:
        world.answers(charge, Permanent(SECRET, public=SAID))
        task = await world.app.submit(book_and_sell("o-1"))
        with pytest.raises(TaskFailed) as ended:
            await task.result()
        assert (ended.value.state, ended.value.public) == ("held", SAID)


async def test_a_person_s_reason_to_cancel_is_not_shown_to_customers() -> None:
    async with testing.running(shop) as world:
        task = await world.app.submit(sell("o-1"))
        await task.result()
        await task.compensate(by="ana", reason="looks like fraud")
        with pytest.raises(TaskCompensated) as ended:
            await task.result()
        assert "looks like fraud" in ended.value.reason
        assert ended.value.public == UNDONE
