"""Lists of tasks: the filter stands in the address, so it can be kept and sent to others."""

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import RedirectResponse, Response

from ...errors import InvalidInput
from ...model import TaskState, Verb
from ...model.verb_rules import VERB_RULES, VERBS
from ..calls import Call, HttpCall
from ..cursors import Order
from ..parameters import LIMIT, Cursor, Limit, write_id
from ..routes.tasks import TaskPageAnswer
from ..scopes import Needs, Scope
from .asking import ask_for_list, may_ask
from .page import Page, page
from .task_filters import COMMON, Filter, TypedFilter

ID_LENGTH_MAX = 1_000  # of what is typed; the page of a task says what is wrong with a longer id
# Lists that operators ask for most, with their filters.
QUICK: tuple[tuple[str, dict[str, Any]], ...] = (
    ("all", {}),
    *((str(state), {"state": str(state)}) for state in (TaskState.HELD, TaskState.PROCESSING, TaskState.PENDING)),
    *((str(state), {"state": str(state)}) for state in (TaskState.COMPENSATING, TaskState.COMPENSATED)),
    (str(TaskState.PROCESSED), {"state": str(TaskState.PROCESSED)}),
    ("paused", {"paused": "true"}),
    ("snoozed", {"snoozed": "true"}),
)


@page("/tasks", Needs(Scope.READ), "Tasks that a filter names, the newest first.", is_live=True)
async def show_tasks(
    call: Call,
    typed: Filter,
    order: Order = "newest",
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> Page:
    listed, refused = TaskPageAnswer((), None), ""
    try:
        asked = {"which": typed.read(), "order": order, "waits": True, "limit": limit, "cursor": cursor}
        listed, refused = await ask_for_list(call, "list_tasks", listed, "filter", **asked)
    except InvalidInput as error:
        refused = f"{error}."
    others: dict[str, Any] = {"order": None if order == "newest" else order, "limit": None if limit == LIMIT else limit}
    fields = typed.list_fields()
    context = {
        "listed": listed,
        "refused": refused,
        "typed": typed,
        "given": {**typed.given, **others},
        "others": {name: value for name, value in others.items() if value is not None},
        "order": order,
        "cursor": cursor,
        "quick": QUICK,
        "common": fields[: len(COMMON)],
        "more": fields[len(COMMON) :],
        "verbs": () if refused or not typed.given else list_bulk_verbs(call, typed),
        "several_apps": len({task.app for task in listed.tasks}) > 1,
    }
    return Page("tasks.html", "Tasks", context, status=422 if refused else 200)


@page("/open", Needs(Scope.READ), "Leads to the task of an id.")
async def open_task(call: Call, id: Annotated[str, Query(max_length=ID_LENGTH_MAX)] = "") -> Response:
    """A form of a browser cannot write an id into a path."""
    return RedirectResponse(f"{call.root}/tasks/{write_id(id.strip())}" if id.strip() else f"{call.root}/tasks", 303)


def list_bulk_verbs(call: HttpCall, typed: TypedFilter) -> tuple[str, ...]:
    """List the verbs that the caller may carry out on all tasks of a filter, those that it may fit first by what they need."""
    state = typed.given.get("state")
    fitting = [verb for verb in Verb if state is None or (verb, state) in VERB_RULES]
    return tuple(str(verb) for verb in sorted(fitting, key=_rank) if may_ask(call, f"{verb}_tasks"))


def _rank(verb: Verb) -> tuple[bool, bool]:
    """Verbs that change only how a task is found or by which code it runs are rarely meant."""
    return (VERBS[verb].is_note, not VERBS[verb].is_listed)
