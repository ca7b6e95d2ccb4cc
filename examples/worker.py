"""A worker process of an App that is killed and started again, for examples that show what survives it."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class Worker:
    """``arriero run TARGET`` in a process.

    Args:
        target: ``MODULE:APP``, found from the repository's root.
        log: what it prints is added to this file.
    """

    def __init__(self, target: str, log: Path) -> None:
        self.kills = 0
        self._command = [sys.executable, "-m", "arriero", "run", target]
        self._log = log
        self._start()

    def _start(self) -> None:
        environment = {**os.environ, "ARRIERO_LOST_PROCESSES_MAX": "1000"}  # here no task is the cause of a death
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """End it without a warning."""
        self._process.kill()
        self._process.wait()

    def kill_and_restart(self) -> None:
        """Kill it during its work, and start it again."""
        self.kills += 1
        self.kill()
        self._start()
