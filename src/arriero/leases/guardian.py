"""Stands between ``arriero lead`` and the program that it runs: ``python -m arriero.leases.guardian FD UNTIL MARGIN COMMAND ...``.

The program must stop when the lease can no longer be trusted, also if ``arriero lead`` was killed or is frozen by then. So
this process watches instead: it starts the program and reads lines from the pipe with the file descriptor FD.

- ``until SECONDS``: the lease may be trusted until then, on the machine's clock since boot; at first until UNTIL.
- ``stop SECONDS``: stop the program now; it has so long to end by itself.

When the trust ends, and when the pipe is closed, the program gets SIGTERM, and SIGKILL after MARGIN seconds. The margin is that
of the lease, so the program has ended when the lease lapses. Signals go to the whole process group, which is this process's.

This process may be killed, too, together with ``arriero lead`` (``pkill -9 -f arriero``). So on Linux the kernel kills the program
when this process dies. Processes that the program has started are not killed then, nor is a program with the setuid bit. Other
systems have no such signal: there a program outlives the two. If this process is frozen, ``arriero lead`` kills the group
when the lease lapses. If ``arriero lead`` dies meanwhile, Linux continues this process with SIGCONT, and it stops the program. While both
are frozen, nothing stops the program.
"""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

from ..system.boot_clock import seconds_since_boot
from .launcher import build_launch, explain_no_start, request_signal_at_parents_death

SIGNAL_EXIT = 128


class Guardian:
    """The program, and how long it may still run."""

    def __init__(self, commands: int, trusted_until: float, margin: float, program: "subprocess.Popen[bytes]") -> None:
        self._commands = commands
        self._margin = margin
        self._program = program
        self._trusted_until = trusted_until
        self._kill_at: float | None = None  # once the program was asked to stop
        self._unread = b""
        self._is_open = True

    def watch(self) -> int:
        """Wait for the program's end, and bring it about where it must be. Returns its exit code as shells have it."""
        ended, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        poll.register(self._commands, select.POLLIN)
        while self._program.poll() is None:
            now = seconds_since_boot()
            due = self._trusted_until if self._kill_at is None else self._kill_at
            if now >= due:
                self._take_next_measure(now)
                continue
            for descriptor, _ in poll.poll(1000 * (due - now)):
                if descriptor == ended:
                    os.read(ended, 512)
                elif not self._read_commands():
                    poll.unregister(self._commands)
        code = self._program.returncode
        return SIGNAL_EXIT - code if code < 0 else code

    def _take_next_measure(self, now: float) -> None:
        if self._kill_at is None:
            self._stop(now, self._margin)
        else:
            os.killpg(0, signal.SIGKILL)  # ends this process, too

    def _stop(self, now: float, seconds: float) -> None:
        kill_at = now + seconds
        if self._kill_at is None:
            os.killpg(0, signal.SIGTERM)
        self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)

    def _read_commands(self) -> bool:
        """Returns False once the pipe is closed."""
        read = os.read(self._commands, 4096)
        *lines, self._unread = (self._unread + read).split(b"\n")
        for line in lines:
            word, _, seconds = line.partition(b" ")
            if word == b"until":
                self._trusted_until = float(seconds)
            elif word == b"stop":
                self._stop(seconds_since_boot(), float(seconds))
        if not read:
            self._stop(seconds_since_boot(), self._margin)
        return bool(read)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Signals of the group are for the program. A handler, because an ignored signal would be ignored by the program, too."""


def main(arguments: Sequence[str]) -> int:
    """Start the program and watch it. Returns the exit code."""
    commands, trusted_until, margin, command = int(arguments[0]), *map(float, arguments[1:3]), arguments[3:]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, _do_nothing)
    request_signal_at_parents_death(signal.SIGCONT)
    if seconds_since_boot() >= trusted_until:
        return SIGNAL_EXIT + signal.SIGTERM  # it took too long to come here
    try:
        program = subprocess.Popen([*build_launch(os.getpid()), *command])
    except OSError as error:
        return explain_no_start(command[0], error)
    return Guardian(commands, trusted_until, margin, program).watch()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
