"""Batches of convoys in some of the simulated worlds: what many tasks of a key were submitted with, one of them handles.

Whether each message went into one batch, in order, and ended with it, is judged by I87 from the history. Here the rows are compared.
"""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

import msgspec

from arriero.audit.check import Violation
from arriero.declare.workflows import Workflow, workflow
from arriero.model import ConvoyState, TaskRow, TaskState, Turn, Verb
from arriero.model.policies import ConvoyPolicy, Supervision

from .people import MENDING
from .shop import reserve, take

if TYPE_CHECKING:
    from .world import World

BATCHES_KEY = "batches-274"  # with it, the seeds at which the tests of breakages begin have no batches
SHARE = 0.15  # of the seeds with operators
MOST = 3
MESSAGES_MAX = 9
SUBMITTED_SECONDS = 12.0
OPERATED_SECONDS = 22.0
VERBS = (Verb.CANCEL, Verb.COMPENSATE, Verb.RESUBMIT, Verb.RESUBMIT, Verb.PAUSE)


class _Lines(msgspec.Struct):
    lines: list[int]


_read_lines = msgspec.json.Decoder(_Lines).decode


@workflow(
    convoy_policy=ConvoyPolicy(handle_batch=MOST, batch_within=2), supervision=Supervision(attempts=2, then="hold")
)
async def handles_lines(lines: list[int]) -> list[int]:
    await reserve(await take(len(lines)), sum(lines) % 5 == 0)
    return lines


@workflow(convoy_policy=ConvoyPolicy(head="skip", handle_batch=MOST))
async def handles_what_waits(lines: list[int]) -> list[int]:
    await reserve(await take(len(lines)), sum(lines) % 4 == 0)
    return lines


class Batches:
    """The producers of one world, the operators who act on messages, and what must be so at the end.

    Args:
        random: a separate source, so that a world without batches is the same as before.
    """

    agents = ()
    workflows: tuple[Workflow[[list[int]], list[int]], ...] = (handles_lines, handles_what_waits)

    def __init__(self, world: "World", random: Random) -> None:
        self._world = world
        self._random = random
        self._sent: dict[str, int] = {}

    # --- what happens
    async def live(self) -> None:
        """Submit messages to two keys, and let operators act on them."""
        producers = [self._produce(one, f"batch-{at}") for at, one in enumerate(self.workflows) for _ in range(2)]
        await asyncio.gather(*producers, self._operate())

    async def _produce(self, chosen: Workflow[[list[int]], list[int]], key: str) -> None:
        for _ in range(self._random.randint(2, MESSAGES_MAX)):
            await asyncio.sleep(self._random.choice((0, 0, self._random.uniform(0, SUBMITTED_SECONDS / 4))))
            number = len(self._sent) + 1
            task_id = f"{key}-{number}"
            self._sent[task_id] = number
            delay = self._random.choice((0, 0, 0, 0, 2))
            command = self._world.submission(chosen([number]), task_id, self._random, number, delay=delay, convoy=key)
            await self._world.submit([command] * self._random.choice((1, 1, 2)))

    async def _operate(self) -> None:
        while self._world.loop.time() < OPERATED_SECONDS:
            await asyncio.sleep(self._random.uniform(0.5, 3))
            ours = [no for no, task in sorted(self._world.store.tasks.items()) if task.task_id in self._sent]
            if ours:
                await self._world.people.ask(self._random.choice(ours), self._random.choice(VERBS))

    # --- the end of a run
    def keeps_waiting(self, task: TaskRow) -> bool:
        """Whether a task waits for a batch that only an operator can move."""
        if task.task_id not in self._sent or task.convoy_no is None:
            return False
        head = self._world.store.tasks.get(task.batch_no or 0)
        if task.turn is Turn.BATCHED:
            return head is not None and head.state is TaskState.HELD
        return task.turn is Turn.WAITING and self._world.store.convoys[task.convoy_no].state is ConvoyState.STOPPED

    def is_at_rest(self) -> bool:
        """Whether every message has ended, with its batch."""
        ours = (task for task in self._world.store.tasks.values() if task.task_id in self._sent)
        return all(task.ended_at is not None and task.turn is not Turn.WAITING for task in ours)

    async def mend(self) -> None:
        """Do something about every batch that is held."""
        for task in list(self._world.store.tasks.values()):
            if task.task_id in self._sent and task.state is TaskState.HELD:
                await self._world.people.ask(task.task_no, self._random.choice(MENDING))

    # --- judging
    def judge(self, task: TaskRow) -> Iterator[Violation]:
        """Compare the arguments of a task that handles a batch with the messages that were put into it."""
        store = self._world.store
        if task.task_id not in self._sent or task.batch_no is None:
            return
        if self._world.damage is not None and store.tasks.get(self._world.damage.task_no, task).task_id in self._sent:
            return
        if task.batch_no != task.task_no:
            head = store.tasks.get(task.batch_no)
            if head is not None and head.batch_no != head.task_no:
                yield Violation("I87", task.task_id, f"its message is in {head.task_id}, which is no batch")
            return
        got = _read_lines(store.load_as_is(task.task_no).arguments).lines
        members = [one for one in store.tasks.values() if one.batch_no == task.task_no]
        members.sort(key=lambda one: (one.task_no != task.task_no, one.rank or 0, one.place or 0))
        sent = [self._sent[one.task_id] for one in members]
        if len(got) > MOST or len(got) != len(set(got)):
            yield Violation("I87", task.task_id, f"its code got {got}")
        if [number for number in got if number in sent] != sent:
            yield Violation("I87", task.task_id, f"its code got {got}, its messages are {sent}")


def draw_batches(world: "World", seed: int, *, may_have: bool) -> Batches | None:
    """Draw whether batches are part of the world of a seed. A source of its own leaves others as they were."""
    random = Random(f"{BATCHES_KEY}-{seed}")
    return Batches(world, random) if random.random() < SHARE and may_have else None
