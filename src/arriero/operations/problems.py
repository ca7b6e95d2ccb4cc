"""Maps errors to problem documents (RFC 9457), for HTTP and for ``--json``, and to the exit codes of commands.

``ERRORS`` is the only table of this. Over HTTP, an error whose problem has the status 500 is logged and answered as internal.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec

from ..client.tokens import UnknownToken
from ..errors import (
    AppCollision,
    ApprovalNeeded,
    ArrieroError,
    CallbackRefused,
    ConvoyRefused,
    DefinitionError,
    IdempotencyKeyBarred,
    IdempotencyKeyReused,
    InvalidArguments,
    InvalidInput,
    LeaseAccessDenied,
    LeaseUnavailable,
    NotAllowed,
    OutcomeUnknown,
    RequestRefused,
    SequenceUsed,
    SignalRefused,
    StoreError,
    TaskExists,
    TooManyOpenTasks,
    UnknownDefinition,
    UnknownName,
    UnknownTask,
    UnreadableRow,
    VerbRefused,
    WorkflowPaused,
)

TYPE_PREFIX = "urn:arriero:problem:"


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
    ExitCode.NO: "The answer is no: a check found something, an operator declined, some of many tasks were refused, or a task failed.",
    ExitCode.USAGE: "The options or values are wrong, a file cannot be read or written, or code or a package is missing.",
    ExitCode.REFUSED: "The rules of the store refuse it: a verb or a signal does not fit, the code of a task refuses a request,"
    " another person must approve, another operation has the id, or a row cannot be read.",
    ExitCode.NOT_FOUND: "The task, ledger, convoy, schedule, lease, token or Agent does not exist.",
    ExitCode.STORE: "The store, or the provider of a lease, cannot be used: no file, no server, no rights, a lock, or another schema.",
    ExitCode.TIME_OVER: "The time of an option was over: `arriero ledger wait --timeout`, `arriero task request --timeout`,"
    " `arriero lead --wait`.",
    ExitCode.INTERRUPTED: "Ctrl-C ended it.",
}


class ProblemType(msgspec.Struct, frozen=True):
    """One kind of refusal.

    Args:
        code: stable; programs branch on it. The document's ``type`` is ``urn:arriero:problem:CODE``.
        status: of HTTP.
        title: the same in each document of this type.
        remedy: what the caller can do; for the reference.
    """

    code: str
    status: int
    title: str
    remedy: str

    @property
    def uri(self) -> str:
        """The document's ``type``."""
        return TYPE_PREFIX + self.code

    def build_document(self, detail: str, members: Mapping[str, Any]) -> dict[str, Any]:
        """Build the document of one refusal. ``members``: further ones."""
        return {
            "type": self.uri,
            "title": self.title,
            "status": self.status,
            "detail": detail,
            "code": self.code,
            **members,
        }


class ProblemDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """A refusal, as its document says it (RFC 9457).

    Args:
        type: ``urn:arriero:problem:`` and the code.
        title: the same in each document of this type.
        detail: for operators: what was refused, and why.
        code: for programs; stable.
        state, allowed: of a verb that was refused: the task's state, and the verbs that it allows.
        because: of a signal or callback that was refused: why, for programs; see ``SignalRefused``, ``CallbackRefused``.
        scope: that the token lacks. limit: bytes that a body may have. incident: names the failure in the server's log.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    state: str = ""
    allowed: tuple[str, ...] = ()
    scope: str = ""
    limit: int | None = None
    incident: str = ""
    because: str = ""


PROBLEM_TYPES: dict[str, ProblemType] = {}


def declare_problem(code: str, status: int, title: str, remedy: str) -> ProblemType:
    """Declare a kind of refusal; it is listed in the reference. A code is declared once."""
    if code in PROBLEM_TYPES:
        raise ValueError(f"problem {code} is declared twice")
    kind = PROBLEM_TYPES[code] = ProblemType(code, status, title, remedy)
    return kind


INVALID_REQUEST = declare_problem(
    "invalid-request",
    422,
    "The request cannot be accepted",
    "Correct what `detail` names. Nothing was changed.",
)
TASK_UNKNOWN = declare_problem("task-unknown", 404, "No such task", "Look at the id, and at the store of the server.")
TASK_EXISTS = declare_problem(
    "task-exists",
    409,
    "Another operation is known under this id",
    "Use another id for another operation; the same operation must be sent with the same workflow, arguments and convoy.",
)
SEQUENCE_USED = declare_problem(
    "sequence-used",
    409,
    "Another operation has this number in the convoy",
    "Number each operation of a producer once; the same operation must be sent with the same arguments.",
)
CONVOY_REFUSES = declare_problem(
    "convoy-refuses",
    409,
    "The convoy takes no such task",
    "The convoy has ended, or is ordered otherwise; `detail` says which. Use another key, or number its tasks as before.",
)
TOO_MANY_OPEN_TASKS = declare_problem(
    "too-many-open-tasks",
    429,
    "As many tasks of the token are open as it may have",
    "Send the request again after `Retry-After` seconds, when tasks have ended; or use a token with a higher `open_tasks_max`.",
)
WORKFLOW_PAUSED = declare_problem(
    "workflow-paused",
    409,
    "The workflow takes no new tasks",
    "An operator has paused it; `detail` says who, since when and why. Send the request again once it is resumed.",
)
UNKNOWN_WORKFLOW = declare_problem(
    "unknown-workflow",
    422,
    "The App has no such workflow or step",
    "Use one of the names in `detail`, or ask a server of the App that has it.",
)
INVALID_ARGUMENTS = declare_problem(
    "invalid-arguments",
    422,
    "The arguments do not fit",
    "Correct what `detail` names; the types are those that the workflow or step declares.",
)
UNKNOWN_NAME = declare_problem(
    "unknown-name",
    404,
    "The store has nothing of this name",
    "List the resource to see the names that exist.",
)
TOKEN_UNKNOWN = declare_problem("token-unknown", 404, "No such token", "Look at the id; `GET /v1/tokens` lists all.")
VERB_REFUSED = declare_problem(
    "verb-refused",
    409,
    "The verb does not fit the task as it stands",
    "Read the task again; `allowed` lists the verbs that fit. Nothing was changed.",
)
APPROVAL_NEEDED = declare_problem(
    "approval-needed",
    409,
    "Another person must ask for the same",
    "Let another person send the same with a token of their own. The approval is kept, nothing else was changed.",
)
SIGNAL_REFUSED = declare_problem(
    "signal-refused",
    409,
    "The task does not take the signal",
    "Read `because`: `inbox_full` passes when the task has taken others; `another_value` asks for another `signal_id`; the others stay."
    " Nothing was changed.",
)
REQUEST_REFUSED = declare_problem(
    "request-refused",
    409,
    "The code of the task refuses the request",
    "Read `detail`. The same `request_id` gets the same answer; another request needs another one.",
)
CALLBACK_CLOSED = declare_problem(
    "callback-closed",
    410,
    "The callback takes no value any longer",
    "Read `because`: its time is over (`late`), or its task has ended, is undone, began again or waits for it no longer.",
)
UNREADABLE = declare_problem(
    "unreadable-row",
    409,
    "A row cannot be read by this release",
    "Use the release that wrote it, or correct the column that `detail` names.",
)
OUTCOME_UNKNOWN = declare_problem(
    "outcome-unknown",
    503,
    "The answer of the store was lost",
    "Send the same request with the same Idempotency-Key again: the same task answers.",
)
STORE_UNAVAILABLE = declare_problem(
    "store-unavailable", 503, "The store does not answer", "Send the request again after `Retry-After` seconds."
)
DEFINITION_INVALID = declare_problem(
    "definition-invalid", 500, "The code declares something that cannot be", "Correct the code that `detail` names."
)
FAILED = declare_problem("failed", 500, "The command failed", "Read `detail`: an error of the code ended the command.")


class ErrorMeaning(NamedTuple):
    """The problem and the exit code of an error and its subclasses."""

    error: type[ArrieroError]
    problem: ProblemType
    exit_code: ExitCode


ERRORS = (  # the first that fits
    ErrorMeaning(UnknownTask, TASK_UNKNOWN, ExitCode.NOT_FOUND),
    ErrorMeaning(SequenceUsed, SEQUENCE_USED, ExitCode.REFUSED),
    ErrorMeaning(TaskExists, TASK_EXISTS, ExitCode.REFUSED),
    ErrorMeaning(ConvoyRefused, CONVOY_REFUSES, ExitCode.REFUSED),
    ErrorMeaning(TooManyOpenTasks, TOO_MANY_OPEN_TASKS, ExitCode.REFUSED),
    ErrorMeaning(WorkflowPaused, WORKFLOW_PAUSED, ExitCode.REFUSED),
    ErrorMeaning(UnknownDefinition, UNKNOWN_WORKFLOW, ExitCode.USAGE),
    ErrorMeaning(InvalidArguments, INVALID_ARGUMENTS, ExitCode.USAGE),
    ErrorMeaning(UnknownToken, TOKEN_UNKNOWN, ExitCode.NOT_FOUND),
    ErrorMeaning(UnknownName, UNKNOWN_NAME, ExitCode.NOT_FOUND),
    ErrorMeaning(ApprovalNeeded, APPROVAL_NEEDED, ExitCode.REFUSED),
    ErrorMeaning(VerbRefused, VERB_REFUSED, ExitCode.REFUSED),
    ErrorMeaning(SignalRefused, SIGNAL_REFUSED, ExitCode.REFUSED),
    ErrorMeaning(RequestRefused, REQUEST_REFUSED, ExitCode.REFUSED),
    ErrorMeaning(CallbackRefused, CALLBACK_CLOSED, ExitCode.REFUSED),
    ErrorMeaning(UnreadableRow, UNREADABLE, ExitCode.REFUSED),
    ErrorMeaning(NotAllowed, INVALID_REQUEST, ExitCode.REFUSED),
    ErrorMeaning(LeaseAccessDenied, INVALID_REQUEST, ExitCode.REFUSED),
    ErrorMeaning(AppCollision, INVALID_REQUEST, ExitCode.REFUSED),
    ErrorMeaning(IdempotencyKeyBarred, INVALID_REQUEST, ExitCode.REFUSED),
    ErrorMeaning(IdempotencyKeyReused, INVALID_REQUEST, ExitCode.REFUSED),
    ErrorMeaning(InvalidInput, INVALID_REQUEST, ExitCode.USAGE),
    ErrorMeaning(OutcomeUnknown, OUTCOME_UNKNOWN, ExitCode.STORE),
    ErrorMeaning(StoreError, STORE_UNAVAILABLE, ExitCode.STORE),
    ErrorMeaning(LeaseUnavailable, STORE_UNAVAILABLE, ExitCode.STORE),
    ErrorMeaning(DefinitionError, DEFINITION_INVALID, ExitCode.USAGE),
    ErrorMeaning(ArrieroError, FAILED, ExitCode.USAGE),
)


def find_meaning(error: type[ArrieroError]) -> ErrorMeaning:
    """Find the problem and the exit code of a class of errors."""
    return next(meaning for meaning in ERRORS if issubclass(error, meaning.error))


def list_members(error: ArrieroError) -> dict[str, Any]:
    """List the further members of the document of an error."""
    if isinstance(error, CallbackRefused):
        return {"because": error.because}
    if isinstance(error, SignalRefused):
        return {"state": error.state, "because": error.because}
    if isinstance(error, VerbRefused):
        return {"state": error.state, "allowed": list(error.allowed), "because": error.because}
    return {}
