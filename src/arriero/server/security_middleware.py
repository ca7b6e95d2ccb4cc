"""Middleware around all routes: it refuses unfit requests and adds the security headers for browsers to each answer."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ..client.session import Session
from ..operations.problems import ProblemType
from ..system.rate_limited_log import RateLimitedLog
from ..text.escaping import one_line
from .problems import Problem, build_problem_response
from .request_rules import RequestNote, RequestRules, attach_note, get_note, judge_request

access_log = logging.getLogger("arriero.server.access")

# An answer is data for programs: no browser may guess its type, run or frame it, keep it, or show others where it came from.
# The API sets no cookie and reads none, so a page of another site has nothing to ride on. Pages of the console have a policy of theirs.
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
)
QUIET_PATHS = ("/v1/health/live", "/v1/health/ready")  # asked every few seconds

CALLBACKS = "/v1/callbacks/"

FIRST_REFUSAL = 400

InnerApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class SecurityMiddleware:
    """Judges each request by ``request_rules``, adds headers to each answer, counts it, and writes the access log.

    Counts are kept in the ``session``. Their keys are names of the code, never what a caller sent.
    """

    def __init__(self, rules: RequestRules, monotonic: Callable[[], float], session: Session) -> None:
        self._rules = rules
        self._monotonic = monotonic
        self._session = session
        self._strangers = RateLimitedLog(access_log, monotonic, logging.INFO)

    async def serve(self, app: InnerApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request by ``app``, or refuse it."""
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        begun_at, status = self._monotonic(), 0
        scope, note = attach_note(scope)

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": _add_security_headers(message.get("headers", ()))}
            await send(message)

        raw_path = scope.get("raw_path") or scope["path"].encode()
        target = raw_path.split(b"?")[0] + b"?" + scope.get("query_string", b"")
        problem = judge_request(self._rules, scope["method"], target, scope["headers"])
        try:
            await (app if problem is None else _refuse_with(problem))(scope, receive, send_guarded)
        finally:
            self._count(note, status)
            self._log(scope, note.caller, status, self._monotonic() - begun_at)

    async def refuse(self, problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request of which nothing is read."""
        await self.serve(_refuse_with(problem), scope, receive, send)

    def answer_unread(self, problem: Problem) -> Response:
        """Build the answer to what is not a request, and count it."""
        note = RequestNote()
        note.problem = problem.kind.code
        self._count(note, problem.kind.status)
        answer = build_problem_response(problem)
        answer.raw_headers[:] = _add_security_headers(answer.raw_headers)
        return answer

    def count_refused(self, kind: ProblemType) -> None:
        """Count a connection that was closed before a request of it was read."""
        self._session.http_problems[kind.code] += 1

    def _count(self, note: RequestNote, status: int) -> None:
        if status:  # else the caller had disconnected before an answer
            self._session.http_requests[note.operation, status] += 1
        if note.problem:
            self._session.http_problems[note.problem] += 1

    def _log(self, scope: Scope, caller: str, status: int, seconds: float) -> None:
        """Log a request without its query and headers: they may hold secrets. Refusals of strangers are counted after some lines."""
        path = one_line(hide_token(scope["path"])[:200])
        line = f"{scope['method']} {path} {status} {seconds * 1000:.0f} ms {one_line(caller)}"
        self._strangers.flush()
        if scope["path"].endswith(QUIET_PATHS):
            access_log.debug("%s", line)
        elif caller or status < FIRST_REFUSAL:
            access_log.info("%s", line)
        else:
            self._strangers.tell(status, line)


def hide_token(path: str) -> str:
    """Return a path without the token of a callback, which is a secret."""
    before, prefix, token = path.partition(CALLBACKS)
    return f"{before}{prefix}***" if token else path


def _refuse_with(problem: Problem) -> InnerApp:
    """Return what answers a request with a problem, and notes its code."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        get_note(scope).problem = problem.kind.code
        await build_problem_response(problem)(scope, receive, send)

    return answer


def _add_security_headers(headers: Any) -> list[tuple[bytes, bytes]]:
    """Add each header that the answer does not set itself."""
    kept = [(name, value) for name, value in headers]
    there = {name.lower() for name, _ in kept}
    return kept + [(name, value) for name, value in SECURITY_HEADERS if name not in there]
