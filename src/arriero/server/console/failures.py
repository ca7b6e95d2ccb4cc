"""Groups of like failures: open alerts by their cause, each with its remedy for all of them."""

from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from ...client.alerts import AlertCause
from ...core.alert_rows import BREAKER_CAUSE, QUESTION_CAUSE, SCHEDULE_CAUSE
from ...model import Verb
from ..calls import Call
from ..parameters import write_id
from ..scopes import Needs, Scope
from .asking import ask, may_ask
from .page import Page, page

CAUSES = {
    "step": "a step failed",
    "undo": "a compensation failed",
    "in_doubt": "a step may have taken effect",
    "refused": "the workflow refused",
    "limit": "its time was over",
    "bug": "its code has a bug",
    "replay": "its code does not fit the record",
    "unawaited": "its code did not await a call",
    "lost": "its process died too often",
    "person": "an operator stopped it past a pivot",
    "late": "it came after its number was skipped",
    "gap": "a number of the sequence is missing",
    "unreadable": "a row cannot be read",
    BREAKER_CAUSE: "an Agent gets no calls",
    SCHEDULE_CAUSE: "a schedule submits nothing",
    QUESTION_CAUSE: "a question waits for its answer",
}
VERBS_OF_ALL = (Verb.RESUBMIT, Verb.COMPENSATE)


class FailureGroup(NamedTuple):
    """A group as the page shows it.

    Args:
        says: its cause, in words.
        name: of what failed.
        query: the filter of its tasks, as the query of an address; empty: it has none.
        link: the page of the thing that is to be mended, with its title; empty: there is none.
        is_wide: its filter names all held tasks of the workflow.
    """

    cause: AlertCause
    says: str
    name: str
    query: str
    link: tuple[str, str]
    is_wide: bool


@page("/failures", Needs(Scope.READ), "Groups of like failures, each with one remedy for all.", is_live=True)
async def show_failures(call: Call) -> Page:
    found = await ask(call, "list_alert_causes")
    context = {
        "groups": [build_group(cause) for cause in found.causes],
        "complete": found.complete,
        "verbs": [str(verb) for verb in VERBS_OF_ALL if may_ask(call, f"{verb}_tasks")],
    }
    return Page("failures.html", "Failures", context)


def build_group(cause: AlertCause) -> FailureGroup:
    """Build a group with the link to its remedy."""
    which = {} if cause.filter is None else msgspec.to_builtins(cause.filter)
    return FailureGroup(
        cause,
        describe_cause(cause.cause),
        cause.workflow or cause.step,
        urlencode(which),
        find_place(cause.cause, cause.step, cause.code, cause.first_task),
        bool(which) and which.keys() <= {"state", "workflow"},
    )


def describe_cause(cause: str) -> str:
    """Describe the cause of an alert; one of a later release as it is called."""
    return CAUSES.get(cause, cause)


def find_place(cause: str, step: str, code: str, task_id: str) -> tuple[str, str]:
    """Find the page, and its title, of what an alert asks an operator to look at; both empty: there is none."""
    of_app = f"?{urlencode({'app': code})}" if code else ""
    if cause == BREAKER_CAUSE:
        return f"/agents/{write_id(step.partition('[')[0])}{of_app}", "Agent"
    if cause == SCHEDULE_CAUSE:
        return f"/schedules/{write_id(step)}{of_app}", "Schedule"
    if cause == QUESTION_CAUSE:
        return f"/inbox?{urlencode({'of': code})}", "Inbox"
    return (f"/tasks/{write_id(task_id)}", "Task") if task_id else ("", "")
