"""Answers of attempts that no longer count: what is kept of them, and the event that tells of them.

Such an answer changes nothing. A person may want to know it all the same: the attempt may have had an effect.
"""

import msgspec
from msgspec.structs import replace

from ..commands import Reported, Succeeded
from ..events.step import StepReport
from ..history_chain import payload_hash
from ..model import LateAnswerRow, StepRow


def build_report_event(step: StepRow, report: Reported, verdict: str) -> StepReport:
    """Build the event of a report; its payload only as a hash."""
    outcome = report.outcome
    return StepReport(
        step=step.ordinal,
        fence=report.fence,
        verdict=verdict,
        outcome="succeeded" if isinstance(outcome, Succeeded) else "failed",
        tries=report.tries,
        result=payload_hash(outcome.result if isinstance(outcome, Succeeded) else outcome.failure.message),
    )


def build_refused_report_event(step: StepRow, report: Reported, verdict: str, *, is_kept: bool) -> StepReport:
    """Build the event of a report that changes nothing, with the times that show how late it was.

    ``is_kept``: its answer is kept beside the history; the event then has the hash of just that payload.
    """
    event = build_report_event(step, report, verdict)
    if report.complete_by is not None:
        event = replace(event, attempt=report.attempt, answered_at=report.delivered_at, complete_by=report.complete_by)
    if is_kept:
        event = replace(event, kept=True, result=payload_hash(_encode_answer(report)))
    return event


def build_late_answer(step: StepRow, report: Reported, verdict: str, *, late: bool) -> LateAnswerRow | None:
    """Build the row that keeps a refused report; None: nothing is kept.

    A report that counted is sent again when the answer of its commit was lost. Then it is a duplicate, or, if it was a
    failure, perhaps stale. So a stale failure is kept only of an Agent that knew it to be late.

    Args:
        late: the Agent itself says that the attempt's time was over.
    """
    is_new = verdict == "late" or (verdict == "stale" and (late or isinstance(report.outcome, Succeeded)))
    if not is_new or report.complete_by is None:
        return None
    return LateAnswerRow(
        task_no=step.task_no,
        ordinal=step.ordinal,
        fence=report.fence,
        attempt=report.attempt,
        verdict="late" if verdict == "late" else "stale",
        outcome="succeeded" if isinstance(report.outcome, Succeeded) else "failed",
        answer=_encode_answer(report),
        answered_at=report.delivered_at,
        complete_by=report.complete_by,
        link=0,  # given when it is written
    )


def _encode_answer(report: Reported) -> str:
    outcome = report.outcome
    if isinstance(outcome, Succeeded):
        return outcome.result
    return msgspec.json.encode(outcome.failure).decode()
