"""What a person most likely meant by a command that is not there: the right one, said in the refusal.

Nothing is carried out under a wrong name: scripts would come to rest on names that no page tells.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
import msgspec

from ..escaping import shell_word
from ..store.masking import holds_password

PROGRAM = "arriero"
SIMILARITY_MIN = 0.6  # of two words, as difflib measures it: below it a guess misleads more than it helps


class Meant(msgspec.Struct, frozen=True):
    """The command that was meant, as it is typed behind ``arriero``; ``of_one``: that where something is named with it."""

    command: str
    of_one: str = ""


# Words that people bring from other tools, or from the names of other commands: behind `arriero`, then behind its groups.
KNOWN: Mapping[str, Meant] = {
    "list": Meant("task list"),
    "ls": Meant("task list"),
    "ps": Meant("task list"),
    "tasks": Meant("task list", "task show"),
    "jobs": Meant("task list", "task show"),
    "errors": Meant("task list --state error"),
    "failed": Meant("task list --state error"),
    "show": Meant("task show"),
    "get": Meant("task show"),
    "view": Meant("task show"),
    "inspect": Meant("task show"),
    "status": Meant("doctor", "task show"),
    "health": Meant("doctor"),
    "info": Meant("doctor", "task show"),
    "why": Meant("task explain"),
    "retry": Meant("task resubmit"),
    "redo": Meant("task resubmit"),
    "undo": Meant("task compensate"),
    "rollback": Meant("task compensate"),
    "stop": Meant("task cancel"),
    "kill": Meant("task cancel"),
    "abort": Meant("task cancel"),
    "log": Meant("history"),
    "logs": Meant("history"),
    "events": Meant("history"),
    "start": Meant("run"),
    "serve": Meant("run"),
    "worker": Meant("run"),
    "up": Meant("run"),
    "init": Meant("migrate"),
    "upgrade": Meant("migrate"),
    "verify": Meant("check"),
    "clean": Meant("purge"),
    "prune": Meant("purge"),
    "settings": Meant("config"),
    "convoys": Meant("convoy list", "convoy show"),
    "ledgers": Meant("ledger list", "ledger show"),
    "queue": Meant("replies"),
    "version": Meant("--version"),
    "help": Meant("--help"),
    "task ls": Meant("task list"),
    "task get": Meant("task show"),
    "task view": Meant("task show"),
    "task status": Meant("task show"),
    "task inspect": Meant("task show"),
    "task info": Meant("task show"),
    "task steps": Meant("task show"),
    "task why": Meant("task explain"),
    "task retry": Meant("task resubmit"),
    "task redo": Meant("task resubmit"),
    "task undo": Meant("task compensate"),
    "task rollback": Meant("task compensate"),
    "task stop": Meant("task cancel"),
    "task kill": Meant("task cancel"),
    "task abort": Meant("task cancel"),
    "task purge": Meant("purge", "purge --task"),
    "convoy purge": Meant("purge", "purge --convoy"),
    "ledger purge": Meant("purge", "purge --ledger"),
    "task delete": Meant("purge", "purge --task"),
    "task rm": Meant("purge", "purge --task"),
    "task log": Meant("history"),
    "task logs": Meant("history"),
    "task events": Meant("history"),
    "task start": Meant("submit"),
    "task continue": Meant("task resume"),
    "task unpause": Meant("task resume"),
    "convoy ls": Meant("convoy list"),
    "convoy explain": Meant("convoy show"),
    "convoy status": Meant("convoy show"),
    "convoy pause": Meant("convoy park"),
    "convoy resume": Meant("convoy release"),
    "convoy unpark": Meant("convoy release"),
    "ledger ls": Meant("ledger list"),
    "ledger status": Meant("ledger show"),
}


class NearMissGroup(click.Group):
    """A group that answers a command that is not there with the one that was meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            first = ctx.find_root()
            assert isinstance(first.command, click.Group)
            group = ctx.command_path.removeprefix(first.command_path).strip()
            raise click.ClickException(answer(first.command, group, name, args[1:]))
        return super().resolve_command(ctx, args)


def answer(root: click.Group, group: str, name: str, rest: Sequence[str]) -> str:
    """What is said of a command that is not there.

    Args:
        root: the group of all commands.
        group: the words before it, like ``task``; empty: it stands right behind ``arriero``.
        name: the word that is no command, and what followed it.
    """
    typed = " ".join(filter(None, (PROGRAM, group, name)))
    candidates = _candidates(root, group)
    if name in candidates:
        return f"there is no `{typed}`; `{_typed(root, candidates[name], rest)}` is it"
    if close := difflib.get_close_matches(name, candidates, 1, SIMILARITY_MIN):
        return f"there is no `{typed}`; did you mean `{_typed(root, candidates[close[0]], rest)}`?"
    return f"there is no `{typed}`; `{' '.join(filter(None, (PROGRAM, group)))} --help` lists what there is"


def _candidates(root: click.Group, group: str) -> dict[str, Meant]:
    """What each word may mean behind these words. A group's own commands come first: so close ones win."""
    real = dict(commands_of(root))
    inside = {path.split()[-1]: Meant(path) for path in real if path.rpartition(" ")[0] == group}
    known = {words.split()[-1]: meant for words, meant in KNOWN.items() if words.rpartition(" ")[0] == group}
    outside = [path for path in real if path.rpartition(" ")[0] == ""] if group else list(real)
    elsewhere = {path.split()[-1]: Meant(path) for path in outside if not isinstance(real[path], click.Group)}
    return {**inside, **known, **{word: meant for word, meant in elsewhere.items() if word not in inside | known}}


def commands_of(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """All commands and groups below a group, each as it is typed behind ``arriero``."""
    for name, command in group.commands.items():
        path = f"{before} {name}".strip()
        yield path, command
        if isinstance(command, click.Group):
            yield from commands_of(command, path)


def _typed(root: click.Group, meant: Meant, rest: Sequence[str]) -> str:
    """The command with what was given; where nothing was, or something secret, with the names of what it needs."""
    if meant.command.startswith("-"):
        return f"{PROGRAM} {meant.command}"
    names_one = bool(rest) and not rest[0].startswith("-")
    command = meant.of_one if meant.of_one and names_one else meant.command
    given = [] if any(map(holds_password, rest)) else [*map(shell_word, rest)]
    return " ".join((PROGRAM, command, *(given or _needed(root, command))))


def _needed(root: click.Group, command: str) -> list[str]:
    found: Any = root
    for word in command.split():
        if word.startswith("-"):
            return []
        found = found.commands[word]
    if isinstance(found, click.Group):
        return ["--help"]
    return [str(parameter.metavar).strip("[]") for parameter in found.params if _is_needed(parameter)]


def _is_needed(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Argument) and parameter.metavar is not None
