"""Refusals over HTTP as problem documents (RFC 9457), each with a stable type that the reference lists."""

import json
import logging
import os
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from ..client.session import Session
from ..errors import ArrieroError
from ..operations.problems import (
    STORE_UNAVAILABLE,
    TOO_MANY_OPEN_TASKS,
    ProblemDocument,
    ProblemType,
    declare_problem,
    find_meaning,
    list_members,
)
from ..system.rate_limited_log import Repeats

MEDIA_TYPE = "application/problem+json"
SERVERS_STORE = "the server's store"
logger = logging.getLogger("arriero.server")
_repeats = Repeats()  # while a store is away, each request fails for the same reason


class Problem(Exception):
    """A refusal in transit to the caller. ``detail`` is for operators; ``more`` are further members of the document."""

    def __init__(self, kind: ProblemType, detail: str, *, headers: Mapping[str, str] = {}, **more: Any) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.headers = headers
        self.more = more


UNAUTHENTICATED = declare_problem(
    "unauthenticated",
    401,
    "No valid token",
    "Send `Authorization: Bearer TOKEN`; `arriero token create` makes one.",
)
OUT_OF_REACH = declare_problem(
    "out-of-reach",
    404,
    "The token is restricted to Apps or workflows",
    "Use a token that is not: what is of the whole store is not there for this one.",
)
FORBIDDEN = declare_problem(
    "forbidden",
    403,
    "The token lacks a scope",
    "Use a token that has the scope named in `scope`, or create one with `arriero token create --scope`.",
)
NOT_FOUND = declare_problem("not-found", 404, "No such path", "See /v1/openapi.json for the paths that exist.")
METHOD_NOT_ALLOWED = declare_problem(
    "method-not-allowed", 405, "The path does not take this method", "Use a method of the header Allow."
)
INVALID_JSON = declare_problem(
    "invalid-json", 400, "The body is not JSON of the documented shape", "Correct the body; `detail` names the place."
)
UNSUPPORTED_MEDIA = declare_problem(
    "unsupported-media-type", 415, "The body is not JSON", "Send `Content-Type: application/json`."
)
TOO_LARGE = declare_problem("too-large", 413, "The body is too large", "Send less than `limit` bytes.")
IDEMPOTENCY_KEY_INVALID = declare_problem(
    "idempotency-key-invalid",
    422,
    "The Idempotency-Key does not fit",
    "Send the id once, in the header or in the body; one that is not ASCII goes into the body.",
)
NOT_OPEN = declare_problem(
    "not-open", 503, "The App is not open", "Open it in the lifespan: `async with app.running():` around the server."
)
INTERNAL = declare_problem(
    "internal", 500, "The server failed", "Look for `incident` in the log of the server, and report it."
)

RETRY_AFTER_SECONDS = {STORE_UNAVAILABLE.status: 1, TOO_MANY_OPEN_TASKS.status: 10}  # by status


def build_problem(error: ArrieroError, session: Session) -> Problem | None:
    """Build the problem of an error that a caller may see; None: it is a bug, of ours or of the App's code.

    Errors name the store, for operators who have it before them. A caller over HTTP does not learn where it is. What a store that fails
    says is logged, and its caller gets no more than the title: it may hold addresses and names of files and roles.
    """
    problem = find_meaning(type(error)).problem
    if problem.status == INTERNAL.status:
        return None
    seconds = RETRY_AFTER_SECONDS.get(problem.status)
    headers = {} if seconds is None else {"Retry-After": str(seconds)}
    if problem is STORE_UNAVAILABLE:
        line = f"a request was answered {problem.code}: {error}"
        for one in _repeats.offer(problem.code, line, session.ports.clock.monotonic()):
            logger.warning("%s", one)
        return Problem(problem, f"{problem.title}; the log of the server says why", headers=headers)
    return Problem(problem, hide_store(str(error), session), headers=headers, **list_members(error))


def hide_store(text: str, session: Session) -> str:
    """Return a text without the places where the store is: its URL, and the path of its file."""
    if not session.is_open:
        return text
    path = getattr(session.store, "path", "")
    for name in filter(None, (session.store.url, path, path and os.path.realpath(path))):
        text = text.replace(name, SERVERS_STORE)
    return text.replace(f"the store {SERVERS_STORE}", SERVERS_STORE).replace(f"store {SERVERS_STORE}", SERVERS_STORE)


def build_document(problem: Problem) -> dict[str, Any]:
    """Build the document of a problem."""
    return problem.kind.build_document(problem.detail, problem.more)


def build_problem_document(problem: Problem) -> ProblemDocument:
    """Build the document of a problem that is a part of an answer."""
    return msgspec.convert(build_document(problem), ProblemDocument)


def build_problem_response(problem: Problem) -> Response:
    """Build the answer that carries a problem."""
    body = json.dumps(build_document(problem), ensure_ascii=False)
    return Response(body.encode(), problem.kind.status, media_type=MEDIA_TYPE, headers=dict(problem.headers))


MISDIRECTED = declare_problem(
    "misdirected",
    421,
    "The server is not known by this name",
    "Add the name of the header Host to the setting http.hosts.",
)
CROSS_ORIGIN = declare_problem(
    "cross-origin",
    403,
    "A page of another origin may change nothing",
    "Add the origin to the setting http.origins, if the page is yours.",
)
TOO_MANY_REQUESTS = declare_problem(
    "too-many-requests", 429, "Too many requests", "Send the request again after `Retry-After` seconds."
)
TOO_MANY_AT_ONCE = declare_problem(
    "too-many-at-once",
    429,
    "The caller has too many requests running",
    "Send the request again after `Retry-After` seconds, when others have ended.",
)
URI_TOO_LONG = declare_problem("uri-too-long", 414, "The path or the query is too long", "Send a shorter one.")
HEADERS_TOO_LARGE = declare_problem(
    "headers-too-large", 431, "The headers are too large", "Send fewer or shorter headers."
)
HEADER_REPEATED = declare_problem(
    "header-repeated", 400, "A header that counts once came twice", "Send it once; nothing was changed."
)
NOT_HTTP = declare_problem(
    "not-http",
    400,
    "What came is not a request of HTTP/1.1",
    "Correct the program that sends it: RFC 9112 says how a request looks.",
)
PARTS_TOO_SMALL = declare_problem(
    "parts-too-small",
    400,
    "The body comes in parts that are too small",
    "Send larger chunks: collect what is written, and send it when there are some kilobytes.",
)
TOO_MANY_CONNECTIONS = declare_problem(
    "too-many-connections",
    503,
    "The server has too many connections",
    "Send the request again after `Retry-After` seconds; the setting http.connections_max is the limit.",
)
BODY_TOO_SLOW = declare_problem(
    "body-too-slow", 408, "The body did not arrive in time", "Send the request again; nothing was changed."
)
ANSWER_NOT_READ = declare_problem(
    "answer-not-read",
    408,
    "The caller did not read its answer",
    "Read answers as they come. The connection was cut off, so this code is only counted in the metrics.",
)
STOPPING = declare_problem(
    "stopping",
    503,
    "The server is about to end",
    "Send the request again after `Retry-After` seconds: to another server.",
)
REALM = 'Bearer realm="arriero"'


def build_credential_problem(detail: str, *, given: bool = True) -> Problem:
    """Build the refusal of a credential (RFC 6750). ``given``: False: there was none."""
    challenge = f'{REALM}, error="invalid_token"' if given else REALM
    return Problem(UNAUTHENTICATED, detail, headers={"WWW-Authenticate": challenge})


def build_rate_problem(detail: str, seconds: float) -> Problem:
    """Build the refusal of one request too many. ``seconds``: after which it may be sent again."""
    return Problem(TOO_MANY_REQUESTS, detail, headers={"Retry-After": str(max(1, round(seconds + 0.5)))})


def build_at_once_problem(detail: str) -> Problem:
    """Build the refusal of a request while its caller has too many others running."""
    return Problem(TOO_MANY_AT_ONCE, detail, headers={"Retry-After": "1"})


def build_shutdown_problem() -> Problem:
    """Build the refusal of what a server that ends does not begin, or does not wait for any longer."""
    return Problem(STOPPING, "the server is about to end; nothing was changed", headers={"Retry-After": "1"})
