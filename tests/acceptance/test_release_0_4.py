"""A store and an export of release 0.4.0: this release opens the store, goes on with every task, and finds both clean."""

import importlib.util
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from arriero import App, TaskCompensated

WRITTEN = Path(__file__).parents[1] / "data" / "release_0_4"
PATIENCE = 60.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in WRITTEN.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARRIERO_STORE", f"sqlite:///{tmp_path / 'store.db'}")
    return tmp_path


@pytest.fixture
def shop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("small_shop", folder / "small_shop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "small_shop", module)
    spec.loader.exec_module(module)
    return module


def arriero(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "arriero", *arguments], capture_output=True, text=True, check=False)


def test_the_export_is_clean(folder: Path) -> None:
    checked = arriero("check", "export.jsonl")
    assert checked.returncode == 0, checked.stdout + checked.stderr


async def test_the_store_runs_on_with_every_task_and_its_history_stays_clean(folder: Path, shop: ModuleType) -> None:
    app: App = shop.app
    async with app.running():
        assert await app.task("killed").result(timeout=PATIENCE) == "receipt killed"  # its process was killed
        assert await app.task("processed").result(timeout=PATIENCE) == "receipt processed"
        await app.task("later").resume(by="ann", reason="it may go on")
        await app.task("stuck").answer(step="undo:charge", by="ann", reason="repaid by hand")
        await app.task("stuck").resubmit(by="ann", reason="go on with the undo")
        with pytest.raises(TaskCompensated, match="out of stock"):
            await app.task("stuck").result(timeout=PATIENCE)
        await app.task("second of k").resubmit(
            by="ann", reason="fewer pieces", arguments={"order": shop.Order("held", 2)}
        )
        assert await app.task("third of k").result(timeout=PATIENCE) == 1
        await app.convoy("numbered").skip(by="ann", reason="3 was never sent", seen=3)
        assert await app.task("number 4").result(timeout=PATIENCE) == 1
        states = {task.id: task.state async for task in app.tasks()}
    async with app:
        counted = {(one.app, one.agent): one.total.calls for one in (await app.metrics()).agents}
    assert counted[app.name, "payments"] > 0  # also of tasks that name no App
    assert states["bug"] == "held"
    assert states["stuck"] == "compensated"
    assert len(states) == 18
    with closing(sqlite3.connect(folder / "store.db")) as connection:
        rows = dict(connection.execute("SELECT task_id, state FROM arriero_task"))
    assert rows == {task_id: "error" if state == "held" else state for task_id, state in states.items()}

    with (folder / "now.jsonl").open("w") as file:
        subprocess.run([sys.executable, "-m", "arriero", "export"], stdout=file, check=True)
    checked = arriero("check", "now.jsonl")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert arriero("task", "explain", "bug").returncode == 0
    assert arriero("history", "undone").returncode == 0
