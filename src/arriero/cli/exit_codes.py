"""The exit codes of commands, and the one table that says with which of them an error ends a command."""

from enum import IntEnum

from ..errors import (
    AppCollision,
    ArrieroError,
    ConvoyRefused,
    IdempotencyKeyBarred,
    IdempotencyKeyReused,
    LeaseUnavailable,
    NotAllowed,
    OutcomeUnknown,
    StoreError,
    TaskExists,
    TooManyOpenTasks,
    UnknownName,
    UnknownTask,
    UnreadableRow,
    VerbRefused,
)


class ExitCode(IntEnum):
    """The exit codes of commands. ``MEANINGS`` says what each means."""

    DONE = 0
    NO = 1
    USAGE = 2
    REFUSED = 3
    NOT_FOUND = 4
    STORE = 5
    TIME_OVER = 75
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.DONE: "The command did what was asked.",
    ExitCode.NO: "The answer is no: a check found something, a person declined, some of many tasks were refused, or a task failed.",
    ExitCode.USAGE: "The options or values are wrong, a file cannot be read or written, or code or a package is missing.",
    ExitCode.REFUSED: "The rules of the store refuse it: a verb does not fit, another person must approve, another operation has the"
    " id, or a row cannot be read.",
    ExitCode.NOT_FOUND: "The task, ledger, convoy, schedule, lease, token or Agent does not exist.",
    ExitCode.STORE: "The store, or the provider of a lease, cannot be used: no file, no server, no rights, a lock, or another schema.",
    ExitCode.TIME_OVER: "The time of an option was over: `arriero ledger wait --timeout`, `arriero lead --wait`.",
    ExitCode.INTERRUPTED: "Ctrl-C ended it.",
}

_BY_ERROR: tuple[tuple[type[ArrieroError], ExitCode], ...] = (  # the first that fits
    (UnknownTask, ExitCode.NOT_FOUND),
    (UnknownName, ExitCode.NOT_FOUND),
    (NotAllowed, ExitCode.REFUSED),
    (VerbRefused, ExitCode.REFUSED),
    (TaskExists, ExitCode.REFUSED),
    (ConvoyRefused, ExitCode.REFUSED),
    (TooManyOpenTasks, ExitCode.REFUSED),
    (AppCollision, ExitCode.REFUSED),
    (IdempotencyKeyBarred, ExitCode.REFUSED),
    (IdempotencyKeyReused, ExitCode.REFUSED),
    (UnreadableRow, ExitCode.REFUSED),
    (StoreError, ExitCode.STORE),
    (OutcomeUnknown, ExitCode.STORE),
    (LeaseUnavailable, ExitCode.STORE),
    (ArrieroError, ExitCode.USAGE),
)


def find_exit_code(error: ArrieroError) -> ExitCode:
    """Find the exit code of a command that an error ended."""
    return next(code for kind, code in _BY_ERROR if isinstance(error, kind))
