"""Selection of the tasks for a list or a verb: the filter of ``app.tasks``, read from a query or a body."""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from fastapi import Query

from ..client.tasks import check_criteria
from ..errors import InvalidInput
from ..model import Instant
from ..store.task_filter import TaskFilter


class TaskSelector(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The tasks that are meant; what is left out: any.

    Args:
        state: pending, processing, processed, error, compensating or compensated.
        workflow: by name; ``step:NAME`` for tasks of one step.
        agent, step: with a step of that Agent, or name, that is not completed.
        older_than: seconds since their submission at least.
        since: seconds since their submission at most, or an instant with a time zone.
        code, text: of its failure: the code exactly, a part of the reason.
        paused: whether a person keeps it from going on.
        ledger: id of the ledger that it came with.
    """

    state: str | None = None
    workflow: str | None = None
    agent: str | None = None
    step: str | None = None
    older_than: float | None = None
    since: float | datetime | None = None
    code: str | None = None
    text: str | None = None
    paused: bool | None = None
    ledger: str | None = None


def build_filter(which: TaskSelector, now: Instant) -> TaskFilter:
    """Build the filter of the tasks that are meant. Raises InvalidInput, as ``app.tasks`` does."""
    return check_criteria(**msgspec.structs.asdict(which)).build_filter(now)


def read_since(text: str | None) -> float | datetime | None:
    """Read ``since`` of a query: seconds, or an instant in ISO 8601. Raises InvalidInput."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"since is {text!r}, which is neither a number of seconds nor an instant like 2026-11-20T14:15:17Z"
        ) from None


_TEXT_MAX = 300

State = Annotated[str | None, Query(max_length=20, description="Only tasks in this state.")]
WorkflowName = Annotated[
    str | None, Query(max_length=300, description="Only of this workflow; `step:NAME`: of one step.")
]
OfAgent = Annotated[str | None, Query(max_length=300, description="Only with an open step of this Agent.")]
OfStep = Annotated[str | None, Query(max_length=300, description="Only with an open step of this name.")]
OlderThan = Annotated[
    float | None, Query(ge=0, allow_inf_nan=False, description="Seconds since their submission at least.")
]
Since = Annotated[
    str | None,
    Query(max_length=100, description="Seconds since their submission at most, or an instant with a time zone."),
]
Code = Annotated[str | None, Query(max_length=_TEXT_MAX, description="Only with a failure of exactly this code.")]
Text = Annotated[str | None, Query(max_length=_TEXT_MAX, description="Only with a failure that says this somewhere.")]
OfLedger = Annotated[str | None, Query(max_length=300, description="Only tasks that came with this ledger.")]
Paused = Annotated[bool | None, Query(description="Only tasks that are, or are not, paused.")]


async def build_selector(
    state: State = None,
    workflow: WorkflowName = None,
    agent: OfAgent = None,
    step: OfStep = None,
    older_than: OlderThan = None,
    since: Since = None,
    code: Code = None,
    text: Text = None,
    paused: Paused = None,
    ledger: OfLedger = None,
) -> TaskSelector:
    """Build the selector of a query: FastAPI calls it."""
    given: dict[str, Any] = {
        "state": state,
        "workflow": workflow,
        "agent": agent,
        "step": step,
        "older_than": older_than,
        "since": read_since(since),
        "code": code,
        "text": text,
        "paused": paused,
        "ledger": ledger,
    }
    return TaskSelector(**given)
