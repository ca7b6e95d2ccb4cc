"""``arriero task``: the group, and ``arriero task show``."""

import asyncio
from collections.abc import Sequence

import click
import msgspec

from .. import codec
from ..core.convoy_words import Ahead, place_told
from ..core.elapsed import Elapsed
from ..core.readable import legible_task
from ..core.supervision import task_policy
from ..core.wording import span
from ..errors import UnknownTask
from ..model import Loaded, TaskRow, Turn
from ..store.base import StateStore
from ..task_view import asked_ahead, read_holders, read_times
from .listing import list_tasks
from .near_misses import NearMissGroup
from .output import cut, print_json, print_table, print_text, shown_time
from .payload_record import print_record, read_record
from .shapes import Beside, ShownStep, ShownTask, shown
from .stores import json_option, reading, store_option
from .tracebacks import print_traces
from .verbs import VERBS

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
    loaded, beside, ahead = asyncio.run(_show(task_id, store))
    one = shown(loaded, beside, ahead)
    if as_json:
        print_json(one)
    else:
        _print(one, legible_task(loaded)[0])
        print_record(one.record)


async def _show(task_id: str, store: str | None) -> tuple[Loaded, Beside, Ahead | None]:
    async with reading(store) as opened:
        loaded = await find_task(task_id, opened)
        beside = Beside(
            await read_times(opened, loaded.task.task_no),
            await read_holders(loaded, opened),
            opened.now(),
            await read_record(loaded, opened),
        )
        return loaded, beside, await asked_ahead(loaded, opened)


async def find_task(task_id: str, store: StateStore) -> Loaded:
    """One task. Raises InvalidInput, UnknownTask, StoreError."""
    loaded = await store.find(codec.checked_id(task_id, "task id"))
    if loaded is None:
        raise UnknownTask(f"there is no task {task_id!r} in the store {store.url}; see `arriero task list`")
    return loaded


def _print(one: ShownTask, loaded: Loaded) -> None:
    for says in one.unreadable:
        _print_line("cannot be read", says)
    lines = {
        "task": f"{one.id} (number {one.no})",
        "workflow": one.workflow,
        "App": one.app,
        "state": one.state,
        "held by": "" if one.held_by is None else f"process {one.held_by.removeprefix('process ')}",
        "convoy": _convoy(loaded),
        "waits for": one.waiting_for,
        "reason": one.reason,
        "still to undo": ", ".join(one.open_compensations),
        "nothing to undo": ", ".join(one.nothing_to_undo),
        "submitted": shown_time(one.submitted_at),
        "started": shown_time(one.started_at),
        "ended": shown_time(one.ended_at),
        "took": Elapsed(one.took_seconds, one.waited_seconds).says,
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
            _print_line(name, value)
    if one.steps:
        _print_steps(one.steps)
    print_traces(one)


def _print_line(name: str, value: str) -> None:
    print_text(value, first=f"{name + ':':{LABEL_WIDTH}}", hanging=LABEL_WIDTH)


def _print_steps(steps: Sequence[ShownStep]) -> None:
    click.echo()
    columns = ("", "step", "agent", "state", "attempt", "took", "calls at most", "says")
    print_table(columns, list(map(_step_cells, steps)))
    print_text("calls at most: tries x attempts x rounds")
    if results := [(str(step.ordinal), step.label, cut(_text(step.result))) for step in steps if _has_result(step)]:
        click.echo()
        print_table(("", "step", "result"), results)
    if keys := [
        (str(step.ordinal), _step_name(step), step.idempotency_key) for step in steps if _may_be_asked_for(step)
    ]:
        click.echo()
        print_table(("", "step", "idempotency key"), keys)


def _has_result(step: ShownStep) -> bool:
    return step.kind == "step" and step.result is not None and _text(step.result) != "null"


def _may_be_asked_for(step: ShownStep) -> bool:
    """Whether a person may have to ask the service what it knows of the step."""
    return step.kind != "timer" and step.taken and (step.in_doubt or step.state in ("running", "failed"))


def _text(payload: msgspec.Raw | None) -> str:
    return "" if payload is None else bytes(payload).decode()


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
    said = (
        ("pivot", step.pivot),
        ("in doubt", step.in_doubt),
        ("edited", step.asked is not None),
        ("of a life undone before", step.past),
    )
    marks = [word for word, is_so in said if is_so]
    return (
        str(step.ordinal),
        _step_name(step),
        step.agent,
        ", ".join([step.state, *marks]),
        str(step.attempt) if step.taken else "",
        "" if step.took_seconds is None else span(step.took_seconds),
        _product(step),
        _says(step),
    )


def _step_name(step: ShownStep) -> str:
    return {"compensation": "undo of ", "timer": "timer "}.get(step.kind, "") + step.label


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
