"""A child process of the machine that runs one call of a step."""

import asyncio
import os
import signal
import sys
from contextlib import suppress

LINE_BYTES_MAX = 16 * 1024 * 1024  # a payload has a million bytes at most; its text may be escaped twice
REAP_SECONDS = 1.0  # a killed process has ended immediately, unless the kernel itself is stuck


class SystemChild:
    """See ``ports.ChildProcess``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls) -> "SystemChild":
        """Start one. The event loop's thread starts it: the kernel ends it with the thread that did. Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # the parent's path is below; a file of the current directory must not take the place of a module
            "-m",
            "arriero.runtime.child_main",
            str(os.getpid()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            start_new_session=True,  # so that what it starts itself is killed with it
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        return cls(process)

    async def send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(ConnectionError):  # it has died: what it does not answer says
            self._process.stdin.write(line)
            await self._process.stdin.drain()

    async def read_line(self) -> bytes:
        assert self._process.stdout is not None
        try:
            return await self._process.stdout.readline()
        except (ConnectionError, ValueError):
            return b""

    async def wait(self) -> int:
        return await self._process.wait()

    async def kill(self) -> None:
        if self._process.returncode is not None:  # its number may be another's by now
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(REAP_SECONDS):
                await self._process.wait()
