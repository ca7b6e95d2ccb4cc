"""Stand-ins of shared rows that cannot be read, and the descriptions of those rows."""

import pytest

from arriero.core.alerts import build_alert, describe_shared_row, encode_alert, format_alert_line
from arriero.core.breaker_verbs import operate_agent
from arriero.core.lease import TERM_UNKNOWN, grant_lease
from arriero.core.limits import LimitBook, compute_next_at
from arriero.core.stand_ins import (
    LIMITS_UNKNOWN,
    LOOK_SECONDS,
    is_stand_in,
    stand_in,
)
from arriero.errors import UnreadableRow
from arriero.model import MICROSECONDS, Instant, later
from arriero.model.agents import (
    AgentLimitsRow,
    AgentVerb,
    BreakerRow,
    BreakerState,
    LimitPolicy,
    RateRow,
    encode_limits,
)
from arriero.model.answers import Refusal
from arriero.model.commands import OperateAgent
from arriero.model.leases import LeaseRow
from arriero.store.quarantine import alert

NOW = Instant(1_700_000_000 * MICROSECONDS)
BREAKER = BreakerRow(app="shop", agent="bank", state=BreakerState.HALF_OPEN, fence=4, probe_at=NOW)


def breaker(row: BreakerRow = BREAKER, column: str = "state") -> BreakerRow:
    found = stand_in(row, column, "column state of table breaker")
    assert isinstance(found, BreakerRow)
    return found


def operate(verb: AgentVerb) -> OperateAgent:
    return OperateAgent(actor="c", app="shop", agent="bank", target="", by="ana", reason="test", verb=verb)


def test_a_breaker_is_closed_by_two_events_because_the_history_may_not_know_that_it_was_open() -> None:
    change = operate_agent(operate(AgentVerb.CLOSE), breaker(), NOW)
    assert not isinstance(change, Refusal)
    assert [(event.type, event.fence) for event in change.events] == [("breaker.opened", 5), ("breaker.closed", 6)]  # type: ignore[attr-defined]
    assert (change.row.state, change.row.fence) == (BreakerState.CLOSED, 6)


def test_a_breaker_can_be_opened_by_a_person_and_stands_in_for_nothing_then() -> None:
    assert is_stand_in(breaker())
    change = operate_agent(operate(AgentVerb.OPEN), breaker(), NOW)
    assert not isinstance(change, Refusal)
    assert not is_stand_in(change.row)


def test_a_term_that_nobody_knows_is_followed_by_one_above_all_of_its_epoch() -> None:
    unknown = LeaseRow("supervisor", TERM_UNKNOWN, None, Instant(0))
    granted = grant_lease(unknown, 1, NOW, 6.0, first_term=1 << 32)
    assert granted is not None
    assert granted.term == (1 << 32) + 1_700_000_000
    following = grant_lease(unknown, 1, later(NOW, 7.0), 6.0, first_term=1 << 32)
    assert following is not None
    assert following.term > granted.term


def test_limits_have_no_room_and_are_asked_for_again_soon() -> None:
    row = stand_in(AgentLimitsRow(app="shop", agent="bank", limits="[]"), "limits", "")
    assert isinstance(row, AgentLimitsRow)
    book = LimitBook(row, [(None, 3)], NOW)
    book.keep_rates([""], [])
    assert (row.limits, book.count_common_room()) == (LIMITS_UNKNOWN, 0)
    assert book.compute_next_at() == later(NOW, LOOK_SECONDS)
    assert compute_next_at((), 0, 5.0, NOW) == later(NOW, 5.0)


@pytest.mark.parametrize(("until", "next_at"), [(later(NOW, 20.0), 20.0), (later(NOW, 10_000.0), 60.0)])
def test_a_rate_is_used_up_until_its_row_says_nothing_and_a_window_at_most(until: Instant, next_at: float) -> None:
    limits = encode_limits((LimitPolicy(name="calls", kind="rate", most=5, per=60.0, is_keyed=True),))
    book = LimitBook(AgentLimitsRow(app="shop", agent="bank", limits=limits), [], NOW)
    rate = stand_in(RateRow(app="shop", agent="bank", name="calls", key="k", begun="[]", until=until), "begun", "")
    assert isinstance(rate, RateRow)
    book.keep_rates(["k"], [rate])
    assert book.count_room('{"calls":"k"}') == 0
    assert book.compute_next_at() == later(NOW, next_at)


@pytest.mark.parametrize(
    ("name", "says", "remedy"),
    [
        (
            'breaker ["shop","bank","m 7"]',
            "the breaker of Agent bank[m 7] of App shop",
            "arriero agent close bank --target 'm 7' --app-name shop --reason TEXT",
        ),
        (
            'agent_limits ["shop","bank"]',
            "the limits of Agent bank of App shop",
            "correct that column, or restart a process of App shop",
        ),
        ('rate ["shop","bank","calls","k"]', "the calls of limit calls, key k, of Agent bank", "correct that column"),
        ('lease ["nightly"]', "lease nightly", "arriero lease break nightly --at-once --reason TEXT"),
        ('lease ["supervisor"]', "the Supervisors' lease", ""),
        ("convoy [3]", "convoy number 3", "correct that column"),
        ("who knows", "row who knows", "correct that column"),
        ('newer ["a"]', 'row newer ["a"]', "correct that column"),
    ],
)
def test_a_row_is_described_with_its_next_command(name: str, says: str, remedy: str) -> None:
    found = describe_shared_row(name)
    assert found.what.startswith(says)
    assert found.remedy.startswith(remedy)


def test_the_alert_of_a_shared_row_says_what_waits_and_what_to_do() -> None:
    error = UnreadableRow("column state of table breaker", table="breaker", column="state", row='breaker ["s","b",""]')
    opened = build_alert(alert(error, 0, "", "", 0, NOW), "store")
    line = format_alert_line(opened)
    assert line.startswith("the breaker of Agent b of App s: it cannot be read: column state of table breaker")
    assert "its requests wait" in line
    assert line.endswith("next: arriero agent close b --app-name s --reason TEXT")
    assert b'"type":"row.alert.opened"' in encode_alert(opened)
