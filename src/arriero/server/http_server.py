"""uvicorn in the event loop of the App: it handles no signals, adds no header of its own, and waits for nobody without end."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .application import ApiServer

HEADER_SECONDS_MAX = (
    15.0  # until the headers of a request have arrived: connections that send nothing are a cheap attack
)
HEADER_BYTES_MAX = 32 * 1024
KEEP_ALIVE_SECONDS = 30
REQUESTS_END_SECONDS_MAX = 20  # for requests under way when the server ends


class PatientProtocol(H11Protocol):
    """Closes a connection whose next request does not come in time. uvicorn waits for ever once a first byte has come."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._watch_header()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_header()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def _watch_header(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:  # a request is under way
            self._stop_watching()
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_SECONDS_MAX, self._give_up)

    def _stop_watching(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _give_up(self) -> None:
        self._header_timer = None
        if (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing():
            self.transport.close()


class LoopServer(uvicorn.Server):
    """A server that leaves signals to the program around it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serves = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.serves.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Serves an application on a socket that listens already."""

    def __init__(
        self, application: ApiServer, listener: socket.socket, certificate: ssl.SSLContext | None, connections_max: int
    ) -> None:
        self._listener = listener
        self._server = LoopServer(
            uvicorn.Config(
                application,
                http=PatientProtocol,
                ws="none",
                lifespan="off",
                loop="none",
                log_config=None,
                access_log=False,  # ours writes no query
                proxy_headers=False,  # a header must not say from which address a request comes
                server_header=False,
                limit_concurrency=connections_max,
                backlog=512,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=REQUESTS_END_SECONDS_MAX,
                h11_max_incomplete_event_size=HEADER_BYTES_MAX,
                ssl_context_factory=None if certificate is None else lambda config, default: certificate,
            )
        )
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
        """Take no new connection, let requests under way end, close."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        self._listener.close()

    async def wait_until_ended(self) -> None:
        """Wait until it has ended by itself, which is a failure. Raises what ended it."""
        assert self._serving is not None
        await asyncio.shield(self._serving)
