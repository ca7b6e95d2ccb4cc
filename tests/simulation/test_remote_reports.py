"""The audit of remote reports convicts each way in which a report could count without the capability of its attempt."""

from typing import Any

import msgspec
import pytest

from arriero.events.base import HistoryEvent
from arriero.events.step import StepDispatched, StepOpened, StepRecorded, StepReport
from arriero.model import HistoryRow, Instant
from lab.simulation.remote_reports import (
    ACKNOWLEDGED,
    NOBODY_KNOWS,
    REFUSALS,
    AttemptName,
    Delivery,
    SentReport,
    judge_remote_reports,
)

AGENT = "outside"
HOLDER, OTHER = 7, 8
FIRST = AttemptName("t-1", "key", 1, 1)
SECOND = AttemptName("t-1", "key", 2, 3)


def opened(agent: str = AGENT) -> StepOpened:
    return StepOpened(step=1, kind="step", name="book", key="#1", agent=agent, idempotency_key="key")


def dispatched(name: AttemptName) -> StepDispatched:
    return StepDispatched(
        step=1, attempt=name.attempt, fence=name.fence, complete_by=Instant(90), process=1, key=name.key
    )


def counted(name: AttemptName, result: str = "r", verdict: str = "applied") -> StepReport:
    return StepReport(step=1, fence=name.fence, verdict=verdict, outcome="succeeded", result=result)


RECORDED = StepRecorded(step=1, number=1, result="r")


def history(*commits: list[HistoryEvent]) -> list[HistoryRow]:
    rows = [msgspec.Raw(msgspec.json.encode(events)) for events in commits]
    return [HistoryRow(no, 1, "t-1", no, Instant(10 * no), "p", events, "") for no, events in enumerate(rows, 1)]


def sent(name: AttemptName = FIRST, **changes: Any) -> SentReport:
    fields: dict[str, Any] = {"program": HOLDER, "result": "r", "at": Instant(25), "complete_by": Instant(90)}
    return SentReport(name=name, **({**fields, "answer": ACKNOWLEDGED} | changes))


GIVEN = [Delivery(FIRST, HOLDER, Instant(21))]
ASKED = [[opened()], [dispatched(FIRST)]]
HONEST = history(*ASKED, [counted(FIRST), RECORDED])


def test_a_report_of_the_holder_that_counted_once_is_right_however_often_it_was_sent() -> None:
    again = [sent(answer="report-duplicate", at=Instant(40)), sent(answer=NOBODY_KNOWS)]
    assert judge_remote_reports(HONEST, AGENT, GIVEN, [sent(), *again]) == []


def test_a_report_whose_answer_was_lost_may_have_counted_or_not() -> None:
    unanswered = sent(answer=NOBODY_KNOWS)
    assert judge_remote_reports(HONEST, AGENT, GIVEN, [unanswered]) == []
    assert judge_remote_reports(history(*ASKED), AGENT, GIVEN, [unanswered]) == []


def test_steps_of_other_agents_are_not_judged() -> None:
    rows = history([opened("left")], [dispatched(FIRST)], [counted(FIRST), RECORDED])
    assert judge_remote_reports(rows, AGENT, [], []) == []


@pytest.mark.parametrize(
    ("rows", "given", "reports", "says"),
    [
        (HONEST, GIVEN, [], "no holder"),
        (HONEST, [], [sent()], "no holder"),
        (HONEST, [Delivery(FIRST, OTHER, Instant(21))], [sent()], "no holder"),
        (HONEST, [Delivery(FIRST, HOLDER, Instant(26))], [sent()], "no holder"),
        (HONEST, GIVEN, [sent(SECOND, answer=NOBODY_KNOWS)], "no holder"),
        (HONEST, GIVEN, [sent(result="other", answer="report-stale")], "no holder"),
        (HONEST, GIVEN, [sent(at=Instant(31), answer=NOBODY_KNOWS)], "no holder"),
        (HONEST, GIVEN, [sent(), sent()], "2 reports were acknowledged"),
        (history(*ASKED), GIVEN, [sent()], "is not in the history"),
        (history(*ASKED, [counted(FIRST, verdict="late")]), GIVEN, [sent()], "is not in the history"),
        (history(*ASKED), GIVEN, [sent(answer="report-duplicate")], "called a duplicate"),
        (history(*ASKED, [counted(FIRST), RECORDED], [counted(FIRST)]), GIVEN, [sent()], "2 reports counted"),
        (history(*ASKED, [RECORDED]), GIVEN, [], "nobody reported"),
        (HONEST, [*GIVEN, *GIVEN], [sent()], "given out 2 times"),
        (HONEST, GIVEN, [sent(complete_by=Instant(25))], "after its deadline"),
    ],
)
def test_a_report_that_counted_without_a_right_is_found(
    rows: list[HistoryRow], given: list[Delivery], reports: list[SentReport], says: str
) -> None:
    found = judge_remote_reports(rows, AGENT, given, reports)
    assert found
    assert all(says in violation.detail for violation in found)


@pytest.mark.parametrize("trick", REFUSALS)
def test_a_trick_must_be_refused_for_what_it_is(trick: str) -> None:
    def judge(answer: str) -> list[str]:
        tried = sent(program=OTHER, result="tricked", trick=trick, answer=answer)
        return [found.detail for found in judge_remote_reports(HONEST, AGENT, GIVEN, [sent(), tried])]

    for code in (*REFUSALS[trick], NOBODY_KNOWS, "report-unanswered"):
        assert judge(code) == []
    assert any("was answered with result-invalid" in said for said in judge("result-invalid"))
    assert any("acknowledged" in said for said in judge(ACKNOWLEDGED))


@pytest.mark.parametrize(
    ("trick", "name"), [("capability_forged", FIRST), ("capability_outdated", SECOND), ("report_replayed", SECOND)]
)
def test_a_trick_that_counted_is_found_although_it_was_called_refused(trick: str, name: AttemptName) -> None:
    rows = history([opened()], [dispatched(FIRST)], [dispatched(SECOND)], [counted(name, "tricked"), RECORDED])
    given = [Delivery(FIRST, HOLDER, Instant(21)), Delivery(SECOND, HOLDER, Instant(31))]
    tried = sent(FIRST, program=HOLDER, result="tricked", trick=trick, answer=min(REFUSALS[trick]))
    assert any("no holder" in found.detail for found in judge_remote_reports(rows, AGENT, given, [tried]))


def test_a_capability_that_is_none_leaves_not_even_a_refused_report_in_the_history() -> None:
    rows = history(*ASKED, [counted(FIRST, "tricked", verdict="stale")])
    tried = sent(result="tricked", trick="capability_forged", answer="capability-invalid")
    (found,) = judge_remote_reports(rows, AGENT, GIVEN, [tried])
    assert (found.invariant, "left a trace" in found.detail) == ("I60", True)
