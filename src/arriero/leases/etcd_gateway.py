"""Requests to etcd over its JSON gateway: endpoints, logins, answers, errors. The leases are in ``etcd``."""

import asyncio
from collections.abc import Sequence
from ssl import SSLContext
from typing import Any, TypeVar

import msgspec

from ..errors import LeaseAccessDenied, LeaseRefused, LeaseUnavailable, describe_install

try:
    import httpx2
except ImportError as missing:
    raise ImportError(f"leases in etcd need httpx2: {describe_install('etcd')}") from missing

# Codes of gRPC that the gateway passes on.
INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, FAILED_PRECONDITION, OUT_OF_RANGE, UNAUTHENTICATED = 3, 5, 7, 9, 11, 16
REFUSALS = (INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, FAILED_PRECONDITION, OUT_OF_RANGE, UNAUTHENTICATED)
CLOSE_SECONDS_MAX = 1.0  # that a request running may still take
T = TypeVar("T")


class EtcdHeader(msgspec.Struct):
    """Header of each answer. ``raft_term``: of etcd's leader, as the answering member knows it."""

    revision: int = 0
    raft_term: int = 0


class EtcdKey(msgspec.Struct):
    """A key as it stands. ``lease``: what it is bound to; 0: nothing."""

    key: bytes = b""
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    lease: int = 0


class EtcdKeys(msgspec.Struct):
    """Answer to a range."""

    header: EtcdHeader
    kvs: list[EtcdKey] = []


class EtcdTransaction(msgspec.Struct):
    """Answer to a transaction."""

    header: EtcdHeader
    succeeded: bool = False


class EtcdLifetime(msgspec.Struct, rename={"ttl": "TTL", "granted_ttl": "grantedTTL"}):
    """Answer to what asks for, prolongs or looks at a lease. ``ttl``: 0 or less: there is no such lease."""

    header: EtcdHeader = msgspec.field(default_factory=EtcdHeader)
    ttl: int = 0
    granted_ttl: int = 0


class EtcdStreamed(msgspec.Struct):
    """One answer of a stream."""

    result: EtcdLifetime


class EtcdToken(msgspec.Struct):
    """Answer to a login."""

    token: str


class EtcdFailure(msgspec.Struct):
    """Answer that shows an error: in a stream below ``error``, with its code as ``grpc_code``; else beside it."""

    code: int = 0
    message: str = ""
    error: Any = None


class EtcdRefusal(Exception):
    """etcd answered with an error. Only this module sees it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class EtcdGateway:
    """Requests to the members of etcd, one after the other until one answers.

    Args:
        endpoints: URLs of members.
        credentials: user and password; empty: etcd asks for none.
        verify: as httpx2 takes it.
    """

    def __init__(self, endpoints: Sequence[str], credentials: tuple[str, str], verify: SSLContext | bool) -> None:
        self._endpoints = list(endpoints)
        self._credentials = credentials
        self._token = ""
        self._sending: set[asyncio.Task[httpx2.Response]] = set()
        is_encrypted = any(one.startswith("https:") for one in endpoints)
        # Proxies of the environment are for the web; without https no authorities are loaded.
        self._client = httpx2.AsyncClient(verify=verify if is_encrypted else False, trust_env=False, timeout=None)

    async def call(self, path: str, body: dict[str, Any], answer: type[T], seconds: float) -> T:
        """Ask; a lost token is asked for again. Raises LeaseUnavailable, LeaseRefused, EtcdRefusal."""
        if self._credentials[0] and not self._token:
            await self._log_in(seconds)
        try:
            return await self._ask(path, body, answer, seconds)
        except EtcdRefusal as refusal:
            if not self._token or not is_token_old(refusal):
                raise build_error(refusal) from None
        await self._log_in(seconds)
        try:
            return await self._ask(path, body, answer, seconds)
        except EtcdRefusal as refusal:
            raise build_error(refusal) from None

    async def follow(self, body: dict[str, Any], on_event: "asyncio.Event") -> None:
        """Set the event for each change that a watch says, until the stream ends. Raises LeaseUnavailable."""
        request = self._build_request("watch", msgspec.json.encode(body))
        try:
            response = await asyncio.shield(self._send(request, stream=True))
            try:
                async for line in response.aiter_lines():
                    if '"events"' in line or '"canceled"' in line:
                        on_event.set()
            finally:
                await response.aclose()
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise LeaseUnavailable(f"etcd: {error or type(error).__name__}") from error

    async def close(self) -> None:
        """Close all connections, when the requests running have ended."""
        if self._sending:
            _, unanswered = await asyncio.wait(self._sending, timeout=CLOSE_SECONDS_MAX)
            for sending in unanswered:
                sending.cancel()
            if unanswered:
                await asyncio.wait(unanswered)
        await self._client.aclose()

    def _send(self, request: httpx2.Request, *, stream: bool = False) -> "asyncio.Task[httpx2.Response]":
        """Send a request in a separate task.

        Who waits for it may be cancelled at any time. The request then continues until ``close``: a connection whose opening is
        cancelled at the wrong moment is never closed.
        """
        sending = asyncio.get_running_loop().create_task(self._client.send(request, stream=stream))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        sending.add_done_callback(lambda done: done.cancelled() or done.exception())  # read: perhaps nobody waits
        return sending

    async def _log_in(self, seconds: float) -> None:
        user, password = self._credentials
        self._token = ""
        try:
            answer = await self._ask("auth/authenticate", {"name": user, "password": password}, EtcdToken, seconds)
        except EtcdRefusal as refusal:
            if "not enabled" in str(refusal):  # etcd's own clients continue without a token, too
                return
            raise LeaseAccessDenied(f"etcd refused the login of user {user!r}: {refusal}") from None
        self._token = answer.token

    async def _ask(self, path: str, body: dict[str, Any], answer: type[T], seconds: float) -> T:
        content = msgspec.json.encode(body)
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + seconds
        failure = ""
        for left in range(len(self._endpoints), 0, -1):
            endpoint = self._endpoints[0]
            sending = self._send(self._build_request(path, content))
            try:
                async with asyncio.timeout((ends_at - loop.time()) / left):
                    response = await asyncio.shield(sending)
                return read_answer(response, answer, endpoint)
            except TimeoutError:
                sending.cancel()
                failure = f"etcd at {endpoint} did not answer within {seconds:.3g} s"
            except httpx2.RequestError as error:
                failure = f"etcd at {endpoint}: {error or type(error).__name__}"
            except LeaseUnavailable as error:
                failure = str(error)
            self._endpoints.append(self._endpoints.pop(0))  # the one who answered last is asked first
        raise LeaseUnavailable(failure)

    def _build_request(self, path: str, content: bytes) -> httpx2.Request:
        headers = {"Authorization": self._token} if self._token else {}
        return self._client.build_request("POST", f"{self._endpoints[0]}/v3/{path}", content=content, headers=headers)


def read_answer(response: httpx2.Response, answer: type[T], endpoint: str) -> T:
    """Read an answer of the gateway. Raises EtcdRefusal, LeaseUnavailable, LeaseRefused - this is not such a gateway."""
    content = response.content.partition(b"Grpc-Trailer")[0]  # etcd 3.4 writes one behind an error
    try:
        failure = msgspec.json.decode(content, type=EtcdFailure)
        if response.status_code == 200 and failure.error is None:
            return msgspec.json.decode(content, type=answer, strict=False)
    except msgspec.DecodeError as error:
        if response.status_code == 404:
            raise LeaseRefused(f"{endpoint} has no JSON gateway of etcd 3.4 or later at /v3") from error
        raise LeaseUnavailable(
            f"etcd at {endpoint}: an answer with status {response.status_code} makes no sense"
        ) from error
    told = failure.error if isinstance(failure.error, dict) else {}
    code, message = told.get("grpc_code", failure.code), told.get("message", failure.message)
    if code in REFUSALS:
        raise EtcdRefusal(code, message)
    raise LeaseUnavailable(f"etcd at {endpoint}: {message}")


def is_token_old(refusal: EtcdRefusal) -> bool:
    """Returns True if a new login mends it."""
    return refusal.code == UNAUTHENTICATED or "auth store is old" in str(refusal)


def build_error(refusal: EtcdRefusal) -> Exception:
    """Build LeaseRefused for what an operator must change. What the caller of a request understands stays as it is."""
    if refusal.code in (NOT_FOUND, FAILED_PRECONDITION):
        return refusal
    kind = LeaseAccessDenied if refusal.code in (PERMISSION_DENIED, UNAUTHENTICATED) else LeaseRefused
    return kind(f"etcd refused it: {refusal}")
