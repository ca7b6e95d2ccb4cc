"""Verbs of the command line and of HTTP: edited arguments and answers come as JSON."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ..model import STEP_PREFIX, Loaded, StepKind
from ..runtime.code import Code
from . import verb_commands
from .json_payloads import decode_arguments, decode_result, require_object
from .session import Session


def build_edit_from_json(
    session: Session, loaded: Loaded, text: str, step: str | None, *, by: str, reason: str
) -> dict[str, Any]:
    """Build the fields of a resubmission with edited arguments, for doors that have no Python.

    Args:
        text: a JSON object with the arguments by parameter name; those not named stay as they were.
        step: whose arguments are edited; None: the only failed one, or the task's own.
    Raises: VerbRefused - the state of the task does not allow it; InvalidInput - the arguments or the step do not fit.
    """
    verb_commands.refuse_edits(loaded, session.store.now(), by=by, reason=reason)
    _, definition = verb_commands.find_edited_definition(loaded, session.codes, step)
    require_object(text, "arguments")  # only now: the state of the task explains more than a wrong argument
    return verb_commands.build_edit(loaded, session.codes, decode_arguments(definition.signature, text), step)


def build_answer_from_json(
    codes: Mapping[str, Code], loaded: Loaded, step: str, text: str | None, *, did_not_happen: bool
) -> dict[str, Any]:
    """Build the fields of an answer, for doors that have no Python.

    Args:
        codes: those of the App; none are needed without a result.
        step: its label, ``undo:LABEL`` for its compensation, or its number.
        text: the result in JSON; None: none is given.
    Raises: InvalidInput - no such step, both or neither given, or a result of another type.
    """
    result: Any = msgspec.UNSET
    if text is not None:
        row = verb_commands.find_step(loaded, step)
        if row.kind is StepKind.STEP and not did_not_happen:
            definition = verb_commands.find_definition(codes, STEP_PREFIX + row.name)
            result = decode_result(definition.signature, text)
        else:
            result = msgspec.json.decode(text)
    return verb_commands.build_answer(loaded, codes, step, result, did_not_happen)
