"""A server on a real socket, with a route that acts until it is let go."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.responses import Response

from arriero import App
from arriero.server.application import ApiServer, build_application
from arriero.server.authentication import TokenAuthenticator
from arriero.server.calls import Call
from arriero.server.connection_limits import ConnectionLimits
from arriero.server.http_server import HttpServer
from arriero.server.routing import RouteGroup, add_operations
from arriero.server.scopes import Needs
from arriero.server.sockets import ListenOptions, open_socket, plan_listening

LARGE_BYTES = 8 * 1024 * 1024
LIVE = b"GET /v1/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Place:
    """A server with a route that acts until it is let go, and connections to it."""

    def __init__(
        self, app: App, connections_max: int, accepted_max: int, certificate: ssl.SSLContext | None = None
    ) -> None:
        self.begun, self.let_go = asyncio.Event(), asyncio.Event()
        self.bodies: list[bytes] = []
        group = RouteGroup("act")

        @group.operation("POST", "/v1/act", Needs(public="a test"), summary="Acts, and takes its time.")
        async def act(call: Call) -> None:
            self.begun.set()
            await self.let_go.wait()

        @group.operation(
            "POST", "/v1/read", Needs(public="a test"), summary="Reads its body.", body=bytes, body_media="text/plain"
        )
        async def read(call: Call) -> None:
            self.bodies.append(call.body)

        @group.operation("GET", "/v1/large", Needs(public="a test"), summary="Answers with megabytes.")
        async def show_large(call: Call) -> Response:
            return Response(b"x" * LARGE_BYTES)

        self.application: ApiServer = build_application(app, TokenAuthenticator(app.session))
        add_operations(self.application, self.application.gate, group)
        self.problems = app.session.http_problems
        self.listener = open_socket(plan_listening(ListenOptions()))
        self.server = HttpServer(
            self.application, self.listener, certificate, ConnectionLimits(connections_max, accepted_max)
        )

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.listener.getsockname())


@asynccontextmanager
async def served(
    connections_max: int = 100, accepted_max: int = 120, certificate: ssl.SSLContext | None = None
) -> AsyncIterator[Place]:
    async with App("shop", store="memory://") as app:
        place = Place(app, connections_max, accepted_max, certificate)
        await place.server.start()
        try:
            yield place
        finally:
            place.let_go.set()
            await place.server.stop()


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return head + await reader.readexactly(length)


def read_problem(answer: bytes) -> tuple[bytes, dict[str, object]]:
    """The head of an answer, in lower case, and the problem document in it."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.lower()
    found: dict[str, object] = json.loads(body)
    return head.lower(), found
