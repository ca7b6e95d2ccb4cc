"""Parser of one connection that stops after a number of parts of a body, and refuses a body in tiny parts.

h11 needs as long for a chunk of one byte as for one of 64 KiB. One read of 256 KiB holds 40,000 such chunks: parsed in one turn
of the event loop, those of a few connections stop the process for seconds. So do empty headers, of which a read holds 60,000.
"""

import h11
from h11._receivebuffer import ReceiveBuffer  # h11 has no other way to a head before it is parsed

from .parsing_queue import COST_OF_REQUEST

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
        self._parts = self._size = 0  # of the body under way

    def has_rest(self) -> bool:
        """Returns True if the caller sends what is not read before the answer: more of a body, what is no HTTP, or further requests.

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
