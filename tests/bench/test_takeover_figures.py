"""The measuring of the work `takeover` of `bench/run.py`, with contenders that only wait to be lost."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.sides import take_overs
from bench.sides.take_overs import Contender, Held, measure_take_overs

LOSSES = 3


def goes_on(contender: Contender) -> bool:
    """It has not ended, and is not stopped."""
    if contender.poll() is not None:
        return False
    state = Path(f"/proc/{contender.pid}/stat").read_text().rpartition(") ")[2][0]
    return state != "T"


@pytest.mark.parametrize("loss", [signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM])
async def test_each_holder_is_lost_once_and_another_contender_takes_its_place(
    loss: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(take_overs, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(take_overs, "SPREAD_SECONDS", 0.0)
    started: list[Contender] = []
    held: list[int] = []

    def start() -> Contender:
        started.append(subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]))
        return started[-1]

    async def find_holder() -> Held | None:
        """The eldest that goes on holds it."""
        pid = next(one.pid for one in started if goes_on(one))
        if pid not in held:
            held.append(pid)
        return Held(pid, len(held))

    seconds = await measure_take_overs(start, find_holder, LOSSES, lambda lost: lost.send_signal(loss))
    assert len(seconds) == LOSSES
    assert min(seconds) > 0
    ended_by = signal.SIGKILL if loss is signal.SIGSTOP else loss
    assert [one.returncode for one in started[:LOSSES]] == [-ended_by] * LOSSES
    assert len(started) == LOSSES + take_overs.CONTENDERS
    assert all(one.poll() is not None for one in started), "it leaves nothing running"
