"""Restate: one virtual object per key, whose handler it runs one call at a time, with a no-op `ctx.run` in it.

Restate is a server with its own store, a log and RocksDB files in the turn's folder, on whatever store the others run.
Its settings of durability are its defaults (`rocksdb-disable-wal-fsync` is false: every commit of the log is synced). What
was tried, on two cores, with the fastest kept:

- Partitions: 2. The default of 24 has a log and commits of its own for each: two thirds as fast; 1, 4 and 8 were no faster.
- Log provider `local`, the one for a single node: somewhat faster than the default, `replicated`, with one replica; both
  sync.
- What serves the handlers: granian over HTTP/2, on uvloop. Uvicorn over HTTP/1.1 was two thirds, Hypercorn half as fast.
- Protocol: bidirectional streaming. `request_response` was three quarters as fast.
- `max-command-batch-size` of 256 instead of 32: within the noise.

The ways to send, both measured:

- ingress: a connection for each key to the HTTP ingress, `POST /Keyed/KEY/handle/send`, the next message when the one
  before it is accepted. 20 connections were no faster; an HTTP client library instead of bare sockets costs this process time.
- handler: one durable handler sends them all to the objects, as a service of Restate does it.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import restate
import uvloop
from common import (
    KEYS,
    PAYLOAD,
    WARM_UP_TASKS,
    Assignment,
    Ends,
    assignment,
    deliver,
    keyed,
    latency,
    numbers_of,
    throughput,
)
from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server

PARTITIONS = 2
LOG_PROVIDER = "local"
START_SECONDS_MAX = 60
END_SECONDS_MAX = 600
CALLERS = 100  # connections of w1, so tasks in flight
WARM_UP_KEYS = range(-WARM_UP_TASKS, 0)
HOST = "127.0.0.1"

ran: defaultdict[int, list[int]] = defaultdict(list)  # by key, the numbers of messages in the order their steps ran


ends = Ends()
keyed_object = restate.VirtualObject("Keyed")
plain = restate.Service("Plain")
sender = restate.Service("Sender")


@keyed_object.handler()
async def handle(context: restate.ObjectContext, number: int) -> None:
    key = int(context.key())

    def note() -> None:
        ran[key].append(number)

    await context.run_typed("note", note)
    ends.add()


@plain.handler()
async def three(context: restate.Context, payload: str) -> str:
    def echo() -> str:
        return payload

    await context.run_typed("first", echo)
    await context.run_typed("second", echo)
    return await context.run_typed("third", echo)


@sender.handler()
async def send_all(context: restate.Context, messages: int) -> None:
    for number in numbers_of(0, messages):  # key 0 has as many as any
        for key in range(KEYS):
            if number in numbers_of(key, messages):
                context.object_send(handle, key=str(key), arg=number)


def main() -> None:
    asked = assignment()
    ports = Ports()
    with running_server(asked.folder / "restate", ports) as program:
        figures = uvloop.run(measured(asked, ports))
        versions = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()
    settings = {"restate-server": versions[-1], "partitions": str(PARTITIONS), "log": LOG_PROVIDER, "store": "its own"}
    deliver(figures, settings | {"wal_fsync": "on"}, "restate-sdk")


class Ports:
    """Free ports of this machine, for what listens in one turn."""

    def __init__(self) -> None:
        with socket.socket() as ingress, socket.socket() as admin, socket.socket() as node, socket.socket() as handlers:
            held = (ingress, admin, node, handlers)
            for each in held:
                each.bind((HOST, 0))
            self.ingress, self.admin, self.node, self.handlers = (each.getsockname()[1] for each in held)


@contextmanager
def running_server(folder: Path, ports: Ports) -> Iterator[Path]:
    """A server with its files in ``folder``, which need not exist; the path of its program.

    Raises: SystemExit - its program is not there.
    """
    installed = Path(sys.prefix) / "node_modules" / "@restatedev"
    program = next(installed.glob("restate-server-*/bin/restate-server"), None)
    if program is None:
        raise SystemExit(f"npm installed no restate-server for this kind of machine in {installed}")
    settings = {
        "RESTATE_BIFROST__DEFAULT_PROVIDER": LOG_PROVIDER,
        "RESTATE_DEFAULT_NUM_PARTITIONS": str(PARTITIONS),
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_IP": HOST,
        "RESTATE_BIND_PORT": str(ports.node),
        "RESTATE_INGRESS__BIND_ADDRESS": f"{HOST}:{ports.ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"{HOST}:{ports.admin}",
        "RESTATE_LOG_FILTER": "warn",
    }
    command: list[str | Path] = [program, "--no-logo", "--base-dir", folder, "--node-name", "bench"]
    server = subprocess.Popen(command, env=os.environ | settings, stdout=sys.stderr)
    try:
        yield program
    finally:
        server.terminate()
        try:
            server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@asynccontextmanager
async def serving_handlers(ports: Ports) -> AsyncIterator[None]:
    """The handlers, known to the server."""
    app = restate.app([keyed_object, sender, plain])
    handlers = Server(
        app, address=HOST, port=ports.handlers, interface=Interfaces.ASGI, http=HTTPModes.http2, log_enabled=False
    )
    serving = asyncio.create_task(handlers.serve())
    await register(ports)
    try:
        yield
    finally:
        handlers.stop()
        await serving


async def measured(asked: Assignment, ports: Ports) -> dict[str, float]:
    async with serving_handlers(ports):
        return await WORKS[asked.work](asked, ports)


async def w1(asked: Assignment, ports: Ports) -> dict[str, float]:
    """Tasks over many connections, on each the next one when the one before it has ended."""
    await asyncio.gather(*(call(ports, 1) for _ in range(WARM_UP_TASKS)))
    started_at = time.perf_counter()
    shares = [len(range(first, asked.tasks, CALLERS)) for first in range(CALLERS)]
    await asyncio.gather(*(call(ports, share) for share in shares))
    return throughput(asked.tasks, started_at, time.perf_counter())


async def w2(asked: Assignment, ports: Ports) -> dict[str, float]:
    return latency((await call(ports, WARM_UP_TASKS + asked.tasks))[WARM_UP_TASKS:])


async def w5(asked: Assignment, ports: Ports) -> dict[str, float]:
    ends.expect(WARM_UP_TASKS)
    await asyncio.gather(*(send(ports, key, range(1)) for key in WARM_UP_KEYS))
    await asyncio.wait_for(ends.all_there.wait(), START_SECONDS_MAX)
    ends.expect(asked.tasks)
    started_at = time.perf_counter()
    if asked.way == "ingress":
        await asyncio.gather(*(send(ports, key, numbers_of(key, asked.tasks)) for key in range(KEYS)))
    else:
        await asyncio.to_thread(post, ports.ingress, "/Sender/send_all", asked.tasks)
    await asyncio.wait_for(ends.all_there.wait(), END_SECONDS_MAX)
    ended_at = time.perf_counter()
    return keyed(asked.tasks, started_at, ended_at, ran)


async def register(ports: Ports) -> None:
    """Tell the server where the handlers are, as soon as both of them answer. Raises SystemExit."""
    give_up_at = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            await asyncio.to_thread(post, ports.admin, "/deployments", {"uri": f"http://{HOST}:{ports.handlers}"})
            return
        except OSError as refused:  # an answer of an error is one of these too
            if time.monotonic() > give_up_at:
                raise SystemExit(f"the server did not take the handlers: {refused}") from refused
            await asyncio.sleep(0.1)


def post(port: int, path: str, body: Any) -> None:
    """Raises OSError - no answer, or that of an error."""
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"http://{HOST}:{port}{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=END_SECONDS_MAX):
        pass


async def send(ports: Ports, key: int, numbers: range) -> None:
    """Send the messages of one key to the ingress, each when the one before it is accepted. Raises SystemExit."""
    async with connected(ports) as post_one:
        for number in numbers:
            await post_one(f"/Keyed/{key}/handle/send", str(number))


async def call(ports: Ports, tasks: int) -> list[float]:
    """Call the handler of three steps over one connection, each time when the answer before is there; seconds of each."""
    seconds = []
    body = json.dumps(PAYLOAD)
    async with connected(ports) as post_one:
        for _ in range(tasks):
            started_at = time.perf_counter()
            await post_one("/Plain/three", body)
            seconds.append(time.perf_counter() - started_at)
    return seconds


@asynccontextmanager
async def connected(ports: Ports) -> AsyncIterator[Callable[[str, str], Awaitable[None]]]:
    """A function that posts JSON to the ingress over a connection of its own; it raises SystemExit at an error."""
    reader, writer = await asyncio.open_connection(HOST, ports.ingress)

    async def post_one(path: str, body: str) -> None:
        writer.write(
            f"POST {path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n{body}".encode()
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if head.split()[1] not in {"200", "202"}:
            raise SystemExit(f"the ingress answered {head}")
        await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))

    yield post_one
    writer.close()
    await writer.wait_closed()


Work = Callable[[Assignment, Ports], Awaitable[dict[str, float]]]
WORKS: dict[str, Work] = {"w1": w1, "w2": w2, "w5": w5}

if __name__ == "__main__":
    main()
