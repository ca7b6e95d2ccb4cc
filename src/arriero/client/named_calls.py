"""Build the call to submit from the name of a workflow or step and arguments in JSON, for doors that have no Python."""

from typing import Any

import msgspec

from ..declare.steps import Step, StepCall
from ..declare.workflows import Workflow, WorkflowCall
from ..errors import InvalidArguments, InvalidInput, UnknownDefinition
from ..model import STEP_PREFIX
from .json_payloads import check_object, decode_arguments, require_object
from .session import Session


def build_call(session: Session, name: str, arguments: str, what: str) -> WorkflowCall[Any] | StepCall[Any]:
    """Build the typed call.

    Args:
        arguments: the text of a JSON object, by parameter name. ``what``: names it in errors.
    Raises: UnknownDefinition - the App has none of that name; InvalidArguments - its types refuse them.
    """
    definition = find_named_definition(session, name)
    try:
        return build_typed_call(definition, check_object(arguments, what))
    except InvalidArguments:
        raise
    except InvalidInput as error:
        raise InvalidArguments(str(error)) from error


def build_named_call(
    session: Session, name: str, arguments: msgspec.Raw | msgspec.UnsetType
) -> WorkflowCall[Any] | StepCall[Any]:
    """Build the typed call that a checked body names. ``arguments`` UNSET: none.

    Raises: UnknownDefinition, InvalidArguments - as ``build_call``.
    """
    definition = find_named_definition(session, name)
    text = "{}" if isinstance(arguments, msgspec.UnsetType) else bytes(arguments).decode()
    return build_typed_call(definition, require_object(text, "arguments"))


def build_typed_call(
    definition: Workflow[Any, Any] | Step[Any, Any], arguments: str
) -> WorkflowCall[Any] | StepCall[Any]:
    """Build the call of a definition from a JSON object that was checked. Raises InvalidArguments."""
    try:
        call: WorkflowCall[Any] | StepCall[Any] = definition(**decode_arguments(definition.signature, arguments))
    except InvalidInput as error:
        raise InvalidArguments(str(error)) from error
    return call


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
