"""The role http of a process: builds application, gate and socket from the settings, and serves."""

import logging
import resource
import ssl
import sys
from pathlib import Path

from ..client.client import Client
from ..config import Configuration
from ..core.tokens import TokenVerdict, find_state
from .application import ApiServer, build_application
from .authentication import Authenticator
from .caller_limits import limit_caller
from .connection_limits import ConnectionLimits, limit_connections
from .first_token import make_first_token
from .http_server import HttpServer
from .listening import ListenOptions, ListenPlan, plan_listening, refuse_open_without_token
from .proxy_authentication import ProxyAuthenticator
from .rate_limits import RatePolicy
from .request_rules import RequestRules
from .routing import GateLimits
from .sockets import describe_address, load_certificate, open_socket
from .token_authentication import TokenAuthenticator

logger = logging.getLogger("arriero.server")

BURST_SECONDS = 5  # of requests that a caller may send at once after a pause


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
            rules=RequestRules(hosts=self._plan.hosts, origins=frozenset(configuration.http_origins)),
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
        """End what only waits; everything else goes on."""
        self._application.shutdown.begin()

    async def stop(self) -> None:
        """Take no new connection, let requests under way end, close."""
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
