"""The audit of tokens: who made one, and who took it back and why."""

import pytest

from arriero.audit.check import StoreFold
from arriero.events.store import TokenCreated, TokenRevoked

MADE = TokenCreated("0011", "ci", ("read",), None)
GONE = TokenRevoked("0011", "ci", "laptop lost")


def judge(*commits: tuple[str, TokenCreated | TokenRevoked]) -> list[str]:
    fold = StoreFold()
    for at, (actor, event) in enumerate(commits):
        fold.fold_commit(actor, at, [event])
    return [violation.invariant for violation in fold.violations]


def test_a_token_that_is_made_and_revoked_by_a_person_violates_nothing() -> None:
    assert judge(("ana", MADE), ("bob", GONE)) == []


@pytest.mark.parametrize(
    "commits",
    [
        [("", MADE)],
        [("ana", MADE), ("ana", MADE)],
        [("ana", GONE)],
        [("ana", MADE), ("", GONE)],
        [("ana", MADE), ("bob", TokenRevoked("0011", "ci", ""))],
        [("ana", MADE), ("bob", GONE), ("bob", GONE)],
    ],
)
def test_a_token_by_nobody_or_revoked_without_need_is_a_violation(
    commits: list[tuple[str, TokenCreated | TokenRevoked]],
) -> None:
    assert judge(*commits) == ["I59"]
