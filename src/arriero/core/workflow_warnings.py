"""Warnings of calls in running workflow code that are not refused: what they return is not recorded.

A release that refused them would hold tasks that run well today. Only calls of the user's own code count: imports, time
zones, tracebacks and log handlers open files, too.
"""

import linecache
import sys
import warnings
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from ..system.source_files import is_foreign

_FILE = "the next run of the code may find other files: move the call into a step"
_THREAD = "its order is not recorded: move the call into a step, a plain (not async) one runs in a thread"
NOTICED: Mapping[str, str] = {  # events of the interpreter; those of threads are announced from Python 3.12 on
    **dict.fromkeys(
        ("open", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rename", "sqlite3.connect"), _FILE
    ),
    **dict.fromkeys(("_thread.start_new_thread", "_thread.start_joinable_thread"), _THREAD),
    **dict.fromkeys(("os.putenv", "os.unsetenv"), "it holds for this process alone: move the call into a step"),
}
# Modules of Python that call in the name of those who call them.
_BETWEEN = frozenset(
    ("pathlib", "os", "io", "codecs", "shutil", "tempfile", "glob", "threading", "concurrent", "sqlite3")
)
_ALLOWED = "arriero: allow"  # the comment of `arriero lint`
_warned: set[tuple[str, int]] = set()


def warn_of_event(event: str, details: Sequence[Any], frame: FrameType | None) -> None:
    """Warn once for each line of the user's code that causes an event.

    Args:
        details: of the event.
        frame: the innermost one below the event.
    """
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _BETWEEN:
        frame = frame.f_back
    if frame is None or is_foreign(path := frame.f_code.co_filename):
        return
    if event == "open" and _is_time_zone(details[0]):
        return
    line = frame.f_lineno
    if (path, line) in _warned:
        return
    _warned.add((path, line))
    if _ALLOWED not in linecache.getline(path, line):
        text = f"workflow code caused {event}: {NOTICED[event]}, or accept it with a comment `# {_ALLOWED} REASON`"
        warnings.warn_explicit(text, UserWarning, path, line)


def _is_time_zone(path: Any) -> bool:
    """Returns True for a file of a time zone: C code opens it, so no frame of Python's stands between."""
    zones = sys.modules.get("zoneinfo")
    return zones is not None and isinstance(path, str) and path.startswith(tuple(zones.TZPATH))
