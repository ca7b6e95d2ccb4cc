"""``python -m arriero.testing.postgres``: one server in the foreground, until Ctrl-C or SIGTERM."""

import signal
import sys

import click

from ...errors import ArrieroError
from .programs import ProgramFailed
from .server import Server

DATABASE = "arriero"
STOPPED_BY = (signal.SIGINT, signal.SIGTERM)
LOOK_SECONDS = 0.5  # how soon it is informed that the server has died by itself


@click.command()
@click.option(
    "--version",
    type=int,
    default=None,
    help="The major version of PostgreSQL. Default: 16, else the newest from 15 on.",
)
@click.option("--port", type=click.IntRange(1, 65_535), default=None, help="By default any that is free.")
def main(version: int | None, port: int | None) -> None:
    """Start a PostgreSQL server of your own with an empty database; all of it no longer exists at the end."""
    # Held back from the start, so that a Ctrl-C at any moment ends the server in order.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPED_BY)
    try:
        with Server.start(version, port=port) as server:
            url = server.create_database(DATABASE)
            click.echo(f"PostgreSQL {server.version} runs at {url} (Ctrl-C stops it and removes its data)")
            while signal.sigtimedwait(STOPPED_BY, LOOK_SECONDS) is None:
                if not server.running:
                    raise ProgramFailed("the server has ended by itself", server.log)
    except ArrieroError as error:
        click.echo(str(error), err=True)
        sys.exit(1 if isinstance(error, ProgramFailed) else 2)


main()
