"""``arriero run``: Scheduler, Agents and Supervisor of an App in this process, until a signal."""

import asyncio
import logging
import os
import signal
import threading
from types import FrameType

import click

from ..client.app import App
from ..config import load_configuration
from ..errors import InvalidInput
from ..escaping import one_line
from ..runtime.settings import ROLES
from .loading import load_app
from .options import store_option
from .output import PlainFormatter, discard_output
from .stores import load_configured_app

LINGER_SECONDS = 3.0  # for threads of steps that outlived their deadline; nothing of theirs would be kept


@click.command(short_help="Run an App until a signal.")
@click.argument("app", metavar="[MODULE:APP]", required=False)
@store_option
@click.option("--roles", metavar="ROLES", help="Some of scheduler,agents,supervisor; all by default.")
@click.option("--agents", metavar="NAMES", help="The Agents to host, by name and comma; all by default.")
def run(app: str | None, store: str | None, roles: str | None, agents: str | None) -> None:
    """Run an App until SIGTERM or Ctrl-C; without a name, the one that the settings name.

    The first signal drains: nothing new is taken, attempts under way end, and the process exits with 0. A second one
    exits at once. Nothing is lost either way.
    """
    stop = StopSignal()
    stop.listen()
    loaded = load_configured_app(load_configuration()) if app is None else load_app(app)
    log_to_standard_error()
    asyncio.run(run_until_signal(loaded, store, _parse_names(roles, "role"), _parse_names(agents, "Agent"), stop))


def log_to_standard_error() -> None:
    """Log as a program that runs for long: with times, and arriero's own lines from INFO on."""
    log = logging.StreamHandler()
    log.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[log])
    logging.getLogger("arriero").setLevel(logging.INFO)  # refusals of services, too


def _parse_names(given: str | None, what: str) -> list[str] | None:
    if given is None:
        return None
    names = [name for part in given.split(",") if (name := part.strip())]
    if not names:
        raise InvalidInput(f"no {what} was named; leave the option out for all of them")
    return names


class StopSignal:
    """The wish to stop, from SIGTERM or SIGINT; the second wish is carried out on the spot."""

    def __init__(self) -> None:
        self._signal: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()

    def listen(self) -> None:
        """From now on signals come here."""
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


async def run_until_signal(
    app: App, store: str | None, roles: list[str] | None, agents: list[str] | None, stop: StopSignal
) -> None:
    """Run an App until the first signal, then drain."""
    async with app.running(store=store, roles=roles, agents=agents):
        running = app.session.configure(store=store, roles=roles).roles
        _print_line(f"ready: {_describe_node(app, running, agents)}")
        name = await stop.wait()
        _print_line(
            f"draining after {name}: nothing new is taken, attempts under way end; another signal exits at once"
        )
    _print_line("drained: nothing is held here any more")
    _exit_soon()


def _describe_node(app: App, roles: tuple[str, ...], agents: list[str] | None) -> str:
    node = app.session.node
    assert node is not None
    assert node.session is not None
    hosted = "" if agents is None else f", Agents {' '.join(agents)}"
    running = " ".join(role for role in ROLES if role in roles)
    return f"App {app.name}, store {app.store}, roles {running}{hosted}, process {node.session.instance}"


def _print_line(text: str) -> None:
    try:
        click.echo(f"arriero: {one_line(text)}")
    except OSError:  # nobody reads it any more; the work goes on
        discard_output()


def _exit_soon() -> None:
    """Loop and interpreter wait for all threads; a step that hangs in one must not keep a drained process."""

    def exit_now() -> None:
        os._exit(0)

    timer = threading.Timer(LINGER_SECONDS, exit_now)
    timer.daemon = True
    timer.start()
