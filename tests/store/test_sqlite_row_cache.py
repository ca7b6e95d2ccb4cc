"""The file store remembers rows between transactions; what it remembers is always what the file says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from store_checks import broken_links, disagreements, history_violations
from store_world import LEASE, TestClock, World, retry_at, step, submission

import arriero
from arriero import Agent, App, Attempt, workflow
from arriero.core.ledger_batches import LedgerBatch, LedgerEntry
from arriero.model import Instant, LedgerState, Loaded, TaskRow, TaskState, Turn
from arriero.model.answers import Answer, Applied, Refusal, Submitted
from arriero.model.commands import AnyCommand, HandOver
from arriero.model.moves import Fired, Process
from arriero.runtime.settings import Settings
from arriero.store.contract import Purge
from arriero.store.rows import convoy_of, tail_of
from arriero.store.sqlite import row_cache
from arriero.store.sqlite.columns import step_of, task_of
from arriero.store.sqlite.store import SqliteStore
from arriero.store.sqlite.store_rows import SqliteRows
from arriero.store.sqlite.task_rows import query

HERE = HandOver(("fulfil",))
KEY = "customer-7"
Opens = Callable[[], Awaitable[SqliteStore]]


@pytest.fixture
async def world(open_sqlite: Opens, clock: TestClock) -> AsyncIterator[World]:
    """One store on the file; what it remembers at the end of every test is what the file says."""
    world = World(await open_sqlite(), clock)
    await world.process()
    yield world
    await agrees(world)
    assert await history_violations(world.store) == []
    assert await disagreements(world.store) == []
    assert await broken_links(world.store) == []


@pytest.fixture
async def other(world: World, open_sqlite: Opens, clock: TestClock) -> World:
    """The same file, as another process has it open."""
    return World(await open_sqlite(), clock)


def of(world: World) -> row_cache.RowCache:
    assert isinstance(world.store, SqliteStore)
    return world.store._row_cache


async def agrees(world: World) -> None:
    """Compare what the next transaction would find in the cache with the file."""

    def compare(tables: SqliteRows) -> None:
        known, connection = of(world), tables.connection
        for task in known.tasks.values():
            assert task == task_of(connection.execute(query("select_task"), {"task_no": task.task_no}).fetchone())
        for of_task in known.steps.values():
            for row in of_task.values():
                assert row == step_of(connection.execute(query("select_step"), {"step_no": row.step_no}).fetchone())
        for convoy in known.convoys.values():
            asked = {"convoy_no": convoy.convoy_no}
            assert convoy == convoy_of(connection.execute(query("select_convoy"), asked).fetchone())
        for tail in known.tails.values():
            assert tail == tail_of(connection.execute(query("select_tail_by_key"), {"key": tail.key}).fetchone())
        for convoy_no, line in known.waiting.items():
            asked = {"convoy_no": convoy_no, "rank": 0, "place": 0, "limit": 100}
            rows = connection.execute(query("select_waiting_line"), asked).fetchall()
            found = [Loaded(task_of(row[:-1]), row[-1], ()) for row in rows]
            assert list(line._line) == found[: len(line._line)]
            assert not line._is_whole or len(line._line) == len(found)

    assert isinstance(world.store, SqliteStore)
    await world.store._write(compare)


async def done(world: World, task: TaskRow) -> Applied:
    return await world.advance(task, ending=Process('"done"'), hand_over=HERE)


async def in_a_convoy(world: World) -> TaskRow:
    """Four tasks of one key: one has ended, the second has its turn and a step, the others wait."""
    for task_id in ("a", "b", "c", "d"):
        await world.submit(task_id, convoy=KEY)
    (loaded,) = await world.claim()
    answer = await done(world, loaded.task)
    assert answer.next is not None
    return (await world.running(answer.next.task, "charge"))[0]


def is_empty(known: row_cache.RowCache) -> bool:
    return not (known.tasks or known.steps or known.convoys or known.tails or known.waiting)


# --- what is kept
async def test_rows_of_what_is_open_are_remembered_as_the_file_has_them(world: World) -> None:
    task = await in_a_convoy(world)
    known = of(world)
    assert known.tasks[task.task_no] == task
    assert [row.name for row in known.steps[task.task_no].values()] == ["charge"]
    assert (len(known.convoys), list(known.tails), len(known.waiting)) == (1, [KEY], 1)
    await agrees(world)
    assert known.tasks[task.task_no] == task


async def test_a_changed_step_is_remembered_as_it_was_changed(world: World) -> None:
    task = await in_a_convoy(world)
    (charge,) = (await world.load(task.task_no)).steps
    for attempt in (2, 3):
        await world.report(charge, retry_at(world.clock.at))
        (charge,) = [dispatch.step for dispatch in await world.take()]
        assert of(world).steps[charge.task_no][charge.step_no] == charge
        assert charge.attempt == attempt


async def test_who_comes_while_the_line_is_known_gets_its_turn(world: World) -> None:
    for sequence in (1, 2, 6):
        await world.submit(f"s{sequence}", convoy=KEY, sequence=sequence)
    (loaded,) = await world.claim()
    answer = await done(world, loaded.task)
    for sequence in (4, 3, 5, 7):
        await world.submit(f"s{sequence}", convoy=KEY, sequence=sequence)
        await agrees(world)
    handled = []
    while answer.next is not None:
        handled.append(answer.next.task.task_id)
        answer = await done(world, answer.next.task)
    assert handled == ["s2", "s3", "s4", "s5", "s6", "s7"]


async def test_what_nobody_drives_is_not_kept(world: World) -> None:
    """What has ended, what waits for its turn, what is free: also after a late report looked at it."""
    task = await in_a_convoy(world)
    charge = next(iter(of(world).steps[task.task_no].values()))
    await world.submit("free")
    assert list(of(world).tasks) == [task.task_no]
    (loaded,) = await world.claim()
    assert list(of(world).tasks) == [task.task_no, loaded.task.task_no]
    await done(world, loaded.task)
    answer = await world.advance(task, [world.reported(charge)], ending=Process("1"))
    assert answer.task.state is TaskState.PROCESSED
    await world.store.apply([world.report_command(charge)])
    assert (of(world).tasks, of(world).steps) == ({}, {})


async def test_more_than_a_bound_is_forgotten_and_read_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "TASKS_MAX", 3)
    held = []
    for number in range(10):
        held.append(await world.held(f"t{number}"))
        assert len(of(world).tasks) <= 3
    for task in held:
        assert (await done(world, task)).task.state is TaskState.PROCESSED


async def test_lines_of_more_convoys_than_a_bound_are_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "WAITING_MAX", 2)
    for number in range(12):
        await world.submit(f"t{number}", convoy=f"key {number % 4}")
    turn = list(await world.claim())
    handled = []
    for loaded in turn:
        answer = await done(world, loaded.task)
        handled.append(loaded.task.task_id)
        turn += [] if answer.next is None else [answer.next]
        assert len(of(world).waiting) <= 2
    assert handled == [f"t{number}" for number in range(12)]


# --- when it is forgotten
async def test_what_another_connection_writes_counts_at_once(world: World, other: World) -> None:
    task = await in_a_convoy(world)
    for number in range(3):
        task = (await other.opened(task, step("ship", f"mine {number}")))[0]
        task = (await world.opened(task, step("ship", f"other's {number}")))[0]
    assert task.opened_count == 7


async def test_two_connections_end_the_tasks_of_one_key_in_turns(world: World, other: World) -> None:
    for number in range(12):
        await (world, other)[number % 2].submit(f"t{number}", convoy=KEY)
    (loaded,) = await world.claim()
    handled = [loaded.task.task_id]
    for number in range(11):
        answer = await done((other, world)[number % 3 == 0], loaded.task)
        assert answer.next is not None
        loaded = answer.next
        handled.append(loaded.task.task_id)
        await (world, other)[number % 2].submit(f"behind {number}", convoy=KEY)
    assert handled == [f"t{number}" for number in range(12)]
    await agrees(other)


async def test_a_submission_on_the_callers_own_connection_counts_at_once(world: World, tmp_path: Path) -> None:
    await in_a_convoy(world)
    assert isinstance(world.store, SqliteStore)
    with closing(arriero.connect(f"sqlite:///{tmp_path / 'store.db'}")) as callers:
        callers.execute("BEGIN IMMEDIATE")
        assert isinstance(world.store.submit_joined(submission("joined", convoy=KEY), callers), Submitted)
        callers.execute("COMMIT")
    behind = await world.task(await world.submit("behind", convoy=KEY))
    assert behind.place == 6


async def test_what_was_undone_was_never_so(world: World) -> None:
    task = await in_a_convoy(world)
    good = world.advance_command(task, opened=[step("ship")])
    broken = world.advance_command(await world.held("x"), [Fired(1, Instant(0))])  # of a timer that is not there
    with pytest.raises(AssertionError):
        await world.store.apply([good, broken])
    assert is_empty(of(world))
    assert (await world.task(task.task_no)).opened_count == 1
    assert isinstance(await world.apply(good), Applied)


async def test_a_store_that_is_opened_again_remembers_nothing_of_before(world: World, other: World) -> None:
    """Its new connection may count what others wrote up to the same number."""
    task = await in_a_convoy(world)
    await world.store.close()
    task = (await other.opened(task, step("ship")))[0]
    await world.store.open()
    assert (await world.opened(task, step("reserve")))[0].opened_count == 3


async def test_a_purge_leaves_nothing_remembered(world: World) -> None:
    task = await in_a_convoy(world)
    assert not is_empty(of(world))
    which = Purge(states=(TaskState.PROCESSED,), ended_before=world.clock.move(1))
    assert (await world.store.purge(which, actor="x", limit=10)).count == 1
    assert is_empty(of(world))
    assert (await world.opened(task, step("ship")))[0].opened_count == 2


async def test_entries_of_a_ledger_take_their_places_behind_what_was_remembered(world: World) -> None:
    store = world.store
    task = await in_a_convoy(world)
    ledger = await store.begin_ledger("may")
    entry = LedgerEntry(line=1, digest="d1", submit=submission("of a ledger", convoy=KEY))
    batch = LedgerBatch(ledger_no=ledger.ledger_no, after=0, entries=(entry,), refuses=False)
    written = (await store.write_ledger(batch)).ledger
    assert written is not None
    await store.open_ledger(ledger.ledger_no, 1, written.digest, "x")
    await world.submit("between", convoy=KEY)  # the tail and the line are known again
    let_go = await store.let_go(ledger.ledger_no, 10, "x")
    assert let_go is not None
    assert let_go.state is LedgerState.DONE
    assert (await world.task(await world.submit("last", convoy=KEY))).place == 7
    charge = next(iter((await world.load(task.task_no)).steps))
    answer = await world.advance(task, [world.reported(charge)], ending=Process("1"), hand_over=HERE)
    handled = []
    while answer.next is not None:
        handled.append(answer.next.task.task_id)
        answer = await done(world, answer.next.task)
    assert handled == ["c", "d", "between", "of a ledger", "last"]


async def test_a_retired_process_is_known_at_once_to_whoever_remembers_its_tasks(world: World, other: World) -> None:
    task = await in_a_convoy(world)
    await other.store.register("p2", LEASE)
    await other.lose(1)
    freed = await other.written(other.free_command(task))
    assert freed.task.locked_by is None
    await world.refused(world.advance_command(task, opened=[step("ship")]), "moved_on")
    (loaded,) = await world.claim(2)
    assert (loaded.task.task_id, loaded.task.turn) == ("b", Turn.OPEN)


# --- two Apps
desk = Agent("desk", max_in_flight=100)


@desk.step
async def book(attempt: Attempt, number: int) -> int:
    return number


@workflow
async def order(number: int) -> int:
    return await book(number) + await book(0)


async def test_two_apps_on_one_file_see_and_change_the_same_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One drives the tasks, the other carries out every step and submits: no command is refused as decided from old rows."""
    answers: list[Answer] = []
    apply = SqliteStore.apply

    async def noted(store: SqliteStore, batch: Sequence[AnyCommand]) -> list[Answer]:
        found = await apply(store, batch)
        answers.extend(found)
        return found

    monkeypatch.setattr(SqliteStore, "apply", noted)
    url = f"sqlite:///{tmp_path / 'store.db'}"
    apps = [App("desk", agents=[desk], workflows=[order], store=url) for _ in range(2)]
    for app in apps:
        app.session.settings = Settings(poll_seconds=0.01, linger_seconds=60.0, lease_seconds=20.0)
    async with apps[0].running(roles=["scheduler"]), apps[1].running(roles=["agents"]), asyncio.timeout(60):
        tasks = [await apps[1].submit(order(number), convoy=f"key {number % 3}") for number in range(12)]
        assert [await task.result() for task in tasks] == list(range(12))
        store = apps[0].session.store
        assert await history_violations(store) == []
        assert await disagreements(store) == []
    assert [answer for answer in answers if isinstance(answer, Refusal)] == []
