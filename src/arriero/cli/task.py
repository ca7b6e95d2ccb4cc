"""``arriero task``: the group, and ``arriero task show``."""

import asyncio

import click

from .. import codec
from ..core.convoy_words import Ahead, place_told
from ..core.readable import legible_task
from ..core.supervision import task_policy
from ..errors import UnknownTask
from ..model import Loaded, TaskRow, Turn
from ..store.base import StateStore
from ..task_view import asked_ahead
from .listing import list_tasks
from .near_misses import NearMissGroup
from .output import one_line, print_json, print_table, shown_span, shown_time
from .shapes import ShownStep, cut, shown
from .stores import json_option, reading, store_option
from .tracebacks import print_traces
from .verbs import VERBS


@click.group(cls=NearMissGroup, invoke_without_command=True)
@click.pass_context
def task(context: click.Context) -> None:
    """Look at tasks, and act on them."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@task.command("show", short_help="Show one task.")
@click.argument("task_id", metavar="ID")
@store_option
@json_option
def show_task(task_id: str, store: str | None, as_json: bool) -> None:
    """Show one task: its steps, attempts and failures, what it waits for, what is still to be undone."""
    loaded, ahead = asyncio.run(_show(task_id, store))
    if as_json:
        print_json(shown(loaded, ahead))
    else:
        _print(loaded, ahead)


async def _show(task_id: str, store: str | None) -> tuple[Loaded, Ahead | None]:
    async with reading(store) as opened:
        loaded = await find_task(task_id, opened)
        return loaded, await asked_ahead(loaded, opened)


async def find_task(task_id: str, store: StateStore) -> Loaded:
    """One task. Raises InvalidInput, UnknownTask, StoreError."""
    loaded = await store.find(codec.checked_id(task_id, "task id"))
    if loaded is None:
        raise UnknownTask(f"there is no task {task_id!r} in the store {store.url}; see `arriero task list`")
    return loaded


def _print(as_it_stands: Loaded, ahead: Ahead | None) -> None:
    one = shown(as_it_stands, ahead)
    loaded, _ = legible_task(as_it_stands)
    for says in one.unreadable:
        click.echo(one_line(f"{'cannot be read:':17}{says}"))
    lines = {
        "task": f"{one.id} (number {one.no})",
        "workflow": one.workflow,
        "state": one.state,
        "convoy": _convoy(loaded),
        "waits for": one.waiting_for,
        "reason": one.reason,
        "still to undo": ", ".join(one.open_compensations),
        "nothing to undo": ", ".join(one.nothing_to_undo),
        "submitted": shown_time(one.submitted_at),
        "started": shown_time(one.started_at),
        "ended": shown_time(one.ended_at),
        "complete by": shown_time(one.complete_by),
        "paused since": shown_time(one.paused_at),
        "incarnation": str(one.incarnation) if one.incarnation > 1 else "",
        "told to": "" if one.reply_to is None else f"reply queue {one.reply_to}",
        "priority": str(one.priority),
        "failures": f"{one.failure_count} attempts failed, {one.lost_count} processes lost since its last progress",
        "policy": "cannot be read" if bytes(one.policy) == b"null" else _task_policy(loaded.task),
        "arguments": cut(loaded.arguments),
        "output": cut(loaded.task.output or ""),
    }
    for name, value in lines.items():
        if value:
            click.echo(f"{name + ':':17}{one_line(value)}")
    if one.steps:
        click.echo()
        print_table(
            ("", "step", "agent", "state", "attempt", "took", "calls at most", "says"),
            list(map(_step_cells, one.steps)),
        )
        click.echo("calls at most: tries x attempts x rounds")
    print_traces(one)


def _convoy(loaded: Loaded) -> str:
    task, convoy = loaded.task, loaded.convoy
    if convoy is None or task.turn is None:
        return ""
    turn = {
        Turn.WAITING: "its turn has not come",
        Turn.OPEN: "it is its turn",
        Turn.ENDED: "its turn is over",
        Turn.SET_ASIDE: "it was set aside",
    }[task.turn]
    return f"{convoy.key!r}, {place_told(task, convoy.ordering)}: {turn}"


def _task_policy(row: TaskRow) -> str:
    policy = task_policy(row.policy)
    supervision = policy.supervision
    limit = (
        "no limit for the whole" if policy.complete_within is None else f"the whole within {policy.complete_within:g} s"
    )
    own = f"{supervision.attempts} attempts x {supervision.rounds} rounds for steps without their own"
    return f"{limit}; {own}; then {supervision.then}"


def _step_cells(step: ShownStep) -> tuple[str, ...]:
    kind = {"compensation": "undo of ", "timer": "timer "}.get(step.kind, "")
    said = (
        ("pivot", step.pivot),
        ("in doubt", step.in_doubt),
        ("edited", step.asked is not None),
        ("of a life undone before", step.past),
    )
    marks = [word for word, is_so in said if is_so]
    return (
        str(step.ordinal),
        f"{kind}{step.label}",
        step.agent,
        ", ".join([step.state, *marks]),
        str(step.attempt) if step.taken else "",
        shown_span(step.opened_at, step.finished_at),
        _product(step),
        _says(step),
    )


def _product(step: ShownStep) -> str:
    policy = step.policy
    if policy is None:
        return "" if step.kind == "timer" else "cannot be read"
    return f"{policy.tries} x {policy.attempts} x {policy.rounds} = {policy.calls_max}"


def _says(step: ShownStep) -> str:
    says: list[str] = []
    if step.failure is not None:
        code = f" [{step.failure.code}]" if step.failure.code else ""
        says.append(f"{step.failure.cause}: {step.failure.message}{code}")
    if step.finished_at is None and step.kind == "timer":
        says.append(f"at {shown_time(step.not_before)}")
    elif step.state == "pending" and step.attempt > 1:
        says.append(f"next attempt not before {shown_time(step.not_before)}")
    elif step.state == "running":
        says.append(f"to be done by {shown_time(step.complete_by)}")
    return cut("; ".join(says))


task.add_command(list_tasks)
for verb in VERBS:
    task.add_command(verb)
