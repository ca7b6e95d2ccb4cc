"""Processes die or stand still while they drive convoys: each key goes on strictly in its order, nothing lost or done twice."""

import contextlib
import random
import shutil
import signal
import subprocess
from pathlib import Path

import msgspec
import procession
import pytest
from processes import KILLED, Process, check, end_of, freeze, opened, started

from arriero.store.state_store import StateStore

pytestmark = pytest.mark.acceptance
KEYS, EACH = 4, 6
KILLS = 8
POINTS = [
    ("before_commit", 2),
    ("before_commit", 9),
    ("after_commit", 3),
    ("after_commit", 8),
    ("before_send", 5),
    ("after_send", 7),
    ("before_submit_commit", 7),
    ("after_submit_commit", 7),
]


def start(what: str, folder: Path, *args: str, crash_at: str = "") -> Process:
    return started(procession.__file__, what, str(folder), *args, crash_at=crash_at)


def run_to_the_end(what: str, folder: Path, *args: str) -> None:
    code, told = end_of(start(what, folder, *args))
    assert code == 0, told


async def held_in_order(store: StateStore, book: Path) -> set[str]:
    """Every task has ended, each key did everything once and strictly in its order, and the history is clean.

    Returns: the tasks that are held because they were lost too often.
    """
    done = procession.steps_in_order(book)
    held = set()
    numbers: dict[str, list[int]] = {}
    answers: dict[str, list[int]] = {}
    for task in sorted(await store.list_tasks(limit=100_000), key=lambda task: task.place or 0):
        key, _, number = task.task_id.rpartition("-")
        numbers.setdefault(key, []).append(int(number))
        if task.state == "held":
            assert '"code":"lost"' in (task.failure or ""), task
            held.add(task.task_id)
        else:
            assert task.state == "processed", task
            answers.setdefault(key, []).append(msgspec.json.decode(task.output or ""))
    for key, of_key in numbers.items():
        assert of_key == sorted(of_key), f"{key}: its places are out of order"
        found = done.get(key, [])
        assert found == sorted(found), f"{key}: {found}"
        assert len(found) == len(set(found)), f"{key} did one thing twice: {found}"
        complete = [n for n in of_key if procession.task_id_of(key, n) not in held]
        assert {(n, side) for n in complete for side in procession.SIDES} <= set(found)
        assert answers.get(key, []) == list(range(len(complete))), f"{key}: its state is {answers.get(key)}"
    await check(store)  # type: ignore[arg-type]
    return held


async def balance(folder: Path, each: int = EACH) -> set[str]:
    async with opened(folder) as store:
        assert len(await store.list_tasks(limit=10_000)) == KEYS * each
        return await held_in_order(store, folder / "steps.db")


@pytest.fixture(scope="module")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all tasks, not begun."""
    folder = tmp_path_factory.mktemp("procession")
    run_to_the_end("submit", folder, str(KEYS), str(EACH))
    return folder


@pytest.mark.parametrize(("name", "nth"), POINTS, ids=str)
async def test_a_process_killed_at_a_crash_point_costs_no_key_its_order(
    name: str, nth: int, submitted: Path, tmp_path: Path
) -> None:
    submits = "submit" in name
    folder = tmp_path if submits else Path(shutil.copytree(submitted, tmp_path / "copy"))
    given = ("submit", folder, str(KEYS), str(EACH)) if submits else ("work", folder)
    code, told = end_of(start(*given, crash_at=f"{name}:{nth}"))  # type: ignore[arg-type]
    assert code == KILLED, f"{name} was never reached: {code} {told}"
    if submits:
        run_to_the_end("submit", folder, str(KEYS), str(EACH))
    run_to_the_end("work", folder)
    assert await balance(folder) == set()


async def test_kills_at_random_moments_while_two_processes_share_the_keys(tmp_path: Path) -> None:
    each, seed = 30, random.randrange(1_000_000)
    chance = random.Random(seed)
    run_to_the_end("submit", tmp_path, str(KEYS), str(each))
    working = [start("work", tmp_path, "1") for _ in range(2)]
    try:
        for _ in range(KILLS):
            victim = working.pop(0)
            assert victim.stdout is not None
            for _ in range(chance.randrange(1, 8)):
                victim.stdout.readline()
            with contextlib.suppress(subprocess.TimeoutExpired):
                victim.communicate(timeout=chance.uniform(0, 0.03))
            victim.kill()
            end_of(victim)
            working.append(start("work", tmp_path, "1"))
        for process in working:
            code, told = end_of(process)
            assert code == 0, told
        held = await balance(tmp_path, each)
        assert len(held) <= KILLS / 3, held
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    finally:
        for process in working:
            process.kill()
            process.communicate()


async def test_a_process_that_was_stopped_in_the_middle_of_its_keys_wakes_up_lost_and_harms_none(
    submitted: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(submitted, tmp_path / "copy"))
    frozen = start("work", folder, "0.5")
    assert frozen.stdout is not None
    assert frozen.stdout.readline()
    freeze(frozen, folder)
    try:
        run_to_the_end("work", folder, "0.5")
    finally:
        frozen.send_signal(signal.SIGCONT)
    code, told = end_of(frozen)
    assert code == 0, told
    assert await balance(folder) == set()
