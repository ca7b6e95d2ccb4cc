"""The clients of httpx2 that add the attempt's key and time to each call of a step, and raise what its answer means.

They find the attempt by themselves (``current_try``). So a library of a service that takes a client of httpx2 may be given
one of these. Outside of an attempt, as in a resource that logs in, they are plain clients of httpx2.
"""

import json
import time
import zlib
from collections.abc import Mapping
from typing import Any

import httpx2

from ..declare.attempt import StepTry, current_try
from ..errors import InDoubt, Permanent
from .meaning import Meaning, check_meanings
from .requests import (
    ClientCall,
    add_headers,
    confirm_not_happened,
    current_call,
    describe_request,
    is_effect_free,
    remove_additions,
)

BODY_BYTES_MAX = 64 * 1024  # of an error's body: a longer one is not read for its code and message
BODY_SECONDS_MAX = 1.0  # to read it: what the status says is known all the same, and the attempt's time runs
GZIP_WINDOW = 31  # zlib's word for a stream with the header of gzip
# Their errors and answers speak for one sending. HTTPTransport(retries=) tries to connect again, and sends nothing twice.
SENDING_ONCE = (httpx2.HTTPTransport, httpx2.AsyncHTTPTransport, httpx2.MockTransport)
CALLING_ONCE = (httpx2.ASGITransport, httpx2.WSGITransport)  # an error from there is the service's own


class _Judge:
    """Judgement of answers, shared by both clients.

    Args:
        meanings, trace, sends_once: see ``AsyncClient``.
        options: those of the client of httpx2.
    """

    def __init__(
        self, meanings: Mapping[int, str] | None, trace: bool, sends_once: bool, options: Mapping[str, Any]
    ) -> None:
        self._meanings = check_meanings(meanings or {})
        self._trace = trace
        self._has_timeout = "timeout" in options
        used = [one for one in (options.get("transport"), *(options.get("mounts") or {}).values()) if one is not None]
        # The exact type: a subclass may send again what was lost, and say only of the last sending.
        self._believes_errors = sends_once or all(type(one) in SENDING_ONCE for one in used)
        self._believes_answers = sends_once or all(type(one) in (*SENDING_ONCE, *CALLING_ONCE) for one in used)

    def choose_timeout(self, given: Any) -> Any:
        """Return the time-out of a call: its own, else the client's, else in an attempt the time that it has left."""
        step_try = current_try.get()
        is_given = self._has_timeout or not isinstance(given, type(httpx2.USE_CLIENT_DEFAULT))
        return given if is_given or step_try is None else step_try.attempt.remaining

    def find_try(self, request: httpx2.Request) -> StepTry | None:
        """Prepare a request, and return the try that it belongs to; None outside of one, and for a read of code that outlived its try."""
        remove_additions(request)
        step_try = current_try.get()
        return None if step_try is None or (step_try.is_over and is_effect_free(request)) else step_try

    def refuse_url(self, error: httpx2.InvalidURL) -> None:
        """Raises Permanent, or InDoubt if the try has sent something else. Raises nothing outside of a try."""
        step_try = current_try.get()
        if step_try is not None:
            text = f"the URL cannot be called: {error}"
            raise confirm_not_happened(step_try, Permanent(text, code="bad_url")) from error

    def open_call(self, request: httpx2.Request, step_try: StepTry) -> ClientCall:
        add_headers(request, step_try.attempt, trace=self._trace)
        return ClientCall(
            step_try,
            self._meanings,
            believes_errors=self._believes_errors,
            believes_answers=self._believes_answers,
        )


def _note_request(request: httpx2.Request) -> None:
    call = current_call.get()
    if call is not None:
        call.begin(request)


def _note_response(response: httpx2.Response) -> None:
    call = current_call.get()
    if call is not None:
        call.note_answer(response)


async def _note_request_async(request: httpx2.Request) -> None:
    _note_request(request)


async def _note_response_async(response: httpx2.Response) -> None:
    _note_response(response)


def _place_hooks(client: httpx2.Client | httpx2.AsyncClient, on_request: Any, on_response: Any) -> None:
    """Put our hooks nearest to the transport. The user may have set others since the last call."""
    hooks = client.event_hooks
    requests, responses = hooks["request"], hooks["response"]
    if requests[-1:] != [on_request] or responses[:1] != [on_response]:
        client.event_hooks = {
            "request": [*(one for one in requests if one != on_request), on_request],
            "response": [on_response, *(one for one in responses if one != on_response)],
        }


class AsyncClient(httpx2.AsyncClient):
    """``httpx2.AsyncClient`` for async steps.

    In a step or a compensation each call carries ``Idempotency-Key``, ``Arriero-Task`` and ``traceparent``, and waits as
    long as the attempt has time. A time-out of the client or the call can only shorten that. A header that the call has
    stays as it is.

    Args:
        meanings: of statuses that mean something else at this service, as ``{409: "transient", 404: "answer"}``. The
            words are those of ``Meaning``.
        trace: whether calls carry ``traceparent`` (W3C Trace Context). All calls of a task have one trace id.
        sends_once: a ``transport=`` of your own sends each request at most once. Else each of its failures is in doubt.
        options: those of ``httpx2.AsyncClient``.
    Raises: InvalidInput - a status or a meaning that does not exist. From each call in an attempt: Transient - it definitely did
    not happen; Permanent - it never will; InDoubt - it may have happened. docs/how-to/http.md has the table.
    """

    def __init__(
        self,
        *,
        meanings: Mapping[int, str] | None = None,
        trace: bool = True,
        sends_once: bool = False,
        **options: Any,
    ) -> None:
        self._judge = _Judge(meanings, trace, sends_once, options)
        super().__init__(**options)

    def build_request(
        self, method: str, url: Any, *, timeout: Any = httpx2.USE_CLIENT_DEFAULT, **options: Any
    ) -> httpx2.Request:
        try:
            return super().build_request(method, url, timeout=self._judge.choose_timeout(timeout), **options)
        except httpx2.InvalidURL as error:
            self._judge.refuse_url(error)
            raise

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        step_try = self._judge.find_try(request)
        if step_try is None:
            return await super().send(request, stream=stream, **options)
        _place_hooks(self, _note_request_async, _note_response_async)
        call = self._judge.open_call(request, step_try)
        token = current_call.set(call)
        try:
            response = await super().send(request, stream=True, **options)
            call.note_unseen(request)
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            raise call.judge_error(request, error) from error
        finally:
            current_call.reset(token)
        try:
            if call.interpret(response)[0] is not Meaning.ANSWER:
                raise call.judge_answer(response, parse_object(response, await self._read_body(response)))
            if not stream:
                await response.aread()
        except (httpx2.RequestError, httpx2.StreamError) as error:
            await response.aclose()
            raise _build_unread(response, error) from error
        except BaseException:
            await response.aclose()
            raise
        return response

    async def _read_body(self, response: httpx2.Response) -> bytes:
        """Read the body of an error, as far as it is worth its time."""
        if response.is_stream_consumed:
            return response.content[:BODY_BYTES_MAX]
        body, give_up_at = b"", time.monotonic() + BODY_SECONDS_MAX
        _shorten_waits(response)
        try:
            async for part in response.aiter_raw():
                body += part
                if len(body) > BODY_BYTES_MAX or time.monotonic() > give_up_at:
                    return b""
        except (httpx2.RequestError, httpx2.StreamError):
            return b""
        return body


class SyncClient(httpx2.Client):
    """``httpx2.Client`` for plain steps; see ``AsyncClient``. All threads of an Agent may share it."""

    def __init__(
        self,
        *,
        meanings: Mapping[int, str] | None = None,
        trace: bool = True,
        sends_once: bool = False,
        **options: Any,
    ) -> None:
        self._judge = _Judge(meanings, trace, sends_once, options)
        super().__init__(**options)

    def build_request(
        self, method: str, url: Any, *, timeout: Any = httpx2.USE_CLIENT_DEFAULT, **options: Any
    ) -> httpx2.Request:
        try:
            return super().build_request(method, url, timeout=self._judge.choose_timeout(timeout), **options)
        except httpx2.InvalidURL as error:
            self._judge.refuse_url(error)
            raise

    def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        step_try = self._judge.find_try(request)
        if step_try is None:
            return super().send(request, stream=stream, **options)
        _place_hooks(self, _note_request, _note_response)
        call = self._judge.open_call(request, step_try)
        token = current_call.set(call)
        try:
            response = super().send(request, stream=True, **options)
            call.note_unseen(request)
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            raise call.judge_error(request, error) from error
        finally:
            current_call.reset(token)
        try:
            if call.interpret(response)[0] is not Meaning.ANSWER:
                raise call.judge_answer(response, parse_object(response, self._read_body(response)))
            if not stream:
                response.read()
        except (httpx2.RequestError, httpx2.StreamError) as error:
            response.close()
            raise _build_unread(response, error) from error
        except BaseException:
            response.close()
            raise
        return response

    def _read_body(self, response: httpx2.Response) -> bytes:
        if response.is_stream_consumed:
            return response.content[:BODY_BYTES_MAX]
        body, give_up_at = b"", time.monotonic() + BODY_SECONDS_MAX
        _shorten_waits(response)
        try:
            for part in response.iter_raw():
                body += part
                if len(body) > BODY_BYTES_MAX or time.monotonic() > give_up_at:
                    return b""
        except (httpx2.RequestError, httpx2.StreamError):
            return b""
        return body


def parse_object(response: httpx2.Response, body: bytes) -> dict[str, Any]:
    """The JSON object of an error's body, as problem documents (RFC 9457) and most services have one; else an empty one."""
    if not body or "json" not in response.headers.get("content-type", ""):
        return {}
    try:
        if response.headers.get("content-encoding") == "gzip" and body.startswith(b"\x1f\x8b"):
            body = zlib.decompressobj(GZIP_WINDOW).decompress(body, BODY_BYTES_MAX)
        parsed = json.loads(body)
    except (ValueError, RecursionError, zlib.error):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _shorten_waits(response: httpx2.Response) -> None:
    """The transport reads the time-out again when the body is read."""
    waits = response.request.extensions.get("timeout", {})
    waits["read"] = min(waits.get("read") or BODY_SECONDS_MAX, BODY_SECONDS_MAX)


def _build_unread(response: httpx2.Response, error: Exception) -> InDoubt:
    status = response.status_code
    text = f"{describe_request(response.request)} was answered {status}, but its body could not be read: {error}"
    return InDoubt(text, details={"status": status})
