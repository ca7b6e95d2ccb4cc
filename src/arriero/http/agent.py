"""An Agent whose program arriero calls over HTTP: each attempt is a signed POST."""

import asyncio
import ipaddress
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
from msgspec.structs import replace

from ..core.alerts import parse_signing_key, sign_message
from ..declare.resources import Resource
from ..declare.steps import Agent
from ..errors import DefinitionError, InDoubt, InvalidInput, Transient
from ..model.policies import check_type
from ..payloads.codec import PAYLOAD_BYTES_MAX, refuse_doubtful_json
from ..runtime.agent_requests import RemoteRequest
from .client import AsyncClient
from .requests import NOTHING_SENT

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# The special-purpose registries of IANA (RFC 6890), November 2025. They are written out here because ``is_global`` differs between releases
# of Python: before 3.11.9 and 3.12.4 it is true of 192.0.0.192, which answers with the credentials of a machine in one cloud.
NOT_PUBLIC_V4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared, behind the NAT of a provider
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # not of IANA: in Azure, each machine's own platform answers there
        "169.254.0.0/16",  # link-local, and the metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; two of them are anycast services that no web server uses
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4, deprecated
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and the broadcast address
    )
)
# RFC 4291, 2.5.4: IANA assigns nothing else of IPv6 to the internet.
PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
NOT_PUBLIC_V6 = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID and others
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
)
# Networks whose addresses hold one of IPv4, with the number of bits behind it. The address inside decides.
EMBEDDING_V4 = (
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (ipaddress.IPv6Network("2002::/16"), 80),  # 6to4
)


def is_public(address: Address) -> bool:
    """Returns True for an address of the public internet: not private, loopback, link-local, multicast or reserved."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in NOT_PUBLIC_V4)
    for network, bits_behind in EMBEDDING_V4:
        if address in network:
            return is_public(ipaddress.IPv4Address(int(address) >> bits_behind & 0xFFFFFFFF))
    return address in PUBLIC_V6 and not any(address in network for network in NOT_PUBLIC_V6)


async def resolve_host(host: str, port: int) -> list[Address]:
    """Resolve a name, in the order of preference of this machine. Raises Transient."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Transient(f"the name {host} cannot be resolved: {error}", code="unreachable") from error
    return [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]


def check_addresses(host: str, addresses: Sequence[Address], *, allow_private: bool) -> list[str]:
    """Return the addresses to connect to, the best first. Raises Transient - there is none to which requests may go.

    One address that is not public refuses the name as a whole: who could put it there could put another one first.
    """
    refused = [] if allow_private else [str(one) for one in addresses if not is_public(one)]
    if refused:
        raise Transient(
            f"the name {host} stands for {refused[0]}, which is not an address of the public internet; if that is meant,"
            " declare the Agent with allow_private=True",
            code="address_refused",
        )
    if not addresses:
        raise Transient(f"the name {host} stands for no address", code="unreachable")
    return [str(one) for one in addresses]


ACCEPTED, NO_CONTENT = 202, 204
FRAMING_HEADERS = ("content-length", "transfer-encoding")  # they say where the body of an answer ends
CONNECT_SECONDS = 2.0  # to wait for an address while the name has others: longer than a packet that is lost once
CONNECTIONS_KEPT = 20  # that are idle, in one process
PLAIN = "identity"  # a small body may be huge once decoded, and httpx2 2.0 decodes without a bound
SHORT_LENGTHS = frozenset(map(str, range(1_001)))  # of a body that is read only to keep its connection
PORT_MAX = 65_535
PARTS_IN_TURN = 100  # of an answer, in one turn of the event loop: thousands of parts of one byte may have arrived


class HttpAgent(Agent):
    """An Agent outside of Python to which arriero sends its requests. Its steps have no body.

    The program answers 200 with the result as JSON, or 202 if it reports later. Other statuses mean what they mean for
    ``arriero.http``. Redirects are not followed, and no proxy of the environment is used.

    Args:
        name: as of every Agent; so are ``options``.
        url: where requests are sent.
        secret: ``whsec_`` and base64 of 24 to 64 bytes. The program checks by it who sends a request (Standard Webhooks).
        callback: URL of a gateway, for programs that report later.
        allow_private: whether the URL may stand for a private, loopback or link-local address.
    Raises: DefinitionError - something of it cannot be used; the message repeats neither URL nor secret.
    """

    pushes = True

    def __init__(
        self,
        name: str,
        *,
        url: str,
        secret: str,
        callback: str | None = None,
        allow_private: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self._url = _parse_url(name, "url", url)
        self._callback = None if callback is None else str(_parse_url(name, "callback", callback)).rstrip("/")
        if self._callback is not None and ("?" in self._callback or "#" in self._callback):
            raise DefinitionError(
                f"Agent {name}: its callback is the URL of a gateway: leave its query or fragment out"
            )
        self._host = self._url.raw_host.decode("ascii")  # url.host may be Unicode: Python would encode it by IDNA 2003
        self._allow_private = check_type(allow_private, bool, f"Agent {name}: allow_private")
        if not isinstance(secret, str):
            raise DefinitionError(f"Agent {name}: its secret is not text but of type {type(secret).__name__}")
        try:
            self._key = parse_signing_key(secret)
        except InvalidInput as error:
            raise DefinitionError(f"Agent {name}: {error}") from error
        with suppress(ValueError):  # a name is resolved when a request is sent
            if not allow_private and not is_public(ipaddress.ip_address(self._host)):
                raise DefinitionError(
                    f"Agent {name}: its url names an address that is not of the public internet; if that is meant, give"
                    " allow_private=True"
                )
        self._client: Resource[AsyncClient] = Resource(_open_client, name)
        self.resources.append(self._client)

    async def send_request(self, request: RemoteRequest, body: bytes, message_id: str) -> bytes | None:
        """Send a request; see ``runtime.pushed_requests.SendingAgent``."""
        if self._callback is not None:
            body = msgspec.json.encode(
                replace(request, callback=f"{self._callback}/v1/agents/{quote(self.name, safe='')}/requests:report")
            )
        timestamp = int(time.time())
        headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": PLAIN,
            "User-Agent": "arriero",
            "Host": self._url.netloc.decode("ascii"),
            "Arriero-Complete-By": request.complete_by,
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign_message(self._key, message_id, timestamp, body),
        }
        port = self._url.port or (443 if self._url.scheme == "https" else 80)
        found = await resolve_host(self._host, port)
        addresses = check_addresses(self._host, found, allow_private=self._allow_private)
        for address in addresses[:-1]:
            try:
                return await self._send_to(address, body, headers, connect_seconds=CONNECT_SECONDS)
            except Transient as error:
                if not isinstance(error.__cause__, NOTHING_SENT):
                    raise
        return await self._send_to(addresses[-1], body, headers)

    async def _send_to(
        self, address: str, body: bytes, headers: dict[str, str], *, connect_seconds: float | None = None
    ) -> bytes | None:
        """Send a request to one of the addresses. ``connect_seconds``: to wait for a connection; None: as long as there is time."""
        timeout = httpx2.Timeout(None, connect=connect_seconds)  # the client bounds all waits by the attempt's time
        client = self._client()
        sent = client.build_request(
            "POST",
            self._url.copy_with(host=address),
            content=body,
            headers=headers,
            timeout=timeout,
            extensions={"sni_hostname": self._host},
        )
        response = await client.send(sent, stream=True, follow_redirects=False)
        try:
            return await self._read_answer(response)
        finally:
            await response.aclose()

    @staticmethod
    async def _read_answer(response: httpx2.Response) -> bytes | None:
        status = response.status_code
        if status == ACCEPTED:
            await _read_to_end(response)
            return None
        if not response.is_success:  # as 304, which is not an error for a client
            raise InDoubt(f"it was answered {status}, which is not a result", code=str(status))
        encoding = response.headers.get("content-encoding", PLAIN)
        if encoding.lower() != PLAIN:
            text = f"it was answered {status}, but its body is encoded as {encoding}, which was not asked for"
            raise InDoubt(text, code="bad_answer")
        answer, parts = bytearray(), 0
        try:
            async for part in response.aiter_raw():
                answer += part
                parts += 1
                if len(answer) > PAYLOAD_BYTES_MAX:
                    raise InDoubt(f"its answer has more than {PAYLOAD_BYTES_MAX:,} bytes", code="bad_answer")
                if parts % PARTS_IN_TURN == 0:
                    await asyncio.sleep(0)
            refuse_doubtful_json(bytes(answer or b"null"), "its body")
        except (httpx2.RequestError, httpx2.StreamError) as error:
            text = f"it was answered {status}, but its body could not be read: {type(error).__name__}: {error}"
            raise InDoubt(text) from error
        except InvalidInput as error:
            raise InDoubt(f"it was answered {status}, but {error}", code="bad_answer") from error
        if not _is_whole(response, bytes(answer)):
            raise InDoubt(
                f"it was answered {status}, but its body may be cut: the program must send Content-Length or chunks",
                code="bad_answer",
            )
        return bytes(answer or b"null")


async def _read_to_end(response: httpx2.Response) -> None:
    """Read a short body that says nothing, because a connection whose answer was not read to its end is closed."""
    length = response.headers.get("content-length", "")
    if length in SHORT_LENGTHS:
        with suppress(httpx2.RequestError, httpx2.StreamError):  # the promise holds in any case
            async for _ in response.aiter_raw():
                pass


def _is_whole(response: httpx2.Response, answer: bytes) -> bool:
    """Returns False if the connection's end was the end of an answer, and its JSON does not show if a part is missing.

    That is so for a number and for nothing. Other JSON is not JSON if its end is missing.
    """
    if response.status_code == NO_CONTENT or any(name in response.headers for name in FRAMING_HEADERS):
        return True
    return answer.rstrip().endswith((b"}", b"]", b'"', b"true", b"false", b"null"))


async def _open_client() -> AsyncIterator[AsyncClient]:
    # The Agent's places bound its calls. A bound of the client's own would let attempts wait that have a place.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=CONNECTIONS_KEPT)
    # Cookies would report one task in the requests of others.
    no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
    async with AsyncClient(trust_env=False, limits=limits, cookies=no_cookies) as client:
        yield client


def _parse_url(agent: str, what: str, url: str) -> httpx2.URL:
    try:
        parsed = httpx2.URL(url)
        parsed.raw_host.decode("ascii").encode("idna")  # a label may be empty or too long
    except (httpx2.InvalidURL, TypeError, UnicodeError):
        raise DefinitionError(f"Agent {agent}: its {what} cannot be read") from None
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
        raise DefinitionError(
            f"Agent {agent}: its {what} must be http or https with a host, and without user or password"
        )
    if parsed.port is not None and not 1 <= parsed.port <= PORT_MAX:
        raise DefinitionError(f"Agent {agent}: its {what} must have a port from 1 to {PORT_MAX}, or none")
    return parsed
