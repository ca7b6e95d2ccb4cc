"""One task while a process drives it: its rows, and its code brought to where they end."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from ..errors import InvalidInput
from ..model import STEP_OPEN, ConvoyRow, Instant, Loaded, StepKind, StepRow, StepState, TaskRow, TaskState, life_of
from ..model.commands import Submit
from ..model.failures import TaskFailure
from ..model.moves import Ending, Hold, Process
from ..model.signals import is_note
from ..payloads.codec import error_text, recordable_text
from ..system.traceback_capture import capture_traceback
from .apps import VersionedCode, find_code, may_run
from .children import read_options
from .code_end import Identity, Raised, Returned, build_step_exception
from .replay import (
    Execution,
    Record,
    RequestedStep,
    build_disagreement,
    identify_step,
    is_same_request,
    may_be_left,
    replay,
)
from .supervision import READ_REMEDY, REFUSED_ARGUMENTS, decode_task_policy
from .transitions import build_new_task

_WITH_RESULT = (StepState.COMPLETED, StepState.FAILED)


def find_new_results(task: TaskRow, steps: Mapping[int, StepRow], record: Loaded) -> list[StepRow] | None:
    """Return the results that others have recorded since, in recorded order. None: something else changed too, or nothing did.

    A replay of the whole record would deliver the same results in the same order. The code has got all earlier ones. Once it
    gets these as well, it is where that replay would be.

    Args:
        task, steps: as the code knows them. The code has got every result in them, and they contain all that it asked for.
        record: the task as it stands in the store now.
    """
    if not _is_same_run(task, record.task) or len(record.life) != len(steps):
        return None
    unseen: list[StepRow] = []
    for step in record.life:
        known = steps.get(step.step_no)
        if known is None or not _goes_on(known, step):
            return None
        if known.result_number is None and step.result_number is not None:
            unseen.append(step)
    last = max(map(_number, steps.values()), default=0)
    unseen.sort(key=_number)
    return unseen if unseen and _number(unseen[0]) > last else None


def has_only_new_signals(task: TaskRow, steps: Mapping[int, StepRow], record: Loaded) -> bool:
    """Returns True if signals wait in a record whose steps are as the code knows them. The arguments are as above."""
    is_same = _is_same_run(task, record.task) and len(record.life) == len(steps)
    return is_same and bool(record.signals) and all(steps.get(step.step_no) == step for step in record.life)


def _is_same_run(known: TaskRow, now: TaskRow) -> bool:
    """Returns True if the task was held by the same process since, going forward: its code depends on its results alone."""
    if known.state is not TaskState.PROCESSING or known.incarnation != 1 or known.branched_at is not None:
        return False
    return (known.state, known.incarnation, known.fence, known.locked_by) == (
        now.state,
        now.incarnation,
        now.fence,
        now.locked_by,
    )


def _goes_on(known: StepRow, now: StepRow) -> bool:
    """Returns True if only attempts and a result have come to a step."""
    if known.result_number is not None or is_note(known.kind, known.name):
        return known == now
    if now.kind is StepKind.COMPENSATION or (known.arguments, known.asked) != (now.arguments, now.asked):
        return False
    return now.state in (STEP_OPEN if now.result_number is None else _WITH_RESULT)


def _number(step: StepRow) -> int:
    return step.result_number or 0


class RunnableCode(VersionedCode, Protocol):
    """The code of a workflow, or of a task of one step."""

    def start(self, arguments: str) -> Any:
        """The coroutine to run. Raises InvalidInput when recorded arguments do not fit the code."""
        ...

    def encode_output(self, value: Any) -> str:
        """The output as JSON text. Raises InvalidInput."""
        ...


class TaskRun:
    """Task that a process drives: its rows and its code. It decides nothing and writes nothing: ``core.drive`` decides from it.

    Args:
        loaded: the task as it stands in the store.
        code: of its workflow; None when this process does not have it.
    """

    def __init__(self, loaded: Loaded, code: RunnableCode | None) -> None:
        self.task: TaskRow = loaded.task
        self.signals = list(loaded.signals)  # that no wait has taken, in the order of their commits
        self.arguments = loaded.arguments
        self.convoy = loaded.convoy
        self.steps: dict[int, StepRow] = {step.step_no: step for step in life_of(loaded.task, loaded.steps)}
        self.code = code
        self.fresh: list[RequestedStep] = []  # asked for, not yet recorded
        self.is_ahead_of_record = False  # the code was given, or asked for, what has not definitely been recorded
        self.execution: Execution | None = None
        self.broken: TaskFailure | None = None  # why the code cannot continue, besides its own end
        self.error: Exception | None = None  # what broke it, if that is for the log of the process
        self.output: str | None = None
        self.last_read = ""  # name of the step whose result was read last
        # Of a resubmitted task: what its earlier incarnations recorded, which the code may come by again.
        self.earlier: Record | None = None
        if self.task.state is TaskState.PROCESSING:
            self._replay()

    # --- what it is
    @property
    def loaded(self) -> Loaded:
        """The rows as last written or read."""
        steps = tuple(sorted(self.steps.values(), key=lambda step: step.ordinal))
        return Loaded(self.task, self.arguments, steps, self.convoy, tuple(self.signals))

    @property
    def looked_at_time(self) -> bool:
        """True if what the code did so far depends on when the task was started."""
        return self.execution is not None and self.execution.looked_at_time

    @property
    def kept_convoy_state(self) -> str | None:
        """The convoy's state that the code wants to keep."""
        return None if self.execution is None or self.convoy is None else self.execution.kept_convoy_state

    @property
    def unseen(self) -> list[Identity]:
        """Steps whose results came after the code had ended."""
        return [] if self.execution is None else self.execution.unseen

    @property
    def has_published(self) -> bool:
        """True if the code has published a value that is not given to the store yet."""
        return self.execution is not None and self.execution.published is not None

    def is_waiting(self) -> bool:
        """True if only a result or a timer can move the task: nothing else need be decided."""
        task, execution = self.task, self.execution
        return (
            execution is not None
            and execution.end is None
            and execution.published is None
            and self.broken is None
            and not self.fresh
            and not self.signals
            and task.state is TaskState.PROCESSING
            and task.complete_by is None
            and task.unseen_since is None
        )

    # --- running the code
    def _replay(self) -> None:
        if self.code is None:
            self.broken = build_no_code_failure(self.task)
            return
        assert self.task.started_at is not None
        try:
            started = self.code.start(self.arguments)
        except InvalidInput as error:
            reason = f"the arguments do not fit the workflow's signature: {error}; {READ_REMEDY}"
            self.broken = TaskFailure(
                "replay", recordable_text(reason), code=REFUSED_ARGUMENTS, trace=capture_traceback(error)
            )
            return
        except Exception as error:
            self._break_off(error)
            return
        convoy_state = None if self.convoy is None else self.convoy.value
        tags = (
            self.task.tags if self.task.submitted_tags is None else self.task.submitted_tags
        )  # a change would break the replay
        self.execution = Execution(
            started, seed=self.task.seed, now=self.task.started_at, convoy_state=convoy_state, tags=tags
        )
        try:
            steps = [step for step in self.steps.values() if step.kind is not StepKind.COMPENSATION]
            if self.task.incarnation > 1 or self.task.branched_at is not None:  # or it is the fork of such a task
                self.earlier = Record(steps, self.task.branched_at)
            self.fresh, self.broken = replay(self.execution, steps, self._read_result, self.task.branched_at)
        except InvalidInput as error:
            reason = recordable_text(f"a recorded result does not fit the code: {error}; {READ_REMEDY}")
            self.broken = TaskFailure("replay", reason, code="replay", trace=capture_traceback(error))
        except Exception as error:
            self._break_off(error)
        if self.broken is not None:
            self.execution.note_position(self.broken.step or self.last_read)
            self.execution.close()

    def _break_off(self, error: Exception) -> None:
        """Hold the task with its cause after its code or record made us fail; the caller continues."""
        self.error = error
        self.broken = build_driving_failure(error)

    def _read_result(self, step: StepRow, asked: RequestedStep | None = None) -> Any:
        self.last_read = step.name
        if step.state is StepState.FAILED:
            return build_step_exception(step)
        if asked is None and self.execution is not None:
            asked = self.execution.asked.get(identify_step(step))
        if asked is not None and asked.wait is not None:
            return asked.wait.timed_out() if step.result is None else asked.wait.read(step.result)
        if (
            step.kind is StepKind.CHILD
            and step.compensation is None
            and step.result is not None
            and read_options(step).is_detached
        ):
            return msgspec.json.decode(step.result)  # of a detached child: its id
        if asked is None or asked.call is None or step.result is None:
            return None
        return asked.definition.signature.result(step.result)

    def deliver(self, step: StepRow, at: Instant) -> None:
        """Hand one recorded (or about to be recorded) result to the code."""
        execution = self.execution
        if execution is None or self.broken is not None:
            return
        identity = (step.kind, step.name, step.key)
        asked = execution.asked.get(identity)
        given = step.arguments if step.asked is None else step.asked  # as ``find_asked_arguments``
        if execution.end is None and (asked is None or not is_same_request(asked, given)):
            if may_be_left(step, self.task.branched_at):
                execution.set_aside(step, lambda: self._read_result(step), at)
                return
            self.broken = TaskFailure(
                "replay", f"step {step.label} was recorded, but the code never asked for it", step.name, "replay"
            )
            return
        try:
            self.fresh += execution.deliver(identity, self._read_result(step, asked), at)
        except InvalidInput as error:
            reason = recordable_text(f"a result does not fit the code: {error}; {READ_REMEDY}")
            self.broken = TaskFailure("replay", reason, code="replay", trace=capture_traceback(error))
        except Exception as error:
            self._break_off(error)

    def take_published(self) -> str | None:
        """Return what the code has published since the last call; None: nothing, or code and record disagree."""
        assert self.execution is not None
        published, self.execution.published = self.execution.published, None
        return None if self.broken is not None else published

    def take_requests(self) -> list[RequestedStep]:
        """Return the requests since the last call, without those that an earlier incarnation has answered."""
        fresh, self.fresh = self.fresh, []
        if self.earlier is None or self.execution is None:
            return fresh
        for asked in fresh:
            if (why := self.earlier.find_disagreement(asked, self.execution.asks_for)) is not None:
                self.broken = build_disagreement(why, asked.identity[1])
                return []
        return [asked for asked in fresh if self.earlier.is_to_be_opened(asked)]

    def take_replies(self) -> list[RequestedStep]:
        """Return the replies to requests since the last call that are not recorded."""
        replies = [asked for asked in self.fresh if asked.replies_to is not None]
        if replies:
            self.fresh = [asked for asked in self.fresh if asked.replies_to is None]
        return replies

    def find_unfit(self, wait: StepRow) -> str:
        """Return why the code cannot read the result of a wait that takes a signal; empty if it can."""
        try:
            self._read_result(wait)
        except InvalidInput as error:
            return recordable_text(str(error))
        return ""

    def end(self) -> Returned | Raised | None:
        """The end of the code: Returned (with ``output`` set) or Raised; None while it continues."""
        if self.broken is not None:
            return Raised(self.broken)
        end = None if self.execution is None else self.execution.end
        if end is None or isinstance(end, Raised) or end.continues is not None or self.output is not None:
            return end
        assert self.code is not None
        try:
            self.output = self.code.encode_output(end.value)
        except InvalidInput as error:
            reason = f"the workflow's output cannot be recorded: {error}"
            return Raised(TaskFailure("bug", reason, code="unrecordable_output", trace=capture_traceback(error)))
        return end

    # --- newer rows
    def begin(self, loaded: Loaded) -> None:
        """Take the rows of the task's start, in which the first requests of its code are recorded."""
        assert self.execution is not None
        assert loaded.task.started_at is not None
        self.task, self.convoy, self.signals = loaded.task, loaded.convoy, list(loaded.signals)
        self.steps = {step.step_no: step for step in loaded.steps}
        self.execution.now = loaded.task.started_at

    def catch_up(self, record: Loaded) -> bool:
        """Continue from a newer record. Returns False if the code must run from its start; this run is of no use then."""
        execution = self.execution
        if self.is_ahead_of_record or self.broken is not None or execution is None or execution.end is not None:
            return False
        unseen = find_new_results(self.task, self.steps, record)
        if unseen is None and has_only_new_signals(self.task, self.steps, record):
            unseen = []
        if unseen is None or (self.convoy and self.convoy.value) != (record.convoy and record.convoy.value):
            return False
        self.task, self.convoy, self.signals = record.task, record.convoy, list(record.signals)
        self.steps = {step.step_no: step for step in record.life}
        for step in unseen:
            assert step.delivered_at is not None
            self.deliver(step, step.delivered_at)
        return self.broken is None

    def close(self) -> None:
        """Drop the code."""
        if self.execution is not None:
            self.execution.close()


def build_no_code_failure(task: TaskRow) -> TaskFailure:
    """Build the failure of a task that came to a process without its workflow."""
    version = "" if task.code_version is None else f"code version {task.code_version} of "
    reason = f"{version}workflow {task.workflow} is not in this App: register it, or give its old name with name="
    return TaskFailure("bug", reason, code="no_code")


def build_driving_failure(error: Exception) -> TaskFailure:
    """Build the failure of a task whose code or record made driving it fail; it is a bug, so nothing is undone."""
    reason = f"the task could not be driven: {error_text(error)}"
    return TaskFailure("bug", reason, code="driving_failed", trace=capture_traceback(error))


AHEAD_MAX = 100  # first steps of a task whose code runs ahead of its turn; one that asks for more begins by itself


def run_ahead(
    behind: Loaded | None,
    convoy: ConvoyRow | None,
    ending: Ending,
    codes: Mapping[str, RunnableCode],
    now: Instant,
    app: str = "",
) -> TaskRun | None:
    """Run the code of the task behind one that is about to end, up to its first requests.

    Args:
        behind: the task that waits for the next turn; None: it is not known here.
        convoy: the row of the convoy as the task that ends has read it.
        ending: how that task is about to end. The next task finds the state of the key that it keeps.
        codes: what this process can run, by the name in the task's row.
        now: the store's clock; the code must not depend on it.
        app: of this process; a task of another App is not run.
    Returns: None for a task that has begun before, and for code that ends or breaks before its first step. None also for code
        that looks at the time before that step: the task starts at the time of the commit, which is not known yet.
    """
    if (
        behind is None or convoy is None or behind.task.inbox or isinstance(ending, Hold)
    ):  # on a held task the key is blocked, as a rule
        return None
    code = find_code(codes, behind.task) if may_run(app, behind.task.app) else None
    if code is None or behind.task.state is not TaskState.PENDING or behind.task.opened_count:
        return None
    if decode_task_policy(behind.task.policy).convoy.handle_batch is not None:
        return None  # with what it runs is known in its turn
    kept = ending.convoy_state if isinstance(ending, Process) else None
    found = convoy if kept is None else replace(convoy, value=kept)
    return _at_first_steps(behind.as_begun(now, found), code)


def run_new(command: Submit, codes: Mapping[str, RunnableCode], now: Instant) -> TaskRun | None:
    """Run the code of a task that is about to be submitted, up to its first requests; its number is not known yet.

    Args:
        codes, now: as above.
    Returns: None as above, and for code that is not here.
    """
    code = codes.get(command.workflow)
    if code is None or command.fork is not None:  # a fork begins with a record
        return None
    task = build_new_task(command, 0, now).task
    return _at_first_steps(Loaded(task, command.arguments, ()).as_begun(now, None), code)


def _at_first_steps(begun: Loaded, code: RunnableCode) -> TaskRun | None:
    run = TaskRun(begun, code)
    if run.end() is None and not run.looked_at_time and 0 < len(run.fresh) <= AHEAD_MAX:
        return run
    run.close()
    return None
