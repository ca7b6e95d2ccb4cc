"""A ledger is submitted whole or not at all, goes on where it stood after any death, and counts once."""

import asyncio
import csv
import gzip
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from runtime_world import Machine, eventually, until, within

from arriero import Agent, App, Attempt, Entry, InvalidInput, Ledger, StoreError, testing, workflow
from arriero.client.ledger import LedgerSubmission
from arriero.core.ledger_batches import LedgerBatch, LedgerWritten, extend_digest
from arriero.model import LedgerState
from arriero.store.memory import MemoryStore
from arriero.store.sqlite.store import SqliteStore
from arriero.store.state_store import StateStore

REAL = Path(__file__).parents[3] / "shared" / "data" / "online-retail-2010-12_2011-06.csv.gz"
WRITES = ("begin_ledger", "write_ledger", "open_ledger", "let_go", "discard_ledger")
mules = Agent("mules")
carried: list[str] = []


@mules.step
async def load(attempt: Attempt, what: str) -> str:
    carried.append(what)
    return what


@workflow
async def carry(what: str, weight: int = 1) -> str:
    return await load(what)


@workflow
async def foreign() -> None:
    return


def new_app(store: str | None = None) -> App:
    return App("caravan", agents=[mules], workflows=[carry], store=store)


@pytest.fixture(autouse=True)
def nothing_carried() -> None:
    carried.clear()


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arriero.client.ledger.BATCH", 3)
    monkeypatch.setattr("arriero.runtime.upkeep.BATCH", 3)


def lines(count: int, *, keys: int = 2) -> list[Entry]:
    return [Entry(carry(f"load {line}"), convoy=f"mule {line % keys}") for line in range(1, count + 1)]


async def visible(store: StateStore) -> list[str]:
    return [task.task_id for task in await store.list_tasks(limit=100_000)]


async def members(store: StateStore, key: str) -> list[str]:
    found = await store.find_convoy(key, 1000)
    return [] if found is None else [task.task_id for task in found.members]


# --- what becomes of entries
async def test_each_entry_is_a_task_of_its_convoy_in_the_order_of_lines() -> None:
    async with testing.running(new_app()) as world:
        ledger = await world.app.submit_ledger("may", lines(6))
        assert ledger == Ledger(6, 0, [])
        for line in range(1, 7):
            assert await world.app.task(f"may:{line}", of=carry).result() == f"load {line}"
    for rest in (0, 1):
        of_key = [what for what in carried if int(what.split()[1]) % 2 == rest]
        assert of_key == sorted(of_key)


async def test_an_entry_may_be_of_a_step_with_an_id_and_a_sequence_of_its_own(machine: Machine) -> None:
    async with machine.app([mules], [carry]) as app:
        entries = [Entry(load("salt"), task_id="salt"), Entry(carry("tin"), convoy="m", sequence=2, task_id="tin")]
        await app.submit_ledger("may", entries)
        found = [(task.task_id, task.workflow, task.sequence) for task in await app.session.store.list_tasks()]
        assert found == [("salt", "step:load", None), ("tin", "carry", 2)]
    await machine.check(complete=False)


async def test_entries_have_priorities_and_another_priority_is_another_ledger(machine: Machine) -> None:
    async with machine.app([mules], [carry]) as app:
        entries = [Entry(carry("salt"), priority=9), Entry(carry("tin")), Entry(carry("coal"), priority=0)]
        assert await app.submit_ledger("may", entries) == Ledger(3, 0, [])
        assert await app.submit_ledger("may", entries) == Ledger(0, 3, [])
        assert [task.priority for task in await app.session.store.list_tasks()] == [9, 5, 0]
        with pytest.raises(InvalidInput, match="'may' is known with another content"):
            await app.submit_ledger("may", [Entry(carry("salt")), *entries[1:]])
    await machine.check(complete=False)


def test_the_digest_of_entries_without_a_priority_is_that_of_earlier_releases() -> None:
    assert extend_digest("App shop", workflow="carry", arguments="[1]") == "2915a4c60bbbaaecdbeaf99f4b8f074e"


async def test_what_is_submitted_after_it_stands_behind_it(machine: Machine) -> None:
    async with machine.app([mules], [carry]) as app:
        await app.submit_ledger("may", lines(4, keys=1))
        await app.submit(carry("later"), task_id="later", convoy="mule 0")
        assert await members(app.session.store, "mule 0") == ["may:1", "may:2", "may:3", "may:4", "later"]


async def test_lines_may_come_from_an_asynchronous_source(machine: Machine) -> None:
    async def source() -> AsyncIterator[Entry]:
        for entry in lines(3):
            await asyncio.sleep(0)
            yield entry

    async with machine.app([mules], [carry]) as app:
        assert await app.submit_ledger("may", source()) == Ledger(3, 0, [])


def test_the_front_without_a_loop_submits_it_too(machine: Machine) -> None:
    app = machine.app([mules], [carry])
    with app.sync:
        assert app.sync.submit_ledger("may", lines(3)) == Ledger(3, 0, [])
        with pytest.raises(InvalidInput, match="line 1: no number"):
            app.sync.submit_ledger("june", [Entry.bad("no number")])


# --- the same again
async def test_the_same_ledger_twice_changes_nothing(machine: Machine) -> None:
    async with machine.app([mules], [carry]) as app:
        entries = [*lines(3), Entry.bad("no number")]
        assert await app.submit_ledger("may", entries, bad="set_aside") == Ledger(3, 0, ["line 4: no number"])
        before = await app.session.store.list_tasks()
        for bad in ("set_aside", "refuse"):
            again = await app.submit_ledger("may", entries, bad=bad)
            assert again == Ledger(0, 3, ["line 4: no number"])
        assert await app.session.store.list_tasks() == before


@pytest.mark.parametrize(
    "other",
    [lines(3), lines(5), [*lines(3), Entry(carry("load 4"))], [Entry(carry("load 1", 2)), *lines(4)[1:]]],
    ids=["shorter", "longer", "another key", "another body"],
)
async def test_another_content_under_a_known_id_is_refused(machine: Machine, other: list[Entry]) -> None:
    async with machine.app([mules], [carry]) as app:
        await app.submit_ledger("may", lines(4))
        before = await app.session.store.list_tasks()
        with pytest.raises(
            InvalidInput,
            match="'may' is known with another content or of another App, 4 entries; use another ledger_id",
        ):
            await app.submit_ledger("may", other)
        assert await app.session.store.list_tasks() == before


async def test_tasks_that_are_there_already_are_counted_as_duplicates(machine: Machine) -> None:
    async with machine.app([mules], [carry]) as app:
        await app.submit(carry("load 1"), task_id="x", convoy="mule 1")
        entries = [Entry(carry("load 1"), task_id="x", convoy="mule 1"), *lines(2)]
        assert await app.submit_ledger("may", entries) == Ledger(2, 1, [])
        assert await app.submit_ledger("may", entries) == Ledger(0, 3, [])


async def test_two_that_submit_the_same_at_once_bring_it_once(machine: Machine, small_batches: None) -> None:
    first, second = machine.app([mules], [carry]), machine.app([mules], [carry])
    async with first, second:
        both = await asyncio.gather(first.submit_ledger("may", lines(20)), second.submit_ledger("may", lines(20)))
        assert sorted((ledger.accepted, ledger.duplicates) for ledger in both) == [(0, 20), (20, 0)]
        assert len(await visible(first.session.store)) == 20
    await machine.check(complete=False)


# --- bad entries
BAD: list[tuple[Any, str]] = [
    (Entry.bad("no number\nin it"), "no number\nin it"),
    (Entry.bad("  "), "it cannot be read"),
    (Entry(carry("a"), convoy=""), "convoy has 0 characters"),
    (Entry(carry("a"), task_id="a\nb"), "control characters"),
    (Entry(carry("a"), sequence=1), "sequence is given without convoy"),
    (Entry(carry("a"), convoy="a", sequence=0), "sequence is 0"),
    (Entry(carry("a"), priority=10), "priority is 10; it must be a whole number from 0 to 9"),
    (Entry(foreign()), "workflow 'foreign' is not in App"),
    (Entry("carry"), "submit takes the call of a workflow or step"),  # type: ignore[arg-type]
    (Entry(carry("other"), task_id="known"), "exists with another body"),
]


@pytest.mark.parametrize(("entry", "reason"), BAD, ids=[reason for _, reason in BAD])
async def test_a_bad_entry_is_refused_or_set_aside_by_its_line(machine: Machine, entry: Entry, reason: str) -> None:
    async with machine.app([mules], [carry]) as app:
        await app.submit(carry("known"), task_id="known")
        with pytest.raises(InvalidInput) as refused:
            await app.submit_ledger("may", [*lines(2), entry, *lines(1)])
        assert "ledger 'may', line 3: " in str(refused.value)
        assert reason in str(refused.value)
        assert await visible(app.session.store) == ["known"]
        assert await app.session.store.list_ledgers() == []
        ledger = await app.submit_ledger("may", [*lines(2), entry, *lines(1)], bad="set_aside")
        assert ledger.accepted == 3
        (aside,) = ledger.set_aside
        assert aside.startswith("line 3: ")
        assert reason in aside


async def test_a_refused_ledger_may_be_mended_under_its_id(machine: Machine, small_batches: None) -> None:
    async with machine.app([mules], [carry]) as app:
        with pytest.raises(InvalidInput, match="line 8"):
            await app.submit_ledger("may", [*lines(7), Entry.bad("x")])
        assert await app.submit_ledger("may", lines(8)) == Ledger(8, 0, [])


async def test_what_is_no_entry_is_a_mistake_of_the_program(machine: Machine) -> None:
    async with machine.app([mules], [carry]) as app:
        wrong: Any
        for wrong, said in (
            ([Entry(carry("a")), carry("b")], "what comes after line 1"),
            (5, "give an iterable of Entry"),
        ):
            with pytest.raises(InvalidInput, match=said):
                await app.submit_ledger("may", wrong)
        for ledger_id in ("", "x" * 236, 7):
            with pytest.raises(InvalidInput, match="ledger_id"):
                await app.submit_ledger(ledger_id, [])  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="'skip'; it must be 'refuse' or 'set_aside'"):
            await app.submit_ledger("may", [], bad="skip")  # type: ignore[arg-type]
        assert await visible(app.session.store) == []


async def test_a_splitter_that_breaks_leaves_nothing_visible_and_mended_it_goes_on(
    machine: Machine, small_batches: None
) -> None:
    def breaking() -> Iterator[Entry]:
        yield from lines(7)
        raise ValueError("line 8 is no line")

    async with machine.app([mules], [carry]) as app:
        with pytest.raises(ValueError, match="line 8"):
            await app.submit_ledger("may", breaking())
        assert await visible(app.session.store) == []
        with pytest.raises(
            InvalidInput, match="begun with another content or by another App, of which 6 entries are written"
        ):
            await app.submit_ledger("may", lines(7, keys=3))
        assert await app.submit_ledger("may", lines(9)) == Ledger(9, 0, [])


async def test_what_was_begun_with_bad_entries_set_aside_is_refused_when_none_may_be(
    machine: Machine, small_batches: None
) -> None:
    def breaking() -> Iterator[Entry]:
        yield Entry.bad("no number")
        yield from lines(4)
        raise ValueError

    async with machine.app([mules], [carry]) as app:
        with pytest.raises(ValueError, match="^$"):
            await app.submit_ledger("may", breaking(), bad="set_aside")
        with pytest.raises(InvalidInput, match="line 1: no number"):
            await app.submit_ledger("may", [Entry.bad("no number"), *lines(4)])
        assert await app.session.store.list_ledgers() == []


# --- deaths
class Dying:
    """A store whose process dies at one of its writes: before the commit, or after it, when nobody is told any more."""

    def __init__(self, store: StateStore, dies_at: int, *, after: bool) -> None:
        self._store = store
        self._dies_at = dies_at
        self._after = after
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        return self._counted(method) if name in WRITES else method

    def _counted(self, method: Any) -> Any:
        async def call(*args: Any) -> Any:
            self.writes += 1
            if self.writes < self._dies_at:
                return await method(*args)
            if self.writes == self._dies_at and self._after:
                await method(*args)
            raise StoreError("the process is dead")

        return call


async def died_and_resumed(store: StateStore, dies_at: int, *, after: bool) -> bool:
    """Submit, die, submit again: the result is the same wherever it died. False: it did not die any more."""
    entries = [*lines(4), Entry.bad("no number"), *lines(3, keys=1), Entry(carry("alone"))]
    dying = Dying(store, dies_at, after=after)
    app = new_app()
    died = False
    await app.session.open(dying)  # type: ignore[arg-type]  # it stands for one
    try:
        await app.submit_ledger("may", entries, bad="set_aside")
    except StoreError:
        died = True
    await app.session.close()
    seen_between = await visible(store)
    assert len(seen_between) in ((0, 8) if died else (8,))
    opened = bool(seen_between)
    await app.session.open(store)
    resumed = await app.submit_ledger("may", entries, bad="set_aside")
    assert resumed == Ledger(*((0, 8) if opened else (8, 0)), ["line 5: no number"])
    assert await visible(store) == [f"may:{line}" for line in (1, 2, 3, 4, 6, 7, 8, 9)]
    assert await members(store, "mule 0") == ["may:2", "may:4", "may:6", "may:7", "may:8"]
    assert await members(store, "mule 1") == ["may:1", "may:3"]
    assert [ledger.state for ledger in await store.list_ledgers()] == [LedgerState.DONE]
    await app.session.close()
    return died


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
async def test_a_death_at_any_commit_changes_nothing_of_the_result(small_batches: None, after: bool) -> None:
    dies_at = 1
    while await died_and_resumed(MemoryStore(), dies_at, after=after):
        dies_at += 1
    assert dies_at == 9  # begun, three batches written, opened, three batches let go


@pytest.mark.parametrize("dies_at", [3, 5, 6])
async def test_a_death_changes_nothing_on_a_file_either(tmp_path: Path, small_batches: None, dies_at: int) -> None:
    store = SqliteStore(str(tmp_path / "store.db"))
    await store.open()
    try:
        assert await died_and_resumed(Kept(store), dies_at, after=True)  # type: ignore[arg-type]  # it stands for one
    finally:
        await store.close()
    await Machine(tmp_path / "store.db").check(complete=False)


class Kept:
    """A store that stays open when an App is closed."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def close(self) -> None:
        return


async def test_the_leader_goes_on_with_what_a_dead_submitter_left(machine: Machine, small_batches: None) -> None:
    app = machine.app([mules], [carry])
    async with app:
        store = app.session.store
        dying: Any = Dying(store, 6, after=False)  # begun, three written, opened
        submission = LedgerSubmission(app.session, "may", bad="refuse")
        submission._store = dying
        with pytest.raises(StoreError):
            await submission.run(lines(8))
        assert len(await visible(store)) == 8
        other: Any = Dying(store, 4, after=False)  # begun, written, found bad, and not yet discarded
        refused = LedgerSubmission(app.session, "june", bad="refuse")
        refused._store = other
        with pytest.raises(StoreError):
            await refused.run([*lines(5), Entry.bad("x")])
        assert [one.state for one in await store.list_ledgers()] == [LedgerState.OPENED, LedgerState.DISCARDING]
    async with app.running():
        for line in range(1, 9):
            assert await within(app.task(f"may:{line}", of=carry).result()) == f"load {line}"
        store = app.session.store

        async def finished() -> bool | None:
            return True if [one.state for one in await store.list_ledgers()] == [LedgerState.DONE] else None

        assert await eventually(finished)
    await machine.check()


async def test_a_ledger_that_cannot_go_on_just_now_keeps_no_other_waiting(
    machine: Machine, small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = machine.app([mules], [carry])
    async with app:
        for name in ("may", "june"):
            submission = LedgerSubmission(app.session, name, bad="refuse")
            dying: Any = Dying(app.session.store, 5, after=False)  # begun, two written, opened
            submission._store = dying
            with pytest.raises(StoreError):
                await submission.run(Entry(carry(f"load {line}")) for line in range(1, 5))
        assert [one.state for one in await app.session.store.list_ledgers()] == [LedgerState.OPENED] * 2
    let_go, is_stuck = SqliteStore.let_go, True

    async def stuck(store: SqliteStore, ledger_no: int, limit: int, actor: str) -> Any:
        if ledger_no == 1 and is_stuck:
            raise StoreError("another transaction has it")
        return await let_go(store, ledger_no, limit, actor)

    monkeypatch.setattr(SqliteStore, "let_go", stuck)
    async with app.running():
        assert await within(app.task("june:4", of=carry).result()) == "load 4"
        assert (await app.task("may:4").view()).state == "pending"
        is_stuck = False
        assert await within(app.task("may:4", of=carry).result()) == "load 4"
    await machine.check()


# --- size
async def test_a_long_ledger_is_read_as_it_is_written(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arriero.client.ledger.BATCH", 50)
    read, most = 0, 0

    def source() -> Iterator[Entry]:
        nonlocal read
        for line in range(1_000):
            read += 1
            yield Entry(carry(f"load {line}"))

    async with machine.app([mules], [carry]) as app:
        store = app.session.store
        write = store.write_ledger

        async def watched(batch: LedgerBatch) -> LedgerWritten:
            nonlocal most
            most = max(most, read - batch.after)
            return await write(batch)

        monkeypatch.setattr(store, "write_ledger", watched)
        assert (await app.submit_ledger("long", source())).accepted == 1_000
    assert most == 50


async def test_a_batch_of_large_arguments_is_small(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arriero.client.ledger.BATCH_CHARACTERS", 1_000)
    sizes: list[int] = []
    async with machine.app([mules], [carry]) as app:
        store = app.session.store
        write = store.write_ledger

        async def watched(batch: LedgerBatch) -> LedgerWritten:
            sizes.append(len(batch.entries))
            return await write(batch)

        monkeypatch.setattr(store, "write_ledger", watched)
        await app.submit_ledger("large", [Entry(carry("x" * 400)) for _ in range(7)])
    assert sizes == [3, 3, 1]


async def test_a_running_app_begins_with_it_as_soon_as_it_is_in(machine: Machine) -> None:
    app = machine.app([mules], [carry])
    async with app.running():
        await app.submit_ledger("may", lines(3))
        await until(lambda: len(carried) == 3)


# --- a real shop's books
@dataclass(frozen=True)
class Sale:
    invoice: str
    quantity: int


@workflow
async def sell(sale: Sale) -> None:
    return


def sales() -> Iterable[Entry]:
    with gzip.open(REAL, "rt", newline="") as text:
        for row in csv.DictReader(text):
            key = None if row["customer_id"] == "(blank)" else row["customer_id"]
            yield Entry(sell(Sale(row["invoice_no"], int(row["quantity"]))), task_id=row["invoice_no"], convoy=key)


@pytest.mark.skipif(not REAL.exists(), reason="the real ledger is not beside the repository")
async def test_a_real_shop_s_ledger_is_split_into_its_invoices(machine: Machine) -> None:
    async with machine.app([], [sell]) as app:
        ledger = await app.submit_ledger(REAL.name, sales(), bad="set_aside")
        count = sum(1 for _ in sales())
        assert ledger.accepted + ledger.duplicates + len(ledger.set_aside) == count == 12_830
        assert await app.submit_ledger(REAL.name, sales()) == Ledger(
            0, ledger.accepted + ledger.duplicates, ledger.set_aside
        )
        assert sum((await app.session.store.counts()).values()) == ledger.accepted
