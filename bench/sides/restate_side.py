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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import restate
import uvloop
from common import KEYS, WARM_UP_TASKS, Assignment, assignment, deliver, keyed, numbers_of
from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server

PARTITIONS = 2
LOG_PROVIDER = "local"
START_SECONDS_MAX = 60
END_SECONDS_MAX = 600
WARM_UP_KEYS = range(-WARM_UP_TASKS, 0)
HOST = "127.0.0.1"

ran: defaultdict[int, list[int]] = defaultdict(list)  # by key, the numbers of messages in the order their steps ran


class Ends:
    """Counts the messages that ended; ``all_there`` is set at the awaited number of them."""

    def __init__(self) -> None:
        self.count = 0
        self.awaited = 0
        self.all_there = asyncio.Event()

    def expect(self, messages: int) -> None:
        self.count, self.awaited = 0, messages
        self.all_there.clear()

    def add(self) -> None:
        self.count += 1
        if self.count == self.awaited:
            self.all_there.set()


ends = Ends()
keyed_object = restate.VirtualObject("Keyed")
sender = restate.Service("Sender")


@keyed_object.handler()
async def handle(context: restate.ObjectContext, number: int) -> None:
    key = int(context.key())

    def note() -> None:
        ran[key].append(number)

    await context.run_typed("note", note)
    ends.add()


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
        figures = uvloop.run(w5(asked, ports))
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


async def w5(asked: Assignment, ports: Ports) -> dict[str, float]:
    app = restate.app([keyed_object, sender])
    handlers = Server(
        app, address=HOST, port=ports.handlers, interface=Interfaces.ASGI, http=HTTPModes.http2, log_enabled=False
    )
    serving = asyncio.create_task(handlers.serve())
    await register(ports)
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
    handlers.stop()
    await serving
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
    reader, writer = await asyncio.open_connection(HOST, ports.ingress)
    for number in numbers:
        body = str(number)
        writer.write(
            f"POST /Keyed/{key}/handle/send HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n{body}".encode()
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if head.split()[1] not in {"200", "202"}:
            raise SystemExit(f"the ingress answered {head}")
        await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))
    writer.close()
    await writer.wait_closed()


if __name__ == "__main__":
    main()
