"""Tags in a world: tasks come with them, operators change them at any instant, and workflow code sees those it came with."""

import asyncio
import random as random_module
from typing import TYPE_CHECKING, Any

import msgspec

from arriero.audit.check import Violation
from arriero.declare.workflows import Workflow
from arriero.model import Verb
from arriero.model.tags import encode_changes

from .shop import tagged

if TYPE_CHECKING:
    from .world import World

WORLDS_SHARE = 0.3  # of the seeds with operators
TASKS_SHARE = 0.5  # of the tasks there
CHANGES = ({"tenant": "t9"}, {"tenant": "t0", "more": "x"}, {"more": "y"})
REMOVED = ("tenant", "more")


class Tagging:
    """What is tagged in a world, and who changes it. It draws from its own source of chance."""

    def __init__(self, world: "World", *, is_on: bool) -> None:
        self._world = world
        self._random = random_module.Random(f"tags-{world.seed}")
        self.is_on = is_on and self._random.random() < WORLDS_SHARE

    def choose(self, workflow: Workflow[..., Any]) -> Workflow[..., Any]:
        """The workflow of the next task."""
        return tagged if self.is_on and self._random.random() < TASKS_SHARE else workflow

    def tags_of(self, task_id: str) -> dict[str, str] | None:
        """The tags that a task comes with; they follow from its id."""
        number = task_id.rpartition("-")[2]
        return {"tenant": f"t{int(number) % 3}"} if self.is_on and number.isdigit() else None

    async def change(self, until: float) -> None:
        """Change tags of tasks at any time, also of those that have ended."""
        while self._world.loop.time() < until:
            await asyncio.sleep(self._random.uniform(0.1, 1))
            numbers = sorted(self._world.store.tasks)
            if numbers:
                put = self._random.choice(CHANGES)
                remove = tuple(name for name in REMOVED if name not in put and self._random.random() < 0.5)
                await self._world.people.ask(self._random.choice(numbers), Verb.TAG, tags=encode_changes(put, remove))

    def check(self) -> list[Violation]:
        """The code of a task saw the tags that it came with, at its beginning and at its end."""
        found: list[Violation] = []
        for task in self._world.store.tasks.values():
            if task.workflow == tagged.name and task.output is not None:
                seen, submitted = msgspec.json.decode(task.output), self.tags_of(task.task_id) or {}
                if seen != [submitted, submitted]:
                    found.append(
                        Violation("bug", task.task_id, f"its code saw the tags {seen}, it came with {submitted}")
                    )
        return found
