"""Tasks that begin here with their submission, or with the end of the task before them in their convoy.

Their code runs speculatively, before the commit that brings their turn.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from ..core.drive import build_first_requests
from ..core.task_run import TaskRun, run_ahead, run_new
from ..declare.declared import current_run
from ..errors import StoreError
from ..model import Loaded
from ..model.answers import Applied, Submitted
from ..model.commands import Advance, Ahead, HandOver, Start, Submit
from ..model.moves import Ending, NewStep
from ..model.processes import choose_version
from ..store.contract import Busy, Unwritten
from .driver_parts import DriverHost, Parts, code_running, run_code
from .ports import Ports

logger = logging.getLogger("arriero")
OnSubmitted = Callable[[object, float], None]  # the answer, and when the batch left for the store, monotonic


KEY_SECONDS = 0.25  # a process keeps the key of a convoy so long, then others may take it
COURTESY_SECONDS = 0.1  # after it let a key go a process claims nothing: they are notified of it first, or poll
COURTESY_EVERY = 0.3  # from one such pause to the next


class ConvoyYield:
    """Lets the key of a convoy go in time. ``others``: how many other processes claim tasks."""

    def __init__(self, ports: Ports, others: Callable[[], int]) -> None:
        self._clock = ports.clock
        self._others = others
        self._until = 0.0
        self._is_waiting = False

    def should_release_key(self, key_since: float) -> bool:
        """Returns True if a key held since then must be released after this task, for other processes to take."""
        now = self._clock.monotonic()
        if not self._others() or now - key_since < KEY_SECONDS:
            return False
        if now >= self._until - COURTESY_SECONDS + COURTESY_EVERY:
            self._until = now + COURTESY_SECONDS
        return True

    def should_delay_claim(self, claim: Callable[[], None]) -> bool:
        """Returns True if a key was just released for others; then ``claim`` is called a little later."""
        left = self._until - self._clock.monotonic()
        if left <= 0 or not self._others():
            return False
        if not self._is_waiting:
            self._is_waiting = True
            self._clock.call_later(left, lambda: self._end_delay(claim))
        return True

    def _end_delay(self, claim: Callable[[], None]) -> None:
        self._is_waiting = False
        claim()


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
        self._ahead: TaskRun | None = None  # of that one, while the commit that its code ran ahead of is in transit

    def prepare(self, run: TaskRun, ending: Ending) -> HandOver | None:
        """Run the next task's code speculatively. Returns None if this process does not continue with the convoy.

        Args:
            run: the task whose turn it is.
            ending: how it is about to end.
        """
        parts = self._parts
        if not self._holder.may_hand_over(self._key_since):
            return None
        try:
            return HandOver(parts.names, self._run_ahead(run, ending), parts.context.app, parts.versions)
        except Exception:  # the end that is in transit must not be lost with it; by its turn it meets the same again
            logger.exception("the code of the task behind %s could not be run ahead of its turn", run.task.task_id)
            return HandOver(parts.names, app=parts.context.app, versions=parts.versions)

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


class SpeculativeStarts:
    """Begins tasks with their submission.

    Args:
        may_begin: returns True if this process has room for one more task of the workflow with this name.
        holder: called with the tasks that have begun here.
    """

    def __init__(self, parts: Parts, may_begin: Callable[[str], bool], holder: DriverHost) -> None:
        self._parts = parts
        self._may_begin = may_begin
        self._holder = holder
        self._is_abandoned = False
        self._unsure: list[tuple[int, tuple[NewStep, ...]]] = []  # asked for with submissions whose answer was lost
        self._asked_about: list[
            tuple[int, tuple[NewStep, ...]]
        ] = []  # of those, what the last look for news may have brought
        self.under_way = 0  # submissions in transit with which tasks begin here

    def begin_with(self, command: Submit) -> tuple[Submit, OnSubmitted | None]:
        """Run a task's code speculatively. Returns the submission that begins it in the same commit, and the callback for its answer.

        The submission is unchanged where other tasks come first, and where the code cannot run before the commit.
        """
        if command.convoy is not None or command.delay > 0 or current_run() is not None:
            return command, None
        if not self._may_begin(command.workflow):
            return command, None
        parts = self._parts
        try:
            loop = asyncio._get_running_loop()
            code_running[loop] = command
            try:
                run = run_new(command, parts.codes, parts.context.store.now())
            finally:
                del code_running[loop]
            requests = () if run is None else build_first_requests(run, parts.surroundings)
        except Exception:  # the submission must not be lost with it; once it is claimed it meets the same again
            logger.exception("the code of task %s could not be run with its submission", command.task_id)
            return command, None
        if run is None:
            return command, None
        if run.broken is not None:
            run.close()
            return command, None
        opened = parts.agents.place(requests, command.priority)
        self.under_way += 1
        reading = parts.agents.registry.begin_reading()
        started = replace(
            command, start=Start(parts.context.process_no, opened, choose_version(parts.versions, command.workflow))
        )
        return started, partial(self._process_submission_answer, run, opened, reading)

    def _process_submission_answer(
        self, run: TaskRun, opened: tuple[NewStep, ...], reading: int, answer: object, left_at: float
    ) -> None:
        self.under_way -= 1
        try:
            self._begin_submitted(run, opened, answer, left_at)
        finally:
            self._parts.agents.registry.end_reading(reading)

    def _begin_submitted(self, run: TaskRun, opened: tuple[NewStep, ...], answer: object, left_at: float) -> None:
        begun = answer.begun if isinstance(answer, Submitted) and not self._is_abandoned else None
        if begun is not None and self._holder.begin(run, begun.task, begun.dispatches, left_at=left_at):
            reserved = [new.agent for new in opened if new.take]
            if len(reserved) != len(begun.dispatches):  # a breaker let none through
                self._parts.agents.give_back_unused(reserved, begun.dispatches, run.task.priority)
            return
        run.close()
        if isinstance(answer, StoreError) and not isinstance(answer, Unwritten | Busy):
            self._unsure.append(
                (run.task.priority, opened)
            )  # it may have begun; then the news bring it, and its attempts take these places
        else:
            self._give_back(run.task.priority, opened)
        # Should it have begun although this process was abandoned, it is among the news.
        if not self._is_abandoned and isinstance(answer, Submitted) and answer.created:
            self._holder.find_submitted(answer.task_no)

    # --- answers that were lost
    def count_lost_answers(self) -> int:
        """Count the answers lost by now. The query that follows need not see answers lost after this."""
        return len(self._unsure)

    def release_places_before(self, lost_before: int) -> None:
        """Give back places that the previous query kept. The last query was sent after ``lost_before`` answers were lost."""
        known_by_now, self._asked_about = self._asked_about, self._unsure[:lost_before]
        del self._unsure[:lost_before]
        for priority, opened in known_by_now:
            self._give_back(priority, opened)

    def _give_back(self, priority: int, opened: tuple[NewStep, ...]) -> None:
        self._parts.agents.give_back((new.agent for new in opened if new.take), priority)

    def abandon(self) -> None:
        """Begin no task whose submission is answered from now on: other processes own it."""
        self._is_abandoned = True
