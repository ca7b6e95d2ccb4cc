"""What submitters are told while processes die: per task 1, 2, ... without gaps, the last one tells how it ended.

That nothing is missing, doubled or untrue in the queue is checked after every kill of ``test_kill_at_crash_points``
(``processes.balance``). Here stand the readers: they are killed too, and what they read is their log.
"""

import asyncio
import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import caravan
import pytest
from processes import KILLED, assert_told, check, end_of, opened, run_to_the_end, run_until_killed, start

pytestmark = pytest.mark.acceptance
ROUNDS = 3
KILLS = 5
Event = dict[str, Any]


def log_of(folder: Path) -> list[Event]:
    """What readers have seen, in the order in which they saw it."""
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


async def judge(folder: Path, log: list[Event]) -> None:
    """The consumers' log: every task's numbers without a gap, in order, repeated only from where a reader died."""
    first_seen: dict[str, Event] = {}
    by_task: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for event in log:
        assert (event["specversion"], event["data"]["queue"]) == ("1.0", caravan.QUEUE)
        before = first_seen.setdefault(event["id"], event)
        assert event == before, "what comes again is the same"
        if before is event:
            by_task[event["subject"]].append((event["data"]["number"], event["data"]["kind"]))
    async with opened(folder) as store:
        assert await store.load_statuses(caravan.QUEUE, 10) == []
        tasks = await store.list_tasks(limit=10_000)
        await check(store)
    assert {task.task_id for task in tasks} == set(by_task)
    for task in tasks:
        assert_told(task.task_id, task.state, by_task[task.task_id])
        assert task.status_count == len(by_task[task.task_id])


def again(log: list[Event]) -> list[str]:
    """Ids of what was seen more than once, once for each further time."""
    ids = [event["id"] for event in log]
    return [one for number, one in enumerate(ids) if one in ids[:number]]


async def read_and_die(folder: Path, count: int) -> None:
    """A reader that is killed once it has told of so many."""
    reader = start("consume", folder)
    assert reader.stdout is not None
    for _ in range(count):
        assert reader.stdout.readline(), end_of(reader)
    reader.kill()
    assert end_of(reader)[0] == KILLED


@pytest.mark.parametrize("count", [1, 2, 9])
async def test_a_reader_that_is_killed_gets_the_rest_and_what_it_had_not_acknowledged_again(
    count: int, tmp_path: Path
) -> None:
    run_to_the_end("submit", tmp_path, "1")
    run_to_the_end("work", tmp_path)
    await read_and_die(tmp_path, count)
    seen = len(log_of(tmp_path))
    assert seen >= count
    run_to_the_end("consume", tmp_path)
    log = log_of(tmp_path)
    await judge(tmp_path, log)
    repeated = len(again(log))  # the next reader begins within what the dead one saw, and leaves nothing out
    ids = [event["id"] for event in log]
    assert ids[seen : seen + repeated] == ids[seen - repeated : seen]


async def test_a_reader_that_reads_on_undisturbed_hears_nothing_twice(tmp_path: Path) -> None:
    run_to_the_end("submit", tmp_path, str(ROUNDS))
    run_to_the_end("work", tmp_path)
    for _ in range(2):
        run_to_the_end("consume", tmp_path)
    await judge(tmp_path, log_of(tmp_path))
    assert again(log_of(tmp_path)) == []


@pytest.mark.parametrize("point", ["before_commit:2", "after_commit:4", "after_send:3", "after_undo_send:1"])
async def test_a_reader_hears_the_same_story_when_the_worker_dies_between_two_of_its_readings(
    point: str, tmp_path: Path
) -> None:
    run_to_the_end("submit", tmp_path, "1")
    run_until_killed("work", tmp_path, crash_at=point)
    run_to_the_end("consume", tmp_path)
    halfway = len(log_of(tmp_path))
    run_to_the_end("work", tmp_path)
    run_to_the_end("consume", tmp_path)
    log = log_of(tmp_path)
    assert halfway < len(log)
    await judge(tmp_path, log)
    assert again(log) == []


async def test_workers_and_readers_killed_at_random_moments_leave_no_gap(tmp_path: Path) -> None:
    seed = random.randrange(1_000_000)
    chance = random.Random(seed)
    run_to_the_end("submit", tmp_path, str(ROUNDS))
    for _ in range(KILLS):
        worker = start("work", tmp_path, "3")
        reader = start("consume", tmp_path)
        for process, most in ((reader, 9), (worker, 3)):
            assert process.stdout is not None
            for _ in range(chance.randrange(1, most)):
                await asyncio.to_thread(process.stdout.readline)  # empty, once it has ended by itself
        for process in (reader, worker):
            process.kill()
            assert end_of(process)[0] in (KILLED, 0), f"seed {seed}"
    run_to_the_end("work", tmp_path)
    run_to_the_end("consume", tmp_path)
    await judge(tmp_path, log_of(tmp_path))
