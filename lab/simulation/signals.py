"""Tasks that wait for signals in some of the simulated worlds, and those who send them at any instant.

Each value is sent once in a world, so what a task got can be compared with what was kept for it, in the order of the commits.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from arriero.audit.check import Violation
from arriero.declare import context
from arriero.declare.signals import Signal, collect
from arriero.declare.workflows import Workflow, workflow
from arriero.errors import SignalTimeout, StoreError
from arriero.model import MICROSECONDS, SignalRow, StepRow, StepState, TaskRow, TaskState
from arriero.model.answers import Refusal, SignalKept
from arriero.model.commands import SendSignal, Submit
from arriero.model.signals import count_wanted, is_wait, may_take

from .shop import look, take
from .store import SimulatedStore

if TYPE_CHECKING:
    from .world import World

SIGNALS_KEY = "signals-1473"  # with it, the seeds at which the tests of breakages begin have no signals
SHARE = 0.3  # of the seeds with operators
TASKS_MAX = 4
SENT_MAX = 5  # of one task, before the faults end
SPREAD_SECONDS = 14.0  # in which they are sent
EARLY_SECONDS = 2.0  # at most, that a sender comes before the task
AGAIN = 0.3  # of the signals: they are sent again under their id
WITH_ANOTHER_VALUE = 0.3  # of those: with another value, which must be refused
UNFIT = 0.1  # of the signals: a value that the code cannot read, as SQL may send it
AT_THE_TIMEOUT = 0.5  # of the waits with a time: a signal is sent around that instant
AROUND_SECONDS = 0.02
WITHIN_SECONDS = 2.0

approved = Signal("approved", str)
paid = Signal("paid", str)
Got = list[tuple[str, str | None]]  # name of a signal and its value, in the order of the waits; None: its time was over


@workflow
async def waits_in_a_loop(n: int, refuse: bool) -> Got:
    got: Got = []
    for number in range(3):
        got.append(("approved", await approved.wait()))
        if number == n % 3:
            await take(n)
    return got


@workflow
async def waits_for_some_time(n: int, refuse: bool) -> Got:
    got: Got = []
    for number in range(4):
        try:
            got.append(("approved", await approved.wait(within=WITHIN_SECONDS)))
        except SignalTimeout:
            got.append(("approved", None))
        if number % 2:
            await look(n)
    return got


@workflow
async def waits_side_by_side(n: int, refuse: bool) -> Got:
    """Two waits of one name: the one that was opened first gets the first signal."""
    first, money, second, _ = await asyncio.gather(approved.wait(), paid.wait(), approved.wait(), take(n))
    return [("approved", first), ("paid", money), ("approved", second)]


@workflow
async def waits_for_either(n: int, refuse: bool) -> Got:
    """What comes for a wait that was cancelled is for the next wait of its name."""
    got: Got = []
    names = {asyncio.create_task(approved.wait()): "approved", asyncio.create_task(paid.wait()): "paid"}
    await context.sleep(n % 2)
    done, waiting = await asyncio.wait(names, return_when=asyncio.FIRST_COMPLETED)
    for one in waiting:
        one.cancel()
    got += [(name, one.result()) for one, name in names.items() if one in done]
    await look(n)
    got.append(("approved", await approved.wait()))
    got.append(("paid", await paid.wait()))
    return got


@workflow
async def collects(n: int, refuse: bool) -> Got:
    """Several values in one wait, and what is left for the wait after it."""
    got: Got = []
    for _ in range(3):
        got += [("approved", value) for value in await collect(approved, count=2 + n % 2, within=WITHIN_SECONDS)]
        await take(n)
    try:
        got.append(("approved", await approved.wait(within=WITHIN_SECONDS)))
    except SignalTimeout:
        got.append(("approved", None))
    return got


class Signals:
    """The tasks of one world that wait, and their senders.

    Args:
        random: a separate source, so that a world without signals is the same as before.
    """

    agents = ()
    workflows: tuple[Workflow[[int, bool], Got], ...] = (
        waits_in_a_loop,
        waits_for_some_time,
        waits_side_by_side,
        waits_for_either,
        collects,
    )

    def __init__(self, world: "World", random: Random) -> None:
        self._world = world
        self._random = random
        self._names = [f"waits-{number}" for number in range(random.randint(1, TASKS_MAX))]
        self._kept: defaultdict[str, dict[str, str]] = defaultdict(dict)  # acknowledged: by task, values by their ids
        self._refused: defaultdict[str, set[str]] = defaultdict(set)  # ids of signals that were refused
        self._sent: Counter[str] = Counter()

    # --- what happens
    async def live(self) -> None:
        """Submit the tasks, and let others send them signals until they have ended."""
        await asyncio.gather(*(self._live(number, name) for number, name in enumerate(self._names)))

    async def _live(self, number: int, name: str) -> None:
        await asyncio.sleep(self._random.uniform(0, 8))
        command = self._choose(number, name)
        for sender in (self._send_early, self._send_at_timeouts, self._send_after_end, self._send_what_is_missing):
            self._world.spawn(sender(name), 0)  # they send as long as the task waits, also after the faults have ended
        await asyncio.sleep(self._random.uniform(0, EARLY_SECONDS))
        await self._world.submit([command])

    def _choose(self, number: int, name: str) -> Submit:
        call = self._random.choice(self.workflows)(number, False)
        delay = self._random.choice((0, 0, 2))
        return self._world.submission(call, name, self._random, number, delay=delay)

    async def _send_early(self, name: str) -> None:
        """Send at any instant, whether or not somebody waits."""
        times = sorted(self._random.uniform(0, SPREAD_SECONDS) for _ in range(self._random.randint(0, SENT_MAX)))
        begin = self._world.loop.time()
        for at in times:
            await asyncio.sleep(max(0.0, begin + at - self._world.loop.time()))
            self._spawn_send(name, self._random.choice((approved, approved, paid)))

    async def _send_at_timeouts(self, name: str) -> None:
        """Send in the instant in which the time of a wait is over, a little before and a little after."""
        store, seen = self._world.store, set[int]()
        while not self._world.is_over(name):
            for step in self._world.list_waiting(name, is_wait):
                if step.not_before is not None and step.step_no not in seen:
                    seen.add(step.step_no)
                    left = (step.not_before - store.now()) / MICROSECONDS
                    if self._random.random() < AT_THE_TIMEOUT:
                        wait = left + self._random.uniform(-AROUND_SECONDS, AROUND_SECONDS)
                        self._world.spawn(self._send_in(wait, name, approved), 0)
            await asyncio.sleep(self._random.uniform(0.1, 0.5))

    async def _send_after_end(self, name: str) -> None:
        """Send to a task that has ended, too."""
        while True:
            await asyncio.sleep(1)
            if self._world.is_over(name):
                break
        self._spawn_send(name, approved)

    async def _send_in(self, seconds: float, name: str, signal: Signal[str]) -> None:
        await asyncio.sleep(max(0.0, seconds))
        await self._send(name, signal)

    async def _send_what_is_missing(self, name: str) -> None:
        """Send for each wait that nothing in the inbox is for. One for which something is there must end by itself."""
        await asyncio.sleep(SPREAD_SECONDS)
        while not self._world.is_over(name):
            inbox = [signal for signal in self._world.list_signals(name) if signal.step is None]
            for step in self._world.list_waiting(name, is_wait):
                if step.not_before is None and not any(may_take(step, signal) for signal in inbox):
                    await self._send(name, approved if step.name == approved.wait_name else paid, fits=True)
                    break
            await asyncio.sleep(self._random.uniform(0.3, 1.5))

    def _spawn_send(self, name: str, signal: Signal[str]) -> None:
        self._world.spawn(self._send(name, signal), 0)

    async def _send(self, name: str, signal: Signal[str], *, fits: bool = False) -> None:
        """Send one signal until it is answered; now and then again after that."""
        self._sent[name] += 1
        signal_id = f"{name}/{self._sent[name]}"
        value = signal(signal_id).value if fits or self._random.random() >= UNFIT else "7"
        command = await self._build(name, signal, signal_id, value)
        if command is None:
            return
        await self._ask(name, command)
        if self._random.random() < AGAIN:
            await asyncio.sleep(self._random.uniform(0, 3))
            other = self._random.random() < WITH_ANOTHER_VALUE
            await self._ask(name, msgspec.structs.replace(command, value='"another"') if other else command)

    async def _build(self, name: str, signal: Signal[str], signal_id: str, value: str) -> SendSignal | None:
        """Build a command, once there is a task. None: it was purged."""
        store = self._world.store
        while name not in store.numbers:
            if name in self._world.people.purged:
                return None
            await asyncio.sleep(self._random.uniform(0.01, 0.3))
        return SendSignal(
            actor="signal",
            task_no=store.numbers[name],
            name=signal.wait_name,
            signal_id=signal_id,
            value=value,
            sent_by="",
            app=store.tasks[store.numbers[name]].app,
        )

    async def _ask(self, name: str, command: SendSignal) -> None:
        network: Any = SimulatedStore(self._world.network)
        while True:
            try:
                (answer,) = await network.apply([command])
                break
            except StoreError:
                await asyncio.sleep(self._random.uniform(0.05, 0.5))
        if isinstance(answer, SignalKept):
            self._kept[name][command.signal_id] = command.value
        elif isinstance(answer, Refusal) and command.signal_id not in self._kept[name]:
            self._refused[name].add(command.signal_id)

    # --- judging
    def judge(self, task: TaskRow) -> Iterator[Violation]:
        """Compare what a task got with what was acknowledged and kept. The task may have ended or not."""
        signals = self._world.list_signals(task.task_id)
        if task.task_id not in self._names:
            return
        rows = Counter(signal.signal_id for signal in signals)
        values = {signal.signal_id: signal.value for signal in signals}
        for signal_id, value in self._kept[task.task_id].items():
            if rows[signal_id] != 1 or values[signal_id] != value:
                yield Violation(
                    "I79", task.task_id, f"signal {signal_id} was acknowledged, and is kept {rows[signal_id]} times"
                )
        for signal_id, count in rows.items():
            if count > 1:
                yield Violation("I79", task.task_id, f"signal {signal_id} is kept {count} times")
        waiting = sum(signal.step is None for signal in signals)
        if waiting != task.inbox:
            yield Violation("I79", task.task_id, f"its inbox is {task.inbox}, and {waiting} signals wait in it")
        life = self._world.store.load_as_is(task.task_no).life
        if task.past_count == 0:
            yield from judge_waits(task.task_id, life, signals)
        if task.state is TaskState.PROCESSED and task.past_count == 0:
            yield from self._judge_output(task, signals)

    def _judge_output(self, task: TaskRow, signals: list[SignalRow]) -> Iterator[Violation]:
        """The output is what the signals say in the order of their commits."""
        assert task.output is not None
        got = msgspec.json.decode(task.output, type=Got)
        for name in (approved.name, paid.name):
            values = [value for one, value in got if one == name and value is not None]
            sent = [msgspec.json.decode(s.value) for s in signals if s.name == f"signal:{name}" and is_fit(s)]
            if values != sent[: len(values)]:
                yield Violation("I79", task.task_id, f"its code got {values} for {name}, and {sent} were sent")


def is_fit(signal: SignalRow) -> bool:
    """Returns True if the code can read a signal's value."""
    return signal.value.startswith('"')


def judge_waits(task_id: str, life: tuple[StepRow, ...], signals: list[SignalRow]) -> Iterator[Violation]:
    """Compute what each wait of a task that ended should have got, from the order of commits alone."""
    untaken = [signal for signal in signals if is_fit(signal)]
    waits = [step for step in life if is_wait(step) and step.state is StepState.COMPLETED]
    for step in sorted(waits, key=lambda one: one.ordinal):
        if (wanted := count_wanted(step)) is not None:
            yield from judge_collected(task_id, step, untaken, wanted)
            continue
        expected = next((signal for signal in untaken if may_take(step, signal)), None)
        if expected is not None:
            untaken.remove(expected)
        if step.result != (None if expected is None else expected.value):
            due = None if expected is None else expected.value
            yield Violation(
                "I79", task_id, f"wait {step.ordinal} got {step.result}, and the signals in their order say {due}"
            )


def judge_collected(task_id: str, step: StepRow, untaken: list[SignalRow], wanted: int) -> Iterator[Violation]:
    """A wait for several has the first ones, all that it wants or all that came in its time. Takes them from ``untaken``."""
    mine = [signal for signal in untaken if may_take(step, signal)][:wanted]
    for signal in mine:
        untaken.remove(signal)
    got = msgspec.json.decode(step.result or "[]", type=list[str])
    due = [msgspec.json.decode(signal.value) for signal in mine]
    if got != due:
        yield Violation(
            "I79", task_id, f"wait {step.ordinal} collected {got}, and the signals in their order say {due}"
        )
    if len(got) < wanted and (step.finished_at or 0) < (step.not_before or 0):
        yield Violation(
            "I79", task_id, f"wait {step.ordinal} collected {len(got)} of {wanted} before its time was over"
        )


def draw_signals(world: "World", seed: int, *, may_have: bool) -> Signals | None:
    """Draw whether tasks that wait are part of the world of a seed. A source of its own leaves others as they were."""
    random = Random(f"{SIGNALS_KEY}-{seed}")
    return Signals(world, random) if random.random() < SHARE and may_have else None
