"""Inputs of a task that are given as JSON: arguments to edit, results, signals; each with its JSON Schema, so that forms can be made."""

from typing import Annotated, Literal

import msgspec
from fastapi import Query

from ...client.task_inputs import TaskInput, find_arguments_input, find_result_input, list_signal_inputs
from ...client.task_shapes import Payloads
from ...client.task_verbs import require_readable
from ...errors import InvalidInput
from ...operations.problems import TASK_UNKNOWN, UNREADABLE
from ..calls import Call
from ..parameters import TaskId
from ..scopes import Needs, Scope
from .tasks import find_task, tasks


class TaskInputsAnswer(msgspec.Struct, frozen=True):
    """Inputs of a task, each with its JSON Schema."""

    id: str
    inputs: tuple[TaskInput, ...]
    payloads: Payloads


@tasks.operation(
    "GET",
    "/v1/tasks/{task_id}/inputs",
    Needs(Scope.READ),
    is_narrowed=True,
    summary="What a task takes as JSON: arguments that a resubmission edits, results by hand, signals; each with its JSON Schema.",
    problems=(TASK_UNKNOWN, UNREADABLE),
    answer_example={
        "id": "order-1001",
        "inputs": [
            {
                "kind": "arguments",
                "name": "charge",
                "form": {"type": "object", "properties": {"pence": {"type": "integer"}}, "required": ["pence"]},
                "is_known": True,
                "recorded": {"pence": 4200},
                "awaited": False,
            }
        ],
        "payloads": "included",
    },
)
async def show_task_inputs(
    call: Call,
    task_id: TaskId,
    of: Annotated[
        Literal["arguments", "result", "signals"],
        Query(description="Of a resubmission, of an answer, or signals and requests."),
    ] = "arguments",
    step: Annotated[
        str | None, Query(max_length=300, description="Label or number of the step; needed for a result.")
    ] = None,
) -> TaskInputsAnswer:
    session, loaded = call.session, require_readable(await find_task(call, task_id))
    if of == "signals":
        found = list_signal_inputs(session, loaded)
    elif of == "arguments":
        found = find_arguments_input(session, loaded, step)
    elif step is None:
        raise InvalidInput("result of which step? Name it with the parameter step")
    else:
        found = (find_result_input(session, loaded, step),)
    return TaskInputsAnswer(task_id, found, call.payloads)
