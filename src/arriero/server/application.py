"""Builds the ASGI application: the routes, their gate, how refusals and errors are answered, and whether it is ready."""

import asyncio
import logging
import uuid
from collections.abc import Iterable

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..client.client import Client
from ..client.session import Session
from ..config.values import ORIGINS, UnfitValue
from ..errors import ArrieroError, InvalidInput
from ..operations.problems import INVALID_REQUEST
from ..store.contract import SUPERVISOR_LEASE
from .authentication import Authenticate, Authenticator, FunctionAuthenticator, TokenAuthenticator
from .calls import ShutdownSignal
from .console import console, render_problem
from .parameters import EncodedPaths
from .problems import (
    INTERNAL,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    Problem,
    build_problem,
    build_problem_response,
    hide_store,
)
from .request_rules import LOOPBACK_NAMES, RequestRules, get_note
from .routes import GROUPS
from .routing import Gate, GateLimits, add_operations, get_route_path, list_methods, refuse_ungated_routes
from .security_middleware import SecurityMiddleware

logger = logging.getLogger("arriero.server")

ANSWER_SECONDS_MAX = 2.0  # a store that takes longer counts as gone
REMEMBERED_SECONDS = 1.0  # however many ask, the store is asked once in it


class ServerReadiness:
    """Asks the store, and remembers its answer for a second."""

    def __init__(self, client: Client, shutdown: ShutdownSignal) -> None:
        self._client = client
        self._shutdown = shutdown
        self._answers = False
        self._asked_at: float | None = None
        self._asking: asyncio.Task[bool] | None = None

    async def find_obstacle(self) -> str:
        """Find why no work can be sent here; empty: it can."""
        session = self._client.session
        if self._shutdown.has_begun:
            return "the server is about to end"
        if not session.is_open:
            return "the App is not open"
        if session.node is not None and (session.node.session is None or not self._are_loops_alive()):
            return "a loop of the App has ended"
        return "" if await self._ask_store_once() else "the store does not answer"

    def _are_loops_alive(self) -> bool:
        node = self._client.session.node
        return node is not None and node.session is not None and all(node.session.list_loop_liveness().values())

    async def _ask_store_once(self) -> bool:
        now = self._client.session.ports.clock.monotonic()
        if self._asked_at is not None and now - self._asked_at < REMEMBERED_SECONDS:
            return self._answers
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask_store())
        self._answers = await asyncio.shield(self._asking)
        self._asked_at = self._client.session.ports.clock.monotonic()
        return self._answers

    async def _ask_store(self) -> bool:
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                await self._client.session.store.find_lease(SUPERVISOR_LEASE)
        except (ArrieroError, TimeoutError) as error:
            logger.warning("the store does not answer: %s", error or f"not within {ANSWER_SECONDS_MAX:g} s")
            return False
        return True


class ApiServer(FastAPI):
    """The application, with its security middleware around everything, and the way to its end."""

    gate: Gate
    security: SecurityMiddleware
    shutdown: ShutdownSignal
    readiness: ServerReadiness

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.security.serve(super().__call__, scope, receive, send)


def build_application(
    client: Client,
    authenticator: Authenticator,
    *,
    limits: GateLimits = GateLimits(),
    rules: RequestRules = RequestRules(),
) -> ApiServer:
    """Build the application that serves an App over HTTP.

    Args:
        client: the App. It must be open while requests come in.
        authenticator: says who sends a request.
        limits: what one caller may send.
        rules: what a request must fulfil before anything of it is done.
    Raises: DefinitionError - a route has no gate.
    """
    server = ApiServer(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    gate = server.gate = Gate(client, authenticator, limits)
    server.security, server.shutdown = SecurityMiddleware(rules, gate.monotonic, client.session), gate.shutdown
    server.readiness = ServerReadiness(client, gate.shutdown)
    for group in (*GROUPS, console):
        add_operations(server, gate, group)
    refuse_ungated_routes(server.routes)
    if rules.origins:
        server.add_middleware(
            CORSMiddleware,
            allow_origins=sorted(rules.origins),
            allow_methods=["*"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key"],
        )
    server.add_middleware(EncodedPaths)
    server.add_exception_handler(Problem, _answer_problem)
    server.add_exception_handler(ArrieroError, _answer_error)
    server.add_exception_handler(RequestValidationError, _answer_invalid_request)
    server.add_exception_handler(HTTPException, _answer_http_exception)
    server.add_exception_handler(ClientDisconnect, _answer_nobody)
    server.add_exception_handler(Exception, _answer_failure)
    return server


def _get_session(request: Request) -> Session:
    server = request.app
    assert isinstance(server, ApiServer)
    return server.gate.session


def _respond(request: Request, problem: Problem) -> Response:
    note = get_note(request.scope)
    note.problem = problem.kind.code
    problem.detail = hide_store(problem.detail, _get_session(request))
    wants_page = problem.kind is NOT_FOUND and "text/html" in request.headers.get("accept", "")
    return render_problem(request, problem) if note.is_page or wants_page else build_problem_response(problem)


async def _answer_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _respond(request, error)


async def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ArrieroError)
    problem = build_problem(error, _get_session(request))
    return await _answer_failure(request, error) if problem is None else _respond(request, problem)


async def _answer_invalid_request(request: Request, error: Exception) -> Response:
    """Name each parameter of path, query or header that does not fit. Its value is not repeated: it may be a secret."""
    assert isinstance(error, RequestValidationError)
    places = [f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors()]
    return _respond(request, Problem(INVALID_REQUEST, "; ".join(places)))


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    """Answer what the router refuses itself: an unknown path, or another method."""
    assert isinstance(error, HTTPException)
    if error.status_code != METHOD_NOT_ALLOWED.status:
        return _respond(request, Problem(NOT_FOUND, NOT_FOUND.title))
    allow = ", ".join(list_methods(request.app.routes, get_route_path(request.scope)))
    return _respond(request, Problem(METHOD_NOT_ALLOWED, METHOD_NOT_ALLOWED.title, headers={"Allow": allow}))


async def _answer_nobody(request: Request, error: Exception) -> Response:
    """Answer a caller that disconnects before its body has come: nothing was done, and it is not a failure of ours."""
    return _respond(request, Problem(INVALID_REQUEST, "the connection was closed before the body was complete"))


async def _answer_failure(request: Request, error: Exception) -> Response:
    """Log a bug of ours with a number, and answer with the number alone."""
    incident = str(uuid.uuid4())
    logger.error("a request failed, incident %s: %r", incident, error, exc_info=error)
    return _respond(request, Problem(INTERNAL, f"incident {incident}", incident=incident))


def mount(
    app: Client,
    *,
    authenticate: Authenticate | None = None,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    limits: GateLimits = GateLimits(),
) -> ApiServer:
    """Build the HTTP API of an App for ``web.mount("/arriero", mount(app))`` in FastAPI or Starlette.

    The lifespan of the web application opens the App: ``async with app:`` or ``async with app.running():``. While it is not open,
    every request but that for liveness is answered with 503.

    Args:
        app: the App.
        authenticate: ``async def authenticate(request) -> Caller | None`` instead of tokens. If it reads a cookie, a page of
            another site could act with it; the check of the header Origin is then all that stands before that.
        hosts: names by which the web application is known, beside localhost; ``*`` for any, if it judges the header Host itself.
        origins: of pages of others that may use the API from a browser.
        limits: what one caller may send.
    Raises: DefinitionError - a route has no gate; InvalidInput - what is given as an origin is none, or any page.
    """
    authenticator = TokenAuthenticator(app.session) if authenticate is None else FunctionAuthenticator(authenticate)
    known = frozenset(LOOPBACK_NAMES) | frozenset(host.lower() for host in hosts)
    rules = RequestRules(hosts=known, origins=_check_origins(origins))
    return build_application(app, authenticator, limits=limits, rules=rules)


def _check_origins(origins: Iterable[str]) -> frozenset[str]:
    given = tuple(origins)
    try:
        return frozenset(ORIGINS.checked(given))
    except UnfitValue as error:
        raise InvalidInput(f"origins are {given!r}: {str(error) or f'they must be {ORIGINS.must_be}'}") from error
