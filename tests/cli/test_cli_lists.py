"""Empty lists, and counts with the right plural."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_calls import Call

import arriero
from arriero.text.format import format_count

SRC = Path(arriero.__file__).parent
FOR_PEOPLE = ("cli", "client", "explain", "operations", "text")
COUNTED = re.compile(
    r" (?:more |other |open |unread )?(tasks|steps|processes|requests|attempts|messages|rows|calls|rounds|times|lines|tokens|"
    r"leases|alerts|persons|frames|entries|keys|results|violations|duplicates|things|checks|queues|schedules|convoys)\b"
)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("task list --state compensating", "No tasks in state compensating."),
        ("task list --workflow nobody", "No tasks for --workflow nobody."),
        ("convoy list", "No convoys that are not idle; --state idle lists the others."),
        ("convoy list --state parked", "No convoys in state parked."),
        ("schedule list", "No schedules."),
        ("schedule list --app-name web", "No schedules for --app-name web."),
        ("token list", "No tokens."),
        ("process list", "No processes."),
        ("ledger list", "No unfinished ledgers; --all lists the others."),
        ("ledger list --all", "No ledgers."),
    ],
)
def test_an_empty_list_is_a_sentence_on_standard_error_and_nothing_for_programs(
    sold: Call, arguments: str, says: str
) -> None:
    shown, as_json = sold(*arguments.split()), sold(*arguments.split(), "--json")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "", f"{says}\n")
    assert (as_json.exit_code, as_json.stdout, as_json.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("count", "what", "text"),
    [
        (1, "task", "1 task"),
        (0, "task", "0 tasks"),
        (1_500, "process", "1,500 processes"),
        (1, "entry", "1 entry"),
        (2, "entry", "2 entries"),
        (2, "key", "2 keys"),
        (1, "more frame", "1 more frame"),
    ],
)
def test_a_count_agrees_with_its_noun(count: int, what: str, text: str) -> None:
    assert format_count(count, what) == text


def _find_counts(path: Path) -> Iterator[str]:
    """The counts of a module that stand before a noun in the plural, and are neither constant nor formatted as a count."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and re.search(r"[a-z]\(e?s\)", str(node.value)):
            yield f"{path.relative_to(SRC)}:{node.lineno}: {node.value}"
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, after in zip(node.values, node.values[1:], strict=False):
            if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                count = ast.unparse(value.value)
                if COUNTED.match(str(after.value)) and not count.isupper() and "format_count(" not in count:
                    yield f"{path.relative_to(SRC)}:{node.lineno}: {{{count}}}{after.value}"


def test_no_text_for_people_puts_a_plural_behind_a_number_that_may_be_one() -> None:
    paths = [path for part in FOR_PEOPLE for path in sorted((SRC / part).rglob("*.py"))]
    assert [found for path in paths for found in _find_counts(path)] == []
