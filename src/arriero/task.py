"""The handle of one task: its result, how it stands, and what a person may do to it."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from . import operating
from .commands import Refusal
from .core.tracing import place_named
from .errors import DefinitionError, InvalidInput, TaskCompensated, TaskFailed, UnknownTask
from .model import Loaded, TaskFailure, TaskState, Verb
from .policies import Duration, seconds
from .runtime.code import Code
from .store.base import Ended
from .task_view import TaskView

if TYPE_CHECKING:
    from .app import App

R_co = TypeVar("R_co", covariant=True)
logger = logging.getLogger("arriero")
_read_failure = msgspec.json.Decoder(TaskFailure).decode


def seconds_or_refuse(duration: Duration, what: str) -> float:
    """A duration in seconds. Raises InvalidInput naming ``what``."""
    try:
        return seconds(duration, what)
    except DefinitionError as error:
        raise InvalidInput(str(error)) from error


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
            at=place_named(failure.trace),
        )

    async def _load(self) -> Loaded:
        loaded = await self._app._store_open().find(self.id)
        if loaded is None:
            raise UnknownTask(f"no task {self.id!r} in the store {self._app._store_open().url}")
        return loaded

    async def _load_to_act(self) -> Loaded:
        """The task, if a verb can be judged on it. Raises UnreadableRow."""
        return operating.readable(await self._load())

    async def view(self) -> TaskView[R_co]:
        """The task as it stands: its state, steps, results and times, as far as this release can read it.

        It reads the task's history too; to learn only when it ends, wait with ``result``.
        Raises: UnknownTask; StoreError.
        """
        loaded = await self._load()
        return await self._app._views_open().view(loaded, self._code)

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
