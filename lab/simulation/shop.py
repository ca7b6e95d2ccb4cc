"""What the simulated world runs: steps against a remote ledger that can be seen through, and workflows of every shape."""

import asyncio
import hashlib
from collections import Counter, defaultdict
from contextvars import ContextVar
from random import Random
from typing import Any

import msgspec

from arriero.declare import context
from arriero.declare.attempt import Attempt, Undo
from arriero.declare.steps import Agent
from arriero.declare.workflows import Workflow, workflow
from arriero.errors import Permanent, StepFailed, Transient
from arriero.model.policies import Breaker, ConvoyPolicy, Retry, Supervision

from .faults import Faults
from .publishing import LAST_STAGE, Publisher

HANGING_SECONDS = 6.0  # of a call while the service hangs: longer than any deadline
LATE_SECONDS_MAX = 8.0  # that a cancelled call continues: some are left behind before


class Remote:
    """A remote service that deduplicates by key and bars a compensated key; it sees every effect."""

    def __init__(
        self, random: Random, faults: Faults, late_random: Random, asking_random: Random, publishing_random: Random
    ) -> None:
        self._publishing_random = publishing_random  # so, too
        self.publisher = Publisher()
        self._random = random
        self._faults = faults
        self._late_random = late_random  # its own, so that the other faults strike as without late answers
        self.outage: str | None = None  # "refuses" or "hangs" while it is down
        self.down: set[str] = set()  # services that are down, of Agents that provide the same steps
        self._service_of: dict[str, str] = {}  # which of them a key has reached
        self.mixed: list[str] = []  # keys that reached more than one
        self._asking_random = asking_random  # so, too
        self.kept: Counter[str] = Counter()  # the number of the last checkpoint that was confirmed, by key
        self.wrong: list[str] = []  # checkpoints that were read and are not those that were kept
        self.net: Counter[str] = Counter()  # effects that stand, by forward key
        self.barred: set[str] = set()
        self.keys_of: defaultdict[str, set[str]] = defaultdict(set)
        self.tokens: dict[str, str] = {}  # of callbacks that came, with the ids of their tasks
        self.came: list[str] = []  # ids of tasks, in the order in which their effects came or were taken back

    async def do(self, attempt: Attempt, refuse: bool) -> int:
        """One effect under the attempt's key, once. A call that is cancelled may answer after all."""
        await self._ask(attempt)
        try:
            return await self.do_under_key(attempt.idempotency_key, attempt.task_id, refuse)
        except asyncio.CancelledError:
            if not self._faults.strikes("late_answer", self._late_random):
                raise
        if self._late_random.random() < 0.5:
            await asyncio.sleep(self._late_random.uniform(0, LATE_SECONDS_MAX))
        if not self.net[attempt.idempotency_key]:
            raise Transient("cancelled before it happened")
        return len(self.net)

    async def do_under_key(self, key: str, task_id: str, refuse: bool) -> int:
        """One effect under a key, once."""
        await self._reach()
        if key in self.barred:
            raise Permanent("barred", code="barred")
        if refuse:
            raise Permanent("refused", code="refused")
        self.keys_of[task_id].add(key)
        if not self.net[key]:
            self.came.append(task_id)
        self.net[key] = 1
        await self._answer()
        return len(self.net)

    async def undo(self, undo: Undo[int]) -> None:
        """Take back whatever stands under the forward key, and keep it from landing later."""
        self._judge(undo.forward_checkpointed, undo.forward_key)
        await self._ask(undo)
        await self.undo_under_key(undo.forward_key, undo.task_id)

    async def undo_under_key(self, forward_key: str, task_id: str) -> None:
        """Take back what stands under a forward key."""
        await self._reach()
        if self.net[forward_key]:
            self.came.append(task_id)
        self.take_back(forward_key)
        await self._answer()

    def reach_service(self, service: str, key: str) -> None:
        """A call reaches one of several services. They share no keys: what one has done, the other does not know."""
        first = self._service_of.setdefault(key, service)
        if first != service:
            self.mixed.append(f"key {key} reached {service} after it had reached {first}")
        self.refuse_if_down(service)

    def refuse_if_down(self, service: str) -> None:
        """Raises ConnectionError while the service is down."""
        if service in self.down:
            raise ConnectionError(f"{service} is down")

    async def _ask(self, attempt: Attempt) -> None:
        """Now and then: ask for more time, keep a checkpoint. What was kept before is read in any case."""
        key = attempt.idempotency_key
        self._judge(attempt.checkpointed, key)
        if self._faults.strikes("publish", self._publishing_random):
            self.publisher.publish(attempt)
        if self._faults.strikes("extend", self._asking_random):
            await attempt.extend(self._asking_random.uniform(0.5, 6))
        if self._faults.strikes("checkpoint", self._asking_random):
            number = (attempt.checkpointed or [key, 0])[1] + 1
            await attempt.checkpoint([key, number])
            self.kept[key] = max(self.kept[key], number)

    def _judge(self, checkpointed: Any, key: str) -> None:
        """What an attempt reads was kept under its own key, and nothing that was confirmed is missing."""
        found, number = checkpointed or [key, 0]
        if found != key or number < self.kept[key]:
            self.wrong.append(f"under key {key} checkpoint {number} of {found} was read, {self.kept[key]} was kept")

    def take_back(self, forward_key: str) -> None:
        """What stands under the key no longer exists, and nothing lands under it any longer."""
        self.barred.add(forward_key)
        self.net[forward_key] = 0

    async def answer_probe(self) -> None:
        """Answer a question whether it is healthy; it changes nothing. It may take longer than the asker waits."""
        await asyncio.sleep(self._asking_random.uniform(0.005, 1.5))
        if self.outage == "refuses":
            raise ConnectionError("down")
        if self.outage == "hangs":
            await asyncio.sleep(HANGING_SECONDS)

    async def _reach(self) -> None:
        await asyncio.sleep(self._random.uniform(0.005, 0.3))
        if self.outage == "refuses":
            raise ConnectionError("down")
        if self.outage == "hangs":
            await asyncio.sleep(HANGING_SECONDS)
            raise ConnectionError("down")
        if self._faults.strikes("remote", self._random):
            match self._random.randrange(3):
                case 0:
                    raise Transient("busy")
                case 1:
                    raise ConnectionError("reset before it happened")
                case _:
                    await asyncio.sleep(self._random.uniform(1, 5))

    async def _answer(self) -> None:
        if self._faults.strikes("remote", self._random):
            if self._random.random() < 0.5:
                raise ConnectionError("reset after it happened")
            await asyncio.sleep(self._random.uniform(1, 5))
        await asyncio.sleep(self._random.uniform(0.005, 0.1))


REMOTE: ContextVar[Remote] = ContextVar("simulated_remote")

# It opens by a few calls, as worlds are small.
_breaker = Breaker(minimum=4, window=4, cool_off=1, ramp=2)
left = Agent("left", max_in_flight=2, breaker=_breaker)
right = Agent("right", max_in_flight=1, breaker=_breaker, breaker_key=lambda n, *_: f"part-{n % 2}")


@right.probe(complete_within=1)
async def ask_right(part: str) -> None:
    await REMOTE.get().answer_probe()


_short = Supervision(attempts=2, rounds=2, cool_off=2)
_patient = Supervision(attempts=50)
_retry = Retry(tries=2, delay=0.05)


@left.step(complete_within=1.5, retry=_retry, supervision=_patient)
async def take(attempt: Attempt, n: int, refuse: bool = False) -> int:
    return await REMOTE.get().do(attempt, refuse) + n


@take.compensation(complete_within=1.5, supervision=_patient)
async def give_back(undo: Undo[int], n: int, refuse: bool = False) -> None:
    await REMOTE.get().undo(undo)


@right.step(complete_within=1.5, retry=_retry, supervision=_short)
async def reserve(attempt: Attempt, n: int, refuse: bool = False) -> int:
    return await REMOTE.get().do(attempt, refuse) + n


@reserve.compensation(complete_within=1.5, supervision=_patient)
async def release(undo: Undo[int], n: int, refuse: bool = False) -> None:
    await REMOTE.get().undo(undo)


@right.step(complete_within=1.5, retry=_retry, supervision=_patient, pivot=True)
async def ship(attempt: Attempt, n: int) -> int:
    return await REMOTE.get().do(attempt, False) + n


@left.step(complete_within=1, effect_free=True, retry=Retry(tries=1), supervision=_short)
async def look(attempt: Attempt, n: int) -> int:
    await asyncio.sleep(0.01)
    return n


@workflow
async def in_a_row(n: int, refuse: bool) -> int:
    first = await take(n)
    context.publish(1)
    second = await reserve(first)
    context.publish(2)
    await context.sleep(1 + n % 3)
    context.publish(LAST_STAGE)
    return await take(second, refuse)


async def _looked_through_tasks(n: int) -> int:
    """A result that takes some turns of the loop to reach its reader."""
    return (await asyncio.gather(asyncio.create_task(look(n))))[0]


@workflow
async def side_by_side(n: int, refuse: bool) -> int:
    """Both branches ask for steps of one name without a key: who comes first decides who is which."""

    async def slow(start: int) -> int:
        (seen,) = await asyncio.gather(_looked_through_tasks(start))
        return await take(await take(seen) + start)

    async def quick(start: int) -> int:
        return await take(await take(await look(start)) + start)

    a, b, _ = await asyncio.gather(slow(n), quick(n + 100), reserve(n))
    return await reserve(a + b, refuse)


@workflow
async def past_the_pivot(n: int, refuse: bool) -> int:
    async with asyncio.TaskGroup() as group:
        shipped = group.create_task(ship(n))
        group.create_task(reserve(n, refuse))
        group.create_task(take(n))
    return shipped.result()


@workflow
async def another_way(n: int, refuse: bool) -> int:
    try:
        return await reserve(n, refuse)
    except StepFailed:
        return await take(n)


@workflow(supervision=Supervision(attempts=2, then="hold"))
async def held(n: int, refuse: bool) -> int:
    await take(n)
    return await reserve(n, refuse)


@workflow(complete_within=12)
async def in_time(n: int, refuse: bool) -> int:
    total = 0
    for i in range(4):
        total += await take(n + i)
        await context.sleep(2)
    return await reserve(total, refuse)


@right.step(complete_within=1, retry=Retry(tries=1), supervision=Supervision(attempts=1, then="hold"))
async def stamp(attempt: Attempt, n: int, refuse: bool = False) -> int:
    return await REMOTE.get().do(attempt, refuse) + n


@stamp.compensation(complete_within=1.5, retry=Retry(tries=1), supervision=Supervision(attempts=1))
async def tear_up(undo: Undo[int], n: int, refuse: bool = False) -> None:
    await REMOTE.get().undo(undo)


@workflow
async def fragile(n: int, refuse: bool) -> int:
    """What fails immediately, often in doubt, and then waits for an operator; also beside a branch that continues."""
    first, second = await asyncio.gather(stamp(n), take(n))
    try:
        return await stamp(first + second, refuse)
    except StepFailed:
        await look(n)
        raise


@workflow
async def tagged(n: int, refuse: bool) -> list[dict[str, str]]:
    """The tags that its code sees at the beginning and at the end."""
    first = context.tags()
    await take(n)
    await context.sleep(1 + n % 3)
    await reserve(n, refuse)
    return [first, context.tags()]


@right.step(complete_within=1, retry=Retry(tries=1), supervision=Supervision(attempts=1))
async def pin(attempt: Attempt, n: int) -> int:
    """Nothing undoes it: left in doubt, only an operator can settle it."""
    return await REMOTE.get().do(attempt, False) + n


async def _pinned(n: int, refuse: bool) -> int:
    first = await take(n)
    second = await reserve(await pin(first))
    return await take(second, refuse)


DOUBTFUL = (
    workflow(name="undo_continues", undo_on_doubt="continue")(_pinned),
    workflow(name="undo_stops", undo_on_doubt="stop")(_pinned),
)


class Tally(msgspec.Struct, frozen=True):
    """The state of a key: which of its tasks were processed, in their order. ``chain``: of their numbers."""

    count: int = 0
    total: int = 0
    chain: str = ""

    def after(self, n: int) -> "Tally":
        """The state once one more task is processed."""
        chain = hashlib.blake2b(f"{self.chain} {n}".encode(), digest_size=8).hexdigest()
        return Tally(self.count + 1, self.total + n, chain)


async def _one_of_a_key(n: int, refuse: bool) -> int:
    """It lets no failed step pass: so what it did is whole, undone or for an operator to mend, once its turn has ended."""
    tally = context.convoy_state(Tally) or Tally()
    if n % 2:
        first, second = await asyncio.gather(take(n), reserve(n, refuse))
    else:
        first = await take(n)
        second = await reserve(first, refuse)
    if n % 4 == 1:
        await context.sleep(1)
    context.keep_convoy_state(tally.after(n))
    return first + second


def _in_line(name: str, policy: ConvoyPolicy, **options: Any) -> Workflow[[int, bool], int]:
    return workflow(name=name, convoy_policy=policy, **options)(_one_of_a_key)


_held = Supervision(attempts=2, then="hold")
IN_LINE = (
    _in_line("in_line_waiting", ConvoyPolicy(head="wait", gap="wait", gap_within=3), supervision=_held),
    _in_line("in_line_skipping", ConvoyPolicy(head="skip", gap="skip", gap_within=2), supervision=_held),
    _in_line("in_line_parking", ConvoyPolicy(head="park", gap="park", gap_within=2.5), supervision=_held),
    _in_line("in_line_undone", ConvoyPolicy(gap="skip", gap_within=6), complete_within=15),
    _in_line("in_line_in_time", ConvoyPolicy(gap_within=1), supervision=_held, complete_within=12),
)
AGENTS = (left, right)
WORKFLOWS = (in_a_row, side_by_side, past_the_pivot, another_way, held, in_time)
FOR_PEOPLE = (*WORKFLOWS, fragile, fragile, held)  # what keeps operators busy, more often
