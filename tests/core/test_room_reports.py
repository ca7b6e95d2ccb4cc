"""What processes report of the Agents that they host, and what others make of it."""

import msgspec
from core_rows import NOW

from arriero.core.routing import AgentReport, HeldRetries, SurveyedAgent, encode_reports, read_reports, survey_hosts
from arriero.model import later
from arriero.model.processes import ProcessAbout, ProcessRow

ABOUT = ProcessAbout(app="shop", roles=("agents",), steps=(("payments", "charge"), ("payments", "refund")))


def process(number: int = 1, about: ProcessAbout = ABOUT, room: str = "", lease: float = 3) -> ProcessRow:
    text = msgspec.json.encode(about).decode()
    return ProcessRow(number, f"p{number}", later(NOW, lease), False, text, room)


def room(free: int, **changes: object) -> str:
    return encode_reports({"payments": msgspec.structs.replace(AgentReport(free, 10), **changes)})


def test_reports_are_read_as_they_were_written_and_none_is_an_empty_text() -> None:
    reports = {"payments": AgentReport(3, 10, 0.25, True), "stock": AgentReport(0, 1)}
    assert read_reports(process(room=encode_reports(reports))) == reports
    assert encode_reports({}) == ""
    assert read_reports(process()) == {}
    assert read_reports(process(room="[of a release to come]")) == {}


def test_reports_of_builds_that_said_less_or_say_more_are_read() -> None:
    assert read_reports(process(room='{"payments":[3,10,0.25,true,0]}')) == {"payments": AgentReport(3, 10, 0.25, True)}
    held = AgentReport(3, 10, held=HeldRetries(0.2, leaves_attempts=True, tries=4))
    assert read_reports(process(room='{"payments":[3,10,1,false,0,[0.2,true,4,"more"],"more"]}')) == {"payments": held}


def test_places_add_up_and_the_process_that_sees_most_trouble_counts() -> None:
    found = survey_hosts(
        [process(1, room=room(3)), process(2, room=room(0, health=0.2, is_barred=True)), process(3)], NOW, "shop"
    )
    assert found == {"payments": SurveyedAgent(frozenset({"charge", "refund"}), 3, 20, 0.2, True)}


def test_who_has_not_reported_may_have_room() -> None:
    (hosted,) = survey_hosts([process()], NOW, "shop").values()
    assert hosted.has_room
    (full,) = survey_hosts([process(room=room(0))], NOW, "shop").values()
    assert not full.has_room


def test_who_is_dead_drains_or_is_of_another_app_hosts_nothing() -> None:
    leaving = msgspec.structs.replace(ABOUT, leaving=True)
    other = msgspec.structs.replace(ABOUT, app="other")
    schedules = msgspec.structs.replace(ABOUT, roles=("scheduler",))
    for one in (process(lease=-1), process(about=leaving), process(about=other), process(about=schedules)):
        assert survey_hosts([one], NOW, "shop") == {}
    assert survey_hosts([process(about=other)], NOW, "") != {}
