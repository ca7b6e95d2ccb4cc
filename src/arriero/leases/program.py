"""Runs a program while this process leads, as work of a mutex; see ``guardian`` for who stops it."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..core.lease import compute_margin
from ..errors import InvalidInput
from ..runtime.ports import LoopClock
from ..runtime.service_notifier import ServiceNotifier
from .mutex import Leadership

logger = logging.getLogger("arriero")
FROZEN_SECONDS = 0.05  # after which a guardian that has not killed its group counts as frozen
TELL_SECONDS_MAX = 1.0  # between two lines to the guardian; a renewal is known to it within this time


class Readiness:
    """Notifies its surroundings whether this process leads.

    Args:
        ready_file: exists while this process leads, with the term in it; None: there is none.
    """

    def __init__(self, ready_file: Path | None) -> None:
        self._file = ready_file
        self._notifier = ServiceNotifier(LoopClock())

    def tell_waiting(self, lease: str) -> None:
        """This process contends. To systemd that is ready: a standby has started."""
        self._remove_file()
        self._notifier.tell_ready(f"waits for the lease {lease}")

    def tell_leading(self, lease: str, term: int) -> None:
        """This process leads."""
        if self._file is not None:
            self._file.write_text(f"{term}\n")
        self._notifier.tell_ready(f"leads {lease} in term {term}")

    def tell_stopping(self) -> None:
        """This process is about to end."""
        self._remove_file()
        self._notifier.tell_stopping()

    async def feed_watchdog(self) -> None:
        """See ``ServiceNotifier.feed_watchdog``."""
        await self._notifier.feed_watchdog()

    def _remove_file(self) -> None:
        if self._file is not None:
            self._file.unlink(missing_ok=True)


class LedProgram:
    """A program that runs under a lease. An instance is the work of a mutex.

    Args:
        command: the program and its arguments.
        lease: name of the lease, for the program's environment.
        duration: of the lease in seconds.
        grace: seconds that the program has to end by itself when this process was asked to stop; the lease is kept
            meanwhile. When the lease is lost it has the margin of the lease.

    The program finds ``ARRIERO_LEASE``, ``ARRIERO_TERM`` and ``ARRIERO_HOLDER`` in its environment.
    """

    def __init__(self, command: Sequence[str], lease: str, duration: float, grace: float) -> None:
        if not command:
            raise InvalidInput("no program is named; write it behind two dashes, as in: arriero lead NAME -- COMMAND")
        self._command = tuple(command)
        self._lease = lease
        self._duration = duration
        self._grace = grace

    async def __call__(self, leadership: Leadership) -> int:
        """Run the program once. Returns its exit code as shells have it; 137 if it had to be killed."""
        commands, tell = os.pipe()
        try:
            try:
                guardian = await self._start(leadership, commands)
            finally:
                os.close(commands)
            try:
                return await self._watch(guardian, leadership, tell)
            finally:
                with suppress(ProcessLookupError):  # what the program has started itself, in its process group
                    os.killpg(guardian.pid, signal.SIGKILL)
        finally:
            os.close(tell)

    async def _start(self, leadership: Leadership, commands: int) -> asyncio.subprocess.Process:
        variables = {
            "ARRIERO_LEASE": self._lease,
            "ARRIERO_TERM": str(leadership.term),
            "ARRIERO_HOLDER": leadership.holder,
        }
        logger.info("lease %s, term %d: %s begins", self._lease, leadership.term, self._command[0])
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "arriero.leases.guardian"),
            *map(str, (commands, leadership.trusted_until, compute_margin(self._duration))),
            *self._command,
            env={**os.environ, **variables},
            pass_fds=(commands,),
            start_new_session=True,  # so that its group can be signalled, and a terminal's Ctrl-C comes here only
        )

    async def _watch(self, guardian: asyncio.subprocess.Process, leadership: Leadership, tell: int) -> int:
        ended = asyncio.get_running_loop().create_task(guardian.wait())
        try:
            while not ended.done():
                _write(tell, f"until {leadership.trusted_until}\n")
                await asyncio.wait((ended,), timeout=min(TELL_SECONDS_MAX, self._duration / 10))
        except asyncio.CancelledError:
            seconds = self._grace if leadership.is_held() else compute_margin(self._duration)
            _write(tell, f"stop {seconds}\n")
            kill_at = asyncio.get_running_loop().time() + seconds + FROZEN_SECONDS
            while not ended.done():  # its lease may be kept until it has ended
                _write(tell, f"until {leadership.trusted_until}\n")
                if (
                    asyncio.get_running_loop().time() >= kill_at
                ):  # the guardian would have killed itself by now: it is frozen
                    with suppress(ProcessLookupError):
                        os.killpg(guardian.pid, signal.SIGKILL)
                await asyncio.wait((ended,), timeout=min(TELL_SECONDS_MAX, self._duration / 10, seconds))
            logger.info("lease %s, term %d: %s was stopped", self._lease, leadership.term, self._command[0])
            raise
        code = ended.result()
        return 128 - code if code < 0 else code


def _write(pipe: int, line: str) -> None:
    with suppress(BrokenPipeError):  # the guardian has ended
        os.write(pipe, line.encode())
