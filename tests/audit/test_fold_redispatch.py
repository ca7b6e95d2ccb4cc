"""The rate at which attempts that expired come back, judged from a history for each leader."""

import pytest
from core_history import NOON, SECOND, Story

from arriero.audit.check import check
from arriero.audit.fold_agents import RedispatchFold
from arriero.events.step import RecoverApplied, StepExpired
from arriero.model import Instant


def add(
    fold: RedispatchFold, *instants: int, term: int | None = 1, why: str = "expired", what: str = "retry"
) -> RedispatchFold:
    for at in instants:
        fold.fold_commit(
            [
                StepExpired(step=1, fence=2, why=why, term=term),
                RecoverApplied(
                    step=1,
                    what=what,
                    fence=2,
                    failure_count=1,
                    not_before=Instant(NOON + at),
                    in_doubt=True,
                    failure=b"{}",  # type: ignore[arg-type]
                ),
            ]
        )
    return fold


def invariants(fold: RedispatchFold, per_second: int) -> list[str]:
    return [violation.invariant for violation in fold.find_violations(per_second)]


def test_what_comes_back_at_the_rate_is_clean_and_one_more_in_a_second_is_not() -> None:
    fold = add(RedispatchFold(), *(n * SECOND // 4 for n in range(40)))
    assert invariants(fold, 4) == []
    assert invariants(fold, 3) == []  # a second may begin and end inside a slot
    assert invariants(fold, 2) == ["I71"]


def test_the_order_of_the_commits_says_nothing() -> None:
    assert invariants(add(RedispatchFold(), 5 * SECOND, 0, 9, 5 * SECOND + 1), 1) == []
    assert invariants(add(RedispatchFold(), 7, 9 * SECOND, 0, 9), 1) == ["I71"]


def test_each_leader_has_a_rate_of_its_own() -> None:
    fold = add(add(RedispatchFold(), 0, 1, term=1), 2, 3, term=2)
    assert invariants(fold, 1) == []
    assert invariants(add(fold, 4, term=2), 1) == ["I71"]


@pytest.mark.parametrize("other", [{"why": "starved"}, {"what": "error"}, {"term": None}], ids=str)
def test_what_does_not_come_back_or_did_not_expire_under_a_leader_is_not_counted(other: dict[str, str]) -> None:
    assert invariants(add(RedispatchFold(), 0, 1, 2, 3, **other), 1) == []  # type: ignore[arg-type]


def test_a_history_is_judged_by_the_rate_only_if_it_is_given() -> None:
    story = Story()
    commit = story.commit("lost", "step.expired")
    for _ in range(3):  # not clean either, but the rate is judged beside all else
        story.insert(commit, *commit.events)
    assert "I71" not in {violation.invariant for violation in check(story.rows())}
    assert "I71" in {violation.invariant for violation in check(story.rows(), redispatch_per_second=1)}
    assert "I71" not in {violation.invariant for violation in check(Story().rows(), redispatch_per_second=1)}
