"""Convoys on PostgreSQL: places in the order of commits, strangers' open transactions, and the function in the database."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import psycopg
import pytest
from interleaving import replace_statement
from postgres_servers import database, emptied, server, worker
from psycopg.rows import scalar_row
from store_checks import broken_links, disagreements, history_violations
from store_world import FAILED, KNOWN, NOON, OTHERWISE, TestClock, World, submission
from test_postgres_plans import Explaining, faults

from arriero import Agent, App, Attempt, InvalidInput, TransactionConflict, workflow
from arriero.core import transitions
from arriero.core.placement import Spot, build_first_convoy, build_first_tail, needs_convoy
from arriero.model import ConvoyRow, ConvoyState, ConvoyVerb, Instant, StatusRow, TailRow, TaskRow, Verb
from arriero.model.answers import Applied, Claimed, ConvoyApplied, Refusal, Submitted
from arriero.model.commands import Advance, HandOver, Operate, OperateConvoy, Submit
from arriero.model.moves import Hold, Process
from arriero.model.policies import ConvoyPolicy, Supervision, TaskPolicy
from arriero.store.contract import Busy, ConvoyLoaded
from arriero.store.postgres.store import PostgresStore

PATIENCE = 60.0
KEY = "customer-7"
HERE = HandOver(("fulfil",))
SKIPS = msgspec.json.encode(TaskPolicy(None, Supervision(), ConvoyPolicy(head="skip"))).decode()
SOMEBODY_WAITS = """SELECT count(*) > 0 FROM pg_stat_activity
                     WHERE datname = current_database() AND wait_event_type = 'Lock'"""

payments = Agent("payments")
handled: list[str] = []
going_on = asyncio.Event()


@payments.step
async def charge(attempt: Attempt) -> None:
    await going_on.wait()
    handled.append(attempt.task_id)


@workflow
async def order() -> None:
    await charge()


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    global going_on
    handled.clear()
    going_on = asyncio.Event()
    return emptied(database(kind="convoys"))


def shop(url: str) -> App:
    return App("shop", agents=[payments], workflows=[order], store=url)


@pytest.fixture
async def app(url: str) -> AsyncIterator[App]:
    """A client of the store that has run once, so that ``arriero.submit`` knows its workflow; it ends in good order."""
    async with shop(url).running():
        pass
    async with shop(url) as opened:
        yield opened
        await is_sound(opened.session.store)


async def is_sound(store: Any) -> None:
    assert await history_violations(store) == []
    assert await disagreements(store) == []
    assert await broken_links(store) == []


def asked(url: str, sql: str) -> list[Any]:
    """The first column, as everybody sees it."""
    with psycopg.connect(url, row_factory=scalar_row) as connection:
        return connection.execute(sql.encode()).fetchall()


def places(url: str) -> dict[str, int]:
    with psycopg.connect(url) as connection:
        return dict(connection.execute("SELECT task_id, place FROM arriero.task WHERE place IS NOT NULL").fetchall())


async def until(url: str, sql: str) -> None:
    """Wait until a query answers true."""
    async with asyncio.timeout(PATIENCE), await psycopg.AsyncConnection.connect(url, autocommit=True) as looking:
        while not (await (await looking.execute(sql.encode())).fetchone() or (False,))[0]:
            pass


# --- places
Submits = Callable[[App, psycopg.AsyncConnection[Any], str], Awaitable[object]]


async def by_python(app: App, connection: psycopg.AsyncConnection[Any], task_id: str) -> object:
    return await app.submit(order(), task_id=task_id, convoy=KEY, connection=connection)


async def by_sql(app: App, connection: psycopg.AsyncConnection[Any], task_id: str) -> object:
    return await connection.execute("SELECT arriero.submit('order', '{}', task_id => %s, convoy => %s)", (task_id, KEY))


either_way = pytest.mark.parametrize("first", [by_python, by_sql], ids=lambda submits: submits.__name__)
either_way_too = pytest.mark.parametrize("second", [by_python, by_sql], ids=lambda submits: submits.__name__)


@asynccontextmanager
async def two_transactions(
    url: str,
) -> AsyncIterator[tuple[psycopg.AsyncConnection[Any], psycopg.AsyncConnection[Any]]]:
    async with (
        await psycopg.AsyncConnection.connect(url) as first,
        await psycopg.AsyncConnection.connect(url) as second,
    ):
        yield first, second


@either_way
@either_way_too
@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("commits", [True, False])
async def test_whoever_submits_to_a_key_of_an_open_transaction_waits_for_its_end_and_no_place_stays_empty(
    app: App, url: str, first: Submits, second: Submits, is_new: bool, commits: bool
) -> None:
    if not is_new:
        await app.submit(order(), task_id="before", convoy=KEY)
    before = places(url)
    async with two_transactions(url) as (one, other):
        await first(app, one, "a")
        waiting = asyncio.create_task(second(app, other, "b"))  # type: ignore[arg-type]
        await until(url, SOMEBODY_WAITS)
        assert places(url) == before
        if commits:
            await one.commit()
        else:
            await one.rollback()
        await waiting
        assert places(url) == (before | {"a": len(before) + 1} if commits else before)
        await other.commit()
    wanted = {"a": 1, "b": 2} if commits else {"b": 1}
    assert places(url) == before | {task_id: place + len(before) for task_id, place in wanted.items()}


async def test_a_savepoint_that_is_rolled_back_gives_its_place_back(app: App, url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await by_python(app, connection, "a")
        await connection.execute("SAVEPOINT mine")
        await by_sql(app, connection, "gone")
        await connection.execute("ROLLBACK TO mine")
        await by_sql(app, connection, "b")
    assert places(url) == {"a": 1, "b": 2}


@either_way
async def test_whoever_has_waited_for_a_key_up_to_the_lock_timeout_is_told_to_run_again(
    app: App, url: str, first: Submits
) -> None:
    async with two_transactions(url) as (one, other):
        await first(app, one, "a")
        for submits, error in ((by_python, TransactionConflict), (by_sql, psycopg.errors.LockNotAvailable)):
            await other.execute("SET LOCAL lock_timeout = '50ms'")
            with pytest.raises(error, match="lock timeout"):
                await submits(app, other, "b")
            await other.rollback()
        (answer,) = await app.session.store.submit([submission("b", convoy=KEY)])
        assert isinstance(answer, Busy)
        assert KEY in str(answer)
    await by_python_alone(app, "b")
    assert places(url) == {"a": 1, "b": 2}


async def by_python_alone(app: App, task_id: str) -> None:
    await app.submit(order(), task_id=task_id, convoy=KEY)


async def test_two_keys_in_the_other_order_are_a_conflict_and_nobody_hangs(app: App, url: str) -> None:
    async with two_transactions(url) as (one, other):
        await app.submit(order(), task_id="a", convoy="x", connection=one)
        await app.submit(order(), task_id="b", convoy="y", connection=other)
        await one.execute("SET LOCAL deadlock_timeout = '10s'")  # so that it is the other that finds it
        waiting = asyncio.create_task(app.submit(order(), task_id="c", convoy="y", connection=one))
        await until(url, SOMEBODY_WAITS)
        await other.execute("SET LOCAL deadlock_timeout = '1ms'")
        with pytest.raises(TransactionConflict, match="deadlock detected"):
            await app.submit(order(), task_id="d", convoy="x", connection=other)
        await other.rollback()
        await waiting
    assert places(url) == {"a": 1, "c": 1}


# --- a stranger's open transaction
@either_way
async def test_a_stranger_s_open_transaction_on_a_busy_key_holds_up_neither_its_tasks_nor_other_keys(
    app: App, url: str, first: Submits
) -> None:
    names = [f"k{number}" for number in range(3)]
    async with await psycopg.AsyncConnection.connect(url) as stranger, asyncio.timeout(PATIENCE), shop(url).running():
        for name in names:
            await by_python_alone(app, name)
        await first(app, stranger, "strange")
        blocked = asyncio.create_task(by_python_alone(app, "after"))
        others = [app.submit(order(), task_id=f"o{n}", convoy=f"key {n % 4}") for n in range(12)]
        await asyncio.gather(*others)
        going_on.set()
        for name in (*names, *(f"o{number}" for number in range(12))):
            await app.task(name).result()
        assert not blocked.done()
        assert "strange" not in handled
        await stranger.commit()
        await blocked
        for name in ("strange", "after"):
            await app.task(name).result()
    assert [name for name in handled if not name.startswith("o")] == [*names, "strange", "after"]
    for key in range(4):
        mine = [name for name in handled if name in {f"o{n}" for n in range(12) if n % 4 == key}]
        assert mine == [f"o{n}" for n in range(12) if n % 4 == key]


async def test_a_stranger_s_rollback_leaves_a_key_as_it_was(app: App, url: str) -> None:
    going_on.set()
    async with await psycopg.AsyncConnection.connect(url) as stranger, asyncio.timeout(PATIENCE), shop(url).running():
        await by_python_alone(app, "a")
        await app.task("a").result()
        await by_sql(app, stranger, "gone")
        await stranger.rollback()
        await by_python_alone(app, "b")
        await app.task("b").result()
    assert handled == ["a", "b"]
    assert places(url) == {"a": 1, "b": 2}


# --- on the store itself, on a clock of the test
@asynccontextmanager
async def opened(url: str) -> AsyncIterator[World]:
    clock = TestClock()
    store = PostgresStore(f"{url}?listen=off&prepare=off", clock=clock)
    await store.open()
    world = World(store, clock)
    await world.process(secrets.token_hex(4))
    yield world
    await store.close()


@pytest.fixture
async def world(url: str) -> AsyncIterator[World]:
    """With it, at the end of every test the history is clean and equals the tables."""
    async with opened(url) as world:
        yield world
        await is_sound(world.store)


async def convoy(world: World, key: str = KEY) -> ConvoyLoaded:
    found = await world.store.find_convoy(key)
    assert found is not None
    return found


async def head(world: World) -> TaskRow:
    (loaded,) = await world.claim()
    return loaded.task


def end_of(world: World, task: TaskRow) -> Advance:
    return world.advance_command(task, ending=Process('"done"'))


async def on_key(world: World, verb: ConvoyVerb, key: str = KEY, **changes: Any) -> OperateConvoy:
    row = (await convoy(world, key)).convoy
    fields = {"actor": "ann", "verb": verb, "convoy_no": row.convoy_no, "fence": row.fence, "by": "ann"}
    return OperateConvoy(reason="test", **(fields | changes))


@asynccontextmanager
async def holding(url: str, row: str) -> AsyncIterator[None]:
    """A stranger has a row locked."""
    async with await psycopg.AsyncConnection.connect(url) as stranger:
        await stranger.execute(f"SELECT FROM arriero.{row} FOR NO KEY UPDATE".encode())
        yield


async def ids_in_order(world: World, held: list[TaskRow] | None = None) -> list[str]:
    """The ids of tasks in the order in which their turn comes, each ended well; looked for until a minute has passed."""
    found = []
    for _ in range(20):
        for task in held or [loaded.task for loaded in await world.claim()]:
            found.append(task.task_id)
            assert isinstance(await world.apply(end_of(world, task)), Applied)
        held = None
        world.clock.move(3.0)
    return found


async def test_of_two_ends_in_one_batch_only_that_waits_whose_convoy_a_stranger_holds(world: World, url: str) -> None:
    for key in ("x", "y"):
        for number in (1, 2):
            await world.submit(f"{key}{number}", convoy=key)
    ends = {loaded.task.task_id: end_of(world, loaded.task) for loaded in await world.claim()}
    number = (await convoy(world, "x")).convoy.convoy_no
    async with holding(url, f"convoy WHERE convoy_no = {number}"):
        of_x, of_y = await world.store.apply([ends["x1"], ends["y1"]])
        assert isinstance(of_x, Busy)
        assert isinstance(of_y, Applied)
        assert (await convoy(world, "x")).convoy.state is ConvoyState.OPEN
        assert await world.claimed_ids() == ["y2"]
    (again,) = await world.store.apply([ends["x1"]])
    assert isinstance(again, Applied)
    assert await world.claimed_ids() == ["x2"]


async def ends_while_its_head_is_held(world: World, url: str, *, hand_over: bool) -> list[str]:
    """The order in which a key's tasks are handled, when the first that waits is a stranger's as the one before ends."""
    _, second, _ = [await world.submit(task_id, convoy=KEY) for task_id in "abc"]
    task = await head(world)
    async with holding(url, f"task WHERE task_no = {second}"):
        answer = await world.advance(task, ending=Process('"done"'), **({"hand_over": HERE} if hand_over else {}))
        held = [] if answer.next is None else [answer.next.task]
        held += [loaded.task for loaded in await world.claim()]
    return [task.task_id, *await ids_in_order(world, held)]


async def test_a_stranger_s_submission_of_a_number_that_is_not_late_does_not_hold_up_the_open_task(
    world: World, url: str
) -> None:
    await world.submit("s1", convoy=KEY, sequence=1)
    task = await head(world)
    with psycopg.connect(url) as stranger:
        joined(world, of_key("s2", sequence=2), stranger)
        assert isinstance(await world.apply(end_of(world, task)), Applied)
        stranger.commit()
    assert await ids_in_order(world) == ["s2"]


@pytest.mark.parametrize("hand_over", [True, False])
async def test_a_head_that_a_stranger_holds_is_waited_for_and_not_jumped_over(
    world: World, url: str, hand_over: bool
) -> None:
    assert await ends_while_its_head_is_held(world, url, hand_over=hand_over) == ["a", "b", "c"]


async def test_the_order_is_seen_to_be_broken_when_the_next_one_is_picked_past_a_lock(url: str) -> None:
    """What the test above is for: the same, with the lock inside the query that picks."""
    async with opened(url) as world:
        store = world.store
        assert isinstance(store, PostgresStore)
        broken = store._statements("lock_next_waiting").replace("LIMIT 1)", "LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)")
        replace_statement(store._statements, "lock_next_waiting", broken)
        assert (await ends_while_its_head_is_held(world, url, hand_over=True))[:2] == ["a", "c"]


# --- what one batch does to one key
@asynccontextmanager
async def looked_at_anew(world: World, url: str, key: str) -> AsyncIterator[None]:
    """A batch in which the last task of this key ends sends what it has written so far, and reads again."""
    async with holding(url, f"convoy_tail WHERE convoy_no = {(await convoy(world, key)).convoy.convoy_no}"):
        yield


async def test_a_task_that_comes_back_in_the_same_batch_comes_first(world: World, url: str) -> None:
    for task_id in "abc":
        await world.submit(task_id, convoy=KEY, policy=SKIPS)
    await world.submit("other", convoy="other")
    first, other = [loaded.task for loaded in await world.claim()]
    failed = await world.advance(first, ending=Hold(FAILED))
    again = Operate(
        actor="ann", verb=Verb.RESUBMIT, task_no=failed.task.task_no, incarnation=1, by="ann", reason="test"
    )
    second = await head(world)
    async with looked_at_anew(world, url, "other"):
        answers = await world.store.apply([again, end_of(world, other), end_of(world, second)])
    assert [type(answer) for answer in answers] == [Applied] * 3
    assert await ids_in_order(world) == ["a", "c"]


async def test_what_a_person_moves_to_the_head_in_the_same_batch_comes_first(world: World, url: str) -> None:
    numbers = [await world.submit(task_id, convoy=KEY) for task_id in "abcd"]
    await world.submit("other", convoy="other")
    first, other = [loaded.task for loaded in await world.claim()]
    move = await on_key(world, ConvoyVerb.MOVE_TO_HEAD, task_no=numbers[3])
    async with looked_at_anew(world, url, "other"):
        answers = await world.store.apply([move, end_of(world, other), end_of(world, first)])
    assert [type(answer) for answer in answers] == [ConvoyApplied, Applied, Applied]
    assert await ids_in_order(world) == ["d", "b", "c"]


# --- the function in the database and the batch of submissions, compared with core
Prepares = Callable[[World], Awaitable[object]]


def of_key(task_id: str, **changes: Any) -> Submit:
    return submission(task_id, convoy=KEY, **changes)


async def new(world: World) -> None:
    """A key that nobody used before."""


async def busy(world: World) -> None:
    await world.submit("x", convoy=KEY)


async def idle(world: World) -> None:
    await busy(world)
    await world.apply(end_of(world, await head(world)))


async def parked_at_rest(world: World) -> None:
    await idle(world)
    await world.apply(await on_key(world, ConvoyVerb.PARK))


async def parked_and_busy(world: World) -> None:
    await busy(world)
    await world.apply(await on_key(world, ConvoyVerb.PARK))


async def stopped(world: World) -> None:
    await busy(world)
    await world.advance(await head(world), ending=Hold(FAILED))


async def idle_by_sequence(world: World) -> None:
    await world.submit("x", convoy=KEY, sequence=1)
    await world.apply(end_of(world, await head(world)))


async def busy_by_sequence(world: World) -> None:
    await world.submit("x", convoy=KEY, sequence=1)
    await head(world)


async def at_a_gap(world: World) -> None:
    await world.submit("x", convoy=KEY, sequence=3)
    assert await world.claim() == []


async def beyond_a_gap(world: World) -> None:
    """Sequence 4 is open, 1 was skipped."""
    await world.submit("x", convoy=KEY, sequence=4)
    assert await world.claim() == []
    await world.apply(await on_key(world, ConvoyVerb.SKIP))
    await head(world)


BY_PLACE = [new, busy, idle, parked_at_rest, parked_and_busy, stopped]
BY_SEQUENCE = [new, idle_by_sequence, busy_by_sequence, at_a_gap, beyond_a_gap]
EXTRA: list[dict[str, Any]] = [
    {},
    {"end_of_sequence": True},
    {"delay": 60.25},
    {"reply_to": "web", "complete_within": 10.0},
]
CASES = [(prepares, extra) for prepares in BY_PLACE for extra in EXTRA]
CASES += [(prepares, extra | {"sequence": n}) for prepares in BY_SEQUENCE for extra in EXTRA for n in (2, 7)]


def joined(world: World, command: Submit, connection: Any) -> Submitted | Refusal:
    assert isinstance(world.store, PostgresStore)
    answer = world.store.submit_joined(command, connection)
    assert isinstance(answer, Submitted | Refusal)
    return answer


async def submit_by(way: str, world: World, url: str, command: Submit) -> Submitted | Refusal:
    if way == "batch":
        (answer,) = await world.store.submit([command])
        assert isinstance(answer, Submitted | Refusal)
        return answer
    with psycopg.connect(url) as connection:
        return joined(world, command, connection)


def spot_of(
    before: ConvoyLoaded | None, command: Submit, convoy_no: int, now: Instant
) -> tuple[TailRow, ConvoyRow, Spot]:
    if before is None:
        tail = build_first_tail(convoy_no, command)
        row = build_first_convoy(tail, now)
    else:
        tail, row = before.tail, before.convoy
    return tail, row, Spot(tail, row if needs_convoy(command, tail, row.expected) else None)


@pytest.mark.parametrize("way", ["function", "batch"])
@pytest.mark.parametrize(
    ("prepares", "changes"), CASES, ids=[f"{prepares.__name__} {changes}" for prepares, changes in CASES]
)
async def test_rows_and_events_are_those_that_core_makes(
    world: World, url: str, way: str, prepares: Prepares, changes: dict[str, Any]
) -> None:
    await prepares(world)
    world.clock.move(1.5)
    before = await world.store.find_convoy(KEY)
    command = of_key("new", **changes)
    answer = await submit_by(way, world, url, command)
    after = await convoy(world)
    tail, row, spot = spot_of(before, command, after.tail.convoy_no, world.clock())
    if isinstance(answer, Refusal):
        assert command.end_of_sequence
        assert command.sequence is not None
        assert command.sequence < tail.last_rank
        assert (after.tail, after.convoy) == (tail, row)
        return
    expected = transitions.build_new_task(command, answer.task_no, world.clock(), spot)
    assert expected.convoy is not None
    assert (after.tail, after.convoy) == (expected.convoy.tail, expected.convoy.convoy or row)
    (link,) = [found async for found in world.store.history(answer.task_no)]
    assert msgspec.json.decode(link.events) == msgspec.json.decode(msgspec.json.encode(expected.events))
    assert await world.task(answer.task_no) == msgspec.structs.replace(expected.task, link=1, head=link.hash)
    told = [msgspec.structs.replace(status, no=0) for status in await world.store.load_statuses("web", 10)]
    assert told == [_told(status, command) for status in expected.statuses]


def _told(status: StatusRow, command: Submit) -> StatusRow:
    return msgspec.structs.replace(status, no=0, task_id=command.task_id)


REFUSED: list[tuple[Prepares, dict[str, Any]]] = [
    (idle, {"sequence": 1}),
    (idle_by_sequence, {}),
    (idle_by_sequence, {"sequence": 1, "body_hash": "another"}),
    (idle_by_sequence, {"sequence": 1, "workflow": "another"}),
    (idle_by_sequence, {"sequence": 1}),
    (idle_by_sequence, {"task_id": "x", "sequence": 2}),
    (idle_by_sequence, {"task_id": "x", "sequence": 1}),
    (idle_by_sequence, {"task_id": "x", "sequence": 1, "body_hash": "another"}),
    (idle, {"task_id": "x", "convoy": "another"}),
    (idle, {"task_id": "x", "convoy": None}),
    (idle, {"task_id": "x"}),
    (at_a_gap, {"sequence": 2, "end_of_sequence": True}),
    (beyond_a_gap, {"sequence": 4, "task_id": "y"}),
]


@pytest.mark.parametrize(
    ("prepares", "changes"), REFUSED, ids=[f"{prepares.__name__} {changes}" for prepares, changes in REFUSED]
)
async def test_the_function_refuses_and_recognizes_what_a_batch_does(
    world: World, url: str, prepares: Prepares, changes: dict[str, Any]
) -> None:
    await prepares(world)
    before = (await convoy(world)), await world.rows()
    command = msgspec.structs.replace(of_key("new"), **changes)
    by_function, by_batch = [await submit_by(way, world, url, command) for way in ("function", "batch")]
    if isinstance(by_batch, Submitted):
        assert not by_batch.created
        assert isinstance(by_function, Submitted)
        assert (by_function.task_no, by_function.created) == (by_batch.task_no, False)
        assert (by_function.task_id or command.task_id) == (by_batch.task_id or command.task_id)
    else:
        assert isinstance(by_function, Refusal)
        assert by_function.verdict == by_batch.verdict
    assert ((await convoy(world)), await world.rows()) == before


async def test_nothing_comes_behind_an_end_mark_by_whatever_way(world: World, url: str) -> None:
    for key, numbers in (("places", {}), ("numbers", {"sequence": 5})):
        await world.submit(f"{key} end", convoy=key, end_of_sequence=True, **numbers)
        for way in ("function", "batch"):
            late = submission(f"{key} {way}", convoy=key, **({"sequence": 6} if numbers else {}))
            answer = await submit_by(way, world, url, late)
            assert isinstance(answer, Refusal)
            assert "has ended" in answer.detail


@pytest.mark.parametrize(("task_id", "changes", "what"), OTHERWISE, ids=str)
async def test_a_known_id_with_another_part_is_refused_in_the_callers_transaction_as_in_ours(
    world: World, url: str, task_id: str, changes: dict[str, Any], what: str
) -> None:
    for known, part in KNOWN.items():
        await world.submit(known, **part)
    other = submission(task_id, **(KNOWN[task_id] | changes))
    assert await submit_by("function", world, url, other) == await submit_by("batch", world, url, other)
    assert await submit_by("batch", world, url, other) == Refusal(
        "conflict", f"task {task_id!r} exists with another {what}"
    )
    assert await world.store.find_convoy("never used") is None


# --- by SQL
WRONG = [
    ("convoy => ''", "convoy '' is not 1 to 255 characters", "shorter key"),
    ("convoy => repeat('x', 256)", "is not 1 to 255 characters", "shorter key"),
    ("convoy => E'a\\nb'", "without control characters", "shorter key"),
    ("sequence => 1", "is given without convoy", "name the convoy"),
    ("end_of_sequence => true", "is given without convoy", "name the convoy"),
    ("convoy => 'a', sequence => 0", "sequence is 0", "from 1 to"),
    ("convoy => 'a', sequence => -1", "sequence is -1", "from 1 to"),
    ("convoy => 'a', sequence => 9007199254740993", "sequence is 9007199254740993", "from 1 to"),
    ("convoy => 'places', sequence => 2", "convoy 'places' cannot take the task", "by place or by sequence"),
    ("convoy => 'numbers'", "convoy 'numbers' cannot take the task", "by place or by sequence"),
    ("convoy => 'over'", "convoy 'over' cannot take the task", "it has ended"),
]
IN_THE_WAY = [
    ("task_id => 'known'", "'known' exists with another convoy", "another task_id"),
    ("task_id => 'known', convoy => 'never used'", "'known' exists with another convoy", "another task_id"),
    ("task_id => 'known', convoy => 'numbers', sequence => 9", "'known' exists with another convoy", "another task_id"),
    (
        "task_id => 'first', convoy => 'numbers', sequence => 9",
        "'first' exists with another sequence",
        "another task_id",
    ),
    ("convoy => 'numbers', sequence => 2", "sequence 2 of convoy 'numbers' is task 'other'", "number each operation"),
]


async def _some_convoys(app: App, url: str) -> None:
    for given in (
        "task_id => 'known', convoy => 'places'",
        "task_id => 'first', convoy => 'numbers', sequence => 1",
        "task_id => 'last', convoy => 'over', end_of_sequence => true",
    ):
        asked(url, f"SELECT arriero.submit('order', '{{}}', {given})")
    await app.submit(charge(), task_id="other", convoy="numbers", sequence=2)


@pytest.mark.parametrize(("given", "message", "hint"), WRONG, ids=[wrong[0] for wrong in WRONG])
async def test_what_cannot_be_is_refused_with_a_hint(app: App, url: str, given: str, message: str, hint: str) -> None:
    await _some_convoys(app, url)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=message) as raised:
        asked(url, f"SELECT arriero.submit('order', '{{}}', {given})")
    assert hint in (raised.value.diag.message_hint or "")


@pytest.mark.parametrize(("given", "message", "hint"), IN_THE_WAY, ids=[wrong[0] for wrong in IN_THE_WAY])
async def test_what_is_known_otherwise_is_a_unique_violation(
    app: App, url: str, given: str, message: str, hint: str
) -> None:
    await _some_convoys(app, url)
    with pytest.raises(psycopg.errors.UniqueViolation, match=message) as raised:
        asked(url, f"SELECT arriero.submit('order', '{{}}', {given})")
    assert hint in (raised.value.diag.message_hint or "")


async def test_the_same_number_again_by_sql_answers_with_the_id_of_its_task(app: App, url: str) -> None:
    again = "SELECT arriero.submit('order', '{}', task_id => 'anew', convoy => 'numbers', sequence => 1)"
    for submitted in ("by python", "by sql"):
        if submitted == "by python":
            await app.submit(order(), task_id="first", convoy="numbers", sequence=1)
        assert asked(url, again) == ["first"]
    assert (await app.submit(order(), task_id="once more", convoy="numbers", sequence=1)).id == "first"
    assert places(url) == {"first": 1}


async def test_a_key_may_be_joined_by_an_order_of_the_caller_s_and_is_refused_without_harm(app: App, url: str) -> None:
    await app.submit(order(), task_id="a", convoy=KEY)
    with psycopg.connect(url) as connection:
        with pytest.raises(InvalidInput, match="ordered by place"):
            await app.submit(order(), task_id="b", convoy=KEY, sequence=1, connection=connection)
        await app.submit(order(), task_id="c", convoy=KEY, connection=connection)
    assert places(url) == {"a": 1, "c": 2}


# --- a hot key
WAITING = 50_000
PICKING = {"lock_next_waiting", "seal_drained", "select_drained", "select_claimable", "lock_convoys", "lock_tails"}
PAGES_MAX = 40  # of shared buffers for one statement: depths of indexes, and the rows themselves


@pytest.fixture(scope="module")
def hot() -> Iterator[str]:
    """A database with a key where as many tasks have ended as wait; what is dead is still there, as for a long snapshot."""
    name = f"hot_key_{worker()}"
    server().drop_database(name)
    url = server().create_database(name)
    asyncio.run(_make_hot(url))
    with psycopg.connect(url, isolation_level=None) as old:  # an old snapshot: nothing dead is cleared away for good
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM arriero.convoy")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                f"UPDATE arriero.task SET turn = 'ended', state = 'processed', ended_at = {NOON}"
                f" WHERE turn = 'waiting' AND rank <= {WAITING}"
            )
            connection.execute(
                f"UPDATE arriero.convoy SET from_rank = {WAITING}, reached = {WAITING} WHERE open_task IS NOT NULL"
            )
        yield url
    server().drop_database(name)


async def _make_hot(url: str) -> None:
    async with opened(url) as world:
        for table in ("task", "body", "history", "convoy", "convoy_tail"):
            run(url, f"ALTER TABLE arriero.{table} SET (autovacuum_enabled = off)")
        for task_id in "ab":
            await world.submit(task_id, convoy=KEY)
        columns = [name for name in TaskRow.__struct_fields__ if name not in ("task_no", "task_id", "place", "rank")]
        listed = ", ".join(columns)
        run(
            url,
            f"INSERT INTO arriero.task (task_no, task_id, place, rank, {listed})"
            f" SELECT 1000 + n, 'n' || n, n, n, {listed} FROM arriero.task, generate_series(3, {WAITING * 2}) AS n"
            " WHERE task_id = 'b'",
        )
        run(url, "INSERT INTO arriero.body SELECT task_no, '{}' FROM arriero.task WHERE task_no > 1000")
        run(url, f"UPDATE arriero.convoy_tail SET placed = {WAITING * 2}, last_rank = {WAITING * 2}")


def run(url: str, sql: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.encode())


@pytest.mark.parametrize("statistics", ["of few", "never", "empty", "now"])
async def test_the_next_of_fifty_thousand_is_found_by_its_index_and_not_by_way_of_those_that_have_ended(
    hot: str, monkeypatch: pytest.MonkeyPatch, statistics: str
) -> None:
    set_statistics(hot, statistics)
    explaining = Explaining(monkeypatch)
    async with opened(hot) as world:
        explaining.taken()
        for _ in range(2):
            (answer,) = await world.store.apply([world.claim_command()])
            assert isinstance(answer, Claimed)
            (ended,) = await world.store.apply([end_of(world, loaded.task) for loaded in answer.tasks])
            assert isinstance(ended, Applied)
        await world.store.submit([submission(f"new {statistics}", convoy=KEY)])
        executed = explaining.taken()
    picking = [one for one in executed if one.name in PICKING]
    assert {one.name for one in picking} == PICKING
    assert [fault for one in picking for fault in faults(one)] == []
    assert {one.name: one.pages for one in picking if one.pages > PAGES_MAX} == {}


def set_statistics(url: str, when: str) -> None:
    """Statistics as they are made of ``few`` rows, ``never`` made, made of ``empty`` tables, or made ``now``."""
    tables = "(SELECT oid FROM pg_class WHERE relnamespace = 'arriero'::regnamespace)"
    if when == "now":
        run(url, "ANALYZE")
    elif when != "of few":
        run(url, f"DELETE FROM pg_statistic WHERE starelid IN {tables}")
        run(url, f"UPDATE pg_class SET reltuples = {0 if when == 'empty' else -1}, relpages = 0 WHERE oid IN {tables}")
