"""The role http of a process: builds application, gate and socket from the settings, makes the first token, and serves."""

import logging
import os
import resource
import ssl
import stat
import sys
from pathlib import Path
from urllib.parse import urlsplit

from ..client.client import Client
from ..client.tokens import draw_token, keep_token
from ..config import Configuration
from ..core.tokens import TokenParts, TokenVerdict, find_state, format_token, parse_token
from ..errors import InvalidInput
from ..model.tokens import Scope
from ..store.state_store import StateStore
from .application import ApiServer, build_application
from .authentication import Authenticator, ProxyAuthenticator, TokenAuthenticator
from .caller_limits import RatePolicy, limit_caller
from .connection_limits import ConnectionLimits, limit_connections
from .http_server import HttpServer
from .request_rules import RequestRules
from .routing import GateLimits
from .sockets import (
    ListenOptions,
    ListenPlan,
    describe_address,
    load_certificate,
    open_socket,
    plan_listening,
    refuse_open_without_token,
)

logger = logging.getLogger("arriero.server")

BURST_SECONDS = 5  # of requests that a caller may send immediately after a pause

FIRST_TOKEN_NAME = "admin"
FIRST_TOKEN_ACTOR = "arriero serve"
FIRST_TOKEN_MODE = 0o600
FIRST_TOKEN_BYTES_MAX = 200
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


async def make_first_token(store: StateStore, path: Path) -> bool:
    """Make a token of admin, unless a token was ever made in the store, and write it to the file.

    The file comes first. If the process dies before the token is kept, the next start finds the file and keeps that token.
    Returns: False: there are tokens, and nothing was made.
    Raises: InvalidInput - the file is there and holds no token, can be read by others, or cannot be written; StoreError.
    """
    if await store.list_tokens():
        return False
    parts = draw_token()
    try:
        _write_exclusively(path, parts)
    except FileExistsError:
        parts = _read_own(path)
    except OSError as error:
        raise InvalidInput(
            f"the first token cannot be written to {path}: {error.strerror}; name another file with --token-file, or make a token"
            " with `arriero token create`"
        ) from error
    await keep_token(
        store, parts, name=FIRST_TOKEN_NAME, scopes=(str(Scope.ADMIN),), by=FIRST_TOKEN_ACTOR, expires_in=None
    )
    return True


def _write_exclusively(path: Path, parts: TokenParts) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, FIRST_TOKEN_MODE)
    with os.fdopen(descriptor, "w") as file:
        file.write(format_token(parts) + "\n")
        file.flush()
        os.fsync(descriptor)


def _read_own(path: Path) -> TokenParts:
    """Read the file of an earlier start. One that others could have put there would make them admins."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _FLAGS)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}; take it away") from error
    try:
        found = os.fstat(descriptor)
        is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
        text = os.read(descriptor, FIRST_TOKEN_BYTES_MAX) if is_ours else b""
    finally:
        os.close(descriptor)
    parts = parse_token(text.decode("ascii", "replace").strip())
    if parts is None:
        raise InvalidInput(
            f"{path} is there and holds no token that only you can read; take it away, or name another file with --token-file"
        )
    return parts


class HttpService:
    """Serves an App over HTTP.

    Args:
        client: the App; it must be open before ``start``.
        configuration: of the process.
        token_file: for the first token of the store.
    Raises: InvalidInput - the address may not be used, is in use, or the certificate cannot be used. Nothing is served yet.
    """

    def __init__(self, client: Client, configuration: Configuration, token_file: Path) -> None:
        self._client = client
        self._token_file = token_file
        self._plan = _plan(configuration)
        limits = _choose_limits(configuration)
        application = build_application(
            client,
            _build_authenticator(client, configuration),
            limits=_build_limits(configuration, limits),
            rules=RequestRules(
                hosts=self._plan.hosts | _list_public_names(configuration),
                origins=frozenset(configuration.http_origins),
            ),
        )
        self._application: ApiServer = application
        certificate: ssl.SSLContext | None = load_certificate(self._plan.options)
        self._listener = open_socket(self._plan)
        self.address = describe_address(self._plan, self._listener)
        self._server = HttpServer(application, self._listener, certificate, limits)
        self.has_made_token = False  # the first one, in the file

    async def start(self) -> None:
        """Serve from now on. Raises InvalidInput - nobody could send a valid token; StoreError."""
        store = self._client.session.store
        if self._plan.may_make_token:
            self.has_made_token = await make_first_token(store, self._token_file)
        elif self._plan.needs_token:
            now = store.now()
            has_token = any(find_state(row, now) is TokenVerdict.VALID for row in await store.list_tokens())
            refuse_open_without_token(self._plan, has_token=has_token)
        await self._server.start()

    def begin_to_stop(self) -> None:
        """End what only waits; everything else continues."""
        self._application.shutdown.begin()

    async def stop(self) -> None:
        """Take no new connection, let running requests end, close."""
        self.begin_to_stop()
        await self._server.stop()

    def close_unused(self) -> None:
        """Close the socket of a service that was not started."""
        self._listener.close()

    async def wait_until_ended(self) -> None:
        """Wait until the server has ended by itself, which is a failure."""
        await self._server.wait_until_ended()


def _choose_limits(configuration: Configuration) -> ConnectionLimits:
    """Choose the limits of connections; a setting above what the open files of this process allow is logged."""
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = configuration.http_connections_max
    limits = limit_connections(wanted, sys.maxsize if files_max == resource.RLIM_INFINITY else files_max)
    if limits.served < wanted:
        logger.warning(
            "http.connections_max is %s, but this process may open only %s files: %s connections are served; raise the limit"
            " (ulimit -n, LimitNOFILE= of systemd), or lower the setting",
            *(wanted, files_max, limits.served),
        )
    return limits


def _plan(configuration: Configuration) -> ListenPlan:
    options = ListenOptions(
        host=configuration.http_host,
        port=configuration.http_port,
        unix_socket=configuration.http_unix_socket,
        tls_cert=configuration.http_tls_cert,
        tls_key=configuration.http_tls_key,
        behind_proxy=configuration.http_behind_proxy,
        hosts=configuration.http_hosts,
    )
    return plan_listening(options)


def _list_public_names(configuration: Configuration) -> frozenset[str]:
    """The name in the URL under which others reach this server: services send callbacks to it."""
    name = urlsplit(configuration.public_url).hostname
    return frozenset() if name is None else frozenset({name})


def _build_authenticator(client: Client, configuration: Configuration) -> Authenticator:
    tokens = TokenAuthenticator(client.session)
    if not configuration.http_behind_proxy:
        return tokens
    return ProxyAuthenticator(
        configuration.http_behind_proxy,
        addresses=configuration.http_proxy_addresses,
        scopes=configuration.http_proxy_scopes,
        scopes_header=configuration.http_proxy_scopes_header,
        tokens=tokens,
    )


def _build_limits(configuration: Configuration, limits: ConnectionLimits) -> GateLimits:
    rate = configuration.http_requests_per_second_max
    at_once = limit_caller(configuration.http_token_requests_max, configuration.http_token_waits_max, limits.served)
    return GateLimits(rate=RatePolicy(rate, rate * BURST_SECONDS), at_once=at_once)
