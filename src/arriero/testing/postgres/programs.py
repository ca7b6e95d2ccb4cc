"""Programs that run under a keeper: without root's rights, and never longer than this process."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO, Literal

from ...errors import ArrieroError
from . import keeper

LINES_MAX = 20  # of a log in a message: a failed start says why in its last few


class NotInstalled(ArrieroError):
    """The machine lacks a program or a library; the message names the remedy."""


class ProgramFailed(ArrieroError):
    """A program did not start, did not answer or did not end as it should; its last lines are in the message.

    Args:
        what: what went wrong, with the program's name.
        log: all that the program wrote.
    """

    def __init__(self, what: str, log: str) -> None:
        last = "\n".join(f"  {line}" for line in log.strip().splitlines()[-LINES_MAX:])
        super().__init__(f"{what}; its last lines:\n{last}" if last else f"{what}; it wrote nothing")
        self.log = log


def text_of(log: Path) -> str:
    """Read a log; empty if there is none, also if its program removes it just now."""
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


Way = Literal["direct", "namespace", "nobody"]
"""User that a program runs as: this user; root's stand-in in a user namespace; the user ``nobody``."""


@cache
def usual_way() -> Way:
    """Find the usual way to start programs here: PostgreSQL and PgBouncer both refuse to run as root.

    Returns: "direct" for an ordinary user; for root "namespace", or "nobody" where namespaces are not to be had.
    """
    if os.geteuid() != 0:
        return "direct"
    return "namespace" if _kept(["true"], "namespace", subprocess.DEVNULL).wait() == 0 else "nobody"


def run(command: Sequence[str | Path], way: Way) -> str:
    """Run a program to its end.

    Returns: what it wrote, errors included.
    Raises: ProgramFailed - it ended with another code than 0.
    """
    process = _kept(command, way, subprocess.PIPE)
    told = process.communicate()[0].decode(errors="replace")
    if process.returncode != 0:
        raise ProgramFailed(f"{Path(command[0]).name} ended with {process.returncode}", told)
    return told


def _kept(
    command: Sequence[str | Path], way: Way, output: int | IO[bytes], folder: str = ""
) -> subprocess.Popen[bytes]:
    """A keeper with its program. In a separate session, so that Ctrl-C does not reach them before us."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", keeper.__file__, str(os.getpid()), way, folder, *map(str, command)],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        cwd="/",
        env=_environment(),
    )


def _environment() -> dict[str, str]:
    """Ours, less what would lead PostgreSQL's programs elsewhere, and without a language or zone of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


def keep_folder(folder: Path) -> None:
    """See to it that a folder is removed when this process has ended, whichever way."""
    # Nobody waits for this one: it ends after us. To forget it is intended, and Popen would warn of it.
    watcher = _kept([], "direct", subprocess.DEVNULL, str(folder))
    watcher.returncode = 0


class Program:
    """A running program, with all the processes that it starts.

    Args:
        command: program and arguments.
        way: with which rights.
        log: where its output is appended.
    """

    def __init__(self, command: Sequence[str | Path], way: Way, log: Path) -> None:
        # A log may hold statements, and these passwords: it is for its owner alone.
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
            self._keeper = _kept(command, way, output)

    @property
    def running(self) -> bool:
        """Returns True if any process of it still runs."""
        return self._keeper.poll() is None

    def owns(self, pid: int) -> bool:
        """Returns True if a process is the program itself (not one that it started)."""
        return keeper.parent_of(pid) == self._keeper.pid

    def processes(self) -> list[int]:
        """Everything of it that runs now; the program comes first."""
        return keeper.descendants(self._keeper.pid) if self.running else []

    def freeze(self) -> None:
        """Stop all its processes where they stand (SIGSTOP); what they start meanwhile is stopped too."""
        frozen: set[int] = set()
        while fresh := [pid for pid in self.processes() if pid not in frozen]:
            for pid in fresh:
                send(pid, signal.SIGSTOP)
            frozen.update(fresh)

    def thaw(self) -> None:
        """Let all its processes continue (SIGCONT)."""
        for pid in self.processes():
            send(pid, signal.SIGCONT)

    def kill(self) -> None:
        """End all its processes as if the machine had died: none sees another die. Returns when they no longer exist."""
        self.freeze()
        while self.running:
            for pid in self.processes():
                send(pid, signal.SIGKILL)
            self.wait(0.05)

    def wait(self, seconds_max: float) -> bool:
        """Wait until nothing of it runs. Returns: whether it came to that in time."""
        try:
            self._keeper.wait(seconds_max)
        except subprocess.TimeoutExpired:
            return False
        return True


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that has ended needs none."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
