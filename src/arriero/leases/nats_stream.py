"""The stream under a bucket of NATS KV: URLs, credentials, the connection, and reads and writes of one subject."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ..errors import ArrieroError, InvalidInput, LeaseAccessDenied, LeaseRefused, LeaseUnavailable, describe_install

try:
    from nats.aio.client import Client
    from nats.errors import AuthorizationError, Error
    from nats.js import JetStreamContext
    from nats.js.api import Header, StorageType, StreamConfig
    from nats.js.errors import APIError, NotFoundError
except ImportError as missing:
    raise ImportError(f"leases on NATS need nats-py: {describe_install('nats')}") from missing

T = TypeVar("T")
URL_SHAPE = "nats://HOST:4222/BUCKET, or nats+tls:// for TLS; several hosts with commas between them"
CREDENTIALS = "NATS_CREDS (a file), NATS_TOKEN, or NATS_USER and NATS_PASSWORD"
REQUEST_SECONDS_MAX = 2
PING_SECONDS = 2  # two without an answer end a connection that has gone silent
WRONG_REVISION = (10071, 10164)  # the server's codes: the key was written since
JETSTREAM_OFF = (10039, 10076)
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\],]+)(:\d{1,5})?")
_BUCKET = re.compile(r"[a-zA-Z0-9_-]+")


class NatsStream:
    """The stream under a bucket. After a failure the next request opens a new connection, perhaps to another server.

    The client's own reconnection is off: it keeps requests and sends them when nobody waits for them any longer.

    Attributes:
        changed: is set by each write of the subject.
    """

    def __init__(self, servers: list[str], bucket: str, subject: str) -> None:
        self.changed = asyncio.Event()
        self._servers = servers
        self._bucket = bucket
        self._name = f"KV_{bucket}"
        self._subject = subject
        self._place = f"{','.join(servers)}/{bucket}"
        self._client: Client | None = None
        self._closing: asyncio.Task[None] | None = None
        self._is_suspect = False
        self._told = ""  # by the server, beside its answers

    async def read(self, subject: str) -> Any:
        """Read the last message of a subject from the server that leads the stream: a copy might be late. None: there is none."""

        async def read(stream: JetStreamContext) -> Any:
            try:
                return await stream.get_msg(self._name, subject=subject)
            except NotFoundError:
                return None

        return await self._ask(read)

    async def publish(self, subject: str, last: int, value: bytes, lifetime: int | None) -> int | None:
        """Write a message if the last one of the subject has the number ``last``. Returns its number; None: it has not.

        Args:
            lifetime: seconds until it expires; None: it stays.
        """
        headers = {Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(last)}

        async def publish(stream: JetStreamContext) -> int | None:
            try:
                written = await stream.publish(subject, value, headers=headers, msg_ttl=lifetime)
            except APIError as error:
                if error.err_code in WRONG_REVISION:
                    return None
                raise
            return int(written.seq)

        return await self._ask(publish)

    async def close(self) -> None:
        """Close the connection. It raises nothing.

        A request that is cut off here does not cut the closing off: the client would keep its socket open.
        """
        if self._client is not None:
            before, client, self._client = self._closing, self._client, None
            self._closing = asyncio.get_running_loop().create_task(_close(before, client))
        if self._closing is not None and not self._closing.done():
            await asyncio.wait({self._closing})  # without cancelling it, or raising what it raised

    async def _ask(self, request: Callable[[JetStreamContext], Awaitable[T]]) -> T:
        self._told = ""
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                answer = await request(await self._open())
        except LeaseRefused:
            raise
        except (Error, OSError, TimeoutError) as error:
            self._is_suspect = self._is_suspect or not isinstance(error, APIError)
            raise self._translate(error) from error
        except BaseException:
            self._is_suspect = True  # it was cut off: nobody knows if the server still answers
            raise
        return answer

    async def _open(self) -> JetStreamContext:
        if self._client is None or self._is_suspect or not self._client.is_connected:
            await self.close()
            self._client = client = Client()
            self._is_suspect = True  # until all of this has worked
            await client.connect(
                list(self._servers),
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=REQUEST_SECONDS_MAX,
                ping_interval=PING_SECONDS,
                error_cb=self._note_error,
                **read_credentials(os.environ),
            )
            await self._open_bucket(client.jetstream(timeout=REQUEST_SECONDS_MAX))
            await client.subscribe(self._subject, cb=self._note_change)
            self._is_suspect = False
        return self._client.jetstream(timeout=REQUEST_SECONDS_MAX)

    async def _open_bucket(self, stream: JetStreamContext) -> None:
        """Make the bucket if need be. Raises LeaseRefused - leases would not be safe in it."""
        try:
            found = await stream.stream_info(self._name)
        except NotFoundError:
            await stream.create_key_value(bucket=self._bucket, history=1, storage=StorageType.FILE)
            found = await stream.stream_info(self._name)
        check_bucket(found.config, self._place)

    async def _note_error(self, error: Exception) -> None:
        self._told = str(error) or type(error).__name__

    async def _note_change(self, message: object) -> None:
        self.changed.set()

    def _translate(self, error: Exception) -> ArrieroError:
        told = f"{str(error) or type(error).__name__}" + (f" ({self._told})" if self._told else "")
        if isinstance(error, AuthorizationError) or re.search(
            "authoriz|authent|permissions violation", told, re.IGNORECASE
        ):
            return LeaseAccessDenied(
                f"{self._place}: NATS refuses this user: {told}; check {CREDENTIALS}, and that the user may publish to"
                f" $JS.API.> and $KV.{self._bucket}.> and subscribe to _INBOX.> and $KV.{self._bucket}.>"
            )
        if isinstance(error, APIError) and error.err_code in JETSTREAM_OFF:
            return LeaseRefused(
                f"{self._place}: JetStream is off: start the server with --jetstream, and allow it the account"
            )
        return LeaseUnavailable(f"{self._place}: no answer of JetStream: {told}")


async def _close(before: asyncio.Task[None] | None, client: Client) -> None:
    if before is not None and not before.done():
        await asyncio.wait({before})
    with suppress(Exception):  # there is nothing left to do with it
        async with asyncio.timeout(REQUEST_SECONDS_MAX):
            await client.close()


def check_bucket(config: "StreamConfig", place: str) -> None:
    """Check that the server keeps a record until its own time is over, and counts on. Raises LeaseRefused."""
    rules = (
        (
            bool(config.allow_msg_ttl),
            "its messages cannot expire one by one (nats stream edit --allow-msg-ttl, from 2.11 on)",
        ),
        (not config.max_age, "all its messages expire after a time, leases too"),
        (config.storage == "file", "it is in memory, so terms begin again when the server restarts"),
        (config.persist_mode != "async", "it answers before a record is kept"),
        (config.max_msgs_per_subject == 1, "it keeps more than one record of a key, and an old one could come back"),
        (config.discard == "new", "it makes room by deleting the oldest records"),
    )
    wrong = [text for is_kept, text in rules if not is_kept]
    if wrong:
        raise LeaseRefused(
            f"the bucket {place} is not fit for leases: {'; '.join(wrong)}. Name a bucket that does not exist, and it is made"
        )


def parse_bucket_url(url: str) -> tuple[list[str], str]:
    """Parse the URL of a bucket. Returns (servers, bucket). Raises InvalidInput, which shows no credentials."""
    scheme, _, rest = url.partition("://")
    hosts, _, bucket = rest.partition("/")
    if "@" in rest or "?" in rest or "#" in rest:
        raise InvalidInput(
            f"the URL of a NATS bucket must hold no credentials, for it is shown in logs: set {CREDENTIALS}; give {URL_SHAPE}"
        )
    names = hosts.split(",")
    if (
        scheme not in ("nats", "nats+tls")
        or not all(_HOST.fullmatch(name) for name in names)
        or not _BUCKET.fullmatch(bucket)
    ):
        raise InvalidInput(f"no bucket of NATS is at {url!r}: give {URL_SHAPE}")
    return [f"{'tls' if scheme == 'nats+tls' else 'nats'}://{name}" for name in names], bucket


def read_credentials(environment: Mapping[str, str]) -> dict[str, Any]:
    """Read how to log in, as the client takes it; empty: without. Raises LeaseRefused."""
    if path := environment.get("NATS_CREDS", ""):
        if not Path(path).is_file():
            raise LeaseRefused(f"NATS_CREDS names the file {path!r}, which is not there")
        return {"user_credentials": path}
    if token := environment.get("NATS_TOKEN", ""):
        return {"token": token}
    if user := environment.get("NATS_USER", ""):
        return {"user": user, "password": environment.get("NATS_PASSWORD", "")}
    return {}
