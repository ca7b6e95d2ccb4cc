"""Gathers the batches of tasks that this process has claimed, before their code runs."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from ..core.batches import must_gather
from ..model import Loaded
from ..model.answers import Answer, Applied, Refusal
from ..model.commands import GatherBatch
from ..model.moves import Reported
from .process_context import ProcessContext


class _TakeOver(Protocol):
    def __call__(self, loaded: Loaded, *, key_since: float | None = None) -> None: ...


class BatchGatherer:
    """Gathers batches.

    Args:
        take_over: called with a task whose batch is gathered, and that this process holds.
        reload: called with the number of a task that others have changed.
    """

    def __init__(
        self, context: ProcessContext, *, take_over: _TakeOver, reload: Callable[[int, tuple[Reported, ...]], None]
    ) -> None:
        self._context = context
        self._take_over = take_over
        self._reload = reload
        self.under_way: set[int] = set()  # tasks whose command is in transit

    def gather(self, loaded: Loaded, key_since: float | None) -> bool:
        """Gather the batch of a task that is ours. Returns False if it has none to gather: its code may run."""
        task = loaded.task
        if not must_gather(task):
            return False
        if task.task_no not in self.under_way:
            assert task.convoy_no is not None
            self.under_way.add(task.task_no)
            command = GatherBatch(
                actor=self._context.actor,
                task_no=task.task_no,
                process_no=self._context.process_no,
                fence=task.fence,
                revision=task.revision,
                convoy_no=task.convoy_no,
            )
            self._context.committer.put(command, partial(self._process_answer, command, key_since))
        return True

    def _process_answer(self, command: GatherBatch, key_since: float | None, answer: Answer | BaseException) -> None:
        if command.task_no not in self.under_way:
            return  # this process was abandoned
        self.under_way.discard(command.task_no)
        if isinstance(answer, Applied):
            self._context.on_applied(command, answer)
            if answer.next is not None:
                self._take_over(answer.next, key_since=key_since)
        elif isinstance(answer, Refusal):
            self._reload(command.task_no, ())
        # After any other answer it is unknown what was written: the task is among our news.
