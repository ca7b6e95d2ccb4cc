"""The entry point: the group of all commands, and the one place where errors become a line and an exit code."""

import errno
import functools
import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import click

from .. import __version__
from ..errors import ArrieroError, VerbRefused
from ..operations.problems import INVALID_REQUEST, ExitCode, ProblemType, find_meaning, list_members
from ..text.escaping import one_line
from .acts import acts
from .agent import agent
from .alert import alert
from .completion import completion
from .config import config
from .convoy import convoy
from .demo import demo
from .doctor import doctor
from .explain import explain_task
from .fork import fork_task
from .history import check, export, history
from .lead import lead
from .lease import lease
from .ledger import ledger
from .lint import lint
from .migrate import migrate
from .near_misses import NearMissGroup
from .options import format_refusal
from .output import discard_output, escape_unencodable_output, json_line
from .process import process
from .purge import purge
from .question import question
from .replay import replay
from .replies import replies
from .run import run, serve
from .schedule import schedule
from .store import store
from .submit import submit
from .supervise import supervise
from .task import task
from .token import token
from .top import top
from .versions import versions
from .workflow import workflow

PATH_OPTIONS = ("--store", "--keep")
UNDECODABLE = (
    "the argument {} is not UTF-8; write it in UTF-8, or look at the language settings of the terminal (locale)"
)


class ArrieroGroup(NearMissGroup):
    """A group whose every error is one line on standard error and an exit code, never a traceback.

    With --json that line is a problem document.
    """

    def main(self, args: Sequence[str] | None = None, *others: Any, **options: Any) -> NoReturn:
        options["standalone_mode"] = False
        given = sys.argv[1:] if args is None else list(args)
        refuse = functools.partial(_refuse, given)
        escape_unencodable_output()
        if undecodable := _find_undecodable(given):
            refuse(UNDECODABLE.format(undecodable))
        try:
            # Its own way to end when the reader of our output has ended is quiet.
            code = super().main(given, *others, **options)
        except click.exceptions.NoArgsIsHelpError as error:  # a group without one of its commands
            click.echo(error.format_message())
            sys.exit(ExitCode.DONE)
        except click.exceptions.Abort:
            sys.exit(ExitCode.INTERRUPTED)
        except click.NoSuchOption as error:
            refuse(_explain_misplaced(self, error.option_name, given) or error.format_message(), context=error.ctx)
        except click.ClickException as error:
            refuse(error.format_message(), context=error.ctx if isinstance(error, click.UsageError) else None)
        except ArrieroError as error:
            _, problem, code = find_meaning(type(error))
            text = format_refusal(error) if isinstance(error, VerbRefused) else str(error)
            refuse(text, problem=problem, code=code, members=list_members(error))
        except UnicodeEncodeError:
            if not (unfit := [word for word in given if _is_undecodable(word)]):
                raise
            refuse(UNDECODABLE.format(unfit[0]))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            discard_output()
            refuse("standard output cannot be written: no space is left; what was written is not complete")
        sys.exit(code if isinstance(code, int) else 0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        for title, group in GROUPS.items():
            with formatter.section(title):
                limit = formatter.width - width - 4  # of what stands behind the name
                formatter.write_dl([(f"{one.name:{width}}", one.get_short_help_str(limit)) for one in group])


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


def _asks_for_json(words: Sequence[str]) -> bool:
    """Return True if the option --json comes after a command, also where the other options are wrong."""
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in itertools.dropwhile(lambda word: word.startswith("-"), options)


def _find_undecodable(words: Sequence[str]) -> str:
    """Find a word that is not UTF-8: ids, names and reasons are texts. Paths may be any bytes."""
    if not _is_undecodable("".join(words)):
        return ""
    for before, word in zip(["", *words], words, strict=False):
        is_path = before in PATH_OPTIONS or word.startswith(tuple(f"{option}=" for option in PATH_OPTIONS))
        if _is_undecodable(word) and not is_path and not os.path.lexists(word):
            return word
    return ""


def _is_undecodable(word: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in word)  # how the system's bytes come that are not text


def _refuse(
    given: Sequence[str],
    message: str,
    *,
    problem: ProblemType = INVALID_REQUEST,
    code: ExitCode = ExitCode.USAGE,
    members: Mapping[str, Any] = {},
    context: click.Context | None = None,
) -> NoReturn:
    """Print a refusal on standard error, as a line or as a problem document, and end the command."""
    hint = f" (see `{context.command_path} --help`)" if context is not None else ""
    text = f"{one_line(message)}{hint}"
    click.echo(
        json_line(problem.build_document(text, members)) if _asks_for_json(given) else f"arriero: {text}", err=True
    )
    sys.exit(code)


@click.group(cls=ArrieroGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="arriero", message="%(prog)s %(version)s")
@click.pass_context
def commands(context: click.Context) -> None:
    """Durable sagas: run operations of several steps to their end, or undo them.

    The state store is --store. By default it is ARRIERO_STORE, then that of arriero.toml, then the App's, then
    sqlite:///arriero.db in this folder. `arriero config` prints which one it is, and why.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


GROUPS = {  # of the help, in the order in which a user meets them
    "Run": (run, serve, supervise, lead),
    "Tasks": (submit, task, history, replies),
    "Operate": (
        doctor,
        top,
        acts,
        question,
        workflow,
        versions,
        process,
        agent,
        alert,
        convoy,
        schedule,
        ledger,
        lease,
    ),
    "Store": (migrate, export, check, replay, purge, store),
    "Set-up": (config, token, lint, demo, completion),
}
for command in itertools.chain.from_iterable(GROUPS.values()):
    commands.add_command(command)
task.add_command(explain_task)
task.add_command(fork_task)


def main() -> None:
    """Run the command that the arguments name."""
    commands(prog_name="arriero")
