"""Servers of lease providers for tests: processes of ours on free ports, with their files in a separate folder."""

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from arriero.testing.postgres.binaries import free_port

STARTS_MAX = 5  # another process may take the free port before the server does
READY_SECONDS_MAX = 60.0  # a hint that the server hangs, not a measure


class ServerProcess:
    """A server that a test may kill, freeze and start again, on the same port with the same files.

    Args:
        command: gives the command line for a port and a folder.
        is_ready: returns True once the server on that port answers.
    """

    def __init__(self, command: Callable[[int, Path], Sequence[str]], is_ready: Callable[[int], bool]) -> None:
        self._command = command
        self._is_ready = is_ready
        self._folder = Path(tempfile.mkdtemp(prefix="arriero-lease-server-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        atexit.register(self.remove)
        for _ in range(STARTS_MAX):
            self.port = free_port()
            if self.start():
                return
        raise AssertionError(f"the server does not start: {self.read_log()}")

    def start(self) -> bool:
        """Start it, also again after a kill, and wait until it answers. Returns False if it ended instead."""
        assert threading.current_thread() is threading.main_thread()
        with (self._folder / "log").open("ab") as log:
            # The kernel ends the server if the thread that starts it dies: it must be the main one.
            command = ["setpriv", "--pdeathsig", "KILL", *self._command(self.port, self._folder)]
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={"PATH": os.environ["PATH"]}
            )
        ends_at = time.monotonic() + READY_SECONDS_MAX
        while self._process.poll() is None and time.monotonic() < ends_at:
            if self._is_ready(self.port):
                return True
            time.sleep(0.02)
        return False

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def freeze(self) -> None:
        """Stop it with SIGSTOP: its port takes connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it continue."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        """End it, and remove its files."""
        with suppress(ProcessLookupError):
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def read_log(self) -> str:
        """The end of what it wrote."""
        return (self._folder / "log").read_text(errors="replace")[-2000:]
