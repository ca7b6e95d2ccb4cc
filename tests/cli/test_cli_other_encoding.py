"""Output that is not UTF-8: what its encoding lacks is escaped, and JSON keeps its value."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_calls import APP, Call, order
from click.testing import CliRunner, Result

from arriero.cli.main import commands

TASK = "заказ-😀-é"
READERS = [
    ["task", "list"],
    ["task", "show", TASK],
    ["task", "explain", TASK],
    ["history"],
    ["history", TASK],
    ["task", "cancel", TASK, "--reason", "a", "--dry-run"],
]


@pytest.fixture(params=["iso8859-1", "cp1252", "koi8-r"])
def encoding(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def other(call: Call, encoding: str) -> Iterator[Call]:
    """The command line with an output of that encoding, on a store with one task."""
    assert call("submit", APP, "fulfil", "--task-id", TASK, "--arguments", order("ключ")).exit_code == 0

    def invoke(*arguments: str, given: str | bytes = "") -> Result:
        return CliRunner(charset=encoding).invoke(commands, list(arguments), input=given)

    yield invoke


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_text_that_the_terminal_cannot_write_is_escaped_and_no_command_fails(
    other: Call, encoding: str, words: list[str]
) -> None:
    ran = other(*words)
    assert (ran.exit_code, ran.exception) == (0, None)
    written = (ran.stdout_bytes + ran.stderr_bytes).decode(encoding)
    assert TASK.encode(encoding, "backslashreplace").decode(encoding) in written


@pytest.mark.parametrize("words", [READERS[0], READERS[1], READERS[2], READERS[3]], ids=" ".join)
def test_json_for_such_an_output_has_the_same_value(other: Call, words: list[str]) -> None:
    ran = other(*words, "--json")
    assert ran.exit_code == 0
    written = ran.stdout_bytes.decode("ascii" if words != ["history"] else "utf-8")  # a history is a file of UTF-8
    assert TASK in json.dumps([json.loads(line) for line in written.splitlines()], ensure_ascii=False)


def test_an_error_names_what_was_typed(other: Call, encoding: str) -> None:
    ran = other("task", "show", "не-там")
    assert ran.exit_code == 4
    assert "не-там".encode(encoding, "backslashreplace") in ran.stderr_bytes


def test_json_from_standard_input_is_utf8_whatever_the_language_of_the_terminal_is(
    other: Call, encoding: str, call: Call
) -> None:
    words = ("submit", APP, "fulfil", "--task-id", "given", "--arguments", "-")
    assert other(*words, given=order("é-ключ").encode()).exit_code == 0
    assert "é-ключ" in str(json.loads(call("task", "show", "given", "--json").stdout))
    ran = other("submit", APP, "fulfil", "--arguments", "-", given=b'{"order": "\xe9"}')
    assert ran.exit_code == 2
    assert "is not UTF-8" in ran.stderr


def test_columns_are_aligned_by_what_is_written(other: Call, encoding: str) -> None:
    head, row = other("task", "list").stdout_bytes.decode(encoding).splitlines()
    assert row.index("fulfil") == head.index("workflow")


@pytest.mark.acceptance
@pytest.mark.parametrize(
    "language",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "iso8859-1"},
    ],
    ids=str,
)
def test_a_process_in_any_language_ends_without_a_traceback(call: Call, shop: Path, language: dict[str, str]) -> None:
    assert call("submit", APP, "fulfil", "--task-id", "заказ", "--arguments", order("1")).exit_code == 0
    arriero = Path(sys.executable).with_name("arriero")
    for words in (["--help"], ["task", "list"], ["task", "list", "--json"], ["demo", "--orders", "1", "--kills", "0"]):
        ran = subprocess.run(
            [arriero, *words], cwd=shop, env={**os.environ, **language}, capture_output=True, timeout=120, check=False
        )
        assert ran.returncode == 0, (words, ran.stderr)
        assert b"Traceback" not in ran.stderr + ran.stdout
