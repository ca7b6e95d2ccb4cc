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
from .http_options import TOKEN_FILE, collect_http_flags, http_options
from .loading import load_app
from .long_running import StopSignal, describe_process, exit_soon, find_process_name, log_to_standard_error, print_line
from .options import log_format_option, store_option
from .stores import load_configured_app


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
