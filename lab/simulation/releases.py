"""A release in some of the simulated worlds: from an instant on, every process that takes a task up has code with a patch in it.

The code of the release before has no such call. A task must keep the branch in which it came by, in every process.
"""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, ClassVar

import msgspec

from arriero.audit.check import Violation
from arriero.declare import context
from arriero.declare.workflows import Workflow, workflow
from arriero.model import TaskRow, TaskState
from arriero.model.failures import read_task_failure
from arriero.model.signals import is_patch, name_patch

from .shop import look, take

if TYPE_CHECKING:
    from .world import World

RELEASES_KEY = "releases-0"
SHARE = 0.2  # of the seeds with operators
TASKS_MAX = 4
SUBMITTED_SECONDS_MAX = 10.0
RELEASED_SECONDS_MAX = 12.0
PATCHES = ("first", "second")

Answers = dict[str, list[bool]]  # by patch, what each call was answered


class Release:
    """Whether the release is out. Code asks when it begins to run: a process keeps its code until its end."""

    is_out: ClassVar[bool] = False


async def go_by(n: int, name: str, knows_patches: bool) -> list[bool]:
    """Come by a change of the code several times."""
    answers = []
    for number in range(3):
        await take(n)
        is_new = knows_patches and context.patched(name)
        answers.append(is_new)
        await (look(n) if is_new else context.sleep((n + number) % 2))
    return answers


@workflow
async def changes_in_turn(n: int, refuse: bool) -> Answers:
    knows_patches = Release.is_out
    return {name: await go_by(n, name, knows_patches) for name in PATCHES}


@workflow
async def changes_side_by_side(n: int, refuse: bool) -> Answers:
    knows_patches = Release.is_out
    answers = await asyncio.gather(*(go_by(n, name, knows_patches) for name in PATCHES))
    return dict(zip(PATCHES, answers, strict=True))


@workflow
async def changes_before_a_refusal(n: int, refuse: bool) -> Answers:
    knows_patches = Release.is_out
    answers = {PATCHES[0]: await go_by(n, PATCHES[0], knows_patches)}
    await take(n, refuse)
    return answers


class Releases:
    """The tasks of one world over which a release comes.

    Args:
        random: a separate source, so that a world without a release is the same as before.
    """

    agents = ()
    workflows: tuple[Workflow[[int, bool], Answers], ...] = (
        changes_in_turn,
        changes_side_by_side,
        changes_before_a_refusal,
    )

    def __init__(self, world: "World", random: Random) -> None:
        self._world = world
        self._random = random
        self._names = [f"changes-{number}" for number in range(random.randint(1, TASKS_MAX))]
        Release.is_out = False

    # --- what happens
    async def live(self) -> None:
        """Submit the tasks, and release the changed code at some instant."""
        await asyncio.gather(self._release(), *(self._live(number, name) for number, name in enumerate(self._names)))

    async def _release(self) -> None:
        await asyncio.sleep(self._random.uniform(0, RELEASED_SECONDS_MAX))
        Release.is_out = True

    async def _live(self, number: int, name: str) -> None:
        await asyncio.sleep(self._random.uniform(0, SUBMITTED_SECONDS_MAX))
        call = self._random.choice(self.workflows)(number, self._random.random() < 0.5)
        await self._world.submit([self._world.submission(call, name, self._random, number, delay=0)])

    # --- judging
    def judge(self, task: TaskRow) -> Iterator[Violation]:
        """Compare what the code of a task was answered with its marks. The task may have ended or not."""
        if task.task_id not in self._names:
            return
        if task.state is TaskState.HELD and task.failure is not None:
            failure = read_task_failure(task.failure)
            if failure.code == "replay":
                yield Violation("I85", task.task_id, f"it left its branch: {failure.reason}")
        if task.state is not TaskState.PROCESSED or task.output is None:
            return
        marks = {step.name for step in self._world.store.load_as_is(task.task_no).life if is_patch(step)}
        for name, answers in msgspec.json.decode(task.output, type=Answers).items():
            if set(answers) != {name_patch(name) in marks}:
                yield Violation("I85", task.task_id, f"its code was answered {answers}, and its marks are {marks}")


def draw_releases(world: "World", seed: int, *, may_have: bool) -> Releases | None:
    """Draw whether a release is part of the world of a seed. A source of its own leaves others as they were."""
    random = Random(f"{RELEASES_KEY}-{seed}")
    return Releases(world, random) if random.random() < SHARE and may_have else None
