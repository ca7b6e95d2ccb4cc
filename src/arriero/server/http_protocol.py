"""HTTP/1.1 protocol of one connection: malformed requests and excess connections get problem documents; no connection waits for ever.

uvicorn answers both with plain text. Here the answers have the headers of all others, and are counted. uvicorn parses all that was
read in one turn of the event loop; here a ``ParsingQueue`` says when a bounded part of it is parsed. Meanwhile nothing is read.
"""

import asyncio
import logging
import sys
from typing import Any, NamedTuple

import h11
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from .connection_limits import ConnectionLimits, LimitedListener, is_kept
from .gate_problems import ANSWER_NOT_READ, HEADERS_TOO_LARGE, NOT_HTTP, PARTS_TOO_SMALL, TOO_MANY_CONNECTIONS
from .lingering import LingeringTransport
from .metered_connection import PART_BYTES_MIN, PARTS_FREE, MeteredConnection, TinyParts
from .parsing_queue import ParsingQueue
from .problems import Problem
from .request_notes import attach_note
from .security_middleware import FIRST_REFUSAL, SecurityMiddleware
from .write_progress import WriteProgress

# Without the warning that uvicorn logs for each malformed request: they are counted as problems.
protocol_log = logging.getLogger("arriero.server.protocol")
protocol_log.setLevel(logging.ERROR)

HEADER_SECONDS_MAX = (
    15.0  # until the headers of a request have arrived: connections that send nothing are a cheap attack
)


class HoldingFlow(FlowControl):
    """Reads nothing while a connection is held because more has come than was parsed, whatever uvicorn asks for."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_held = self._is_paused = False

    def hold(self, *, is_held: bool) -> None:
        """Hold the connection, or let it read again if uvicorn has not paused it."""
        self._is_held = is_held
        self._apply()

    def pause_reading(self) -> None:
        self._is_paused = True
        self._apply()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._apply()

    def _apply(self) -> None:
        (super().pause_reading if self._is_held or self._is_paused else super().resume_reading)()


class SharedState(NamedTuple):
    """State that all connections of a server share."""

    queue: ParsingQueue
    listener: LimitedListener
    limits: ConnectionLimits


class PatientProtocol(H11Protocol):
    """Closes a connection whose next request does not come in time. uvicorn waits for ever once a first byte has come."""

    conn: MeteredConnection
    flow: HoldingFlow

    def __init__(self, *args: Any, shared: SharedState, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = MeteredConnection(self.config.h11_max_incomplete_event_size or 0)
        self.logger = protocol_log
        self._queue, self._listener, self._limits = shared
        self._file = -1
        self._progress = WriteProgress()
        self._header_timer: asyncio.TimerHandle | None = None
        self._application, self.app = self.app, self._serve_within_limits
        self._security: SecurityMiddleware = self.config.app.security  # type: ignore[union-attr]  # an ApiServer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        self._lingering = LingeringTransport(transport, self.conn.has_rest, self._note_lingering, self.loop.call_later)
        super().connection_made(self._lingering)
        self.flow = HoldingFlow(self._lingering)
        if (connection := transport.get_extra_info("socket")) is not None:
            self._file = connection.fileno()
        self._listener.note_waiting(self._file)
        self._watch_header()

    def data_received(self, data: bytes) -> None:
        if self._lingering.is_lingering:
            self._lingering.discard(len(data))
            return
        if self._listener.is_closing(self._file):  # the caller is cut off, so nothing may begin
            return
        self._unset_keepalive_if_required()
        self.conn.receive_data(data)
        if self not in self._queue:
            self._queue.offer(self)
        self.flow.hold(is_held=self in self._queue)

    def handle_events(self) -> int:  # type: ignore[override]  # uvicorn returns nothing
        """Parse a bounded part of what has come, and return its cost. The queue continues with what is left."""
        if self.transport.is_closing():
            return 0
        self.conn.begin_visit()
        super().handle_events()
        if self.conn.is_held and not self.transport.is_closing():
            self._queue.add(self)
        self.flow.hold(is_held=self in self._queue)
        self._watch_header()
        return self.conn.cost

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        self._queue.remove(self)
        self._lingering.stop()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP. uvicorn calls this where it handles the error of h11, which may tell of a secret in a header."""
        error = sys.exception()
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == HEADERS_TOO_LARGE.status:
            problem = Problem(HEADERS_TOO_LARGE, "the headers are larger than the server reads; nothing was done")
        elif isinstance(error, TinyParts):
            detail = f"after {PARTS_FREE:,} parts of a body, they must have {PART_BYTES_MIN} bytes on average; nothing was done"
            problem = Problem(PARTS_TOO_SMALL, detail)
        else:
            problem = Problem(NOT_HTTP, "the request is not HTTP/1.1 as RFC 9112 has it; nothing was done")
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else an answer is on its way
            answer = self._security.answer_unread(problem)
            head = h11.Response(
                status_code=answer.status_code, headers=[*answer.raw_headers, (b"connection", b"close")]
            )
            for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None:  # its application must not answer, too
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def on_response_complete(self) -> None:
        self._listener.note_waiting(self._file)
        super().on_response_complete()

    def cut_off_if_stalled(self, now: float) -> None:
        """Cut the connection off if its caller does not read its answer. Called about once a second."""
        pending = self.transport.get_write_buffer_size()
        if self._progress.has_stalled(self.conn.encoded - pending, pending, now):
            self._security.count_refused(ANSWER_NOT_READ)
            self.transport.abort()

    async def _serve_within_limits(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope, note = attach_note(scope)

        async def send_to_stranger(message: Message) -> None:
            """Close the connection of a caller without a valid token with the refusal: it costs more to connect than to send."""
            if message["type"] == "http.response.start" and message["status"] >= FIRST_REFUSAL and not note.caller:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        limit = self._limits.accepted if is_kept(scope["path"]) else self._limits.served
        if len(self.tasks) <= limit:  # this one is among them
            await self._application(scope, receive, send_to_stranger)
            return
        problem = Problem(
            TOO_MANY_CONNECTIONS,
            "the server has as many requests as it serves at once",
            headers={"Retry-After": "1"},
        )
        await self._security.refuse(problem, scope, receive, send_to_stranger)

    def _note_lingering(self) -> None:
        self._listener.note_lingering(self._file, self._lingering.abort)

    def _watch_header(self) -> None:
        if self.transport.is_closing():
            self._stop_watching()
        elif self.cycle is not None and not self.cycle.response_complete:  # a request is under way
            self._listener.note_busy(self._file)
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
