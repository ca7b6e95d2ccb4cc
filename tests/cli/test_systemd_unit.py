"""The unit of systemd: systemd accepts it, and a process tells systemd what the unit expects."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_calls import APP, Run

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "arriero.service"


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed; run: apt-get install systemd"
)
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("ExecStart=/opt/arriero/bin/arriero", f"ExecStart={shutil.which('true')}"))
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    assert [line for line in ran.stderr.splitlines() if UNIT.name in line] == []
    assert ran.returncode == 0, ran.stderr


def test_the_unit_stops_the_main_process_alone_which_lets_the_calls_of_its_children_end() -> None:
    settings = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line and line[0] != "#")
    assert (settings["KillMode"], settings["KillSignal"]) == ("mixed", "SIGTERM")


@pytest.mark.acceptance
@pytest.mark.parametrize("command", [("serve", APP, "--port", "0"), ("run", APP)], ids=lambda command: command[0])
def test_systemd_is_told_of_start_life_and_end(
    shop: Path, start: Callable[..., Run], command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shop / "notify.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(path))
        told.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        monkeypatch.setenv("WATCHDOG_USEC", "300000")
        run = start(command=command)
        found: set[str] = set()
        while not {"READY=1", "WATCHDOG=1"} <= found:
            found.add(told.recv(4_096).decode().splitlines()[0])
        run.signal(signal.SIGTERM)
        while "STOPPING=1" not in found:
            found.add(told.recv(4_096).decode().splitlines()[0])
        assert run.ended()[0] == 0
    assert "NOTIFY_SOCKET" in os.environ  # only the process has taken it out
