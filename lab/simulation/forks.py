"""Forks in some of the simulated worlds: operators fork any task from any step, at any instant.

Whether a copy is what was done, and is undone by its own task alone, is judged by I86 from the history. Here the rows are compared. That
a fork agrees with its copies shows in I21: code that disagrees with its record would hold it.
"""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from arriero.audit.check import Violation
from arriero.core.forks import build_fork, build_fork_submission, find_source
from arriero.declare.workflows import Workflow
from arriero.model import STEP_BITS, Loaded, StepKind, StepState, TaskRow
from arriero.model.commands import Fork
from arriero.store.readable import refuse_unreadable_task

from .callbacks import Callbacks
from .questions import Questions
from .signals import Signals

if TYPE_CHECKING:
    from .world import World

FORKS_KEY = "forks-335"  # with it, the seeds at which the tests of breakages begin have no forks
SHARE = 0.15  # of the seeds with operators
FORKS_MAX = 6
FORKED_SECONDS = 22.0


class Forks:
    """The operators of one world who fork tasks.

    Args:
        random: a separate source, so that a world without forks is the same as before.
    """

    agents = ()
    workflows: tuple[Workflow[[int, bool], object], ...] = ()

    def __init__(self, world: "World", random: Random) -> None:
        self._world = world
        self._random = random
        self._left = random.randint(1, FORKS_MAX)

    # --- what happens
    async def live(self) -> None:
        """Fork tasks, whether or not it makes sense."""
        while self._left and self._world.loop.time() < FORKED_SECONDS:
            await asyncio.sleep(self._random.uniform(0.2, 2))
            # Code that reads the state of its convoy finds another one outside of it.
            tasks = [task for _, task in sorted(self._world.store.tasks.items()) if self._may_be_forked(task)]
            if tasks:
                await self._fork(self._world.store.load_as_is(self._random.choice(tasks).task_no))

    def _may_be_forked(self, task: TaskRow) -> bool:
        damage = self._world.damage
        is_damaged = damage is not None and damage.task_no == task.task_no
        is_alone = task.convoy_no is None and task.ledger_no is None and task.workflow not in self._find_awaiting()
        return not is_damaged and is_alone and task.opened_count > 0

    def _find_awaiting(self) -> set[str]:
        """The workflows whose tasks wait for others, who know nothing of a fork."""
        parts = [part for part in self._world.waiting if isinstance(part, Signals | Callbacks | Questions)]
        return {one.name for part in parts for one in part.workflows}

    async def _fork(self, loaded: Loaded) -> None:
        steps = [step for step in refuse_unreadable_task(loaded).life if step.kind is not StepKind.COMPENSATION]
        if not steps:
            return
        fork = build_fork(loaded, self._random.choice(steps), self._world.store.store_id, by="ana", reason="again")
        if isinstance(fork, Fork):
            self._left -= 1
            # Tags follow from the number at the end of an id.
            name = f"{self._world.unique('fork')}-of-{loaded.task.task_id}"
            await self._world.submit([build_fork_submission(loaded, fork, name)])

    # --- judging
    def judge(self, task: TaskRow) -> Iterator[Violation]:
        """Compare the copies of a task with the rows of the tasks that have done them. The task may have ended or not."""
        if task.forked_from is None:
            return
        loaded = self._world.store.load_as_is(task.task_no)
        undone = {step.undoes for step in loaded.steps if step.undoes is not None}
        for step in loaded.steps:
            if (number := find_source(step)) is None:
                continue
            if step.step_no in undone or step.compensation is not None:
                yield Violation("I86", task.task_id, f"its copy {step.ordinal} is undone, or may be")
            if number >> STEP_BITS not in self._world.store.tasks:
                continue
            source = self._world.store.load_as_is(number >> STEP_BITS).find_step(number)
            if source is None or (source.kind, source.name, source.key) != (step.kind, step.name, step.key):
                yield Violation("I86", task.task_id, f"its copy {step.ordinal} is of a step that is another one")
                continue
            is_judged = step.state is StepState.COMPLETED and step.kind is not StepKind.TIMER
            if is_judged and (source.state, source.result) != (step.state, step.result):
                yield Violation("I86", task.task_id, f"its copy {step.ordinal} has another result than the step")


def draw_forks(world: "World", seed: int, *, may_have: bool) -> Forks | None:
    """Draw whether tasks are forked in the world of a seed. A source of its own leaves others as they were."""
    random = Random(f"{FORKS_KEY}-{seed}")
    return Forks(world, random) if random.random() < SHARE and may_have else None
