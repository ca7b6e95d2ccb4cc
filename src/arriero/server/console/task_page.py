"""One task: how it stands and why, what may be done with it, its timeline, its steps, its children and its history."""

from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from fastapi import Path, Query
from starlette.responses import Response

from ...client.task_explanation import ActionAnswer
from ...client.task_shapes import ShownStep, TaskAnswer
from ...client.timeline import TimelineReader
from ...model import NUMBER_MAX
from ...operations.problems import TASK_UNKNOWN
from ...text.escaping import shell_argument, shell_word
from ..calls import Call
from ..parameters import Cursor, TaskId, write_id
from ..problems import FORBIDDEN, NOT_FOUND, Problem
from ..routes.tasks import find_task
from ..scopes import Needs, Scope
from .asking import ask, may_ask
from .frame import SECURITY
from .page import Page, page
from .rendering import PAYLOAD_LENGTH_MAX
from .timeline_drawing import ROWS_DRAWN_MAX, describe_left_out, draw_timeline

ENTRIES_SHOWN = 30  # of the history on the page of the task
ENTRIES_MAX = 100  # on a page of the history
STEPS_SHOWN = 50
CHILDREN_SHOWN = 20
SIGNALS_SHOWN = 20
NOT_LISTED = (
    "pause",
    "resume",
    "snooze",
    "extend",
    "adjust",
    "tag",
    "pin",
)  # what a task allows, and explain need not list
PAYLOADS = {  # that have a page, by what they are of
    "task": ("arguments", "output", "published"),
    "step": ("arguments", "asked", "result", "checkpoint", "published"),
}


class ShownPayload(msgspec.Struct, frozen=True):
    """A payload on a page. ``value`` UNSET: it is withheld. ``whole``: path of the whole of it; empty: all of it is shown."""

    name: str
    value: msgspec.Raw | msgspec.UnsetType
    size: int = 0
    whole: str = ""


@page("/tasks/{task_id}", Needs(Scope.READ), "A task: its state, its steps, its history, and the verbs that it allows.")
async def show_task_page(call: Call, task_id: TaskId) -> Page:
    store = call.session.store
    task_no = (await find_task(call, task_id)).task.task_no
    version = (await store.load_versions([task_no])).get(task_no, "")  # before the rest: what changes meanwhile is news
    task = await ask(call, "show_task", task_id=task_id)
    watched = await TimelineReader(store, task_id, rows_max=ROWS_DRAWN_MAX).read()
    drawing = draw_timeline(watched.timeline)
    explanation = await ask(call, "explain_task", task_id=task_id)
    has_children = any(step.kind == "child" for step in task.steps)
    signals = [
        step for step in task.steps if step.kind == "timer" and step.name.partition(":")[0] in ("signal", "request")
    ]
    listed = frozenset(verb.verb for verb in explanation.verbs)
    context = {
        "task": task,
        "explanation": explanation,
        "commands": [format_command(task.id, verb) for verb in explanation.verbs],
        "more": [verb for verb in NOT_LISTED if verb not in listed and may_ask(call, f"{verb}_task")],
        "drawing": drawing,
        "left_out": describe_left_out(drawing),
        "payloads": list_payloads(task),
        "steps": [(step, list_step_payloads(task, step)) for step in task.steps[-STEPS_SHOWN:]],
        "children": await ask(call, "list_children", task_id=task_id, limit=CHILDREN_SHOWN) if has_children else None,
        "signals": await ask(call, "list_signals", task_id=task_id, limit=SIGNALS_SHOWN) if signals else None,
        "history": await ask(call, "show_history", task_id=task_id, order="newest", limit=ENTRIES_SHOWN),
        "may_operate": may_ask(call, "resubmit_task"),
        "may_fork": may_ask(call, "fork_task"),
        "may_send": may_ask(call, "send_signal"),
    }
    live = f"/live/tasks/{write_id(task.id)}?seen={quote(version, safe='')}"
    return Page("task.html", task.id, context, live=live)


def format_command(task_id: str, verb: ActionAnswer) -> str:
    """Format the command of a verb; words in capitals are to be filled in. Empty: it would be refused."""
    if verb.refused:
        return ""
    options = []
    for name in verb.needs:
        if name != "step":
            option = f"--{name.replace('_', '-')}"
            options.append(
                option if name == "did_not_happen" else f"{option} {'TEXT' if name == 'reason' else name.upper()}"
            )
    step = f" {shell_word(verb.step)}" if verb.step else ""
    return f"arriero task {verb.verb} {shell_argument(task_id)}{step} {' '.join(options)}"


def list_payloads(task: TaskAnswer) -> tuple[ShownPayload, ...]:
    """List the payloads of a task itself."""
    return tuple(_list_of(task, task.id, 0, PAYLOADS["task"]))


def list_step_payloads(task: TaskAnswer, step: ShownStep) -> tuple[ShownPayload, ...]:
    """List the payloads of one of its steps."""
    return tuple(_list_of(step, task.id, step.ordinal, PAYLOADS["step"]))


def _list_of(thing: Any, task_id: str, ordinal: int, names: tuple[str, ...]) -> list[ShownPayload]:
    found = []
    for name in names:
        value = getattr(thing, name)
        if value is msgspec.UNSET:
            found.append(ShownPayload(name, value))
        elif value is not None and (size := len(bytes(value))) and bytes(value) != b"null":
            is_long = size > PAYLOAD_LENGTH_MAX
            path = f"/tasks/{write_id(task_id)}/payloads/{ordinal}/{name}" if is_long else ""
            found.append(ShownPayload(name, value, size, path))
    return found


Ordinal = Annotated[int, Path(ge=0, le=NUMBER_MAX, description="Number of the step in its task; 0: the task itself.")]


def find_step(task: TaskAnswer, ordinal: int) -> ShownStep:
    """Find a step by its number. Raises Problem (not-found)."""
    for step in task.steps:
        if step.ordinal == ordinal:
            return step
    raise Problem(NOT_FOUND, f"task {task.id!r} has no step of the number {ordinal}")


@page(
    "/tasks/{task_id}/steps/{ordinal}", Needs(Scope.READ), "A step of a task: its attempts, its limits, its payloads."
)
async def show_step_page(call: Call, task_id: TaskId, ordinal: Ordinal) -> Page:
    task = await ask(call, "show_task", task_id=task_id)
    step = find_step(task, ordinal)
    context = {"task": task, "step": step, "payloads": list_step_payloads(task, step)}
    return Page("task_step.html", f"{step.label} of {task.id}", context, live=f"/live/tasks/{write_id(task.id)}")


@page("/tasks/{task_id}/steps", Needs(Scope.READ), "The steps of a task, in pages.")
async def show_steps_page(call: Call, task_id: TaskId, after: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0) -> Page:
    task = await ask(call, "show_task", task_id=task_id)
    steps = [step for step in task.steps if step.ordinal > after]
    shown = steps[:STEPS_SHOWN]
    context = {
        "task": task,
        "steps": shown,
        "after": after,
        "next": shown[-1].ordinal if len(steps) > len(shown) else None,
    }
    return Page("task_steps.html", f"Steps of {task.id}", context)


@page("/tasks/{task_id}/payloads/{ordinal}/{name}", Needs(Scope.READ), "A whole payload, as a file of text.")
async def download_payload(call: Call, task_id: TaskId, ordinal: Ordinal, name: str) -> Response:
    task = await ask(call, "show_task", task_id=task_id)
    if name not in PAYLOADS["step" if ordinal else "task"]:
        raise Problem(NOT_FOUND, f"there is no payload {name!r}")
    value = getattr(find_step(task, ordinal) if ordinal else task, name)
    if value is msgspec.UNSET:
        raise Problem(FORBIDDEN, "payloads are withheld: that needs the scope read-payloads", scope="read-payloads")
    if value is None:
        raise Problem(TASK_UNKNOWN, f"there is no {name} yet")
    headers = {
        **SECURITY,
        "Content-Disposition": f'attachment; filename="task-{task.no}-{ordinal}-{name}.json.txt"',
        "X-Content-Type-Options": "nosniff",
    }
    return Response(bytes(value), media_type="text/plain; charset=utf-8", headers=headers)


@page("/tasks/{task_id}/children", Needs(Scope.READ), "The tasks that a task's code has started, in pages.")
async def show_children_page(call: Call, task_id: TaskId, cursor: Cursor = None) -> Page:
    task = await ask(call, "show_task", task_id=task_id)
    listed = await ask(call, "list_children", task_id=task_id, cursor=cursor)
    context = {"task": task, "children": listed, "cursor": cursor}
    return Page("task_children.html", f"Children of {task.id}", context)


@page("/tasks/{task_id}/history", Needs(Scope.READ), "The history of a task, in pages.")
async def show_history_page(
    call: Call,
    task_id: TaskId,
    operators: bool = False,
    link: Annotated[int | None, Query(ge=0, le=NUMBER_MAX)] = None,
    newer: Annotated[bool, Query(description="From the link on, and not down to it.")] = False,
) -> Page:
    task = await ask(call, "show_task", task_id=task_id)
    order = "oldest" if newer and link is not None else "newest"
    found = await ask(
        call, "show_history", task_id=task_id, order=order, operators=operators, link=link, limit=ENTRIES_MAX
    )
    entries = found.entries if order == "newest" else found.entries[::-1]
    is_last = found.next is None
    context = {
        "task": task,
        "entries_shown": entries,
        "operators": operators,
        "older": entries[-1].link - 1
        if entries and (order == "oldest" or not is_last) and entries[-1].link > 1
        else None,
        "newer": entries[0].link + 1 if entries and link is not None and (order == "newest" or not is_last) else None,
    }
    return Page("task_history.html", f"History of {task.id}", context, live=f"/live/tasks/{write_id(task.id)}")
