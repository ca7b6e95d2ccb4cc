"""Inputs of a task that operators and programs give as JSON: with the types of the code, and what is recorded now."""

from collections.abc import Callable
from inspect import Parameter
from typing import Any, Literal

import msgspec

from ..core.apps import is_another_app
from ..core.undo import FORWARD_KINDS
from ..core.verb_guards import list_steps_to_redo, may_edit_all
from ..declare.signature import Signature
from ..declare.steps import Step
from ..declare.workflows import Workflow
from ..errors import InvalidInput
from ..model import STEP_PREFIX, Loaded, StepRow
from ..model.questions import show_question
from ..model.signals import is_question
from ..payloads.type_schemas import NO_DEFAULT, describe_members, describe_type
from ..runtime.code import read_one_step
from .json_signals import ENDED, JsonKind, find_mentioned, list_awaited
from .session import Session
from .task_verbs import find_definition, find_step, find_step_definition, find_step_to_edit

InputKind = Literal["arguments", "result", "signal", "request"]
STEPS_MAX = 50  # that may be edited, in one list


class TaskInput(msgspec.Struct, frozen=True):
    """An input of a task.

    Args:
        kind: ``arguments`` of a step, or of the task, that a resubmission edits; the ``result`` of a step, or the answer of a question;
            a ``signal`` or a ``request``.
        name: of the step as verbs take it, or of the signal; empty: the task itself.
        form: JSON Schema of the value; an empty one where the code is not here, or its type has none.
        is_known: whether the code is here that says the type.
        recorded: the value that is recorded now; left out: none is, or it is withheld.
        awaited: whether the task waits for it now.
    """

    kind: InputKind
    name: str
    form: msgspec.Raw
    is_known: bool
    recorded: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    awaited: bool = False


def find_arguments_input(session: Session, loaded: Loaded, step: str | None) -> tuple[TaskInput, ...]:
    """Find what a resubmission may edit: the arguments of the named step; else of each that is done again, or of the task.

    Raises: InvalidInput - the task has no such step.
    """
    if step is None and may_edit_all(loaded.task, loaded.life):
        return (_build_of_task(session, loaded),)
    if step is None:
        rows = list_steps_to_redo(loaded.task, loaded.life)[:STEPS_MAX] or [find_step_to_edit(loaded, None)]
    else:
        rows = [find_step(loaded, step)]
    return tuple(_build_of_step(session, loaded, row) for row in rows)


def _build_of_task(session: Session, loaded: Loaded) -> TaskInput:
    form = _describe(session, loaded, lambda: find_definition(session.codes, loaded.task.workflow), describe_arguments)
    recorded = loaded.arguments.encode()
    if loaded.task.workflow.startswith(STEP_PREFIX):
        recorded = bytes(read_one_step(loaded.arguments).arguments)
    return TaskInput("arguments", "", msgspec.Raw(form or b"{}"), form is not None, msgspec.Raw(recorded))


def _build_of_step(session: Session, loaded: Loaded, row: StepRow) -> TaskInput:
    form = _describe(session, loaded, lambda: find_step_definition(session.codes, row), describe_arguments)
    recorded = msgspec.Raw(row.arguments.encode()) if row.arguments else msgspec.UNSET
    return TaskInput("arguments", row.label, msgspec.Raw(form or b"{}"), form is not None, recorded)


def find_result_input(session: Session, loaded: Loaded, step: str) -> TaskInput:
    """Find what an answer gives: the result of a step, or the answer of a question. Raises InvalidInput - there is none such."""
    row = find_step(loaded, step)
    form: bytes | None
    if is_question(row):
        form = bytes(show_question(row.arguments).form)
    elif row.kind in FORWARD_KINDS:
        form = _describe(session, loaded, lambda: find_step_definition(session.codes, row), describe_result)
    else:
        form = b'{"type":"null"}'
    return TaskInput("result", step, msgspec.Raw(form or b"{}"), form is not None)


def list_signal_inputs(session: Session, loaded: Loaded) -> tuple[TaskInput, ...]:
    """List the signals and requests that the code of a task may wait for, those that it waits for now first."""
    if loaded.task.state in ENDED:
        return ()
    is_here = not is_another_app(session.app, loaded.task.app)
    mentioned = find_mentioned(session, loaded.task) if is_here else None
    found: dict[tuple[str, str], TaskInput] = {}
    kinds: tuple[JsonKind, ...] = ("signal", "request")
    for kind in kinds:
        for name in list_awaited(loaded, kind):
            found[kind, name] = TaskInput(kind, name, msgspec.Raw(b"{}"), is_known=False, awaited=True)
        for signal in mentioned.known.values() if mentioned is not None else ():
            if signal.kind == kind:
                is_awaited = (kind, signal.name) in found
                form = msgspec.Raw(describe_type(signal.of))
                found[kind, signal.name] = TaskInput(kind, signal.name, form, is_known=True, awaited=is_awaited)
    return tuple(sorted(found.values(), key=lambda one: not one.awaited))


def describe_arguments(signature: Signature) -> bytes:
    """Describe the arguments of a function as JSON Schema."""
    *parameters, _ = signature.describe()
    return describe_members([_read_parameter(one) for one in parameters])


def _read_parameter(parameter: Any) -> tuple[str, Any, Any]:
    name, _, default, of = parameter
    return name, of, NO_DEFAULT if default is Parameter.empty else default


def describe_result(signature: Signature) -> bytes:
    """Describe the result of a function as JSON Schema."""
    return describe_type(signature.describe()[-1])


def _describe(
    session: Session,
    loaded: Loaded,
    find: Callable[[], Workflow[Any, Any] | Step[Any, Any]],
    describe: Callable[[Signature], bytes],
) -> bytes | None:
    """Describe a part of a definition; None: its code is not here."""
    if is_another_app(session.app, loaded.task.app):
        return None
    try:
        return describe(find().signature)
    except InvalidInput:
        return None
