"""Two at once on one key of a convoy, in every order of their steps: as if one had come after the other.

What counts is what people see: the answers, the order in which the tasks of the key are handled, and how each ends. After
both, whatever is left is driven to its end, so a task that was forgotten shows. Each schedule has a key of its own, and an
instant of its own before all others, so that no claim sees another schedule's rows.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import psycopg
import pytest
from interleaving import Operation, Pair, Ran, is_write, replace_statement
from postgres_servers import emptied, server, worker
from store_checks import broken_links, disagreements, history_violations
from store_world import FAILED, NOON, TestClock, submission
from test_postgres_interleavings import FIRST, HOLDER, Asked, applied, claim_of, prepared

from arriero.model import ConvoyVerb, Instant, TaskRow, TaskState, Verb, later
from arriero.model.answers import Applied, Claimed, ConvoyApplied, Refusal, Submitted
from arriero.model.commands import Advance, AnyCommand, HandOver, Operate, OperateConvoy, Submit
from arriero.model.moves import Compensate, Hold, Process
from arriero.model.policies import ConvoyPolicy, Supervision, TaskPolicy
from arriero.store.contract import Busy
from arriero.store.memory import MemoryStore
from arriero.store.postgres import submitting
from arriero.store.postgres.session import PostgresSession
from arriero.store.postgres.store import PostgresStore
from arriero.store.state_store import StateStore

Scene = Callable[[StateStore, TestClock, str], Awaitable[tuple[Asked, Asked]]]
# All there are take ten minutes: they are for `make torture`; each commit runs some of them.
EVERY = os.environ.get("ARRIERO_EVERY_SCHEDULE") == "1"
SOME = 20
APART = 1_000.0  # seconds between the instants of two schedules
AFTERWARDS = later(Instant(NOON), 3_600.0)

# A step needs no turn of its own after one that goes before, where nothing that the other side does reaches what it reads.
RIDES = {
    ("lock_asking", "select_known"),  # the ids of a schedule differ
    ("select_expected", "select_of_sequences"),  # what has a number comes only under the lock of the tail
    ("select_of_sequences", "select_known"),
    *(
        ("select_now", name) for name in ("select_open_steps", "select_steps", "select_process")
    ),  # of tasks that are locked
}
OF_KNOWN_KEYS = ("add_convoys", "lock_tails")
BESIDE_SUBMISSIONS = ("lock_tasks", "lock_convoys")  # no submission touches the task that ends
BESIDE_VERBS = {("lock_next_waiting", "seal_drained"), ("seal_drained", "select_drained")}  # nothing comes to the tail


# --- what is asked
def submits(at: Instant, *commands: Submit) -> Asked:
    def in_session(session: PostgresSession) -> Any:
        while True:
            try:
                answers_of, _ = session.transact(lambda t: submitting.submit(t, commands, at, frozenset()))
                answers = answers_of()
            except submitting.Again:
                continue
            if None not in answers:
                return answers[0]

    async def in_memory(store: MemoryStore) -> Any:
        return (await store.submit(commands))[0]

    return Asked(in_memory, in_session, at)


def asks(command: AnyCommand, at: Instant) -> Asked:
    return applied(command, at)._replace(asks_again=lambda answer: isinstance(answer, Busy))


def of_key(name: str, suffix: str, **changes: Any) -> Submit:
    return submission(f"{name}-{suffix}", workflow=name, convoy=name, **changes)


def end_of(task: TaskRow, *, hand_over: bool = False) -> Advance:
    return Advance(
        actor="p",
        task_no=task.task_no,
        process_no=task.locked_by or 0,
        fence=task.fence,
        revision=task.revision,
        state=task.state,
        unseen_since=task.unseen_since,
        ending=Compensate(FAILED) if task.state is TaskState.COMPENSATING else Process('"done"'),
        convoy_no=task.convoy_no,
        hand_over=HandOver((task.workflow,)) if hand_over else None,
    )


async def waiting(store: StateStore, name: str, *suffixes: str, **changes: Any) -> list[int]:
    """The numbers of tasks submitted to the key, in this order."""
    answers = await store.submit([of_key(name, suffix, **changes) for suffix in suffixes])
    return [answer.task_no for answer in answers if isinstance(answer, Submitted)]


async def head(store: StateStore, name: str) -> TaskRow:
    """The task whose turn it is, held by ``HOLDER``."""
    (answer,) = await store.apply([claim_of(name, HOLDER)])
    assert isinstance(answer, Claimed)
    (loaded,) = answer.tasks
    return loaded.task


async def on_key(store: StateStore, name: str, verb: ConvoyVerb, **changes: Any) -> OperateConvoy:
    found = await store.find_convoy(name)
    assert found is not None
    fields = {"actor": "ana", "verb": verb, "convoy_no": found.convoy.convoy_no, "fence": None, "by": "ana"}
    return OperateConvoy(reason="she says so", **(fields | changes))


# --- scenes
async def submit_and_submit_of_a_new_key(store: StateStore, clock: TestClock, name: str) -> tuple[Asked, Asked]:
    at = clock()
    return submits(at, of_key(name, "a")), submits(at, of_key(name, "b"))


async def submit_and_submit_of_a_key_at_rest(store: StateStore, clock: TestClock, name: str) -> tuple[Asked, Asked]:
    await waiting(store, name, "x")
    await store.apply([end_of(await head(store, name))])
    return await submit_and_submit_of_a_new_key(store, clock, name)


async def submit_and_submit_of_a_busy_key(store: StateStore, clock: TestClock, name: str) -> tuple[Asked, Asked]:
    await waiting(store, name, "x")
    return await submit_and_submit_of_a_new_key(store, clock, name)


async def submit_and_submit_by_sequence(store: StateStore, clock: TestClock, name: str) -> tuple[Asked, Asked]:
    await waiting(store, name, "x", sequence=1)
    at = clock()
    return submits(at, of_key(name, "a", sequence=2)), submits(at, of_key(name, "b", sequence=3))


async def submit_and_submit_of_one_number(store: StateStore, clock: TestClock, name: str) -> tuple[Asked, Asked]:
    await waiting(store, name, "x", sequence=1)
    at = clock()
    return submits(at, of_key(name, "a", sequence=2)), submits(at, of_key(name, "b", sequence=2))


async def end_and_submit(store: StateStore, clock: TestClock, name: str) -> tuple[Asked, Asked]:
    """The last task of a key ends while another is submitted to it."""
    await waiting(store, name, "x")
    return asks(end_of(await head(store, name)), clock()), submits(clock(), of_key(name, "a"))


async def end_that_hands_over_and_submit(store: StateStore, clock: TestClock, name: str) -> tuple[Asked, Asked]:
    await waiting(store, name, "x")
    task = await head(store, name)
    return asks(end_of(task, hand_over=True), clock()), submits(clock(), of_key(name, "a"))


async def end_and_submit_by_sequence(store: StateStore, clock: TestClock, name: str) -> tuple[Asked, Asked]:
    await waiting(store, name, "x", sequence=1)
    return asks(end_of(await head(store, name)), clock()), submits(clock(), of_key(name, "a", sequence=2))


async def end_before_a_gap_and_what_fills_it(store: StateStore, clock: TestClock, name: str) -> tuple[Asked, Asked]:
    await waiting(store, name, "x", sequence=1)
    task = await head(store, name)
    await waiting(store, name, "c", sequence=3)
    return asks(end_of(task), clock()), submits(clock(), of_key(name, "b", sequence=2))


async def look_and_submit_by_sequence(store: StateStore, clock: TestClock, name: str) -> tuple[Asked, Asked]:
    await waiting(store, name, "b", sequence=2)
    return asks(claim_of(name, FIRST), clock()), submits(clock(), of_key(name, "a", sequence=1))


async def look_that_skips_and_what_is_late(store: StateStore, clock: TestClock, name: str) -> tuple[Asked, Asked]:
    """What is missing comes as a look finds that it was waited for long enough."""
    policy = TaskPolicy(None, Supervision(), ConvoyPolicy(gap="skip", gap_within=0.0))
    skips = {"policy": msgspec.json.encode(policy).decode()}
    await waiting(store, name, "b", sequence=2, **skips)
    return asks(claim_of(name, FIRST), clock()), submits(clock(), of_key(name, "a", sequence=1, **skips))


async def release_and_submit(store: StateStore, clock: TestClock, name: str) -> tuple[Asked, Asked]:
    await waiting(store, name, "x")
    await store.apply([await on_key(store, name, ConvoyVerb.PARK), end_of(await head(store, name))])
    release = await on_key(store, name, ConvoyVerb.RELEASE)
    return asks(release, clock()), submits(clock(), of_key(name, "a"))


async def end_and_cancel_of_the_next(store: StateStore, clock: TestClock, name: str) -> tuple[Asked, Asked]:
    await waiting(store, name, "x")
    task = await head(store, name)
    following, _ = await waiting(store, name, "a", "b")
    cancel = Operate(actor="ana", verb=Verb.CANCEL, task_no=following, incarnation=1, by="ana", reason="she says so")
    return asks(end_of(task, hand_over=True), clock()), asks(cancel, clock())


async def end_and_move_to_head(store: StateStore, clock: TestClock, name: str) -> tuple[Asked, Asked]:
    await waiting(store, name, "x")
    task = await head(store, name)
    _, last = await waiting(store, name, "a", "b")
    move = await on_key(store, name, ConvoyVerb.MOVE_TO_HEAD, task_no=last)
    return asks(end_of(task, hand_over=True), clock()), asks(move, clock())


async def end_and_return_of_an_earlier_one(store: StateStore, clock: TestClock, name: str) -> tuple[Asked, Asked]:
    """An operator has a task done again that was set aside before the open one, as that ends."""
    policy = TaskPolicy(None, Supervision(), ConvoyPolicy(head="skip"))
    first, *_ = await waiting(store, name, "w", "x", "a", policy=msgspec.json.encode(policy).decode())
    failed = msgspec.structs.replace(end_of(await head(store, name)), ending=Hold(FAILED))
    await store.apply([failed])
    again = Operate(actor="ana", verb=Verb.RESUBMIT, task_no=first, incarnation=1, by="ana", reason="she says so")
    return asks(end_of(await head(store, name), hand_over=True), clock()), asks(again, clock())


SCENES: list[Scene] = [
    submit_and_submit_of_a_new_key,
    submit_and_submit_of_a_key_at_rest,
    submit_and_submit_of_a_busy_key,
    submit_and_submit_by_sequence,
    submit_and_submit_of_one_number,
    end_and_submit,
    end_that_hands_over_and_submit,
    end_and_submit_by_sequence,
    end_before_a_gap_and_what_fills_it,
    look_and_submit_by_sequence,
    look_that_skips_and_what_is_late,
    release_and_submit,
    end_and_cancel_of_the_next,
    end_and_move_to_head,
    end_and_return_of_an_earlier_one,
]
VERBS = {end_and_cancel_of_the_next, end_and_move_to_head, end_and_return_of_an_earlier_one}
PLACING = [scene for scene in SCENES if scene.__name__.startswith("submit_and_submit")]


# --- what came of it
class Outcome(NamedTuple):
    """What people see of one schedule; ids without the key."""

    answers: tuple[Any, ...]
    handled: tuple[str, ...]
    tasks: frozenset[tuple[str, str, str | None, int | None]]


def brief(answer: Any) -> Any:
    match answer:
        case Submitted(created=created, task_id=task_id):
            return created, task_id.rpartition("-")[2]
        case Applied(task=task):
            return task.state
        case Refusal(verdict=verdict):
            return verdict
        case ConvoyApplied():
            return "done"
        case Claimed():
            return "claimed"  # what it got is among those that are handled
    return repr(answer)


def taken(answers: Sequence[Any]) -> list[TaskRow]:
    """Tasks that were claimed, by themselves or with the end of the one before."""
    found = []
    for answer in answers:
        if isinstance(answer, Claimed):
            found += [loaded.task for loaded in answer.tasks]
        elif isinstance(answer, Applied) and answer.next is not None:
            found.append(answer.next.task)
    return found


async def is_held(store: StateStore, task: TaskRow) -> bool:
    """No person has taken it away since."""
    loaded = await store.load(task.task_no)
    assert loaded is not None
    return loaded.task.locked_by == task.locked_by


async def outcomes(store: StateStore, clock: TestClock, answers: dict[str, list[Any]]) -> dict[str, Outcome]:
    """Drive what is left to its end, all keys at once; answers what came of each."""
    clock.to(AFTERWARDS)
    handled = defaultdict[str, list[str]](list)
    held = [task for given in answers.values() for task in taken(given) if await is_held(store, task)]
    while True:
        for task in held:
            handled[task.workflow].append(task.task_id.rpartition("-")[2])
        for ended in await store.apply([end_of(task) for task in held]):
            assert isinstance(ended, Applied), ended
        if not held and not (await store.due(tuple(answers), ())).tasks:
            break
        claim = msgspec.structs.replace(claim_of("", HOLDER, limit=100), workflows=tuple(answers))
        (answer,) = await store.apply([claim])
        assert isinstance(answer, Claimed)
        held = [loaded.task for loaded in answer.tasks]
    found = defaultdict[str, set[tuple[str, str, str | None, int | None]]](set)
    for task in await store.list_tasks(limit=100_000):
        found[task.workflow].add((task.task_id.rpartition("-")[2], task.state, task.turn, task.place))
    return {
        name: Outcome(tuple(map(brief, given)), tuple(handled[name]), frozenset(found[name]))
        for name, given in answers.items()
    }


async def serial(scene: Scene, order: tuple[int, int]) -> Outcome:
    """What the memory store makes of it, when one side comes after the other."""
    clock = TestClock()
    store = MemoryStore(clock)
    await prepared(store)
    two = await scene(store, clock, "key")
    answers: list[Any] = [None, None]
    for side in order:
        answers[side] = await two[side].in_memory(store)
    return (await outcomes(store, clock, {"key": answers}))["key"]


# --- the tests
@pytest.fixture(scope="module")
def url() -> str:
    """A database of this module's own."""
    return server(16).create_database("convoy_interleavings_" + worker())


@pytest.fixture
def pair(url: str) -> Iterator[Pair]:
    pair = Pair(url)
    yield pair
    pair.close()


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
async def store(url: str, clock: TestClock) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(f"{url}?listen=off", clock=clock)
    await store.open()
    emptied(url)
    await prepared(store)
    yield store
    await store.close()


class Schedules:
    """The operations of one schedule after another, on rows that are made when it begins."""

    def __init__(self, scene: Scene, store: StateStore, clock: TestClock, loop: asyncio.AbstractEventLoop) -> None:
        self._scene = scene
        self._store = store
        self._clock = clock
        self._loop = loop
        self.rides = RIDES | (BESIDE_VERBS if scene in VERBS else {BESIDE_SUBMISSIONS})
        if scene is not submit_and_submit_of_a_new_key:
            self.rides.add(OF_KNOWN_KEYS)
        self.made: list[tuple[Asked, Asked]] = []

    def __call__(self, number: int) -> tuple[Operation, Operation]:
        assert number == len(self.made)
        self._clock.to(later(Instant(NOON), -APART * number))
        making = asyncio.run_coroutine_threadsafe(self._scene(self._store, self._clock, name_of(number)), self._loop)
        self.made.append(making.result(60.0))
        first, second = self.made[number]
        return first.in_session, second.in_session


def name_of(number: int) -> str:
    return f"t{number}"


def run_all(pair: Pair, schedules: Schedules) -> list[tuple[Ran, list[Any]]]:
    """Each schedule with its answers, after whoever was passed over has asked again."""
    first, _ = schedules(0)
    _, second = schedules(1)
    for side, operation in zip(pair.sides, (first, second), strict=True):
        side.merged = frozenset()
        side.alone(operation)
        # Nobody sees any write before the COMMIT, and the rows are locked before the first.
        writes = {two for two in pairwise(side.steps) if is_write(two[0]) and is_write(two[1])}
        side.merged = frozenset(writes | schedules.rides)
    ended = []

    def made(number: int) -> tuple[Operation, Operation]:
        return schedules(number + 2)

    chosen = pair.every_schedule(made) if EVERY else pair.some_schedules(made, SOME)
    for number, ran in enumerate(chosen, start=2):
        answers = list(ran.answers)
        for side, asked_of in enumerate(schedules.made[number]):
            if asked_of.asks_again(answers[side]):
                answers[side] = pair.sides[side].alone(asked_of.in_session)
        ended.append((ran, answers))
    return ended


async def run_scene(scene: Scene, store: PostgresStore, clock: TestClock, pair: Pair) -> list[tuple[Ran, Outcome]]:
    schedules = Schedules(scene, store, clock, asyncio.get_running_loop())
    ended = await asyncio.to_thread(run_all, pair, schedules)
    came_out = await outcomes(store, clock, {name_of(n): given for n, (_, given) in enumerate(ended, start=2)})
    return [(ran, came_out[name_of(n)]) for n, (ran, _) in enumerate(ended, start=2)]


def refuse_places_out_of_commit_order(ended: Sequence[tuple[Ran, Outcome]]) -> None:
    """Raises AssertionError: somebody could see a later place before an earlier one."""
    for ran, outcome in ended:
        committed = [step.partition(":")[0] for step in ran.steps if step.endswith(": COMMIT")]
        places = {task_id: place for task_id, _, _, place in outcome.tasks}
        if places.keys() >= {"a", "b"}:
            first, second = (places["ab"[("first", "second").index(side)]] for side in committed)
            assert first is not None
            assert second is not None
            assert first < second, "a later place was seen first:\n" + "\n".join(ran.steps)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_two_on_one_key_end_as_if_one_had_come_after_the_other(
    scene: Scene, store: PostgresStore, clock: TestClock, pair: Pair
) -> None:
    wanted = [await serial(scene, order) for order in ((0, 1), (1, 0))]
    ended = await run_scene(scene, store, clock, pair)
    for ran, outcome in ended:
        assert outcome in wanted, "\n".join(ran.steps)
    assert {outcome for _, outcome in ended} == set(wanted)
    if scene in PLACING:
        refuse_places_out_of_commit_order(ended)
    assert {violation.invariant for violation in await history_violations(store)} <= {"I19"}  # each has its own instant
    assert await disagreements(store) == []
    assert await broken_links(store) == []


async def test_places_that_are_given_before_the_order_of_commits_is_decided_are_found_out(
    store: PostgresStore, clock: TestClock, pair: Pair, url: str
) -> None:
    """What the lock of the tail is for: the same with places from a sequence."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SEQUENCE IF NOT EXISTS arriero.broken_place START 1000")
    broken = (
        "-- lock_tails: without a lock\n"
        "SELECT convoy_no, key, ordering, nextval('arriero.broken_place') AS placed, last_rank, end_rank, asks"
        " FROM arriero.convoy_tail WHERE key = ANY(%(keys)s) ORDER BY convoy_no"
    )
    for side in pair.sides:
        replace_statement(side.session._statements, "lock_tails", broken)
    ended = await run_scene(submit_and_submit_of_a_busy_key, store, clock, pair)
    with pytest.raises(AssertionError, match="a later place was seen first"):
        refuse_places_out_of_commit_order(ended)
