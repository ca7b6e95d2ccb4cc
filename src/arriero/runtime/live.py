"""One task while a Scheduler holds it: its rows, its running code, and what came in for it."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ..codec import recordable_text
from ..commands import Fired, Reported
from ..core.advancing import driving_failure, forward_of, no_code
from ..core.catching_up import results_since
from ..core.replay import (
    Asked,
    Execution,
    Identity,
    Raised,
    Record,
    disagrees,
    failed_step,
    identity_of,
    may_be_left,
    replay,
)
from ..errors import InvalidInput
from ..model import Loaded, StepRow, StepState, TaskFailure, TaskRow, TaskState
from ..traceback_frames import trace_of
from .code import Code

logger = logging.getLogger("arriero")

# Whose workflow code runs just now, by the event loop that it keeps waiting; for whoever looks why that stands still.
code_running: dict[asyncio.AbstractEventLoop | None, TaskRow] = {}


T = TypeVar("T")


class LiveTask:
    """See the module. Nothing here writes; the Scheduler does."""

    def __init__(self, loaded: Loaded, code: Code | None) -> None:
        self.task: TaskRow = loaded.task
        self.arguments = loaded.arguments
        self.convoy = loaded.convoy
        self.key_since = 0.0  # since when this process has had the key of its convoy, on its own clock
        self.behind: Loaded | None = None  # who waits for the next turn in its convoy, as far as that is known
        self.ahead: LiveTask | None = None  # that one, while its code has run ahead and the commit is on its way
        self.steps: dict[int, StepRow] = {step.step_no: step for step in loaded.life}
        self.code = code
        self.inbox: deque[Reported | Fired] = deque()
        self.fresh: list[Asked] = []  # asked for, not yet recorded
        self.busy = False  # a command of it is on its way, or it is being read again
        self.in_flight = False  # a command of it is on its way
        self.is_ahead_of_record = False  # the code was given, or asked for, what has not surely been recorded
        self.outdated: tuple[Reported, ...] | None = None  # read it again after that command, with these reports
        self.idle_since: float | None = None
        self.execution: Execution | None = None
        self.broken: TaskFailure | None = None  # why the code cannot go on, besides its own end
        self.output: str | None = None
        # Of a resubmitted task: what its earlier incarnations recorded, which the code may come by again.
        self.earlier: Record | None = None
        if self.task.state is TaskState.PROCESSING:
            self._replay()

    @property
    def loaded(self) -> Loaded:
        """The rows as last written or read."""
        steps = tuple(sorted(self.steps.values(), key=lambda step: step.ordinal))
        return Loaded(self.task, self.arguments, steps, self.convoy)

    @property
    def is_resting(self) -> bool:
        """Whether nothing of it is on its way, and nothing has come in for it."""
        return self.idle_since is not None and not self.busy and not self.inbox

    @property
    def looked_at_time(self) -> bool:
        """Whether what the code did so far depends on when the task was started."""
        return self.execution is not None and self.execution.looked_at_time

    def begin(self, loaded: Loaded) -> None:
        """What the code asked for before the task began is recorded: this is how it stands now."""
        assert self.execution is not None
        assert loaded.task.started_at is not None
        self.task, self.convoy = loaded.task, loaded.convoy
        self.steps = {step.step_no: step for step in loaded.steps}
        self.execution.now = loaded.task.started_at

    @property
    def kept_convoy_state(self) -> str | None:
        """What the code wants to be kept of its convoy."""
        return None if self.execution is None or self.convoy is None else self.execution.kept_convoy_state

    @property
    def unseen(self) -> list[Identity]:
        """Steps whose results came after the code had ended."""
        return [] if self.execution is None else self.execution.unseen

    def _replay(self) -> None:
        code = self.code
        if code is None:
            self.broken = no_code(self.task)
            return
        assert self.task.started_at is not None
        try:
            started = code.start(self.arguments)
        except InvalidInput as error:
            reason = f"the arguments do not fit the workflow's signature: {error}"
            self.broken = TaskFailure(
                "replay", recordable_text(reason), code="refused_arguments", trace=trace_of(error)
            )
            return
        except Exception as error:
            self._break_off(error)
            return
        convoy_state = None if self.convoy is None else self.convoy.value
        self.execution = Execution(
            lambda: started, seed=self.task.seed, now=self.task.started_at, convoy_state=convoy_state
        )
        try:
            steps = forward_of(self.steps.values())
            if self.task.incarnation > 1:
                self.earlier = Record(steps, self.task.branched_at)
            execution = self.execution
            self.fresh, self.broken = self._running(
                lambda: replay(execution, steps, self._result_of, self.task.branched_at)
            )
        except InvalidInput as error:
            reason = f"a recorded result does not fit the code: {error}"
            self.broken = TaskFailure("replay", reason, code="replay", trace=trace_of(error))
        except Exception as error:
            self._break_off(error)
        if self.broken is not None:
            self.execution.close()

    def _running(self, run_code: Callable[[], T]) -> T:
        """Let the workflow's code run; meanwhile nothing else goes on on this event loop."""
        loop = asyncio._get_running_loop()
        code_running[loop] = self.task
        try:
            return run_code()
        finally:
            del code_running[loop]

    def _break_off(self, error: Exception) -> None:
        """The code or its record made us fail: the task is held with the cause, whoever brought it goes on."""
        logger.error("task %s could not be driven", self.task.task_id, exc_info=error)
        self.broken = driving_failure(error)

    def catch_up(self, record: Loaded) -> bool:
        """Go on from a newer record. False: that must be run from its start, and this is of no use any more."""
        execution = self.execution
        if self.is_ahead_of_record or self.broken is not None or execution is None or execution.end is not None:
            return False
        unseen = results_since(self.task, self.steps, record)
        if unseen is None or (self.convoy and self.convoy.value) != (record.convoy and record.convoy.value):
            return False
        self.task, self.convoy = record.task, record.convoy
        self.steps = {step.step_no: step for step in record.life}
        for step in unseen:
            self.deliver(step, step.delivered_at)
        return self.broken is None

    def _result_of(self, step: StepRow) -> Any:
        if step.state is StepState.FAILED:
            return failed_step(step)
        asked = None if self.execution is None else self.execution.asked.get(identity_of(step))
        if asked is None or asked.call is None or step.result is None:
            return None
        return asked.call.step.signature.result(step.result)

    def deliver(self, step: StepRow, at: Any) -> None:
        """Hand one recorded (or about to be recorded) result to the code."""
        if self.execution is None or self.broken is not None:
            return
        identity: Identity = identity_of(step)
        if self.execution.end is None and not self.execution.asks_for(step):
            if may_be_left(step, self.task.branched_at):
                self.execution.set_aside(step, lambda: self._result_of(step), at)
                return
            self.broken = TaskFailure(
                "replay", f"step {step.label} was recorded, but the code never asked for it", code="replay"
            )
            return
        try:
            execution = self.execution
            self.fresh += self._running(lambda: execution.deliver(identity, self._result_of(step), at))
        except InvalidInput as error:
            reason = f"a result does not fit the code: {error}"
            self.broken = TaskFailure("replay", reason, code="replay", trace=trace_of(error))
        except Exception as error:
            self._break_off(error)

    def to_be_opened(self) -> list[Asked]:
        """What the code asked for since this was last asked, less what an earlier incarnation has at hand."""
        fresh, self.fresh = self.fresh, []
        if self.earlier is None or self.execution is None:
            return fresh
        for asked in fresh:
            if (why := self.earlier.disagreement(asked, self.execution.asks_for)) is not None:
                self.broken = disagrees(why)
                return []
        return [asked for asked in fresh if self.earlier.is_to_be_opened(asked)]

    def end(self) -> Any:
        """How the code ended: Returned (with ``output`` set) or Raised; None while it goes on."""
        if self.broken is not None:
            return Raised(self.broken)
        end = None if self.execution is None else self.execution.end
        if end is None or isinstance(end, Raised) or self.output is not None:
            return end
        assert self.code is not None
        try:
            self.output = self.code.encode_output(end.value)
        except InvalidInput as error:
            reason = f"the workflow's output cannot be recorded: {error}"
            return Raised(TaskFailure("bug", reason, code="unrecordable_output", trace=trace_of(error)))
        return end

    def open_steps(self) -> list[StepRow]:
        """Steps and compensations that are pending or running, as recorded."""
        return [
            s for s in self.steps.values() if s.state in (StepState.PENDING, StepState.RUNNING) and s.kind != "timer"
        ]

    def close(self) -> None:
        """Drop the code."""
        if self.ahead is not None:
            self.ahead.close()
            self.ahead = None
        if self.execution is not None:
            self.execution.close()
