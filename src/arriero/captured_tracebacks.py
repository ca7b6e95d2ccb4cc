"""Plain data: where in the code an exception was raised. Imports nothing of arriero."""

import msgspec


class Frame(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A line of code that an exception passed.

    ``file``: as people find it, never an absolute path. ``source``: empty where it is not at hand. ``times``: so often in
    a row, as in a recursion. ``library``: not the user's own code.
    """

    file: str
    line: int
    function: str
    source: str = ""
    times: int = 1
    library: bool = False


class CapturedError(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An exception with the lines that it passed, the outermost call first. No value of any variable is in it.

    ``error``: the name of its type. ``relation``: ``raised``; of those behind it ``cause`` (``raise ... from``),
    ``context`` (it was being handled) or ``member`` (of an ExceptionGroup). ``left_out``: frames that are not listed.
    ``expected``: a StepError, by which code says what is the matter, or an OSError (a TimeoutError, a ConnectionError), which
    tells of the world outside: no line of code has to be fixed for it.
    """

    error: str
    frames: tuple[Frame, ...] = ()
    left_out: int = 0
    relation: str = "raised"
    expected: bool = False


CapturedTraceback = tuple[
    CapturedError, ...
]  # the exception that was raised, then those behind it; empty: none is known
