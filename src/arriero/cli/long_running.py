"""Shared parts of commands that run until a signal: the signal, the log, and lines about the process."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType

import click

from ..client.app import App
from ..escaping import one_line
from ..runtime.settings import ROLES
from .output import PlainFormatter, discard_output

LINGER_SECONDS = 3.0  # for threads of steps that outlived their deadline; nothing of theirs would be kept


def log_to_standard_error(log_format: str = "text", process: Callable[[], str] = str) -> None:
    """Log as a program that runs for long: with times, and arriero's own lines from INFO on.

    Args:
        log_format: ``text`` or ``json``.
        process: returns the name of this process start, for JSON.
    """
    log = logging.StreamHandler()
    if log_format == "json":
        from ..json_log import AttemptFilter, JsonFormatter  # only who wants it pays for loading it

        log.addFilter(AttemptFilter(process))
        log.setFormatter(JsonFormatter())
    else:
        log.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[log])
    logging.getLogger("arriero").setLevel(logging.INFO)  # refusals of services, too


def find_process_name(app: App) -> str:
    """The name of the process start of an App that runs here; empty while it has none."""
    node = app.session.node
    return "" if node is None or node.session is None else node.session.context.actor


class StopSignal:
    """The wish to stop, from SIGTERM or SIGINT; the second wish is carried out on the spot."""

    def __init__(self) -> None:
        self._signal: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()

    def listen(self) -> None:
        """Install this as the handler of SIGTERM and SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._signal is not None:
            os._exit(128 + number)
        self._signal = number
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> str:
        """Wait for the first signal, which may have come before; answers with its name."""
        self._loop = asyncio.get_running_loop()
        if self._signal is None:
            await self._event.wait()
        assert self._signal is not None
        return signal.Signals(self._signal).name


def print_line(text: str) -> None:
    """Print a line about the process itself."""
    try:
        click.echo(f"arriero: {one_line(text)}")
    except OSError:  # nobody reads it any more; the work goes on
        discard_output()


def exit_soon() -> None:
    """Loop and interpreter wait for all threads; a step that hangs in one must not keep a drained process."""

    def exit_now() -> None:
        os._exit(0)

    timer = threading.Timer(LINGER_SECONDS, exit_now)
    timer.daemon = True
    timer.start()


def describe_process(app: App, roles: Iterable[str], agents: list[str] | None) -> str:
    """Describe the process for the line that says it is ready."""
    hosted = "" if agents is None else f", Agents {' '.join(agents)}"
    running = " ".join(role for role in ROLES if role in roles)
    node = app.session.node
    process = "" if node is None or node.session is None else f", process {node.session.context.actor}"
    return f"App {app.name}, store {app.store}, roles {running}{hosted}{process}"
