"""Random commands on schedules: SQLite answers and keeps what the memory store does."""

import random
from pathlib import Path
from typing import Any

import pytest
from core_schedules import POLICY, fire_command
from store_world import TestClock

from arriero.core.schedules import build_run
from arriero.model import MICROSECONDS, Instant, later
from arriero.model.schedules import (
    OF_CODE,
    OF_PERSON,
    DeclareSchedule,
    MarkUndeclared,
    OperateSchedule,
    Overlap,
    ProblemCause,
    ReportScheduleProblem,
    RunSchedule,
    ScheduleCommand,
    ScheduleDeclaration,
    ScheduleRow,
    ScheduleVerb,
    Timing,
)
from arriero.store.contract import SUPERVISOR_LEASE
from arriero.store.memory import MemoryStore
from arriero.store.sqlite.store import SqliteStore

SEEDS = 25
COMMANDS = 60
NAMES = ("a", "b", "c")
APPS = ("shop", "travel")
TIMINGS = (
    Timing(every=600 * MICROSECONDS),
    Timing(cron="*/5 * * * *"),
    Timing(cron="30 2 * * *", timezone="Europe/Madrid"),
    Timing(at=Instant(1_700_003_000_000_000)),
)


class Commands:
    """Draws the next command from what the memory store has."""

    def __init__(self, seed: int, clock: TestClock) -> None:
        self.random = random.Random(seed)
        self.clock = clock
        self.term = 1

    def draw(self, rows: list[ScheduleRow]) -> ScheduleCommand:
        chance = self.random
        name: dict[str, Any] = {"app": chance.choice(APPS), "name": chance.choice(NAMES)}
        row = chance.choice(rows) if rows else None
        kind = (
            "declare"
            if row is None
            else chance.choice(("declare", "fire", "fire", "fire", "verb", "run", "problem", "mark"))
        )
        if row is not None and chance.random() < 0.9:
            name = {"app": row.app, "name": row.name}
        by: dict[str, Any] = {"actor": "cli", "by": "ana", "reason": "drawn"}
        match kind:
            case "fire" if row is not None:
                term = self.term if chance.random() < 0.9 else self.term + 1
                return fire_command(row, self.clock(), term, is_open=chance.random() < 0.3)
            case "verb":
                return OperateSchedule(verb=chance.choice(tuple(ScheduleVerb)), **name, **by)
            case "run" if row is not None:
                instants = tuple(later(self.clock(), -60 * back) for back in range(chance.randrange(3), 0, -1))
                submits = tuple(build_run(row, instant, POLICY, 7) for instant in instants)
                is_backfill = chance.random() < 0.5
                return RunSchedule(**name, **by, runs=instants, submits=submits, is_backfill=is_backfill)
            case "problem" if row is not None:
                return ReportScheduleProblem(
                    actor="p",
                    **name,
                    revision=row.revision,
                    cause=chance.choice(tuple(ProblemCause)),
                    problem=chance.choice(("", "it does not fit")),
                    look_at=chance.choice((None, later(self.clock(), 10))),
                )
            case "mark" if row is not None:
                return MarkUndeclared(actor="p", **name, revision=row.revision - chance.choice((0, 0, 1)))
            case _:
                return self._declare(name)

    def _declare(self, name: dict[str, Any]) -> DeclareSchedule:
        chance = self.random
        declaration = ScheduleDeclaration(
            workflow="fulfil",
            arguments=chance.choice(("{}", '{"a":1}')),
            policy=POLICY,
            timing=chance.choice(TIMINGS),
            overlap=chance.choice(tuple(Overlap)),
            catch_up=chance.choice((None, 0, 3_600 * MICROSECONDS)),
            jitter=chance.choice((0, 60 * MICROSECONDS)),
            source=chance.choice((OF_CODE, OF_PERSON)),
        )
        return DeclareSchedule(actor="p", **name, declaration=declaration, if_new=chance.random() < 0.2)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_sqlite_keeps_what_the_memory_store_keeps(seed: int, tmp_path: Path) -> None:
    clock = TestClock()
    memory, sqlite = MemoryStore(clock), SqliteStore(str(tmp_path / "store.db"), clock=clock)
    await sqlite.open()
    commands = Commands(seed, clock)
    for store in (memory, sqlite):
        await store.acquire_lease(SUPERVISOR_LEASE, await store.register("p", 10.0**6), "p", 10.0**6)
    for _ in range(COMMANDS):
        clock.move(commands.random.choice((0, 1, 300, 1_200, 40_000)))
        batch = [commands.draw(await memory.list_schedules()) for _ in range(commands.random.choice((1, 1, 3)))]
        assert await sqlite.change_schedules(batch) == await memory.change_schedules(batch), batch
        assert await sqlite.list_schedules() == await memory.list_schedules()
        assert await sqlite.load_due_schedules(2) == await memory.load_due_schedules(2)
    assert await sqlite.list_tasks(limit=10_000) == await memory.list_tasks(limit=10_000)
    assert await sqlite.alerts(open_only=False, limit=1_000) == await memory.alerts(open_only=False, limit=1_000)
    told = [[(row.at, bytes(row.events)) async for row in store.history()] for store in (memory, sqlite)]
    assert told[0] == told[1]
    await sqlite.close()
