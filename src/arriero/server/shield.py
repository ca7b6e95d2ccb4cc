"""What stands around all routes: a request that is not fit is refused, and each answer says how browsers are to treat it."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from ..escaping import one_line
from .problems import build_problem_response
from .request_rules import RequestRules, judge_request

access_log = logging.getLogger("arriero.server.access")

# An answer is data for programs: no browser may guess its type, run or frame it, keep it, or tell others where it came from.
# The API sets no cookie and reads none, so a page of somebody else has nothing to ride on.
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
)
QUIET_PATHS = ("/v1/health/live", "/v1/health/ready")  # asked every few seconds

InnerApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class Shield:
    """Judges each request by ``request_rules``, adds headers to each answer, and writes the access log."""

    def __init__(self, rules: RequestRules, monotonic: Callable[[], float]) -> None:
        self._rules = rules
        self._monotonic = monotonic

    async def serve(self, app: InnerApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request by ``app``, or refuse it."""
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        begun_at, status = self._monotonic(), 0

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
            if problem is not None:
                await build_problem_response(problem)(scope, receive, send_guarded)
            else:
                await app(scope, receive, send_guarded)
        finally:
            self._log(scope, status, self._monotonic() - begun_at)

    def _log(self, scope: Scope, status: int, seconds: float) -> None:
        """Log a request without its query and headers: they may hold secrets."""
        call = scope.get("arriero.call")
        caller = "" if call is None else call.caller.name
        level = logging.DEBUG if scope["path"].endswith(QUIET_PATHS) else logging.INFO
        path = one_line(scope["path"][:200])
        access_log.log(level, "%s %s %s %.0f ms %s", scope["method"], path, status, seconds * 1000, one_line(caller))


def _add_security_headers(headers: Any) -> list[tuple[bytes, bytes]]:
    """Add each header that the answer does not set itself."""
    kept = [(name, value) for name, value in headers]
    there = {name.lower() for name, _ in kept}
    return kept + [(name, value) for name, value in SECURITY_HEADERS if name not in there]
