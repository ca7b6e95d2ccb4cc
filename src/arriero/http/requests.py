"""Requests of one call within a try, and the meaning of their errors and answers.

One call may send several requests: redirects that are followed, and what an auth flow sends. A try may make several calls.
"Definitely did not happen" is said only if it is true of all of them. The rule is in ``confirm_not_happened``.

A request is noted by an event hook of httpx2, right before the transport gets it. So it does not matter who built it.
"""

import hashlib
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import httpx2

from ..declare.attempt import Attempt, StepTry
from ..errors import InDoubt, InvalidInput, Permanent, StepError, Transient
from .meaning import Meaning, interpret_status, is_unavailable, parse_retry_after

EFFECT_FREE: Mapping[str, bool] = {"arriero_effect_free": True}
"""Marks a request that changes nothing, as a search by POST: ``client.post(url, json=..., extensions=EFFECT_FREE)``."""

SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "QUERY"))  # RFC 9110, section 9.2.1; QUERY: RFC 10008
# After these the service has not heard of the request: there was no connection to send it on.
NOTHING_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
NEVER_SENT = (httpx2.InvalidURL, httpx2.UnsupportedProtocol)  # nor will it ever be
UNSAFE_HEADERS = ("upgrade", "x-http-method-override")  # a GET that opens a websocket, or that stands for a POST
PHASES = ("connect", "read", "write", "pool")

current_call: ContextVar["ClientCall | None"] = ContextVar("arriero_current_http_call", default=None)


class NotedStream(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A request's body that is made while it is sent. It notes that the sending has begun.

    Code of the user runs meanwhile. An error from there may look like one of the connection.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.is_begun = False

    def __iter__(self) -> Iterator[bytes]:
        self.is_begun = True
        yield from self._stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.is_begun = True
        async for part in self._stream:
            yield part


class SentRequest:
    """A request that was given to a transport. ``token``: of the try's note; None for one without an effect."""

    __slots__ = ("is_answered", "request", "token")

    def __init__(self, request: httpx2.Request, token: object | None) -> None:
        self.request = request
        self.token = token
        self.is_answered = False

    def is_body_begun(self) -> bool:
        return isinstance(self.request.stream, NotedStream) and self.request.stream.is_begun


class ClientCall:
    """One call of a client within a try.

    Args:
        believes_errors: the transports send a request at most once, so an error to connect says that it was not sent.
        believes_answers: for the same reason, an answer speaks for all that was sent.
    """

    def __init__(
        self, step_try: StepTry, meanings: Mapping[int, Meaning], *, believes_errors: bool, believes_answers: bool
    ) -> None:
        self._step_try = step_try
        self._meanings = meanings
        self._believes_errors = believes_errors
        self._believes_answers = believes_answers
        self._sent: list[SentRequest] = []

    # --- noted by the hooks
    def begin(self, request: httpx2.Request) -> None:
        """Note a request right before a transport gets it, and bound its waits by the time that is left.

        Raises: InvalidInput - the try is over; Transient or InDoubt - no time is left. In both cases it is not sent.
        """
        name = describe_request(request)
        remaining = self._step_try.attempt.remaining
        if remaining <= 0:
            raise confirm_not_happened(
                self._step_try, Transient(f"{name}: no time was left to send it", code="no_time_left")
            )
        waits = request.extensions.get("arriero_waits", request.extensions.get("timeout")) or {}
        bounded = {phase: _bound_wait(waits.get(phase), remaining) for phase in PHASES}
        request.extensions = {**request.extensions, "arriero_waits": waits, "timeout": bounded}
        if not isinstance(request.stream, httpx2.ByteStream | NotedStream):
            request.stream = NotedStream(request.stream)
        token = None if is_effect_free(request) else self._step_try.begin_request(name)
        if token is not None and self._step_try.is_over:  # asked after the note: see StepTry.end in attempt_run
            self._step_try.withdraw_request(token)
            raise InvalidInput(
                f"{name} was not sent: the step's function that started this code has ended; await every call inside of the"
                " function, or start code that outlives it with contextvars.Context().run"
            )
        self._sent.append(SentRequest(request, token))

    def note_answer(self, response: httpx2.Response) -> None:
        """Note the answer to the last request. It is taken back if it definitely did not happen."""
        if not self._sent:
            return
        last = self._sent[-1]
        last.is_answered = True
        meaning, _ = self.interpret(response)
        if self._believes_answers and meaning in (Meaning.TRANSIENT, Meaning.PERMANENT):
            self._withdraw(last)

    def note_unseen(self, request: httpx2.Request) -> None:
        """Note a request that may have been sent without our hooks, as when another thread replaces the hooks meanwhile."""
        if not self._sent and not is_effect_free(request):
            self._step_try.begin_request(describe_request(request))

    # --- what it means
    def interpret(self, response: httpx2.Response) -> tuple[Meaning, float | None]:
        """Say what the answer means for its own request. Returns: the meaning, and the seconds of its Retry-After."""
        headers = response.headers
        wait = parse_retry_after(headers.get("retry-after"), headers.get("date"), datetime.now(UTC))
        return interpret_status(response.status_code, retry_after=wait, meanings=self._meanings), wait

    def judge_error(self, request: httpx2.Request, error: Exception) -> StepError:
        """Build what a call raises that got no answer. ``request``: the one that the call was made for."""
        last = self._sent[-1] if self._sent else None
        text = f"{describe_request(last.request if last else request)}: {type(error).__name__}: {error}"
        if (
            last is None
        ):  # no hook of ours ran: a hook or an auth flow of the user raised this, and may have sent anything
            self.note_unseen(request)
            return InDoubt(text)
        is_from_transport = not last.is_answered and _read_request(error) is last.request
        if is_from_transport and self._believes_errors and not last.is_body_begun():
            if isinstance(error, NOTHING_SENT):
                self._withdraw(last)
                return confirm_not_happened(self._step_try, Transient(text, code="unreachable"))
            if isinstance(error, NEVER_SENT):
                self._withdraw(last)
                return confirm_not_happened(self._step_try, Permanent(text, code="bad_url"))
        return InDoubt(text)

    def judge_answer(self, response: httpx2.Response, body: Mapping[str, Any]) -> StepError:
        """Build what a call raises for an answer that says "no". ``body``: its JSON object; empty if it has none."""
        meaning, wait = self.interpret(response)
        status = response.status_code
        text = f"{describe_request(response.request)} was answered {status} {response.reason_phrase}".rstrip()
        if 300 <= status < 400:
            text = f"{text} to {_read_location(response)}, which was not followed"
        said = _read_message(body)
        text = f"{text}: {said}" if said else text
        code, details = _read_code(body) or str(status), {"status": status}
        if meaning is Meaning.IN_DOUBT:
            return InDoubt(text, code=code, details=details)
        if not self._believes_answers or not self._sent:
            return InDoubt(f"{text}; the transport may have sent more than that", code=code, details=details)
        if meaning is Meaning.PERMANENT:
            return confirm_not_happened(self._step_try, Permanent(text, code=code, details=details))
        unavailable = is_unavailable(status, wait)
        return confirm_not_happened(
            self._step_try, Transient(text, code=code, details=details, retry_after=wait, unavailable=unavailable)
        )

    def _withdraw(self, sent: SentRequest) -> None:
        if sent.token is not None:
            self._step_try.withdraw_request(sent.token)


def confirm_not_happened(step_try: StepTry, error: Transient | Permanent) -> StepError:
    """Return an error that says "definitely did not happen", if that is true of all that the try has sent; else InDoubt."""
    other = step_try.find_request()
    if other is not None:
        text = f"{error.message}; but {other} of the same try may have happened"
        return InDoubt(text, code=error.code, details=error.details, public=error.public)
    step_try.note_not_happened(error)
    return error


def is_effect_free(request: httpx2.Request) -> bool:
    """Returns True for a request that changes nothing: by its method, or marked with ``EFFECT_FREE``."""
    if request.extensions.get("arriero_effect_free") is True:
        return True
    return request.method.upper() in SAFE_METHODS and not any(name in request.headers for name in UNSAFE_HEADERS)


def add_headers(request: httpx2.Request, attempt: Attempt, *, trace: bool) -> None:
    """Add the key, the task and the trace. A header that the request has stays as it is."""
    headers = dict(attempt.headers)
    if is_effect_free(request):
        del headers["Idempotency-Key"]
    if not trace:
        headers = {name: value for name, value in headers.items() if name not in ("traceparent", "tracestate")}
    elif "traceparent" not in headers:
        headers["traceparent"] = build_traceparent(attempt.task_id)
    added = {name: value for name, value in headers.items() if name not in request.headers}
    request.headers.update(added)
    request.extensions = {**request.extensions, "arriero_added": tuple(added)}


def remove_additions(request: httpx2.Request) -> None:
    """Take back what an earlier call added: a request that the user keeps may be sent by several steps."""
    for name in request.extensions.get("arriero_added", ()):
        request.headers.pop(name, None)
    waits = request.extensions.get("arriero_waits")
    if waits is not None:
        request.extensions = {**request.extensions, "timeout": waits}


def build_traceparent(task_id: str) -> str:
    """A header of W3C Trace Context, version 00. The trace id is made of the task's id, so all its calls share it; sampled."""
    task = task_id.encode(errors="surrogatepass")
    trace_id = hashlib.blake2b(task, digest_size=16, person=b"arriero-trace").hexdigest()
    return f"00-{trace_id}-{secrets.token_hex(8)}-01"


def describe_request(request: httpx2.Request) -> str:
    """Method and place. The query is left out: it may hold what must not be in a history."""
    return f"{request.method} {request.url.copy_with(query=None, fragment=None, username=None, password=None)}"


def _bound_wait(wait: float | None, remaining: float) -> float:
    return remaining if wait is None else min(wait, remaining)


def _read_request(error: Exception) -> httpx2.Request | None:
    """The request that the transport had when it raised; None if none is named."""
    try:
        request = getattr(error, "request", None)
    except RuntimeError:  # httpx2 raises it for an error without a request
        return None
    return request if isinstance(request, httpx2.Request) else None


def _read_location(response: httpx2.Response) -> str:
    try:
        place = httpx2.URL(response.headers.get("location", ""))
        return str(place.copy_with(query=None, fragment=None, username=None, password=None)) or "no place"
    except httpx2.InvalidURL:
        return "a place that cannot be read"


MESSAGE_LENGTH_MAX = 300  # characters of a service's own words in a failure


def _read_message(body: Mapping[str, Any]) -> str:
    said = (body.get(name) for name in ("detail", "message", "title", "error"))
    return next((text[:MESSAGE_LENGTH_MAX] for text in said if isinstance(text, str)), "")


def _read_code(body: Mapping[str, Any]) -> str:
    code = body.get("code")
    return str(code)[:MESSAGE_LENGTH_MAX] if isinstance(code, str | int) and not isinstance(code, bool) else ""
