"""Options that several commands share, durations as operators type them, and questions and notes to the person at the terminal."""

import getpass
import re
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from ..errors import InvalidInput, VerbRefused
from ..model import NUMBER_MAX
from ..operations.problems import ExitCode
from ..text.durations import read_duration, read_duration_or_instant
from ..text.escaping import one_line
from ..text.format import format_count


def find_login_name() -> str:
    """Return the login name of the person at the terminal. Raises InvalidInput: the system does not say it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError) as error:
        raise InvalidInput("the system does not know who you are; say it with --by NAME") from error


def count_tasks(count: int) -> str:
    """Format ``1 task``, ``1,500 tasks``."""
    return format_count(count, "task")


def confirm(what: str, *, yes: bool) -> None:
    """Ask an operator before a change; a no ends the command.

    Raises: InvalidInput - nobody can be asked, and ``yes`` was not given.
    """
    refuse_without_terminal(what, yes=yes)
    if yes:
        print_note(what)
        return
    click.echo(f"{what}? [y/N] ", nl=False, err=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        print_note("nothing was changed")
        sys.exit(ExitCode.NO)


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


def print_empty(things: str, filters: str = "", remedy: str = "") -> None:
    """Print on standard error that a list is empty, in a sentence: standard output holds only rows.

    Args:
        things: in the plural, like ``tasks`` or ``open alerts``.
        filters: the options that chose them, as they are typed.
        remedy: which option lists more.
    """
    only_state = re.fullmatch(r"--state (\S+)", filters)
    which = f" in state {only_state[1]}" if only_state else f" for {filters}" if filters else ""
    click.echo(f"No {one_line(things + which)}{f'; {remedy}' if remedy else ''}.", err=True)


def print_nobody_runs(nobody: str) -> None:
    """Print that no Scheduler is alive to do what was asked for. ``nobody``: empty if one is."""
    if nobody:
        print_note(f"note: {nobody}")


F = TypeVar("F", bound=Callable[..., Any])
Option = Callable[[Callable[..., None]], Callable[..., None]]

NUMBER = click.IntRange(0, NUMBER_MAX)  # of a row


def parse_duration(text: str) -> float:
    """Parse ``90`` or ``90s``, ``15m``, ``2h``, ``3d`` into seconds; the type of an option. Raises BadParameter."""
    try:
        return read_duration(text)
    except InvalidInput as error:
        raise click.BadParameter(str(error)) from error


def parse_duration_or_instant(text: str) -> float | datetime:
    """Parse a duration, or an instant as lists print it or in ISO 8601, in UTC unless it names a zone. Raises BadParameter."""
    try:
        return read_duration_or_instant(text)
    except InvalidInput as error:
        raise click.BadParameter(str(error)) from error


def _refuse_empty_store(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value == "":
        raise click.BadParameter("it is empty; name a store, or leave the option out", context, parameter)
    return value


def store_option(function: F) -> F:
    """Add ``--store URL``."""
    text = (
        "The state store, sqlite:///PATH (four slashes for an absolute path) or postgresql://USER@HOST/DATABASE. By default "
        "ARRIERO_STORE, then arriero.toml, then the App's. `arriero config` prints it."
    )
    return click.option("--store", metavar="URL", callback=_refuse_empty_store, help=text)(function)


def log_format_option(function: F) -> F:
    """Add ``--log-format FORMAT``."""
    text = "Format of the log: text, or json for one object a line. By default ARRIERO_LOG_FORMAT, then arriero.toml, then text."
    return click.option("--log-format", metavar="FORMAT", help=text)(function)


def json_option(function: F) -> F:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one value per line.")(function)


def yes_option(text: str) -> Option:
    """Add ``--yes``, which answers the question before a change."""
    return click.option("--yes", is_flag=True, help=text)


def signature_options(history: str) -> Option:
    """Add ``--by``, the login name by default, and ``--reason``. ``history``: whose history keeps the reason."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        function = click.option(
            "--reason", metavar="TEXT", required=True, help=f"The reason, which is kept in {history}."
        )(function)
        return by_option(function)

    return add


def by_option(function: Callable[..., None]) -> Callable[..., None]:
    """Add ``--by``, the login name by default."""
    text = "Your name. By default your login name."
    return click.option("--by", metavar="NAME", callback=_default_to_login_name, help=text)(function)


def _default_to_login_name(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    return find_login_name() if value is None else value


def read_option(given: str, option: str) -> str:
    """The value of an option; ``-`` stands for all of standard input. Raises InvalidInput: that cannot be read."""
    if given != "-":
        return given
    if sys.stdin is None:
        raise InvalidInput(f"{option} - reads standard input, which is closed")
    try:
        return sys.stdin.buffer.read().decode()  # JSON is UTF-8, whatever the language of the terminal is
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{option} is not JSON: byte {error.start} of standard input is not UTF-8") from error


def format_refusal(refused: VerbRefused) -> str:
    """A refusal, followed by the other verbs that are allowed, unless its text names them; verbs as they are typed."""
    others = [verb.replace("_", "-") for verb in refused.allowed if verb != refused.verb]
    text = str(refused)
    for verb in (refused.verb, *refused.allowed):
        text = text.replace(verb, verb.replace("_", "-"))
    return text if "allowed:" in text or not others else f"{text}; also allowed: {', '.join(others)}"
