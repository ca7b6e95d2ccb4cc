"""The one tree of exceptions.

ArrieroError
├── DefinitionError        declared wrongly: fix the code
├── InvalidInput           what was given cannot be accepted; the message names it and the remedy
│   ├── AppCollision       two Apps on one store cannot distinguish their older tasks
│   ├── IdempotencyKeyBarred  nothing may land under this key any longer
│   ├── IdempotencyKeyReused  another request has this key
│   ├── ConvoyRefused      the convoy has ended, or is ordered otherwise
│   ├── InvalidArguments   the types of a workflow or step refuse them
│   ├── MutilatedExport    an exported history was cut or changed
│   ├── NotAllowed         the store's rules refuse it as things stand
│   ├── TaskExists         another operation is known under this id
│   │   └── SequenceUsed   another operation has this number in the convoy
│   ├── TooManyOpenTasks   a token of the HTTP API has as many open tasks as it may have
│   ├── SignalRefused      the task receives no such signal any longer, or has no room for it
│   ├── UnknownDefinition  the App has no workflow or step of this name
│   ├── UnknownName        the store has no convoy, ledger, schedule, Agent or lease of this name
│   ├── UnknownTask        no task has this id
│   ├── UnreadableRow      a row that this release cannot read
│   ├── VerbRefused        an operator's verb that the task does not allow as it stands
│   │   └── ApprovalNeeded another operator must ask for the same
│   └── WorkflowPaused     an operator has paused the workflow, and it takes no new tasks
├── AgentRequestRefused    a program outside of Python asked for, or reported, what it may not; ``code`` says why
├── RequestRefused         the code of a task refuses a request that was sent to it
├── ForbiddenInWorkflow    workflow code awaited something that cannot be replayed
├── StoreError             the store could not answer
│   ├── SchemaOutdated     the schema is older or newer than this release
│   └── TransactionConflict  run your transaction again
├── OutcomeUnknown         a commit's answer was lost: ask again under the same task_id
├── TaskFailed             the task has no output
│   ├── TaskCompensated    it was undone
│   └── TaskHeld           it is held and waits for an operator
├── StepError              raised in steps
│   ├── InDoubt            it may have happened
│   ├── Transient          definitely did not happen; try again
│   └── Permanent          definitely did not happen and never will
│       └── SignalTimeout  seen by workflow code: what it waits for did not come in time
├── AttemptOver            raised in steps: the attempt's time is over
├── StepFailed             seen by workflow code; ``cause`` says which kind
└── IllegalTransition      our bug: the table has no such move
"""

from datetime import timedelta
from typing import Any, Literal


def describe_install(extra: str) -> str:
    """Returns the command that installs an extra, for an error."""
    return f"run `pip install '.[{extra}]'` in a clone of arriero"


Cause = Literal["permanent", "transient", "unknown", "expired"]
RETRY_AFTER_SECONDS_MAX = 366 * 86_400.0  # a year: beyond it the service does not mean what it says


class ArrieroError(Exception):
    """Something in arriero refused or failed."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().split("\n")[0])


class AgentRequestRefused(ArrieroError):
    """A program that carries out steps outside of Python asked for, or reported, what it may not. Nothing has changed.

    ``code``: a word for programs, such as ``report-stale``; docs/how-to/agents-in-any-language.md lists them.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class DefinitionError(ArrieroError):
    """A workflow, step, Agent or App is declared wrongly: fix the code."""


class InvalidInput(ArrieroError):
    """An argument, option or document cannot be accepted."""


class MutilatedExport(InvalidInput):
    """The export is not as it was written: a line was cut, removed or changed.

    Args:
        line: number of the line where it shows, counted from 1.
        what: what is wrong there.
    """

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"the export is mutilated at line {line}: {what}")
        self.line = line


class AppCollision(InvalidInput):
    """Two Apps on one store have code of the same name, and open tasks of an older release do not say whose they are."""


class IdempotencyKeyBarred(InvalidInput):
    """The request of this key was undone, and no request may take effect under it any longer."""


class IdempotencyKeyReused(InvalidInput):
    """This key belongs to another request."""


class NotAllowed(InvalidInput):
    """The rules of the store refuse this as things stand. Nothing was changed."""


class InvalidArguments(InvalidInput):
    """The types that a workflow or step declares refuse its arguments.

    ``why``: the mistake alone. ``takes``: the declared parameters. ``example``: arguments that fit, as JSON, and
    ``call``: a whole call to copy; empty: none is known.
    """

    def __init__(self, why: str, *, takes: str = "", example: str = "", call: str = "") -> None:
        declared = f"; it takes {takes}" if takes else ""
        super().__init__(f"{why}{declared}" + (f", like {call}" if call else ""))
        self.why = why
        self.takes = takes
        self.example = example


class TaskExists(InvalidInput):
    """Another operation is known under this task_id: its workflow, body or convoy differs."""


class SequenceUsed(TaskExists):
    """Another operation has this number in the sequence of its convoy."""


class ConvoyRefused(InvalidInput):
    """The convoy takes no such task: it has ended, or it is ordered otherwise."""


class TooManyOpenTasks(InvalidInput):
    """A token of the HTTP API has as many open tasks as it may have. Nothing of the submission was kept."""


class WorkflowPaused(InvalidInput):
    """An operator has paused the workflow, and it takes no new tasks. Nothing of the submission was kept."""


class UnknownDefinition(InvalidInput):
    """The App has no workflow or step of this name."""


class UnknownName(InvalidInput):
    """The store has nothing of this kind under this name."""


class UnknownTask(InvalidInput):
    """No task has this id."""


class UnreadableRow(InvalidInput):
    """A row of the store holds what this release cannot read: a newer release wrote it, or it is damaged.

    ``what`` names the column; ``table`` and ``column`` are for programs. ``row`` names a row that belongs to no task alone.
    """

    remedy = (
        "processes of the release that wrote it continue with it; if it is damaged, correct that column or restore the store"
        " from a backup"
    )

    def __init__(
        self,
        what: str,
        *,
        table: str = "",
        column: str = "",
        task_no: int = 0,
        convoy_no: int = 0,
        task_id: str = "",
        row: str = "",
    ) -> None:
        of = f"task {task_id!r}" if task_id else "a row"
        super().__init__(f"{of} cannot be read: {what}; {self.remedy}")
        self.what = what
        self.table = table
        self.column = column
        self.task_no = task_no
        self.convoy_no = convoy_no
        self.row = row


class VerbRefused(InvalidInput):
    """The task does not allow the verb as it stands, or another verb came first; nothing was changed.

    Args:
        state, allowed: of the task, and the verbs that its state allows.
        because: ``not_allowed``; ``came_first``: another verb; ``approval_needed``; ``parent_undone``: a child is not run again alone
            once its parent is undone.
    """

    def __init__(
        self,
        message: str,
        *,
        task_id: str = "",
        verb: str = "",
        state: str = "",
        allowed: Any = (),
        because: str = "not_allowed",
    ) -> None:
        super().__init__(message)
        self.task_id = task_id
        self.verb = verb
        self.state = state
        self.because = because
        self.allowed: tuple[str, ...] = tuple(allowed)


class SignalRefused(InvalidInput):
    """The task receives no such signal any longer, or has no room for it.

    Args:
        because: ``ended``, ``continued``, ``undone``, ``in_batch``, ``another_app``, ``another_value``, ``past_life``, ``not_waiting``,
            ``answered``, ``late``, ``inbox_full`` or ``too_many``.
    """

    def __init__(self, message: str, *, task_id: str, because: str, state: str = "") -> None:
        super().__init__(message)
        self.task_id = task_id
        self.because = because
        self.state = state


class CallbackRefused(InvalidInput):
    """A callback cannot be completed by what was sent.

    Args:
        because: ``unknown``: the token was not made by this store; ``unfit``: the value does not fit, and the callback stays open;
            ``undecided``: the task has not read the value that was sent before: send the same again later; ``answered``, ``late``,
            ``ended``, ``undone``, ``past_life``, ``not_waiting``, ``purged``, ``inbox_full``, ``too_many``, or ``unreadable``: a
            row of the task is damaged.
    """

    def __init__(self, message: str, *, because: str) -> None:
        super().__init__(message)
        self.because = because


class RequestRefused(ArrieroError):
    """The code of a task refuses a request. ``reason``: as it says."""

    def __init__(self, reason: str, *, task_id: str) -> None:
        super().__init__(f"task {task_id!r} refuses the request: {reason}")
        self.reason = reason
        self.task_id = task_id


class ApprovalNeeded(VerbRefused):
    """Other operators must ask for the same verb before it is carried out. The approval of who asked is kept."""


class ForbiddenInWorkflow(ArrieroError):
    """Workflow code may await only steps and what the module ``arriero`` offers: the rest cannot be replayed."""


class StoreError(ArrieroError):
    """The state store could not answer."""


class SchemaOutdated(StoreError):
    """The store's schema is not the one this release works with."""


class LeaseUnavailable(ArrieroError):
    """The provider of a lease did not answer: nobody knows what became of the request. Ask again."""


class LeaseRefused(InvalidInput):
    """The provider of a lease does not take the name, the duration or the credentials: change them."""


class LeaseAccessDenied(LeaseRefused):
    """The provider of a lease refuses the credentials, or they lack a right: change them."""


class LeadershipLost(ArrieroError):
    """The lease is another's by now, or can no longer be trusted: stop to act as the leader."""


class TransactionConflict(StoreError):
    """Another transaction came first: run yours again."""


class OutcomeUnknown(ArrieroError):
    """The answer to a submission was lost: submit again under the same task_id, the same task will answer."""

    def __init__(self, task_id: str) -> None:
        super().__init__(
            f"task {task_id!r}: the answer to its submission was lost; submit again under the same task_id"
        )
        self.task_id = task_id


class IllegalTransition(ArrieroError):
    """The table of states has no such move: a bug in arriero."""


class StepError(ArrieroError):
    """Raised by a step to report how its try failed.

    Args:
        message: for operators.
        code: for programs; workflow code may branch on it.
        details: any JSON value.
        public: what a customer may read, where the task fails by it. ``message`` is for operators: it may hold addresses.
    """

    def __init__(self, message: str = "", *, code: str = "", details: Any = None, public: str = "") -> None:
        super().__init__(message)
        self.message = str(message) or str(self)  # also when it was given an exception: what failed must not get lost
        self.code = "" if code is None else str(code)
        self.details = details
        self.public = "" if public is None else str(public)


class Transient(StepError):
    """This try definitely did not happen; another may succeed.

    Args:
        retry_after: seconds or timedelta to wait at least before the next try; it often comes from a service's
            answer, so one that means nothing (NaN, below 0) counts as none, and a century as a year.
        unavailable: the service itself says that it takes no calls just now, as with status 503 and Retry-After. It opens
            the breaker of the Agent immediately.
    Raises: InvalidInput - ``retry_after`` is not a number.
    """

    def __init__(
        self,
        message: str = "",
        *,
        code: str = "",
        details: Any = None,
        retry_after: float | timedelta | None = None,
        unavailable: bool = False,
        public: str = "",
    ) -> None:
        super().__init__(message, code=code, details=details, public=public)
        self.retry_after = parse_retry_after(retry_after)
        self.unavailable = unavailable is True


def parse_retry_after(retry_after: float | timedelta | None) -> float | None:
    """Seconds of a ``retry_after``: at most a year, None for none. Raises InvalidInput: it is not a number."""
    seconds = retry_after.total_seconds() if isinstance(retry_after, timedelta) else retry_after
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidInput(f"Transient: retry_after is {retry_after!r}; give seconds or a timedelta")
    return min(seconds, RETRY_AFTER_SECONDS_MAX) if seconds >= 0 else None


class Permanent(StepError):
    """This try definitely did not happen, and none ever will."""


class SignalTimeout(Permanent, TimeoutError):
    """Seen by workflow code: what it waits for did not come in time. If it leaves the code, the task is undone."""


class InDoubt(StepError):
    """This try may have happened: nobody can say."""


class AttemptOver(ArrieroError):
    """The attempt's time is over, or it is not this process's any longer: nothing that it does counts. Stop its work."""


class StepFailed(ArrieroError):
    """A step ended without a result. Catch it and go another way, or let it leave the workflow.

    ``public``: what the step's error said to customers; empty: nothing.
    """

    def __init__(
        self,
        step: str,
        *,
        code: str = "",
        message: str = "",
        details: Any = None,
        attempts: int = 1,
        cause: Cause = "unknown",
        public: str = "",
    ) -> None:
        super().__init__(f"{step}: {message or code or cause}")
        self.step = step
        self.code = code
        self.message = message
        self.details = details
        self.attempts = attempts
        self.cause: Cause = cause
        self.public = public


class TaskFailed(ArrieroError):
    """The task has no output: it was undone (``TaskCompensated``), or it waits for an operator (``TaskHeld``).

    ``reason``: for operators; it may hold addresses and names of machines. ``public``: what a customer may read: the ``public``
    of the step's or the workflow's error, else a neutral sentence.
    ``at``: the line of code to fix or by which its failure was raised, as ``shop/orders.py:42, in fulfil: `...` ``; empty:
    no line of yours is known. A traceback of this exception ends with it.
    """

    def __init__(
        self,
        task_id: str,
        *,
        state: str,
        step: str = "",
        code: str = "",
        reason: str = "",
        open_compensations: tuple[str, ...] = (),
        at: str = "",
        public: str = "",
    ) -> None:
        still_open = f"; still to be undone: {', '.join(open_compensations)}" if open_compensations else ""
        super().__init__(f"task {task_id!r} is {state}: {reason}{still_open}")
        self.task_id = task_id
        self.state = state
        self.step = step
        self.code = code
        self.reason = reason
        self.open_compensations = open_compensations
        self.at = at
        self.public = public
        if at:
            self.add_note(f"in the task: {at}")


class MissingCompensationWarning(UserWarning):
    """An App undoes its tasks, and a step of it does not say how it is undone, or that it needs no undo."""


class TaskCompensated(TaskFailed):
    """The task failed and everything it had done was undone."""


class TaskHeld(TaskFailed):
    """The task is held and waits for an operator."""
