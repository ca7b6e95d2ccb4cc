"""``arriero run``: Scheduler, Agents and Supervisor of an App in this process, until a signal."""

import asyncio
from functools import partial
from typing import Any

import click

from ..client.app import App
from ..config import load_configuration
from ..errors import InvalidInput
from ..runtime.ports import LoopClock
from ..runtime.service_notifier import ServiceNotifier
from ..runtime.settings import HTTP
from .long_running import (
    StopSignal,
    describe_process,
    exit_soon,
    find_process_name,
    log_to_standard_error,
    print_line,
)
from .options import log_format_option, store_option
from .serve import collect_http_flags, http_options
from .stores import load_app, load_configured_app


@click.command(short_help="Run an App until a signal.")
@click.argument("app", metavar="[MODULE:APP]", required=False)
@store_option
@click.option("--roles", metavar="ROLES", help="Some of scheduler,agents,supervisor,http; all but http by default.")
@click.option("--agents", metavar="NAMES", help="The Agents to host, by name and comma; all by default.")
@log_format_option
@http_options
def run(
    app: str | None,
    store: str | None,
    roles: str | None,
    agents: str | None,
    log_format: str | None,
    token_file: str | None,
    **http: Any,
) -> None:
    """Run an App until SIGTERM or Ctrl-C; without a name, the one that the settings name.

    The first signal drains: nothing new is taken, attempts under way end, and the process exits with 0. A second one
    exits at once. Nothing is lost either way.

    With the role http it serves the HTTP API, too: the options from --host to --token-file are about that.
    """
    stop = StopSignal()
    stop.listen()
    settings = load_configuration(flags={"log_format": log_format})
    loaded = load_configured_app(settings) if app is None else load_app(app)
    log_to_standard_error(settings.log_format, partial(find_process_name, loaded))
    chosen, hosted = _parse_names(roles, "role"), _parse_names(agents, "Agent")
    configuration = loaded.session.configure(store=store, roles=chosen, **collect_http_flags(http))
    if HTTP in configuration.roles:
        from .serve import serve_until_signal  # only who serves pays for loading it

        asyncio.run(serve_until_signal(loaded, configuration, hosted, stop, token_file))
    else:
        asyncio.run(run_until_signal(loaded, store, chosen, hosted, stop))


def _parse_names(given: str | None, what: str) -> list[str] | None:
    if given is None:
        return None
    names = [name for part in given.split(",") if (name := part.strip())]
    if not names:
        raise InvalidInput(f"no {what} was named; leave the option out for all of them")
    return names


async def run_until_signal(
    app: App, store: str | None, roles: list[str] | None, agents: list[str] | None, stop: StopSignal
) -> None:
    """Run an App until the first signal, then drain."""
    notifier = ServiceNotifier(LoopClock())
    async with app.running(store=store, roles=roles, agents=agents):
        running = app.session.configure(store=store, roles=roles).roles
        feeding = asyncio.get_running_loop().create_task(notifier.feed_watchdog())
        said = describe_process(app, running, agents)
        print_line(f"ready: {said}")
        notifier.tell_ready(said)
        name = await stop.wait()
        notifier.tell_stopping()
        print_line(f"draining after {name}: nothing new is taken, attempts under way end; another signal exits at once")
    feeding.cancel()
    print_line("drained: nothing is held here any more")
    exit_soon()
