"""Sends submissions to the store, a limited number at a time. Some tasks begin here in the same commit."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..model.answers import Refusal, Submitted
from ..model.commands import Submit
from ..store.committer import CommitCounts, Committer
from . import crash_points
from .admission_queue import AdmissionQueue
from .ports import Ports

if TYPE_CHECKING:
    from ..store.state_store import StateStore
    from .node import Node  # only who runs an App pays for loading it

ON_THE_WAY_MAX = 400  # enough for large commits, few enough that a high priority does not wait long behind them


class Submissions:
    """The submissions of one App. At most ``ON_THE_WAY_MAX`` are unanswered, not counting those sent again after another
    transaction's end.

    Args:
        find_node: finds the node of this process, which may begin with a task immediately; None: nothing runs here.
        counts: of its commits, for monitors.
    """

    def __init__(
        self,
        store: "StateStore",
        ports: Ports,
        find_node: "Callable[[], Node | None]",
        counts: CommitCounts | None = None,
    ) -> None:
        self._find_node = find_node
        self._admission_queue = AdmissionQueue(lambda: ON_THE_WAY_MAX - self._committer.on_the_way)
        self._committer: Committer[Submit, Submitted | Refusal] = Committer(
            crash_points.wrap_write(store.submit, "before_submit_commit", "after_submit_commit"),
            sleep=ports.clock.sleep,
            monotonic=ports.clock.monotonic,
            repeat=lambda _: False,
            on_trouble=lambda _: None,
            on_batch=self._admission_queue.admit,
            counts=counts,
        )
        self._committer.start()

    async def ask(self, command: Submit) -> Submitted | Refusal:
        """Commit a submission and wait for its answer. Raises StoreError."""
        await self._admission_queue.enter(command.priority, command.convoy)
        # Until the command is put nothing may be waited for: the place is used up, and the line may be closing.
        node = self._find_node()
        if node is None:
            return await self._committer.ask(command)
        begun, on_answer = node.begin_with(command)
        if on_answer is None:
            try:
                return await self._committer.ask(begun)
            finally:  # it may be there also when its answer was lost
                node.hint()
        return await self._committer.ask(begun, lambda answer: on_answer(answer, self._committer.left_at))

    def count_waiting(self) -> int:
        """Count the submissions without an answer: those that wait for a place, and those that are in transit."""
        return self._admission_queue.count_waiting() + self._committer.on_the_way

    def hurry(self) -> None:
        """Send nothing more. Waiting callers are refused immediately, except those whose commit is in transit."""
        self._committer.hurry()

    async def close(self) -> None:
        """Commit what waits, take nothing more."""
        try:
            await self._admission_queue.close()
        finally:
            await self._committer.stop()
