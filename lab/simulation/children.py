"""Tasks that await other workflows in some of the simulated worlds, and operators who act on the children alone.

Whether both histories say the same of a child is judged from those, by I83 and I84. Here the outputs are compared, and the rows.
"""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from arriero.audit.check import Violation
from arriero.core.children import find_child_step, read_options
from arriero.declare import context
from arriero.declare.workflows import Workflow, workflow
from arriero.errors import StepFailed
from arriero.model import STEP_BITS, StepKind, StepRow, StepState, TaskRow, TaskState, Verb
from arriero.model.commands import Submit
from arriero.model.policies import ConvoyPolicy, Supervision

from .people import MENDING
from .shop import look, reserve, ship, take

if TYPE_CHECKING:
    from .world import World

CHILDREN_KEY = "children-234833"  # with it, the seeds at which the tests of breakages begin have no children
SHARE = 0.25  # of the seeds with operators
TASKS_MAX = 4
SUBMITTED_SECONDS_MAX = 8.0
OPERATED_SECONDS = 22.0
LATE_KEY = "late-children-0"
LATE_SHARE = 0.4  # of the worlds with children
LATE_CHILDREN = 0.15  # of the submissions of children there
LATE_SECONDS_MAX = 6.0
SHELF = "shelf"  # the key of a convoy of children
ALONE = (Verb.CANCEL, Verb.COMPENSATE, Verb.RESUBMIT, Verb.RESUBMIT, Verb.PAUSE)  # of a child, whatever its parent does
OF_A_PARENT = (Verb.CANCEL, Verb.COMPENSATE, Verb.RESUBMIT)

Got = list[int]


# --- children
@workflow
async def packs(n: int, refuse: bool) -> int:
    first = await take(n)
    await context.sleep(n % 2)
    return await reserve(first, refuse)


@workflow
async def looks(n: int, refuse: bool) -> int:
    return await look(n)


@workflow(supervision=Supervision(attempts=2, then="hold"))
async def packs_or_is_held(n: int, refuse: bool) -> int:
    return await reserve(await take(n), refuse)


@workflow
async def ships(n: int, refuse: bool) -> int:
    """It cannot be undone once it has shipped."""
    return await ship(await take(n))


@workflow(convoy_policy=ConvoyPolicy(head="skip"))
async def packs_in_line(n: int, refuse: bool) -> int:
    return await take(await take(n))


# --- parents
@workflow
async def awaits_in_turn(n: int, refuse: bool) -> Got:
    first = await packs(n, False)
    taken = await take(first)
    second = await packs(taken, False)
    await reserve(second, refuse)
    return [first, second]


@workflow
async def awaits_side_by_side(n: int, refuse: bool) -> Got:
    calls = (packs(n, False), looks(n, False), packs_or_is_held(n + 1, refuse), packs(n + 2, False))
    got = await asyncio.gather(*calls, take(n))
    await take(n, refuse)
    return list(got[:-1])


@workflow
async def awaits_another_way(n: int, refuse: bool) -> Got:
    """A child that fails permanently, and its code goes another way."""
    got: Got = []
    try:
        got.append(await packs(n, True))
    except StepFailed:
        got.append(await packs(n + 1, False))
    return [*got, await packs_or_is_held(n, refuse)]


@workflow
async def awaits_what_stands(n: int, refuse: bool) -> Got:
    """The undo meets a child that has passed its pivot."""
    shipped, packed = await asyncio.gather(ships(n, False), packs(n, False))
    await take(n, refuse)
    return [shipped, packed]


@workflow
async def leaves_one_alone(n: int, refuse: bool) -> Got:
    await packs(n, False).options(detach=True)
    packed = await packs(n, False)
    await take(packed, refuse)
    return [packed]


@workflow
async def awaits_parents(n: int, refuse: bool) -> Got:
    """Children that have children."""
    first, second = await asyncio.gather(awaits_in_turn(n, refuse), awaits_side_by_side(n, False))
    await take(n, refuse)
    return [*first, *second]


@workflow
async def awaits_in_line(n: int, refuse: bool) -> Got:
    calls = (packs_in_line(n + number, False).options(convoy=SHELF) for number in range(3))
    got = await asyncio.gather(*calls)
    await take(n, refuse)
    return list(got)


class Children:
    """The tasks of one world that have children, and the operators who act on both.

    Args:
        random: a separate source, so that a world without children is the same as before.
    """

    agents = ()
    parents: tuple[Workflow[[int, bool], Got], ...] = (
        awaits_in_turn,
        awaits_side_by_side,
        awaits_another_way,
        awaits_what_stands,
        leaves_one_alone,
        awaits_parents,
    )
    workflows: tuple[Workflow[[int, bool], Any], ...] = (
        *parents,
        awaits_in_line,
        packs,
        looks,
        packs_or_is_held,
        ships,
        packs_in_line,
    )

    def __init__(self, world: "World", random: Random) -> None:
        self._world = world
        self._random = random
        self._names = [f"parent-{number}" for number in range(random.randint(1, TASKS_MAX))]
        self._has_operators = random.random() < 0.5
        late_random = Random(f"{LATE_KEY}-{world.seed}")
        self._late_random = late_random if late_random.random() < LATE_SHARE else None

    # --- what happens
    async def live(self) -> None:
        """Submit the tasks, and let operators act on them and on their children."""
        lives = [self._live(number, name) for number, name in enumerate(self._names)]
        await asyncio.gather(*lives, *([self._operate()] if self._has_operators else ()))

    async def _live(self, number: int, name: str) -> None:
        await asyncio.sleep(self._random.uniform(0, SUBMITTED_SECONDS_MAX))
        # The keys of a world are judged by its own producers.
        may_be: tuple[Workflow[[int, bool], Got], ...] = self.parents
        if self._world.keys is None:
            may_be = (*may_be, awaits_in_line)
        chosen = self._random.choice(may_be)
        call = chosen(number, self._random.random() < 0.4)
        await self._world.submit([self._world.submission(call, name, self._random, number, delay=0)])

    async def _operate(self) -> None:
        """Ask for verbs on children and parents at any time, whether or not they make sense."""
        while self._world.loop.time() < OPERATED_SECONDS:
            await asyncio.sleep(self._random.uniform(0.5, 3))
            tasks = sorted(self._world.store.tasks.items())
            children = [number for number, task in tasks if task.parent_step is not None]
            parents = [number for number, task in tasks if task.task_id in self._names]
            if children and self._random.random() < 0.6:
                await self._world.people.ask(self._random.choice(children), self._random.choice(ALONE))
            elif parents:
                await self._world.people.ask(self._random.choice(parents), self._random.choice(OF_A_PARENT))

    async def delay_submission(self, command: Submit) -> None:
        """Let the submission of a child wait in some worlds, and let an operator cancel its parent before it arrives."""
        random = None if self._world.damage is not None else self._late_random
        if (
            random is None
            or command.parent_step is None
            or not self._world.faults.active
            or random.random() > LATE_CHILDREN
        ):
            return
        self._world.spawn(self._world.people.ask(command.parent_step >> STEP_BITS, random.choice(OF_A_PARENT)), 0)
        await asyncio.sleep(random.uniform(0.5, LATE_SECONDS_MAX))

    # --- the end of a run
    def keeps_waiting(self, task: TaskRow) -> bool:
        """Whether a task waits for a child, or for a child of one, that only an operator can move."""
        return any(child.state is TaskState.HELD or self.keeps_waiting(child) for child in self._list_awaited(task))

    def _list_awaited(self, task: TaskRow) -> list[TaskRow]:
        steps = self._world.store.load_as_is(task.task_no).life
        running = {find_child_step(step) for step in steps if step.state is StepState.RUNNING and not step.agent}
        return [one for one in self._world.store.tasks.values() if one.parent_step in running]

    def is_at_rest(self) -> bool:
        """Whether no task waits for an operator."""
        return not any(self.keeps_waiting(task) for task in self._world.store.tasks.values())

    async def mend(self) -> None:
        """Do something about every child that is held and that its parent waits for."""
        for task in list(self._world.store.tasks.values()):
            for child in self._list_awaited(task):
                if child.state is TaskState.HELD:
                    await self._world.people.ask(child.task_no, self._random.choice(MENDING))

    # --- judging
    def judge(self, task: TaskRow) -> Iterator[Violation]:
        """Compare what stands in the row of a task with the rows of its children. The task may have ended or not."""
        if self._world.damage is not None and self._world.damage.task_no == task.task_no:
            return
        loaded = self._world.store.load_as_is(task.task_no)
        children = {one.parent_step: one for one in self._world.store.tasks.values() if is_child_of(one, task.task_no)}
        for step in loaded.life:
            if step.kind is StepKind.CHILD and not read_options(step).is_detached:
                yield from self._judge_child(task, step, children.get(step.step_no))
        if task.state is TaskState.PROCESSED and task.task_id in self._names and task.output is not None:
            got = msgspec.json.decode(task.output, type=Got)
            given = msgspec.json.decode(b"[" + b",".join(list_results(loaded.life)) + b"]", type=list[int | Got])
            flat = [one for result in given for one in (result if isinstance(result, list) else [result])]
            if sorted(got) != sorted(flat):
                yield Violation("I83", task.task_id, f"its code got {got}, its children gave {flat}")

    @staticmethod
    def _judge_child(task: TaskRow, step: StepRow, child: TaskRow | None) -> Iterator[Violation]:
        if child is None:
            return  # it was refused, or was purged
        if step.state is StepState.COMPLETED and child.incarnation == step.fence and step.result != child.output:
            yield Violation("I83", task.task_id, f"step {step.ordinal} got {step.result}, its child {child.output}")
        if step.state is StepState.RUNNING and task.ended_at is not None and task.state is not TaskState.HELD:
            yield Violation("I84", task.task_id, f"{task.state}, and its child {child.task_id} is {child.state}")


def is_child_of(task: TaskRow, parent_no: int) -> bool:
    """Returns True if a task is a step of that other one."""
    return task.parent_step is not None and task.parent_step >> STEP_BITS == parent_no


def list_results(life: tuple[StepRow, ...]) -> list[bytes]:
    """The results of the children that their parent awaited, as JSON texts."""
    return [
        step.result.encode()
        for step in life
        if step.kind is StepKind.CHILD and step.result is not None and not read_options(step).is_detached
    ]


def draw_children(world: "World", seed: int, *, may_have: bool) -> Children | None:
    """Draw whether tasks with children are part of the world of a seed. A source of its own leaves others as they were."""
    random = Random(f"{CHILDREN_KEY}-{seed}")
    return Children(world, random) if random.random() < SHARE and may_have else None
