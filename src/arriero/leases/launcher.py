"""Becomes the program of ``arriero lead``, so that it dies with its guardian: ``python -m arriero.leases.launcher PARENT COMMAND ...``.

On Linux the kernel sends SIGKILL to a process when the thread that started it ends, if the process asks for that. The guardian
has one thread. The request outlives exec, except for a program with the setuid bit; children of the program do not inherit it.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

NOT_FOUND, NOT_STARTED = 127, 126  # as shells have it
PR_SET_PDEATHSIG = 1  # see prctl(2)


def build_launch(parent: int) -> list[str]:
    """Build the words before a command that tie it to a process. Empty: this system has no such signal."""
    words = [
        sys.executable,
        "-P",
        "-m",
        "arriero.leases.launcher",
        str(parent),
    ]  # -P: no module of the current directory
    return words if sys.platform == "linux" else []


def request_signal_at_parents_death(number: signal.Signals) -> None:
    """Let the kernel send a signal to this process when the thread that started it ends. Only Linux does that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def explain_no_start(program: str, error: OSError) -> int:
    """Say that the program cannot be started. Returns the exit code."""
    sys.stderr.write(f"arriero lead: {program} cannot be started: {error}\n")
    return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_STARTED


def main(arguments: Sequence[str]) -> int:
    """Become the program. Returns the exit code if it cannot be started."""
    parent, command = int(arguments[0]), arguments[1:]
    request_signal_at_parents_death(signal.SIGKILL)
    if os.getppid() != parent:  # it died before
        return 128 + signal.SIGKILL
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        return explain_no_start(command[0], error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
