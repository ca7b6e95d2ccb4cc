"""Builds the routes of declared operations: the body or the query from the fields of a Struct, the refusals from the errors."""

import inspect
from typing import Annotated, Any

import msgspec
from fastapi import Query

from ..operations.declaration import OperationDeclaration
from .calls import Call, HttpCall
from .examples import build_example
from .parameters import describe_id
from .problems import find_problem_type
from .routing import RouteGroup
from .scopes import Needs

TEXT_LENGTH_MAX = 255  # of a filter


def add_operations_of(group: RouteGroup, *operations: OperationDeclaration) -> None:
    """Add the routes of operations to a group, in their order."""
    for operation in operations:
        (_add_listing if operation.subject is None else _add_act)(group, operation)


def _add_listing(group: RouteGroup, operation: OperationDeclaration) -> None:
    async def run(call: HttpCall, **query: Any) -> msgspec.Struct:
        answer = await operation.function(call.session, operation.arguments(**query))
        return add_payloads(call, answer)

    fields = msgspec.structs.fields(operation.arguments)
    _declare(group, operation, run, "GET", [_build_query_parameter(field) for field in fields])


def _add_act(group: RouteGroup, operation: OperationDeclaration) -> None:
    subject = operation.subject
    assert subject is not None

    async def run(call: HttpCall, **path: str) -> msgspec.Struct:
        asked = call.read(operation.arguments)
        done = await operation.act(call.session, path[subject.parameter], call.caller.name, asked)
        return add_payloads(call, done.answer)

    of_path = inspect.Parameter(
        subject.parameter, inspect.Parameter.KEYWORD_ONLY, annotation=describe_id(subject.description)
    )
    example = build_example(operation.answer)
    if "verb" in example:
        example["verb"] = operation.name.replace("-", "_")
    body = {"body": operation.arguments, "examples": {"do it": operation.example}, "answer_example": example}
    _declare(group, operation, run, "POST", [of_path], **body)


def _declare(
    group: RouteGroup,
    operation: OperationDeclaration,
    run: Any,
    method: str,
    parameters: list[inspect.Parameter],
    **body: Any,
) -> None:
    call = inspect.Parameter("call", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Call)
    run.__signature__ = inspect.Signature([call, *parameters])
    run.__name__ = operation.function.__name__
    group.operation(
        method,
        operation.path,
        Needs(*operation.scopes),
        is_narrowed=operation.is_narrowed,
        summary=operation.summary,
        answer=operation.answer,
        problems=tuple(map(find_problem_type, operation.raises)),
        **body,
    )(run)


def add_payloads(call: HttpCall, answer: msgspec.Struct) -> msgspec.Struct:
    """Say in an answer whether its payloads are included."""
    if "payloads" not in answer.__struct_fields__:
        return answer
    return msgspec.structs.replace(answer, payloads=call.payloads)


def _build_query_parameter(field: msgspec.structs.FieldInfo) -> inspect.Parameter:
    annotated, meta = field.type.__origin__, field.type.__metadata__[0]
    query = Query(max_length=TEXT_LENGTH_MAX, description=meta.description)
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=Annotated[annotated, query]
    )
