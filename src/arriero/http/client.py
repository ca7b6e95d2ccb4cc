"""The clients of httpx2 with the attempt's key, time and meaning added to each call that a step makes.

The attempt is found by itself (``current_attempt``), so a library of a service that takes a client of httpx2 may be given
one of these. Outside of an attempt, as in a resource that opens a session, they are plain clients of httpx2.
"""

import hashlib
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

from ..declare.attempt import Attempt, current_attempt
from ..errors import Permanent, StepError, Transient
from .meaning import Meaning, check_meanings, interpret_status, parse_retry_after

try:
    import httpx2
except ImportError as error:
    raise ImportError("arriero.http needs httpx2: install arriero[http]") from error

MESSAGE_LENGTH_MAX = 300  # characters of a service's own words in a failure
ANSWER_BYTES_MAX = 64 * 1024  # a longer answer of an error is not read for its code and message
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS", "TRACE"))  # RFC 9110, section 9.2.1: they need no key
# After these the service cannot have heard of the call: there was no connection to send it on.
NOTHING_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
NEVER_SENT = (httpx2.InvalidURL, httpx2.UnsupportedProtocol)  # nor will it ever be


class InDoubt(Exception):
    """The call may have happened: the connection was lost, or the service's answer does not say.

    A step that lets it pass is in doubt, and is tried again under the same key. ``status``: of the answer; None: there was
    none.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class _Calls:
    """What both clients add to a call.

    Args:
        meanings, trace: see ``AsyncClient``.
        has_timeout: the client was given a time-out of its own.
    """

    def __init__(self, meanings: Mapping[int, str] | None, trace: bool, has_timeout: bool) -> None:
        self._meanings = check_meanings(meanings or {})
        self._trace = trace
        self._has_timeout = has_timeout

    def choose_timeout(self, given: Any) -> Any:
        """Return the time-out of a call: its own, else the client's, else in an attempt what time there is."""
        attempt = current_attempt.get(None)
        is_given = self._has_timeout or not isinstance(given, type(httpx2.USE_CLIENT_DEFAULT))
        return given if is_given or attempt is None else attempt.remaining

    def prepare(self, request: httpx2.Request, attempt: Attempt) -> None:
        """Add the attempt's headers, unless they are there, and bound each wait by the time that is left.

        Raises: Transient - no time is left: nothing is sent.
        """
        remaining = attempt.remaining
        if remaining <= 0:
            raise Transient(f"{_name(request)}: no time was left to send it", code="no_time_left")
        waits = request.extensions.get("timeout", {})
        request.extensions["timeout"] = {
            phase: remaining if waits.get(phase) is None else min(waits[phase], remaining)
            for phase in ("connect", "read", "write", "pool")
        }
        for name, value in attempt.headers.items():
            if name != "Idempotency-Key" or request.method not in SAFE_METHODS:
                request.headers.setdefault(name, value)
        if self._trace:
            request.headers.setdefault("traceparent", build_traceparent(attempt.task_id))

    def interpret(self, response: httpx2.Response) -> Meaning:
        has_retry_after = "retry-after" in response.headers
        return interpret_status(response.status_code, has_retry_after=has_retry_after, meanings=self._meanings)


class AsyncClient(httpx2.AsyncClient):
    """``httpx2.AsyncClient`` for async steps.

    In a step or a compensation each call carries ``Idempotency-Key``, ``Arriero-Task`` and ``traceparent``, and waits as
    long as the attempt has time; a time-out of the client's or the call's own can only shorten that. Headers of the call's
    own stay as they are.

    Args:
        meanings: of statuses that mean something else at this service, like ``{409: "transient", 404: "answer"}``. The
            words are those of ``Meaning``.
        trace: whether calls carry ``traceparent`` (W3C Trace Context). All calls of a task have one trace id.
        options: those of ``httpx2.AsyncClient``.
    Raises: InvalidInput - a status or a meaning that there is not. From each call in an attempt: Transient - it surely did
    not happen; Permanent - it never will; InDoubt - it may have happened. docs/how-to/http.md has the table.
    """

    def __init__(self, *, meanings: Mapping[int, str] | None = None, trace: bool = True, **options: Any) -> None:
        self._calls = _Calls(meanings, trace, "timeout" in options)
        super().__init__(**options)

    def build_request(
        self, method: str, url: Any, *, timeout: Any = httpx2.USE_CLIENT_DEFAULT, **options: Any
    ) -> httpx2.Request:
        return super().build_request(method, url, timeout=self._calls.choose_timeout(timeout), **options)

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        attempt = current_attempt.get(None)
        if attempt is None:
            return await super().send(request, **options)
        self._calls.prepare(request, attempt)
        try:
            response = await super().send(request, **options)
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            _refuse_unanswered(request, error)
        meaning = self._calls.interpret(response)
        if meaning is not Meaning.ANSWER:
            try:
                answer = None if _is_long(response) else await response.aread()
            except httpx2.HTTPError:
                answer = None  # what its status says is known all the same
            finally:
                await response.aclose()
            _refuse(request, response, meaning, answer)
        return response


class Client(httpx2.Client):
    """``httpx2.Client`` for plain steps; see ``AsyncClient``."""

    def __init__(self, *, meanings: Mapping[int, str] | None = None, trace: bool = True, **options: Any) -> None:
        self._calls = _Calls(meanings, trace, "timeout" in options)
        super().__init__(**options)

    def build_request(
        self, method: str, url: Any, *, timeout: Any = httpx2.USE_CLIENT_DEFAULT, **options: Any
    ) -> httpx2.Request:
        return super().build_request(method, url, timeout=self._calls.choose_timeout(timeout), **options)

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        attempt = current_attempt.get(None)
        if attempt is None:
            return super().send(request, **options)
        self._calls.prepare(request, attempt)
        try:
            response = super().send(request, **options)
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            _refuse_unanswered(request, error)
        meaning = self._calls.interpret(response)
        if meaning is not Meaning.ANSWER:
            try:
                answer = None if _is_long(response) else response.read()
            except httpx2.HTTPError:
                answer = None
            finally:
                response.close()
            _refuse(request, response, meaning, answer)
        return response


def build_traceparent(task_id: str) -> str:
    """A header of W3C Trace Context, version 00: the trace id is the task's, the same for all its calls; sampled."""
    trace_id = hashlib.blake2b(
        task_id.encode(errors="surrogatepass"), digest_size=16, person=b"arriero-trace"
    ).hexdigest()
    return f"00-{trace_id}-{secrets.token_hex(8)}-01"


def _refuse_unanswered(request: httpx2.Request, error: Exception) -> NoReturn:
    """Raise what a call without an answer means."""
    text = f"{_name(request)}: {type(error).__name__}: {error}"
    if isinstance(error, NOTHING_SENT):
        raise Transient(text, code="unreachable") from error
    if isinstance(error, NEVER_SENT):
        raise Permanent(text, code="bad_url") from error
    raise InDoubt(text) from error


def _refuse(request: httpx2.Request, response: httpx2.Response, meaning: Meaning, answer: bytes | None) -> NoReturn:
    """Raise what an answer means that is none of a call that happened."""
    body = _read_object(response, answer)
    said = next((body[name] for name in ("detail", "message", "title", "error") if isinstance(body.get(name), str)), "")
    status = response.status_code
    text = f"{_name(request)} was answered {status} {response.reason_phrase}".rstrip()
    text = f"{text}: {said[:MESSAGE_LENGTH_MAX]}" if said else text
    if meaning is Meaning.IN_DOUBT:
        raise InDoubt(text, status=status)
    given = body.get("code")
    code = str(given) if isinstance(given, str | int) and not isinstance(given, bool) else str(status)
    raise _build_error(meaning, text, code, {"status": status}, response)


def _build_error(
    meaning: Meaning, text: str, code: str, details: dict[str, int], response: httpx2.Response
) -> StepError:
    if meaning is Meaning.PERMANENT:
        return Permanent(text, code=code, details=details)
    wait = parse_retry_after(response.headers.get("retry-after"), datetime.now(UTC))
    return Transient(text, code=code, details=details, retry_after=wait)


def _is_long(response: httpx2.Response) -> bool:
    length = response.headers.get("content-length", "")
    return length.isdigit() and int(length) > ANSWER_BYTES_MAX


def _read_object(response: httpx2.Response, answer: bytes | None) -> dict[str, Any]:
    """The answer's JSON object, as most services and problem documents (RFC 9457) have one; else an empty one."""
    if not answer or "json" not in response.headers.get("content-type", ""):
        return {}
    try:
        body = response.json()
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _name(request: httpx2.Request) -> str:
    """Method and place. The query is left out: it may hold what must not stand in a history."""
    return f"{request.method} {request.url.copy_with(query=None, fragment=None, username=None, password=None)}"
