"""W3C Trace Context as a task keeps it, and the ids of spans, which are computed so that any process knows them."""

import hashlib
import re

import msgspec

from ..errors import InvalidInput

SAMPLED = 1
_64_BITS = 2**64 - 1
_SPREAD = 0x9E3779B97F4A7C15  # odd, so that no two numbers fall together: 2**64 by the golden ratio
TRACESTATE_MAX = 512  # characters that a system has to pass on, by the specification, section 3.3.1.5
_TRACEPARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<rest>-.*)?"
)
_TRACESTATE = re.compile(r"[\x20-\x7e\t]*")


class TraceContext(msgspec.Struct, frozen=True):
    """A span that may have children elsewhere: its trace, its id, whether it is sampled, and what vendors add."""

    trace_id: int
    span_id: int
    is_sampled: bool
    state: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """The headers that report it."""
        found = {"traceparent": f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.is_sampled):02x}"}
        return found | {"tracestate": self.state} if self.state else found


def parse_headers(traceparent: str, tracestate: str = "") -> TraceContext | None:
    """Parse the two headers. Returns None for what the specification says to ignore."""
    found = _TRACEPARENT.fullmatch(traceparent.strip())
    if found is None or found["version"] == "ff" or (found["version"] == "00" and found["rest"]):
        return None
    trace_id, span_id = int(found["trace"], 16), int(found["span"], 16)
    if not trace_id or not span_id:
        return None
    is_kept = len(tracestate) <= TRACESTATE_MAX and _TRACESTATE.fullmatch(tracestate)
    return TraceContext(
        trace_id, span_id, bool(int(found["flags"], 16) & SAMPLED), tracestate.strip() if is_kept else ""
    )


def encode_trace_context(context: TraceContext) -> str:
    """The text that a task's row keeps."""
    return " ".join(context.headers.values())


def read_trace_context(text: str | None) -> TraceContext | None:
    """Read what a task's row keeps; None if there is nothing, or nothing that can be read."""
    if text is None:
        return None
    traceparent, _, tracestate = text.partition(" ")
    return parse_headers(traceparent, tracestate)


def encode_link(trace_id: int, span_id: int) -> str:
    """The text that a convoy's row keeps of a span to which the next task's span leads."""
    return f"{trace_id:032x}-{span_id:016x}"


def read_link(text: str | None) -> tuple[int, int] | None:
    """Read what a convoy's row keeps, as trace and span; None if there is nothing, or nothing that can be read."""
    found = None if text is None else parse_headers(f"00-{text}-01")
    return None if found is None else (found.trace_id, found.span_id)


def check_trace_headers(traceparent: object, tracestate: object) -> str | None:
    """Check the headers that a caller gives with a submission. Returns the text for the row; None: no header was given.

    Raises: InvalidInput - no header of W3C Trace Context.
    """
    if traceparent is None:
        return None
    context = (
        parse_headers(traceparent, tracestate if isinstance(tracestate, str) else "")
        if isinstance(traceparent, str)
        else None
    )
    if context is None:
        raise InvalidInput(
            f"traceparent is {traceparent!r}; give the header of W3C Trace Context, 00-TRACE-SPAN-01, or leave it out"
        )
    return encode_trace_context(context)


class SpanIds:
    """Ids of a store's traces and spans, computed from rows: the same in all processes.

    A span's id is mixed from two numbers, so it costs little. Different first numbers never collide under the same second one.
    """

    def __init__(self, store_id: str) -> None:
        self._store_id = store_id
        self._task, self._step, self._attempt = (
            int.from_bytes(_hash(8, kind, store_id)) for kind in ("task", "step", "attempt")
        )

    def derive_trace(self, task_id: str) -> int:
        """The trace of a task that was submitted without one."""
        return int.from_bytes(_hash(16, "trace", self._store_id, task_id)) or 1

    def derive_task(self, task_no: int, incarnation: int) -> int:
        """The span of one incarnation of a task."""
        return _mix(self._task + task_no * _SPREAD + incarnation)

    def derive_step(self, step_no: int, incarnation: int) -> int:
        """The span of a step or compensation in one incarnation of its task."""
        return _mix(self._step + step_no * _SPREAD + incarnation)

    def derive_attempt(self, step_no: int, attempt: int) -> int:
        """The span of an attempt. One that is taken again because its process was lost keeps its number, and so its span."""
        return _mix(self._attempt + step_no * _SPREAD + attempt)


def _hash(size: int, *parts: str) -> bytes:
    text = "\0".join(parts).encode(errors="surrogatepass")
    return hashlib.blake2b(text, digest_size=size, person=b"arriero-span").digest()


def _mix(value: int) -> int:
    """Mix 64 bits so that each one depends on all: the finalizer of SplitMix64. 0, which is not an id, becomes 1."""
    value &= _64_BITS
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _64_BITS
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _64_BITS
    return (value ^ value >> 31) or 1
