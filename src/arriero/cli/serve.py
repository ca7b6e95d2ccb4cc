"""``arriero serve``, and the role http of ``arriero run``: the HTTP API of an App, until a signal."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..client.app import App
from ..config import Configuration, load_configuration
from ..errors import InvalidInput
from ..extras import describe_install
from ..runtime.ports import LoopClock
from ..runtime.service_notifier import ServiceNotifier
from ..runtime.settings import HTTP
from ..store import open_store
from .long_running import StopSignal, describe_process, exit_soon, find_process_name, log_to_standard_error, print_line
from .options import F, log_format_option, store_option
from .stores import load_app, load_configured_app

TOKEN_FILE = "arriero.token"
_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--host", {"metavar": "ADDRESS", "help": "The address to listen on; 127.0.0.1 by default."}),
    ("--port", {"type": int, "help": "The port to listen on; 0 for one that is free."}),
    ("--unix-socket", {"metavar": "PATH", "help": "Listen on a Unix socket instead."}),
    ("--tls-cert", {"metavar": "FILE", "help": "The certificate chain, in PEM."}),
    ("--tls-key", {"metavar": "FILE", "help": "Its private key, in PEM."}),
    ("--behind-proxy", {"metavar": "HEADER", "help": "A proxy authenticates, and names the caller in this header."}),
    ("--proxy-address", {"metavar": "ADDRESS", "multiple": True, "help": "From where the proxy connects."}),
    (
        "--proxy-scope",
        {"metavar": "SCOPE", "multiple": True, "help": "What callers of the proxy may do; read by default."},
    ),
    ("--proxy-scopes-header", {"metavar": "HEADER", "help": "The header in which the proxy names scopes instead."}),
    ("--allow-host", {"metavar": "NAME", "multiple": True, "help": "A name by which the server is known."}),
    ("--allow-origin", {"metavar": "ORIGIN", "multiple": True, "help": "An origin of pages that may use the API."}),
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
    text = f"Where the first token is written to, if there is none; ./{TOKEN_FILE} by default."
    return click.option("--token-file", metavar="FILE", help=text)(function)


def collect_http_flags(given: dict[str, Any]) -> dict[str, Any]:
    """Collect the options of the HTTP API as settings. What was not given is None."""
    return {f"http_{_SETTINGS.get(name, name)}": None if value == () else value for name, value in given.items()}


@click.command(short_help="Serve the HTTP API of an App until a signal.")
@click.argument("app", metavar="[MODULE:APP]", required=False)
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
    loaded = load_configured_app(load_configuration()) if app is None else load_app(app)
    flags = collect_http_flags(http)
    configuration = loaded.session.configure(store=store, roles=[HTTP], log_format=log_format, **flags)
    log_to_standard_error(configuration.log_format, partial(find_process_name, loaded))
    asyncio.run(serve_until_signal(loaded, configuration, None, stop, token_file))


async def serve_until_signal(
    app: App, configuration: Configuration, agents: list[str] | None, stop: StopSignal, token_file: str | None
) -> None:
    """Serve an App, and run its other roles, until the first signal; then drain.

    Agents elsewhere report while the attempts here end, so the server is the last to go: first what only waits ends, then the
    roles drain, then no new connection is taken and requests under way end.
    """
    try:
        from ..server.service import HttpService  # only who serves needs the extra
    except ModuleNotFoundError as error:
        raise InvalidInput(f"the HTTP API needs the package {error.name}: {describe_install('server')}") from error

    service = HttpService(app, configuration, Path(token_file or TOKEN_FILE))
    notifier = ServiceNotifier(LoopClock())
    async with AsyncExitStack() as stack:
        stack.callback(service.close_unused)
        await app.session.open(open_store(configuration.store))
        stack.push_async_callback(app.session.close)
        async with AsyncExitStack() as roles:
            running = app.running(store=configuration.store, roles=configuration.roles, agents=agents)
            await roles.enter_async_context(running)
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
                f"draining after {name}: nothing new is taken, attempts and requests under way end; another signal exits at once"
            )
            service.begin_to_stop()
    print_line("drained: nothing is held here any more")
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
