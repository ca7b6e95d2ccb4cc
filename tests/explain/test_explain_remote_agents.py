"""What people are told of a request that waits for a program outside of Python."""

import msgspec
from core_rows import NOW, loaded, step_row

from arriero.core.routing import AgentReport, encode_reports
from arriero.explain.outages import diagnose_attempts
from arriero.explain.requests import NOBODY_ASKS
from arriero.explain.task import explain
from arriero.inspection.attempts import AttemptSurvey, Requests
from arriero.model import Instant, StepState, later
from arriero.model.processes import ProcessAbout, ProcessRow

FAR_PAST = later(NOW, -600)


def process(number: int, *roles: str, report: AgentReport | None = None) -> ProcessRow:
    steps = (("shipping", "step1"),) if "http" in roles else ()
    about = ProcessAbout(app="shop", roles=roles, workflows=("fulfil",), steps=steps, pulled=("shipping",))
    room = "" if report is None else encode_reports({"shipping": report})
    text = msgspec.json.encode(about).decode()
    return ProcessRow(number, f"host-{number}-abcdef012345", later(NOW, 90), False, text, room)


def said(*processes: ProcessRow) -> str:
    step = step_row(1, agent="shipping", state=StepState.PENDING, not_before=FAR_PAST, taken=False)
    task = loaded(step, locked_by=None, not_before=None)
    return next(reason.says for reason in explain(task, NOW, processes).reasons if reason.kind == "untaken")


def test_without_a_process_that_gives_requests_out_the_remedy_is_told() -> None:
    told = said(process(1, "scheduler", "agents", "supervisor"))
    assert "no process alive gives requests out; run a process with the role http" in told


def test_that_no_program_has_asked_is_told_with_the_time_of_the_last_one() -> None:
    assert "none has asked for requests of Agent shipping at process 1" in said(
        process(1, "http", report=AgentReport(0, 0))
    )
    asked = AgentReport(0, 0, asked_at=later(Instant(NOW), -90))
    assert "at process 1 (host-1-abcd) since 1970-01-12 13:45:10Z" in said(process(1, "http", report=asked))


def test_that_programs_ask_or_are_at_work_is_told() -> None:
    assert "gets it at any moment" in said(process(1, "http", report=AgentReport(2, 2)))
    assert "are at work, and none asks for more" in said(process(1, "http", report=AgentReport(0, 3)))


def test_a_program_that_asks_again_and_again_without_waiting_is_seen_as_asking() -> None:
    report = AgentReport(0, 0, asked_at=later(Instant(NOW), -5))
    told = said(process(1, "http", report=report))
    assert "programs ask for requests of Agent shipping" in told
    assert NOBODY_ASKS not in told


def test_requests_that_programs_do_not_take_in_time_are_no_matter_of_max_in_flight_or_of_hosting_processes() -> None:
    waiting = Requests(agent="shipping", due=7, oldest_at=FAR_PAST, running=3)
    survey = AttemptSurvey(now=NOW, retrying=(), requests=(waiting,), ends=(), ends_from=None)
    for process_row, says in (
        (process(1, "http", report=AgentReport(0, 3)), "are at work, and none asks for more"),
        (process(1, "http"), "none has asked for requests of Agent shipping"),
        (process(1, "scheduler"), "no process alive gives requests out"),
    ):
        (found,) = [one for one in diagnose_attempts(survey, [process_row]) if one.about == "starved"]
        assert says in found.says
        assert "max_in_flight" not in found.remedy
        assert "--agents" not in found.remedy
