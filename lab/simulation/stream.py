"""Worlds with more work than room: a stream of the highest priority that never ends, and a few tasks of lower ones.

The oracle reads the history alone and computes with separate numbers: no task begins while another one waits that is so
much older that its age outweighs the other's priority, and each begins once the bound for its priority has passed.
"""

import asyncio
from random import Random

import msgspec

from arriero.audit.check import Violation
from arriero.client.app import App
from arriero.declare.attempt import Attempt
from arriero.declare.steps import Agent
from arriero.declare.workflows import workflow
from arriero.model.commands import Submit
from arriero.runtime.settings import Settings

from .faults import Faults
from .world import FAULT_SECONDS, World

SHARE = 0.02  # of the seeds: each takes as long as ten others
HEAD_START_SECONDS = 600  # of each step of priority, as the documents promise
WORK_SECONDS = 60.0
EVERY_SECONDS = 16.0  # a task of the highest priority comes; three nodes with one task each end one in twenty seconds
SECONDS_MAX = 3_000.0
LOOK_SECONDS = 10.0  # between two looks whether all has begun
LOW = 2
QUEUED = 6  # tasks of the highest priority that wait when the first of a lower one comes

grinder = Agent("grinder", max_in_flight=1)


@grinder.step(complete_within=180)
async def grind(attempt: Attempt, n: int) -> int:
    await asyncio.sleep(WORK_SECONDS)
    return n


@workflow
async def grinding(n: int) -> int:
    return await grind(n)


class StreamWorld(World):
    """See the module. Processes crash and freeze at its beginning, as elsewhere."""

    def __init__(self, seed: int) -> None:
        random = Random(f"stream-{seed}")
        super().__init__(seed, faults=Faults(crash=random.choice((0.0, 0.05)), freeze=random.choice((0.0, 0.05))))
        self.app = App("simulated", agents=(grinder,), workflows=(grinding,))
        self._stream_random = random

    def build_settings(self) -> Settings:
        """Each node holds one task until it ends, so that the others wait."""
        return Settings(
            lease_seconds=12,
            poll_seconds=2,
            supervise_seconds=2,
            leader_seconds=16,
            progress_seconds=300,
            linger_seconds=2 * WORK_SECONDS,
            batch_max=20,
            tasks_max=1,
        )

    async def play(self) -> None:
        await self.submit([self._submission(f"first-{number}", 9) for number in range(QUEUED)])
        low = [self._submission(f"low-{number}", self._stream_random.choice((7, 8, 8, 8))) for number in range(LOW)]
        clients = [self.spawn(self._submit_late(command, index), 0)[0] for index, command in enumerate(low)]
        stream = self.spawn(self._flow(), 0)[0]
        nemesis = self.spawn(self.strike_nodes(), 0)[0]
        await asyncio.gather(nemesis, *clients)
        for _ in range(round(SECONDS_MAX / LOOK_SECONDS)):
            if self._have_begun(low):
                break
            await asyncio.sleep(LOOK_SECONDS)
        stream.cancel()
        self.violations += self.find_passed_over()
        if not self._have_begun(low):
            self.violations.append(Violation("ageing", "", f"a task has not begun after {SECONDS_MAX:g} s"))

    async def _submit_late(self, command: Submit, index: int) -> None:
        await asyncio.sleep(FAULT_SECONDS * index)
        await self.submit([command])

    async def _flow(self) -> None:
        number = 0
        while True:
            number += 1
            await self.submit([self._submission(f"high-{number}", 9)])
            await asyncio.sleep(self._stream_random.uniform(0.5, 1.5) * EVERY_SECONDS)

    def _submission(self, task_id: str, priority: int) -> Submit:
        command = self.submission(grinding(1), task_id, self._stream_random, 0)
        return msgspec.structs.replace(command, priority=priority, reply_to=None)  # nobody reads its messages

    def _have_begun(self, commands: list[Submit]) -> bool:
        begun = {task.task_id for task in self.store.tasks.values() if task.started_at is not None}
        return all(command.task_id in begun for command in commands)

    def find_passed_over(self) -> list[Violation]:
        """Find tasks that began although an older one, whose age outweighs their priority, was waiting."""
        tasks = [
            (task.task_id, task.priority, task.submitted_at, task.started_at) for task in self.store.tasks.values()
        ]
        found = []
        for name, priority, due_at, began_at in tasks:
            if began_at is None:
                continue
            for other, of_other, other_due_at, other_began_at in tasks:
                has_waited = other_due_at <= began_at and (other_began_at is None or other_began_at > began_at)
                head_start = (priority - of_other) * HEAD_START_SECONDS * 1_000_000
                if has_waited and other_due_at + head_start < due_at:
                    said = f"it began at {began_at} before {other}, which was due {due_at - other_due_at} us earlier"
                    found.append(Violation("ageing", name, said))
        return found


def is_stream(seed: int) -> bool:
    """Returns True if the seed's world is one of these."""
    return Random(f"is-stream-{seed}").random() < SHARE
