"""The trace context of a submission stays with its task and reaches each attempt, in every store."""

import pytest
from store_world import World, step, submission

HEADER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 vendor=x"


@pytest.mark.parametrize("context", [HEADER, None], ids=["given", "none"])
@pytest.mark.parametrize("place", [{}, {"convoy": "k"}], ids=["free", "in convoy"])
async def test_it_is_kept_with_the_task_and_given_to_each_attempt(
    world: World, context: str | None, place: dict[str, str]
) -> None:
    process_no = await world.process()
    number = await world.submit("order-1", trace_context=context, **place)
    assert (await world.load(number)).task.trace_context == context
    (claimed,) = await world.claim(process_no)
    task = claimed.task
    assert task.trace_context == context
    await world.opened(task, step("charge"))
    (dispatch,) = await world.take(process_no)
    assert dispatch.trace_context == context


async def test_the_same_submission_with_another_trace_is_the_same_task_and_keeps_the_first_one(world: World) -> None:
    first, again = submission(trace_context=HEADER), submission(trace_context=None)
    (created,) = await world.store.submit([first])
    (known,) = await world.store.submit([again])
    assert (created.created, known.created) == (True, False)  # type: ignore[union-attr]
    assert (await world.load(known.task_no)).task.trace_context == HEADER  # type: ignore[union-attr]
