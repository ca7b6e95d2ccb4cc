"""Many child tasks of one workflow: as many at a time as the code says."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar, overload

from ..errors import InvalidInput, StepFailed
from ..model.policies import check_count
from .declared import find_run
from .workflows import WorkflowCall

T = TypeVar("T")
R = TypeVar("R")
AT_A_TIME_MAX = 10_000


@overload
async def map(
    workflow: Callable[[T], WorkflowCall[R]],
    items: Iterable[T],
    *,
    at_a_time: int,
    return_exceptions: Literal[False] = False,
) -> list[R]: ...
@overload
async def map(
    workflow: Callable[[T], WorkflowCall[R]], items: Iterable[T], *, at_a_time: int, return_exceptions: Literal[True]
) -> list[R | StepFailed]: ...
async def map(
    workflow: Callable[[T], WorkflowCall[R]], items: Iterable[T], *, at_a_time: int, return_exceptions: bool = False
) -> Any:
    """Run a workflow as a child task for each item, in the code of a workflow, and wait for all of them.

    Args:
        workflow: a workflow of one argument; or a function that returns its call, such as
            ``lambda line: pay(line).options(task_id=line.reference)``.
        items: the arguments. Children begin in their order.
        at_a_time: number of children that run at a time, 1 to 10,000.
        return_exceptions: True: the failure of a child stands in the place of its result, and the others continue.
    Returns: the results, in the order of the items.
    Raises: StepFailed - a child has failed; no other one is begun. If it leaves the code, the task is undone, and with it
        its children. InvalidInput - ``at_a_time`` is unfit; that holds the task.
    """
    find_run("arriero.map", "call asyncio.gather of steps or submit each task")
    check_count(at_a_time, "arriero.map: at_a_time", least=1, most=AT_A_TIME_MAX, error_type=InvalidInput)
    given = list(items)
    results: list[Any] = [None] * len(given)
    todo = iter(enumerate(given))
    has_failed = False

    async def work() -> None:
        nonlocal has_failed
        for place, item in todo:
            try:
                results[place] = await workflow(item)
            except StepFailed as error:
                if not return_exceptions:
                    has_failed = True
                    raise
                results[place] = error
            if has_failed:
                return

    await asyncio.gather(*(work() for _ in range(min(at_a_time, len(given)))))
    return results
