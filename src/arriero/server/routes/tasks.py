"""Tasks: how each stands, why, what happened to it, and how it ended."""

import functools
from collections import deque
from contextlib import aclosing
from datetime import datetime
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Query
from starlette.responses import Response

from ...client.children import ChildView, iterate_children
from ...client.payload_record import read_record
from ...client.session import load_task
from ...client.task_explanation import ActionAnswer, ExplanationAnswer, build_explanation, load_explanation
from ...client.task_shapes import (
    EndAnswer,
    ListedTask,
    Payloads,
    TaskAnswer,
    TaskContext,
    build_listed_task,
    build_shown_task,
    load_waits,
)
from ...client.task_verbs import ACTOR
from ...client.task_view import load_tasks_ahead, read_family, read_holders, read_published, read_times
from ...client.tasks import TaskSelector
from ...events import decode_event_fields
from ...explain.available_actions import AvailableAction
from ...explain.past import IncarnationStart, Timeline
from ...model import NUMBER_MAX, TASK_OPEN, HistoryRow, Loaded, TaskRow
from ...model.instants import as_datetime
from ...model.progress import format_version
from ...operations.problems import TASK_UNKNOWN
from ...payloads.codec import check_id
from ...store.contract import Ended
from ..calls import Call, HttpCall, narrow_filter
from ..cursors import CURSOR_INVALID, Order, load_listed, open_cursors
from ..operation_routes import QueryReader
from ..parameters import LIMIT, WAIT_SECONDS_MAX, Cursor, Limit, TaskId, write_id
from ..routing import RouteGroup
from ..scopes import Needs, Scope
from .submissions import build_end, wait_until_ended

tasks = RouteGroup("tasks")


class TaskPageAnswer(msgspec.Struct, frozen=True):
    """A page of tasks. ``next``: the cursor of the next page; None: this was the last one. A page may be empty before that.

    ``previous``: the cursor of the page before it; None: this was the first one.
    """

    tasks: tuple[ListedTask, ...]
    next: str | None
    previous: str | None = None


class HistoryEntry(msgspec.Struct, frozen=True):
    """Events of one commit in the history of a task.

    Args:
        link: its number in the task's history: 1, 2, ...
        at: by the store's clock.
        actor: who wrote it.
        incarnation: of the task.
        says: each event in plain words.
        events: the events with all their fields. Hashes of payloads are there for tokens with the scope read-payloads.
    """

    link: int
    at: datetime
    actor: str
    incarnation: int
    says: tuple[str, ...]
    events: tuple[dict[str, Any], ...]


class HistoryAnswer(msgspec.Struct, frozen=True):
    """A page of a task's history, the oldest first. ``next``: the cursor of the next page; None: this was the last one."""

    entries: tuple[HistoryEntry, ...]
    next: str | None
    payloads: Payloads


LISTED_EXAMPLE = {
    "no": 1,
    "id": "order-1001",
    "workflow": "fulfil",
    "state": "held",
    "priority": 5,
    "failure_count": 1,
    "lost_count": 0,
    "reason": "charge: declined",
    "submitted_at": "2026-11-20T14:15:17.5Z",
    "started_at": "2026-11-20T14:15:17.6Z",
    "ended_at": "2026-11-20T14:15:18Z",
    "incarnation": 1,
    "paused": False,
    "retry": None,
    "app": "shop",
}
TASK_EXAMPLE = {
    "no": 1,
    "id": "order-1001",
    "workflow": "fulfil",
    "state": "processed",
    "priority": 5,
    "incarnation": 1,
    "failure_count": 0,
    "lost_count": 0,
    "waiting_for": "",
    "reason": "",
    "failure": None,
    "open_compensations": [],
    "nothing_to_undo": [],
    "policy": {},
    "submitted_at": "2026-11-20T14:15:17.5Z",
    "started_at": "2026-11-20T14:15:17.6Z",
    "ended_at": "2026-11-20T14:15:18Z",
    "not_before": None,
    "complete_by": None,
    "paused_at": None,
    "reply_to": None,
    "steps": [],
    "app": "shop",
    "payloads": "withheld",
}


# --- one task
@tasks.operation(
    "GET",
    "/v1/tasks/{task_id}",
    Needs(Scope.READ),
    is_narrowed=True,
    summary="A task as it stands, with its steps.",
    problems=(TASK_UNKNOWN,),
    answer_example=TASK_EXAMPLE,
)
async def show_task(call: Call, task_id: TaskId) -> TaskAnswer:
    answer, _ = await load_shown(call, task_id)
    return answer


async def load_shown(call: HttpCall, task_id: str) -> tuple[TaskAnswer, str]:
    """Load a task as ``show_task`` answers, and its version. Raises UnknownTask, also of one that the caller may not see."""
    loaded = await find_task(call, task_id)
    store = call.session.store
    times = await read_times(store, loaded.task.task_no)
    published = await read_published(store, loaded.task.task_no)
    context = TaskContext(
        times,
        await read_holders(loaded, store),
        store.now(),
        await read_record(loaded, store),
        published,
        await read_family(loaded, store),
    )
    answer = build_shown_task(loaded, context, await load_tasks_ahead(loaded, store), payloads=call.payloads)
    number = sum(row.number for row in published.values())
    return answer, format_version(loaded.task.link, loaded.task.head, number)


async def find_task(call: HttpCall, task_id: str) -> Loaded:
    """Load a task by its id. Raises UnknownTask, also of one that the caller may not see."""
    return await load_task(call.session, check_id(task_id, "task_id"))


class ChildrenAnswer(msgspec.Struct, frozen=True):
    """A page of the tasks that a task's code has started. ``next``: the cursor of the next page; None: this was the last one."""

    children: tuple[ChildView, ...]
    next: str | None


@tasks.operation(
    "GET",
    "/v1/tasks/{task_id}/children",
    Needs(Scope.READ),
    is_narrowed=True,
    summary="The tasks that a task's code has started, in the order of its steps.",
    problems=(TASK_UNKNOWN, CURSOR_INVALID),
    answer_example={
        "children": [
            {
                "ordinal": 1,
                "step": "book_hotel",
                "id": "trip-7/book_hotel.1",
                "workflow": "book_hotel",
                "state": "processed",
                "past": False,
                "detached": False,
                "reason": "",
                "submitted_at": "2026-11-20T14:15:17.5Z",
                "ended_at": "2026-11-20T14:15:18Z",
            }
        ],
        "next": None,
    },
)
async def list_children(call: Call, task_id: TaskId, limit: Limit = LIMIT, cursor: Cursor = None) -> ChildrenAnswer:
    loaded = await find_task(call, task_id)
    store = call.session.store
    listing = ["children", loaded.task.task_no]
    cursors = await open_cursors(store)
    found: list[ChildView] = []
    async with aclosing(iterate_children(loaded, store, cursors.read_number(cursor, listing))) as children:
        async for child in children:
            if len(found) == limit:
                return ChildrenAnswer(tuple(found), cursors.write(listing, found[-1].ordinal))
            found.append(child)
    return ChildrenAnswer(tuple(found), None)


@tasks.operation(
    "GET",
    "/v1/tasks/{task_id}/history",
    Needs(Scope.READ),
    is_narrowed=True,
    summary="What happened to a task, commit by commit.",
    problems=(TASK_UNKNOWN, CURSOR_INVALID),
    answer_example={
        "entries": [
            {
                "link": 1,
                "at": "2026-11-20T14:15:17.5Z",
                "actor": "client",
                "incarnation": 1,
                "says": ["submitted"],
                "events": [{"type": "task.submitted", "workflow": "fulfil"}],
            }
        ],
        "next": None,
        "payloads": "included",
    },
)
async def show_history(
    call: Call,
    task_id: TaskId,
    order: Annotated[Order, Query(description="From the first entry on, or the newest first.")] = "oldest",
    operators: Annotated[bool, Query(description="Only what operators did.")] = False,
    link: Annotated[
        int | None,
        Query(ge=0, le=NUMBER_MAX, description="Number of the entry to begin with; left out: at the end of the order."),
    ] = None,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> HistoryAnswer:
    task = (await find_task(call, task_id)).task
    store = call.session.store
    listing = (
        ["history", task.task_no]
        if order == "oldest" and not operators
        else ["history", task.task_no, order, operators]
    )
    cursors = await open_cursors(store)
    after = cursors.read_number(cursor, listing)
    timeline = Timeline()
    newest = order == "newest"
    first = 0 if link is None or newest else link
    last = after - 1 if newest and after else link if newest and link is not None else NUMBER_MAX
    found: deque[tuple[HistoryRow, int, tuple[str, ...]]] = deque(maxlen=limit + 1 if newest else None)
    async with aclosing(store.history(task.task_no)) as rows:  # type: ignore[type-var]  # each store's is a generator
        async for row in rows:
            if row.link > last or (len(found) > limit and not newest):
                break
            is_meant = row.link >= first and (newest or row.link > after) and (not operators or row.actor == ACTOR)
            says = tuple(one.says for one in timeline.list_entries(row) if not isinstance(one, IncarnationStart))
            if is_meant:
                found.append((row, timeline.incarnation, says))
    has_more = len(found) > limit
    chosen = list(reversed(found) if newest else found)[:limit]
    shown = tuple(_build_entry(*one) for one in chosen)
    return HistoryAnswer(shown, cursors.write(listing, shown[-1].link) if has_more else None, call.payloads)


def _build_entry(row: HistoryRow, incarnation: int, says: tuple[str, ...]) -> HistoryEntry:
    return HistoryEntry(row.link, as_datetime(row.at), row.actor, incarnation, says, tuple(decode_event_fields(row)))


@tasks.operation(
    "GET",
    "/v1/tasks/{task_id}/explain",
    Needs(Scope.READ),
    is_narrowed=True,
    summary="Why a task is where it is, what it waits for, and which verbs would move it.",
    problems=(TASK_UNKNOWN,),
    answer_example={
        "no": 1,
        "id": "order-1001",
        "workflow": "fulfil",
        "state": "held",
        "incarnation": 1,
        "now": "2026-11-20T14:15:17.5Z",
        "reasons": [{"kind": "step", "says": "step charge failed: declined", "step": "charge"}],
        "people": [],
        "verbs": [
            {
                "verb": "resubmit",
                "does": "does step charge again",
                "path": "/v1/tasks/order-1001:resubmit",
                "needs": ["reason"],
            }
        ],
        "payloads": "withheld",
    },
)
async def explain_task(call: Call, task_id: TaskId) -> ExplanationAnswer:
    found = await load_explanation(call.session.store, await find_task(call, task_id))
    build_action = functools.partial(_build_action, call, task_id)
    return build_explanation(*found, build_action, payloads=call.payloads)


def _build_action(call: HttpCall, task_id: str, action: AvailableAction) -> ActionAnswer:
    if action.refused:
        return ActionAnswer(str(action.verb), action.does, step=action.step, refused=action.refused)
    options = [option.removeprefix("--").replace("-", "_") for option in action.options if option.startswith("--")]
    needs = (*(["step"] if action.step else []), *options, "reason")
    path = f"{call.root}/v1/tasks/{write_id(task_id)}:{action.verb}"
    return ActionAnswer(str(action.verb), action.does, action.step, path=path, needs=needs)


@tasks.operation(
    "GET",
    "/v1/tasks/{task_id}/result",
    Needs(Scope.READ),
    is_narrowed=True,
    summary="How a task ended; it may be waited for.",
    answer=EndAnswer,
    more_statuses={202: "It has not ended."},
    problems=(TASK_UNKNOWN,),
    answer_example={"state": "processed", "ended_at": "2026-11-20T14:15:18Z", "output": "receipt"},
)
async def show_result(
    call: Call,
    task_id: TaskId,
    wait: Annotated[
        float, Query(ge=0, le=WAIT_SECONDS_MAX, allow_inf_nan=False, description="Seconds to wait for the end at most.")
    ] = 0.0,
) -> Response:
    task = (await find_task(call, task_id)).task
    ended = await _find_end(call, task, wait)
    if ended is None:
        found = EndAnswer(state=str(task.state), payloads=call.payloads)
        return Response(call.encode(found), 202, media_type="application/json")
    return Response(call.encode(build_end(ended, call)), media_type="application/json")


async def _find_end(call: HttpCall, task: TaskRow, wait: float) -> Ended | None:
    if wait:
        call.place.begin_wait()
        return await wait_until_ended(call, task.task_no, wait)
    return next(iter(await call.session.store.load_ended([task.task_no])), None)


# --- many
@tasks.operation(
    "GET",
    "/v1/tasks",
    Needs(Scope.READ),
    is_narrowed=True,
    summary="List the tasks that a filter names, in pages.",
    problems=(CURSOR_INVALID,),
    answer_example={"tasks": [LISTED_EXAMPLE], "next": None},
)
async def list_tasks(
    call: Call,
    which: Annotated[TaskSelector, Depends(QueryReader(TaskSelector))],
    order: Annotated[Order, Query(description="Of submission, or the newest first.")] = "oldest",
    waits: Annotated[bool, Query(description="Also what moves each open task next.")] = False,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> TaskPageAnswer:
    store = call.session.store
    meant = which.build_filter(store.now())
    listing = ["tasks", which, order]
    cursors = await open_cursors(store)
    narrowed = narrow_filter(meant, call.caller.reach)
    page = await load_listed(call.client.session.store, narrowed, cursors, cursor, listing, limit, order)
    numbers = [row.task_no for row in page.rows if row.state in TASK_OPEN and row.failure_count]
    retrying = {step.task_no: step for step in await store.retrying_steps(numbers)}
    waiting = await load_waits(store, [row for row in page.rows if row.task_no not in retrying]) if waits else {}
    return TaskPageAnswer(
        tuple(build_listed_task(row, retrying.get(row.task_no), waiting.get(row.task_no, "")) for row in page.rows),
        page.next,
        page.previous,
    )
