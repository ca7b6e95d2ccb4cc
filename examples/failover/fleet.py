"""The processes on the store: what runs the shop's tasks, and the clients that submit them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from examples.orders.processes import Process, ProcessFailed
from examples.orders.variables import SERVICES_VARIABLE, STORE_VARIABLE

ROLES = ("scheduler,agents,supervisor", "scheduler,supervisor", "agents")
"""Of the processes that run the tasks: one does everything, two share the work between them."""
SECONDS_MAX = 180.0
"""After which a wait counts as stuck: several times what anything here takes on two busy cores."""
LOOK_SECONDS = 0.05


class Fleet:
    """All processes of a run; none is ever started twice."""

    def __init__(self, folder: Path, url: str, services_url: str) -> None:
        self._folder = folder
        self._variables = {STORE_VARIABLE: url}
        run = ["arriero", "run", "examples.failover.shop:app", "--roles"]
        variables = {**self._variables, SERVICES_VARIABLE: services_url}
        self.nodes = [
            Process(f"node-{no}", [*run, roles], folder, variables, output=subprocess.PIPE)
            for no, roles in enumerate(ROLES, 1)
        ]
        self.clients: list[Process] = []
        self.journals: list[Path] = []
        self.ended_by_themselves = 0

    def wait_ready(self) -> None:
        """Wait until all nodes run. Raises: ProcessFailed - one has ended instead."""
        for node in self.nodes:
            node.ready_line()

    def start_clients(self, count: int, prefix: str) -> list[Path]:
        """Have so many clients begin to submit. Returns: their journals."""
        for name in (f"{prefix}-client-{number}" for number in range(1, count + 1)):
            journal = self._folder / f"{name}.journal"
            command = ["examples.failover.client", name, str(journal)]
            self.clients.append(Process(name, command, self._folder, self._variables))
            self.journals.append(journal)
        return self.journals[-count:]

    def stop_clients(self) -> None:
        """Have the clients finish what they began. Raises: ProcessFailed - one does not."""
        for client in self.clients:
            if (code := client.stop()) != 0:
                raise client.failure(f"ended with {code}")
        self.clients.clear()

    def stop(self) -> None:
        """Have the nodes drain. Raises: ProcessFailed - one does not."""
        for node in self.nodes:
            if (code := node.stop()) != 0:
                raise node.failure(f"ended with {code} after SIGTERM, where it should drain and end with 0")

    def kill(self) -> None:
        """End all of them here and now."""
        for process in (*self.clients, *self.nodes):
            process.kill()

    def check(self) -> None:
        """Raises: ProcessFailed - one has ended by itself."""
        ended = [process for process in (*self.clients, *self.nodes) if process.code() is not None]
        self.ended_by_themselves = len(ended)
        for process in ended:
            raise process.failure(f"ended by itself with {process.code()}")

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        """Raises: ProcessFailed - it did not come to that, or a process ended meanwhile."""
        give_up_at = time.monotonic() + SECONDS_MAX
        while not is_so():
            self.check()
            if time.monotonic() > give_up_at:
                raise ProcessFailed(f"after {SECONDS_MAX:.0f} seconds: {what}")
            time.sleep(LOOK_SECONDS)
