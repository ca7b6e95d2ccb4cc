"""Schedules in a world: leaders die during a pass over them, and two may lead at the same time; each instant is decided once."""

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from arriero.audit.check import Violation
from arriero.client.submission import SubmitOptions, build_submission
from arriero.core.schedule_instants import is_run_of
from arriero.core.schedules import build_fire, build_run, decide_rest
from arriero.events import read_events
from arriero.events.store import ScheduleAsked, ScheduleDecided, ScheduleDeclared, ScheduleRemoved
from arriero.events.task import TaskSubmitted, TaskTerminal
from arriero.model import MICROSECONDS, HistoryRow
from arriero.model.answers import Refusal
from arriero.model.schedules import (
    DeclareSchedule,
    OperateSchedule,
    Overlap,
    RunSchedule,
    ScheduleCommand,
    ScheduleDeclaration,
    ScheduleRow,
    ScheduleVerb,
    Timing,
    encode_declaration,
    read_declaration,
)

if TYPE_CHECKING:
    from .world import World

SHARE = 0.35  # of the seeds with operators and without damage
NAMES = ("first", "second", "third")
PERIODS = (1, 2, 3)  # seconds
RUNS_FROM = 10_000  # the numbers of runs begin here, so that none is a client's


class Timetables:
    """The schedules of one world.

    Args:
        random: a separate source.
        overlaps: that may be drawn.
    """

    def __init__(
        self, world: "World", random: Random, calls: tuple[Callable[..., Any], ...], *, has_keys: bool
    ) -> None:
        self._world = world
        self._random = random
        self._calls = calls
        # The keys of a world are judged by how its own producers used them.
        self._overlaps = [word for word in Overlap if not (has_keys and word is Overlap.QUEUE)]

    async def live(self, seconds: float) -> None:
        """Declare the schedules, and now and then pause, resume or declare one otherwise."""
        random, store = self._random, self._world.store
        for name in NAMES:
            await self._change(self._declare(name))
        while self._world.loop.time() < seconds:
            await asyncio.sleep(random.uniform(2, 8))
            name = random.choice(NAMES)
            row = await store.find_schedule(self._world.app.name, name)
            drawn = random.random()
            if row is None:
                await self._deploy(name)
            elif row.paused_at is not None:
                await self._change(self._operate(ScheduleVerb.RESUME, name))
            elif drawn < 0.3:
                await self._change(self._operate(ScheduleVerb.PAUSE, name))
            elif drawn < 0.6:
                await self._deploy(name)
            elif drawn < 0.7:
                await self._change(self._operate(ScheduleVerb.REMOVE, name))
            elif drawn < 0.9:
                await self._run_now(row)

    async def end(self) -> None:
        """Let nothing be due any longer, so that the world can come to its end."""
        for row in await self._world.store.list_schedules():
            if row.paused_at is None:
                await self._change(self._operate(ScheduleVerb.PAUSE, row.name))

    async def _change(self, *commands: ScheduleCommand) -> bool:
        answers = await self._world.store.change_schedules(commands)
        return not any(isinstance(answer, Refusal) for answer in answers)

    async def _deploy(self, name: str) -> None:
        """Declare a schedule otherwise, as a process that starts does: what is due by the old timing is decided before."""
        store, command = self._world.store, self._declare(name)
        if await self._change(command):
            return
        row = await store.find_schedule(self._world.app.name, name)
        assert row is not None
        decision = decide_rest(row, store.now(), is_open=await store.is_run_open(row.app, name))
        run_as = msgspec.structs.replace(row, declaration=encode_declaration(command.declaration))
        draw = self._random.getrandbits
        policy = command.declaration.policy
        await self._change(build_fire(run_as, decision, policy, draw, actor="world", term=None), command)

    async def _run_now(self, row: ScheduleRow) -> None:
        """Ask for a run of now, also while others are open."""
        now = self._world.store.now()
        run = build_run(row, now, read_declaration(row).policy, self._random.getrandbits(62))
        asked: dict[str, Any] = {"app": row.app, "name": row.name, "by": "ana", "reason": "drawn", "runs": (now,)}
        await self._change(RunSchedule(actor="world", submits=(run,), is_backfill=False, **asked))

    def _operate(self, verb: ScheduleVerb, name: str) -> OperateSchedule:
        return OperateSchedule(actor="world", verb=verb, app=self._world.app.name, name=name, by="ana", reason="drawn")

    def _declare(self, name: str) -> DeclareSchedule:
        random = self._random
        call = random.choice(self._calls)(RUNS_FROM + random.randrange(1_000), False)
        submission = build_submission(self._world.app.session, call, SubmitOptions(task_id="any"))
        declaration = ScheduleDeclaration(
            workflow=submission.workflow,
            arguments=submission.arguments,
            policy=submission.policy,
            timing=Timing(every=random.choice(PERIODS) * MICROSECONDS),
            overlap=random.choice(self._overlaps),
            catch_up=random.choice((None, 0, 20 * MICROSECONDS)),
            jitter=random.choice((0, MICROSECONDS // 2)),
            priority=random.randrange(10),
        )
        return DeclareSchedule(actor="world", app=self._world.app.name, name=name, declaration=declaration)

    def check(self, rows: list[HistoryRow]) -> list[Violation]:
        """Each run that the history reports is a task, once; and what the row counts is what was decided."""
        runs: Counter[str] = Counter()
        ids: Counter[str] = Counter()
        for row in rows:
            if row.task_no == 0:
                for event in read_events(row.events):
                    if isinstance(event, ScheduleDecided):
                        runs[event.schedule] += len(event.runs) - len(event.refused) + event.passed_over
                        ids.update(set(event.tasks) - set(event.refused))
                    elif isinstance(event, ScheduleAsked):
                        runs[event.schedule] += len(event.tasks)
                        ids.update(event.tasks)
                    elif isinstance(event, ScheduleRemoved):
                        runs[event.schedule] = 0
        store = self._world.store
        found = self._find_overlaps(rows)
        found += [Violation("I75", task_id, f"submitted {count} times") for task_id, count in ids.items() if count > 1]
        gone = ids.keys() - store.numbers.keys() - self._world.people.purged
        found += [
            Violation("I75", task_id, "the history tells of this run, and there is no task") for task_id in sorted(gone)
        ]
        found += [
            Violation("I76", name, f"its row counts {row.runs} + {row.passed_over}, its history {runs[name]}")
            for (_, name), row in store.schedule_rows.items()
            if row.runs + row.passed_over != runs[name]
        ]
        return found

    def _find_overlaps(self, rows: list[HistoryRow]) -> list[Violation]:
        """With ``skip`` no run begins while another one is open that never ended, no matter who asked for it."""
        found: list[Violation] = []
        open_runs: dict[int, str] = {}
        overlaps: dict[str, str] = {}
        for row in rows:
            for event in read_events(row.events):
                match event:
                    case TaskSubmitted():
                        open_runs[row.task_no] = row.task_id
                    case TaskTerminal():
                        open_runs.pop(row.task_no, None)
                    case ScheduleDeclared():
                        overlaps[event.schedule] = event.overlap
                    case ScheduleDecided(app=app, schedule=name) if event.runs and overlaps[name] == Overlap.SKIP:
                        others = [one for one in open_runs.values() if is_run_of(one, app, name)]
                        if left := sorted(set(others) - set(event.tasks)):
                            found.append(Violation("I76", name, f"{event.tasks} begins while {left} is open"))
                    case _:
                        pass
        return found


def draw_timetables(
    world: "World", seed: int, *, may_have: bool, has_keys: bool, calls: tuple[Callable[..., Any], ...]
) -> Timetables | None:
    """Draw whether a world has schedules. A source of its own leaves the other worlds as they were."""
    random = Random(f"timetables-{seed}")
    if random.random() >= SHARE or not may_have:
        return None
    return Timetables(world, random, calls, has_keys=has_keys)
