"""Tasks: submit, look, and the verbs of people."""

from typing import Annotated

import msgspec
from fastapi import Path
from pydantic import AfterValidator

from ..calls import Call
from ..paths import read_id
from ..problems import TASK_UNKNOWN
from ..routing import RouteGroup
from ..scopes import Needs, Scope

tasks = RouteGroup("tasks")

TaskId = Annotated[str, Path(description="The task's business id, percent-encoded."), AfterValidator(read_id)]


class TaskAnswer(msgspec.Struct, frozen=True):
    """A task as it stands."""

    id: str
    workflow: str
    state: str


@tasks.operation(
    "GET",
    "/v1/tasks/{task_id}",
    Needs(Scope.READ),
    summary="A task as it stands.",
    answer=TaskAnswer,
    problems=(TASK_UNKNOWN,),
    answer_example={"id": "order-1001", "workflow": "fulfil", "state": "processed"},
)
async def show_task(call: Call, task_id: TaskId) -> TaskAnswer:
    view = await call.client.task(task_id).view()
    return TaskAnswer(view.id, view.workflow, view.state)
