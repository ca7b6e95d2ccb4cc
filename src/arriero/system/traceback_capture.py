"""Traces of exceptions: the lines of the user's code that one passed, in a form that may be kept and shown.

Kept are file, line, function and the line's text; never a value of a variable. Frames of arriero and of the standard
library are left out, those of other packages too, except the one that raised.
"""

import asyncio
import inspect
import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

from ..errors import StepError
from ..model.failures import CapturedError, CapturedTraceback, Frame
from ..payloads.codec import recordable_text

ERRORS_MAX = 5  # an exception and those behind it
FRAMES_MAX = 20  # of all of them together
FRAMES_OF_ONE_MAX = 10
OUTERMOST_KEPT = 3  # where there are more, the others kept are the innermost
FRAMES_READ_MAX = 100_000
MEMBERS_MAX = 3  # of an ExceptionGroup
FILE_LENGTH_MAX = 160
NAME_LENGTH_MAX = 80
SOURCE_LENGTH_MAX = 160
LINE_READ_MAX = 1_000

_ARRIERO = f"{Path(__file__).parents[1]}{os.sep}"
_EXAMPLES = f"{_ARRIERO}_examples{os.sep}"  # they run as a user's code does
_PACKAGES = re.compile(r".*[\\/](?:site|dist)-packages[\\/]", re.DOTALL)
_STANDARD = tuple({f"{sysconfig.get_paths()[name]}{os.sep}" for name in ("stdlib", "platstdlib")})
_HOME = re.compile(r"(?:[A-Za-z]:)?[\\/](?:home|Users)[\\/][^\\/]+|[\\/]root(?=[\\/])")
# Secrets that a caller wrote into the code: the user of a URL, and texts that may be one; see ``_mask_secrets``.
_URL_USER = re.compile(r"(?<=://)[^/\s@'\"]*:[^\s@'\"]*@")
_LITERAL = re.compile(r"""'(?:\\.|[^'\\])*'?|"(?:\\.|[^"\\])*"?""")
_NAMES_SECRET = r"(?:pass|pwd|secret|token|api_?key|private|credential|auth|bearer|dsn|signature|cookie)"
_GIVEN_TO_SECRET = re.compile(rf"(?:{_NAMES_SECRET}[\w'\"\]]*|\bkey\b)[^'\"]{{0,40}}$", re.IGNORECASE)
_HOLDS_SECRET = re.compile(rf"(?:{_NAMES_SECRET}\w*|\bkey)\s*[=:\s]\s*\S", re.IGNORECASE)
PLAIN_LENGTH_MAX = 5  # of a text with digits in it that is shown, such as 'v2'
_CALLBACK = asyncio.Handle._run.__code__  # the frame under all that an event loop runs
_Line = tuple[CodeType, int]


def capture_traceback(error: BaseException) -> CapturedTraceback:
    """Trace an exception and those behind it. Raises nothing but KeyboardInterrupt: a failure must not get lost.

    Returns: the exception itself first. At most ``ERRORS_MAX`` with ``FRAMES_MAX`` frames; empty when it cannot be looked at.
    """
    found: list[CapturedError] = []
    try:
        for link, relation in _iterate_chain(error):
            frames_left = FRAMES_MAX - sum(len(one.frames) for one in found)
            one = _build_traced_error(link, relation, min(frames_left, FRAMES_OF_ONE_MAX))
            if one.frames or not found:
                found.append(one)
            if len(found) == ERRORS_MAX or frames_left <= len(one.frames):
                break
    except BaseException as broken:  # of an exception class that cannot be looked at: what was found is kept
        if isinstance(broken, KeyboardInterrupt):
            raise
    return tuple(found)


def capture_stack(frame: FrameType | None, name: str) -> CapturedTraceback:
    """Trace the place where a thread is now; of an event loop, the callback that it runs. Raises nothing but KeyboardInterrupt.

    Args:
        frame: the innermost one of the thread.
        name: stands in the place of an exception's.
    """
    lines: list[_Line] = []
    try:
        while frame is not None and len(lines) < FRAMES_READ_MAX:
            lines.append((frame.f_code, frame.f_lineno or 0))
            frame = frame.f_back
        lines.reverse()
        begins = [at for at, (code, _) in enumerate(lines) if code is _CALLBACK]
        lines = lines[begins[-1] + 1 :] if begins else lines
        return (CapturedError(name, *_choose_lines(lines, FRAMES_OF_ONE_MAX)),)
    except Exception:  # the frame belongs to a thread that continues meanwhile
        return ()


def capture_awaits(coroutine: Any) -> CapturedTraceback:
    """Trace the place where a coroutine stands: the line of each await, the outermost first. Empty: no line of the user's."""
    lines: list[_Line] = []
    while coroutine is not None and len(lines) < FRAMES_READ_MAX:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            lines.append((frame.f_code, frame.f_lineno or 0))
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    frames, left_out = _choose_lines(lines, FRAMES_OF_ONE_MAX)
    return (CapturedError("await", frames, left_out),) if frames else ()


def capture_definition(function: Any) -> CapturedTraceback:
    """Trace the first line of a function; empty where it has no code of its own."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (
        () if code is None else (CapturedError("def", (_build_frame((code, code.co_firstlineno), 1, library=False),)),)
    )


def _iterate_chain(error: BaseException) -> Iterator[tuple[BaseException, str]]:
    """The exception and those behind it, each once."""
    waiting: list[tuple[BaseException, str]] = [(error, "raised")]
    seen: set[int] = set()
    while waiting:
        link, relation = waiting.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link, relation
        if isinstance(link, BaseExceptionGroup):
            waiting += [(member, "member") for member in link.exceptions[:MEMBERS_MAX]]
        if link.__cause__ is not None:
            waiting.append((link.__cause__, "cause"))
        elif link.__context__ is not None and not link.__suppress_context__:
            waiting.append((link.__context__, "context"))


def _build_traced_error(error: BaseException, relation: str, frames_max: int) -> CapturedError:
    frames, left_out = _choose_lines(_list_lines(error.__traceback__), frames_max)
    if isinstance(error, SyntaxError) and (place := _find_syntax_frame(error)) is not None:
        frames = (*frames[-frames_max + 1 :], place)
    name = _shorten(type(error).__name__, NAME_LENGTH_MAX)
    return CapturedError(name, frames, left_out, relation, isinstance(error, StepError | OSError))


def _list_lines(traceback: TracebackType | None) -> list[_Line]:
    lines: list[_Line] = []
    while traceback is not None and len(lines) < FRAMES_READ_MAX:
        lines.append((traceback.tb_frame.f_code, traceback.tb_lineno or 0))
        traceback = traceback.tb_next
    return lines


def _find_syntax_frame(error: SyntaxError) -> Frame | None:
    """The line of a file that cannot be compiled; None for compiled data, which must not be shown."""
    name, line = error.filename, error.lineno
    if not isinstance(name, str) or not isinstance(line, int) or not Path(name).is_file():
        return None
    return Frame(_format_path(name, _find_working_folder()), line, "", _read_source_line(name, line))


# --- which lines
def _choose_lines(lines: list[_Line], frames_max: int) -> tuple[tuple[Frame, ...], int]:
    """Choose the user's own lines, and the innermost line of another package if that raised. Returns the number left out, too."""
    outer = next((code.co_filename for code, _ in lines if not _is_ours_or_standard(code.co_filename)), "")
    package = _find_package(outer)
    own = [line for line in lines if _is_own(line[0].co_filename, package)]
    library = lines[-1:] if lines and _raises_for_the_user(lines[-1][0].co_filename, package) else []
    kept = _merge_equal_lines(own)
    room = frames_max - len(library)
    if len(kept) > room:
        kept = kept[: min(OUTERMOST_KEPT, room)] + kept[len(kept) - max(room - OUTERMOST_KEPT, 0) :]
    frames = [_build_frame(line, times, library=False) for line, times in kept]
    frames += [_build_frame(line, 1, library=True) for line in library]
    return tuple(frames), len(lines) - sum(frame.times for frame in frames)


def _merge_equal_lines(lines: list[_Line]) -> list[tuple[_Line, int]]:
    """Merge equal lines in a row into one with their number."""
    folded: list[tuple[_Line, int]] = []
    for line in lines:
        if folded and folded[-1][0] == line:
            folded[-1] = (line, folded[-1][1] + 1)
        else:
            folded.append((line, 1))
    return folded


def _is_ours_or_standard(filename: str) -> bool:
    if filename.startswith(_ARRIERO):
        return not filename.startswith(_EXAMPLES)
    return filename.startswith("<frozen ") or (filename.startswith(_STANDARD) and not _PACKAGES.match(filename))


def _is_own(filename: str, package: str) -> bool:
    """Returns True if a file is the user's: outside all packages, or in the package that arriero called first."""
    return not _is_ours_or_standard(filename) and _find_package(filename) in ("", package)


def _raises_for_the_user(filename: str, package: str) -> bool:
    return not filename.startswith(_ARRIERO) and not _is_own(filename, package)


def _find_package(filename: str) -> str:
    """The installed package that a file belongs to; empty for none."""
    found = _PACKAGES.match(filename)
    return "" if found is None else re.split(r"[\\/]", filename[found.end() :], maxsplit=1)[0]


# --- how they are shown
def _build_frame(line: _Line, times: int, *, library: bool) -> Frame:
    code, number = line
    name = code.co_qualname.rpartition("<locals>.")[2]
    path = _format_path(code.co_filename, _find_working_folder())
    return Frame(
        path, number, _shorten(name, NAME_LENGTH_MAX), _read_source_line(code.co_filename, number), times, library
    )


@lru_cache(1_024)
def _format_path(filename: str, folder: str) -> str:
    """The file as operators find it from the working folder; of one that lies elsewhere, as modules are imported.

    The name of a caller's home folder is never in it.
    """
    if filename.startswith("<"):
        return _shorten(filename, NAME_LENGTH_MAX)
    if (package := _PACKAGES.match(filename)) is not None:
        return _shorten(filename[package.end() :], FILE_LENGTH_MAX)
    absolute = str(Path(filename).absolute())
    roots = sorted(
        (str(Path(root).absolute()) for root in filter(None, (*_STANDARD, *sys.path))), key=len, reverse=True
    )
    root = next((root for root in (folder, *roots) if root and _may_show(root, absolute)), None)
    return _shorten(Path(absolute).name if root is None else absolute[len(root) :].lstrip(os.sep), FILE_LENGTH_MAX)


def _find_working_folder() -> str:
    """The working folder; empty when it no longer exists."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _may_show(root: str, absolute: str) -> bool:
    """Returns True if a path may be shown from that folder on."""
    return absolute.startswith(f"{root.rstrip(os.sep)}{os.sep}") and len(root) >= len(_find_home(absolute))


def _find_home(absolute: str) -> str:
    found = _HOME.match(absolute)
    return "" if found is None else found.group()


def _read_source_line(filename: str, number: int) -> str:
    """A line of a file without secrets; empty where it is not at hand."""
    try:
        text = linecache.getline(filename, number).strip()
    except Exception:  # whatever a loader of the user's raises
        return ""
    return _shorten(_mask_secrets(_URL_USER.sub("***@", text[:LINE_READ_MAX])), SOURCE_LENGTH_MAX)


def _mask_secrets(line: str) -> str:
    """The line with each text masked that may be a secret.

    Masked is a text that is longer than ``PLAIN_LENGTH_MAX`` and has a digit, as nearly every password and token has; one that
    stands behind a name like ``password``, ``auth`` or ``key=``; and one that holds such a name with a value. Words, codes and
    keys of a dictionary stay, so that the line can be recognised.
    """
    shown: list[str] = []
    end = 0
    for found in _LITERAL.finditer(line):
        before, text = line[end : found.start()], found.group()
        is_masked = (
            (len(text) - 2 > PLAIN_LENGTH_MAX and any(map(str.isdigit, text)))
            or _GIVEN_TO_SECRET.search(line[max(found.start() - NAME_LENGTH_MAX, 0) : found.start()]) is not None
            or _HOLDS_SECRET.search(text) is not None
        )
        shown += [before, "'***'" if is_masked else text]
        end = found.end()
    return "".join([*shown, line[end:]])


def _shorten(text: str, length: int) -> str:
    shown = recordable_text(text[: length + 1])
    return shown if len(shown) <= length else f"{shown[: length - 3]}..."
