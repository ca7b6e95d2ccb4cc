"""``arriero task``: the group, ``arriero task list`` and ``arriero task show``."""

import asyncio
from collections.abc import Mapping, Sequence

import click
import msgspec

from ..client.payload_record import read_record
from ..client.session import find_task
from ..client.task_shapes import (
    ListedTask,
    Payload,
    ShownStep,
    TaskAnswer,
    TaskContext,
    build_listed_task,
    build_shown_task,
    name_apps,
)
from ..client.task_view import load_tasks_ahead, read_family, read_holders, read_published, read_times
from ..client.tasks import TaskSelector
from ..core.supervision import decode_task_policy
from ..explain.convoys import TasksAhead, format_place
from ..explain.outages import format_next_attempt, format_short_failure
from ..explain.past import Elapsed, may_have_waited
from ..inspection.attempts import Retrying
from ..model import TASK_OPEN, Instant, Loaded, StepKind, StepState, TaskRow, TaskState, Turn
from ..model.instants import as_datetime
from ..model.tags import format_tags
from ..store.readable import legible_task
from ..store.state_store import StateStore
from ..store.task_filter import TaskFilter
from ..text.escaping import shell_argument
from ..text.format import format_count, format_duration, format_labelled_location
from .callbacks import complete_callback
from .fork import describe_copy, format_origin
from .history import print_record
from .near_misses import NearMissGroup
from .operation_commands import format_options, gather_options
from .options import NUMBER, json_option, print_empty, store_option
from .output import (
    format_state,
    format_time,
    format_time_between,
    print_json,
    print_table,
    print_text,
    print_trace,
    truncate,
)
from .signals import list_signals, send_request, send_signal
from .stores import open_store_to_read
from .task_verbs import VERB_COMMANDS
from .tree import format_children, format_parent, show_tree

PAGE = 1_000
COUNTED_MAX = 100_000  # of the tasks that are not shown


class PageRequest(msgspec.Struct, frozen=True):
    """The part of the tasks that is shown: between two numbers, ``limit`` of them (0: all).

    The newest come first. With ``after`` they come in the order of submission: the one who reads all page by page continues
    after the last number that was shown.
    """

    after: int | None
    before: int | None
    limit: int

    @property
    def newest_first(self) -> bool:
        return self.after is None


class TaskPage(msgspec.Struct, frozen=True):
    """The tasks that are shown, at an instant, and the count of further ones, up to ``COUNTED_MAX``.

    ``took``: seconds of tasks whose rows alone do not say how long they took.
    """

    now: Instant
    rows: list[TaskRow]
    retrying: dict[int, Retrying]
    took: dict[int, float]
    more: int


@click.command("list", short_help="List tasks, the newest first.")
@gather_options(TaskSelector, "which")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(0, 100_000),
    default=50,
    show_default=True,
    help="Maximum number of tasks. 0 lists all.",
)
@click.option("--before", metavar="NO", type=NUMBER, help="Only tasks before this number, which is the next page.")
@click.option("--after", metavar="NO", type=NUMBER, help="Only tasks after this number, in the order of submission.")
@store_option
@json_option
def list_tasks(
    which: TaskSelector, limit: int, before: int | None, after: int | None, store: str | None, as_json: bool
) -> None:
    """List tasks, the newest first, with the last failure of what is tried again.

    Standard error says how many more there are. With --after they come in the order of submission: --after 0 begins
    with the oldest. A narrow terminal leaves out the columns submitted, failed and took.
    """
    page = PageRequest(after, before, limit)
    found = asyncio.run(_load_page(store, which.check("--"), page, with_times=not as_json))
    tasks = [build_listed_task(row, found.retrying.get(row.task_no)) for row in found.rows]
    if as_json:
        for task in tasks:
            print_json(task)
    elif not tasks:
        print_empty("tasks", format_options(which))
    else:
        print_table(
            ("no", "id", "workflow", "state", "failed", "submitted", "took", "reason"),
            [_format_cells(task, found) for task in name_apps(tasks)],
            states=[task.state for task in tasks],
            optional=("submitted", "failed", "took"),
        )
    if found.more:
        click.echo(f"arriero: {_format_more(found, page)}", err=True)


async def _load_page(url: str | None, which: TaskSelector, page: PageRequest, *, with_times: bool) -> TaskPage:
    async with open_store_to_read(url) as store:
        now = store.now()
        meant = which.build_filter(now)
        rows = await _load_rows(store, meant, page)
        retrying = await store.retrying_steps(
            [row.task_no for row in rows if row.state in TASK_OPEN and row.failure_count]
        )
        more = 0
        if rows and len(rows) == page.limit:
            after, before = _remaining_range(rows, page)
            more = await store.count_listed(meant, after=after, before=before, limit=COUNTED_MAX)
        took = await _measure_durations(store, rows, now) if with_times else {}
        return TaskPage(now, rows, {step.task_no: step for step in retrying}, took, more)


async def _measure_durations(store: StateStore, rows: list[TaskRow], now: Instant) -> dict[int, float]:
    """Read the histories of those tasks alone for which an operator may have waited."""
    waited = [row for row in rows if may_have_waited(row)]
    return {row.task_no: (await read_times(store, row.task_no)).measure_task(row, now).took or 0.0 for row in waited}


async def _load_rows(store: StateStore, meant: TaskFilter, page: PageRequest) -> list[TaskRow]:
    rows: list[TaskRow] = []
    while not page.limit or len(rows) < page.limit:
        limit = min(PAGE, page.limit - len(rows)) if page.limit else PAGE
        after, before = _remaining_range(rows, page)
        found = await store.list_tasks(meant, after=after, before=before, newest_first=page.newest_first, limit=limit)
        rows += found
        if len(found) < limit:
            break
    return rows


def _remaining_range(rows: list[TaskRow], page: PageRequest) -> tuple[int, int | None]:
    """Return the numbers between which the tasks after those lie."""
    if not rows:
        return page.after or 0, page.before
    last = rows[-1].task_no
    return (page.after or 0, last) if page.newest_first else (last, page.before)


def _format_more(found: TaskPage, page: PageRequest) -> str:
    count = f"{'at least ' if found.more >= COUNTED_MAX else ''}{found.more:,}"
    after, before = _remaining_range(found.rows, page)
    return f"and {count} more; --limit 0 shows all, {f'--before {before}' if page.newest_first else f'--after {after}'} the next"


def _format_state(task: ListedTask, now: Instant) -> str:
    if task.paused:
        return f"{task.state}, paused"
    is_snoozed = task.snoozed_until is not None and task.snoozed_until > as_datetime(now)
    return f"{task.state}, snoozed" if is_snoozed else task.state


def _format_cells(task: ListedTask, found: TaskPage) -> tuple[str, ...]:
    return (
        str(task.no),
        task.id,
        task.workflow,
        _format_state(task, found.now),
        str(task.failure_count),
        format_time(task.submitted_at),
        format_duration(found.took[task.no])
        if task.no in found.took
        else format_time_between(task.submitted_at, task.ended_at),
        _format_reason(task, found),
    )


def _format_reason(task: ListedTask, found: TaskPage) -> str:
    """Format why a task ended as it did; of a task running the step that is tried again, when, and why."""
    step = found.retrying.get(task.no)
    if step is None:
        return truncate(task.reason)
    return f"{step.step}, {format_next_attempt(step, found.now)}: {format_short_failure(step.failure)}"


LABEL_WIDTH = 17


@click.group(cls=NearMissGroup, invoke_without_command=True)
@click.pass_context
def task(context: click.Context) -> None:
    """Show tasks, and act on them."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@task.command("show", short_help="Show one task.")
@click.argument("task_id", metavar="ID")
@click.option(
    "--policy", "with_policy", is_flag=True, help="Also show the policies, and how often each step may be called."
)
@click.option("--trace", "with_trace", is_flag=True, help="Also show the traceback of each failure.")
@store_option
@json_option
def show_task(task_id: str, with_policy: bool, with_trace: bool, store: str | None, as_json: bool) -> None:
    """Show one task: its steps, attempts and failures, what it waits for, what is still to be undone."""
    loaded, beside, ahead = asyncio.run(_load_shown(task_id, store))
    one = build_shown_task(loaded, beside, ahead)
    if as_json:
        print_json(one)
    else:
        children = format_children(loaded, beside.family)
        _print_task(one, legible_task(loaded)[0], children, with_policy=with_policy, with_trace=with_trace)
        print_record(beside.record)


async def _load_shown(task_id: str, store: str | None) -> tuple[Loaded, TaskContext, TasksAhead | None]:
    async with open_store_to_read(store) as opened:
        loaded = await find_task(task_id, opened)
        times, holders = await read_times(opened, loaded.task.task_no), await read_holders(loaded, opened)
        record, published = await read_record(loaded, opened), await read_published(opened, loaded.task.task_no)
        beside = TaskContext(times, holders, opened.now(), record, published, await read_family(loaded, opened))
        return loaded, beside, await load_tasks_ahead(loaded, opened)


def _print_task(one: TaskAnswer, loaded: Loaded, children: str, *, with_policy: bool, with_trace: bool) -> None:
    for says in one.unreadable:
        _print_field("cannot be read", says)
    _print_fields({"task": f"{one.id} (number {one.no})", "workflow": one.workflow, "App": one.app})
    click.echo(f"{'state:':{LABEL_WIDTH}}{format_state(one.state)}")
    _print_fields(
        {
            "tags": format_tags(one.tags),
            "code version": one.code_version or "",
            "parent": format_parent(one),
            "forked from": format_origin(one),
            "children": children,
            "convoy": _format_convoy(loaded),
            "waits for": one.waiting_for,
            "reason": one.reason,
            "still to undo": ", ".join(one.open_compensations),
            "nothing to undo": ", ".join(one.nothing_to_undo),
            "took": Elapsed(one.took_seconds, one.waited_seconds).says,
        }
    )
    if one.steps:
        _print_steps(one.steps, with_policy=with_policy)
    click.echo()
    _print_fields(
        {
            "submitted": format_time(one.submitted_at),
            "started": format_time(one.started_at),
            "ended": format_time(one.ended_at),
            "complete by": format_time(one.complete_by),
            "paused since": format_time(one.paused_at),
            "snoozed until": format_time(one.snoozed_until),
            "driven by": "" if one.held_by is None else f"process {one.held_by.removeprefix('process ')}",
            "incarnation": str(one.incarnation) if one.incarnation > 1 else "",
            "reply queue": one.reply_to or "",
            "priority": str(one.priority),
            "failures": _format_failures(one),
            "policy": _format_policy(one, loaded.task) if with_policy else "",
            "arguments": truncate(loaded.arguments),
            "output": truncate(loaded.task.output or ""),
            "published": _format_published(one),
        }
    )
    _print_payloads(one.steps)
    _print_failures(one, with_trace=with_trace)
    command = shell_argument(one.id)
    print_text(f"arriero task explain {command}   arriero history {command}", first=f"{'next:':{LABEL_WIDTH}}")


def _print_fields(fields: Mapping[str, str]) -> None:
    for name, value in fields.items():
        if value:
            _print_field(name, value)


def _print_field(name: str, value: str) -> None:
    is_payload = name in ("arguments", "output", "published")
    print_text(value, first=f"{name + ':':{LABEL_WIDTH}}", hanging=LABEL_WIDTH, breaks_words=is_payload)


def _format_failures(one: TaskAnswer) -> str:
    """Format what failed since the last progress of a task; empty for nothing."""
    counts = ((one.failure_count, "failed attempt"), (one.lost_count, "lost process"))
    said = [format_count(count, what) for count, what in counts if count]
    return f"{', '.join(said)} since its last progress" if said else ""


def _print_steps(steps: Sequence[ShownStep], *, with_policy: bool) -> None:
    click.echo()
    columns = ("", "step", "agent", "state", "attempt", "took", "says")
    states = [_find_mark_of(step) for step in steps]
    print_table(columns, list(map(_format_step_cells, steps)), states=states, optional=("took",))
    if with_policy:
        click.echo()
        rows = [(str(step.ordinal), _format_step_name(step), _format_calls_max(step)) for step in steps]
        print_table(("", "step", "calls at most"), rows)
        print_text("calls at most: tries x attempts x rounds")


def _find_mark_of(step: ShownStep) -> str:
    """Find the state by which a step is marked: a compensation that is done has undone something."""
    is_undone = step.kind == StepKind.COMPENSATION and step.state == StepState.COMPLETED
    return TaskState.COMPENSATED if is_undone else step.state


def _format_published(one: TaskAnswer | ShownStep) -> str:
    """Format what was published last, and when; empty for nothing."""
    if one.published_at is None:
        return ""
    return f"{truncate(_decode_payload(one.published))} ({format_time(one.published_at)})"


def _print_payloads(steps: Sequence[ShownStep]) -> None:
    """Print the results and checkpoints of the steps, and the keys that a service may have to be asked for."""
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
    if published := [
        (str(step.ordinal), _format_step_name(step), _format_published(step))
        for step in steps
        if step.published_at is not None
    ]:
        click.echo()
        print_table(("", "step", "published"), published)
    if keys := [
        (str(step.ordinal), _format_step_name(step), step.idempotency_key) for step in steps if _may_be_asked_for(step)
    ]:
        click.echo()
        print_table(("", "step", "idempotency key"), keys)


def _has_result(step: ShownStep) -> bool:
    return step.kind in ("step", "child") and step.result is not None and _decode_payload(step.result) != "null"


def _may_be_asked_for(step: ShownStep) -> bool:
    """Returns True if an operator may have to ask the service about the step."""
    return (
        step.kind != "timer"
        and step.child is None
        and step.taken
        and (step.in_doubt or step.state in ("running", "failed"))
    )


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
        Turn.BATCHED: "its message is in a batch",
    }[task.turn]
    return f"{convoy.key!r}, {format_place(task, convoy.ordering)}: {turn}"


def _format_policy(one: TaskAnswer, row: TaskRow) -> str:
    if bytes(one.policy) == b"null":
        return "cannot be read"
    policy = decode_task_policy(row.policy)
    supervision = policy.supervision
    limit = (
        "no limit for the whole" if policy.complete_within is None else f"the whole within {policy.complete_within:g} s"
    )
    own = f"{format_count(supervision.attempts, 'attempt')}, {format_count(supervision.rounds, 'round')}"
    return f"{limit}; default of steps: {own}, then {supervision.then}; an undo in doubt: {policy.undo_on_doubt}"


def _format_step_cells(step: ShownStep) -> tuple[str, ...]:
    said = (
        ("pivot", step.pivot),
        ("in doubt", step.in_doubt),
        ("edited", step.asked is not None),
        ("detached", step.detached),
        ("of a life undone before", step.past),
    )
    marks = [word for word, is_so in said if is_so]
    return (
        str(step.ordinal),
        _format_step_name(step),
        step.agent,
        ", ".join([step.state, *marks]),
        _format_attempt(step),
        "" if step.took_seconds is None else format_duration(step.took_seconds),
        _describe_step(step),
    )


def _format_step_name(step: ShownStep) -> str:
    if step.kind == "timer" and ":" in step.name:
        return step.label.replace(":", " ", 1)  # a wait: signal approved
    return {"compensation": "undo of ", "timer": "timer ", "child": "child "}.get(step.kind, "") + step.label


def _format_attempt(step: ShownStep) -> str:
    """Format the number of an attempt, and how many the policy allows."""
    if not step.taken:
        return ""
    policy = step.policy
    return str(step.attempt) if policy is None else f"{step.attempt}/{policy.attempts * policy.rounds}"


def _format_calls_max(step: ShownStep) -> str:
    policy = step.policy
    if policy is None:
        return "" if step.kind == "timer" or step.child is not None else "cannot be read"
    return f"{policy.tries} x {policy.attempts} x {policy.rounds} = {policy.calls_max}"


def _describe_step(step: ShownStep) -> str:
    says = describe_copy(step)
    if step.child is not None:
        says.append(f"task {step.child}{f', {step.child_state}' if step.child_state else ''}")
    if step.failure is not None:
        code = f" [{step.failure.code}]" if step.failure.code else ""
        says.append(f"{step.failure.cause}: {step.failure.message}{code}")
    if step.finished_at is None and step.kind == "timer":
        is_wait = ":" in step.name
        until = f"until {format_time(step.not_before)}" if step.not_before is not None else "without a limit"
        says.append(f"waits {until}" if is_wait else f"at {format_time(step.not_before)}")
    elif step.state == "pending" and step.attempt > 1:
        says.append(f"next attempt not before {format_time(step.not_before)}")
    elif step.state == "running" and step.child is None:
        says.append(f"to be done by {format_time(step.complete_by)}")
    return truncate("; ".join(says))


def _print_failures(task: TaskAnswer, *, with_trace: bool) -> None:
    """Print where in the code each failure of a task was raised."""
    failed = {f"step {step.ordinal}, {_format_step_name(step)}": step.failure for step in task.steps}
    traces = {name: failure.trace for name, failure in failed.items() if failure is not None and failure.trace}
    if task.failure is not None and task.failure.trace and task.failure.trace not in traces.values():
        traces = {"the task": task.failure.trace, **traces}
    for name, trace in traces.items():
        told = format_labelled_location(trace)
        click.echo()
        print_text(f"where {name} failed{'; ' if told else ''}{told}", hanging=2)
        if with_trace:
            print_trace(trace, indent=2)
    if traces and not with_trace:
        print_text("`arriero task show --trace` prints the traceback.")
    if traces:
        click.echo()


task.add_command(list_tasks)
task.add_command(show_tree)
task.add_command(send_signal)
task.add_command(send_request)
task.add_command(list_signals)
task.add_command(complete_callback)
for verb in VERB_COMMANDS:
    task.add_command(verb)
