"""``arriero task``: the group, and ``arriero task show``."""

import asyncio
from collections.abc import Sequence

import click
import msgspec

from .. import codec
from ..client.payload_record import read_record
from ..client.task_shapes import Payload, ShownStep, TaskAnswer, TaskContext, build_shown_task
from ..client.task_view import load_tasks_ahead, read_holders, read_times
from ..core.supervision import decode_task_policy
from ..errors import UnknownTask
from ..explain.convoys import TasksAhead, format_place
from ..explain.elapsed import Elapsed
from ..failure_location import format_labelled_location
from ..model import Loaded, TaskRow, Turn
from ..store.readable import legible_task
from ..store.state_store import StateStore
from ..text.format import format_duration
from .listing import list_tasks
from .near_misses import NearMissGroup
from .options import json_option, store_option
from .output import format_time, print_json, print_table, print_text, print_trace, truncate
from .payload_record import print_record
from .stores import open_store_to_read
from .task_verbs import VERB_COMMANDS

LABEL_WIDTH = 17


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
    loaded, beside, ahead = asyncio.run(_load_shown(task_id, store))
    one = build_shown_task(loaded, beside, ahead)
    if as_json:
        print_json(one)
    else:
        _print_task(one, legible_task(loaded)[0])
        print_record(beside.record)


async def _load_shown(task_id: str, store: str | None) -> tuple[Loaded, TaskContext, TasksAhead | None]:
    async with open_store_to_read(store) as opened:
        loaded = await find_task(task_id, opened)
        beside = TaskContext(
            await read_times(opened, loaded.task.task_no),
            await read_holders(loaded, opened),
            opened.now(),
            await read_record(loaded, opened),
        )
        return loaded, beside, await load_tasks_ahead(loaded, opened)


async def find_task(task_id: str, store: StateStore) -> Loaded:
    """One task. Raises InvalidInput, UnknownTask, StoreError."""
    loaded = await store.find(codec.check_id(task_id, "task id"))
    if loaded is None:
        raise UnknownTask(f"there is no task {task_id!r} in the store {store.url}; see `arriero task list`")
    return loaded


def _print_task(one: TaskAnswer, loaded: Loaded) -> None:
    for says in one.unreadable:
        _print_field("cannot be read", says)
    lines = {
        "task": f"{one.id} (number {one.no})",
        "workflow": one.workflow,
        "App": one.app,
        "state": one.state,
        "held by": "" if one.held_by is None else f"process {one.held_by.removeprefix('process ')}",
        "convoy": _format_convoy(loaded),
        "waits for": one.waiting_for,
        "reason": one.reason,
        "still to undo": ", ".join(one.open_compensations),
        "nothing to undo": ", ".join(one.nothing_to_undo),
        "submitted": format_time(one.submitted_at),
        "started": format_time(one.started_at),
        "ended": format_time(one.ended_at),
        "took": Elapsed(one.took_seconds, one.waited_seconds).says,
        "complete by": format_time(one.complete_by),
        "paused since": format_time(one.paused_at),
        "incarnation": str(one.incarnation) if one.incarnation > 1 else "",
        "told to": "" if one.reply_to is None else f"reply queue {one.reply_to}",
        "priority": str(one.priority),
        "failures": f"{one.failure_count} attempts failed, {one.lost_count} processes lost since its last progress",
        "policy": "cannot be read" if bytes(one.policy) == b"null" else _format_task_policy(loaded.task),
        "arguments": truncate(loaded.arguments),
        "output": truncate(loaded.task.output or ""),
    }
    for name, value in lines.items():
        if value:
            _print_field(name, value)
    if one.steps:
        _print_steps(one.steps)
    _print_traces(one)


def _print_field(name: str, value: str) -> None:
    print_text(value, first=f"{name + ':':{LABEL_WIDTH}}", hanging=LABEL_WIDTH)


def _print_steps(steps: Sequence[ShownStep]) -> None:
    click.echo()
    columns = ("", "step", "agent", "state", "attempt", "took", "calls at most", "says")
    print_table(columns, list(map(_format_step_cells, steps)))
    print_text("calls at most: tries x attempts x rounds")
    if results := [
        (str(step.ordinal), step.label, truncate(_decode_payload(step.result))) for step in steps if _has_result(step)
    ]:
        click.echo()
        print_table(("", "step", "result"), results)
    if kept := [
        (str(step.ordinal), _format_step_name(step), truncate(_decode_payload(step.checkpoint)))
        for step in steps
        if step.checkpoint is not None
    ]:
        click.echo()
        print_table(("", "step", "checkpoint"), kept)
    if keys := [
        (str(step.ordinal), _format_step_name(step), step.idempotency_key) for step in steps if _may_be_asked_for(step)
    ]:
        click.echo()
        print_table(("", "step", "idempotency key"), keys)


def _has_result(step: ShownStep) -> bool:
    return step.kind == "step" and step.result is not None and _decode_payload(step.result) != "null"


def _may_be_asked_for(step: ShownStep) -> bool:
    """Returns True if a person may have to ask the service about the step."""
    return step.kind != "timer" and step.taken and (step.in_doubt or step.state in ("running", "failed"))


def _decode_payload(payload: Payload) -> str:
    return bytes(payload).decode() if isinstance(payload, msgspec.Raw) else ""


def _format_convoy(loaded: Loaded) -> str:
    task, convoy = loaded.task, loaded.convoy
    if convoy is None or task.turn is None:
        return ""
    turn = {
        Turn.WAITING: "its turn has not come",
        Turn.OPEN: "it is its turn",
        Turn.ENDED: "its turn is over",
        Turn.SET_ASIDE: "it was set aside",
    }[task.turn]
    return f"{convoy.key!r}, {format_place(task, convoy.ordering)}: {turn}"


def _format_task_policy(row: TaskRow) -> str:
    policy = decode_task_policy(row.policy)
    supervision = policy.supervision
    limit = (
        "no limit for the whole" if policy.complete_within is None else f"the whole within {policy.complete_within:g} s"
    )
    own = f"{supervision.attempts} attempts x {supervision.rounds} rounds for steps without their own"
    return f"{limit}; {own}; then {supervision.then}; an undo in doubt: {policy.undo_on_doubt}"


def _format_step_cells(step: ShownStep) -> tuple[str, ...]:
    said = (
        ("pivot", step.pivot),
        ("in doubt", step.in_doubt),
        ("edited", step.asked is not None),
        ("of a life undone before", step.past),
    )
    marks = [word for word, is_so in said if is_so]
    return (
        str(step.ordinal),
        _format_step_name(step),
        step.agent,
        ", ".join([step.state, *marks]),
        str(step.attempt) if step.taken else "",
        "" if step.took_seconds is None else format_duration(step.took_seconds),
        _format_calls_max(step),
        _describe_step(step),
    )


def _format_step_name(step: ShownStep) -> str:
    return {"compensation": "undo of ", "timer": "timer "}.get(step.kind, "") + step.label


def _format_calls_max(step: ShownStep) -> str:
    policy = step.policy
    if policy is None:
        return "" if step.kind == "timer" else "cannot be read"
    return f"{policy.tries} x {policy.attempts} x {policy.rounds} = {policy.calls_max}"


def _describe_step(step: ShownStep) -> str:
    says: list[str] = []
    if step.failure is not None:
        code = f" [{step.failure.code}]" if step.failure.code else ""
        says.append(f"{step.failure.cause}: {step.failure.message}{code}")
    if step.finished_at is None and step.kind == "timer":
        says.append(f"at {format_time(step.not_before)}")
    elif step.state == "pending" and step.attempt > 1:
        says.append(f"next attempt not before {format_time(step.not_before)}")
    elif step.state == "running":
        says.append(f"to be done by {format_time(step.complete_by)}")
    return truncate("; ".join(says))


def _print_traces(task: TaskAnswer) -> None:
    """Print where in the code each failure of a task was raised."""
    failed = {f"step {step.ordinal}, {step.label}": step.failure for step in task.steps}
    traces = {name: failure.trace for name, failure in failed.items() if failure is not None and failure.trace}
    if task.failure is not None and task.failure.trace and task.failure.trace not in traces.values():
        traces = {"the task": task.failure.trace, **traces}
    for name, trace in traces.items():
        told = format_labelled_location(trace)
        click.echo()
        print_text(f"where {name} failed{'; ' if told else ''}{told}", hanging=2)
        print_trace(trace, indent=2)


task.add_command(list_tasks)
for verb in VERB_COMMANDS:
    task.add_command(verb)
