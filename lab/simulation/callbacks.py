"""Tasks that wait for callbacks in some of the simulated worlds, and services that complete them at any instant.

A service has what a step gave it: a token. It delivers by the code that serves HTTP, over a network that loses answers: before the
task waits, around the end of its time, twice, with another value, and again after the task has ended.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec

from arriero.audit.check import Violation
from arriero.client.callbacks import complete, read_token
from arriero.declare.attempt import Attempt
from arriero.declare.callbacks import Callback, callback
from arriero.declare.workflows import Workflow, workflow
from arriero.errors import CallbackRefused, SignalTimeout, StoreError
from arriero.model import StepState, TaskRow, TaskState
from arriero.model.policies import Retry, Supervision
from arriero.model.signals import SET_ASIDE, address_wait, label_callback
from arriero.store.contract import CALLBACK_SECRET, SECRET_BYTES

from .ports import SimulatedPorts
from .shop import REMOTE, left, take
from .store import SimulatedStore

if TYPE_CHECKING:
    from .world import World

SHARE = 0.25  # of the seeds with operators
TASKS_MAX = 4
WITHIN_SECONDS = 3.0
SERVES_WITHIN = 4.0  # at most, of a service: some are late
AGAIN = 0.7  # of the deliveries: they come again
SHORTLY = 0.6  # of those: before the task may have heard of the first one
WITH_ANOTHER_VALUE = 0.5  # of those, too
UNFIT = 0.15  # of the values: the code cannot read them
WITHOUT_URL = 0.5  # of the seeds: the first node does not know `public_url`, and begins no such step
WITH_CODE = 0.5  # of the servers: they check values by the code of the task
LOOK_SECONDS = 0.1
Got = list[str | None]  # by the callbacks, in their order; None: its time was over


@left.step(complete_within=1.5, effect_free=True, retry=Retry(tries=1), supervision=Supervision(attempts=50))
async def call_bank(attempt: Attempt, n: int, done: Callback[str]) -> int:
    await asyncio.sleep(0.01)
    REMOTE.get().tokens.setdefault(done.token, attempt.task_id)
    return n


async def _find_value(done: Callback[str]) -> str | None:
    try:
        return await done
    except SignalTimeout:
        return None


@workflow
async def calls_banks_in_a_row(n: int, refuse: bool) -> Got:
    got: Got = []
    for number in range(2):
        done = callback(str, name="bank", within=WITHIN_SECONDS if (n + number) % 2 else 300)
        await call_bank(n, done)
        if number:
            await take(n)
        got.append(await _find_value(done))
    return got


@workflow
async def calls_banks_side_by_side(n: int, refuse: bool) -> Got:
    first, second = callback(str, name="bank", within=300), callback(str, name="bank", within=WITHIN_SECONDS)
    await asyncio.gather(call_bank(n, second), call_bank(n, first))
    return list(await asyncio.gather(_find_value(first), _find_value(second)))


class Callbacks:
    """The tasks of one world that wait for callbacks, and the services that complete them.

    Args:
        random: a separate source, so that a world without callbacks is the same as before.
    """

    agents = ()
    workflows: tuple[Workflow[[int, bool], Got], ...] = (calls_banks_in_a_row, calls_banks_side_by_side)

    def __init__(self, world: "World", random: Random, *, has_node_without_url: bool) -> None:
        self._world = world
        self._has_node_without_url = has_node_without_url
        self._random = random
        self._names = [f"calls-{number}" for number in range(random.randint(1, TASKS_MAX))]
        self._served: set[str] = set()  # tokens
        self._accepted: defaultdict[str, list[str]] = defaultdict(list)  # values that were accepted as new, by token
        self._of: defaultdict[str, list[str]] = defaultdict(list)  # tokens of a task
        self._ports = SimulatedPorts(world, 0, Random(0))  # draws nothing
        # The store would draw it, and a run would not repeat itself.
        world.store.secrets[CALLBACK_SECRET] = random.randbytes(SECRET_BYTES).hex()

    async def live(self) -> None:
        """Submit the tasks, and serve what their steps call."""
        self._world.spawn(self._serve_all(), 0)
        for number, name in enumerate(self._names):
            await asyncio.sleep(self._random.uniform(0, 6))
            call = self._random.choice(self.workflows)(number, False)
            await self._world.submit([self._world.submission(call, name, self._random, number)])

    async def _serve_all(self) -> None:
        while True:
            for token, task_id in list(self._world.remote.tokens.items()):
                if token not in self._served:
                    self._served.add(token)
                    self._of[task_id].append(token)
                    self._world.spawn(self._serve(token, len(self._served)), 0)
            await asyncio.sleep(LOOK_SECONDS)

    async def _serve(self, token: str, mark: int) -> None:
        """Deliver until a value that fits was taken, or the callback is closed."""
        number = 0
        while True:
            await asyncio.sleep(self._random.uniform(0, SERVES_WITHIN))
            number += 1
            fits = number > 3 or self._random.random() >= UNFIT
            value = f'"{mark}/{number}"' if fits else f"{mark}{number}"
            if self._random.random() < AGAIN:
                other = self._random.random() < WITH_ANOTHER_VALUE
                again = f'"{mark}/{number} again"' if other else value
                self._world.spawn(self._deliver_later(token, again), 0)
            if await self._deliver(token, value) != "unfit" and fits:
                return

    async def _deliver_later(self, token: str, value: str) -> None:
        is_shortly = self._random.random() < SHORTLY
        await asyncio.sleep(self._random.uniform(0, 0.1) if is_shortly else self._random.expovariate(0.3))
        await self._deliver(token, value)

    async def _deliver(self, token: str, value: str) -> str:
        """Deliver a value until there is an answer. Returns why it was refused; empty: it was not."""
        codes = self._world.app.session.codes if self._random.random() < WITH_CODE else {}
        server: Any = SimpleNamespace(store=SimulatedStore(self._world.network), app="", codes=codes, ports=self._ports)
        server.send = lambda command: _send(server.store, command)
        while True:
            try:
                if await complete(server, await read_token(server.store, token), value, None):
                    self._accepted[token].append(value)
                return ""
            except CallbackRefused as error:
                return error.because
            except StoreError:
                await asyncio.sleep(self._random.uniform(0.05, 0.5))

    def leaves_out(self, node: int) -> bool:
        """Returns True if a node does not know `public_url`."""
        return node == 0 and self._has_node_without_url

    # --- judging
    def judge(self, task: TaskRow) -> Iterator[Violation]:
        """Compare what a task got with what was accepted for it."""
        if task.task_id not in self._names:
            return
        life = self._world.store.load_as_is(task.task_no).life
        rows = self._world.list_signals(task.task_id)
        values = {row.value for row in rows}
        for token in self._of[task.task_id]:
            for value in self._accepted[token]:
                if value not in values:
                    yield Violation("I81", task.task_id, f"{value} was accepted for a callback, and is not kept")
        for wait in filter(label_callback, life):
            kept = [row for row in rows if row.name == address_wait(wait) and row.step != SET_ASIDE]
            fitting = [row for row in kept if row.value.startswith('"')]
            if len(kept) > 1:
                yield Violation("I81", task.task_id, f"callback {label_callback(wait)} was completed {len(kept)} times")
            result = fitting[0].value if fitting and fitting[0].step is not None else None
            if wait.state is StepState.COMPLETED and wait.result != result:
                yield Violation("I81", task.task_id, f"callback {label_callback(wait)} got {wait.result}, not {result}")
        if task.state is TaskState.PROCESSED:
            yield from self._judge_output(task)

    def _judge_output(self, task: TaskRow) -> Iterator[Violation]:
        assert task.output is not None
        got = msgspec.json.decode(task.output, type=Got)
        life = self._world.store.load_as_is(task.task_no).life
        waits = sorted(filter(label_callback, life), key=lambda step: step.key)
        results = [None if wait.result is None else msgspec.json.decode(wait.result) for wait in waits]
        if got != results:
            yield Violation("I81", task.task_id, f"its code got {got} of its callbacks, and {results} are recorded")


async def _send(store: Any, command: Any) -> Any:
    (answer,) = await store.apply([command])
    return answer


def draw_callbacks(world: "World", seed: int, *, may_have: bool) -> Callbacks | None:
    """Draw whether callbacks are part of the world of a seed. A source of its own leaves others as they were."""
    random = Random(f"callbacks-{seed}")
    if random.random() >= SHARE or not may_have:
        return None
    lacks = Random(f"callbacks-without-url-{seed}").random() < WITHOUT_URL
    return Callbacks(world, random, has_node_without_url=lacks)
