"""Alerts as operators look at them: one by one, or by cause with one command for all tasks of a cause."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import datetime
from typing import Literal

import msgspec

from ..core.alert_groups import (
    AlertGroup,
    format_command_of_alert,
    format_next_command,
    list_criteria,
    summarize_alerts,
)
from ..core.alerts import Alert, build_alert
from ..errors import InvalidInput
from ..model import AlertRow
from ..store.state_store import StateStore
from .row_shapes import build_output, to_datetime
from .tasks import TaskSelector

PAGE = 1_000
GROUPED_MAX = 10_000  # open alerts that are read to group them
State = Literal["open", "all"]


class AlertCause(msgspec.Struct, frozen=True):
    """Open alerts of one cause. Those of Agents, schedules and unreadable rows are each a separate cause.

    Args:
        workflow, cause, step, code: what they have in common, as of ``Alert``.
        count: how many there are.
        first_at, last_at: when the first and the last one were opened.
        first_task: the task of the first one; empty if it names no task.
        reason: of the first one.
        select: options of the command line that select all their tasks; empty if each has a separate remedy.
        filter: the same as a filter of tasks; None if ``select`` is empty.
        command: what an operator types next: for all of them together if ``select`` is there.
    """

    workflow: str
    cause: str
    step: str
    code: str
    count: int
    first_at: datetime
    last_at: datetime
    first_task: str
    reason: str
    select: str
    command: str
    filter: TaskSelector | None = None


class AlertCauses(msgspec.Struct, frozen=True):
    """The causes of the open alerts, the one with most alerts first. ``complete``: False: only the first 10,000 were read."""

    causes: tuple[AlertCause, ...]
    complete: bool


def check_alert_state(state: str) -> bool:
    """Check which alerts are meant. Returns True for open ones only. Raises InvalidInput."""
    if state not in ("open", "all"):
        raise InvalidInput(f"state {state!r} of alerts is not known; give 'open' or 'all'")
    return state == "open"


async def list_alerts(store: StateStore, *, open_only: bool) -> AsyncIterator[Alert]:
    """Alerts in the order in which they were opened, read page by page."""
    async with aclosing(iterate_alert_rows(store, open_only=open_only)) as rows:
        async for row in rows:
            yield build_alert(row, store.store_id)


async def load_alert_causes(store: StateStore) -> AlertCauses:
    """Group the open alerts by cause. Raises StoreError."""
    found: list[AlertRow] = []
    async with aclosing(iterate_alert_rows(store, open_only=True)) as rows:
        async for row in rows:
            if len(found) == GROUPED_MAX:
                return AlertCauses(_build_causes(found), False)
            found.append(row)
    return AlertCauses(_build_causes(found), True)


async def iterate_alert_rows(store: StateStore, *, open_only: bool, questions: bool = True) -> AsyncGenerator[AlertRow]:
    """Iterate over alerts in the order of their opening, read page by page. ``questions``: with their alerts. Raises StoreError."""
    after = 0
    while page := await store.alerts(open_only=open_only, questions=questions, after=after, limit=PAGE):
        for row in page:
            yield row
        after = page[-1].no


def _build_causes(rows: list[AlertRow]) -> tuple[AlertCause, ...]:
    return tuple(map(_build_cause, summarize_alerts(rows)))


def _build_cause(group: AlertGroup) -> AlertCause:
    which = msgspec.convert(list_criteria(group), TaskSelector) if group.select else None
    return build_output(AlertCause, group, command=format_next_command(group), filter=which)


class ListedAlert(Alert, frozen=True):
    """An alert in a list of them.

    Args:
        number: later alerts have larger ones.
        delivered_to: the sinks that know its present state.
        deliver_at: when it is sent to the others, again if that failed; None: every sink knows it.
        delivery_error: why sending it failed last; empty: it did not.
        command: what an operator types next; empty if it is closed.
    """

    number: int = 0
    delivered_to: tuple[str, ...] = ()
    deliver_at: datetime | None = None
    delivery_error: str = ""
    command: str = ""


def build_listed_alert(row: AlertRow, store_id: str) -> ListedAlert:
    """Build an alert for a list, with its delivery and the command that helps."""
    return ListedAlert(
        **msgspec.structs.asdict(build_alert(row, store_id)),
        number=row.no,
        delivered_to=row.told,
        deliver_at=to_datetime(row.next_at),
        delivery_error=row.error,
        command="" if row.closed_at is not None else format_command_of_alert(row),
    )
