"""Orders and their tasks in one transaction, noted by real processes that die: both are there, or neither."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import caravan
import pytest
from processes import (
    KILLED,
    Process,
    check,
    check_told,
    end_of,
    opened,
    run_to_the_end,
    start,
)

pytestmark = pytest.mark.acceptance
KEPT = ("after_commit",)  # moments at which order and task are there
TRADERS, KILLS = 2, 4


def orders(folder: Path) -> set[str]:
    """What was noted."""
    with closing(sqlite3.connect(folder / "store.db")) as connection:
        return {name for (name,) in connection.execute("SELECT id FROM orders")}


async def tasks(folder: Path) -> dict[str, str]:
    """The tasks and their states."""
    async with opened(folder) as store:
        return {task.task_id: task.state for task in await store.list_tasks(limit=10_000)}


async def settle(folder: Path) -> None:
    """Every order has its task, every task its order and its end, the history is clean, everybody was told."""
    found = await tasks(folder)
    assert found.keys() == orders(folder)
    assert set(found.values()) <= {"processed"}
    done = caravan.standing(folder / "book.db")
    assert done.keys() == found.keys()
    async with opened(folder) as store:
        await check(store)
        await check_told(store, caravan.QUEUE)


def line_of(process: Process) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, end_of(process)
    return line.strip()


@pytest.mark.parametrize("moment", caravan.MOMENTS)
async def test_a_process_that_dies_leaves_order_and_task_or_neither(moment: str, tmp_path: Path) -> None:
    code, told = end_of(start("join", tmp_path, "salt-1", moment))
    assert code == KILLED, told
    kept = {"salt-1"} if moment in KEPT else set()
    assert (orders(tmp_path), set(await tasks(tmp_path))) == (kept, kept)
    run_to_the_end("join", tmp_path, "salt-1", "")  # whoever was not told does it again
    run_to_the_end("work", tmp_path)
    await settle(tmp_path)
    assert orders(tmp_path) == {"salt-1"}


async def test_a_running_process_takes_up_what_is_committed_and_never_what_is_not(tmp_path: Path) -> None:
    server = start("serve", tmp_path, "kept")
    assert line_of(server) == "runs"
    for moment in ("before_commit", "after_rollback", "before_submit"):
        assert end_of(start("join", tmp_path, f"gone-{moment}", moment))[0] == KILLED
    run_to_the_end("join", tmp_path, "kept", "")
    assert line_of(server) == "kept"
    code, told = end_of(server)
    assert code == 0, told
    await settle(tmp_path)
    assert orders(tmp_path) == {"kept"}


async def test_traders_killed_at_any_moment_beside_a_running_process_leave_no_order_alone(tmp_path: Path) -> None:
    seed = random.randrange(1_000_000)
    chance = random.Random(seed)
    server = start("serve", tmp_path, "last")
    assert line_of(server) == "runs"
    acknowledged: set[str] = set()
    for turn in range(KILLS):
        traders = [start("trade", tmp_path, f"{turn}-{number}") for number in range(TRADERS)]
        for trader in traders:
            acknowledged |= {line_of(trader) for _ in range(chance.randrange(1, 12))}
        for trader in traders:
            trader.kill()
            assert trader.communicate() is not None
    run_to_the_end("join", tmp_path, "last", "")
    code, told = end_of(server)
    assert code == 0, f"seed {seed}: {told}"
    run_to_the_end("work", tmp_path)
    await settle(tmp_path)
    assert acknowledged <= orders(tmp_path), f"seed {seed}"
    assert not any(int(name.rpartition("-")[2]) % 3 == 0 for name in orders(tmp_path) - {"last"}), f"seed {seed}"
