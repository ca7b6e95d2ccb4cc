"""Writes into the log what failed: each attempt, no matter who found it, and each task that is held because of its code.

It sees commands once they are written, so that a line says what is recorded: when the next attempt comes, or that
none comes. A line that is lost with its process is still in the history.
"""

import logging
from collections.abc import Callable, Iterator

from ..explain.failure_lines import FailureLine, describe_failed_attempt, describe_held_task, describe_lost_attempt
from ..model import Instant, TaskState
from ..model.answers import Applied
from ..model.commands import Advance, AnyCommand, FreeTask, Recover, Report
from ..model.failures import read_task_failure
from ..model.moves import GaveUp, Reported, RetryAsked
from ..system.rate_limited_log import RateLimitedLog

logger = logging.getLogger("arriero")

OnApplied = Callable[[AnyCommand, Applied], None]  # called with each command of this process that was written


def ignore_applied(_command: AnyCommand, _answer: Applied) -> None:
    """Ignore a command that was written."""


class FailureLog:
    """Writes failures into the log of the process. ``monotonic``: seconds of the process; ``now``: the store's clock.

    What a service refuses permanently is written at the level INFO, all else at WARNING.
    """

    def __init__(self, monotonic: Callable[[], float], now: Callable[[], Instant]) -> None:
        self.warnings = RateLimitedLog(logger, monotonic)
        self._refusals = RateLimitedLog(logger, monotonic, logging.INFO)
        self._now = now

    def flush(self) -> None:
        """Write what is due; to be called again and again."""
        self.warnings.flush()
        self._refusals.flush()

    def close(self) -> None:
        """Write what was left out so far."""
        self.warnings.close()
        self._refusals.close()

    def note(self, command: AnyCommand, answer: Applied) -> None:
        """Log the failures of a command that was written. Raises nothing: a line of the log must not cost a task."""
        try:
            for line in self._build_lines(command, answer):
                (self._refusals if line.is_refusal else self.warnings).tell(line.kind, line.says)
        except Exception:
            logger.exception("the failure of task %s could not be logged", answer.task.task_id)

    def _build_lines(self, command: AnyCommand, answer: Applied) -> Iterator[FailureLine]:
        match command:
            case Advance(delivered=delivered):
                for item in delivered:
                    if isinstance(item, Reported) and isinstance(item.outcome, RetryAsked | GaveUp):
                        yield from self._describe_failed(item.step_no, item.outcome, answer)
                if answer.task.state is TaskState.HELD and answer.task.failure is not None:
                    held = describe_held_task(answer.task, read_task_failure(answer.task.failure))
                    yield from () if held is None else (held,)
            case Report(report=report) if isinstance(report.outcome, RetryAsked | GaveUp):
                yield from self._describe_failed(report.step_no, report.outcome, answer)
            case Recover(step_no=step_no, outcome=outcome) if isinstance(outcome, RetryAsked | GaveUp):
                yield from self._describe_failed(step_no, outcome, answer)
            case FreeTask():
                yield from self._describe_lost(command, answer)

    def _describe_failed(self, step_no: int, outcome: RetryAsked | GaveUp, answer: Applied) -> Iterator[FailureLine]:
        for step in answer.steps:
            if step.step_no == step_no:
                yield describe_failed_attempt(step, outcome, answer.task, self._now())

    def _describe_lost(self, command: FreeTask, answer: Applied) -> Iterator[FailureLine]:
        fences = dict(command.steps)
        for step in answer.steps:
            if step.fence == fences.get(step.step_no, step.fence) + 1:
                yield describe_lost_attempt(step, answer.task, command.lost_by, self._now())
