"""Programs of servers that tests start. They end with the process that started them, also if it is killed. Linux only."""

import ctypes
import re
import signal
import subprocess

SET_PARENT_DEATH_SIGNAL = 1  # prctl(2)
_libc = ctypes.CDLL(None)


def start_program(arguments: list[str], ready: str) -> tuple["subprocess.Popen[str]", str]:
    """Start a program and wait until it prints a line that ``ready`` matches. Returns it, and all that it has printed."""
    process = subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=_end_with_parent,  # noqa: PLW1509  # it makes one system call, and takes no lock
    )
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if re.search(ready, line):
            return process, printed
    process.communicate()
    raise AssertionError(f"{arguments[0]} ended before it was ready: {printed}")


def _end_with_parent() -> None:
    """The kernel counts the end of the thread that started the program, not that of the process."""
    _libc.prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
