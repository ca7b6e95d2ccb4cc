"""Alerts as operators look at them: one by one, or by cause with one command for all tasks of a cause."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import datetime
from typing import Literal

import msgspec

from ..core.alert_groups import format_next_command, summarize_alerts
from ..core.alerts import Alert, build_alert
from ..errors import InvalidInput
from ..model import AlertRow
from ..store.state_store import StateStore
from .row_shapes import build_output

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
    groups = summarize_alerts(rows)
    return tuple(build_output(AlertCause, group, command=format_next_command(group)) for group in groups)
