"""Builds the routes of declared operations: the body or the query from the fields of a Struct, the refusals from the errors."""

import inspect
from datetime import datetime
from typing import Annotated, Any, get_origin

import msgspec
from fastapi import Query

from ..errors import InvalidInput
from ..model.tags import TAGS_MAX, VALUE_LENGTH_MAX, gather_tags, parse_tag
from ..operations.declaration import OperationDeclaration, split_annotation
from ..operations.problems import find_meaning
from .calls import Call, HttpCall
from .examples import build_example
from .parameters import describe_id
from .routing import REPEATED, RouteGroup
from .scopes import Needs

TEXT_LENGTH_MAX = 300  # of a filter
DURATION_OR_INSTANT = float | datetime


def add_operations_of(group: RouteGroup, *operations: OperationDeclaration) -> None:
    """Add the routes of operations to a group, in their order."""
    for operation in operations:
        (_add_listing if operation.subject is None else _add_act)(group, operation)


def _add_listing(group: RouteGroup, operation: OperationDeclaration) -> None:
    reader = QueryReader(operation.arguments)

    async def run(call: HttpCall, **query: Any) -> msgspec.Struct:
        return add_payloads(call, await operation.function(call.session, await reader(**query)))

    _declare(group, operation, run, "GET", reader.parameters)


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
    example = build_verb_example(operation.answer, operation.name.replace("-", "_"))
    body = {"body": operation.arguments, "examples": {"do it": operation.example}, "answer_example": example}
    _declare(group, operation, run, "POST", [of_path], **body)


def build_verb_example(answer: type[msgspec.Struct], verb: str) -> dict[str, Any]:
    """Build the example of an act's answer, which names the verb if it has a member for it."""
    example = build_example(answer)
    return {**example, "verb": verb} if "verb" in example else example


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
        problems=tuple(find_meaning(error).problem for error in operation.raises),
        **body,
    )(run)


def add_payloads(call: HttpCall, answer: msgspec.Struct) -> msgspec.Struct:
    """Say in an answer whether its payloads are included."""
    if "payloads" not in answer.__struct_fields__:
        return answer
    return msgspec.structs.replace(answer, payloads=call.payloads)


# --- the query, from the fields of a Struct
class QueryReader:
    """Reads a Struct of arguments from the parameters of a query; a dependency for FastAPI, which calls it by its signature."""

    def __init__(self, of: type[msgspec.Struct]) -> None:
        self._of = of
        fields = msgspec.structs.fields(of)
        self._instants = [field.name for field in fields if split_annotation(field.type)[0] == DURATION_OR_INSTANT]
        self._tags = [field.name for field in fields if get_origin(split_annotation(field.type)[0]) is dict]
        self.parameters = [_build_query_parameter(field) for field in fields]
        self.__signature__ = inspect.Signature(self.parameters)

    async def __call__(self, **given: Any) -> Any:
        """Build the arguments. Raises InvalidInput - a text is neither a duration nor an instant."""
        for name in self._instants:
            if given[name] is not None:
                given[name] = _read_duration_or_instant(given[name], name)
        for name in self._tags:
            if given[name] is not None:
                given[name] = gather_tags(map(parse_tag, given[name]))
        return self._of(**given)


def _build_query_parameter(field: msgspec.structs.FieldInfo) -> inspect.Parameter:
    kind, meta = split_annotation(field.type)
    text = meta.description or ""
    annotated: Any = Annotated[str | None, Query(max_length=TEXT_LENGTH_MAX, description=text)]
    if kind is bool:
        annotated = Annotated[bool | None, Query(description=text)]
    elif get_origin(kind) is dict:
        says = f"{text} Written NAME=VALUE; may be given several times."
        each = Annotated[str, Query(max_length=TEXT_LENGTH_MAX + VALUE_LENGTH_MAX)]
        annotated = Annotated[list[each] | None, Query(alias=REPEATED, max_length=TAGS_MAX, description=says)]
    elif kind is int:
        annotated = Annotated[int | None, Query(ge=meta.ge, le=meta.le, description=text)]
    elif kind is float:
        annotated = Annotated[float | None, Query(ge=0, allow_inf_nan=False, description=f"{text} In seconds.")]
    elif kind == DURATION_OR_INSTANT:
        says = f"{text} Seconds, or an instant with a time zone."
        annotated = Annotated[str | None, Query(max_length=TEXT_LENGTH_MAX, description=says)]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=annotated)


def _read_duration_or_instant(text: str, name: str) -> float | datetime:
    """Read a parameter of a query: seconds, or an instant in ISO 8601. Raises InvalidInput."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{name} is {text!r}, which is neither a number of seconds nor an instant like 2026-11-20T14:15:17Z"
        ) from None
