"""The other processes of a demonstration: services, submission and worker, started, killed and stopped.

Each runs in the demonstration's folder, so that nothing in the caller's directory can stand in for one of our modules,
and finds ``examples`` where this file lies. The store's URL is told through the environment: it may hold a password, and
everybody on the machine can read the command line of a process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from .variables import BREAK_VARIABLE, SERVICES_VARIABLE, STORE_VARIABLE

IMPORT_ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds ``examples``."""
WORKER_MODULE = "arriero"
SUPERVISOR_MODULE = "arriero"
HISTORY = "history.jsonl"
READY_PREFIX = "listening on "
STOP_SECONDS_MAX = 30
TAIL_LINES = 12


class ProcessFailed(Exception):
    """One of the processes did not do its part; the message holds the end of what it wrote."""


class Process:
    """One child with a log of its own; its standard output goes to ``output`` where that is given."""

    def __init__(
        self, name: str, module: Sequence[str], folder: Path, variables: Mapping[str, str], output: int | None = None
    ) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", *module],
                cwd=folder,
                env=_environment(variables),
                stdin=subprocess.DEVNULL,
                stdout=log if output is None else output,
                stderr=log,
                process_group=0,  # Ctrl-C goes to the demonstration alone, which then stops or kills this one
            )

    def ready_line(self) -> str:
        """The first line of its output. Raises: ProcessFailed - it ended instead."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline().decode()
        if not line:
            raise self.failure("ended before it was ready")
        return line.strip()

    @property
    def pid(self) -> int:
        return self._child.pid

    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._child.poll()

    def wait(self, seconds_max: float) -> int:
        """Its exit code. Raises: ProcessFailed - it is still there."""
        try:
            return self._child.wait(seconds_max)
        except subprocess.TimeoutExpired:
            raise self.failure(f"did not end within {seconds_max} seconds") from None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; none is sent when it has ended."""
        self._child.send_signal(number)

    def stop(self) -> int:
        """Ask it to end, with SIGTERM, and wait for that. Returns: its exit code."""
        self.send(signal.SIGTERM)
        return self.wait(STOP_SECONDS_MAX)

    def kill(self) -> None:
        """End it here and now, with SIGKILL: no handler runs, nothing is flushed."""
        self._child.kill()
        self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()

    def failure(self, what: str) -> ProcessFailed:
        lines = self._log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return ProcessFailed("\n".join([f"the {self.name} process {what}", *lines]))


class Replaceable:
    """A process of arriero, or the next one after it was killed."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> None:
        self.name = name
        self._command = command
        self._folder = folder
        self._variables = variables
        self.start()

    def start(self) -> None:
        self._process = Process(self.name, self._command, self._folder, self._variables)

    def is_named(self, instance: str) -> bool:
        """Whether the store knows this process by that name; see ``Ports.new_instance``."""
        return instance.split("-")[-2:-1] == [str(self._process.pid)]

    def freeze(self) -> None:
        """Stop it where it stands, with SIGSTOP."""
        self._process.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()

    def ask_to_stop(self) -> None:
        """Have it drain."""
        self._process.send(signal.SIGTERM)

    def wait_stopped(self) -> None:
        """Raises: ProcessFailed - it does not end, or not with 0."""
        code = self._process.wait(STOP_SECONDS_MAX)
        if code != 0:
            raise self._process.failure(f"ended with {code} after SIGTERM, where it should drain and end with 0")

    def check(self) -> None:
        """Raises: ProcessFailed - it ended, and nobody had asked it to."""
        code = self._process.code()
        if code is not None:
            raise self._process.failure(f"ended by itself with {code}")


class Worker(Replaceable):
    """Runs Scheduler and Agents, and the Supervisor unless there are processes for that."""

    def __init__(
        self,
        name: str,
        folder: Path,
        store_url: str,
        services_url: str,
        broken: str | None,
        *,
        supervises: bool = True,
    ) -> None:
        module = "examples.orders.unfenced" if broken == "fence" else WORKER_MODULE
        command = [module, "run", "examples.orders.shop:app"]
        if not supervises:
            command += ["--roles", "scheduler,agents"]
        variables = {STORE_VARIABLE: store_url, SERVICES_VARIABLE: services_url}
        if broken == "refund":
            variables[BREAK_VARIABLE] = broken
        super().__init__(name, command, folder, variables)


class Supervisor(Replaceable):
    """Runs the Supervisor alone; it needs no code of the shop."""

    def __init__(self, name: str, folder: Path, store_url: str) -> None:
        super().__init__(name, [SUPERVISOR_MODULE, "supervise"], folder, {STORE_VARIABLE: store_url})


class RemoteServices:
    """The services' process, reached at ``url``."""

    def __init__(self, folder: Path, *, faults: str, seed: int, broken: str | None) -> None:
        self.book = folder / "book.sqlite"
        command = ["examples.orders.services", "--book", str(self.book), "--faults", faults, "--seed", str(seed)]
        if broken == "dedup":
            command += ["--break", "dedup"]
        self.process = Process("services", command, folder, {}, output=subprocess.PIPE)
        self.url = self.process.ready_line().removeprefix(READY_PREFIX)

    def faults_fired(self) -> dict[str, int]:
        """How often each kind of fault fired so far."""
        with urllib.request.urlopen(f"{self.url}/faults", timeout=10) as reply:
            fired: dict[str, int] = json.load(reply)["fired"]
        return fired

    def take_down(self, service: str, seconds: float) -> None:
        """Let a service refuse every call from now on, for so many seconds."""
        body = json.dumps({"service": service, "seconds": seconds}).encode()
        with urllib.request.urlopen(f"{self.url}/outages", data=body, timeout=10):
            pass

    def calls_while_down(self, service: str) -> int:
        """How many calls reached a service while it was down."""
        with urllib.request.urlopen(f"{self.url}/outages", timeout=10) as reply:
            counted: dict[str, int] = json.load(reply)["calls_while_down"]
        return counted[service]


def start_submission(folder: Path, store_url: str, ledger: Path, broken: str | None) -> Process:
    """The process that submits the ledger and ends."""
    module = "examples.orders.disordered" if broken == "order" else "examples.orders.submit"
    return Process("submission", [module, str(ledger)], folder, {STORE_VARIABLE: store_url})


def check_history(folder: Path, store_url: str, seconds_max: float) -> str | None:
    """Export the store's history and have it checked. Returns: None when it is clean, else what the check said."""
    history = folder / HISTORY
    with history.open("wb") as file:
        export = subprocess.run(
            [sys.executable, "-m", "arriero", "export"],
            cwd=folder, env=_environment({STORE_VARIABLE: store_url}), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE,
            timeout=seconds_max, check=False,
        )  # fmt: skip
    if export.returncode != 0:
        return f"arriero export ended with {export.returncode}: {_tail(export.stderr)}"
    check = subprocess.run(
        [sys.executable, "-m", "arriero", "check", str(history)],
        cwd=folder, env=_environment({}), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=seconds_max, check=False,
    )  # fmt: skip
    return None if check.returncode == 0 else f"arriero check ended with {check.returncode}: {_tail(check.stdout)}"


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in (STORE_VARIABLE, BREAK_VARIABLE)}
    paths = [str(IMPORT_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**inherited, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", **variables}


def _tail(output: bytes) -> str:
    return "\n".join(output.decode(errors="replace").splitlines()[-TAIL_LINES:])
