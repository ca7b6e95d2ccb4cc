"""A relay between a client and a server, which may lose the answer to one request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class LossyRelay:
    """Forwards each connection to a server on loopback.

    Args:
        target: port of the server.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._marker = b""
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.lost = 0  # answers

    def lose_answer_to(self, marker: bytes) -> None:
        """Pass on the next request that holds the marker; when the server answers, cut the connection instead."""
        self._marker = marker

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with suppress(OSError, asyncio.CancelledError):
            upstream = await asyncio.open_connection("127.0.0.1", self._target)
            try:
                await self._relay((reader, writer), upstream)
            finally:
                upstream[1].close()
        writer.close()

    async def _relay(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        is_marked = False

        async def pass_requests() -> None:
            nonlocal is_marked
            while data := await client[0].read(65536):
                if self._marker and self._marker in data:
                    self._marker, is_marked = b"", True
                server[1].write(data)

        async def pass_answers() -> None:
            while data := await server[0].read(65536):
                if is_marked:
                    self.lost += 1
                    return
                client[1].write(data)

        directions = [asyncio.ensure_future(pass_requests()), asyncio.ensure_future(pass_answers())]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)


@asynccontextmanager
async def lossy_relay(target: int) -> AsyncIterator[LossyRelay]:
    """A relay for one block."""
    relay = LossyRelay(target)
    await relay.start()
    try:
        yield relay
    finally:
        await relay.stop()
