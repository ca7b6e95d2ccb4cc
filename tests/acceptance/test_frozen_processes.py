"""A real process that stands still, by SIGSTOP or by its own code, loses what it held; when it wakes it harms nobody."""

import signal
from pathlib import Path

import msgspec
import pytest
import standstill
from processes import balance, check, end_of, freeze, opened, run_to_the_end, start, started

pytestmark = pytest.mark.acceptance
LEASE = "0.5"
ROUNDS = 12


async def test_a_process_that_was_stopped_wakes_up_lost_and_harms_nobody(tmp_path: Path) -> None:
    run_to_the_end("submit", tmp_path, str(ROUNDS))
    frozen = start("work", tmp_path, LEASE)
    assert frozen.stdout is not None
    assert frozen.stdout.readline()  # the first of its tasks has ended: it is in the middle of the others
    freeze(frozen, tmp_path)
    try:
        run_to_the_end("work", tmp_path, LEASE)
    finally:
        frozen.send_signal(signal.SIGCONT)
    code, told = end_of(frozen)
    assert code == 0, told
    assert await balance(tmp_path, ROUNDS) == []


async def test_a_process_that_was_stopped_for_a_moment_goes_on(tmp_path: Path) -> None:
    run_to_the_end("submit", tmp_path, str(ROUNDS))
    process = start("work", tmp_path, "30")
    assert process.stdout is not None
    for _ in range(5):
        assert process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGCONT)
    code, told = end_of(process)
    assert code == 0, told
    assert await balance(tmp_path, ROUNDS) == []
    async with opened(tmp_path) as store:
        assert "task.lost" not in {
            event["type"] async for row in store.history() for event in msgspec.json.decode(row.events)
        }


async def test_code_that_blocks_its_event_loop_loses_its_lease_and_another_ends_the_task(tmp_path: Path) -> None:
    stuck = started(standstill.__file__, str(tmp_path))
    try:
        assert stuck.stdout is not None
        assert stuck.stdout.readline() == "stands\n"
        code, told = end_of(started(standstill.__file__, str(tmp_path)))
        assert code == 0, told
    finally:
        stuck.kill()
        stuck.communicate()
    async with opened(tmp_path) as store:
        await check(store)
        events = [event async for row in store.history() for event in msgspec.json.decode(row.events)]
    assert [event["lost_count"] for event in events if event["type"] == "task.lost"] == [1]
