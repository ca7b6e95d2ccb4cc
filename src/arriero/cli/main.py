"""The entry point: the group of all commands, and the one place where errors become a line and an exit code."""

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from .. import __version__
from ..errors import ArrieroError, VerbRefused
from ..text.escaping import one_line
from .agent import agent
from .alert import alert
from .completion import completion
from .config import config
from .convoy import convoy
from .demo import demo
from .doctor import doctor
from .exit_codes import ExitCode, find_exit_code
from .explain import explain_task
from .history import check, export, history
from .lead import lead
from .lease import lease
from .ledger import ledger
from .migrate import migrate
from .near_misses import NearMissGroup
from .options import format_refusal
from .output import discard_output, escape_unencodable_output
from .purge import purge
from .replies import replies
from .run import run, serve
from .schedule import schedule
from .store import store
from .submit import submit
from .supervise import supervise
from .task import task
from .token import token

PATH_OPTIONS = ("--store", "--keep")
UNDECODABLE = (
    "the argument {} is not UTF-8; write it in UTF-8, or look at the language settings of the terminal (locale)"
)


class ArrieroGroup(NearMissGroup):
    """A group whose every error is one line on standard error and an exit code, never a traceback."""

    def main(self, args: Sequence[str] | None = None, *others: Any, **options: Any) -> NoReturn:
        options["standalone_mode"] = False
        given = sys.argv[1:] if args is None else list(args)
        escape_unencodable_output()
        _refuse_undecodable(given)
        try:
            # Its own way to end when the reader of our output is gone is quiet.
            code = super().main(given, *others, **options)
        except click.exceptions.Abort:
            sys.exit(ExitCode.INTERRUPTED)
        except click.NoSuchOption as error:
            _refuse(_explain_misplaced(self, error.option_name, given) or error.format_message(), error.ctx)
        except click.ClickException as error:
            _refuse(error.format_message(), error.ctx if isinstance(error, click.UsageError) else None)
        except ArrieroError as error:
            _refuse(format_refusal(error) if isinstance(error, VerbRefused) else str(error), code=find_exit_code(error))
        except UnicodeEncodeError:
            if not (unfit := [word for word in given if _is_undecodable(word)]):
                raise
            _refuse(UNDECODABLE.format(unfit[0]))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            discard_output()
            _refuse("standard output cannot be written: no space is left; what was written is not complete")
        sys.exit(code if isinstance(code, int) else 0)


def _explain_misplaced(group: click.Group, option: str, given: Sequence[str]) -> str:
    """Explain that an option belongs behind the command; empty: that command does not know it either."""
    words: list[str] = []
    found: click.Command = group
    for word in given:
        if isinstance(found, click.Group) and word in found.commands:
            found = found.commands[word]
            words.append(word)
    if isinstance(found, click.Group) or not any(option in parameter.opts for parameter in found.params):
        return ""
    return f"{option} stands behind the command: arriero {' '.join(words)} ... {option} ..."


def _refuse_undecodable(words: Sequence[str]) -> None:
    """Refuse what is not UTF-8: ids, names and reasons are texts. Paths may be any bytes."""
    if not _is_undecodable("".join(words)):
        return
    for before, word in zip(["", *words], words, strict=False):
        is_path = before in PATH_OPTIONS or word.startswith(tuple(f"{option}=" for option in PATH_OPTIONS))
        if _is_undecodable(word) and not is_path and not os.path.lexists(word):
            _refuse(UNDECODABLE.format(word))


def _is_undecodable(word: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in word)  # how the system's bytes come that are no text


def _refuse(message: str, context: click.Context | None = None, code: ExitCode = ExitCode.USAGE) -> NoReturn:
    hint = f" (see `{context.command_path} --help`)" if context is not None else ""
    click.echo(f"arriero: {one_line(message)}{hint}", err=True)
    sys.exit(code)


@click.group(cls=ArrieroGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="arriero", message="%(prog)s %(version)s")
@click.pass_context
def commands(context: click.Context) -> None:
    """Coordinate distributed actions as one operation: the whole succeeds or is undone as a whole.

    The state store is --store, else ARRIERO_STORE, else what arriero.toml names, else the App's, else
    sqlite:///arriero.db in this folder. `arriero config` tells which it is, and why.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in (
    run,
    serve,
    supervise,
    submit,
    task,
    convoy,
    agent,
    lease,
    lead,
    schedule,
    alert,
    ledger,
    replies,
    token,
    history,
    export,
    check,
    purge,
    doctor,
    migrate,
    store,
    config,
    demo,
    completion,
):
    commands.add_command(command)
task.add_command(explain_task)


def main() -> None:
    """Run the command that the arguments name."""
    commands(prog_name="arriero")
