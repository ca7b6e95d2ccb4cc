"""The help of every command: sentences in plain words, in groups, and no line wider than a terminal."""

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from arriero.cli.main import GROUPS, commands
from arriero.cli.near_misses import list_commands
from test_prose import find_forms

WORDS_MAX = 25
ALL = {"": commands, **dict(list_commands(commands))}


def find_faults(text: str) -> Iterator[str]:
    """What is wrong with a text of sentences."""
    if not text:
        yield "it is empty"
        return
    if not re.match(r"[A-Z0-9`-]", text):
        yield "it begins with a small letter"
    if not text.endswith("."):
        yield "it ends without a period"
    for sentence in re.split(r"(?<=[.:;]) ", text):
        if len(sentence.split()) > WORDS_MAX:
            yield f"a sentence has more than {WORDS_MAX} words"
    yield from find_forms(text)


def test_a_fault_of_a_text_is_found() -> None:
    assert list(find_faults("Of the lease")) == ["it ends without a period"]
    assert list(find_faults("so many at most.")) == [
        "it begins with a small letter",
        "1: so many: write name the quantity",
    ]
    assert list(find_faults("Word " * 26 + ".")) == ["a sentence has more than 25 words"]


@pytest.mark.parametrize("path", ALL)
def test_the_help_of_a_command_and_of_its_options_is_in_sentences(path: str) -> None:
    command = ALL[path]
    texts = {"": command.get_short_help_str(200)}
    texts |= {one.opts[0]: one.help or "" for one in command.params if isinstance(one, click.Option)}
    faults = [f"{option} {text!r}: {fault}" for option, text in texts.items() for fault in find_faults(text)]
    assert faults == []


@pytest.mark.parametrize("path", ALL)
def test_no_line_of_a_help_is_wider_than_80_columns(path: str) -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(commands, [*path.split(), "--help"])
    assert shown.exit_code == 0
    assert [line for line in shown.stdout.splitlines() if len(line) > 80] == []


def test_each_command_is_in_one_group_of_the_help() -> None:
    grouped = [one for group in GROUPS.values() for one in group]
    assert len(grouped) == len(set(map(id, grouped))) == len(commands.commands)
    lines = CliRunner(env={"COLUMNS": "80"}).invoke(commands, ["--help"]).stdout.splitlines()
    assert [line for line in lines if line.endswith(":") and line[:-1] in GROUPS] == [f"{title}:" for title in GROUPS]
    assert [line.split()[0] for line in lines if re.match("  [a-z]", line)][-len(grouped) :] == [
        one.name for one in grouped
    ]
    assert not any("..." in line for line in lines[5:])
