"""One long life of a store, asked of memory, SQLite and PostgreSQL alike: all answers, rows and histories must be equal.

The moves are those of ``test_against_oracle``. Numbers agree too: PostgreSQL leaves a gap in the task numbers behind a
submission that was not new, and the gap is closed here. ``ARRIERO_DIFFERENTIAL_SEED=7`` draws another life.
"""

import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psycopg
import pytest
import test_against_oracle
from postgres_servers import database, emptied
from store_checks import disagreements
from store_world import LEASE
from test_against_oracle import Refuted, SqliteAgainstMemory, _answer, _difference

from arriero.model import STEP_BITS, TASK_FORWARD, ConvoyVerb, TaskRow, Verb
from arriero.model.commands import AnyCommand, Claim, Operate, OperateConvoy
from arriero.store.contract import SUPERVISOR_LEASE
from arriero.store.postgres.store import PostgresStore
from arriero.store.state_store import StateStore

T = TypeVar("T")
SEED = int(os.environ.get("ARRIERO_DIFFERENTIAL_SEED", "1"))
OPERATIONS = 10_000  # commands, submissions, and whatever else is asked of a store
OPERATIONS_MAX = 15_000  # for a life that has not met every kind of answer by then
LOOKED_EVERY = 25  # moves, at what waits
COMPARED_EVERY = 500  # moves, by all rows and the whole history
DOZENS = 24  # at least so many of each kind of answer
SOME = 3  # and of those that most keys and ids give no reason for
SEQUENCES = {"task": "task_number", "history": "history_no_seq", "status": "status_no_seq", "alert": "alert_no_seq"}
SEQUENCES["convoy"] = "convoy_tail_convoy_no_seq"
NO_TASK = 1_000_000
ROUND_OF_PROCESSES = 4


class ThreeStores(SqliteAgainstMemory):
    """Each move asks all three the same. ``model.processes``: the numbers that the moves choose from."""

    def __init__(self, seed: int, path: Path, url: str, processes: list[int]) -> None:
        super().__init__(seed, path)
        self.postgres = PostgresStore(url, clock=self.clock)
        self.numbers = psycopg.connect(url.partition("?")[0], autocommit=True)
        self.processes = processes
        self.operations = 0
        self.met: Counter[str] = Counter()  # operations by what was asked and answered
        self.last: Any = None

    async def run(self) -> None:
        moves: dict[Callable[[], Awaitable[None]], int] = {self.submit: 9, self.time_passes: 5, self.claim: 4}
        moves |= {self.take: 6, self.advance: 12, self.report: 5, self.a_mixed_batch: 4, self.send_again: 3}
        moves |= {self.renew: 8, self.lose: 2, self.lead: 3, self.keep_or_give_back_the_lead: 3, self.supervise: 10}
        moves |= {self.operate: 12, self.a_batch_of_verbs: 3, self.read_a_queue: 5, self.drop_old_statuses: 3}
        moves |= {self.tell_alerts: 4, self.purge: 2, self.look_through_a_filter: 3, self.look_at_one: 3}
        moves |= {self.a_long_batch: 20, self.speak_under_an_old_term: 3, self.speak_of_nothing: 3}
        moves |= {self.operate_a_key: 14, self.keep_the_lead: 4, self.a_limit_passes: 4, self.give_more_time: 5}
        await self.open_all()
        try:
            for _ in range(ROUND_OF_PROCESSES):
                await self.start_a_process()
            made = 0
            while self.operations < OPERATIONS or (self.operations < OPERATIONS_MAX and missing(self)):
                (move,) = self.random.choices(list(moves), list(moves.values()))
                await move()
                made += 1
                if made % LOOKED_EVERY == 0:
                    await self.compare_the_whole()
                if made % COMPARED_EVERY == 0:
                    await self.compare_all_rows()
            await self.compare_all_rows()
            assert await disagreements(self.postgres) == []
        finally:
            await self.close_all()

    async def open_all(self) -> None:
        await self.sqlite.open()
        await self.postgres.open()

    async def close_all(self) -> None:
        self.numbers.close()
        await self.postgres.close()
        await self.sqlite.close()

    # --- asking all
    async def ask(self, question: Callable[[StateStore], Awaitable[T]]) -> T | None:
        wanted = await _answer(question, self.memory)
        for name, store in (("sqlite", self.sqlite), ("postgres", self.postgres)):
            found = await _answer(question, store)
            if found != wanted:
                raise Refuted(f"after {self.operations} operations, {name}: {_difference(wanted, found)}")
        self.last = wanted
        return None if isinstance(wanted, type) else wanted

    def count(self, asked: str, answered: object) -> None:
        self.operations += 1
        self.met[f"{asked}: {answered}"] += 1

    async def apply(self, *commands: AnyCommand) -> None:
        """On PostgreSQL a claim looks at the keys that are due as its batch begins, not at what the batch made due."""
        for at, command in enumerate(commands):
            if at and isinstance(command, Claim) and any(map(self._touches_a_key, commands[:at])):
                await self.apply(*commands[:at])
                await self.apply(*commands[at:])
                return
        await super().apply(*commands)
        if isinstance(self.last, type):  # what no Scheduler would ask: all of it is undone
            self.close_gaps()
            self.count("a batch", self.last.__name__)
            return
        for command, answer in zip(commands, self.last, strict=True):
            name = type(command).__name__
            if isinstance(command, Operate | OperateConvoy):
                name = f"{name} {command.verb}"
            self.count(name, getattr(answer, "verdict", type(answer).__name__))

    def _touches_a_key(self, command: AnyCommand) -> bool:
        task_no = getattr(command, "task_no", 0) or getattr(command, "step_no", 0) >> STEP_BITS
        task = self.memory.tasks.get(task_no)
        return task is not None and task.convoy_no is not None

    # --- moves of its own, and those whose answers are counted
    async def submit(self) -> None:
        await super().submit()
        for answer in self.last:
            self.count("Submit", getattr(answer, "verdict", getattr(answer, "created", None)))
            self.met[f"Submit: {getattr(answer, 'detail', '').rpartition('with ')[2]}"] += 1
        self.close_gaps()

    def close_gaps(self) -> None:
        """PostgreSQL gives no number again that a transaction left unused."""
        for kind, sequence in SEQUENCES.items():
            if given := self.memory._numbers.get(kind):
                self.numbers.execute("SELECT setval(%s, %s)", (f"arriero.{sequence}", given))

    async def a_long_batch(self) -> None:
        """What group commit collects under load: commands of many tasks, some of one task."""
        commands: list[AnyCommand] = []
        for _ in range(self.random.randint(3, 9)):
            commands += self.random.choice((self._advance, self._advance, self._report, self._operate))()
        await self.apply(*commands, self._claim())

    async def keep_the_lead(self) -> None:
        """Whoever has it, in time or just too late."""
        await self.lead()
        lease = self.memory.leases[SUPERVISOR_LEASE]
        self.clock.move(self.random.choice((0.0, 1.0, 4.999999, 5.0)))
        renewed = await self.ask(lambda s: s.renew_lease(SUPERVISOR_LEASE, lease.holder or 0, lease.term, 5.0))
        self.count("renew_lease or release_lease", renewed)

    async def a_limit_passes(self) -> None:
        limited = [task for task in self.forward_tasks() if task.complete_by is not None and task.paused_at is None]
        if limited:
            self.clock.to(max(self.clock(), self.random.choice(limited).complete_by or 0))
            await self.supervise()

    async def give_more_time(self) -> None:
        for task in [task for task in self.forward_tasks() if task.complete_by is not None][:1]:
            fields = {
                "task_no": task.task_no,
                "incarnation": task.incarnation,
                "by": "ana",
                "reason": "it may take long",
            }
            await self.apply(Operate(actor="operator", verb=Verb.EXTEND, within=90.0, **fields))

    def forward_tasks(self) -> list[TaskRow]:
        found = [task for task in self.memory.tasks.values() if task.state in TASK_FORWARD]
        return self.random.sample(found, len(found))

    async def speak_under_an_old_term(self) -> None:
        spoken = [command for command in self.sent if getattr(command, "term", None)]
        if spoken:
            command = self.random.choice(spoken)
            await self.apply(msgspec.structs.replace(command, term=self.memory.term(SUPERVISOR_LEASE) - 1))

    async def speak_of_nothing(self) -> None:
        """Of a task that there never was."""
        for command in self.random.sample(self.sent, min(2, len(self.sent))):
            if hasattr(command, "task_no"):
                await self.apply(msgspec.structs.replace(command, task_no=NO_TASK))

    async def start_a_process(self) -> None:
        instance = f"p{len(self.memory.processes) + 1}"
        process_no = await self.ask(lambda store: store.register(instance, LEASE)) or 0
        self.count("register", "number")
        self.processes.append(process_no)

    async def lose(self) -> None:
        """Another takes the place of a process that was retired."""
        await super().lose()
        for process_no in [number for number in self.processes if self.memory.process_was_retired(number)]:
            self.count("retire", "retired")
            self.processes.remove(process_no)
            await self.start_a_process()

    async def renew(self) -> None:
        """Mostly one that lives; else one of all there ever were."""
        await self.renewed(self.random.choice(list(self.memory.processes) if self.one_in(3) else self.processes))

    async def renewed(self, process_no: int) -> None:
        renewal = await self.ask(lambda store: store.renew(process_no, LEASE))
        self.count("renew", renewal is not None and renewal.renewed)

    async def lead(self) -> None:
        await super().lead()
        self.count("acquire_lease", "row")

    async def keep_or_give_back_the_lead(self) -> None:
        await super().keep_or_give_back_the_lead()
        self.count("renew_lease or release_lease", self.last)

    async def read_a_queue(self) -> None:
        await super().read_a_queue()
        self.count("load_statuses and acknowledge", "done")

    async def drop_old_statuses(self) -> None:
        await super().drop_old_statuses()
        self.count("drop_statuses", bool(self.last))

    async def tell_alerts(self) -> None:
        await super().tell_alerts()
        self.count("take_alerts and settle_alert", self.last if isinstance(self.last, bool) else "none due")

    async def purge(self) -> None:
        before = self.answers["purged"]
        await super().purge()
        self.count("purge", self.answers["purged"] > before)
        self.close_gaps()

    async def look_through_a_filter(self) -> None:
        await super().look_through_a_filter()
        self.count("list_tasks", bool(self.last))

    async def look_at_one(self) -> None:
        """By its id, by its number, by its own history, and among those that have ended."""
        task = self.some(list(self.memory.tasks.values()), self.seen_tasks)
        if task is None:
            return

        async def look(store: StateStore) -> list[Any]:
            history = [row async for row in store.history(task.task_no)]
            return [await store.find(task.task_id), await store.load(task.task_no), history]

        await self.ask(look)
        self.count("find, load and history", self.last[1] is not None)


@pytest.fixture
async def life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ThreeStores]:
    """Of a store whose processes come and go."""
    processes: list[int] = []
    monkeypatch.setattr(test_against_oracle, "PROCESSES", processes)
    monkeypatch.setattr(test_against_oracle, "IDS", tuple(f"order-{number}" for number in range(60)))
    url = emptied(database())
    yield ThreeStores(SEED, tmp_path / "store.db", f"{url}?listen=off&prepare=on", processes)


def missing(life: ThreeStores) -> list[str]:
    """Of what is to be met: what came too rarely to show anything."""
    applied = (
        "Advance",
        "EndByLimit",
        "FreeTask",
        "Recover",
        "Report",
        *(f"Operate {verb}" for verb in Verb if verb is not Verb.PIN),
    )
    wanted = {f"{name}: Applied" for name in applied} | {"Claim: Claimed", "Take: Taken"}
    wanted |= {f"Submit: {answer}" for answer in (True, False, "conflict")}
    wanted |= {"renew: True", "renew: False", "retire: retired", "drop_statuses: True", "purge: True"}
    wanted |= {f"renew_lease or release_lease: {answer}" for answer in (True, False, None)}
    wanted.add("take_alerts and settle_alert: True")
    found = Counter(life.met)
    for asked, times in life.met.items():  # each verdict, whatever it was about
        found[asked.partition(": ")[2]] += times
    wanted |= {"moved_on", "stale", "duplicate", "late", "unknown", "old_term", "not_allowed", "came_first"}
    seldom = {f"OperateConvoy {verb}: ConvoyApplied" for verb in ConvoyVerb} | {"Operate pin: Applied"}
    seldom |= {f"Submit: another {what}" for what in ("body", "workflow", "convoy", "sequence", "end mark")}
    least = dict.fromkeys(wanted, DOZENS) | dict.fromkeys(seldom, SOME)
    return [f"{what} {found[what]} times" for what, times in sorted(least.items()) if found[what] < times]


async def test_ten_thousand_operations_are_answered_alike_by_memory_sqlite_and_postgres(life: ThreeStores) -> None:
    await life.run()
    assert life.operations >= OPERATIONS
    assert missing(life) == []


async def test_a_process_that_starts_after_a_pause_of_all_does_not_hide_the_pause(life: ThreeStores) -> None:
    await life.open_all()
    try:
        await life.start_a_process()
        await life.renewed(1)
        life.clock.move(60.0)
        process_no = await life.ask(lambda store: store.register("late", LEASE)) or 0
        await life.renewed(process_no)
        assert life.last.nobody_frees_until > life.clock()
    finally:
        await life.close_all()
