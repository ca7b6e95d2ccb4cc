"""Three releases of a workflow over orders that have not ended, while the worker is killed. A bad release is refused before it runs.

    python examples/upgrade/run.py

About 30 s. Exit code 1: something is not as promised.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from arriero import App, TaskView, Workflow  # noqa: E402
from examples.upgrade import release_1, release_2, release_3  # noqa: E402  # found from the repository's root
from examples.upgrade.services import approved, open_books  # noqa: E402
from examples.worker import Worker  # noqa: E402

ORDERS = 30  # of each release
LEFT = 10  # of each release, that the next one finds: they wait for their approval
PATIENCE = 60  # seconds for the orders of a release
FIRST, SECOND, THIRD = range(ORDERS), range(ORDERS, 2 * ORDERS), range(2 * ORDERS, 3 * ORDERS)


def replay(release: str) -> int:
    """Ask whether a release agrees with the tasks that are there. Returns: the exit code, 0 if it does."""
    command = [sys.executable, "-m", "arriero", "replay", f"examples.upgrade.{release}:app"]
    print(f"$ arriero replay {release}:app")
    return subprocess.run(command, cwd=ROOT, check=False).returncode


async def submit(app: App, fulfil: Workflow[[int], str], numbers: range) -> None:
    """Submit orders by the code of a release, and wait until each waits for its approval."""
    async with app:
        tasks = [await app.submit(fulfil(number), task_id=f"order-{number}") for number in numbers]
        async with asyncio.timeout(PATIENCE):
            for task in tasks:
                async for view in task.changes():
                    if any(step.name == "signal:approved" for step in view.steps):
                        break


async def approve(numbers: range) -> None:
    """Approve orders, and wait for their ends."""
    async with release_1.app as app:
        for number in numbers:
            await app.task(f"order-{number}").send(approved("ana"), signal_id="approval")
        for number in numbers:
            await app.task(f"order-{number}").result(timeout=PATIENCE)


async def find_errors() -> list[str]:
    """Find what is not as promised, in the tasks and in the books of the services."""
    errors = []
    with open_books() as books:
        did = Counter(books.execute("SELECT number, what FROM entry").fetchall())
    async with release_1.app as app:
        for number in (*FIRST, *SECOND, *THIRD):
            view: TaskView = await app.task(f"order-{number}").view()
            if view.state != "processed":
                errors.append(f"order {number} is {view.state}: {view.failure}")
            expected = {"charged": 1, "reserved": int(number not in FIRST), "shipped": 1}
            found = {what: did[number, what] for what in expected}
            if found != expected:
                errors.append(f"order {number}: the books say {found}, not {expected}")
    return errors


async def run(folder: Path) -> list[str]:
    """Deploy one release after the other. Returns: what is not as promised."""
    errors, log = [], folder / "worker.log"
    worker = Worker("examples.upgrade.release_1:app", log)
    try:
        await submit(release_1.app, release_1.fulfil, FIRST)
        await approve(FIRST[LEFT:])
        if replay("release_3") != 1:
            errors.append("the change without a patch was not refused")
        if replay("release_2") != 0:
            errors.append("the second release was refused")
        worker.kill()
        worker = Worker("examples.upgrade.release_2:app", log)
        await submit(release_2.app, release_2.fulfil, SECOND)
        worker.kill_and_restart()
        await approve(SECOND[LEFT:])
        if replay("release_3") != 1:
            errors.append("the third release was not refused while orders need the old branch")
        await approve(FIRST[:LEFT])
        if replay("release_3") != 0:
            errors.append("the third release was refused though no order needs the old branch")
        worker.kill()
        worker = Worker("examples.upgrade.release_3:app", log)
        await submit(release_3.app, release_3.fulfil, THIRD)
        worker.kill_and_restart()
        await approve(range(SECOND.start, SECOND.start + LEFT))
        await approve(THIRD)
    finally:
        worker.kill()
    return errors + await find_errors()


def main() -> int:
    """Run it. Returns: the exit code."""
    with tempfile.TemporaryDirectory(prefix="arriero-upgrade-") as folder:
        os.environ["ARRIERO_STORE"] = f"sqlite:///{folder}/upgrade.db"
        os.environ["UPGRADE_BOOKS"] = f"{folder}/books.db"
        errors = asyncio.run(run(Path(folder)))
    for error in errors:
        print(f"WRONG: {error}", file=sys.stderr)
    print("not as promised" if errors else f"as promised: {3 * ORDERS} orders over three releases, each in its branch")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
