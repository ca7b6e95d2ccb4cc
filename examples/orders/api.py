"""The HTTP API beside a demonstration: a process of its own, with a token that is printed once."""

from __future__ import annotations

import shlex
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .processes import Process, RemoteServices, Worker
from .variables import STORE_VARIABLE

if TYPE_CHECKING:
    from .demo import Plan

READY = "ready: "
TOKEN_FILE = "api.token"


class Api:
    """``arriero serve`` on a free port of this machine. Raises: ProcessFailed - it ended before it was ready."""

    def __init__(self, folder: Path, store_url: str) -> None:
        token_file = folder / TOKEN_FILE
        command = ["arriero", "serve", "examples.orders.shop:app", "--port", "0", "--token-file", str(token_file)]
        self.process = Process("api", command, folder, {STORE_VARIABLE: store_url}, output=subprocess.PIPE)
        line = self.process.ready_line()
        while READY not in line:  # it says first that it made a token
            line = self.process.ready_line()
        self.url = line.rpartition(", ")[2]
        self.token = token_file.read_text().strip()

    def describe(self) -> Iterator[str]:
        """Lines for people: where it is, the token, and what to type."""
        header = f"-H {shlex.quote(f'Authorization: Bearer {self.token}')}"
        yield f"console:  {self.url}/sign-in#{self.token}"
        yield f"HTTP API: {self.url}"
        yield f"token:    {self.token}"
        yield f"  curl {header} {shlex.quote(f'{self.url}/v1/tasks?state=compensated&limit=3')}"


def serve_until_interrupted(plan: Plan) -> None:
    """Run services without faults and one worker, so that what comes over HTTP is done; until Ctrl-C.

    Raises: ProcessFailed - one of them ended, or cannot be stopped.
    """
    with ExitStack() as stack:
        services = RemoteServices(plan.folder, faults="none", seed=plan.faults.seed, broken=None)
        stack.callback(services.process.kill)
        worker = Worker("worker-of-api", plan.folder, plan.place.url, services.url, None)
        stack.callback(worker.kill)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
        worker.ask_to_stop()
        worker.wait_stopped()
        services.process.stop()
