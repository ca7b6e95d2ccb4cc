"""Routes that carry what a caller needs for them: the gate is the route itself, so no path can pass beside it.

A file in ``routes`` is one kind of resource: it declares a ``RouteGroup`` and decorates a function for each operation. The function's
parameters of path, query and headers are FastAPI's; its first one is the ``Call``.
"""

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ..client.client import Client
from ..errors import DefinitionError
from .authentication import Authenticator
from .calls import Caller, HttpCall, encode_answer
from .problems import FORBIDDEN, Problem, ProblemType
from .request_body import read_body
from .scopes import Needs, describe_missing_scope

Function = Callable[..., Awaitable[Any]]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path, as its route and its part of the OpenAPI document are built from it.

    Args:
        method: of HTTP, in capitals.
        path: from the root of the API, as ``/v1/tasks/{task_id}``.
        needs: what the caller must hold.
        function: answers with a Struct, which becomes the JSON body, or with a Response.
        summary: one line for people.
        body: the type of the body; None: it takes none.
        body_max: bytes of the body at most; None: the server's limit.
        answer: the type of the body of the answer; None: it has none, or is no JSON.
        status: of the answer.
        problems: refusals that this operation can give, beside those of every operation.
        examples: of the body, by name, as plain JSON values.
        answer_example: of the answer, as plain JSON values.
    """

    method: str
    path: str
    needs: Needs
    function: Function
    summary: str
    body: Any = None
    body_max: int | None = None
    answer: Any = None
    status: int = 200
    problems: tuple[ProblemType, ...] = ()
    examples: Mapping[str, Any] = {}
    answer_example: Any = None


class RouteGroup:
    """The operations of one kind of thing, in the order of their declaration. ``name`` groups them in the document."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.operations: list[Operation] = []

    def operation(
        self,
        method: str,
        path: str,
        needs: Needs,
        *,
        summary: str,
        body: Any = None,
        body_max: int | None = None,
        answer: Any = None,
        status: int = 200,
        problems: Sequence[ProblemType] = (),
        examples: Mapping[str, Any] = {},
        answer_example: Any = None,
    ) -> Callable[[Function], Function]:
        """Declare an operation: decorates its function. The arguments are those of ``Operation``."""

        def declare(function: Function) -> Function:
            self.operations.append(
                Operation(
                    method=method,
                    path=path,
                    needs=needs,
                    function=function,
                    summary=summary,
                    body=body,
                    body_max=body_max,
                    answer=answer,
                    status=status,
                    problems=tuple(problems),
                    examples=examples,
                    answer_example=answer_example,
                )
            )
            return function

        return declare


class GatedRoute(APIRoute):
    """A route that lets nobody pass who lacks what its operation needs."""

    operation: Operation
    door: "Door"

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]  # Coroutine is one
        handle = super().get_route_handler()

        async def pass_gate(request: Request) -> Response:
            request.scope["arriero.call"] = await self.door.admit(self.operation, request)
            return await handle(request)

        return pass_gate


class Door:
    """Admits requests: says who the caller is, compares the scopes, reads the body up to its limit."""

    def __init__(self, client: Client, authenticator: Authenticator, body_max: int) -> None:
        self._client = client
        self._authenticator = authenticator
        self._body_max = body_max

    async def admit(self, operation: Operation, request: Request) -> HttpCall:
        """Build the call of a request. Raises Problem - no valid credential, a scope that is missing, a body that is too large."""
        caller = await self._identify(operation.needs, request)
        missing = describe_missing_scope(operation.needs, caller.scopes, request.path_params.get("agent", ""))
        if missing:
            raise Problem(FORBIDDEN, f"the token {caller.name} lacks the scope {missing}", scope=missing)
        body_max = self._body_max if operation.body_max is None else operation.body_max
        body = b"" if operation.body is None else await read_body(request, body_max)
        return HttpCall(self._client, caller, body, request)

    async def _identify(self, needs: Needs, request: Request) -> Caller:
        if needs.public:
            return Caller("", frozenset())
        return await self._authenticator.authenticate(request)


def add_operations(server: FastAPI, door: Door, group: RouteGroup) -> None:
    """Make a route of each operation of a group."""
    for operation in group.operations:
        route_class = type("GatedRoute", (GatedRoute,), {"operation": operation, "door": door})
        server.router.add_api_route(
            operation.path,
            _build_endpoint(operation),
            methods=[operation.method],
            name=operation.function.__name__,
            operation_id=operation.function.__name__,
            summary=operation.summary,
            tags=[group.name],
            route_class_override=route_class,
            response_model=None,
        )


def _build_endpoint(operation: Operation) -> Function:
    """Wrap the function of an operation, so that a Struct that it answers with becomes a response."""

    @functools.wraps(operation.function)
    async def answer(*args: Any, **kwargs: Any) -> Response:
        value = await operation.function(*args, **kwargs)
        if isinstance(value, Response):
            return value
        body = b"" if value is None else encode_answer(value)
        return Response(body, operation.status, media_type=None if value is None else "application/json")

    return answer


def refuse_ungated_routes(routes: Sequence[BaseRoute]) -> None:
    """Check that each route has a gate; the server asks this before it listens. Raises DefinitionError - one has none."""
    for route in routes:
        operation = getattr(route, "operation", None)
        if not isinstance(route, GatedRoute) or not isinstance(operation, Operation):
            path = getattr(route, "path", repr(route))
            raise DefinitionError(
                f"route {path} has no gate, so nothing is served: declare it as an operation of a RouteGroup"
            )
