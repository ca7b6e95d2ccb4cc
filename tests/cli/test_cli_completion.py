"""The completion script of each shell, and what it asks for."""

import pytest
from cli_calls import Call
from click.testing import CliRunner

from arriero.cli.completion import SHELLS
from arriero.cli.main import commands


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_each_shell_asks_the_command_line(call: Call, shell: str) -> None:
    printed = call("completion", shell)
    assert (printed.exit_code, printed.stderr) == (0, "")
    assert f"_ARRIERO_COMPLETE={shell}_complete" in printed.stdout


def test_the_question_of_a_shell_is_answered_with_commands() -> None:
    asked = {"_ARRIERO_COMPLETE": "bash_complete", "COMP_WORDS": "arriero task sh", "COMP_CWORD": "2"}
    answer = CliRunner().invoke(commands, [], env=asked, prog_name="arriero")
    assert answer.stdout.split() == ["plain,show"]


def test_an_unknown_shell_is_refused_with_those_that_exist(call: Call) -> None:
    refused = call("completion", "tcsh")
    assert refused.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in refused.stderr
