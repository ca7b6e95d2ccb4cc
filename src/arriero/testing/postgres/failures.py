"""Errors of the launcher: nothing to launch, or a program that did not do its work."""

from pathlib import Path

from ...errors import ArrieroError

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
