"""On the leader: overdue and failed, then decide, then apply. It knows no business rule and needs no user code."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from ..commands import Answer, AnyCommand, Applied, EndByLimit, Outcome, Recover
from ..core.lease import on_stuck
from ..core.supervision import on_limit_passed, on_overdue, on_starved
from ..model import Instant, Loaded, StepRow
from ..store.base import Overdue, StateStore
from ..store.committer import Committer
from .ports import Ports
from .settings import Settings

logger = logging.getLogger("arriero")


class Supervisor:
    """The Supervisor of one process; it acts only while it leads."""

    def __init__(
        self,
        *,
        store: StateStore,
        committer: Committer[AnyCommand, Answer],
        ports: Ports,
        settings: Settings,
        actor: str,
    ) -> None:
        self._store = store
        self._committer = committer
        self._ports = ports
        self._settings = settings
        self._actor = actor
        self.refused = 0

    async def tick(self, term: int) -> int:
        """One pass under a term; answers how many commands were written."""
        overdue = await self._store.load_overdue(self._settings.batch_max, self._settings.progress_seconds)
        commands = self._decide(overdue, term)
        asked = (self._committer.ask(command) for command in commands)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return len(commands) - self._refusals(answers)

    def _decide(self, overdue: Overdue, term: int) -> list[AnyCommand]:
        decisions: list[Callable[[], AnyCommand]] = []
        decisions += [partial(self._on_expired, step, overdue.now, term) for step in overdue.expired]
        decisions += [partial(self._on_starved, step, term) for step in overdue.starved]
        decisions += [partial(self._end_by_limit, loaded, term) for loaded in overdue.past_limit]
        decisions += [partial(on_stuck, loaded, self._actor, term) for loaded in overdue.stuck]
        return [command for decide in decisions if (command := self._decided(decide)) is not None]

    def _decided(self, decide: Callable[[], AnyCommand]) -> AnyCommand | None:
        """A row nobody can decide about (another release wrote it) must not keep the others from their recovery."""
        try:
            return decide()
        except Exception:
            logger.exception("a row could not be decided about; it is left as it is")
            return None

    def _on_expired(self, step: StepRow, now: Instant, term: int) -> Recover:
        outcome = on_overdue(step, now, jitter=self._ports.random.random())
        return self._recover(step, outcome, term, starved=False)

    def _on_starved(self, step: StepRow, term: int) -> Recover:
        return self._recover(step, on_starved(step), term, starved=True)

    def _recover(self, step: StepRow, outcome: Outcome, term: int, *, starved: bool) -> Recover:
        return Recover(
            actor=self._actor, step_no=step.step_no, fence=step.fence, starved=starved, outcome=outcome, term=term
        )

    def _end_by_limit(self, loaded: Loaded, term: int) -> EndByLimit:
        task = loaded.task
        return EndByLimit(
            actor=self._actor,
            task_no=task.task_no,
            fence=task.fence,
            revision=task.revision,
            state=task.state,
            ending=on_limit_passed(loaded),
            term=term,
        )

    def _refusals(self, answers: Sequence[Answer | BaseException]) -> int:
        for answer in answers:
            if isinstance(answer, BaseException):
                logger.error("a decision of the Supervisor could not be written: %r", answer)
        refused = sum(not isinstance(answer, Applied) for answer in answers)
        self.refused += refused
        return refused
