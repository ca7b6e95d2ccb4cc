"""What commands that change things share: an App on a store that is there, a question before a change, notes after."""

import getpass
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import click

from ..app import App
from ..config import load
from ..errors import InvalidInput
from ..store import existing_store
from .loading import load_app
from .output import one_line
from .stores import _shared, configured, configured_app

NOT_DONE = 1  # the exit code when somebody said no, or some were refused


@asynccontextmanager
async def operating(app: App | None, store: str | None) -> AsyncIterator[App]:
    """An App open on a store that is there, to act on its tasks; nothing runs in it.

    Args:
        app: None: one without code, which is enough to act on tasks.
        store: URL, if one was given.
    Raises: InvalidInput, StoreError.
    """
    url = configured(store).store if app is None else load(app_store=app._given_store, flags={"store": store}).store
    app = App("operator") if app is None else app
    await app._open(existing_store(_shared(url)))
    try:
        yield app
    finally:
        await app._close()


def app_with_types(named: str | None, store: str | None, option: str) -> App:
    """The App whose code declares the types that the value of an option is checked against.

    Args:
        named: ``MODULE:APP``; None: the configured one.
    Raises: InvalidInput - none is named anywhere, or it cannot be loaded.
    """
    if named is not None:
        return load_app(named)
    configuration = load(flags={"store": store})
    if not configuration.app:
        raise InvalidInput(
            f"{option} is checked against the types in your code: name the App with --app MODULE:APP, or set ARRIERO_APP "
            "or app in arriero.toml"
        )
    return configured_app(configuration)


def login_name() -> str:
    """Who is at the terminal. Raises InvalidInput: the system does not tell."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError) as error:
        raise InvalidInput("the system does not tell who you are; say it with --by NAME") from error


def tasks_counted(count: int) -> str:
    """``1 task``, ``1,500 tasks``."""
    return f"{count:,} {'task' if count == 1 else 'tasks'}"


def confirm(what: str, *, yes: bool) -> None:
    """Ask a person before many tasks are changed; ends the command when the answer is no.

    Raises: InvalidInput - nobody can be asked, and ``yes`` was not given.
    """
    refuse_unless_asked(what, yes=yes)
    if yes:
        note(what)
        return
    click.echo(f"{what}? [y/N] ", nl=False, err=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        note("nothing was changed")
        sys.exit(NOT_DONE)


def refuse_unless_asked(what: str, *, yes: bool) -> None:
    """Raises InvalidInput: nobody can be asked, and nobody said yes beforehand."""
    if not yes and not _is_terminal():
        raise InvalidInput(
            f"{what}: nobody can be asked here; add --yes to do it, or --dry-run to see what it would do"
        )


def _is_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def note(text: str) -> None:
    """One line beside the data."""
    click.echo(f"arriero: {one_line(text)}", err=True)


def note_nobody_runs(nobody: str) -> None:
    """Say that what was asked for waits, if no Scheduler is alive to do it: what ``App._nobody_runs`` answered."""
    if nobody:
        note(f"note: {nobody}")
