"""Processes that are killed and started again, for examples that show what survives it."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class KilledProcess:
    """A process of Python that runs from the repository's root.

    Args:
        arguments: of the interpreter.
        environment: for it, besides that of this process.
        log: what it prints is added to this file.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.kills = 0
        self._command = [sys.executable, *arguments]
        self._environment = {**os.environ, **environment}
        self._log = log
        self._start()

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
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


class Worker(KilledProcess):
    """``arriero run TARGET`` in a process.

    Args:
        target: ``MODULE:APP``, found from the repository's root.
        log: what it prints is added to this file.
    """

    def __init__(self, target: str, log: Path) -> None:
        lost = {"ARRIERO_LOST_PROCESSES_MAX": "1000"}  # here no task is the cause of a death
        super().__init__(["-m", "arriero", "run", target], lost, log)
