"""The OpenAPI document: parameters from FastAPI, bodies and answers from the types of each operation, refusals by their codes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

from ..operations.problems import INVALID_REQUEST, STORE_UNAVAILABLE, ProblemDocument, ProblemType
from ..version import __version__
from .problems import (
    BODY_TOO_SLOW,
    CROSS_ORIGIN,
    FORBIDDEN,
    HEADERS_TOO_LARGE,
    INTERNAL,
    INVALID_JSON,
    MEDIA_TYPE,
    MISDIRECTED,
    NOT_HTTP,
    NOT_OPEN,
    OUT_OF_REACH,
    STOPPING,
    TOO_LARGE,
    TOO_MANY_AT_ONCE,
    TOO_MANY_CONNECTIONS,
    TOO_MANY_REQUESTS,
    UNAUTHENTICATED,
    UNSUPPORTED_MEDIA,
    URI_TOO_LONG,
    Problem,
    build_document,
)
from .routing import GatedRoute, Operation
from .scopes import Needs

OPENAPI_VERSION = "3.1.0"
JSON = "application/json"
REFERENCE = "#/components/schemas/{name}"
DESCRIPTION = """\
Submits tasks to an App, shows them, and carries out the verbs of operators.

Each request but those that say otherwise needs a token: `Authorization: Bearer TOKEN`. `x-scope` of an operation is the scope
that the token must have, and `x-also-scope` a second one; the scope admin replaces all others. What is refused is answered with a
problem document (RFC 9457), whose `code` is stable. Payloads (arguments, results, outputs) are shown only to tokens with the
scope read-payloads. A token may be restricted to Apps and workflows: other tasks, schedules and messages are not there for it, nor
are operations without `x-narrowed`, which are of the whole store; requests of an Agent are, on a server of its App.

`/`, `:` and `%` in an id are percent-encoded in a path.
"""
PUBLIC = (
    NOT_HTTP,
    INVALID_REQUEST,
    MISDIRECTED,
    CROSS_ORIGIN,
    URI_TOO_LONG,
    HEADERS_TOO_LARGE,
    TOO_MANY_CONNECTIONS,
    STOPPING,
    INTERNAL,
)
ALWAYS = (
    *PUBLIC,
    UNAUTHENTICATED,
    FORBIDDEN,
    OUT_OF_REACH,
    TOO_MANY_REQUESTS,
    TOO_MANY_AT_ONCE,
    STORE_UNAVAILABLE,
    NOT_OPEN,
)
WITH_BODY = (INVALID_JSON, UNSUPPORTED_MEDIA, TOO_LARGE, BODY_TOO_SLOW)


def build_openapi(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """Build the document of a server's routes, as plain JSON values."""
    gated = [route for route in routes if isinstance(route, GatedRoute) and not route.operation.is_page]
    types = _list_types(route.operation for route in gated)
    schemas, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    schema_of = dict(zip(map(_key, types), schemas, strict=True))
    document = get_openapi(
        title="arriero", version=__version__, openapi_version=OPENAPI_VERSION, description=DESCRIPTION, routes=gated
    )
    for route in gated:
        operation = route.operation
        part = document["paths"][route.path_format][operation.method.lower()]
        part.update(_describe(operation, schema_of))
        for parameter in part.get("parameters", []):
            parameter["schema"] = _without_null(parameter["schema"])
    document["components"] = {
        "schemas": components,
        "responses": _describe_all_problems((route.operation for route in gated), schema_of),
        "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
    }
    return document


def _list_types(operations: Iterable[Operation]) -> list[Any]:
    found: dict[str, Any] = {_key(ProblemDocument): ProblemDocument}
    for operation in operations:
        for of in (operation.body, operation.answer):
            if of is not None:
                found[_key(of)] = of
    return list(found.values())


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter of a query or a header is a text or is not there; it cannot be null."""
    known = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    return known[0] if len(known) == 1 else schema


def _key(of: Any) -> str:
    return repr(of)


def _describe(operation: Operation, schema_of: Mapping[str, Any]) -> dict[str, Any]:
    needs = operation.needs
    part: dict[str, Any] = {
        "description": _describe_needs(needs),
        "security": [] if needs.public else [{"bearer": []}],
        "responses": _describe_responses(operation, schema_of),
    }
    if not needs.public:
        part["x-scope"] = _name_scope(needs)
    if needs.also is not None:
        part["x-also-scope"] = str(needs.also)
    if operation.is_narrowed:
        part["x-narrowed"] = True
    if operation.body is not None:
        media = {"schema": schema_of[_key(operation.body)], "examples": _name_examples(operation.examples)}
        part["requestBody"] = {"required": True, "content": {operation.body_media: media}}
    return part


def _name_examples(examples: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {"value": value} for name, value in examples.items()}


def _name_scope(needs: Needs) -> str:
    if needs.named:
        return f"{needs.named}NAME"
    return "" if needs.scope is None else str(needs.scope)


def _describe_needs(needs: Needs) -> str:
    if needs.public:
        return f"Needs no token: {needs.public}."
    if needs.also is not None:
        return f"Needs the scopes `{needs.scope}` and `{needs.also}`."
    scope = _name_scope(needs)
    return f"Needs the scope `{scope}`." if scope else "Needs a token; any scope will do."


def _describe_responses(operation: Operation, schema_of: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, description in ((operation.status, operation.summary), *operation.more_statuses.items()):
        found[str(status)] = {"description": description}
        if operation.answer is not None:
            media: dict[str, Any] = {"schema": schema_of[_key(operation.answer)]}
            if status == operation.status:
                media["example"] = operation.example
            found[str(status)]["content"] = {operation.answer_media: media}
    for status, problems in _group_problems(operation).items():
        found[str(status)] = {"$ref": f"#/components/responses/{_name_problems(problems)}"}
    return found


def _group_problems(operation: Operation) -> dict[int, tuple[ProblemType, ...]]:
    by_status: dict[int, tuple[ProblemType, ...]] = {}
    for problem in list_problems(operation):
        by_status[problem.status] = (*by_status.get(problem.status, ()), problem)
    return dict(sorted(by_status.items()))


def _name_problems(problems: Sequence[ProblemType]) -> str:
    return ".".join(problem.code for problem in problems)


def _describe_all_problems(operations: Iterable[Operation], schema_of: Mapping[str, Any]) -> dict[str, Any]:
    """Describe each set of refusals that an operation has under one status: most operations share them."""
    groups = {group for operation in operations for group in _group_problems(operation).values()}
    return {_name_problems(group): _describe_problems(group, schema_of) for group in sorted(groups, key=_name_problems)}


def list_problems(operation: Operation) -> list[ProblemType]:
    """List the refusals that an operation may give, its own and those of every operation, each once."""
    common: tuple[ProblemType, ...] = PUBLIC if operation.needs.public else ALWAYS
    if operation.body is not None:
        common += WITH_BODY
    return list(dict.fromkeys((*operation.problems, *common)))


def _describe_problems(problems: Sequence[ProblemType], schema_of: Mapping[str, Any]) -> dict[str, Any]:
    codes = [problem.code for problem in problems]
    return {
        "description": "; ".join(f"`{problem.code}`: {problem.title}" for problem in problems),
        "content": {
            MEDIA_TYPE: {
                "schema": {
                    "allOf": [schema_of[_key(ProblemDocument)], {"properties": {"code": {"enum": codes}}}],
                },
                "examples": {
                    problem.code: {"value": build_document(Problem(problem, problem.remedy))} for problem in problems
                },
            }
        },
    }
