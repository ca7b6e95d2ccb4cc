"""Questions to the person at the terminal, and notes to them beside the data."""

import getpass
import sys

import click

from ..errors import InvalidInput
from ..escaping import one_line
from ..text.format import format_count

NOT_DONE = 1  # the exit code when somebody said no, or some were refused


def find_login_name() -> str:
    """Return the login name of the person at the terminal. Raises InvalidInput: the system does not tell it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError) as error:
        raise InvalidInput("the system does not tell who you are; say it with --by NAME") from error


def count_tasks(count: int) -> str:
    """Format ``1 task``, ``1,500 tasks``."""
    return format_count(count, "task")


def confirm(what: str, *, yes: bool) -> None:
    """Ask a person before a change; a no ends the command.

    Raises: InvalidInput - nobody can be asked, and ``yes`` was not given.
    """
    refuse_without_terminal(what, yes=yes)
    if yes:
        print_note(what)
        return
    click.echo(f"{what}? [y/N] ", nl=False, err=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        print_note("nothing was changed")
        sys.exit(NOT_DONE)


def refuse_without_terminal(what: str, *, yes: bool) -> None:
    """Refuse a change that needs a yes where no terminal can ask for one. Raises InvalidInput."""
    if not yes and not is_terminal():
        raise InvalidInput(
            f"{what}: nobody can be asked here; add --yes to do it, or --dry-run to see what it would do"
        )


def is_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def print_note(text: str) -> None:
    """Print one line on standard error."""
    click.echo(f"arriero: {one_line(text)}", err=True)


def print_nobody_runs(nobody: str) -> None:
    """Print that no Scheduler is alive to do what was asked for. ``nobody``: empty if one is."""
    if nobody:
        print_note(f"note: {nobody}")
