"""A life of a schedule in the memory store, in which every event of schedules occurs; and the leader's command on one."""

from collections.abc import Callable
from typing import Any

import msgspec

from arriero.core.schedules import build_run, decide_due
from arriero.model import MICROSECONDS, Instant
from arriero.model.policies import Supervision, TaskPolicy
from arriero.model.schedules import (
    DeclareSchedule,
    FireSchedule,
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
from arriero.store.state_store import StateStore

POLICY = msgspec.json.encode(TaskPolicy(None, Supervision())).decode()
HOUR = 3_600.0


def fire_command(row: ScheduleRow, now: Instant, term: int, *, is_open: bool = False) -> FireSchedule:
    """The command of a leader that looks at a schedule now."""
    decision = decide_due(row, now, is_open=is_open)
    return FireSchedule(
        actor="leader",
        app=row.app,
        name=row.name,
        revision=row.revision,
        term=term,
        since=decision.since,
        until=decision.until,
        runs=decision.runs,
        submits=tuple(build_run(row, instant, POLICY, 7) for instant in decision.runs),
        passed_over=decision.passed_over,
        why=decision.why,
        owed_until=decision.owed_until,
        next_at=decision.next_at,
        look_at=decision.look_at,
        cancels=decision.cancels,
    )


async def live_through_a_schedule(store: StateStore, wait: Callable[[float], None], term: int) -> None:
    """It runs, misses runs, is paused and resumed, has no code for a while, is asked for a run, and is removed."""
    name: dict[str, Any] = {"app": "shop", "name": "nightly"}
    by: dict[str, Any] = {"actor": "cli", "by": "ana", "reason": "the report was wrong"}

    async def change(command: ScheduleCommand) -> None:
        wait(0.001)
        await store.change_schedules([command])

    async def find() -> ScheduleRow:
        row = await store.find_schedule("shop", "nightly")
        assert row is not None
        return row

    hourly = ScheduleDeclaration(
        workflow="fulfil",
        arguments="{}",
        policy=POLICY,
        timing=Timing(every=round(HOUR) * MICROSECONDS),
        overlap=Overlap.ALL,
    )
    await change(DeclareSchedule(actor="p3", **name, declaration=hourly))
    wait(HOUR)
    await change(fire_command(await find(), store.now(), term))
    wait(3 * HOUR)
    await change(fire_command(await find(), store.now(), term))
    await change(OperateSchedule(verb=ScheduleVerb.PAUSE, **name, **by))
    wait(HOUR)
    await change(OperateSchedule(verb=ScheduleVerb.RESUME, **name, **by))
    said: dict[str, Any] = {"cause": ProblemCause.CODE, "problem": "nobody has it", "look_at": store.now()}
    await change(ReportScheduleProblem(actor="p3", **name, revision=(await find()).revision, term=term, **said))
    wait(HOUR)
    await change(fire_command(await find(), store.now(), term))
    wait(1)
    now = Instant(store.now() // MICROSECONDS * MICROSECONDS)
    run = build_run(await find(), now, POLICY, 7)
    await change(RunSchedule(**name, **by, runs=(now,), submits=(run,), is_backfill=False))
    await change(OperateSchedule(verb=ScheduleVerb.REMOVE, **name, **by))
