"""HTTP/1.1 protocol of one connection: malformed requests and excess connections get problem documents; no connection waits indefinitely.

uvicorn answers both with plain text. Here the answers have the headers of all others, and are counted. uvicorn parses all that was
read in one turn of the event loop; here a ``ParsingQueue`` says when a bounded part of it is parsed. Meanwhile nothing is read.
"""

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import h11
from h11._receivebuffer import ReceiveBuffer  # h11 has no other way to a head before it is parsed
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from .connection_limits import ConnectionLimits, LimitedListener, is_kept
from .problems import ANSWER_NOT_READ, HEADERS_TOO_LARGE, NOT_HTTP, PARTS_TOO_SMALL, TOO_MANY_CONNECTIONS, Problem
from .request_rules import attach_note
from .security_middleware import FIRST_REFUSAL, SecurityMiddleware

COST_PER_TURN = 512  # about 5 ms of parsing
COST_OF_REQUEST = 16  # so 32 begin in a turn; each takes about a millisecond in the next one


class Parsing(Protocol):
    """A connection. ``handle_events`` parses a bounded part of what has come, and returns its cost: 1 for each part of a body."""

    def handle_events(self) -> int: ...


class ParsingQueue:
    """Visits connections in the order in which they came, so that none waits for all that another one sent.

    Args:
        call_soon: calls a function in the next turn of the event loop.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._waiting: dict[Parsing, None] = {}
        self._left = COST_PER_TURN
        self._is_scheduled = False

    def __contains__(self, connection: Parsing) -> bool:
        return connection in self._waiting

    def offer(self, connection: Parsing) -> None:
        """Visit a connection now, if this turn has room and nobody waits; otherwise in a later turn."""
        self._schedule()
        if self._waiting or self._left <= 0:
            self._waiting[connection] = None
        else:
            self._visit(connection)

    def add(self, connection: Parsing) -> None:
        """Visit a connection in a later turn."""
        self._schedule()
        self._waiting[connection] = None

    def remove(self, connection: Parsing) -> None:
        """Forget a connection that is closed."""
        self._waiting.pop(connection, None)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._run_turn)

    def _run_turn(self) -> None:
        self._is_scheduled = False
        self._left = COST_PER_TURN
        for connection in list(self._waiting):
            if self._left <= 0:
                break
            if connection in self._waiting:  # a visit may close another one
                del self._waiting[connection]
                self._visit(connection)
        if self._waiting:
            self._schedule()

    def _visit(self, connection: Parsing) -> None:
        self._left -= 1 + connection.handle_events()


COST_PER_VISIT = 32  # about 0.3 ms of parsing
PARTS_FREE = 1_000  # of one body, whatever their size: a program may write its JSON piece by piece
HEADER_LINES_MAX = 128  # of a head or of trailers: 2 ms of parsing; twice as many as a request may have
PART_BYTES_MIN = 16  # on average, of a longer body; the shortest line of a ledger has 17 bytes


class TinyParts(h11.RemoteProtocolError):
    """A body comes in parts that cost more to parse than they are worth."""


class ShortHeads(ReceiveBuffer):
    """Input that is not parsed yet. A head, or trailers, of too many lines are refused before any of them is parsed."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Take the lines up to the next empty one; None: they have not come yet. Raises h11.RemoteProtocolError."""
        first = self._data.split(b"\n", HEADER_LINES_MAX + 1)
        if len(first) > HEADER_LINES_MAX + 1 and all(line.rstrip(b"\r") for line in first[:-1]):
            raise h11.RemoteProtocolError("too many headers", error_status_hint=431)
        return super().maybe_extract_lines()


def is_too_fragmented(parts: int, size: int) -> bool:
    """Decide whether a body of ``size`` bytes so far has come in too many ``parts``."""
    return parts > PARTS_FREE and size < parts * PART_BYTES_MIN


class MeteredConnection(h11.Connection):
    """Server's side of a connection.

    ``is_held``: the last call of ``next_event`` left out what has come already. ``cost``: of this visit, as ``ParsingQueue`` counts.
    ``encoded``: bytes of all answers so far.
    """

    def __init__(self, incomplete_bytes_max: int) -> None:
        super().__init__(h11.SERVER, incomplete_bytes_max)
        self._receive_buffer = ShortHeads()
        self.is_held = False
        self.cost = 0
        self.encoded = 0
        self._has_rest = False
        self._parts = self._size = 0  # of the current body

    def has_rest(self) -> bool:
        """Returns True if the caller sends what is not read before the answer: more of a body, what is not HTTP, or further requests.

        h11 forgets further requests as the answer ends, so an earlier True stays.
        """
        state = self.their_state
        self._has_rest = self._has_rest or state in (h11.SEND_BODY, h11.ERROR)
        self._has_rest = self._has_rest or (state is h11.DONE and self.trailing_data[0] != b"")
        return self._has_rest

    def begin_visit(self) -> None:
        """Let a bounded number of further parts of a body be parsed."""
        self.cost, self.is_held = 0, False

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Parse the next event. NEED_DATA: nothing more has come, or enough was parsed in this visit. Raises TinyParts."""
        if self.cost >= COST_PER_VISIT and self.their_state is h11.SEND_BODY:
            self.is_held = True
            return h11.NEED_DATA
        try:
            event = super().next_event()
        except h11.RemoteProtocolError:  # it is answered like a request
            self.cost += COST_OF_REQUEST
            raise
        if isinstance(event, h11.Request):
            self._parts = self._size = 0
            self.cost += COST_OF_REQUEST
        elif isinstance(event, h11.Data):
            self.cost += 1
            self._parts += 1
            self._size += len(event.data)
            if is_too_fragmented(self._parts, self._size):
                raise TinyParts("the parts of the body are too small", error_status_hint=400)
        return event

    def send_with_data_passthrough(self, event: h11.Event) -> list[bytes] | None:
        """Encode an event. An answer before the end of what the caller sends says that the connection closes."""
        if isinstance(event, h11.Response) and self.has_rest():
            headers = [*event.headers.raw_items(), (b"connection", b"close")]
            event = h11.Response(status_code=event.status_code, headers=headers, reason=event.reason)
        parts = super().send_with_data_passthrough(event)
        self.encoded += sum(map(len, parts or ()))
        return parts


LINGER_SECONDS = 10.0  # a caller who has read the answer closes before; others are kept from coming again
LINGER_BYTES_MAX = 8 * 1024 * 1024  # four times the largest body
PAUSE_SECONDS = 0.01  # after the first read; twice as long after each further one, so that a flood costs 10 reads


class LingeringTransport(asyncio.Transport):
    """Transport of a connection. ``is_lingering``: it was closed, and what still comes must be given to ``discard``.

    Args:
        raw: what asyncio made.
        may_send: returns True while the caller may still send what belongs to its request.
        on_lingering: called when it is closed and the caller may still send.
        call_later: starts a timer.
    """

    def __init__(
        self,
        raw: asyncio.Transport,
        may_send: Callable[[], bool],
        on_lingering: Callable[[], None],
        call_later: Callable[[float, Callable[[], None]], asyncio.TimerHandle],
    ) -> None:
        super().__init__()
        self._raw = raw
        self._may_send = may_send
        self._on_lingering = on_lingering
        self._call_later = call_later
        self._timer: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._pause_seconds = PAUSE_SECONDS
        self._discarded = 0
        self.is_lingering = False

    def close(self) -> None:
        """Close now, or once the caller has read the answer."""
        if self.is_lingering:
            return
        if self._raw.is_closing() or not self._may_send():
            self._raw.close()
            return
        self.is_lingering = True
        self._on_lingering()
        if self._raw.can_write_eof():
            self._raw.write_eof()
        self._raw.resume_reading()
        self._timer = self._call_later(LINGER_SECONDS, self._raw.close)

    def discard(self, size: int) -> None:
        """Count input that came after the answer; too much of it closes the connection. The next is read after a pause."""
        self._discarded += size
        if self._discarded > LINGER_BYTES_MAX:
            self._raw.close()
        else:
            self._raw.pause_reading()
            self._pause = self._call_later(self._pause_seconds, self._raw.resume_reading)
            self._pause_seconds *= 2

    def stop(self) -> None:
        """End the timer of a connection that is closed."""
        for timer in (self._timer, self._pause):
            if timer is not None:
                timer.cancel()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.is_lingering:
            self._raw.write(data)

    def abort(self) -> None:
        self._raw.abort()

    def is_closing(self) -> bool:
        return self.is_lingering or self._raw.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def pause_reading(self) -> None:
        if not self.is_lingering:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        if not self.is_lingering:
            self._raw.resume_reading()


STALL_SECONDS_MAX = 15.0
STALL_BYTES_MIN = 4_096  # taken within it; one who takes a byte now and then would hold a connection indefinitely


class WriteProgress:
    """Progress of a caller in taking what its connection was sent."""

    def __init__(self) -> None:
        self._taken = 0
        self._since: float | None = None  # None: nothing waits to be sent

    def has_stalled(self, taken: int, pending: int, now: float) -> bool:
        """Look at a connection; to be called about once a second.

        Args:
            taken: bytes that the system has taken for the caller, since the connection began.
            pending: bytes that wait to be taken.
            now: seconds of a monotonic clock.
        """
        if pending == 0:
            self._since = None
        elif self._since is None or taken - self._taken >= STALL_BYTES_MIN:
            self._taken, self._since = taken, now
        return self._since is not None and now - self._since >= STALL_SECONDS_MAX


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
    """Closes a connection whose next request does not come in time. uvicorn waits indefinitely once a first byte has come."""

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
        """Refuse what is not HTTP. uvicorn calls this where it handles the error of h11, which may report a secret in a header."""
        error = sys.exception()
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == HEADERS_TOO_LARGE.status:
            problem = Problem(HEADERS_TOO_LARGE, "the headers are larger than the server reads; nothing was done")
        elif isinstance(error, TinyParts):
            detail = f"after {PARTS_FREE:,} parts of a body, they must have {PART_BYTES_MIN} bytes on average; nothing was done"
            problem = Problem(PARTS_TOO_SMALL, detail)
        else:
            problem = Problem(NOT_HTTP, "the request is not HTTP/1.1 as RFC 9112 has it; nothing was done")
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else an answer is in transit
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
            "the server has as many requests as it serves at a time",
            headers={"Retry-After": "1"},
        )
        await self._security.refuse(problem, scope, receive, send_to_stranger)

    def _note_lingering(self) -> None:
        self._listener.note_lingering(self._file, self._lingering.abort)

    def _watch_header(self) -> None:
        if self.transport.is_closing():
            self._stop_watching()
        elif self.cycle is not None and not self.cycle.response_complete:  # a request is running
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
