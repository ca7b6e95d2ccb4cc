"""The program of an Agent whose requests arriero sends, and an App that has such an Agent."""

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from runtime_world import Machine, within

from arriero import App, Attempt, Permanent, Retry, StepFailed, Supervision, Undo, workflow
from arriero.http import HttpAgent

KEY = b"k" * 24
SECRET = "whsec_" + base64.b64encode(KEY).decode()
Answer = tuple[int, dict[str, str], Any] | bytes


class Program:
    """The program of an Agent.

    ``model.answers``: what it says, one after the other; the last one for all that follow. Bytes are sent as they are, and then the
    connection is closed. ``meanwhile``: what it does with each request before it answers.
    """

    def __init__(self) -> None:
        self.answers: list[Answer] = [(200, {}, {"number": "B-1"})]
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.meanwhile: Callable[[dict[str, Any]], Awaitable[None]] | None = None
        self.url, self.port = "", 0
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {
                    name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)
                }
                self.requests.append((headers, await reader.readexactly(int(headers["content-length"]))))
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if self.meanwhile is not None:
                    await self.meanwhile(self.read())
                if isinstance(answer, bytes):
                    writer.write(answer)
                    await writer.drain()
                    return
                status, more, body = answer
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                lines = [
                    f"HTTP/1.1 {status} X",
                    *(f"{k}: {v}" for k, v in more.items()),
                    f"Content-Length: {len(data)}",
                ]
                writer.write("\r\n".join([*lines, "", ""]).encode() + data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def read(self, number: int = -1) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.requests[number][1])
        return found


@asynccontextmanager
async def program(
    host: str = "127.0.0.1", port: int = 0, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Program]:
    found = Program()
    server = await asyncio.start_server(found.serve, host, port, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    found.url = f"http{'' if tls is None else 's'}://{host}:{found.port}/hooks?of=shop"
    try:
        yield found
    finally:
        server.close()


TWO_TRIES = Retry(tries=2, delay=0.01)


def shipping_app(
    machine: Machine, url: str, *, allow_private: bool = True, retry: Retry = TWO_TRIES, **options: Any
) -> App:
    shipping = HttpAgent("shipping", url=url, secret=SECRET, allow_private=allow_private, **options)

    @shipping.step(complete_within=15, retry=retry, supervision=Supervision(attempts=2))
    def book(attempt: Attempt, parcel: str) -> dict[str, str]: ...  # type: ignore[empty-body]

    @book.compensation(complete_within=15)
    def cancel(undo: Undo[dict[str, str]], parcel: str) -> None: ...

    @workflow
    async def ship(parcel: str) -> str:
        try:
            return (await book(parcel))["number"]
        except StepFailed as failed:
            return f"{failed.cause} {failed.code}"

    @shipping.step(complete_within=15, retry=retry, supervision=Supervision(attempts=1), effect_free=True)
    def weigh(attempt: Attempt, parcel: str) -> Any: ...

    @workflow
    async def ship_anything(parcel: str) -> str:
        try:
            await weigh(parcel)
        except StepFailed as failed:
            return f"{failed.cause} {failed.code}"
        return "done"

    @workflow
    async def ship_and_fail(parcel: str) -> None:
        await book(parcel)
        raise Permanent("no")

    @workflow
    async def ship_or_fail(parcel: str) -> None:
        await book(parcel)

    return machine.app([shipping], [ship, ship_anything, ship_and_fail, ship_or_fail])


async def shipped(app: App, name: str = "ship") -> Any:
    flow = next(flow for flow in app.workflows if flow.name == name)
    return await within((await app.submit(flow("P-1"))).result())


def verify(headers: dict[str, str], body: bytes) -> bool:
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = "v1," + base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    return hmac.compare_digest(wanted, headers["webhook-signature"])
