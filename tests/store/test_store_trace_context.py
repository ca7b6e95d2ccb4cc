"""The trace context of a submission stays with its task and reaches each attempt, in every store."""

import pytest
from store_world import FAILED, World, step, submission

from arriero.model.commands import HandOver
from arriero.model.moves import Hold, Process

HEADER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 vendor=x"
FIRST, SECOND = (f"{number:032x}-{number:016x}" for number in (1, 2))


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


async def test_the_end_of_a_task_tells_the_link_to_the_one_before_it_in_its_convoy(world: World) -> None:
    await world.process()
    await world.process("p2")
    for task_id in ("a", "b", "c"):
        await world.submit(task_id, convoy="k")
    (a,) = await world.claim()
    first = await world.advance(a.task, ending=Process("1"), hand_over=HandOver(("fulfil",)), trace_link=FIRST)
    assert first.trace_link is None
    assert first.next is not None
    second = await world.advance(first.next.task, ending=Process("1"), trace_link=SECOND)
    assert second.trace_link == FIRST
    (c,) = await world.claim(2)  # another process goes on with the key
    third = await world.advance(c.task, ending=Process("1"))
    assert third.trace_link == SECOND
    await world.submit("d", convoy="k")
    (d,) = await world.claim()
    assert (await world.advance(d.task, ending=Process("1"), trace_link=FIRST)).trace_link is None  # c was not traced


async def test_a_task_in_error_on_which_its_convoy_stands_still_leaves_its_link_too(world: World) -> None:
    await world.process()
    await world.submit("a", convoy="k")
    (a,) = await world.claim()
    await world.advance(a.task, ending=Hold(FAILED), trace_link=FIRST)
    found = await world.store.find_convoy("k")
    assert found is not None
    assert found.convoy.trace_link == FIRST


async def test_a_task_without_a_convoy_has_no_task_before_it(world: World) -> None:
    await world.process()
    await world.submit("a")
    (a,) = await world.claim()
    assert (await world.advance(a.task, ending=Process("1"), trace_link=FIRST)).trace_link is None
