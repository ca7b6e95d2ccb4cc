"""Sentences for people about the events of leases."""

from ..escaping import one_line
from ..model import Instant
from ..processes import LeaderSurvey
from ..store.contract import Survey
from ..text.format import format_count, format_instant_and_age
from .doctor import Finding
from .liveness import LiveProcesses


def diagnose_leader(leader: LeaderSurvey | None, refused: tuple[int, Instant | None], survey: Survey) -> list[Finding]:
    """Diagnose the election of the Supervisors.

    Args:
        leader: who leads; None: nobody.
        refused: how many writes were refused because their term was past, and when the last one was.
    """
    return [*_describe_leader(leader, survey), *_describe_refused_terms(*refused, survey.now)]


def _describe_leader(leader: LeaderSurvey | None, survey: Survey) -> list[Finding]:
    if leader is not None:
        since = "" if leader.since is None else f" since {format_instant_and_age(leader.since, leader.now)}"
        ahead = (leader.until - leader.now) / 1_000_000
        says = (
            f"{one_line(leader.process) or 'a process that is gone'} leads the Supervisors under term {leader.term}{since};"
            f" its lease lapses in {ahead:.1f} s unless it renews"
        )
        return [Finding("fine", "leader", says)]
    if not LiveProcesses(survey.processes, survey.now).list_with_role("supervisor"):
        return []  # the finding about roles says so
    return [Finding("information", "leader", "no Supervisor leads just now; the next one takes over within seconds")]


def _describe_refused_terms(count: int, last_at: Instant | None, now: Instant) -> list[Finding]:
    if last_at is None:
        return []
    says = (
        f"{format_count(count, 'write')} of Supervisors that did not lead any more {'was' if count == 1 else 'were'} refused"
        f" and changed nothing, the last at {format_instant_and_age(last_at, now)}"
    )
    remedy = "if the number grows, see in the logs which process freezes, or is cut off, for longer than leader_seconds"
    return [Finding("information", "leader", says, remedy)]
