"""Two versions of one workflow in some of the simulated worlds. From an instant on processes start with both, before with the old one.

Who may continue which task is judged by I88 from the history. Here the output of a task is compared with the version in its row.
"""

import asyncio
from collections.abc import Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING

import msgspec

from arriero.audit.check import Violation
from arriero.declare import context
from arriero.declare.workflows import Workflow, workflow
from arriero.model import TaskRow, TaskState
from arriero.model.processes import ProcessAbout, read_code_version
from arriero.runtime.code import Code, build_versions

from .shop import look, take

if TYPE_CHECKING:
    from .world import World

VERSIONS_KEY = "versions-0"
SHARE = 0.15  # of the seeds with operators
TASKS_MAX = 4
SUBMITTED_SECONDS_MAX = 12.0
RELEASED_SECONDS_MAX = 8.0
NAME = "changes_as_a_whole"


@workflow(name=NAME)
async def old_code(n: int, refuse: bool) -> int:
    for number in range(3):
        await take(n)
        await context.sleep((n + number) % 3)
    await look(n)
    return 1


@workflow(name=NAME, version=2, replaces=old_code)
async def new_code(n: int, refuse: bool) -> int:
    await look(n)
    for number in range(3):
        await context.sleep((n + number) % 2)
        await take(n, refuse and number == 2)
    return 2


class Versions:
    """The tasks of one world that two versions of their code begin.

    Args:
        random: a separate source, so that a world without versions is the same as before.
    """

    agents = ()
    workflows: tuple[Workflow[[int, bool], int], ...] = (new_code,)

    def __init__(self, world: "World", random: Random) -> None:
        self._world = world
        self._random = random
        self._names = [f"versioned-{number}" for number in range(random.randint(1, TASKS_MAX))]
        self._released_at = random.uniform(0, RELEASED_SECONDS_MAX)

    # --- what a process has
    def choose_codes(self, codes: Mapping[str, Code]) -> dict[str, Code]:
        """Choose the code of a process that starts now. ``codes``: of the App."""
        is_out = self._world.loop.time() >= self._released_at
        return {**codes, NAME: Code(NAME, new_code if is_out else old_code)}

    # --- what happens
    async def live(self) -> None:
        """Submit the tasks."""
        await asyncio.gather(*(self._live(number, name) for number, name in enumerate(self._names)))

    async def _live(self, number: int, name: str) -> None:
        await asyncio.sleep(self._random.uniform(0, SUBMITTED_SECONDS_MAX))
        call = new_code(number, self._random.random() < 0.3)
        await self._world.submit([self._world.submission(call, name, self._random, number, delay=0)])

    # --- judging
    def judge(self, task: TaskRow) -> Iterator[Violation]:
        """Compare the code that ended a task with the version in its row. The task may have ended or not."""
        if task.task_id not in self._names or task.state is not TaskState.PROCESSED or task.output is None:
            return
        version, _ = read_code_version(task.code_version)
        if task.output != str(version):
            yield Violation(
                "I88", task.task_id, f"code of version {task.output} has ended it, its version is {version}"
            )


def add_versions(about: str, codes: Mapping[str, Code]) -> str:
    """Add to what a process says of itself the versions of its code."""
    said = msgspec.json.decode(about, type=ProcessAbout)
    versions = {name: one for name, one in build_versions(codes, "", is_pinned=False).items() if name in said.workflows}
    return msgspec.json.encode(msgspec.structs.replace(said, versions=versions)).decode()


def draw_versions(world: "World", seed: int, *, may_have: bool) -> Versions | None:
    """Draw whether versions are a part of the world of a seed. A source of its own leaves others as they were."""
    random = Random(f"{VERSIONS_KEY}-{seed}")
    return Versions(world, random) if random.random() < SHARE and may_have else None
