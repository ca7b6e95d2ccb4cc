"""The handle of one task: its result, how it stands, and what a person may do to it."""

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from . import operating
from .attempt import as_datetime
from .commands import Refusal
from .core.convoy_words import Ahead, ahead_of, person_waited_for, turn_waited_for
from .core.readable import Fault, faults_told, legible_task
from .errors import DefinitionError, InvalidInput, TaskCompensated, TaskFailed, UnknownTask
from .model import STEP_OPEN, Loaded, StepKind, TaskFailure, TaskState, Turn, Verb
from .policies import Duration, seconds
from .runtime.code import Code
from .store.base import Ended, StateStore

if TYPE_CHECKING:
    from .app import App

R_co = TypeVar("R_co", covariant=True)
AHEAD_COUNTED_MAX = 100  # of those that come before a task in its convoy
logger = logging.getLogger("arriero")
_read_failure = msgspec.json.Decoder(TaskFailure).decode


def seconds_or_refuse(duration: Duration, what: str) -> float:
    """A duration in seconds. Raises InvalidInput naming ``what``."""
    try:
        return seconds(duration, what)
    except DefinitionError as error:
        raise InvalidInput(str(error)) from error


class TaskView(msgspec.Struct, frozen=True):
    """A task as people see it. ``convoy``: the key, ``place`` and ``sequence`` in it; None: it is in no convoy."""

    id: str
    workflow: str
    state: str
    failure_count: int
    lost_count: int
    priority: int
    waiting_for: str
    reason: str
    submitted_at: datetime
    ended_at: datetime | None
    incarnation: int = 1
    paused: bool = False
    convoy: str | None = None
    place: int | None = None
    sequence: int | None = None


def view_of(as_it_stands: Loaded, ahead: Ahead | None = None) -> TaskView:
    """A task's rows as people see them, as far as they can be read.

    ``ahead``: who comes before it in its convoy; None: nobody asked.
    """
    loaded, faults = legible_task(as_it_stands)
    task, convoy = loaded.task, loaded.convoy
    failure = None if task.failure is None else _read_failure(task.failure)
    return TaskView(
        task.task_id,
        task.workflow,
        str(task.state),
        task.failure_count,
        task.lost_count,
        task.priority,
        waiting_for_release(faults) if faults else waiting_for(loaded, ahead),
        "" if failure is None else failure.reason,
        as_datetime(task.submitted_at),
        None if task.ended_at is None else as_datetime(task.ended_at),
        task.incarnation,
        task.paused_at is not None,
        None if convoy is None else convoy.key,
        task.place,
        task.sequence,
    )


def waiting_for_release(faults: Iterable[Fault]) -> str:
    """What a task waits for some of whose columns cannot be read."""
    return f"a release that can read it, or a person who corrects it: {faults_told(faults)}"


async def asked_ahead(loaded: Loaded, store: StateStore) -> Ahead | None:
    """Who comes before a task in its convoy, asked of the store; None: its turn has come, or it is in none."""
    if loaded.convoy is None or loaded.task.turn is not Turn.WAITING:
        return None
    convoy = await store.find_convoy(loaded.convoy.key, AHEAD_COUNTED_MAX)
    return None if convoy is None else ahead_of(loaded.task.task_no, convoy.members)


def waiting_for(loaded: Loaded, ahead: Ahead | None = None) -> str:
    """What moves the task next, in a few words; empty when it has ended.

    ``ahead``: who comes before it in its convoy; None: nobody asked.
    """
    task = loaded.task
    if task.state is TaskState.ERROR:
        return person_waited_for(task, loaded.convoy)
    if task.ended_at is not None:
        return ""
    if task.paused_at is not None:
        return "a person who resumes it"
    if task.turn is Turn.WAITING and loaded.convoy is not None:
        return turn_waited_for(task, loaded.convoy, ahead)
    for step in loaded.life:
        if step.state in STEP_OPEN and step.kind is StepKind.TIMER and step.not_before is not None:
            return f"the time {as_datetime(step.not_before).isoformat(timespec='seconds')}"
        if step.state in STEP_OPEN:
            what = "compensation" if step.kind is StepKind.COMPENSATION else "step"
            return f"{what} {step.label} of Agent {step.agent} ({step.state}, attempt {step.attempt})"
    return "a Scheduler"


class Task(Generic[R_co]):
    """A handle of one task, typed by its workflow."""

    def __init__(self, app: "App", task_id: str, code: Code | None, task_no: int | None = None) -> None:
        self.id = task_id
        self._app = app
        self._code = code
        self._task_no = task_no

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end and answer with the workflow's output.

        Args:
            timeout: seconds or timedelta; None waits as long as it takes.
        Raises: TimeoutError; TaskCompensated when it was undone; TaskFailed when it waits for a person; UnknownTask.
        """
        limit = None if timeout is None else seconds_or_refuse(timeout, "timeout")
        nobody = await self._app._nobody_runs()
        if nobody and limit is None:
            logger.warning("%s; task %s waits", nobody, self.id)
        try:
            ended = await self._ended(limit)
        except TimeoutError as error:
            nobody = await self._app._nobody_runs()
            raise TimeoutError(f"{error}; {nobody}" if nobody else str(error)) from None
        return self._output(ended)  # type: ignore[no-any-return]  # the codec read it as the declared type

    async def _ended(self, limit: float | None) -> Ended:
        known = self._task_no is not None
        try:
            return await self._app._waiting.until_ended(await self._number(), limit)
        except UnknownTask:
            if not known:
                raise
            self._task_no = None  # it was purged; its id may have been given again since
            return await self._app._waiting.until_ended(await self._number(), limit)

    async def _number(self) -> int:
        if self._task_no is None:
            self._task_no = (await self._load()).task.task_no
        return self._task_no

    def _output(self, ended: Ended) -> Any:
        task = ended.task
        if task.state is TaskState.PROCESSED:
            assert task.output is not None
            code = self._code or self._app._codes.get(task.workflow)
            return msgspec.json.decode(task.output) if code is None else code.output(task.output)
        assert task.failure is not None
        failure = _read_failure(task.failure)
        kind = TaskCompensated if task.state is TaskState.COMPENSATED else TaskFailed
        raise kind(
            task.task_id,
            state=str(task.state),
            step=failure.step,
            code=failure.code,
            reason=failure.reason,
            open_compensations=ended.open_compensations,
        )

    async def _load(self) -> Loaded:
        loaded = await self._app._store_open().find(self.id)
        if loaded is None:
            raise UnknownTask(f"no task {self.id!r} in the store {self._app._store_open().url}")
        return loaded

    async def _load_to_act(self) -> Loaded:
        """The task, if a verb can be judged on it. Raises UnreadableRow."""
        return operating.readable(await self._load())

    async def view(self) -> TaskView:
        """The task as it stands, as far as this release can read it. Raises UnknownTask."""
        loaded = await self._load()
        return view_of(loaded, await asked_ahead(loaded, self._app._store_open()))

    # --- what a person may do; which verb a state allows stands in core.verbs
    async def resubmit(
        self, *, by: str, reason: str, arguments: Mapping[str, Any] | None = None, step: str | None = None
    ) -> None:
        """Go on from an error, doing again what failed; or run again what was undone.

        Args:
            by, reason: who asks, and why; kept in the history.
            arguments: by parameter name: send the failed step these from now on, under a new key. Of a task that was
                undone, or whose code has asked for no step: the workflow's.
            step: the step whose arguments are edited, where several failed.
        Raises: VerbRefused - the state does not allow it, somebody else came first, or the step may have happened with
            its old arguments; UnreadableRow; InvalidInput; UnknownTask; StoreError.
        """
        loaded = await self._load_to_act()
        what: dict[str, Any] = {}
        if arguments is not None:
            operating.refuse_edits(loaded, self._app._store_open().now(), by=by, reason=reason)
            what = operating.edited(loaded, self._app._codes, arguments, step)
        await self._operate(Verb.RESUBMIT, loaded, by, reason, **what)

    async def compensate(self, *, by: str, reason: str) -> None:
        """Undo everything it has done, also after its end; refused past a pivot.

        Raises: as ``resubmit``.
        """
        await self._operate(Verb.COMPENSATE, await self._load_to_act(), by, reason)

    async def cancel(self, *, by: str, reason: str) -> None:
        """Stop it: undo what was done; past a pivot it is held in error. Raises: as ``resubmit``."""
        await self._operate(Verb.CANCEL, await self._load_to_act(), by, reason)

    async def extend(self, *, by: str, reason: str, within: Duration) -> None:
        """Move its own limit to ``within`` from now; only later, never earlier. Raises: as ``resubmit``."""
        limit = operating.limit_seconds(within)
        await self._operate(Verb.EXTEND, await self._load_to_act(), by, reason, within=limit)

    async def answer(
        self, *, by: str, reason: str, step: str, result: Any = msgspec.UNSET, did_not_happen: bool = False
    ) -> None:
        """Give a step's result by hand, or say that a step in doubt did not happen.

        Args:
            step: its label, ``undo:LABEL`` for its compensation (which needs no result), or its number in the task.
            result: of the type the step declares.
        Raises: as ``resubmit``.
        """
        loaded = await self._load_to_act()
        what = operating.answered(loaded, self._app._codes, step, result, did_not_happen)
        await self._operate(Verb.ANSWER, loaded, by, reason, **what)

    async def pause(self, *, by: str, reason: str) -> None:
        """Let nothing new begin; attempts under way end. Its own limit is not enforced meanwhile, but goes on counting.

        Raises: as ``resubmit``.
        """
        await self._operate(Verb.PAUSE, await self._load_to_act(), by, reason)

    async def resume(self, *, by: str, reason: str) -> None:
        """Let a paused task go on. Raises: as ``resubmit``."""
        await self._operate(Verb.RESUME, await self._load_to_act(), by, reason)

    async def _operate(self, verb: Verb, loaded: Loaded, by: str, reason: str, **what: Any) -> None:
        store = self._app._store_open()
        command = operating.command(verb, loaded, store.store_id, by=by, reason=reason, **what)
        (answer,) = await self._app._operate([command])
        if isinstance(answer, Refusal):
            operating.raise_refused(verb, self.id, answer)

    def __repr__(self) -> str:
        return f"<task {self.id}>"
