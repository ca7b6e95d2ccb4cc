"""The convoys of a simulated world: producers, operators who act on keys, and what must be so at the end."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from arriero.audit.check import Violation
from arriero.core.convoy_verbs import list_allowed_convoy_verbs
from arriero.declare.workflows import Workflow
from arriero.errors import StoreError
from arriero.events import EventOfConvoy, EventOfTurn, list_event_types
from arriero.model import ConvoyRow, ConvoyState, ConvoyVerb, TaskRow, TaskState, Turn, Verb
from arriero.model.answers import Submitted
from arriero.model.commands import OperateConvoy, Submit
from arriero.model.policies import ConvoyOverrides

from .people import VERBS
from .shop import IN_LINE, Tally
from .store import SimulatedStore

if TYPE_CHECKING:
    from .world import World

_BEHIND = (ConvoyState.STOPPED, ConvoyState.GAP)  # what a parked key still waits for once it is released
# What must happen in some seeds, or nothing was shown about it.
HAPPENING = list_event_types(EventOfTurn | EventOfConvoy) - {
    "convoy.placed",
    "convoy.batched",
    "convoy.message_ended",
    "convoy.continued",
}
_OUT_OF_TURN = (Turn.WAITING, Turn.SET_ASIDE)
_VERBS_OUT_OF_TURN = (Verb.RESUBMIT, Verb.RESUBMIT, *VERBS)
WORDS = (None, "wait", "skip", "park")
_read_events = msgspec.json.Decoder(list[dict[str, Any]]).decode
_read_tally = msgspec.json.Decoder(Tally).decode


class Sent(msgspec.Struct):
    """A task that a producer submitted. ``began`` and ``ended``: when it first asked, and when it had its answer; None: never."""

    task_id: str
    key: str
    n: int
    sequence: int | None
    began: float
    ended: float | None = None


class Told(msgspec.Struct):
    """What the history reports of a task of a convoy. ``is_touched``: an operator or a policy took it out of the order."""

    task_id: str
    convoy_no: int = 0
    turn: str = ""
    is_touched: bool = False


class Keys:
    """See the module."""

    def __init__(self, world: "World", random: Random) -> None:
        self._world = world
        self._random = random
        self._store: Any = SimulatedStore(world.network)
        self._sent: dict[str, Sent] = {}
        self._numbers: dict[tuple[str, int], tuple[Workflow[[int, bool], int], int, bool]] = {}  # what came under each
        self._missing: list[tuple[str, int]] = []  # numbers that have not come
        self.happened: Counter[str] = Counter()  # events of convoys, once the run is checked
        self._keys = [f"key-{number}" for number in range(random.randint(3, 5))]
        self._by_sequence = {key for key in self._keys if random.random() < 0.5}

    # --- producers
    def producers(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What submits to the keys: of a key ordered by place two at the same time, each task after the answer to the one before."""
        for key in self._keys:
            if key in self._by_sequence:
                yield from self._numbered(key)
            else:
                for _ in range(2):
                    yield self._produce([(key, None, False)] * self._random.randint(1, 3))

    def _numbered(self, key: str) -> Iterator[Coroutine[Any, Any, None]]:
        """Numbers out of order, some twice, some never; and an end mark now and then."""
        count = self._random.randint(3, 5)
        last = count if self._random.random() < 0.3 else None
        numbers = list(range(1, count + 1))
        if self._random.random() < 0.7:
            self._random.shuffle(numbers)
        coming: list[tuple[str, int | None, bool]] = []
        for number in numbers:
            if number < count and self._world.faults.strikes("missing_number", self._random):
                self._missing.append((key, number))
                continue
            coming.append((key, number, number == last))
            if self._world.faults.strikes("repeated_number", self._random):
                coming.append((key, number, False))
        half = self._random.randrange(len(coming))
        for part in (coming[:half], coming[half:]):
            yield self._produce(part)

    async def _produce(self, what: list[tuple[str, int | None, bool]]) -> None:
        await asyncio.sleep(self._random.uniform(0, 10))
        while what:
            count = self._random.choice((1, 1, 2))
            await self._send([self._command(*one) for one in what[:count]])
            what = what[count:]
            await asyncio.sleep(self._random.choice((0, 0, self._random.uniform(0, 4))))

    def _command(self, key: str, sequence: int | None, is_last: bool) -> Submit:
        number = len(self._sent) + 1
        task_id = f"{key}-{number}"
        what = (self._random.choice(IN_LINE), number, self._random.random() < 0.25)
        if sequence is not None:
            before = self._numbers.setdefault((key, sequence), what)
            what = before if self._random.random() < 0.5 else what  # the same again, or the number used twice
        workflow, n, refuse = what
        self._sent[task_id] = Sent(task_id, key, n, sequence, self._world.loop.time())
        return self._world.submission(
            workflow(n, refuse),
            task_id,
            self._random,
            number,
            delay=self._random.choice((0, 0, 0, 3)),
            convoy=key,
            sequence=sequence,
            end_of_sequence=is_last,
        )

    async def _send(self, commands: list[Submit]) -> None:
        answers = await self._world.submit(commands)
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, Submitted) and answer.task_id in ("", command.task_id):
                self._sent[command.task_id].ended = self._world.loop.time()

    # --- operators
    async def operate(self, until: float) -> None:
        """Ask for verbs on keys at any time, whether or not they make sense."""
        while self._world.loop.time() < until:
            await asyncio.sleep(self._random.uniform(0.2, 2))
            store = self._world.store
            convoys = list(store.convoys.values())
            if not convoys or not self._world.faults.strikes("key_operator", self._random):
                continue
            out_of_turn = [task.task_no for task in store.tasks.values() if task.turn in _OUT_OF_TURN]
            if out_of_turn and self._random.random() < 0.25:
                await self._world.people.ask(self._random.choice(out_of_turn), self._random.choice(_VERBS_OUT_OF_TURN))
            else:
                convoy = self._random.choice(convoys)
                sensible = list_allowed_convoy_verbs(convoy) if self._random.random() < 0.7 else tuple(ConvoyVerb)
                await self._ask(convoy.key, self._random.choice(sensible))

    async def _ask(self, key: str, verb: ConvoyVerb) -> None:
        try:
            loaded = await self._store.find_convoy(key)
            if loaded is None:
                return
            members = [task.task_no for task in loaded.members[1:] or loaded.members] or [0]
            command = OperateConvoy(
                actor="operator",
                verb=verb,
                convoy_no=loaded.convoy.convoy_no,
                fence=self._random.choice((None, loaded.convoy.fence)),
                by="bea",
                reason="she says so",
                task_no=self._random.choice(members) if verb is ConvoyVerb.MOVE_TO_HEAD else None,
                policy=self._policy() if verb is ConvoyVerb.SET else None,
            )
            await self._store.apply([command])
        except StoreError:
            return  # they look again, later

    def _policy(self) -> ConvoyOverrides:
        choice = self._random.choice
        return ConvoyOverrides(head=choice(WORDS), gap=choice(WORDS), gap_within=choice((None, None, 1.0, 5.0)))

    # --- the end of a run
    def keeps_waiting(self, task: TaskRow) -> bool:
        """Whether a task waits behind something that only an operator can mend."""
        if task.turn is not Turn.WAITING or task.convoy_no is None:
            return False
        return _stands_still(self._world.store.convoys[task.convoy_no])

    def is_at_rest(self) -> bool:
        """Whether every key has handled or passed over what was submitted to it."""
        store = self._world.store
        has_waiting = any(task.turn is Turn.WAITING for task in store.tasks.values())
        return not has_waiting and all(convoy.shown == ConvoyState.IDLE for convoy in store.convoys.values())

    async def mend(self) -> None:
        """Do something about every key that is blocked: release it, mend or skip its head, skip or fill its gap."""
        for convoy in list(self._world.store.convoys.values()):
            if not _stands_still(convoy):
                continue
            if convoy.shown == "parked" and (convoy.state not in _BEHIND or self._random.random() < 0.5):
                await self._ask(convoy.key, ConvoyVerb.RELEASE)
            elif convoy.state is ConvoyState.GAP and self._missing and self._random.random() < 0.5:
                missing, self._missing = self._missing, []
                await self._send([self._command(key, sequence, False) for key, sequence in missing])
            elif convoy.state is ConvoyState.STOPPED and convoy.open_task and self._random.random() < 0.6:
                await self._world.people.ask(convoy.open_task, Verb.RESUBMIT)
            else:
                await self._ask(convoy.key, ConvoyVerb.SKIP)

    # --- checking
    def check(self) -> Iterator[Violation]:
        """Whether turns, effects at the remote service and states of keys go together."""
        tasks: dict[str, Told] = {}
        ends: list[tuple[int, int, str]] = []  # convoy, number and task of those that were processed
        for row in (*self._world.purged_rows, *self._world.store.log):
            if row.task_no > 0 and row.task_id not in self._sent:
                continue
            events = _read_events(bytes(row.events))
            self.happened.update(event["type"] for event in events if event["type"] in HAPPENING)
            if row.task_no > 0:
                yield from _read(tasks.setdefault(row.task_id, Told(row.task_id)), events, ends)
        yield from self._effects(tasks)
        yield from self._states(ends)

    def _effects(self, tasks: dict[str, Told]) -> Iterator[Violation]:
        """Of the tasks of a key that nobody took out of the order: what they do does not interleave, and is in order."""
        for key in self._keys:
            in_order = [
                task_id
                for task_id in self._world.remote.came
                if task_id in tasks and self._sent[task_id].key == key and not tasks[task_id].is_touched
            ]
            first = {task_id: at for at, task_id in reversed(list(enumerate(in_order)))}
            for at, task_id in enumerate(in_order):
                if at and in_order[at - 1] != task_id and first[task_id] != at:
                    detail = f"it acts after task {in_order[at - 1]} of the same key began, which acts after it"
                    yield Violation("I40", task_id, detail)
            done = sorted(first, key=first.__getitem__)
            for at, later in enumerate(done):
                for earlier in done[:at]:
                    if _must_stand_before(self._sent[later], self._sent[earlier]):
                        yield Violation("I39", later, f"task {earlier} of the same key acted before it")

    def _states(self, ends: list[tuple[int, int, str]]) -> Iterator[Violation]:
        tallies: dict[int, Tally] = {}
        for convoy_no, _, task_id in sorted(ends):
            tallies[convoy_no] = tallies.get(convoy_no, Tally()).after(self._sent[task_id].n)
        for convoy in self._world.store.convoys.values():
            wanted = tallies.get(convoy.convoy_no)
            found = None if convoy.value is None else _read_tally(convoy.value)
            if found != wanted:
                detail = f"its state is {found}, its processed tasks make {wanted}"
                yield Violation("I40", f"convoy {convoy.key}", detail)


def _stands_still(convoy: ConvoyRow) -> bool:
    if convoy.shown == ConvoyState.GAP:
        return convoy.look_at is None
    return convoy.shown in (ConvoyState.STOPPED, "parked")


def _must_stand_before(one: Sent, other: Sent) -> bool:
    if one.sequence is not None and other.sequence is not None:
        return one.sequence < other.sequence
    return one.ended is not None and one.ended < other.began


def _read(task: Told, events: list[dict[str, Any]], ends: list[tuple[int, int, str]]) -> Iterator[Violation]:
    """Fold one commit of a task; ``ends`` is added to."""
    is_processed = any(event["type"] == "task.terminal" and event["state"] == TaskState.PROCESSED for event in events)
    for event in events:
        match event["type"]:
            case "convoy.placed":
                task.convoy_no, task.turn = event["convoy"], "waiting"
            case "convoy.opened" | "convoy.stopped" | "convoy.mended":
                task.turn = "open"
            case "convoy.closed":
                task.turn = event["turn"]
                task.is_touched |= task.turn == Turn.SET_ASIDE
                if is_processed:
                    ends.append((event["convoy"], event["number"], task.task_id))
            case "convoy.returned" | "convoy.moved":
                task.turn, task.is_touched = "waiting", True
            case "convoy.left" | "convoy.set_aside":
                task.turn, task.is_touched = "ended", True
            case "step.dispatched" | "compensation.dispatched" if task.turn != "open":
                yield Violation("I40", task.task_id, f"{event['type']} while its turn was {task.turn}")
