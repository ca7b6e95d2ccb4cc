"""Routes with the scopes that they need. Each route is its own gate, so no path can bypass it.

A file in ``routes`` is one kind of resource: it declares a ``RouteGroup`` and decorates a function for each operation. The function's
parameters of path, query and headers are FastAPI's; its first one is the ``Call``.
"""

import functools
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any
from urllib.parse import urlencode

import msgspec
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from ..client.client import Client
from ..client.session import Session
from ..errors import DefinitionError, InvalidInput
from ..model.tokens import AGENT_PREFIX
from ..operations.problems import INVALID_REQUEST, ProblemType
from ..text.escaping import shell_word
from .authentication import Authenticator, CallbackAuthenticator, use_cookie
from .caller_limits import CallerLimits, CallerPlaces, RateLimits, RatePolicy, RequestPlace
from .calls import Caller, HttpCall, ShutdownSignal
from .connection_limits import is_kept
from .examples import build_example
from .parameters import read_id
from .problems import FORBIDDEN, INVALID_JSON, NOT_OPEN, OUT_OF_REACH, Problem
from .request_body import JSON, read_body, refuse_doubtful_text
from .request_rules import SAFE_METHODS, get_note
from .scopes import ANY_TOKEN, Needs, describe_missing_scope

EVENT_STREAM = "text/event-stream"
CONFIRM_SECONDS = 1.0  # a revocation is promised to work within it

Function = Callable[..., Awaitable[Any]]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path, as its route and its part of the OpenAPI document are built from it.

    Args:
        method: of HTTP, in capitals.
        path: from the root of the API, as ``/v1/tasks/{task_id}``.
        needs: what the caller must hold.
        function: answers with a Struct, which becomes the JSON body, or with a Response.
        summary: one line for operators.
        body: the type of the body; None: it takes none.
        body_max: bytes of the body at most; None: the server's limit.
        body_media: media type of the body.
        is_narrowed: also for tokens that are restricted to Apps or workflows: it asks for nothing but what they reach. Other
            operations are as if they were not there for them.
        is_page: of the console: its caller may be known by the console's cookie, its refusals are pages, and no document lists it.
        streams_body: the function reads the body itself, bit by bit; ``body`` is then the type of a line of it.
        answer: the type of the body of the answer; None: it has none, or is not JSON.
        answer_media: media type of the answer.
        status: of the answer.
        more_statuses: others that the same answer may have, each with when; they go into the document.
        problems: refusals that this operation can give, beside those of every operation.
        examples: of the body, by name, as plain JSON values.
        answer_example: of the answer, as plain JSON values; None: one is built from its type.
    """

    method: str
    path: str
    needs: Needs
    function: Function
    summary: str
    body: Any = None
    body_max: int | None = None
    body_media: str = JSON
    streams_body: bool = False
    is_narrowed: bool = False
    is_page: bool = False
    answer: Any = None
    answer_media: str = JSON
    status: int = 200
    more_statuses: Mapping[int, str] = {}
    problems: tuple[ProblemType, ...] = ()
    examples: Mapping[str, Any] = {}
    answer_example: Any = None

    @property
    def example(self) -> Any:
        """An example of the answer, as plain JSON values."""
        return build_example(self.answer) if self.answer_example is None else self.answer_example

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that its path takes: HEAD with GET, as RFC 9110 requires, unless the answer is a stream without end."""
        return ("GET", "HEAD") if self.method == "GET" and self.answer_media != EVENT_STREAM else (self.method,)


class RouteGroup:
    """The operations of one kind of thing, in the order of their declaration. ``name`` groups them in the document."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.operations: list[Operation] = []

    def operation(self, method: str, path: str, needs: Needs, **described: Any) -> Callable[[Function], Function]:
        """Declare an operation: decorates its function, which returns the answer. The other arguments are those of ``Operation``."""

        def declare(function: Function) -> Function:
            returned = function.__annotations__.get("return")
            if isinstance(returned, type) and issubclass(returned, msgspec.Struct):
                described.setdefault("answer", returned)
            self.operations.append(Operation(method=method, path=path, needs=needs, function=function, **described))
            return function

        return declare


class GatedRoute(APIRoute):
    """A route that lets nobody pass who lacks what its operation needs."""

    operation: Operation
    gate: "Gate"

    def matches(self, scope: AsgiScope) -> tuple[Match, AsgiScope]:
        return super().matches(self._take_head_for_get(scope))

    async def handle(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        scope = self._take_head_for_get(scope)
        try:
            await super().handle(scope, receive, send)
        finally:  # also a stream has ended now
            place: RequestPlace | None = scope.get("arriero.place")
            if place is not None:
                place.leave()

    def _take_head_for_get(self, scope: AsgiScope) -> AsgiScope:
        """HEAD is answered like GET; the HTTP server, which sees the method that was sent, leaves out the body."""
        is_head = scope["type"] == "http" and scope["method"] == "HEAD" and "HEAD" in self.operation.methods
        return {**scope, "method": "GET"} if is_head else scope

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]  # Coroutine is one
        handle = super().get_route_handler()
        known = list_query_parameters(self.dependant)

        async def pass_gate(request: Request) -> Response:
            begun_at = self.gate.monotonic()
            note = get_note(request.scope)
            note.operation, note.is_page = self.operation.function.__name__, self.operation.is_page
            if self.operation.is_page and (query := drop_empty_parameters(request)) is not None:
                return RedirectResponse(f"{request.url.path}?{query}".rstrip("?"), 303)
            request.scope["arriero.call"] = await self.gate.admit(self.operation, request)
            refuse_unknown_parameters(request, known)
            # What may change something is never cut short. Health has few turns of a busy event loop to wait for.
            if self.operation.method != "GET" or self.operation.needs.public:
                return await handle(request)
            response = await self.gate.shutdown.run_until_begun(handle(request))
            await self.gate.confirm(self.operation, request, self.gate.monotonic() - begun_at)
            return response

        return pass_gate


REPEATED = "tag"  # the one parameter of a query that may be there several times


def list_query_parameters(dependant: Dependant) -> frozenset[str]:
    """List the names of the query parameters of an operation, with those of its dependencies."""
    names = {parameter.alias for parameter in dependant.query_params}
    return frozenset(names.union(*map(list_query_parameters, dependant.dependencies)))


def refuse_unknown_parameters(request: Request, known: AbstractSet[str]) -> None:
    """Refuse a parameter of the query that the operation does not have, or that is there twice.

    A filter with a slip in its name would be no filter at all. Raises: Problem.
    """
    if not request.scope["query_string"]:
        return
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        if name not in known:
            raise Problem(
                INVALID_REQUEST,
                f"query parameter {name!r} is not known; known are {', '.join(sorted(known)) or 'none'}",
            )
    names = [name for name in names if name != REPEATED]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Problem(INVALID_REQUEST, f"query parameter {twice!r} is there twice; give it once")


def drop_empty_parameters(request: Request) -> str | None:
    """Return the query without the parameters that are empty; None: none is. A form of a page sends each of its fields."""
    given = request.query_params.multi_items()
    filled = [(name, value) for name, value in given if value.strip()]
    return urlencode(filled) if len(filled) < len(given) and request.method in SAFE_METHODS else None


class GateLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on what one caller sends.

    Args:
        body_max: bytes of a body, unless its operation says another number.
        body_seconds: after which a body must have arrived.
        rate: requests of one caller.
        agent_rate: requests of one caller for an Agent (``scopes.AGENT``). They have a separate bucket, because a refused
            heartbeat would cost an attempt.
        at_once: what one caller may have running.
    """

    body_max: int = 2 * 1024 * 1024  # the largest payload is 1 MB; JSON may escape it
    body_seconds: float = 30.0
    rate: RatePolicy = RatePolicy(100, 500)
    agent_rate: RatePolicy = RatePolicy(1_000, 5_000)
    at_once: CallerLimits = CallerLimits()


class Gate:
    """Admits requests: says who the caller is, counts, compares the scopes, reads the body up to its limits."""

    def __init__(self, client: Client, authenticator: Authenticator, limits: GateLimits) -> None:
        self._client = client
        self._authenticator = authenticator
        self._callbacks = CallbackAuthenticator(client.session)
        self._limits = limits
        self._rate = RateLimits(limits.rate, self.monotonic)
        self._agent_rate = RateLimits(limits.agent_rate, self.monotonic)
        self._places = CallerPlaces(limits.at_once)
        self._public_places = CallerPlaces(CallerLimits(sys.maxsize, sys.maxsize))
        self.shutdown = ShutdownSignal()

    @property
    def session(self) -> Session:
        """The session of the App that is served."""
        return self._client.session

    def monotonic(self) -> float:
        """Seconds on this process's clock."""
        return self._client.session.ports.clock.monotonic()

    async def admit(self, operation: Operation, request: Request) -> HttpCall:
        """Build the call of a request.

        Raises: Problem - no valid credential, too many requests, a scope that is missing, a body that is too large or too slow.
        """
        caller = await self._identify(operation, request)
        get_note(request.scope).caller = caller.name
        key = caller.credential or caller.name
        if not operation.needs.is_open:
            (self._agent_rate if operation.needs.named == AGENT_PREFIX else self._rate).admit(key)
        refuse_missing_scope(operation, caller, read_id(request.path_params.get(operation.needs.path_name, "")))
        refuse_out_of_reach(operation, caller, self._client.session.app)
        place = request.scope["arriero.place"] = self._enter(operation, key)
        body = b""
        if operation.body is not None and not operation.streams_body:
            begun_at = self.monotonic()
            body = await self._read_body(operation, request)
            if operation.body_media == JSON:
                await self._check_json(body, place)
            await self.confirm(operation, request, self.monotonic() - begun_at)  # a slow body outlives no token
        confirm = functools.partial(self.confirm, operation, request)
        return HttpCall(self._client, caller, body, request, self.shutdown, confirm, place)

    def _enter(self, operation: Operation, key: str) -> RequestPlace:
        """Begin a request of a caller. What is kept when the server is full is counted apart: polls must not refuse reports."""
        if operation.needs.is_open:
            return self._public_places.enter("")
        return self._places.enter(f"kept {key}" if is_kept(operation.path) else key)

    async def _check_json(self, body: bytes, place: RequestPlace) -> None:
        try:
            await refuse_doubtful_text(self._client.session.ports, place.thread_turn, body, "the body")
        except InvalidInput as error:
            raise Problem(INVALID_JSON, str(error)) from error

    async def _read_body(self, operation: Operation, request: Request) -> bytes:
        limits = self._limits
        body_max = limits.body_max if operation.body_max is None else operation.body_max
        return await read_body(request, body_max, limits.body_seconds, operation.body_media)

    async def confirm(self, operation: Operation, request: Request, seconds: float) -> None:
        """Admit the caller of a request that took long once more, so that a token that was revoked meanwhile does and learns nothing.

        Raises: Problem - the credential is no longer valid.
        """
        if seconds >= CONFIRM_SECONDS:
            caller = await self._identify(operation, request)
            refuse_missing_scope(operation, caller, read_id(request.path_params.get(operation.needs.path_name, "")))

    async def authenticate(self, request: Request) -> Caller:
        """Identify the sender of a request by its credential. Raises Problem (unauthenticated)."""
        return await self._authenticator.authenticate(request)

    async def _identify(self, operation: Operation, request: Request) -> Caller:
        needs = operation.needs
        if needs.is_open:
            return Caller("", frozenset())
        if not self._client.session.is_open:  # there are no tokens to ask for
            raise Problem(NOT_OPEN, f"App {self._client.session.app} is not open in this process")
        if operation.is_page:
            request = use_cookie(request)
        return await (self._callbacks if needs.credential else self._authenticator).authenticate(request)


def refuse_missing_scope(operation: Operation, caller: Caller, name: str = "") -> None:
    """Refuse a caller who lacks a scope that an operation needs. ``name``: in its path, of an Agent or a queue. Raises Problem."""
    if missing := describe_missing_scope(operation.needs, caller.scopes, name):
        command = f"arriero token create NAME --scope {shell_word(missing)}"
        says = f"{caller.name} lacks the scope {missing}; a token that has it comes from `{command}`"
        raise Problem(FORBIDDEN, says, scope=missing)


def refuse_out_of_reach(operation: Operation, caller: Caller, app: str) -> None:
    """Refuse a restricted caller what is of the whole store, and the requests of Agents of another App. Raises Problem.

    ``app``: of this server.
    """
    reach = caller.reach
    if reach.is_whole or operation.needs.public or operation.needs == ANY_TOKEN or operation.is_narrowed:
        return
    is_of_agent = operation.needs.named == AGENT_PREFIX
    if not (is_of_agent and not reach.workflows and reach.includes_app(app)):
        says = f"the token of {caller.name} is restricted, and this is not of its Apps and workflows"
        raise Problem(OUT_OF_REACH, says)


def add_operations(server: FastAPI, gate: Gate, group: RouteGroup) -> None:
    """Make a route of each operation of a group."""
    for operation in group.operations:
        route_class = type("GatedRoute", (GatedRoute,), {"operation": operation, "gate": gate})
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
    async def answer(call: HttpCall, *args: Any, **kwargs: Any) -> Response:
        value = await operation.function(call, *args, **kwargs)
        if isinstance(value, Response):
            return value
        body = b"" if value is None else call.encode(value)
        return Response(body, operation.status, media_type=None if value is None else "application/json")

    return answer


def get_route_path(scope: AsgiScope) -> str:
    """The path of a request as routes see it: without that under which the application is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def list_methods(routes: Sequence[BaseRoute], path: str) -> list[str]:
    """List the methods of a resource, for the header Allow.

    A path with a verb, like ``/v1/tasks/t-1:cancel``, fits ``/v1/tasks/{task_id}``, too; the longest template is meant.
    """
    fitting = [route for route in routes if isinstance(route, GatedRoute) and route.path_regex.match(path)]
    longest = max((len(route.path) for route in fitting), default=0)
    return sorted({method for route in fitting if len(route.path) == longest for method in route.operation.methods})


def refuse_ungated_routes(routes: Sequence[BaseRoute]) -> None:
    """Check that each route has a gate; the server asks this before it listens. Raises DefinitionError - one has none."""
    for route in routes:
        operation = getattr(route, "operation", None)
        if not isinstance(route, GatedRoute) or not isinstance(operation, Operation):
            path = getattr(route, "path", repr(route))
            raise DefinitionError(
                f"route {path} has no gate, so nothing is served: declare it as an operation of a RouteGroup"
            )
