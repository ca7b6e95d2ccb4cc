"""A real process dies by SIGKILL at each crash point; another takes over; nothing is lost, done twice or left half."""

import asyncio
import contextlib
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import caravan
import pytest
from processes import KILLED, balance, end_of, opened, run_to_the_end, run_until_killed, start

from arriero.model.answers import Claimed
from arriero.model.commands import Claim
from arriero.runtime.crash_points import CRASH_POINTS

pytestmark = pytest.mark.acceptance
ARRIERO = [sys.executable, "-m", "arriero"]
DEAD = 8  # processes that died with work in the prepared store
KILLS = 10

# Each point at its first reaching and, where one run reaches it that often, at the third and the seventh.
ONCE = ("before_register", "after_register", "before_renew", "after_renew", "before_lease", "after_lease")
OF_SUBMITTER = ("before_submit_commit", "after_submit_commit")
OF_SCHEDULES = ("before_fire", "after_fire")  # test_schedule_kills
OF_DEAD = ("before_retire", "after_retire", "before_free", "after_free")
CASES = [(name, n) for name in CRASH_POINTS if name not in (*ONCE, *OF_SUBMITTER, *OF_SCHEDULES) for n in (1, 3, 7)]
CASES += [(name, 1) for name in ONCE]


# --- stores to begin from
@pytest.fixture(scope="module")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one task of each kind, not begun."""
    folder = tmp_path_factory.mktemp("submitted")
    run_to_the_end("submit", folder, "1")
    return folder


@pytest.fixture(scope="module")
def with_dead(submitted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, but eight processes died, each but the last with a task in hand."""
    folder = tmp_path_factory.mktemp("with_dead") / "copy"
    shutil.copytree(submitted, folder)

    async def die() -> None:
        async with opened(folder) as store:
            workflows = ("plain", "undone", "together", "rested", "detour", "step:load")
            for number in range(DEAD):
                process_no = await store.register(f"dead-{number}", 3.0)
                claim = Claim(
                    actor=f"dead-{number}",
                    process_no=process_no,
                    workflows=workflows,
                    limit=1,
                    probation=True,
                    app=caravan.caravan.name,
                )
                (answer,) = await store.apply([claim])
                assert isinstance(answer, Claimed)

    asyncio.run(die())
    lives = folder / "store.db.processes"
    lives.mkdir(exist_ok=True)
    for number in range(DEAD):
        (lives / f"dead-{number}.lock").touch()  # that nobody holds: they are known to be dead
    return folder


def copy_of(source: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(source, tmp_path / "copy"))


# --- a worker dies
@pytest.mark.parametrize(("name", "nth"), CASES, ids=lambda value: str(value))
async def test_a_worker_killed_at_a_crash_point_costs_nothing(
    name: str, nth: int, submitted: Path, with_dead: Path, tmp_path: Path
) -> None:
    folder = copy_of(with_dead if name in OF_DEAD and (nth > 1 or "free" in name) else submitted, tmp_path)
    lease = ("0.05",) if name.endswith("_renew") else ()  # so that it is renewed at all in so short a life
    run_until_killed("work", folder, *lease, crash_at=f"{name}:{nth}")
    run_to_the_end("work", folder)
    assert await balance(folder) == []


@pytest.mark.parametrize(
    "points",
    [("after_send:4", "after_free:1"), ("after_undo_send:2", "before_free:1"), ("after_commit:5", "after_commit:5")],
    ids="-".join,
)
async def test_a_worker_killed_while_it_clears_up_after_another_costs_nothing(
    points: Sequence[str], submitted: Path, tmp_path: Path
) -> None:
    folder = copy_of(submitted, tmp_path)
    for point in points:
        run_until_killed("work", folder, crash_at=point)
    run_to_the_end("work", folder)
    assert await balance(folder) == []


# --- who submits dies
@pytest.mark.parametrize("name", OF_SUBMITTER)
async def test_the_same_submission_after_a_kill_gives_one_task(name: str, tmp_path: Path) -> None:
    run_until_killed("submit", tmp_path, "1", crash_at=f"{name}:1")
    async with opened(tmp_path) as store:
        kept = [task.task_no for task in await store.list_tasks()]
    assert bool(kept) is (name == "after_submit_commit")
    run_to_the_end("submit", tmp_path, "1")
    async with opened(tmp_path) as store:
        tasks = await store.list_tasks()
    assert [task.task_no for task in tasks][: len(kept)] == kept
    assert len(tasks) == len(caravan.EXPECTED)
    run_to_the_end("work", tmp_path)
    assert await balance(tmp_path) == []


# --- at any moment
async def test_ten_kills_at_random_moments_cost_nothing(tmp_path: Path) -> None:
    """But a task whose processes died three times between two of its steps is held: loudly, and nothing of it twice."""
    rounds, seed = 25, random.randrange(1_000_000)
    chance = random.Random(seed)
    run_to_the_end("submit", tmp_path, str(rounds))
    for _ in range(KILLS):
        process = start("work", tmp_path, "3")
        assert process.stdout is not None
        for _ in range(chance.randrange(1, 12)):
            assert process.stdout.readline(), f"seed {seed}: it had ended already; give it more to do"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=chance.uniform(0, 0.03))
        process.kill()
        assert end_of(process)[0] == KILLED
    run_to_the_end("work", tmp_path)
    held = await balance(tmp_path, rounds)
    assert len(held) <= KILLS / 3, f"seed {seed}: {held}"
    exported = subprocess.run(
        [*ARRIERO, "export", "--store", f"sqlite:///{tmp_path}/store.db"], capture_output=True, check=True
    )
    checked = subprocess.run([*ARRIERO, "check", "-"], input=exported.stdout, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout.partition(b":")[0]) == (0, b"clean"), checked.stdout
