"""uvicorn in the event loop of the App: no signal handlers, none of its headers, and a time limit on every wait."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from ..system.rate_limited_log import RateLimitedLog
from .application import ApiServer
from .connection_limits import ConnectionLimits, LimitedListener
from .http_protocol import ParsingQueue, PatientProtocol, SharedState
from .problems import TOO_MANY_CONNECTIONS
from .sockets import BACKLOG

logger = logging.getLogger("arriero.server")

REMEDY = "the limits are http.connections_max and the open files of this process (ulimit -n, LimitNOFILE= of systemd)"
INCOMPLETE_REQUEST_BYTES_MAX = 32 * 1024
KEEP_ALIVE_SECONDS = 30
TICKS_PER_LOOK = 10  # uvicorn ticks every 0.1 s
TLS_HANDSHAKE_SECONDS_MAX = 5.0
TLS_SHUTDOWN_SECONDS_MAX = 5.0
REQUESTS_END_SECONDS_MAX = 20  # for requests running when the server ends


class LoopServer(uvicorn.Server):
    """A server that leaves signals to the program around it."""

    def __init__(self, config: uvicorn.Config, listener: LimitedListener, limits: ConnectionLimits) -> None:
        super().__init__(config)
        self.serves = asyncio.Event()
        self._listener = listener
        self._limits = limits

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections. uvicorn's own start has no limit of time for handshakes."""
        loop = asyncio.get_running_loop()
        shared = SharedState(ParsingQueue(loop.call_soon), self._listener, self._limits)

        def make_protocol() -> PatientProtocol:
            return PatientProtocol(self.config, self.server_state, {}, shared=shared)

        has_tls = self.config.ssl is not None
        server = await loop.create_server(
            make_protocol,
            sock=self._listener,
            ssl=self.config.ssl,
            backlog=self.config.backlog,
            ssl_handshake_timeout=TLS_HANDSHAKE_SECONDS_MAX if has_tls else None,
            ssl_shutdown_timeout=TLS_SHUTDOWN_SECONDS_MAX if has_tls else None,
        )
        self.servers = [server]
        self.started = True
        self.serves.set()

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_PER_LOOK == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, PatientProtocol):
                    connection.cut_off_if_stalled(now)
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Serves an application on a socket that listens already."""

    def __init__(
        self,
        application: ApiServer,
        listener: LimitedListener,
        certificate: ssl.SSLContext | None,
        limits: ConnectionLimits,
    ) -> None:
        self._listener = listener
        self._refusals = RateLimitedLog(logger, application.gate.monotonic)

        def note_closed() -> None:
            application.security.count_refused(TOO_MANY_CONNECTIONS)
            self._refusals.tell("closed", f"a connection was closed to make room for others; {REMEDY}")

        listener.limit(limits, note_closed, has_handshakes=certificate is not None)
        self.config = uvicorn.Config(
            application,
            http=PatientProtocol,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,  # ours writes no query
            proxy_headers=False,  # a header must not say from which address a request comes
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=REQUESTS_END_SECONDS_MAX,
            h11_max_incomplete_event_size=INCOMPLETE_REQUEST_BYTES_MAX,
            ssl_context_factory=None if certificate is None else lambda config, default: certificate,
        )
        self._server = LoopServer(self.config, listener, limits)
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve from now on."""
        self._serving = asyncio.get_running_loop().create_task(self._server.serve(sockets=[self._listener]))
        starting = asyncio.ensure_future(self._server.serves.wait())
        await asyncio.wait({self._serving, starting}, return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        if self._serving.done():
            await self._serving

    async def stop(self) -> None:
        """Take no new connection, let running requests end, close."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        self._listener.close()
        self._refusals.close()

    async def wait_until_ended(self) -> None:
        """Wait until it has ended by itself, which is a failure. Raises what ended it."""
        assert self._serving is not None
        await asyncio.shield(self._serving)
