"""Acts with a value of the code's own types: arguments to edit, a result by hand, a signal. Their forms are made from the types."""

import functools
import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

import msgspec
from fastapi import Path, Query
from pydantic import AfterValidator
from starlette.responses import RedirectResponse, Response

from ...client.task_inputs import TaskInput
from ...errors import ApprovalNeeded, ArrieroError, InvalidInput
from ...operations.problems import find_meaning
from ..calls import Call, HttpCall
from ..parameters import TaskId, read_id, write_id
from ..problems import NOT_FOUND, Problem, build_problem
from ..request_body import run_on_text
from ..scopes import Needs, Scope
from .acting import (
    Act,
    ask_with_body,
    describe_change,
    describe_outcome,
    find_act,
    get_sent_forms,
    read_version,
    receive_form,
)
from .asking import ask, find_operation, may_ask
from .cookies import keep_outcome
from .page import Page, page
from .schema_forms import ValueField, build_value_fields, fill_in, list_inputs, read_value

VALUE = "typed"  # begins the names of the inputs of the value
Step = Annotated[str | None, Query(max_length=300, description="Label or number of the step.")]
SignalName = Annotated[str, Path(description="The signal's name, percent-encoded."), AfterValidator(read_id)]
Of = Literal["arguments", "result", "signals"]


class TypedAct(NamedTuple):
    """An act with a typed value.

    Args:
        title, does: for operators. ``path``: of its form, with its query.
        task_id: of the task that it is on.
        input: the value that it takes.
        members: of the body, beside the value. ``member``: that holds the value.
        needs_reason: whether the body has a reason, and may be judged in advance.
        choices: names of the steps that may be meant instead.
    """

    title: str
    does: str
    path: str
    task_id: str
    input: TaskInput
    act: Act
    members: dict[str, Any]
    member: str
    needs_reason: bool = True
    choices: tuple[str, ...] = ()


@page("/tasks/{task_id}/edit", Needs(Scope.OPERATE, Scope.READ), "The form to edit arguments and resubmit a task.")
async def show_edit_form(call: Call, task_id: TaskId, step: Step = None) -> Page:
    return await _show(call, await _find_edit(call, task_id, step))


@page("/tasks/{task_id}/edit", Needs(Scope.OPERATE, Scope.READ), "Edit arguments and resubmit a task.", method="POST")
async def edit_and_resubmit(call: Call, task_id: TaskId, step: Step = None) -> Page | Response:
    return await _receive(call, await _find_edit(call, task_id, step))


@page("/tasks/{task_id}/answer", Needs(Scope.OPERATE, Scope.READ), "The form to give a result by hand.")
async def show_answer_form(call: Call, task_id: TaskId, step: Annotated[str, Query(max_length=300)]) -> Page:
    return await _show(call, await _find_answer(call, task_id, step))


@page("/tasks/{task_id}/answer", Needs(Scope.OPERATE, Scope.READ), "Give a result by hand.", method="POST")
async def answer_step(call: Call, task_id: TaskId, step: Annotated[str, Query(max_length=300)]) -> Page | Response:
    return await _receive(call, await _find_answer(call, task_id, step))


@page("/tasks/{task_id}/signals", Needs(Scope.READ), "The signals that a task takes, and those that it got.")
async def show_signals_page(call: Call, task_id: TaskId) -> Page:
    task = await ask(call, "show_task", task_id=task_id)
    inputs = await ask(call, "show_task_inputs", task_id=task_id, of="signals")
    listed = await ask(call, "list_signals", task_id=task_id)
    context = {"task": task, "inputs": inputs.inputs, "listed": listed, "may_send": may_ask(call, "send_signal")}
    return Page("task_signals.html", f"Signals of {task.id}", context)


@page("/tasks/{task_id}/signals/{name}", Needs(Scope.SUBMIT, Scope.READ), "The form to send a signal.")
async def show_signal_form(call: Call, task_id: TaskId, name: SignalName) -> Page:
    return await _show(call, await _find_signal(call, task_id, name))


@page("/tasks/{task_id}/signals/{name}", Needs(Scope.SUBMIT, Scope.READ), "Send a signal.", method="POST")
async def send_signal_form(call: Call, task_id: TaskId, name: SignalName) -> Page | Response:
    return await _receive(call, await _find_signal(call, task_id, name))


async def _find_input(call: HttpCall, task_id: str, of: Of, step: str | None) -> tuple[TaskInput, ...]:
    found = await ask(call, "show_task_inputs", task_id=task_id, of=of, step=step)
    inputs: tuple[TaskInput, ...] = found.inputs
    return inputs


async def _find_edit(call: HttpCall, task_id: str, step: str | None) -> TypedAct:
    inputs = await _find_input(call, task_id, "arguments", step)
    chosen = inputs[0]
    path = f"{call.root}/tasks/{write_id(task_id)}/edit" + (f"?step={quote(step, safe='')}" if step else "")
    does = f"Arguments of {f'step {chosen.name}' if chosen.name else 'the task'}, which is done again with them."
    return TypedAct(
        "Edit and resubmit",
        does,
        path,
        task_id,
        chosen,
        find_act("resubmit_task", task_id),
        {"step": chosen.name} if chosen.name else {},
        "arguments",
        choices=tuple(one.name for one in inputs) if len(inputs) > 1 else (),
    )


async def _find_answer(call: HttpCall, task_id: str, step: str) -> TypedAct:
    (chosen,) = await _find_input(call, task_id, "result", step)
    path = f"{call.root}/tasks/{write_id(task_id)}/answer?step={quote(step, safe='')}"
    does = f"The result of {step}, as if it had come from the Agent."
    return TypedAct(
        "Give the result", does, path, task_id, chosen, find_act("answer_task", task_id), {"step": step}, "result"
    )


async def _find_signal(call: HttpCall, task_id: str, name: str) -> TypedAct:
    inputs = await _find_input(call, task_id, "signals", None)
    chosen = next((one for one in inputs if (one.kind, one.name) == ("signal", name)), None)
    if chosen is None:
        raise Problem(NOT_FOUND, f"task {task_id!r} takes no signal {name!r}; it may have ended")
    path = f"{call.root}/tasks/{write_id(task_id)}/signals/{write_id(name)}"
    act = Act(find_operation("send_signal"), {"task_id": task_id, "name": name}, task_id)
    return TypedAct("Send the signal", f"Signal {name}.", path, task_id, chosen, act, {}, "value", needs_reason=False)


def _build_field(of: TypedAct) -> ValueField:
    recorded = of.input.recorded
    value = None if isinstance(recorded, msgspec.UnsetType) else bytes(recorded)
    label = of.input.name or "Arguments"
    return build_value_fields(bytes(of.input.form), value, name=VALUE, label=label, is_edit=of.member == "arguments")


async def _show(call: HttpCall, of: TypedAct) -> Page:
    version = await read_version(call, of.task_id)
    return _build_page(of, await _work(call, of, functools.partial(_build_field, of)), seen=version)


async def _work(call: HttpCall, of: TypedAct, function: Any) -> Any:
    """Work on the values of a form, which may be large: beside the event loop then."""
    recorded = of.input.recorded
    size = len(call.body) + (0 if isinstance(recorded, msgspec.UnsetType) else len(bytes(recorded)))
    return await run_on_text(call.session.ports, call.place.thread_turn, size, function)


def _build_page(
    of: TypedAct,
    field: ValueField,
    *,
    seen: str,
    reason: str = "",
    once: str = "",
    refused: str = "",
    preview: Sequence[str] = (),
    status: int = 200,
) -> Page:
    context = {
        "of": of,
        "is_withheld": of.member == "arguments" and isinstance(of.input.recorded, msgspec.UnsetType),
        "field": field,
        "seen": seen,
        "once": once or secrets.token_urlsafe(12),
        "reason": reason,
        "refused": refused,
        "preview": preview,
    }
    return Page("typed_act.html", of.title, context, status=status)


async def _receive(call: HttpCall, of: TypedAct) -> Page | Response:
    sent, one = await receive_form(call)
    if "preview" in one and of.needs_reason:
        return await _try(call, of, sent, one, dry_run=True)
    return await get_sent_forms(call).run_once(call, one.get("once", ""), lambda: _try(call, of, sent, one))


async def _try(
    call: HttpCall, of: TypedAct, sent: Mapping[str, Sequence[str]], one: Mapping[str, str], *, dry_run: bool = False
) -> Page | Response:
    """Carry out an act, or only judge it. Returns: a page if nothing was done, with the reason."""
    field: ValueField = await _work(call, of, functools.partial(_build_field, of))
    filled = fill_in(field, sent)
    now, reason, once = await read_version(call, of.task_id), one.get("reason", ""), one.get("once", "")
    show = functools.partial(_build_page, of, filled, seen=now, reason=reason)
    if of.needs_reason and one.get("seen") and one["seen"] != now:
        return show(refused=await describe_change(call, of.task_id), status=409)
    try:
        members = await _work(call, of, functools.partial(_read_members, of, field, sent))
        if of.needs_reason:
            members |= {"reason": reason, "dry_run": dry_run}
        else:
            members["signal_id"] = f"console-{once}"
        lines = describe_outcome(of.act, await ask_with_body(call, of.act, members))
    except ApprovalNeeded as error:
        lines = (f"Your approval is kept: {error}.",)
    except (Problem, ArrieroError) as error:
        if isinstance(error, ArrieroError) and find_meaning(type(error)).problem.status >= 500:
            raise
        problem = error if isinstance(error, Problem) else build_problem(error, call.session)
        assert problem is not None  # bugs were raised
        return show(refused=problem.detail, status=problem.kind.status)
    if dry_run:
        return show(preview=lines)
    response = RedirectResponse(f"{call.root}/tasks/{write_id(of.task_id)}", 303)
    keep_outcome(call.request, response, " ".join(lines))
    return response


def _read_members(of: TypedAct, field: ValueField, sent: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Read the body's members out of a form. Arguments that are as before are not sent: that is a plain resubmission."""
    value = read_value(field, sent)
    if of.member == "arguments":
        if value is None or value == read_value(field, list_inputs(field)):
            return {}
    elif value is None:
        raise InvalidInput(f"{field.label}: a value is needed")
    return {**of.members, of.member: msgspec.Raw(value)}
