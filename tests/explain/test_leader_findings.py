"""What the doctor says of who leads the Supervisors, and of those that led before."""

from test_doctor import NOW, ago, process, survey

from arriero.explain.doctor_server import diagnose_leader
from arriero.model import Instant
from arriero.model.processes import LeaderSurvey

LEADER = LeaderSurvey(NOW, "host-7-ab", 12, ago(65), Instant(NOW + 4_200_000))
NEVER = (0, None)


def test_the_leader_is_named_with_its_term_since_when_and_until_when() -> None:
    (finding,) = diagnose_leader(LEADER, NEVER, survey())
    assert (finding.level, finding.about) == ("fine", "leader")
    assert finding.says.startswith("host-7-ab leads the Supervisors under term 12 since ")
    assert finding.says.endswith("; its lease lapses in 4.2 s unless it renews")


def test_that_nobody_leads_is_told_only_while_a_supervisor_is_alive() -> None:
    (finding,) = diagnose_leader(None, NEVER, survey())
    assert (finding.level, finding.says) == (
        "information",
        "no Supervisor leads just now; the next one takes over within seconds",
    )
    assert diagnose_leader(None, NEVER, survey(processes=(process(roles=("agents",)),))) == []


def test_writes_of_former_leaders_are_counted_and_need_no_care() -> None:
    _, one = diagnose_leader(LEADER, (1, ago(5)), survey())
    _, more = diagnose_leader(LEADER, (1_200, ago(5)), survey())
    assert one.says.startswith(
        "1 write of Supervisors that no longer led was refused and changed nothing, the last at "
    )
    assert more.says.startswith("1,200 writes of Supervisors that no longer led were refused")
    assert (more.level, "leader_seconds" in more.remedy) == ("information", True)
