"""For all tests: a skip that nobody expected is a failure where it counts (CI=true)."""

import os
import signal
import tempfile
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from runtime_world import Machine
from skip_count import SkipCount

# How long an example takes says something of the machine, nothing of the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A state store in a file of its own."""
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    return Machine(tmp_path / "store.db")


# What tests keep is lost with the machine in any case. In memory an fsync costs nothing; no test here cuts the power.
IN_MEMORY = "/dev/shm"
FREE_BYTES_MIN = 4 * 2**30


def use_memory_for_files() -> None:
    """Put temporary folders, of tests and of the servers that they start, into memory where there is room enough.

    Worker processes and programs that tests start inherit it. A TMPDIR that somebody has set is kept.
    """
    if "TMPDIR" in os.environ or not os.access(IN_MEMORY, os.W_OK):
        return
    room = os.statvfs(IN_MEMORY)
    if room.f_bavail * room.f_frsize >= FREE_BYTES_MIN and not room.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = IN_MEMORY


def keep_compiled_code(config: pytest.Config) -> None:
    """Let processes that tests start share compiled code, also where Python is told to write none beside the sources.

    Hundreds are started, and half of what a short one does is to compile our modules. The folder goes with the run.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None) and "PYTHONPYCACHEPREFIX" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="arriero-compiled-", ignore_cleanup_errors=True)
        os.environ["PYTHONPYCACHEPREFIX"] = folder.name
        config.add_cleanup(folder.cleanup)


def pytest_configure(config: pytest.Config) -> None:
    use_memory_for_files()
    keep_compiled_code(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipCount())


def spread_simulations(items: list[pytest.Item]) -> list[pytest.Item]:
    """Put the simulated worlds between the files of other tests, evenly.

    Each takes long and needs nothing of others. Together they would be the last that one of several processes runs.
    """
    worlds = [item for item in items if item.path.parent.name == "simulation"]
    others = [item for item in items if item.path.parent.name != "simulation"]
    files = [list(group) for _, group in groupby(others, key=lambda item: item.path)]
    spread: list[pytest.Item] = []
    for number, file in enumerate(files):
        spread += file
        spread += worlds[len(worlds) * number // len(files) : len(worlds) * (number + 1) // len(files)]
    return spread or worlds


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = spread_simulations(items)
