"""JSON that operators and programs give: refused when it is doubtful, and read as the types that the code declares."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ..core.undo import FORWARD_KINDS
from ..core.verb_guards import is_done_by_child
from ..declare.signature import Signature
from ..declare.steps import Step, StepCall
from ..declare.workflows import Workflow, WorkflowCall
from ..errors import InvalidArguments, InvalidInput, UnknownDefinition
from ..model import STEP_PREFIX, Loaded
from ..model.verb_rules import AdjustArguments, AnswerArguments, ResubmitArguments, VerbArguments
from ..payloads.codec import refuse_doubtful_json
from ..payloads.plain_values import fill_in_defaults
from ..runtime.code import Code
from .session import Session
from .task_verbs import (
    build_adjustment,
    build_answer,
    build_edit,
    find_edited_definition,
    find_step,
    find_step_definition,
    refuse_edits,
)


def check_json(text: str, option: str) -> Any:
    """Any JSON value. Which of two values under one key was meant nobody can know, so a doubled key is refused.

    Raises: InvalidInput - it is not JSON, is nested too deep, or a key stands twice in one object.
    """
    refuse_doubtful_json(text.encode("utf-8", "surrogatepass"), option)  # a lone surrogate is refused there
    return msgspec.json.decode(text)


def check_object(text: str, option: str) -> str:
    """The text of a JSON object without doubled keys. Raises InvalidInput."""
    check_json(text, option)
    return require_object(text, option)


def require_object(text: str, option: str) -> str:
    """The text of JSON, which must be an object. Raises InvalidArguments."""
    if not text.lstrip(" \t\r\n").startswith("{"):
        raise InvalidArguments(f"{option} must be a JSON object, by parameter name, like '{{\"amount\": 5}}'")
    return text


def decode_arguments(signature: Signature, text: str) -> dict[str, Any]:
    """The arguments that a JSON object names, each as its parameter's type. Raises InvalidInput when one does not fit."""
    typed = signature.arguments(text, are_all=False)
    fill_in_defaults(typed)
    return typed


def decode_result(signature: Signature, text: str) -> Any:
    """A JSON value as the type of the result. Raises InvalidInput when it does not fit."""
    value = signature.result(text)
    fill_in_defaults(value)
    return value


def build_call(
    session: Session, name: str, arguments: str, what: str, command: Sequence[str] = ()
) -> WorkflowCall[Any] | StepCall[Any]:
    """Build the typed call of a command line.

    Args:
        arguments: the text of a JSON object, by parameter name. ``what``: names it in errors.
        command: words that the name follows; errors show the whole command with arguments that fit.
    Raises: UnknownDefinition - the App has none of that name; InvalidArguments - its types refuse them.
    """
    definition = find_named_definition(session, name)

    def build_line(example: str) -> str:
        return shlex.join([*command, name, "--arguments", example])

    try:
        text = check_object(arguments, what)
    except InvalidInput as error:
        raise _explain(definition.signature.refuse(str(error)), build_line) from error
    return _build_typed_call(definition, text, build_line)


def build_named_call(
    session: Session, name: str, arguments: msgspec.Raw | msgspec.UnsetType
) -> WorkflowCall[Any] | StepCall[Any]:
    """Build the typed call that a checked body names. ``arguments`` UNSET: none.

    Raises: UnknownDefinition, InvalidArguments - as ``build_call``.
    """
    definition = find_named_definition(session, name)
    text = "{}" if isinstance(arguments, msgspec.UnsetType) else bytes(arguments).decode()

    def build_line(example: str) -> str:
        return f'{{"workflow": "{name}", "arguments": {example}}}'

    try:
        text = require_object(text, "arguments")
    except InvalidInput as error:
        raise _explain(definition.signature.refuse(str(error)), build_line) from error
    return _build_typed_call(definition, text, build_line)


def _build_typed_call(
    definition: Workflow[Any, Any] | Step[Any, Any], arguments: str, build_line: Callable[[str], str]
) -> WorkflowCall[Any] | StepCall[Any]:
    """Build the call of a definition from a JSON object that was checked. Raises InvalidArguments."""
    try:
        call: WorkflowCall[Any] | StepCall[Any] = definition(**decode_arguments(definition.signature, arguments))
    except InvalidArguments as error:
        raise _explain(error, build_line) from error
    except InvalidInput as error:
        raise InvalidArguments(str(error)) from error
    return call


def _explain(error: InvalidArguments, build_line: Callable[[str], str]) -> InvalidArguments:
    """Explain wrong arguments with a line of the caller's own interface instead of Python's."""
    line = build_line(error.example) if error.example else ""
    return InvalidArguments(error.why, takes=error.takes, example=error.example, call=line)


def find_named_definition(session: Session, name: str) -> Workflow[Any, Any] | Step[Any, Any]:
    """Find the workflow of that name, else the step; ``step:NAME`` is always the step. Raises UnknownDefinition."""
    codes = session.codes
    code = codes.get(name) or codes.get(STEP_PREFIX + name.removeprefix(STEP_PREFIX))
    if code is None:
        workflows = sorted(known for known in codes if not known.startswith(STEP_PREFIX))
        steps = sorted(known.removeprefix(STEP_PREFIX) for known in codes if known.startswith(STEP_PREFIX))
        raise UnknownDefinition(
            f"App {session.app} has no workflow or step {name!r}; workflows: {', '.join(workflows) or 'none'}; "
            f"steps: {', '.join(steps) or 'none'}"
        )
    return code.definition


# --- verbs
def build_verb_fields(
    session: Session, loaded: Loaded, arguments: VerbArguments, *, by: str, reason: str
) -> dict[str, Any]:
    """Build the fields of a verb's command from its arguments, for a task as it was just read.

    Raises: VerbRefused - the state of the task does not allow it; InvalidInput - the arguments or the step do not fit.
    """
    if not arguments.__struct_fields__:
        return {}
    match arguments:
        case ResubmitArguments(arguments=msgspec.Raw() as given, step=step):
            return _build_edit(session, loaded, bytes(given).decode(), step, by=by, reason=reason)
        case ResubmitArguments():
            return {}
        case AnswerArguments(step=step, result=given, did_not_happen=did_not_happen):
            text = bytes(given).decode() if isinstance(given, msgspec.Raw) else None
            return _build_answer(session.codes, loaded, step, text, did_not_happen=did_not_happen)
        case AdjustArguments():
            return build_adjustment(loaded, arguments)
        case _:
            return arguments.build_fields(session.store.now)


def _build_edit(
    session: Session, loaded: Loaded, text: str, step: str | None, *, by: str, reason: str
) -> dict[str, Any]:
    refuse_edits(loaded, session.store.now(), by=by, reason=reason)
    _, definition = find_edited_definition(loaded, session.codes, step)
    require_object(text, "arguments")  # only now: the state of the task explains more than a wrong argument
    return build_edit(loaded, session.codes, decode_arguments(definition.signature, text), step)


def _build_answer(
    codes: Mapping[str, Code], loaded: Loaded, step: str, text: str | None, *, did_not_happen: bool
) -> dict[str, Any]:
    result: Any = msgspec.UNSET
    if text is not None:
        row = find_step(loaded, step)
        if row.kind in FORWARD_KINDS and not did_not_happen and not is_done_by_child(row):
            definition = find_step_definition(codes, row)
            result = decode_result(definition.signature, text)
        else:
            result = msgspec.json.decode(text)
    return build_answer(loaded, codes, step, result, did_not_happen)
