"""The operations of the API, as pages ask them: with the scopes and the reach of the one who looks at the page."""

import functools
from typing import Any, TypeVar

from ..calls import HttpCall
from ..cursors import CURSOR_INVALID
from ..problems import Problem
from ..routes import GROUPS
from ..routing import Operation, refuse_missing_scope, refuse_out_of_reach


@functools.cache
def list_operations() -> dict[str, Operation]:
    """List the operations of the API by the names of their functions."""
    return {operation.function.__name__: operation for group in GROUPS for operation in group.operations}


def find_operation(name: str) -> Operation:
    """Find an operation that the code names. Raises KeyError - there is none."""
    return list_operations()[name]


def may_ask(call: HttpCall, name: str) -> bool:
    """Return True if the caller's scopes and reach allow an operation."""
    try:
        _refuse(call, find_operation(name))
    except Problem:
        return False
    return True


async def ask(call: HttpCall, name: str, /, **parameters: Any) -> Any:
    """Ask an operation of the API as the caller of a page.

    Args:
        name: of its function, like ``list_tasks``.
        parameters: of its path and its query, decoded.
    Returns: its answer, without what the caller may not read.
    Raises: Problem - a scope is missing, or what the operation refuses; the errors of the operation.
    """
    operation = find_operation(name)
    _refuse(call, operation)
    return call.show(await operation.function(call, **parameters))


L = TypeVar("L")


async def ask_for_list(
    call: HttpCall, name: str, empty: L, belongs_to: str = "list", /, **parameters: Any
) -> tuple[L, str]:
    """Ask for a page of a list.

    Args:
        empty: the answer without a row.
        belongs_to: a word for what a cursor is of.
    Returns: the answer, and why the page is not there; then the answer is ``empty``.
    Raises: as ``ask``, but not for a cursor.
    """
    try:
        return await ask(call, name, **parameters), ""
    except Problem as problem:
        if problem.kind is not CURSOR_INVALID:
            raise
    return (
        empty,
        f"This page of the list is not there: its address is of another {belongs_to}, or from before a restore.",
    )


def _refuse(call: HttpCall, operation: Operation) -> None:
    refuse_missing_scope(operation, call.caller)
    refuse_out_of_reach(operation, call.caller, call.client.session.app)
