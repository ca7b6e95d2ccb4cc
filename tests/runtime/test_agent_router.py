"""The router of one process: what it makes of its own places and breakers, and of what others report."""

from collections import Counter
from typing import Any

import msgspec
import pytest

from arriero import Agent, Breaker
from arriero.core.routing import INTERCHANGEABLE, PINNED, AgentReport, encode_reports, survey_hosts
from arriero.model import Instant, StepKind, later
from arriero.model.agents import BreakerRow, BreakerState
from arriero.model.moves import NewStep
from arriero.model.processes import ProcessAbout, ProcessRow
from arriero.runtime.agent_router import SIBLING_SECONDS, AgentRouter
from arriero.runtime.call_monitor import CallCounter, CallWindow, EndedCall
from arriero.runtime.hosted_agent import HostedAgent
from arriero.runtime.process_context import ProcessContext
from arriero.runtime.settings import Settings

NOW = Instant(1_700_000_000_000_000)
POLICY = Breaker(minimum=4)
NEW = NewStep(kind=StepKind.STEP, name="charge", key="#1", agent="payments")


class Routing:
    def __init__(self, *hosted: str) -> None:
        self.payments = Agent("payments", breaker=POLICY)
        self.eu = Agent("payments-eu", provides=self.payments, breaker=POLICY)
        both = {agent.name: agent for agent in (self.payments, self.eu)}
        self.others: tuple[ProcessRow, ...] = ()
        self.at = 0.0
        self.asked: list[str] = []
        common: Any = {"store": self, "ports": self, "committer": None, "settings": Settings()}
        self.clock = self
        context = ProcessContext(**common, actor="here", app="shop")
        self.hosted = {
            name: HostedAgent(
                both[name],
                context,
                CallCounter("shop", 1),
                take_soon=self._take,
                take_in_next_turn=lambda _: self._take(),
            )
            for name in hosted
        }
        groups = {"payments": (self.payments, self.eu)}
        self.router = AgentRouter(context, self.hosted, groups, lambda: self.others)

    # the store and the clock
    def now(self) -> Instant:
        return later(NOW, self.at)

    def monotonic(self) -> float:
        return self.at

    def _take(self) -> None:
        """A Take, which finds nothing."""
        for hosted in self.hosted.values():
            if hosted.has_backlog:
                self.asked.append(hosted.name)
                hosted.has_backlog = False

    # what happens
    def use(self, agent: str, places: int) -> None:
        self.hosted[agent].used = self.hosted[agent].used_by_others = places

    def routed(self, count: int, **changes: Any) -> dict[str, int]:
        new = msgspec.structs.replace(NEW, **changes)
        return dict(Counter(self.router.route(new, 5).agent for _ in range(count)))

    def hosted_elsewhere(self, agent: str, **report: Any) -> None:
        about = ProcessAbout(app="shop", roles=("agents",), steps=((agent, "charge"),))
        room = encode_reports({agent: msgspec.structs.replace(AgentReport(3, 10), **report)}) if report else ""
        self.others += (
            ProcessRow(9, "other", later(NOW, 100), False, msgspec.json.encode(about).decode(), room),
        )  # another tuple, as of another renewal

    def know(self, agent: str, **fields: Any) -> None:
        row = BreakerRow(app="shop", agent=agent, policy=msgspec.json.encode(POLICY).decode(), **fields)
        self.hosted[agent].breakers.known["shop", agent, row.target] = row


@pytest.fixture
def both() -> Routing:
    return Routing("payments", "payments-eu")


def test_what_is_routed_is_pinned_unless_it_is_interchangeable(both: Routing) -> None:
    assert both.router.route(NEW, 5).routing == PINNED
    assert both.router.route(msgspec.structs.replace(NEW, routing=INTERCHANGEABLE), 5).routing == INTERCHANGEABLE


def test_a_step_that_must_stay_and_a_compensation_are_not_routed(both: Routing) -> None:
    for changes in ({"routing": PINNED}, {"kind": StepKind.COMPENSATION}):
        assert both.routed(4, **changes) == {"payments": 4}


def test_an_agent_that_nobody_hosts_gets_nothing_until_somebody_does() -> None:
    routing = Routing("payments")
    assert routing.routed(4) == {"payments": 4}
    routing.hosted_elsewhere("payments-eu")
    assert routing.routed(4) == {"payments": 2, "payments-eu": 2}


def test_room_elsewhere_counts_as_room() -> None:
    routing = Routing("payments")
    routing.use("payments", 10)
    routing.hosted_elsewhere("payments-eu", free=1)
    assert routing.routed(4) == {"payments-eu": 4}
    routing.others = ()
    routing.hosted_elsewhere("payments-eu", free=0)
    assert routing.routed(4) == {"payments": 2, "payments-eu": 2}, "nobody has room: what waits is shared"


def test_an_agent_that_its_hosts_call_down_gets_few(both: Routing) -> None:
    routing = Routing()
    routing.hosted_elsewhere("payments")
    routing.hosted_elsewhere("payments-eu", is_barred=True)
    assert routing.routed(21) == {"payments": 20, "payments-eu": 1}


def test_failed_calls_lower_the_share(both: Routing) -> None:
    window = both.hosted["payments-eu"].breakers.windows["shop", "payments-eu", ""] = CallWindow(POLICY)
    for end in ("succeeded", "succeeded", "succeeded", "transient"):
        window.add(EndedCall(end, 0.1), NOW, 1)
    assert both.routed(30) == {"payments": 20, "payments-eu": 10}
    both.at = 60.0
    assert both.routed(30) == {"payments": 15, "payments-eu": 15}, "the calls have left the window"


def test_an_open_breaker_gets_one_canary_when_its_time_has_come(both: Routing) -> None:
    both.know("payments-eu", state=BreakerState.OPEN, probe_at=later(NOW, 10))
    assert both.routed(4) == {"payments": 4}
    both.at = 10.0
    assert both.routed(4) == {"payments": 3, "payments-eu": 1}
    assert both.routed(4) == {"payments": 4}
    both.know("payments-eu", state=BreakerState.OPEN, probe_at=later(NOW, 10))  # told anew: it was not granted
    assert both.routed(4) == {"payments": 3, "payments-eu": 1}


def test_a_half_open_breaker_gets_what_is_left_of_its_wave(both: Routing) -> None:
    both.know("payments-eu", state=BreakerState.HALF_OPEN, wave=4, granted=1, ramp_from=NOW)
    assert both.routed(9) == {"payments": 6, "payments-eu": 3}


def test_a_breaker_of_one_target_keeps_only_its_requests_away(both: Routing) -> None:
    both.know("payments-eu", target="bank-a", state=BreakerState.OPEN, probe_at=None)
    assert both.routed(4, target="bank-a") == {"payments": 4}
    assert both.routed(4, target="bank-b") == {"payments": 2, "payments-eu": 2}
    assert not both.router.report_room()["payments-eu"].is_barred


def test_while_an_agent_is_avoided_its_breaker_is_looked_at_now_and_then(both: Routing) -> None:
    both.know("payments-eu", paused_at=NOW)
    both.routed(4)
    assert both.asked == ["payments-eu"]
    both.at = 1.0
    both.routed(4)
    assert both.asked == ["payments-eu"] * 2


def test_a_process_reports_its_places_and_none_while_it_drains(both: Routing) -> None:
    both.use("payments", 10)
    both.use("payments-eu", 3)
    assert both.router.report_room() == {"payments": AgentReport(0, 10), "payments-eu": AgentReport(7, 10)}
    for hosted in both.hosted.values():
        hosted.is_taking = False
    assert [report.free for report in both.router.report_room().values()] == [0, 0]
    assert both.routed(2) == {"payments": 1, "payments-eu": 1}, "nobody takes anything: it waits for either"


def test_requests_of_siblings_are_asked_for_once_in_a_while() -> None:
    routing = Routing("payments-eu")
    assert routing.router.add_siblings(("payments-eu",)) == ("payments-eu", "payments")
    assert routing.router.add_siblings(("payments-eu",)) == ("payments-eu",)
    routing.at = SIBLING_SECONDS
    assert routing.router.add_siblings(("payments-eu",)) == ("payments-eu", "payments")


def test_a_step_whose_callbacks_need_a_url_goes_where_a_process_has_one(both: Routing) -> None:
    both.hosted["payments"].without_url = frozenset({"charge"})
    assert both.routed(4) == {"payments-eu": 4}
    both.hosted_elsewhere("payments", free=3)
    assert both.routed(4) == {"payments": 2, "payments-eu": 2}


def test_a_process_without_a_url_counts_as_none_for_steps_that_take_callbacks() -> None:
    about = ProcessAbout(
        app="shop", roles=("agents",), steps=(("payments", "charge"),), without_url=(("payments", "charge"),)
    )
    process = ProcessRow(9, "other", later(NOW, 100), False, msgspec.json.encode(about).decode())
    assert survey_hosts([process], NOW, "shop")["payments"].steps == frozenset()
