"""Which exit code and which problem document each error has, and that each code is used for what the reference says of it."""

import json
from collections.abc import Iterator

import click
import pytest
from cli_calls import Call
from click.testing import CliRunner

import arriero
from arriero import errors
from arriero.cli.main import ArrieroGroup
from arriero.errors import ArrieroError
from arriero.operations.problems import ERRORS, MEANINGS, ExitCode, find_meaning

WHY = ("--by", "ana", "--reason", "asked by telephone")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["task", "list"], ExitCode.DONE),
        (["task", "list", "--state", "nothing"], ExitCode.USAGE),
        (["task", "cancel", "processed", *WHY], ExitCode.REFUSED),
        (["schedule", "show", "nobody"], ExitCode.NOT_FOUND),
        (["ledger", "show", "nobody"], ExitCode.NOT_FOUND),
        (["task", "cancel", "--workflow", "nobody", "--yes", *WHY], ExitCode.NOT_FOUND),
        (["task", "list", "--store", "sqlite:///missing.db"], ExitCode.STORE),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_the_exit_code_says_what_kind_of_error_ended_a_command(
    sold: Call, arguments: list[str], code: ExitCode
) -> None:
    assert sold(*arguments).exit_code == code


def test_a_class_of_errors_has_the_code_of_its_kind() -> None:
    kinds = {
        errors.UnknownTask: 4,
        errors.UnknownName: 4,
        errors.NotAllowed: 3,
        errors.VerbRefused: 3,
        errors.ApprovalNeeded: 3,
        errors.SequenceUsed: 3,
        errors.StoreError: 5,
        errors.SchemaOutdated: 5,
        errors.LeaseUnavailable: 5,
        errors.LeaseAccessDenied: 3,
        errors.LeaseRefused: 2,
        errors.InvalidInput: 2,
        errors.DefinitionError: 2,
    }
    assert {kind: int(find_meaning(kind).exit_code) for kind in kinds} == kinds


def test_every_code_says_what_it_means_in_a_sentence() -> None:
    assert set(MEANINGS) == set(ExitCode)
    assert [meaning for meaning in MEANINGS.values() if not meaning.endswith(".")] == []


def _list_errors() -> Iterator[type[ArrieroError]]:
    """Every exception of the public API, and those that are its subclasses."""
    public = [value for name in arriero.__all__ if isinstance(value := getattr(arriero, name), type)]
    waiting = [kind for kind in public if issubclass(kind, ArrieroError)]
    seen: set[type[ArrieroError]] = set()
    while waiting:
        kind = waiting.pop()
        if kind not in seen:
            seen.add(kind)
            waiting += kind.__subclasses__()
            yield kind


def _build_error(kind: type[ArrieroError]) -> ArrieroError:
    """An instance of any class of errors: one that was raised, as commands see it, without what its constructor asks for."""
    error = kind.__new__(kind, "it was refused\nfor a reason")
    error.args = ("it was refused\nfor a reason",)
    given = {"state": "processed", "verb": "cancel", "allowed": ("resubmit",), "message": "", "because": "ended"}
    for name, value in given.items():
        setattr(error, name, value)
    return error


@pytest.mark.parametrize("kind", sorted(_list_errors(), key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_every_exception_is_one_line_and_with_json_one_problem_document_of_the_same_exit_code(
    kind: type[ArrieroError],
) -> None:
    def fail(**options: object) -> None:
        raise _build_error(kind)

    group = ArrieroGroup("arriero")
    group.add_command(click.command("fail")(click.option("--json", is_flag=True)(fail)))
    plain, as_json = (CliRunner().invoke(group, ["fail", *option]) for option in ([], ["--json"]))
    meaning = find_meaning(kind)
    assert (plain.exit_code, as_json.exit_code) == (meaning.exit_code, meaning.exit_code)
    assert (plain.stdout, as_json.stdout) == ("", "")
    (line,) = plain.stderr.splitlines()
    (text,) = as_json.stderr.splitlines()
    document = json.loads(text)
    assert line == f"arriero: {document['detail']}"
    members = (
        {"state": "processed", "allowed": ["resubmit"], "because": "ended"}
        if issubclass(kind, errors.VerbRefused)
        else {}
    )
    members = {"state": "processed", "because": "ended"} if kind is errors.SignalRefused else members
    members = {"because": "ended"} if kind is errors.CallbackRefused else members
    assert document == {
        "type": f"urn:arriero:problem:{meaning.problem.code}",
        "title": meaning.problem.title,
        "status": meaning.problem.status,
        "detail": document["detail"],
        "code": meaning.problem.code,
        **members,
    }


def test_no_class_of_errors_is_hidden_by_one_above_it_in_the_table() -> None:
    assert [row.error.__name__ for row in ERRORS if find_meaning(row.error) is not row] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["task", "list", "--json", "--limit", "many"], "'many' is not a valid integer"),
        (["task", "list", "--json", "--colour"], "--colour"),
        (["task", "show", "--json"], "Missing argument 'ID'"),
        (["task", "shew", "x", "--json"], "arriero task show x --json"),
        (["task", "show", "caf\udce9", "--json"], "is not UTF-8"),
    ],
    ids=lambda value: " ".join(map(ascii, value)) if isinstance(value, list) else None,
)
def test_a_wrong_option_is_a_problem_document_under_json(call: Call, arguments: list[str], says: str) -> None:
    refused = call(*arguments)
    assert (refused.exit_code, refused.stdout) == (ExitCode.USAGE, "")
    (line,) = refused.stderr.splitlines()
    document = json.loads(line)
    assert (document["type"], document["status"]) == ("urn:arriero:problem:invalid-request", 422)
    assert says in document["detail"]


def test_the_word_json_after_two_dashes_asks_for_nothing(call: Call) -> None:
    assert call("task", "shew", "--", "--json").stderr.startswith("arriero: ")


def test_a_refused_verb_names_the_verbs_that_the_task_allows_under_json(sold: Call) -> None:
    refused = sold("task", "cancel", "processed", *WHY, "--json")
    document = json.loads(refused.stderr)
    assert (refused.exit_code, document["code"], document["state"]) == (3, "verb-refused", "processed")
    assert "compensate" in document["allowed"]
