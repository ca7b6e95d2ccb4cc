"""Rate-limited log: the first lines of a kind are written, then one line with the number of the rest.

``Repeats`` is the rule: a value without clock and logger. ``RateLimitedLog`` writes what it says.
"""

import logging
import threading
from collections.abc import Callable, Hashable

import msgspec

WINDOW_SECONDS = 30.0
LINES_MAX = 5  # of one kind in a window; then they are counted
KINDS_MAX = 1_000  # that are remembered


class _Window(msgspec.Struct):
    """The counts of one kind since ``began_at``: lines that were written, and lines that were left out."""

    began_at: float
    written: int = 0
    left_out: int = 0
    last: str = ""  # of those left out


class Repeats:
    """Decides which lines are written. Instants are seconds on any clock that only grows."""

    def __init__(self) -> None:
        self._windows: dict[Hashable, _Window] = {}
        self._due_at = float("inf")

    def offer(self, kind: Hashable, line: str, now: float) -> list[str]:
        """Returns the lines to write for a new line: the line, nothing, or a summary and the line."""
        lines = self.due(now)
        window = self._windows.get(kind)
        if window is None:
            lines += self._make_room()
            window = self._windows[kind] = _Window(now)
            self._due_at = min(self._due_at, now + WINDOW_SECONDS)
        if window.written < LINES_MAX:
            window.written += 1
            return [*lines, line]
        window.left_out += 1
        window.last = line
        return lines

    def due(self, now: float) -> list[str]:
        """A line for each kind of which lines were left out, once its window is over.

        While more than ``LINES_MAX`` of a kind come in each window, that line is all that is written of it.
        """
        if now < self._due_at:
            return []
        lines: list[str] = []
        for kind, window in list(self._windows.items()):
            if now < window.began_at + WINDOW_SECONDS:
                continue
            del self._windows[kind]
            if window.left_out:
                lines.append(_summary(window))
                self._windows[kind] = _Window(now, LINES_MAX if window.left_out >= LINES_MAX else 1)
        self._due_at = (
            min((window.began_at for window in self._windows.values()), default=float("inf")) + WINDOW_SECONDS
        )
        return lines

    def rest(self) -> list[str]:
        """A line for each kind of which lines were left out, whether its window is over or not; then nothing is known."""
        lines = [_summary(window) for window in self._windows.values() if window.left_out]
        self._windows.clear()
        self._due_at = float("inf")
        return lines

    def _make_room(self) -> list[str]:
        if len(self._windows) < KINDS_MAX:
            return []
        oldest = self._windows.pop(next(iter(self._windows)))
        return [_summary(oldest)] if oldest.left_out else []


def _summary(window: _Window) -> str:
    more = window.left_out - 1  # the last one is written here
    return f"{window.last}; and {more:,} more like it in the last {WINDOW_SECONDS:.0f} s" if more else window.last


class RateLimitedLog:
    """Lines by kind, from any thread. ``monotonic``: seconds; ``level``: of the lines."""

    def __init__(self, logger: logging.Logger, monotonic: Callable[[], float], level: int = logging.WARNING) -> None:
        self._logger = logger
        self._level = level
        self._monotonic = monotonic
        self._repeats = Repeats()
        self._lock = threading.Lock()

    def tell(self, kind: Hashable, line: str) -> None:
        """Write a line, unless enough of its kind were written just now."""
        with self._lock:
            lines = self._repeats.offer(kind, line, self._monotonic())
        self._write(lines)

    def flush(self) -> None:
        """Write what is due; to be called again and again. Cheap when nothing is."""
        with self._lock:
            lines = self._repeats.due(self._monotonic())
        self._write(lines)

    def close(self) -> None:
        """Write what was left out so far."""
        with self._lock:
            lines = self._repeats.rest()
        self._write(lines)

    def _write(self, lines: list[str]) -> None:
        for line in lines:
            self._logger.log(self._level, "%s", line)
