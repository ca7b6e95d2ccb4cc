"""A command that is not there is answered with the one that was meant, on one line of standard error."""

import json
from collections import Counter

import click
import pytest
from cli_calls import Call

from arriero.cli.main import commands
from arriero.cli.near_misses import KNOWN, NearMissGroup, list_commands, suggest_command

REAL = dict(list_commands(commands))
LEAVES = [path for path, command in REAL.items() if not isinstance(command, click.Group)]


def refusal(call: Call, *words: str) -> str:
    refused = call(*words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    (line,) = refused.stderr.splitlines()
    return line.removeprefix("arriero: ")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("explain 1001", "`arriero task explain 1001` is it"),
        ("show 1001", "`arriero task show 1001` is it"),
        ("list", "`arriero task list` is it"),
        ("tasks", "`arriero task list` is it"),
        ("retry 1001 --reason x", "`arriero task resubmit 1001 --reason x` is it"),
        ("cancel --state held", "`arriero task cancel --state held` is it"),
        ("status", "`arriero doctor` is it"),
        ("status 1001", "`arriero task show 1001` is it"),
        ("version", "`arriero --version` is it"),
        ("explian 1001", "did you mean `arriero task explain 1001`?"),
        ("docter", "did you mean `arriero doctor`?"),
        ("tsak list", "did you mean `arriero task list`?"),
        ("task history 1001", "`arriero history 1001` is it"),
        ("task retry", "`arriero task resubmit ID` is it"),
        ("task cancle 1001", "did you mean `arriero task cancel 1001`?"),
        ("task delete 1001", "`arriero purge --task 1001` is it"),
        ("task purge 1001", "`arriero purge --task 1001` is it"),
        ("convoy pause customer-7", "`arriero convoy park customer-7` is it"),
        ("ledger ls", "`arriero ledger list` is it"),
        ("xyzzy", "`arriero --help` lists what there is"),
        ("task xyzzy 1001", "`arriero task --help` lists what there is"),
    ],
)
def test_a_command_that_is_not_there_is_answered_with_the_one_that_was_meant(
    call: Call, words: str, meant: str
) -> None:
    said = refusal(call, *words.split())
    assert said.endswith(f"; {meant}")
    assert said.startswith("there is no `arriero ")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("task history --json", "`arriero history TASK --json` is it"),
        ("status --json", "`arriero doctor --json` is it"),
        ("explain 1001 --json", "`arriero task explain 1001 --json` is it"),
    ],
)
def test_json_is_not_taken_for_what_the_command_works_on(call: Call, words: str, meant: str) -> None:
    assert json.loads(call(*words.split()).stderr)["detail"].endswith(f"; {meant}")


def test_words_that_need_quotes_are_quoted_and_a_password_is_not_repeated(call: Call) -> None:
    assert refusal(call, "explain", "two words").endswith("`arriero task explain 'two words'` is it")
    said = refusal(call, "explain", "1001", "--store", "postgresql://ana:hunter2@db/shop")
    assert said == "there is no `arriero explain`; `arriero task explain ID` is it"


def test_a_word_that_moves_the_cursor_is_escaped(call: Call) -> None:
    assert "\\x1b[2J" in refusal(call, "\x1b[2J")


def test_a_wrong_option_is_still_told_as_that(call: Call) -> None:
    assert "No such option" in refusal(call, "task", "--colour")


def test_every_known_near_miss_is_no_command_and_means_one_that_is_there() -> None:
    for words, meant in KNOWN.items():
        assert words not in REAL, words
        assert words.rpartition(" ")[0] in ("", *REAL), words
        for command in filter(None, (meant.command, meant.of_one)):
            path = [word for word in command.split() if not word.startswith("-")]
            found = (
                commands if not path else REAL[" ".join(path[:2] if path[0] in ("task", "convoy", "ledger") else path)]
            )
            known = [option for parameter in found.params for option in parameter.opts]
            assert all(word in (*known, "--help") for word in command.split() if word.startswith("-")), words


def test_every_group_answers_near_misses() -> None:
    assert all(isinstance(command, NearMissGroup) for command in REAL.values() if isinstance(command, click.Group))


def test_a_name_that_several_groups_have_is_told_by_the_table_when_its_group_is_left_out() -> None:
    names = Counter(path.split()[-1] for path in LEAVES if " " in path and path.split()[-1] not in REAL)
    assert {name for name, count in names.items() if count > 1} <= KNOWN.keys()


@pytest.mark.parametrize("path", [path for path in REAL if len(path.split()[-1]) > 3])
def test_two_letters_of_any_command_that_change_places_still_name_it(path: str) -> None:
    group, _, name = path.rpartition(" ")
    mistyped = f"{name[0]}{name[2]}{name[1]}{name[3:]}"
    if mistyped != name:
        assert f"did you mean `arriero {path}" in suggest_command(commands, group, mistyped, [])


@pytest.mark.parametrize("path", [path for path in LEAVES if " " in path])
def test_a_command_whose_group_is_left_out_is_answered_with_a_command_of_that_name(path: str) -> None:
    name = path.rsplit(maxsplit=1)[-1]
    if name not in REAL:
        assert f" {name}" in suggest_command(commands, "", name, []).partition(";")[2]
