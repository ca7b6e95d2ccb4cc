"""A state store in a file of its own for each test."""

from pathlib import Path

import pytest
from runtime_world import Machine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.delenv("ARRIERO_STORE", raising=False)
    return Machine(tmp_path / "store.db")
