"""How many tasks a Scheduler takes up."""

from hypothesis import given
from hypothesis import strategies as st

from arriero.runtime.claim_limits import BEGINNING_MAX, CLAIM_MAX, count_claimable, may_begin

counts = st.integers(0, 3_000)


@given(st.integers(1, 3_000), counts, st.integers(0, 20))
def test_a_claim_never_brings_more_than_may_be_held(tasks_max: int, taken: int, others: int) -> None:
    room = max(0, count_claimable(tasks_max=tasks_max, taken=taken, others=others))
    assert room <= CLAIM_MAX
    assert not room or taken + room <= tasks_max


def test_processes_that_claim_side_by_side_ask_for_a_share_each() -> None:
    assert count_claimable(tasks_max=1_000, taken=0, others=3) == CLAIM_MAX // 4
    assert count_claimable(tasks_max=1_000, taken=0, others=500) == 1


@given(st.integers(1, 3_000), counts, counts, st.integers(0, 20))
def test_no_task_begins_where_a_claim_would_bring_none(tasks_max: int, taken: int, beginning: int, others: int) -> None:
    if may_begin(tasks_max=tasks_max, taken=taken, beginning=beginning, others=others):
        assert count_claimable(tasks_max=tasks_max, taken=taken, others=others) > 0


def test_with_others_a_process_begins_with_no_more_than_its_share() -> None:
    share = BEGINNING_MAX // 2
    assert may_begin(tasks_max=1_000, taken=share - 1, beginning=0, others=1)
    assert not may_begin(tasks_max=1_000, taken=share, beginning=0, others=1)
    assert may_begin(tasks_max=1_000, taken=share, beginning=0, others=0)
