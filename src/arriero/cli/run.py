"""``arriero run`` and ``arriero serve``: an App in this process until a signal, with what such commands share."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import click

from ..client.app import App
from ..config import Configuration, load_configuration
from ..errors import InvalidInput, describe_install
from ..runtime.ports import LoopClock
from ..runtime.service_notifier import ServiceNotifier
from ..runtime.settings import HTTP, ROLES
from ..store import open_store
from ..text.escaping import one_line
from .options import F, log_format_option, store_option
from .output import PlainFormatter, discard_output
from .stores import app_argument, load_chosen_app

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
    except OSError:  # nobody reads it any longer; the work continues
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


TOKEN_FILE = "arriero.token"
_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--host", {"metavar": "ADDRESS", "help": "The address to listen on. By default 127.0.0.1."}),
    ("--port", {"type": int, "help": "The port to listen on. 0 takes a free one."}),
    ("--unix-socket", {"metavar": "PATH", "help": "Listen on this Unix socket."}),
    ("--tls-cert", {"metavar": "FILE", "help": "The certificate chain, in PEM."}),
    ("--tls-key", {"metavar": "FILE", "help": "The private key of the certificate, in PEM."}),
    (
        "--behind-proxy",
        {"metavar": "HEADER", "help": "Trust a proxy that authenticates callers and names them in this header."},
    ),
    ("--proxy-address", {"metavar": "ADDRESS", "multiple": True, "help": "The address from which the proxy connects."}),
    (
        "--proxy-scope",
        {"metavar": "SCOPE", "multiple": True, "help": "A scope of all callers of the proxy. By default read."},
    ),
    (
        "--proxy-scopes-header",
        {"metavar": "HEADER", "help": "The header in which the proxy names the scopes of a caller."},
    ),
    ("--allow-host", {"metavar": "NAME", "multiple": True, "help": "A host name that clients use for the server."}),
    ("--allow-origin", {"metavar": "ORIGIN", "multiple": True, "help": "An origin whose web pages may use the API."}),
)
_SETTINGS = {
    "proxy_address": "proxy_addresses",
    "proxy_scope": "proxy_scopes",
    "allow_host": "hosts",
    "allow_origin": "origins",
}


def http_options(function: F) -> F:
    """Add the options of the HTTP API; ``collect_http_flags`` reads them."""
    for name, about in reversed(_OPTIONS):
        function = click.option(name, **about)(function)
    text = f"The file for the first token, if the store has none. By default ./{TOKEN_FILE}."
    return click.option("--token-file", metavar="FILE", help=text)(function)


def collect_http_flags(given: dict[str, Any]) -> dict[str, Any]:
    """Collect the options of the HTTP API as settings. What was not given is None."""
    return {f"http_{_SETTINGS.get(name, name)}": None if value == () else value for name, value in given.items()}


@click.command(short_help="Serve the HTTP API of an App until a signal.")
@app_argument
@store_option
@log_format_option
@http_options
def serve(app: str | None, store: str | None, log_format: str | None, token_file: str | None, **http: Any) -> None:
    """Serve the HTTP API of an App until SIGTERM or Ctrl-C; nothing of the App runs here, see `arriero run --roles`.

    It listens on this machine alone. At the first start, a token of admin is written to ./arriero.token. To listen on another
    address, give a certificate and make a token first, or put a proxy before it that authenticates.
    """
    stop = StopSignal()
    stop.listen()
    loaded = load_chosen_app(app, load_configuration())
    flags = collect_http_flags(http)
    configuration = loaded.session.configure(store=store, roles=[HTTP], log_format=log_format, **flags)
    log_to_standard_error(configuration.log_format, partial(find_process_name, loaded))
    asyncio.run(serve_until_signal(loaded, configuration, None, stop, token_file))


async def serve_until_signal(
    app: App, configuration: Configuration, agents: list[str] | None, stop: StopSignal, token_file: str | None
) -> None:
    """Serve an App, and run its other roles, until the first signal; then drain.

    Agents elsewhere report while the attempts here end, so the server is the last to go: first what only waits ends, then the
    roles drain, then no new connection is taken and running requests end.
    """
    try:
        from ..server.service import HttpService  # only who serves needs the extra
    except ModuleNotFoundError as error:
        raise InvalidInput(
            f"the HTTP API needs the package {str(error.name).partition('.')[0]}: {describe_install('server')}"
        ) from error

    service = HttpService(app, configuration, Path(token_file or TOKEN_FILE))
    notifier = ServiceNotifier(LoopClock())
    async with AsyncExitStack() as stack:
        stack.callback(service.close_unused)
        await app.session.open(open_store(configuration.store))
        stack.push_async_callback(app.session.close)
        async with AsyncExitStack() as roles:
            await roles.enter_async_context(_run_configured(app, configuration, agents))
            await service.start()
            stack.push_async_callback(service.stop)
            feeding = asyncio.get_running_loop().create_task(notifier.feed_watchdog())
            stack.callback(feeding.cancel)
            if service.has_made_token:
                print_line(f"the first token, of admin, is in {token_file or TOKEN_FILE}; only you can read it")
            print_line(f"ready: {describe_process(app, configuration.roles, agents)}, {service.address}")
            notifier.tell_ready(f"serves {service.address}")
            name = await _wait_for_end(stop, service.wait_until_ended)
            notifier.tell_stopping()
            print_line(
                f"draining after {name}: nothing new is taken, running attempts and requests end; another signal exits immediately"
            )
            service.begin_to_stop()
    print_line("drained: this process drives no task any longer")
    exit_soon()


async def _wait_for_end(stop: StopSignal, wait_until_ended: Callable[[], Any]) -> str:
    signalled = asyncio.ensure_future(stop.wait())
    ended = asyncio.ensure_future(wait_until_ended())
    try:
        await asyncio.wait({signalled, ended}, return_when=asyncio.FIRST_COMPLETED)
        if signalled.done():
            return signalled.result()
        await ended
        return "the end of the server"
    finally:
        signalled.cancel()
        ended.cancel()


@click.command(short_help="Run an App until a signal.")
@app_argument
@store_option
@click.option(
    "--roles",
    metavar="ROLES",
    help="The roles of this process: scheduler, agents, supervisor, http. By default all but http.",
)
@click.option("--agents", metavar="NAMES", help="Names of the Agents to host, separated by commas. By default all.")
@click.option(
    "--deployment", metavar="NAME", help="The deployment of the code, such as a commit: tasks may belong to it."
)
@log_format_option
@http_options
def run(
    app: str | None,
    store: str | None,
    roles: str | None,
    agents: str | None,
    deployment: str | None,
    log_format: str | None,
    token_file: str | None,
    **http: Any,
) -> None:
    """Run an App until SIGTERM or Ctrl-C; without a name, the one that the settings name.

    The first signal drains: nothing new is taken, running attempts end, and the process exits with 0. A second one
    exits immediately. Nothing is lost either way.

    With the role http it serves the HTTP API, too: the options from --host to --token-file are about that.
    """
    stop = StopSignal()
    stop.listen()
    settings = load_configuration(flags={"log_format": log_format})
    loaded = load_chosen_app(app, settings)
    log_to_standard_error(settings.log_format, partial(find_process_name, loaded))
    chosen, hosted = _parse_names(roles, "role"), _parse_names(agents, "Agent")
    flags = collect_http_flags(http)
    configuration = loaded.session.configure(store=store, roles=chosen, deployment=deployment, **flags)
    if HTTP in configuration.roles:
        asyncio.run(serve_until_signal(loaded, configuration, hosted, stop, token_file))
    else:
        asyncio.run(run_until_signal(loaded, configuration, hosted, stop))


def _parse_names(given: str | None, what: str) -> list[str] | None:
    if given is None:
        return None
    names = [name for part in given.split(",") if (name := part.strip())]
    if not names:
        raise InvalidInput(f"no {what} was named; leave the option out for all of them")
    return names


def _run_configured(
    app: App, configuration: Configuration, agents: list[str] | None
) -> AbstractAsyncContextManager[App]:
    """Run an App as it is configured."""
    deployment = configuration.deployment or None
    return app.running(store=configuration.store, roles=configuration.roles, agents=agents, deployment=deployment)


async def run_until_signal(app: App, configuration: Configuration, agents: list[str] | None, stop: StopSignal) -> None:
    """Run an App until the first signal, then drain."""
    notifier = ServiceNotifier(LoopClock())
    roles = configuration.roles
    async with _run_configured(app, configuration, agents):
        feeding = asyncio.get_running_loop().create_task(notifier.feed_watchdog())
        said = describe_process(app, roles, agents)
        print_line(f"ready: {said}")
        notifier.tell_ready(said)
        name = await stop.wait()
        notifier.tell_stopping()
        print_line(
            f"draining after {name}: nothing new is taken, running attempts end; another signal exits immediately"
        )
    feeding.cancel()
    print_line("drained: this process drives no task any longer")
    exit_soon()
