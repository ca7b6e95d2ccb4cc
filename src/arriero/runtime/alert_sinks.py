"""Receivers of alerts: the log, a function, a command, a signed webhook. An exception from a sink is a failed delivery.

Each sink has a timeout, after which ``Alerting`` cancels the delivery. A cancelled sink releases what it began: a command is
killed, a request is cut off. Names are kept with the alerts, so they are the same in every process and after every
restart. They hold no secret: an address or an argument list shows only as a short hash.
"""

import asyncio
import hashlib
import http.client
import inspect
import logging
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import IO, Any, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from ..core.alerts import Alert, encode_alert, format_alert_line, parse_signing_key, sign_message
from ..errors import InvalidInput
from ..payloads.codec import error_text
from ..text.escaping import holds_password
from .ports import Ports

logger = logging.getLogger("arriero.alerts")

LOG_TIMEOUT_SECONDS = 5.0
FUNCTION_TIMEOUT_SECONDS = 30.0
COMMAND_TIMEOUT_SECONDS = 30.0
WEBHOOK_TIMEOUT_SECONDS = 20.0  # Standard Webhooks recommends 15 to 30
THREADS_MAX = 8  # of one sink: as many as Alerting uses at the same time
ANSWER_BYTES_MAX = 65_536
TOKEN_LENGTH_MIN = 8  # of an address: a shorter part is a word that answers need
SHOWN_MAX = 500  # characters of what a receiver or a command said: enough to see what is wrong


# What signs alerts, where they go to, and how libpq logs in. Files that a variable names guard themselves.
SECRET_VARIABLES = ("ARRIERO_ALERTS_WEBHOOK_SECRET", "ARRIERO_ALERTS_WEBHOOK_URL", "PGPASSWORD")


class AlertSink(Protocol):
    """A receiver of alerts."""

    @property
    def name(self) -> str:
        """The same in every process and after every restart; no other sink has it."""
        ...

    @property
    def timeout_seconds(self) -> float:
        """Timeout of one delivery."""
        ...

    async def tell(self, alert: Alert) -> None:
        """Deliver an alert. Any exception means that it was not delivered."""
        ...


class NotTold(Exception):
    """A command or a webhook refused an alert."""


class LogSink:
    """The logger ``arriero.alerts``: a warning for an open alert, an info for a closed one."""

    name = "log"
    timeout_seconds = LOG_TIMEOUT_SECONDS

    async def tell(self, alert: Alert) -> None:
        level = logging.WARNING if alert.state == "open" else logging.INFO
        logger.log(level, "%s", format_alert_line(alert), extra={"alert": alert})


class FunctionSink:
    """A function of the user's, async or plain; a plain one runs in a thread.

    A plain function that outlives its time cannot be stopped: it may end later, and is called again all the same.
    """

    def __init__(
        self,
        function: Callable[[Alert], Any],
        *,
        ports: Ports,
        timeout_seconds: float = FUNCTION_TIMEOUT_SECONDS,
    ) -> None:
        named = function if hasattr(function, "__qualname__") else type(function)
        self.name = f"function:{named.__module__}.{named.__qualname__}"
        self.timeout_seconds = timeout_seconds
        self._function = function
        self._ports = ports

    async def tell(self, alert: Alert) -> None:
        if inspect.iscoroutinefunction(self._function):
            await self._function(alert)
            return
        answer = await _run_in_thread(self._ports, self.name, lambda: self._function(alert))
        if inspect.isawaitable(answer):  # an object whose __call__ is async, or a lambda around a coroutine
            await answer


class CommandSink:
    """A program, given as its list of arguments; no shell. The event is JSON on its standard input.

    It gets the environment of this process without the secrets in it: no variable of ``SECRET_VARIABLES``, and none
    that holds a URL with a password.

    It has been notified when it exits with 0. At its timeout it is killed, with all that it started in its session.

    Raises: InvalidInput - no arguments, or one that is not a text.
    """

    def __init__(self, arguments: Sequence[str], *, timeout_seconds: float = COMMAND_TIMEOUT_SECONDS) -> None:
        if isinstance(arguments, str) or not arguments or not all(isinstance(part, str) for part in arguments):
            raise InvalidInput('the command for alerts must be a list of texts, like ["notify", "--urgent"]; no shell')
        if any("\0" in part for part in arguments) or not arguments[0]:
            raise InvalidInput("the command for alerts holds an empty name or a NUL character: remove it")
        program = arguments[0].rpartition("/")[2]
        self.name = f"command:{program}#{_build_short_hash(*arguments)}"
        self.timeout_seconds = timeout_seconds
        self._arguments = tuple(arguments)

    async def tell(self, alert: Alert) -> None:
        # Files instead of pipes: a command may leave its input unread, write without end, or leave a child behind
        # that keeps its outputs open, and none of it holds us up.
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as complaints:
            given.write(encode_alert(alert) + b"\n")  # one line each, so that what is appended to a file stays readable
            given.seek(0)
            exit_code = await self._run(given, complaints)
            if exit_code != 0:
                how = f"exited with {exit_code}" if exit_code > 0 else f"was ended by signal {-exit_code}"
                said = _shorten(_read_end(complaints), from_the_end=True)
                raise NotTold(f"the command {how}{': ' if said else ''}{said}")

    async def _run(self, given: IO[bytes], complaints: IO[bytes]) -> int:
        process = await asyncio.create_subprocess_exec(
            *self._arguments, stdin=given, stdout=subprocess.DEVNULL, stderr=complaints, start_new_session=True,
            env={name: value for name, value in os.environ.items() if not _is_secret(name, value)},
        )  # fmt: skip
        try:
            return await process.wait()
        finally:
            if process.returncode is None:  # its time is over, or ours
                with suppress(ProcessLookupError, PermissionError):  # it has just ended
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


class WebhookSink:
    """A POST signed as Standard Webhooks 1.0.0 has it. Any status from 200 to 299 means that it was received.

    Redirects are refused: the one who could set one would get what was meant for the configured receiver. No proxy of the
    environment is used. Over ``http`` anybody on the way can read the alert; the signature only shows who sent it.

    Args:
        url: http or https, without user and password.
        secret: ``whsec_`` and base64 of 24 to 64 bytes; the receiver has the same.
        unix_time: seconds since 1970 by the wall clock, which receivers compare with their own. Not the store's
            clock, which does not follow when the wall clock is set.
    Raises: InvalidInput - the url or the secret cannot be used; the message repeats neither.
    """

    def __init__(
        self,
        url: str,
        secret: str,
        *,
        ports: Ports,
        unix_time: Callable[[], float],
        timeout_seconds: float = WEBHOOK_TIMEOUT_SECONDS,
    ) -> None:
        parts = _parse_url(url)
        is_secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port if parts.port is not None else (443 if is_secure else 80)
        self._path, self._query = parts.path or "/", parts.query
        self._key = parse_signing_key(secret)
        self._ports = ports
        self._unix_time = unix_time
        self._tls = ssl.create_default_context() if is_secure else None
        self.name = f"webhook:{self._host}#{_build_short_hash(url)}"
        self.timeout_seconds = timeout_seconds

    async def tell(self, alert: Alert) -> None:
        body = encode_alert(alert)
        timestamp = int(self._unix_time())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "arriero",
            "webhook-id": alert.id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign_message(self._key, alert.id, timestamp, body),
        }
        request = _Request(self._connection(), self._path, self._query, headers, body)
        try:
            await _run_in_thread(self._ports, self.name, request.send)
        except asyncio.CancelledError:
            request.cut_off()
            raise

    def _connection(self) -> http.client.HTTPConnection:
        seconds = 2 * self.timeout_seconds  # of one read; the caller that waits cuts the request off before
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        return http.client.HTTPSConnection(self._host, self._port, timeout=seconds, context=self._tls)


class _Request:
    """One request, sent in a thread. A socket's timeout bounds each read only; ``cut_off`` bounds them together."""

    def __init__(
        self, connection: http.client.HTTPConnection, path: str, query: str, headers: dict[str, str], body: bytes
    ) -> None:
        self._connection = connection
        self._target = f"{path}?{query}" if query else path
        self._private = _list_private_parts(path, query)
        self._headers = headers
        self._body = body
        self._is_cut_off = False

    def send(self) -> None:
        """Raises NotTold."""
        try:
            self._connection.connect()
            if self._is_cut_off:
                return  # nobody waits for the answer any longer
            self._connection.request("POST", self._target, self._body, self._headers)
            with self._connection.getresponse() as response:
                self._judge(response)
        except (OSError, http.client.HTTPException) as error:
            raise NotTold(f"the webhook cannot be asked: {self._without_address(error_text(error))}") from error
        finally:
            self._connection.close()

    def _judge(self, response: http.client.HTTPResponse) -> None:
        if 200 <= response.status < 300:
            return
        if 300 <= response.status < 400:
            raise NotTold(
                f"the webhook answered {response.status}, and a redirect is never followed: configure the address itself"
            )
        said = b""
        with suppress(OSError, http.client.HTTPException):  # the status says enough
            said = response.read(ANSWER_BYTES_MAX)
        shown = _shorten(self._without_address(said.decode("utf-8", "replace")))
        raise NotTold(f"the webhook answered {response.status}{': ' if shown else ''}{shown}")

    def _without_address(self, text: str) -> str:
        """Mask the address: error pages repeat it, and for some services it is the credential."""
        for part in self._private:
            text = text.replace(part, "...")
        return text

    def cut_off(self) -> None:
        """Shut the socket down, so that the thread ends."""
        self._is_cut_off = True
        open_socket = self._connection.sock
        if open_socket is not None:
            with suppress(OSError):
                # Not the method of an SSL socket: that one takes its state away under the thread that reads.
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)


def _list_private_parts(path: str, query: str) -> list[str]:
    """Parts of its address that a receiver may repeat, as sent and decoded, the longest first."""
    wholes = [part for part in (path, query) if len(part) > 1]
    parts = [part for part in re.split(r"[/&=]", f"{path}&{query}") if len(part) >= TOKEN_LENGTH_MIN]
    return sorted({form for part in (*wholes, *parts) for form in (part, unquote(part))}, key=len, reverse=True)


def _run_in_thread(ports: Ports, sink: str, function: Callable[[], Any]) -> Awaitable[Any]:
    """Run a function in the sink's own threads, so that a sink that hangs delays no other one."""
    return ports.run_in_thread(f"alerts-{sink}", THREADS_MAX, function, lambda: None)


def _parse_url(url: str) -> SplitResult:
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or set(url) & set(" \\"):
        raise InvalidInput("the address of the webhook holds characters that no address has: write them as %XX")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise InvalidInput("the address of the webhook cannot be read: check its host and port") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput("the address of the webhook must begin with https:// or http:// and name a host")
    if "@" in parts.netloc:
        raise InvalidInput("the address of the webhook holds a user or password: leave them out, the secret signs")
    return parts


def _is_secret(name: str, value: str) -> bool:
    return name in SECRET_VARIABLES or holds_password(value)


def _build_short_hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _read_end(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 4 * SHOWN_MAX, 0))
    return file.read(4 * SHOWN_MAX).decode("utf-8", "replace")


def _shorten(said: str, *, from_the_end: bool = False) -> str:
    text = " ".join(said.split())
    if len(text) <= SHOWN_MAX:
        return text
    return f"... {text[-SHOWN_MAX:]}" if from_the_end else f"{text[:SHOWN_MAX]} ..."
