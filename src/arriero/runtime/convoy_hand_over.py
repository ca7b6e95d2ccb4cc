"""Goes on with the next task of a convoy. Its code may run speculatively, so that it begins in the commit that ends the task before."""

import logging

from ..answers import Applied
from ..commands import Advance, Ahead, Ending, HandOver
from ..core.drive import build_first_requests
from ..core.speculative_run import run_ahead
from ..core.task_run import TaskRun
from ..model import Loaded
from .driver_parts import DriverHost, Parts
from .running_code import run_code

logger = logging.getLogger("arriero")


class ConvoyHandOver:
    """The hand-over of a convoy with one command that ends its current task.

    Args:
        key_since: since when this process has had the key of the convoy, on its own clock.
        behind: the next task of the convoy, if it is known.
    """

    def __init__(self, parts: Parts, holder: DriverHost, *, key_since: float, behind: Loaded | None) -> None:
        self._parts = parts
        self._holder = holder
        self._key_since = key_since
        self._behind = behind
        self._ahead: TaskRun | None = None  # of that one, while the commit that its code ran ahead of is on its way

    def prepare(self, run: TaskRun, ending: Ending) -> HandOver | None:
        """Run the next task's code speculatively. Returns None if this process does not go on with the convoy.

        Args:
            run: the task whose turn it is.
            ending: how it is about to end.
        """
        parts = self._parts
        if not self._holder.may_hand_over(self._key_since):
            return None
        try:
            return HandOver(parts.names, self._run_ahead(run, ending), parts.context.app)
        except Exception:  # the end that is on its way must not be lost with it; by its turn it meets the same again
            logger.exception("the code of the task behind %s could not be run ahead of its turn", run.task.task_id)
            return HandOver(parts.names, app=parts.context.app)

    def _run_ahead(self, run: TaskRun, ending: Ending) -> Ahead | None:
        """Run the code of the next task and take places for its first requests; None: it begins without them."""
        parts, behind = self._parts, self._behind
        if behind is None:
            return None
        ahead = run_code(
            behind.task,
            lambda: run_ahead(behind, run.convoy, ending, parts.codes, parts.context.store.now(), parts.context.app),
        )
        if ahead is None or ahead.convoy is None:
            return None
        requests = build_first_requests(ahead, parts.surroundings)
        if ahead.broken is not None:
            ahead.close()
            return None
        self._ahead = ahead
        return Ahead(
            ahead.task.task_no, ahead.task.link, ahead.convoy.value, parts.agents.place(requests, ahead.task.priority)
        )

    def go_on(self, command: Advance, answer: Applied) -> None:
        """Drive the next task if it is ours, from its speculative run or from its record."""
        key_since, behind = self._key_since, answer.following
        ahead = self._ahead
        if ahead is not None and answer.next is not None and answer.begun is not None:
            self._ahead = None
            if self._holder.begin(ahead, answer.next, answer.begun, key_since=key_since, behind=behind):
                self._parts.agents.give_back_unused(_list_reserved(command), answer.begun, answer.next.task.priority)
                return
            self._ahead = ahead
        self.give_up(command)
        if answer.next is not None:
            self._holder.take_over(answer.next, key_since=key_since, behind=behind)

    def give_up(self, command: Advance) -> None:
        """Drop the speculative run of a command that was not applied, and free its places."""
        if self._ahead is None:
            return
        priority = self._ahead.task.priority
        self.close()
        self._parts.agents.give_back(_list_reserved(command), priority)

    def close(self) -> None:
        """Drop the speculative run."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None


def _list_reserved(command: Advance) -> list[str]:
    """Agents whose places a command has reserved for the first requests of the next task."""
    ahead = None if command.hand_over is None else command.hand_over.ahead
    return [] if ahead is None else [new.agent for new in ahead.opened if new.take]
