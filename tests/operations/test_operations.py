"""Each declared operation is a command and a route, which take the same arguments."""

from typing import Annotated

import click
import msgspec
import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.cli.main import commands
from arriero.operations import agents, convoys, schedules, tokens, workflows
from arriero.operations.declaration import OperationDeclaration
from arriero.server.operation_routes import QueryReader
from arriero.server.routes import GROUPS

OPERATIONS = [
    agents.LIST,
    *agents.VERBS,
    schedules.LIST,
    *schedules.VERBS,
    *convoys.VERBS,
    tokens.LIST,
    tokens.REVOKE,
    workflows.LIST,
    workflows.PAUSE,
    workflows.RESUME,
]
ROUTES = {(route.method, route.path): route for group in GROUPS for route in group.operations}


def name(operation: OperationDeclaration) -> str:
    return f"{operation.noun} {operation.name}"


@pytest.mark.parametrize("operation", OPERATIONS, ids=name)
def test_an_operation_is_a_command_with_its_arguments(operation: OperationDeclaration) -> None:
    group = commands.commands[operation.noun]
    assert isinstance(group, click.Group)
    command = group.commands[operation.name]
    taken = {parameter.name for parameter in command.params}
    assert {field.name for field in msgspec.structs.fields(operation.arguments)} <= taken
    assert command.help
    assert command.short_help == operation.summary


@pytest.mark.parametrize("operation", OPERATIONS, ids=name)
def test_an_operation_is_a_route_with_its_scopes_and_its_answer(operation: OperationDeclaration) -> None:
    route = ROUTES["GET" if operation.subject is None else "POST", operation.path]
    assert {scope for scope in (route.needs.scope, route.needs.also) if scope is not None} == set(operation.scopes)
    assert (route.answer, route.summary, route.is_narrowed) == (
        operation.answer,
        operation.summary,
        operation.is_narrowed,
    )
    if operation.subject is not None:
        assert route.body is operation.arguments


class Least(msgspec.Struct):
    """Arguments with a whole number in a range."""

    priority: Annotated[int | None, msgspec.Meta(ge=0, le=9, description="Of this priority at least.")] = None


def test_a_whole_number_in_a_query_is_read_as_one_within_its_range() -> None:
    (parameter,) = QueryReader(Least).parameters
    reader: TypeAdapter[int | None] = TypeAdapter(parameter.annotation)
    assert reader.validate_python("5") == 5
    for text in ("10", "-1", "high"):
        with pytest.raises(ValidationError):
            reader.validate_python(text)
