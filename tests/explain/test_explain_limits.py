"""Why a request waits for a limit of its Agent, and what the doctor says of limits that are full."""

import msgspec
from core_rows import step_row

from arriero.explain.agents import describe_wait_for_limit, diagnose_limits
from arriero.inspection.attempts import Requests
from arriero.model import Instant, StepRow, StepState, later
from arriero.model.agents import AgentLimitsRow, LimitPolicy, LimitsInUse, RateRow, encode_limit_keys, encode_limits
from arriero.model.processes import ProcessAbout, ProcessRow

NOW = Instant(100_000_000)
RATE = LimitPolicy(name="calls", kind="rate", most=1, per=60.0, is_keyed=True)
ONE = LimitPolicy(name="at once", kind="concurrent", most=1, is_keyed=True)
KEYS = encode_limit_keys({"calls": "b", "at once": "b"})


def waiting() -> StepRow:
    return step_row(
        1, agent="payments", app="shop", state=StepState.PENDING, not_before=NOW, limit_keys=KEYS, complete_by=None
    )


def begun(key: str, seconds_ago: float) -> RateRow:
    at = later(NOW, -seconds_ago)
    return RateRow(app="shop", agent="payments", name="calls", key=key, begun=f"[[{at},1]]", until=later(at, RATE.per))


def said(*rates: RateRow, running: int = 0) -> str:
    row = AgentLimitsRow(app="shop", agent="payments", limits=encode_limits((RATE, ONE)))
    in_use = LimitsInUse(row, ((KEYS, running),), rates, NOW)
    return describe_wait_for_limit(waiting(), [in_use], NOW)


def test_a_request_is_not_told_when_the_rate_of_another_key_lets_a_call_through() -> None:
    assert "1 of 1 in use of 'b'; waiting" in said(begun("a", 10), running=1)


def test_a_request_is_told_when_the_rate_of_its_own_key_lets_the_next_call_through() -> None:
    assert "1 of 1 calls in 60 s of 'b'; the next call may begin in 50 s" in said(begun("a", 40), begun("b", 10))


def diagnosed(running: tuple[tuple[str, int], ...], due: int = 4) -> list[str]:
    row = AgentLimitsRow(app="shop", agent="payments", limits=encode_limits((ONE,)))
    found = diagnose_limits([LimitsInUse(row, running, (), NOW)], [], [Requests(agent="payments", due=due)], NOW)
    return [finding.says for finding in found]


def test_the_doctor_tells_of_requests_that_wait_for_the_room_of_their_keys() -> None:
    running = tuple((encode_limit_keys({"at once": key}), 1) for key in "abcd")
    (says,) = diagnosed(running)
    assert says == (
        "4 requests for Agent payments due, and there is no room: 1 of 1 in use of 'a'; 1 of 1 in use of 'b'; "
        "1 of 1 in use of 'c'; and 1 other. What waits for room spends no attempt"
    )


def test_the_doctor_says_nothing_of_limits_with_room_or_without_requests() -> None:
    assert diagnosed(()) == []
    assert diagnosed(((KEYS, 1),), due=0) == []


def declared(number: int, *limits: LimitPolicy) -> ProcessRow:
    """A process alive that hosts the Agent with these limits."""
    about = ProcessAbout(
        app="shop",
        roles=("agents",),
        steps=(("payments", "charge"),),
        limits={"payments": encode_limits(limits)} if limits else {},
    )
    return ProcessRow(number, f"p{number}", later(NOW, 3), False, msgspec.json.encode(about).decode())


def test_the_doctor_names_a_process_that_declares_other_limits_than_those_that_hold() -> None:
    fifty = LimitPolicy(name="concurrent", kind="concurrent", most=50)
    row = AgentLimitsRow(app="shop", agent="payments", limits=encode_limits((fifty,)), process_no=2)
    use = LimitsInUse(row, (), (), NOW)
    assert diagnose_limits([use], [declared(2, fifty)], [], NOW) == []
    (finding,) = diagnose_limits([use], [declared(1), declared(2, fifty)], [], NOW)
    assert finding.level == "care"
    assert "process 1" in finding.says
    assert "declares other limits of Agent payments (no limits) than process 2" in finding.says
    assert "concurrent 50. The newest hold for all" in finding.says
