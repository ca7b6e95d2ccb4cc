"""When all tasks of a ledger have ended, as a rule of its row."""

import pytest

from arriero.core.ledgers import have_all_ended
from arriero.model import Instant, LedgerRow, LedgerState

NOON = Instant(43_200_000_000)


def ledger(accepted: int, linked: int, *, is_open: bool = True) -> LedgerRow:
    state = LedgerState.DONE if is_open else LedgerState.WRITING
    at = NOON if is_open else None
    return LedgerRow(ledger_no=1, ledger_id="may", state=state, accepted=accepted, linked=linked, opened_at=at)


@pytest.mark.parametrize(
    ("row", "is_any_open", "expected"),
    [
        (ledger(3, 3), False, True),
        (ledger(3, 3), True, False),
        (ledger(0, 0), False, True),
        (ledger(0, 0, is_open=False), False, False),
        (ledger(3, 3, is_open=False), True, False),
        (ledger(3, 0), False, None),
        (ledger(3, 2), False, None),
        (ledger(3, 2), True, False),
    ],
    ids=["ended", "one is open", "empty", "empty, not opened", "not opened", "of before", "partly of before", "open"],
)
def test_all_tasks_of_a_ledger_have_ended_when_it_is_opened_and_none_of_those_it_knows_is_open(
    row: LedgerRow, is_any_open: bool, expected: bool | None
) -> None:
    assert have_all_ended(row, is_any_open=is_any_open) is expected
