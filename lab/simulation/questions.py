"""Tasks that ask operators in some of the simulated worlds, and operators who answer at any instant, twice, or never.

Each answer is given once in a world, so what a task got can be compared with what was acknowledged.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from arriero.audit.check import Violation
from arriero.client import task_verbs
from arriero.core.alert_rows import QUESTION_CAUSE
from arriero.declare import context
from arriero.declare.questions import ask
from arriero.declare.workflows import Workflow, workflow
from arriero.errors import StoreError
from arriero.model import MICROSECONDS, StepRow, StepState, TaskRow, TaskState, Verb
from arriero.model.answers import Refusal
from arriero.model.signals import is_question

from .shop import look, take
from .store import SimulatedStore

if TYPE_CHECKING:
    from .world import World

QUESTIONS_KEY = "questions-75"  # with it, the seeds at which the tests of breakages begin have no questions
SHARE = 0.2  # of the seeds with operators
TASKS_MAX = 3
WITHIN_SECONDS = 3.0
OTHERWISE = "nobody"
PATIENCE_SECONDS = 14.0  # after which an operator answers whatever is open
AT_THE_END = 0.7  # of the questions with a time: operators answer around the instant in which it is over
AROUND_SECONDS = (-0.03, 0.01)  # they look at the task first, and the network takes its time
BY_ANOTHER = 0.4  # of the answers: another operator answers the same question, too

Answers = list[str]


@workflow
async def asks_in_turn(n: int, refuse: bool) -> Answers:
    first = await ask("First?", str, of="finance")
    await take(n)
    return [first, await ask("Second?", str, of="finance", within=WITHIN_SECONDS, otherwise=OTHERWISE)]


@workflow
async def asks_side_by_side(n: int, refuse: bool) -> Answers:
    asked = (ask("First?", str), ask("Second?", str, within=WITHIN_SECONDS, otherwise=OTHERWISE), take(n))
    first, second, _ = await asyncio.gather(*asked)
    return [first, second]


@workflow
async def stops_asking(n: int, refuse: bool) -> Answers:
    waiting = asyncio.ensure_future(ask("First?", str, of="legal"))
    await context.sleep(n % 3)
    got = [waiting.result()] if waiting.done() else []
    waiting.cancel()
    await look(n)
    return [*got, await ask("Second?", str, of="legal")]


class Questions:
    """The tasks of one world that ask, and the operators who answer.

    Args:
        random: a separate source, so that a world without questions is the same as before.
    """

    agents = ()
    workflows: tuple[Workflow[[int, bool], Answers], ...] = (asks_in_turn, asks_side_by_side, stops_asking)

    def __init__(self, world: "World", random: Random) -> None:
        self._world = world
        self._random = random
        self._names = [f"asks-{number}" for number in range(random.randint(1, TASKS_MAX))]
        self._given: dict[tuple[str, int, int], list[str]] = {}  # acknowledged: by task, its life and the row
        self._numbers = count(1)

    # --- what happens
    async def live(self) -> None:
        """Submit the tasks, and let operators answer them until they have ended."""
        await asyncio.gather(*(self._live(number, name) for number, name in enumerate(self._names)))

    async def _live(self, number: int, name: str) -> None:
        await asyncio.sleep(self._random.uniform(0, 8))
        call = self._random.choice(self.workflows)(number, False)
        self._world.spawn(self._answer_all(name), 0)  # also after the faults have ended
        await self._world.submit([self._world.submission(call, name, self._random, number, delay=0)])

    async def _answer_all(self, name: str) -> None:
        """Answer at any instant, also around the end of the time; what has a time may be left to it."""
        begin, seen = self._world.loop.time(), set[int]()
        while not self._world.is_over(name):
            await asyncio.sleep(self._random.uniform(0.05, 1.2))
            for step in self._world.list_waiting(name, is_question):
                if step.step_no not in seen:
                    seen.add(step.step_no)
                    self._plan_late_answer(name, step)
            is_patient = self._world.loop.time() < begin + PATIENCE_SECONDS
            for step in self._world.list_waiting(name, is_question):
                if is_patient and self._random.random() < 0.6:
                    continue
                if not is_patient and step.not_before is not None:
                    continue
                for _ in range(2 if self._random.random() < BY_ANOTHER else 1):
                    self._world.spawn(self._answer(name, step), 0)

    def _plan_late_answer(self, name: str, step: StepRow) -> None:
        if step.not_before is not None and self._random.random() < AT_THE_END:
            left = (step.not_before - self._world.store.now()) / MICROSECONDS
            self._world.spawn(self._answer_in(left + self._random.uniform(*AROUND_SECONDS), name, step), 0)

    async def _answer_in(self, seconds: float, name: str, step: StepRow) -> None:
        await asyncio.sleep(max(0.0, seconds))
        await self._answer(name, step)

    async def _answer(self, name: str, step: StepRow) -> None:
        """Give one answer. Of one whose acknowledgement was lost nothing is said."""
        network: Any = SimulatedStore(self._world.network)
        value = f"answer {next(self._numbers)}"
        try:
            loaded = await network.load(step.task_no)
            if loaded is None:
                return
            result = msgspec.json.encode(value).decode()
            what = {"step": step.ordinal, "result": result}
            store_id = self._world.store.store_id
            command = task_verbs.build_command(Verb.ANSWER, loaded, store_id, by="ana", reason="she knows", **what)
            (answer,) = await network.apply([command])
        except StoreError:
            return
        if not isinstance(answer, Refusal):
            self._given.setdefault((name, loaded.task.past_count, step.ordinal), []).append(result)

    # --- judging
    def judge(self, task: TaskRow) -> Iterator[Violation]:
        """Compare what a task got with what was acknowledged, and its open questions with the alerts."""
        if task.task_id not in self._names:
            return
        loaded = self._world.store.load_as_is(task.task_no)
        asked = {step.ordinal: step for step in loaded.steps if is_question(step)}
        for (name, past_count, ordinal), given in self._given.items():
            if name != task.task_id or past_count != task.past_count:
                continue
            if len(given) > 1 or asked[ordinal].result != given[0]:
                detail = f"question {ordinal} got {asked[ordinal].result}, acknowledged was {given}"
                yield Violation("I82", name, detail)
        yield from self._judge_alerts(task, asked)
        for step in asked.values():
            answered_at, until = step.delivered_at, step.not_before
            if step.result is not None and answered_at is not None and until is not None and until <= answered_at:
                yield Violation("I82", task.task_id, f"question {step.ordinal} was answered after its time")
        if task.state is TaskState.PROCESSED:
            yield from self._judge_output(task, [step for step in asked.values() if step.ordinal > task.past_count])

    def _judge_alerts(self, task: TaskRow, asked: dict[int, StepRow]) -> Iterator[Violation]:
        rows = (alert for alert in self._world.store.alert_rows.values() if alert.task_no == task.task_no)
        alerts = Counter(alert.step_no for alert in rows if alert.cause == QUESTION_CAUSE and alert.closed_at is None)
        wanted = Counter(step.step_no for step in asked.values() if step.state is StepState.PENDING)
        if alerts != wanted:
            yield Violation("I82", task.task_id, f"questions with open alerts are {alerts}, open ones are {wanted}")

    def _judge_output(self, task: TaskRow, asked: list[StepRow]) -> Iterator[Violation]:
        """The output has what the questions that were answered got, in their order, and what is there without an answer."""
        assert task.output is not None
        got = msgspec.json.decode(task.output, type=Answers)
        results = [msgspec.json.decode(step.result) for step in asked if step.result is not None]
        if set(got) - {OTHERWISE} - set(results):
            yield Violation("I82", task.task_id, f"its code got {got}, its questions {results}")


def draw_questions(world: "World", seed: int, *, may_have: bool) -> Questions | None:
    """Draw whether tasks that ask are part of the world of a seed. A source of its own leaves others as they were."""
    random = Random(f"{QUESTIONS_KEY}-{seed}")
    return Questions(world, random) if random.random() < SHARE and may_have else None
