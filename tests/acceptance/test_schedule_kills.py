"""Real leaders die in the middle of a schedule's pass, and two live at once: each instant is run once, and none is missing."""

from itertools import pairwise
from pathlib import Path

import pytest
import timetable
from processes import KILLED, end_of, opened, started

from arriero.audit.check import History
from arriero.events import read_events
from arriero.events.store import ScheduleDecided
from arriero.model import MICROSECONDS

pytestmark = pytest.mark.acceptance


async def find_runs(folder: Path) -> dict[str, list[int]]:
    """The instants that each schedule was run at, in seconds, by its tasks; the history is clean and says the same."""
    async with opened(folder) as store:
        history, decided = History(), set[str]()
        async for row in store.history():
            history.add(row)
            if row.task_no == 0:
                decided |= {
                    task
                    for event in read_events(row.events)
                    if isinstance(event, ScheduleDecided)
                    for task in event.tasks
                }
        assert history.end(complete=False) == []
        ids = {task.task_id for task in await store.list_tasks(limit=10_000)}
        assert ids == decided
        for row in await store.list_schedules():
            assert row.anchor % MICROSECONDS == 0
    found: dict[str, list[int]] = {name: [] for name in timetable.NAMES}
    for task_id in sorted(ids):
        name, _, instant = task_id.removeprefix("timetable/").partition("@")
        minutes, seconds = instant[14:16], instant[17:19]
        found[name].append(int(minutes) * 60 + int(seconds))
    return found


def assert_each_once(found: dict[str, list[int]], runs: int) -> None:
    for seconds in found.values():
        assert len(seconds) >= runs
        steps = {(after - before) % 3_600 for before, after in pairwise(seconds)}
        assert steps == {1}, seconds


@pytest.mark.parametrize("point", ["before_fire:1", "after_fire:1", "before_fire:2", "after_fire:3"])
async def test_a_leader_killed_in_the_middle_of_a_pass_loses_and_doubles_no_run(point: str, tmp_path: Path) -> None:
    code, told = end_of(started(timetable.__file__, str(tmp_path), "9", crash_at=point))
    assert code == KILLED, told
    code, told = end_of(started(timetable.__file__, str(tmp_path), "4"))
    assert code == 0, told
    assert_each_once(await find_runs(tmp_path), 4)


async def test_while_two_processes_live_and_the_leader_is_killed_each_run_is_there_once(tmp_path: Path) -> None:
    first = started(timetable.__file__, str(tmp_path), "99", crash_at="after_fire:2")
    others = [started(timetable.__file__, str(tmp_path), "5") for _ in range(2)]
    for process in others:
        code, told = end_of(process)
        assert code == 0, told
    first.kill()
    end_of(first)
    assert_each_once(await find_runs(tmp_path), 5)
