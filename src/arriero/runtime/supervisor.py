"""On the leader: overdue and failed, then decide, then apply. It knows no business rule and needs no user code."""

import asyncio
import logging
from collections.abc import Sequence

from ..commands import Answer, AnyCommand, EndByLimit, Recover, Refusal
from ..core.lease import on_stuck
from ..core.supervision import on_limit_passed, on_overdue, on_starved
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
        answers = await asyncio.gather(*(self._committer.ask(command) for command in commands))
        return len(commands) - self._refusals(answers)

    def _decide(self, overdue: Overdue, term: int) -> list[AnyCommand]:
        actor, now = self._actor, overdue.now
        commands: list[AnyCommand] = []
        for step in overdue.expired:
            outcome = on_overdue(step, now, jitter=self._ports.random.random())
            commands.append(
                Recover(actor=actor, step_no=step.step_no, fence=step.fence, starved=False, outcome=outcome, term=term)
            )
        for step in overdue.starved:
            outcome = on_starved(step)
            commands.append(
                Recover(actor=actor, step_no=step.step_no, fence=step.fence, starved=True, outcome=outcome, term=term)
            )
        for loaded in overdue.past_limit:
            task = loaded.task
            commands.append(
                EndByLimit(
                    actor=actor,
                    task_no=task.task_no,
                    fence=task.fence,
                    revision=task.revision,
                    state=task.state,
                    ending=on_limit_passed(loaded),
                    term=term,
                )
            )
        commands += [on_stuck(loaded, actor, term) for loaded in overdue.stuck]
        return commands

    def _refusals(self, answers: Sequence[Answer]) -> int:
        refused = sum(isinstance(answer, Refusal) for answer in answers)
        self.refused += refused
        return refused
