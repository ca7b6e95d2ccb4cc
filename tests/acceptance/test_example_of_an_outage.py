"""The example of an outage ends with a plain sentence where it cannot run, or where something is not as it must be.

The whole of it runs in `make examples`, and on PostgreSQL in tests/postgres.
"""

import pytest

from examples.outage import run

pytestmark = pytest.mark.acceptance


def test_it_exits_with_1_and_names_what_is_not_as_promised(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "PATIENCE", 0.5)
    monkeypatch.setattr(run, "CALLS", 10**9)  # more than come in that time
    assert run.run([]) == 1
    assert capsys.readouterr().err == (
        "\nnot as it should be: stage 'both are well' has had fewer than 1000000000 calls, 0.5 s later\n"
    )


@pytest.mark.parametrize(
    "store", ["mysql://u@h/d", "postgresql://nobody@127.0.0.1:1/nowhere", "sqlite:////no/such/folder/tasks.db"]
)
def test_it_exits_with_2_if_it_cannot_use_the_store(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.run(["--store", store]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
