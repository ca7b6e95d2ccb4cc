"""What the doctor, a task's explanation and its history say of a breaker: who is down, since when, what to type."""

import msgspec
import pytest
from core_rows import NOW as NOON
from core_rows import step_row

from arriero.events import HistoryNames
from arriero.events.store import (
    AgentPaused,
    AgentResumed,
    BreakerAnswered,
    BreakerClosed,
    BreakerOpened,
    BreakerProbed,
    BreakerProbeEnded,
    EventOfBreaker,
)
from arriero.explain.agents import describe_wait_behind_breaker, diagnose_breakers
from arriero.inspection.attempts import Requests
from arriero.model import Instant, later
from arriero.model.agents import BreakerRow, BreakerState

NOW = Instant(later(Instant(NOON), 300))
OPEN = BreakerRow(
    app="shop",
    agent="bank",
    state=BreakerState.OPEN,
    fence=1,
    policy='{"cool_off":10}',
    changed_at=Instant(NOON),
    opened_at=Instant(NOON),
    probe_at=later(NOW, 4),
    reason="20 of 20 calls failed in 30 s: connection refused",
)
PAUSED = BreakerRow(
    app="shop", agent="bank", paused_at=Instant(NOON), paused_by="ana", pause_reason="they move their data centre"
)
WAITING = (Requests(agent="bank", due=312, oldest_at=Instant(NOON), later=3, running=0),)


def test_the_doctor_names_the_service_that_is_down_since_when_and_how_much_waits() -> None:
    (finding,), down = diagnose_breakers([OPEN], WAITING, NOW)
    assert finding.level == "care"
    assert finding.says.startswith("Agent bank gets no calls since ")
    assert "(5 min ago)" in finding.says
    assert "20 of 20 calls failed in 30 s: connection refused" in finding.says
    assert "the next canary goes in 4 s" in finding.says
    assert "315 requests of it wait and spend no attempt" in finding.says
    assert finding.remedy.endswith("arriero agent show bank")
    assert down == {"bank"}


def test_a_service_whose_first_canary_was_answered_needs_nobody() -> None:
    row = msgspec.structs.replace(OPEN, state=BreakerState.HALF_OPEN, ramp_from=NOW, wave=2, granted=1)
    (finding,), _ = diagnose_breakers([row], WAITING, NOW)
    assert finding.level == "information"
    assert "canaries find out if it is healthy again" in finding.says


def test_a_closed_breaker_is_no_finding() -> None:
    assert diagnose_breakers([BreakerRow(app="", agent="bank")], WAITING, NOW) == ([], frozenset())


def test_a_paused_agent_with_requests_needs_care_and_names_who_paused_it() -> None:
    (finding,), down = diagnose_breakers([PAUSED], WAITING, NOW)
    assert finding.level == "care"
    assert "paused since" in finding.says
    assert 'by ana: "they move their data centre"' in finding.says
    assert finding.remedy == "arriero agent resume bank --reason TEXT"
    assert down == frozenset()
    (idle,), _ = diagnose_breakers([PAUSED], (), NOW)
    assert idle.level == "information"


def test_a_target_s_finding_names_it_in_the_remedy_and_counts_all_that_its_agent_has() -> None:
    row = msgspec.structs.replace(PAUSED, target="north bank")
    (finding,), _ = diagnose_breakers([row], WAITING, NOW)
    assert finding.remedy == "arriero agent resume bank --target 'north bank' --reason TEXT"
    assert finding.says.startswith("Agent bank[north bank] is paused since")
    assert finding.says.endswith("315 requests of all its targets wait")


def test_a_step_waits_behind_its_own_breaker_and_its_paused_agent_only() -> None:
    step = step_row(agent="bank", app="shop")
    assert "gets no calls since" in describe_wait_behind_breaker(step, [OPEN], NOW)
    assert "go first" not in describe_wait_behind_breaker(step, [OPEN], NOW)
    failed = step_row(agent="bank", app="shop", canary=0)
    assert "so requests that have not failed go first" in describe_wait_behind_breaker(failed, [OPEN], NOW)
    assert "is paused since" in describe_wait_behind_breaker(step, [PAUSED], NOW)
    assert describe_wait_behind_breaker(step_row(agent="stock", app="shop"), [OPEN, PAUSED], NOW) == ""
    assert describe_wait_behind_breaker(step_row(agent="bank", app="another"), [OPEN, PAUSED], NOW) == ""
    assert describe_wait_behind_breaker(step_row(agent="bank", app="shop", target="x"), [OPEN], NOW) == ""
    targets = [
        msgspec.structs.replace(PAUSED, target=target, paused_by=by) for target, by in (("n", "ana"), ("s", "ben"))
    ]
    of_south = step_row(agent="bank", app="shop", target="s")
    assert "Agent bank[s] is paused since" in describe_wait_behind_breaker(of_south, targets, NOW)
    by_hand = msgspec.structs.replace(OPEN, probe_at=None, opened_by="ana")
    assert "no call is made until an operator closes it" in describe_wait_behind_breaker(of_south, [by_hand], NOW)


_NAME = ("bank", 3, "shop", "")


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            BreakerOpened(*_NAME, reason="all failed", probe_at=Instant(NOON)),
            "it opened: all failed; a canary may go from",
        ),
        (BreakerOpened(*_NAME, reason="they move", by="ana"), 'ana opened it: "they move"'),
        (
            BreakerProbed(*_NAME, task=7, step=2, step_fence=1, wave=4, number=3),
            "canary 3 of 4 went: task number 7, step 2",
        ),
        (BreakerProbeEnded(*_NAME, probe_fence=3), "the probe says that the service is healthy"),
        (BreakerProbeEnded(*_NAME, probe_fence=3, failure="refused"), "the probe failed: refused"),
        (BreakerAnswered(*_NAME, task=7, step=2, step_fence=1, outcome="lost"), "the canary of task number 7 was lost"),
        (BreakerClosed(*_NAME), "it closed: the service is healthy again"),
        (BreakerClosed(*_NAME, by="ana", reason="they called"), 'ana closed it: "they called"'),
        (AgentPaused(*_NAME, by="ana", reason="a move"), 'ana paused it: "a move"'),
        (AgentResumed(*_NAME, by="ana", reason="moved"), 'ana resumed it: "moved"'),
    ],
)
def test_each_event_has_its_sentence(event: EventOfBreaker, said: str) -> None:
    assert said in event.describe(HistoryNames())
