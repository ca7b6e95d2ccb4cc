"""Lists of tasks: the filter stands in the address, so it can be kept and sent to others."""

from typing import Annotated

import msgspec
from fastapi import Depends

from ...client.tasks import TaskSelector
from ...model import TaskState
from ..calls import Call
from ..cursors import Order
from ..operation_routes import QueryReader
from ..parameters import LIMIT, Cursor, Limit
from ..scopes import Needs, Scope
from .asking import ask
from .page import Page, page


@page("/tasks", Needs(Scope.READ), "Tasks that a filter names, the newest first.")
async def show_tasks(
    call: Call,
    which: Annotated[TaskSelector, Depends(QueryReader(TaskSelector))],
    order: Order = "newest",
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Page:
    listed = await ask(call, "list_tasks", which=which, order=order, limit=limit, cursor=cursor)
    given = {name: value for name, value in msgspec.to_builtins(which).items() if name != "tags"}
    if which.tags:
        given["tag"] = [f"{name}={value}" for name, value in which.tags.items()]
    context = {
        "listed": listed,
        "given": given,
        "order": order,
        "cursor": cursor,
        "states": [str(one) for one in TaskState],
    }
    return Page("tasks.html", "Tasks", context)
