"""Tasks that continue in another run, in some of the simulated worlds, while signals come for them at any instant.

What the code got goes from run to run with its arguments. So at the end it can be compared with all that was kept for the
task, run by run and in the order of the commits.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from arriero.audit.check import Violation
from arriero.declare.signals import collect
from arriero.declare.workflows import ContinueAs, Workflow, workflow
from arriero.errors import StoreError
from arriero.model import SignalRow, TaskRow, TaskState
from arriero.model.answers import Refusal, SignalKept
from arriero.model.commands import SendSignal, Submit
from arriero.model.policies import ConvoyPolicy
from arriero.model.signals import PASSED_ON

from .shop import look, take
from .signals import Got, Signals, approved, is_fit
from .store import SimulatedStore

if TYPE_CHECKING:
    from .world import World

RUNS_KEY = "runs-159"  # with it, the seeds at which the tests of breakages begin have no such tasks
SHARE = 0.2  # of the seeds with operators
TASKS_MAX = 3
WITHIN_SECONDS = 2.0
CONVOY = "continues"  # of those that continue in their turn


@workflow
async def continues_after_each(n: int, refuse: bool, got: Got | None = None) -> Got:
    so_far = [*(got or ())]
    so_far.append(("approved", await approved.wait()))
    await take(n)
    if len(so_far) < 3 + n % 2:
        raise ContinueAs(continues_after_each(n, refuse, so_far))
    return so_far


@workflow
async def continues_with_batches(n: int, refuse: bool, got: Got | None = None, left: int = 3) -> Got:
    so_far = [*(got or ())]
    found, _ = await asyncio.gather(collect(approved, count=2, within=WITHIN_SECONDS), look(n))
    so_far += [("approved", value) for value in found]
    if left:
        raise ContinueAs(continues_with_batches(n, refuse, so_far, left - 1))
    return so_far


@workflow(convoy_policy=ConvoyPolicy(head="skip"))
async def continues_in_its_turn(n: int, refuse: bool, got: Got | None = None) -> Got:
    so_far = [*(got or ()), ("approved", await approved.wait())]
    await look(n)
    if len(so_far) < 2:
        raise ContinueAs(continues_in_its_turn(n, refuse, so_far))
    return so_far


class Runs(Signals):
    """The tasks of one world that continue, and their senders."""

    workflows: tuple[Workflow[Any, Got], ...] = (continues_after_each, continues_with_batches, continues_in_its_turn)

    def __init__(self, world: "World", random: Random) -> None:
        super().__init__(world, random)
        self._names = [f"continues-{number}" for number in range(random.randint(1, TASKS_MAX))]

    def _choose(self, number: int, name: str) -> Submit:
        chosen, delay = self._random.choice(self.workflows), self._random.choice((0, 0, 2))
        convoy = CONVOY if chosen is continues_in_its_turn else None
        return self._world.submission(chosen(number, False), name, self._random, number, delay=delay, convoy=convoy)

    async def _ask(self, name: str, command: SendSignal) -> None:
        """Send to the run that the task is in by now, as the client does."""
        network: Any = SimulatedStore(self._world.network)
        while True:
            try:
                (answer,) = await network.apply([command])
            except StoreError:
                await asyncio.sleep(self._random.uniform(0.05, 0.5))
                continue
            number = self._world.store.numbers.get(name)
            if not isinstance(answer, Refusal) or answer.verdict != "continued" or number is None:
                break
            command = msgspec.structs.replace(command, task_no=number)
        if isinstance(answer, SignalKept):
            self._kept[name][command.signal_id] = command.value

    def _list_runs(self, task: TaskRow) -> list[TaskRow]:
        """The runs of a task that are there, the first one first."""
        if task.first_no is None:
            return [task]
        found = (one for one in self._world.store.tasks.values() if one.first_no == task.first_no)
        return sorted(found, key=lambda one: one.run)

    # --- judging
    def judge(self, task: TaskRow) -> Iterator[Violation]:
        """Compare what a task got in all its runs with what was acknowledged and kept. The task may have ended or not."""
        if task.task_id not in self._names:
            return
        runs = self._list_runs(task)
        if [one.run for one in runs] != list(range(1, len(runs) + 1)):
            if not any(name.startswith(f"{task.task_id}~") for name in self._world.people.purged):
                yield Violation("I89", task.task_id, f"its runs are {[one.run for one in runs]}")
            return
        signals = [row for run in runs for row in self._list_kept_in(run)]
        rows = Counter(signal.signal_id for signal in signals)
        for signal_id in self._kept[task.task_id].keys() | rows.keys():
            if rows[signal_id] != 1:
                yield Violation("I89", task.task_id, f"signal {signal_id} is kept {rows[signal_id]} times in its runs")
        if task.state is TaskState.PROCESSED and all(run.past_count == 0 for run in runs):
            assert task.output is not None
            values = [value for _, value in msgspec.json.decode(task.output, type=Got)]
            sent = [msgspec.json.decode(one.value) for one in signals if one.step is not None and is_fit(one)]
            if values != sent:
                yield Violation("I89", task.task_id, f"its code got {values}, and its waits took {sent}")

    def _list_kept_in(self, run: TaskRow) -> list[SignalRow]:
        """The signals of a run in the order of their commits, without those that went along to the next one."""
        rows = sorted(self._world.store.signal_rows[run.task_no].items())
        return [row for _, row in rows if row.step != PASSED_ON]


def draw_runs(world: "World", seed: int, *, may_have: bool) -> Runs | None:
    """Draw whether tasks that continue are part of the world of a seed. A source of its own leaves others as they were."""
    random = Random(f"{RUNS_KEY}-{seed}")
    return Runs(world, random) if random.random() < SHARE and may_have else None
