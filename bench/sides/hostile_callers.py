"""Hostile callers of `hostile.py`: many connections of each kind, opened again a second after they were closed.

python hostile_callers.py PORT TLS_PORT CONNECTIONS KIND...

The token comes on standard input. It runs until it is killed, at low priority: on a machine of few cores it must not take from the
server what is measured.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

REOPEN_SECONDS = 1.0
DRIP_SECONDS = 1.0
NICENESS = 15
HEADERS = "Host: localhost\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Attack = Callable[[asyncio.StreamReader, asyncio.StreamWriter, str], Awaitable[None]]


async def send_slow_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
    """Send a byte of the headers in each second."""
    await drip(writer, f"GET /v1/tasks HTTP/1.1\r\n{HEADERS}X-Long: ")


async def send_slow_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
    """Send a byte of the body in each second, with a token: without one the answer comes before the body."""
    media = "Content-Type: application/json\r\nContent-Length: 100000\r\n"
    await drip(writer, f"POST /v1/tasks HTTP/1.1\r\n{HEADERS}Authorization: Bearer {token}\r\n{media}\r\n")


async def drip(writer: asyncio.StreamWriter, start: str) -> None:
    writer.write(start.encode())
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(DRIP_SECONDS)


async def send_tiny_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
    """Send chunks of one byte as fast as they are taken."""
    writer.write(f"POST /x HTTP/1.1\r\n{HEADERS}Transfer-Encoding: chunked\r\n\r\n".encode())
    chunks = b"1\r\nx\r\n" * 40_000
    while True:
        writer.write(chunks)
        await writer.drain()


async def read_never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
    """Send thousands of requests, and read none of the answers."""
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    requests = f"GET /v1/health/live HTTP/1.1\r\n{HEADERS}\r\n".encode() * 1_000
    while True:
        writer.write(requests)
        await writer.drain()


async def begin_no_handshake(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
    """Send nothing where a handshake of TLS is awaited."""
    await reader.read()


async def poll_long(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
    """Wait for the end of a task that does not end."""
    target = "/v1/tasks/asleep/result?wait=60"
    while True:
        writer.write(f"GET {target} HTTP/1.1\r\n{HEADERS}Authorization: Bearer {token}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        if b" 429 " in head.splitlines()[0]:
            await asyncio.sleep(1)


KINDS: dict[str, Attack] = {
    "slow-header": send_slow_headers,
    "slow-body": send_slow_body,
    "tiny-chunks": send_tiny_chunks,
    "never-reading": read_never,
    "idle-tls": begin_no_handshake,
    "long-polls": poll_long,
}


async def attack_on_and_on(kind: str, ports: tuple[int, int], token: str) -> None:
    """Attack on one connection after the other."""
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", ports[kind == "idle-tls"])
            try:
                await KINDS[kind](reader, writer, token)
            finally:
                writer.close()
        await asyncio.sleep(REOPEN_SECONDS)


async def main(ports: tuple[int, int], connections: int, kinds: list[str], token: str) -> None:
    """Attack until the process is killed."""
    await asyncio.gather(*(attack_on_and_on(kind, ports, token) for kind in kinds for _ in range(connections)))


if __name__ == "__main__":
    os.nice(NICENESS)
    plain, tls, number, *named = sys.argv[1:]
    asyncio.run(main((int(plain), int(tls)), int(number), named, sys.stdin.readline().strip()))
