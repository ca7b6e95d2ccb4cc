"""Builds the ASGI application: the routes, their gate, and how refusals and errors are answered."""

import logging
import uuid

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..client.client import Client
from ..errors import ArrieroError
from .authentication import Authenticator
from .paths import EncodedPaths
from .problems import (
    INTERNAL,
    INVALID_REQUEST,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    Problem,
    build_problem,
    build_problem_response,
)
from .routes import GROUPS
from .routing import Door, add_operations, refuse_ungated_routes

logger = logging.getLogger("arriero.server")

BODY_BYTES_MAX = 2 * 1024 * 1024  # the largest payload is 1 MB; JSON may escape it


def build_application(client: Client, authenticator: Authenticator, *, body_max: int = BODY_BYTES_MAX) -> FastAPI:
    """Build the application that serves an App over HTTP.

    Args:
        client: the App. It must be open while requests come in.
        authenticator: says who sends a request.
        body_max: bytes of a body at most.
    Raises: DefinitionError - a route has no gate.
    """
    server = FastAPI(title="arriero", openapi_url=None, docs_url=None, redoc_url=None)
    door = Door(client, authenticator, body_max)
    for group in GROUPS:
        add_operations(server, door, group)
    refuse_ungated_routes(server.routes)
    server.add_middleware(EncodedPaths)
    server.add_exception_handler(Problem, _answer_problem)
    server.add_exception_handler(ArrieroError, _answer_error)
    server.add_exception_handler(RequestValidationError, _answer_invalid_request)
    server.add_exception_handler(HTTPException, _answer_http_exception)
    server.add_exception_handler(Exception, _answer_failure)
    return server


async def _answer_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return build_problem_response(error)


async def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ArrieroError)
    problem = build_problem(error)
    return await _answer_failure(request, error) if problem is None else build_problem_response(problem)


async def _answer_invalid_request(request: Request, error: Exception) -> Response:
    """Name each parameter of path, query or header that does not fit. Its value is not repeated: it may be a secret."""
    assert isinstance(error, RequestValidationError)
    places = [f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors()]
    return build_problem_response(Problem(INVALID_REQUEST, "; ".join(places)))


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    """Answer what the router refuses itself: an unknown path, or another method."""
    assert isinstance(error, HTTPException)
    kind = METHOD_NOT_ALLOWED if error.status_code == METHOD_NOT_ALLOWED.status else NOT_FOUND
    return build_problem_response(Problem(kind, kind.title, headers=error.headers or {}))


async def _answer_failure(request: Request, error: Exception) -> Response:
    """Log a bug of ours with a number, and answer with the number alone."""
    incident = str(uuid.uuid4())
    logger.error("a request failed, incident %s: %r", incident, error, exc_info=error)
    return build_problem_response(Problem(INTERNAL, f"incident {incident}", incident=incident))
