"""Authentication of a request, behind ``Authenticator``: by tokens of the store, a proxy's header, or a user's function."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Protocol

import msgspec
from starlette.requests import Request

from ..client.session import Session
from ..core.capabilities import CallbackToken, read_callback
from ..core.tokens import LAST_USE_SECONDS, TokenVerdict, is_use_due, judge_token, parse_token
from ..errors import InvalidInput, StoreError
from ..model.tokens import OpenTaskCap, Reach, TokenRow
from ..operations.problems import declare_problem
from ..store.contract import CALLBACK_SECRET
from ..system.loopback import parse_address
from ..text.person_names import check_person
from .calls import Caller
from .problems import Problem, build_credential_problem, build_rate_problem

REMEMBERED_SECONDS = 0.5  # half of what is promised for a revocation: the other half is for the query
Authenticate = Callable[[Request], Awaitable[Caller | None]]


class Authenticator(Protocol):
    """Identifies the sender of a request."""

    async def authenticate(self, request: Request) -> Caller:
        """The caller. Raises Problem (unauthenticated) - no valid credential."""
        ...


def read_bearer(values: Sequence[str]) -> str:
    """Read the credential out of all headers Authorization of a request. Raises Problem (unauthenticated)."""
    if not values:
        raise build_credential_problem("no token was sent; send the header Authorization: Bearer TOKEN", given=False)
    if len(values) > 1:  # servers and proxies differ about which one counts
        raise build_credential_problem("the header Authorization was sent twice")
    scheme, _, credential = values[0].partition(" ")
    if scheme.lower() != "bearer" or not (credential := credential.strip()):
        raise build_credential_problem("the header Authorization must be: Bearer TOKEN")
    return credential


COOKIE = "arriero"  # of the console; it holds a token


def use_cookie(request: Request) -> Request:
    """Return the request of a page with the token of the console's cookie as its credential, unless it carries another one."""
    token = request.cookies.get(COOKIE)
    if not token or not token.isascii() or "authorization" in request.headers:
        return request
    bearer = (b"authorization", f"Bearer {token}".encode("ascii"))
    return Request({**request.scope, "headers": [*request.scope["headers"], bearer]}, request.receive)


CALLBACK_UNKNOWN = declare_problem(
    "callback-unknown",
    404,
    "No such callback",
    "Send to the URL as the task gave it. Its store made the token in it; a text that was changed is none.",
)


class CallbackAuthenticator:
    """Admits who has the token of a callback, for that one alone. A token that was not made here learns nothing else."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._secret, self._read_at = b"", -REMEMBERED_SECONDS

    async def authenticate(self, request: Request) -> Caller:
        store, now = self._session.store, self._session.ports.clock.monotonic()
        if now - self._read_at >= REMEMBERED_SECONDS:  # so a flood of forged ones costs two queries in a second
            self._secret, self._read_at = await store.read_secret(CALLBACK_SECRET), now
        token = read_callback(request.path_params.get("token", ""), self._secret, store.store_id)
        if token is None:
            raise Problem(CALLBACK_UNKNOWN, "there is no such callback")
        request.scope["arriero.callback"] = token
        return Caller("callback", frozenset(), f"callback {token.task_no}")


def get_callback_token(request: Request) -> CallbackToken:
    """The token of a request that was admitted for it."""
    token: CallbackToken = request.scope["arriero.callback"]
    return token


class FunctionAuthenticator:
    """Asks a function of the user's own."""

    def __init__(self, authenticate: Authenticate) -> None:
        self._authenticate = authenticate

    async def authenticate(self, request: Request) -> Caller:
        caller = await self._authenticate(request)
        if caller is None:
            raise build_credential_problem("no valid credential was sent", given="authorization" in request.headers)
        if not caller.name.strip():
            raise build_credential_problem("the caller has no name, by which acts could be signed")
        try:
            check_person(caller.name, "name of the caller")
        except InvalidInput as error:
            raise build_credential_problem(str(error)) from None
        return caller


REMEMBERED_MAX = 10_000
LOOKUPS_MAX = 500  # ids in one query
PAUSE_SECONDS = 0.05  # after a query that named ids which are not there: at most twenty such queries in a second


class RememberedToken(msgspec.Struct, frozen=True):
    """A row, and the monotonic second before which it was read."""

    row: TokenRow
    at: float


class TokenLookups:
    """Finds rows by their ids, those of all requests that wait in one query."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[str, asyncio.Future[TokenRow | None]] = {}
        self._running: asyncio.Task[None] | None = None

    async def find(self, token_id: str) -> TokenRow | None:
        """Find a row. Raises StoreError; Problem (too-many-requests) - too many others wait."""
        if token_id not in self._waiting:
            if len(self._waiting) >= LOOKUPS_MAX:
                raise build_rate_problem("too many tokens that are not known here are sent", 1.0)
            self._waiting[token_id] = asyncio.get_running_loop().create_future()
        found = self._waiting[token_id]
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._run())
        return await asyncio.shield(found)  # others may wait for it too

    async def _run(self) -> None:
        while self._waiting:
            asked, self._waiting = self._waiting, {}
            try:
                rows = {row.token_id: row for row in await self._session.store.find_tokens(list(asked))}
            except BaseException as error:
                for found in asked.values():
                    found.set_exception(
                        error if isinstance(error, Exception) else StoreError("the lookup was cancelled")
                    )
                    _ = found.exception()  # the one who asked may be gone
                if not isinstance(error, Exception):
                    raise
                continue
            for token_id, found in asked.items():
                found.set_result(rows.get(token_id))
            if len(rows) < len(asked):
                await self._session.ports.clock.sleep(PAUSE_SECONDS)


class TokenAuthenticator:
    """Admits the holders of valid tokens of the App's store.

    Tokens are remembered for half a second, so a revocation works within that and the time of one query. What is remembered are
    rows that there are: a caller that sends tokens that were never made fills nothing. All of them that come together are looked
    up by one query, and the next one waits a little, so they cost a bounded number of queries.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lookups = TokenLookups(session)
        self._remembered: dict[str, RememberedToken] = {}
        self._noted_at: dict[str, float] = {}  # when a use was last written from here, by id

    @property
    def _monotonic(self) -> Callable[[], float]:
        return self._session.ports.clock.monotonic

    async def authenticate(self, request: Request) -> Caller:
        parts = parse_token(read_bearer(request.headers.getlist("authorization")))
        if parts is None:
            raise build_credential_problem("the token is not written as a token of arriero")
        row = await self._find(parts.token_id)
        verdict = judge_token(row, parts.secret, self._session.store.now())
        if row is None or verdict is not TokenVerdict.VALID:
            raise build_credential_problem(f"the token is {verdict}")
        await self._note_use(row)
        cap = None if row.open_tasks_max is None else OpenTaskCap(row.token_id, row.open_tasks_max)
        return Caller(row.name, frozenset(row.scopes), row.token_id, Reach(row.apps, row.workflows), cap)

    async def _find(self, token_id: str) -> TokenRow | None:
        now = self._monotonic()
        known = self._remembered.get(token_id)
        if known is not None and now - known.at < REMEMBERED_SECONDS:
            return known.row
        row = await self._lookups.find(token_id)
        if row is None:
            self._remembered.pop(token_id, None)
            return None
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[token_id] = RememberedToken(row, now)
        return row

    async def _note_use(self, row: TokenRow) -> None:
        """Write the use at most once a minute. A store that cannot write it refuses nobody for that."""
        now = self._monotonic()
        if now - self._noted_at.get(row.token_id, -LAST_USE_SECONDS) < LAST_USE_SECONDS:
            return
        self._noted_at[row.token_id] = now
        at = self._session.store.now()
        if is_use_due(row.last_used_at, at):
            with suppress(StoreError):
                await self._session.store.note_token_used(row.token_id, at)


class ProxyAuthenticator:
    """Takes the caller from a header, if a proxy sends it.

    Any program that connects from the proxy's address can claim any name, so no other address is answered at all.
    A header that was sent twice is refused: a proxy that adds its own beside the caller's would let callers choose their name.

    Args:
        header: that names the caller, in lower case.
        addresses: networks of the proxies. A peer at a Unix socket has none: the rights of its file say who may connect.
        scopes: of each such caller.
        scopes_header: that names the scopes instead; empty: there is none.
        tokens: judges a request that carries a token; the proxy's header does not help a bad one.
    """

    def __init__(
        self,
        header: str,
        *,
        addresses: Iterable[str],
        scopes: Iterable[str],
        scopes_header: str,
        tokens: Authenticator,
    ) -> None:
        self._header = header
        self._networks: list[IPv4Network | IPv6Network] = [ip_network(address) for address in addresses]
        self._scopes = frozenset(scopes)
        self._scopes_header = scopes_header
        self._tokens = tokens

    async def authenticate(self, request: Request) -> Caller:
        if not self._is_proxy(request):
            raise build_credential_problem("this server answers its proxy alone", given=False)
        if "authorization" in request.headers:
            return await self._tokens.authenticate(request)
        name = _read_name(request.headers.getlist(self._header), self._header)
        scopes = self._scopes
        if self._scopes_header:
            given = request.headers.getlist(self._scopes_header)
            if len(given) > 1:
                raise build_credential_problem(f"the header {self._scopes_header} was sent twice")
            scopes = frozenset(" ".join(given).replace(",", " ").split())
        return Caller(name, scopes, f"proxy:{name}")  # no id of a token holds a colon

    def _is_proxy(self, request: Request) -> bool:
        if request.client is None or not request.client.host:
            return True
        address = parse_address(request.client.host)
        return address is not None and any(address in network for network in self._networks)


def _read_name(values: list[str], header: str) -> str:
    if len(values) != 1 or not values[0].strip():
        raise build_credential_problem(f"the proxy named no caller, or two, in the header {header}", given=bool(values))
    try:
        return check_person(values[0].strip().encode("latin-1").decode(), "name of the caller")
    except UnicodeDecodeError:
        raise build_credential_problem(f"the header {header} holds no name in UTF-8") from None
    except InvalidInput as error:
        raise build_credential_problem(f"the header {header} holds no fit name: {error}") from None
