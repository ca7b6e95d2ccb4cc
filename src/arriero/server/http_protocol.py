"""HTTP/1.1 protocol of one connection: malformed requests and excess connections get problem documents; no connection waits for ever.

uvicorn answers both with plain text. Here the answers have the headers of all others, and are counted.
"""

import asyncio
import sys
from typing import Any

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from .gate_problems import HEADERS_TOO_LARGE, NOT_HTTP, TOO_MANY_CONNECTIONS
from .problems import Problem
from .security_middleware import SecurityMiddleware

HEADER_SECONDS_MAX = (
    15.0  # until the headers of a request have arrived: connections that send nothing are a cheap attack
)


class PatientProtocol(H11Protocol):
    """Closes a connection whose next request does not come in time. uvicorn waits for ever once a first byte has come."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_timer: asyncio.TimerHandle | None = None
        self._application = self.app
        self._security: SecurityMiddleware = self.config.app.security  # type: ignore[union-attr]  # an ApiServer
        self._connections_max, self.limit_concurrency = (
            self.limit_concurrency,
            None,
        )  # uvicorn would answer with plain text

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._watch_header()

    def data_received(self, data: bytes) -> None:
        self.app = self._refuse_for_now if self._is_too_many() else self._application
        super().data_received(data)
        self._watch_header()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP. uvicorn calls this where it handles the error of h11, which may tell of a secret in a header."""
        error = sys.exception()
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == HEADERS_TOO_LARGE.status:
            problem = Problem(HEADERS_TOO_LARGE, "the headers are larger than the server reads; nothing was done")
        else:
            problem = Problem(NOT_HTTP, "the request is not HTTP/1.1 as RFC 9112 has it; nothing was done")
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else an answer is on its way
            answer = self._security.answer_unread(problem)
            head = h11.Response(
                status_code=answer.status_code, headers=[*answer.raw_headers, (b"connection", b"close")]
            )
            for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _is_too_many(self) -> bool:
        most = self._connections_max
        return most is not None and (len(self.connections) >= most or len(self.tasks) >= most)

    async def _refuse_for_now(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {"Retry-After": "1", "Connection": "close"}
        problem = Problem(TOO_MANY_CONNECTIONS, "the server has as many connections as it takes", headers=headers)
        await self._security.refuse(problem, scope, receive, send)

    def _watch_header(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:  # a request is under way
            self._stop_watching()
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_SECONDS_MAX, self._give_up)

    def _stop_watching(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _give_up(self) -> None:
        self._header_timer = None
        if (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing():
            self.transport.close()
