"""Which exit code each error has, and that each code is used for what the reference says of it."""

import pytest
from cli_calls import Call

from arriero import errors
from arriero.cli.exit_codes import MEANINGS, ExitCode, find_exit_code

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
        errors.InvalidInput: 2,
        errors.DefinitionError: 2,
    }
    assert {kind: int(find_exit_code(kind("said"))) for kind in kinds} == kinds


def test_every_code_says_what_it_means_in_a_sentence() -> None:
    assert set(MEANINGS) == set(ExitCode)
    assert [meaning for meaning in MEANINGS.values() if not meaning.endswith(".")] == []
