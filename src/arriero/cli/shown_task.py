"""Prints one task: how it stands, its steps, payloads and failures."""

from collections.abc import Mapping, Sequence

import click
import msgspec

from ..client.task_shapes import (
    Payload,
    ShownStep,
    TaskAnswer,
)
from ..core.supervision import decode_task_policy
from ..explain.convoys import format_place
from ..explain.past import Elapsed
from ..model import Loaded, StepKind, StepState, TaskRow, TaskState, Turn
from ..model.tags import format_tags
from ..text.escaping import shell_argument
from ..text.format import format_count, format_duration, format_labelled_location
from .fork import describe_copy, format_origin
from .output import (
    format_state,
    format_time,
    print_table,
    print_text,
    print_trace,
    truncate,
)
from .tree import format_parent

LABEL_WIDTH = 17


def print_task(one: TaskAnswer, loaded: Loaded, children: str, *, with_policy: bool, with_trace: bool) -> None:
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
            "run": _format_run(one),
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


def _format_run(one: TaskAnswer) -> str:
    """Format which run of its code a task is; empty for a task of one run."""
    if one.is_earlier_run:
        return f"{one.run}, which ended by ContinueAs: {one.id.removesuffix(f'~{one.run}')} continues"
    return f"{one.run}; the one before is {one.id}~{one.run - 1}" if one.run > 1 else ""


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
