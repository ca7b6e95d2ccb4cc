"""Events in the history of a task that report the task itself, of its undo and of operators."""

from msgspec import UNSET, Raw, UnsetType, field

from ..model import Instant, Verb
from ..model.failures import read_task_failure
from ..model.tags import format_change, format_tags
from ..model.verb_rules import VERBS
from ..text.format import UNCHANGED, find_frame_to_fix, format_count, format_frame, format_instant, is_expected
from .base import Hash, HistoryEvent, HistoryNames, join_parts
from .step import StepOpened

_WHY_RELEASED = {
    "lost": "freed: the process that drove it was lost",
    "stuck": "freed by the Supervisor: the process that drove it lives but made no progress",
    "limit": "freed by the Supervisor, for its undo",
    "gathers": "put down while its batch is gathered",
    "workflow_paused": "it waits, because its workflow is paused for new tasks",
    "workflow_resumed": "its workflow was resumed: it may begin",
}
_ENDS = {
    "processed": "processed: it is done",
    "compensated": "compensated, everything is undone",
    "held": "held: it waits for an operator",
}
_WORDS_TO_0_4 = {"error": "held", "needs_attention": "held"}


def read_state_word(word: str) -> str:
    """The word of today for the state of a task, or the kind of a status, in a history; releases to 0.4 had others."""
    return _WORDS_TO_0_4.get(word, word)


def _format_task_failure(failure: Raw) -> str:
    read = read_task_failure(failure)
    code = f" [{read.code}]" if read.code else ""
    nothing = f" (nothing to undo: {', '.join(read.nothing_to_undo)})" if read.nothing_to_undo else ""
    frame = None if is_expected(read.trace) else find_frame_to_fix(read.trace)
    return f"{read.reason}{code}{'' if frame is None else f', at {format_frame(frame)}'}{nothing}"


class TaskSubmitted(HistoryEvent, frozen=True, tag="task.submitted"):
    """The first event of every task. ``body``: hash of its arguments; ``complete_by``: its own limit."""

    workflow: str
    body: str
    priority: int
    not_before: Instant
    complete_by: Instant | None
    reply_to: str | None = None
    app: str = ""
    ledger: str | None = None  # the id of the ledger that it came with
    tags: dict[str, str] = field(default_factory=dict)
    parent: int | None = None  # number of the task that started it
    parent_step: int | None = None  # ordinal of the step of that task
    continues: int | None = None  # number of the run before, which ended by ContinueAs
    run: int = 1
    statuses: int = 0  # that earlier runs have written
    paused: bool = False  # as the run before was

    def describe(self, names: HistoryNames) -> str:
        limit, queue = self.complete_by, self.reply_to
        more = join_parts(
            f"not to start before {format_instant(self.not_before)}" if self.not_before > names.began_at else "",
            "" if limit is None else f"to be done by {format_instant(limit)}",
            "" if queue is None else f"its submitter is notified in the reply queue {queue}",
        )
        of_app = f" of App {self.app!r}" if self.app else ""
        tagged = f", tagged {format_tags(self.tags)}" if self.tags else ""
        child = "" if self.parent is None else f", as step {self.parent_step} of task number {self.parent}"
        if self.continues is not None:
            return f"run {self.run} begins, after task number {self.continues}{more}{tagged}{child}"
        return f"submitted to workflow {self.workflow}{of_app} with priority {self.priority}{more}{tagged}{child}"


class TaskForked(HistoryEvent, frozen=True, kw_only=True, tag="task.forked"):
    """The task is a fork: it does another one again from a step on. The results before that step follow as copies.

    Args:
        of: id of the other task; ``task``: its number.
        step: ordinal of the step there; ``label``: its label.
        by, reason: who asked, and why; empty: not said.
        has_begun: its code continues the begin of the other one, with its ``code_version``; empty: version 1, or it has not begun.
    """

    of: str
    task: int
    step: int
    label: str
    by: str = ""
    reason: str = ""
    has_begun: bool = False
    code_version: str = ""

    def describe(self, names: HistoryNames) -> str:
        who = f", asked by {self.by}" if self.by else ""
        why = f": {self.reason}" if self.reason else ""
        return f"forked from step {self.step} ({self.label}) of task {self.of}{who}{why}"


class StepCopied(StepOpened, frozen=True, kw_only=True, tag="step.copied"):
    """A step of a fork that another task has done: only its result is copied, and its undo is the other task's.

    Args:
        from_task: number of the task that has done it, which may be a fork's origin's origin. ``from_step``: the ordinal there.
        number: of its result in its task; 0: it has none, like the mark of a patch.
        result: hash; of a failure that of its message.
        failed: the step has failed there, and the code gets that failure again. ``code``: of the failure.
    """

    from_task: int
    from_step: int
    number: int = 0
    result: Hash = None
    failed: bool = False
    code: str = ""

    def describe(self, names: HistoryNames) -> str:
        super().describe(names)  # which names it
        how = "has failed in" if self.failed else "is copied from"
        return f"{names.name_step(self.step)} {how} task number {self.from_task}, where it is step {self.from_step}"


class TaskContinued(HistoryEvent, frozen=True, tag="task.continued"):
    """The run has ended, and the task continues in another one.

    Args:
        following: number of the next run.
        signals: numbers of those that went along.
    """

    following: int
    signals: tuple[int, ...] = ()

    def describe(self, names: HistoryNames) -> str:
        along = f", with {format_count(len(self.signals), 'signal')} that no wait had taken" if self.signals else ""
        return f"its code ended this run: it continues as task number {self.following}{along}"


class ChildNoticed(HistoryEvent, frozen=True, tag="child.noticed"):
    """A child of the task has ended: the task is woken. ``step``: the step that the child is."""

    step: int

    def describe(self, names: HistoryNames) -> str:
        return f"{names.name_step(self.step)} has ended: the task is woken"


class TaskClaimed(HistoryEvent, frozen=True, tag="task.claimed"):
    """A process drives the task from now on. ``code_version``: of the code with which it begins; empty: version 1, or it had begun."""

    fence: int
    process: int
    state: str
    revision: int
    code_version: str = ""

    def describe(self, names: HistoryNames) -> str:
        what = "for its undo " if self.state == "compensating" else ""
        version = f", with code version {self.code_version}" if self.code_version else ""
        return f"taken up {what}by {names.name_process(self.process)}{version}"


class TaskReleased(HistoryEvent, frozen=True, tag="task.released"):
    """The task was released, so nobody drives it. ``why``: a word of ``_WHY_RELEASED``, or ``put_down``."""

    fence: int
    not_before: Instant | None
    why: str

    def describe(self, names: HistoryNames) -> str:
        if (why := _WHY_RELEASED.get(self.why)) is not None:
            return why
        at = self.not_before
        return (
            "put down until news comes" if at is None else f"put down until {format_instant(at)}, or until news comes"
        )


class TaskExpired(HistoryEvent, frozen=True, tag="task.expired"):
    """The Supervisor found that the task's own limit has passed. ``term``: of its lease."""

    term: int | None

    def describe(self, names: HistoryNames) -> str:
        return "the Supervisor finds that the task's own limit has passed"


class TaskLost(HistoryEvent, frozen=True, tag="task.lost"):
    """The process that drove the task was lost, which is counted. ``process`` None: it lives, but was stuck."""

    lost_count: int
    process: int | None

    def describe(self, names: HistoryNames) -> str:
        who = "a process that was stuck" if self.process is None else f"process {self.process}"
        return f"{who} was lost while it worked on this task: loss {self.lost_count} since its last progress"


class TaskTerminal(HistoryEvent, frozen=True, tag="task.terminal"):
    """The task has ended. ``failure``: a ``model.TaskFailure`` as JSON."""

    state: str
    fence: int
    output: Hash = None
    failure: Raw | UnsetType = UNSET

    def describe(self, names: HistoryNames) -> str:
        says = _ENDS[read_state_word(self.state)]
        return says if self.failure is UNSET else f"{says}: {_format_task_failure(self.failure)}"


class UndoBegun(HistoryEvent, frozen=True, tag="undo.begun"):
    """The task is undone from now on. ``failure``: a ``model.TaskFailure`` as JSON."""

    failure: Raw

    def describe(self, names: HistoryNames) -> str:
        return f"the undo begins: {_format_task_failure(self.failure)}"


class UndoPlanned(HistoryEvent, frozen=True, tag="undo.planned"):
    """All compensations that the undo needs are opened. ``steps``: their ordinals, in their order."""

    steps: tuple[int, ...]

    def describe(self, names: HistoryNames) -> str:
        order = ", then ".join(names.label_step(ordinal) for ordinal in self.steps)
        return f"the undo is planned: {order or 'there is nothing to undo'}"


# --- operators
class OperatorAction(HistoryEvent, frozen=True, kw_only=True, tag="operator.action"):
    """An operator carried out a verb on the task.

    Args:
        verb: a ``model.Verb``.
        before, after: state of the task.
        complete_by: of a resubmission, of ``extend`` and of ``adjust`` the new limit.
        complete_by_before: of ``extend`` and ``adjust``: the limit before; releases to 0.5 did not say it.
        ``anew``: a compensated task runs again from its beginning.
        arguments, replaces: hashes of the new arguments of the task's workflow, and of those before.
        paused: of ``pause`` and ``resume`` how it is now.
        approved_by: who else asked for it, where one operator is not enough.
        until: of ``snooze``: nothing new begins before.
        tags, tags_before: of ``tag``: all tags of the task, afterwards and before.
        code_version, code_version_before: of ``pin``: the version that its code must have, afterwards and before.
        unchanged: of ``adjust`` without a step, in words: what some open steps did not take of it.
    """

    verb: str
    by: str
    reason: str
    before: str
    complete_by: Instant | UnsetType | None = UNSET
    anew: bool = False
    arguments: Hash | UnsetType = UNSET
    replaces: Hash | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    after: str
    incarnation: int
    fence: int
    not_before: Instant | None
    approved_by: tuple[str, ...] = ()
    until: Instant | UnsetType = UNSET
    tags: dict[str, str] | UnsetType = UNSET
    tags_before: dict[str, str] | UnsetType = UNSET
    complete_by_before: Instant | UnsetType | None = UNSET
    unchanged: tuple[str, ...] = ()
    code_version: str | UnsetType = UNSET
    code_version_before: str | UnsetType = UNSET

    def list_changes(self) -> list[str]:
        """List the values of the task that it changed, in words and with the old ones: its limit, tags, version; then what it left."""
        changes: list[str] = []
        limit, limit_before = self.complete_by, self.complete_by_before
        if limit is not None and limit is not UNSET:
            before = "none" if limit_before is None or limit_before is UNSET else format_instant(limit_before)
            changes.append(
                f"to be done by {format_instant(limit)}{'' if limit_before is UNSET else f' ({before} before)'}"
            )
        if self.tags is not UNSET and self.tags_before is not UNSET:
            changes.append(format_change(self.tags_before, self.tags))
        if self.code_version is not UNSET:
            changes.append(f"code version {self.code_version} ({self.code_version_before} before)")
        return changes + [UNCHANGED + one for one in self.unchanged]

    def describe(self, names: HistoryNames) -> str:
        before, after = map(read_state_word, (self.before, self.after))
        changed = f" ({before} before, now {after})" if before != after else ""
        anew = ", to run again from the beginning" if self.anew else ""
        edited = "" if self.arguments is UNSET else ", with edited arguments of its workflow"
        approved = f", approved by {' and '.join(self.approved_by)}" if self.approved_by else ""
        snoozed = "" if self.until is UNSET else f"; nothing new begins before {format_instant(self.until)}"
        also = "".join(f"; {change}" for change in self.list_changes())
        did = VERBS[Verb(self.verb)].done if self.verb in tuple(Verb) else self.verb
        return f'{self.by} {did}{anew}{edited}{changed}{approved}: "{self.reason}"{snoozed}{also}'


class OperatorApproval(HistoryEvent, frozen=True, tag="operator.approval"):
    """An operator approved a verb that others must ask for as well; nothing else was changed.

    Args:
        request: what the verb carries beside its name, as JSON text (``core.approvals``): another answer is another thing
            to approve.
        ``persons``: how many must ask for it.
    """

    verb: str
    by: str
    reason: str
    incarnation: int
    request: str
    persons: int

    def describe(self, names: HistoryNames) -> str:
        return f'{self.by} approves {self.verb}, which needs {self.persons} operators: "{self.reason}"'


class TaskAssigned(HistoryEvent, frozen=True, tag="task.assigned", rename={"from_app": "from"}):
    """An operator gave the task to an App."""

    app: str
    from_app: str
    by: str
    reason: str
    fence: int
    not_before: Instant | None

    def describe(self, names: HistoryNames) -> str:
        was = f"it was of App {self.from_app!r}" if self.from_app else "nothing said whose it was"
        return f"{self.by} gives it to App {self.app!r}, {was}: {self.reason}"


class StatusPublished(HistoryEvent, frozen=True, tag="status.published"):
    """A message to the submitter was put into its reply queue."""

    number: int
    kind: str
    queue: str

    def describe(self, names: HistoryNames) -> str:
        return (
            f"its submitter is notified: {read_state_word(self.kind)} (message {self.number}, reply queue {self.queue})"
        )


class AlertOpened(HistoryEvent, frozen=True, tag="alert.opened"):
    """The task needs an operator. ``cause``: the kind of a ``model.TaskFailure``."""

    cause: str

    def describe(self, names: HistoryNames) -> str:
        return f"an alert is opened (cause: {self.cause})"


class AlertClosed(HistoryEvent, frozen=True, tag="alert.closed"):
    """The task needs no person any longer."""

    def describe(self, names: HistoryNames) -> str:
        return "its alert is closed: it is no longer held"


EventOfTask = (
    TaskSubmitted
    | TaskForked
    | StepCopied
    | TaskContinued
    | ChildNoticed
    | TaskClaimed
    | TaskReleased
    | TaskExpired
    | TaskLost
    | TaskTerminal
    | UndoBegun
    | UndoPlanned
)
EventOfPeople = OperatorAction | OperatorApproval | TaskAssigned | StatusPublished | AlertOpened | AlertClosed
