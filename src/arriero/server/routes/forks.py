"""Forks: ``POST /v1/tasks/{id}:fork`` submits a task that does another one again from a step on."""

import msgspec

from ...client.forks import ForkAnswer, ForkOptions, build_fork_answer, plan_fork, preview_fork
from ...client.task_verbs import load_task_to_act
from ...operations.problems import TASK_UNKNOWN, UNREADABLE, VERB_REFUSED
from ...payloads.codec import check_id
from ..calls import Call
from ..parameters import TaskId
from ..routing import RouteGroup
from ..scopes import Needs, Scope
from .submissions import REFUSALS, submit_command

forks = RouteGroup("forks")


class ForkRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fork of a task. Who asks is the token's name; the body cannot say it.

    Args:
        from_step: the step from which on the task is done again: its label, or its number in the task.
        id: of the new task; the same id again is the same fork. Without one the server makes one.
        convoy: of the new task; without one it is in none.
        reason: why; kept in the history of the new task.
        dry_run: only judge it, and change nothing.
    """

    from_step: str | int
    id: str | None = None
    convoy: str | None = None
    reason: str = ""
    dry_run: bool = False


@forks.operation(
    "POST",
    "/v1/tasks/{task_id}:fork",
    Needs(Scope.OPERATE, also=Scope.SUBMIT),
    is_narrowed=True,
    summary="Submit a new task that does this one again from a step on. The results before that step are copied.",
    body=ForkRequest,
    answer=ForkAnswer,
    problems=(TASK_UNKNOWN, VERB_REFUSED, UNREADABLE, *REFUSALS),
    examples={
        "do it": {"from_step": "reserve", "id": "order-1001-b", "reason": "the stock was counted again"},
        "try it": {"from_step": 2, "dry_run": True},
    },
    answer_example={
        "id": "order-1001-b",
        "outcome": "done",
        "created": True,
        "workflow": "fulfil",
        "forked_from": "order-1001",
        "forked_step": "reserve",
        "copied": ["charge"],
        "again": ["reserve"],
    },
)
async def fork_task(call: Call, task_id: TaskId) -> ForkAnswer:
    asked, session = call.read(ForkRequest), call.session
    loaded = await load_task_to_act(session, check_id(task_id, "task_id"))
    options = ForkOptions(task_id=asked.id, convoy=asked.convoy, by=call.caller.name, reason=asked.reason)
    if asked.dry_run:
        return await preview_fork(session, loaded, asked.from_step, options)
    command, row = plan_fork(session, loaded, asked.from_step, options)
    answer = await submit_command(call, command)
    return build_fork_answer(loaded, row, command, created=answer.created)
