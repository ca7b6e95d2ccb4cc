"""Suggests the command that an operator most likely meant by one that does not exist.

Nothing is carried out under a wrong name: scripts must not come to depend on names that no page documents.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
import msgspec

from ..model.verb_rules import VERBS
from ..text.escaping import holds_password, shell_word

PROGRAM = "arriero"
SIMILARITY_MIN = 0.6  # of two words, as difflib measures it: below it a guess misleads more than it helps


class MeantCommand(msgspec.Struct, frozen=True):
    """The command that was meant, as it is typed behind ``arriero``; ``of_one``: that where something is named with it."""

    command: str
    of_one: str = ""


# Words that operators bring from other tools, or from the names of other commands: behind `arriero`, then behind its groups.
_KNOWN: Mapping[MeantCommand, str] = {
    MeantCommand("task list"): "list, ls, ps, task ls",
    MeantCommand("task list", "task show"): "tasks, jobs",
    MeantCommand("task list --state held"): "errors, failed",
    MeantCommand(
        "task show"
    ): "show, get, view, inspect, task get, task view, task status, task inspect, task info, task steps",
    MeantCommand("doctor", "task show"): "status, info",
    MeantCommand("doctor"): "health",
    MeantCommand("task explain"): "why, task why",
    MeantCommand("agent list", "agent show"): "agents, services, breakers",
    MeantCommand("history"): "log, logs, events, task log, task logs, task events",
    MeantCommand("run"): "start, worker, up",
    MeantCommand("serve"): "http, api, server",
    MeantCommand("token list"): "tokens, token ls",
    MeantCommand("token create"): "token add, token new",
    MeantCommand("token revoke"): "token delete, token remove, token rm",
    MeantCommand("migrate"): "init, upgrade",
    MeantCommand("check"): "verify",
    MeantCommand("purge"): "clean, prune",
    MeantCommand("config"): "settings",
    MeantCommand("convoy list", "convoy show"): "convoys",
    MeantCommand("ledger list", "ledger show"): "ledgers",
    MeantCommand("schedule list", "schedule show"): "schedules, cron, crontab, beat",
    MeantCommand("schedule list"): "schedule ls",
    MeantCommand("schedule show"): "schedule explain, schedule status, schedule next",
    MeantCommand("schedule run-now"): "schedule run, schedule trigger, schedule start",
    MeantCommand("schedule pause"): "schedule stop, schedule disable",
    MeantCommand("schedule resume"): "schedule unpause, schedule enable, schedule continue",
    MeantCommand("schedule remove"): "schedule delete, schedule rm",
    MeantCommand("schedule add"): "schedule create, schedule new",
    MeantCommand("replies"): "queue",
    MeantCommand("--version"): "version",
    MeantCommand("--help"): "help",
    MeantCommand("purge", "purge --task"): "task purge, task delete, task rm",
    MeantCommand("purge", "purge --convoy"): "convoy purge",
    MeantCommand("purge", "purge --ledger"): "ledger purge",
    MeantCommand("submit"): "task start",
    MeantCommand("convoy list"): "convoy ls",
    MeantCommand("convoy show"): "convoy explain, convoy status",
    MeantCommand("convoy park"): "convoy pause",
    MeantCommand("convoy release"): "convoy resume, convoy unpark",
    MeantCommand("ledger list"): "ledger ls",
    MeantCommand("ledger show"): "ledger status",
}
KNOWN = {
    **{
        word: MeantCommand(f"task {verb}")
        for verb, declared in VERBS.items()
        for word in (str(verb), *declared.words, *(f"task {other}" for other in declared.words))
    },
    **{word: meant for meant, words in _KNOWN.items() for word in words.split(", ")},
}


FORMAT_OPTIONS = ("--json",)


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
            raise click.ClickException(suggest_command(first.command, group, name, args[1:]))
        return super().resolve_command(ctx, args)


def suggest_command(root: click.Group, group: str, name: str, rest: Sequence[str]) -> str:
    """Build the refusal of a command that does not exist.

    Args:
        root: the group of all commands.
        group: the words before it, like ``task``; empty: it stands right behind ``arriero``.
        name: the word that is not a command, and what followed it.
    """
    typed = " ".join(filter(None, (PROGRAM, group, name)))
    candidates = _list_candidates(root, group)
    if name in candidates:
        return f"there is no `{typed}`; `{_format_command(root, candidates[name], rest)}` is it"
    swapped = [word for word in candidates if sorted(word) == sorted(name)]  # `lnit` is nearer to `lint` than to `list`
    if close := swapped or difflib.get_close_matches(name, candidates, 1, SIMILARITY_MIN):
        return f"there is no `{typed}`; did you mean `{_format_command(root, candidates[close[0]], rest)}`?"
    return f"there is no `{typed}`; `{' '.join(filter(None, (PROGRAM, group)))} --help` lists what there is"


def _list_candidates(root: click.Group, group: str) -> dict[str, MeantCommand]:
    """List what each word may mean behind these words. A group's own commands come first, so that they win."""
    real = dict(list_commands(root))
    inside = {path.split()[-1]: MeantCommand(path) for path in real if path.rpartition(" ")[0] == group}
    known = {words.split()[-1]: meant for words, meant in KNOWN.items() if words.rpartition(" ")[0] == group}
    outside = [path for path in real if path.rpartition(" ")[0] == ""] if group else list(real)
    elsewhere = {path.split()[-1]: MeantCommand(path) for path in outside if not isinstance(real[path], click.Group)}
    return {**inside, **known, **{word: meant for word, meant in elsewhere.items() if word not in inside | known}}


def list_commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """All commands and groups below a group, each as it is typed behind ``arriero``."""
    for name, command in group.commands.items():
        path = f"{before} {name}".strip()
        yield path, command
        if isinstance(command, click.Group):
            yield from list_commands(command, path)


def _format_command(root: click.Group, meant: MeantCommand, rest: Sequence[str]) -> str:
    """The command with what was given; where nothing was, or something secret, with the names of what it needs."""
    if meant.command.startswith("-"):
        return f"{PROGRAM} {meant.command}"
    names_one = bool(rest) and not rest[0].startswith("-")
    command = meant.of_one if meant.of_one and names_one else meant.command
    given = [] if any(map(holds_password, rest)) else [*map(shell_word, rest)]
    formats = [word for word in given if word in FORMAT_OPTIONS]  # they name nothing that the command works on
    if formats == given:
        given = [*_list_arguments(root, command), *formats]
    return " ".join((PROGRAM, command, *given))


def _list_arguments(root: click.Group, command: str) -> list[str]:
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
