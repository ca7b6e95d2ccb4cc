"""Recent attempts as a store reads them; ``explain.outages`` judges them."""

from collections.abc import Callable, Sequence
from typing import Any

from ..inspection.attempts import (
    AttemptEnd,
    RecordedEnd,
    Requests,
    Retrying,
    read_attempt_ends,
    read_failure,
    resolve_agents,
)
from ..model import UNDO_PREFIX, Instant, StepKind, StepState

LOOKED_AT_MAX = 1_000  # steps of each Agent that are tried again, and as many attempts under way
COMMITS_MAX = 10_000  # of the history's end: hours where little goes on, some seconds of a store that is busy


RETRYING_COLUMNS = (
    "agent", "task_no", "task_id", "name", "key", "kind", "attempt", "failure_count", "failure", "state", "not_before",
)  # fmt: skip


def retrying_of(row: Sequence[Any]) -> Retrying:
    """A step that is tried again, from its columns in the order of ``RETRYING_COLUMNS``."""
    of = dict(zip(RETRYING_COLUMNS, row, strict=True))
    label = of["name"] if of["key"] == "#1" else f"{of['name']}[{of['key']}]"
    is_running = of["state"] == StepState.RUNNING
    return Retrying(
        agent=of["agent"],
        task_no=of["task_no"],
        task_id=of["task_id"],
        step=f"{UNDO_PREFIX if of['kind'] == StepKind.COMPENSATION else ''}{label}",
        attempt=of["attempt"],
        failure_count=of["failure_count"],
        failure=read_failure(of["failure"]),
        is_running=is_running,
        next_at=None if is_running else of["not_before"],
    )


def requests_of(due: Sequence[Sequence[Any]], running: Sequence[Sequence[Any]]) -> tuple[Requests, ...]:
    """Open requests of each Agent, by name.

    Args:
        due: agent, number of due requests, since when the oldest is due, number of those that are due later.
        running: agent, number of attempts under way.
    """
    counts = {agent: count for agent, count in running}
    asked = {agent: (count, oldest, later) for agent, count, oldest, later in due}
    found: list[Requests] = []
    for agent in sorted({*counts, *asked}):
        count, oldest, later = asked.get(agent, (0, None, 0))
        running_now = counts.get(agent, 0)
        found.append(Requests(agent=agent, due=count, oldest_at=oldest, later=later, running=running_now))
    return tuple(found)


Commits = Sequence[tuple[int, Instant, str]]


def ends_in(
    newest_first: Commits, limit: int, agents_of: Callable[[list[int]], dict[int, str]]
) -> tuple[tuple[AttemptEnd, ...], Instant | None]:
    """The ends of attempts in the last commits, and since when none of them is missing (None: none is missing at all).

    Args:
        newest_first: task_no, instant and events of each; ``limit``: how many were asked for.
        agents_of: the Agents of steps by their numbers.
    """
    ends: list[RecordedEnd] = read_attempt_ends(reversed(newest_first))
    agents = agents_of(sorted({end.step_no for end in ends}))
    return resolve_agents(ends, agents), newest_first[-1][1] if len(newest_first) >= limit > 0 else None
