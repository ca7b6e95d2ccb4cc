"""The overview of a store: how many tasks are where, how calls ended within the last hour, and what needs an operator.

A terminal and a page show it again and again. So it reads bounded counts, indexes of what is not finished, the minutes of the
Agents and the newest tasks. No statement of it reads a whole table. ``arriero doctor`` looks at more, and costs more.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from math import ceil

import msgspec

from ..core.agent_metrics import MINUTE, AgentCounts, estimate_quantile, find_minute, read_counts
from ..core.lease import read_process_about
from ..core.routing import survey_hosts
from ..explain.doctor import Finding
from ..inspection.attempts import Retrying
from ..inspection.facts import AgentMeasurements, Backlog
from ..model import Instant, TaskRow, TaskState, seconds_between
from ..model.agents import FAILED_ENDS
from ..model.failures import read_task_failure
from ..model.instants import as_datetime
from ..model.processes import ProcessRow
from ..store.contract import COUNTED_MAX
from ..store.readable import legible
from ..store.state_store import StateStore
from ..store.task_filter import TaskFilter
from .agents import AgentView, load_agent_views
from .diagnosis import judge_unfinished
from .leases import LeaderView, load_leader
from .row_shapes import to_datetime

NEWEST_MAX = 500  # tasks that were submitted last, and are looked at for states and durations
WINDOW_MINUTES = 60
SHOWN_MAX = 20  # of the tasks that are held or tried again
HOUR = WINDOW_MINUTES * MINUTE


class OpenTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that are not done, by situation. Each is counted up to ``counted_max``: that many, or more.

    Attributes:
        running: a process drives them. ``due``: free, and may continue now. ``later``: free, and not due before an instant.
        in_convoy: they wait for their turn. ``held``: they wait for an operator.
    """

    running: int
    due: int
    later: int
    in_convoy: int
    held: int
    counted_max: int = COUNTED_MAX


class NewestTasks(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks that were submitted within the last hour, as far as they are among the newest 500.

    Attributes:
        count: how many they are. ``is_cut``: more were submitted within the hour.
        since: when the oldest of them was submitted; None: there is none.
        states: how many are in each state.
        submitted_per_minute, ended_per_minute: of the time since ``since``, a minute at least; None without a task.
        failed_share: of those that have ended: compensated or held; None: none has ended.
        p50_seconds, p99_seconds: from the submission to the end, of those that have ended; None: none has.
    """

    count: int
    is_cut: bool
    since: datetime | None
    states: dict[str, int]
    submitted_per_minute: float | None = None
    ended_per_minute: float | None = None
    failed_share: float | None = None
    p50_seconds: float | None = None
    p99_seconds: float | None = None


class MinuteOfCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of all Agents that ended within one minute. ``failed``: transient, unknown and expired ones."""

    minute: datetime
    calls: int
    failed: int
    p50_seconds: float | None = None
    p99_seconds: float | None = None


class HeldTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that waits for an operator, and why."""

    id: str
    workflow: str
    step: str
    reason: str
    since: datetime


class RetriedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task with a step that is tried again. ``next_at`` None: an attempt runs now, or the task is paused."""

    id: str
    agent: str
    step: str
    attempt: int
    failure_count: int
    next_at: datetime | None
    reason: str


class AgentRoom(msgspec.Struct, frozen=True, kw_only=True):
    """An Agent in all processes alive that host it.

    Attributes:
        health: from 0 to 1, by the calls of the process that sees most trouble.
        free, places: of all of them together; None: none has reported yet.
    """

    agent: str
    app: str
    health: float
    free: int | None
    places: int | None


class LiveProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that is not retired. ``is_alive``: its lease has not lapsed. ``is_leaving``: it drains."""

    no: int
    name: str
    app: str
    roles: tuple[str, ...]
    is_alive: bool
    is_leaving: bool


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """A store at one time.

    Attributes:
        store: its URL without a password. ``now``: its clock.
        tasks: those that are not done. ``newest``: those of the last hour.
        oldest_wait_seconds: for how long the oldest free task has been due; None: none is.
        calls: the minutes of the last hour, the oldest first, also those without a call. ``hour``: all of them together.
        agents: by name, with their breakers and calls. ``rooms``: health and free places of those that a process alive hosts.
        leader: None: no Supervisor leads.
        processes: those that are not retired.
        healthy: nothing needs an operator. ``findings``: care first, then information.
        held, retrying: the newest tasks of each kind, the newest first.
    """

    store: str
    now: datetime
    tasks: OpenTasks
    newest: NewestTasks
    oldest_wait_seconds: float | None
    hour: MinuteOfCalls
    calls: tuple[MinuteOfCalls, ...]
    agents: tuple[AgentView, ...]
    rooms: tuple[AgentRoom, ...]
    leader: LeaderView | None
    processes: tuple[LiveProcess, ...]
    healthy: bool
    findings: tuple[Finding, ...]
    held: tuple[HeldTask, ...]
    retrying: tuple[RetriedTask, ...]


async def load_overview(store: StateStore) -> Overview:
    """Load the overview of a store. Raises StoreError."""
    backlog = await store.measure_backlog()
    measured = await store.measure_agents()
    newest = await store.list_tasks(newest_first=True, limit=NEWEST_MAX)
    held = await store.list_tasks(TaskFilter(state=TaskState.HELD), newest_first=True, limit=SHOWN_MAX)
    judged = await judge_unfinished(store, backlog, measured.loads)
    now = backlog.now
    minutes, hour = sum_up_minutes(measured, now)
    oldest = backlog.oldest_due_at
    return Overview(
        store=store.url,
        now=as_datetime(now),
        tasks=_count_tasks(backlog),
        newest=sum_up_tasks(newest, now),
        oldest_wait_seconds=None if oldest is None else max(seconds_between(oldest, now), 0.0),
        hour=hour,
        calls=minutes,
        agents=tuple(await load_agent_views(store, measured)),
        rooms=tuple(_list_rooms(judged.processes, now)),
        leader=await load_leader(store),
        processes=tuple(_show_process(process, now) for process in judged.processes),
        healthy=judged.healthy,
        findings=judged.findings,
        held=tuple(map(_show_held, held)),
        retrying=_list_retried(judged.retrying),
    )


def _count_tasks(backlog: Backlog) -> OpenTasks:
    return OpenTasks(
        running=backlog.running,
        due=backlog.due,
        later=backlog.later,
        in_convoy=backlog.in_convoy,
        held=backlog.held,
    )


def sum_up_tasks(rows: Sequence[TaskRow], now: Instant) -> NewestTasks:
    """Sum up the tasks of the last hour. ``rows``: the newest first, as they stand; all there are, or ``NEWEST_MAX``."""
    tasks = [task for task in map(legible, rows) if task.submitted_at >= now - HOUR]
    if not tasks:
        return NewestTasks(count=0, is_cut=False, since=None, states={})
    since = min(task.submitted_at for task in tasks)
    minutes = max(seconds_between(since, now) / 60, 1.0)  # of less, no rate would mean anything
    ended = [task for task in tasks if task.ended_at is not None]
    took = sorted(seconds_between(task.submitted_at, task.ended_at) for task in ended if task.ended_at is not None)
    failed = sum(task.state is not TaskState.PROCESSED for task in ended)
    return NewestTasks(
        count=len(tasks),
        is_cut=len(tasks) == len(rows) == NEWEST_MAX,
        since=as_datetime(since),
        states=dict(Counter(str(task.state) for task in tasks)),
        submitted_per_minute=round(len(tasks) / minutes, 3),
        ended_per_minute=round(len(ended) / minutes, 3),
        failed_share=round(failed / len(ended), 6) if ended else None,
        p50_seconds=_find_quantile(took, 0.5),
        p99_seconds=_find_quantile(took, 0.99),
    )


def _find_quantile(ordered: Sequence[float], share: float) -> float | None:
    return max(ordered[ceil(share * len(ordered)) - 1], 0.0) if ordered else None


def sum_up_minutes(measured: AgentMeasurements, now: Instant) -> tuple[tuple[MinuteOfCalls, ...], MinuteOfCalls]:
    """Sum up the calls of all Agents: for each minute of the last hour, the oldest first; and all of these together."""
    last = find_minute(now)
    counts = {minute: AgentCounts() for minute in range(last - WINDOW_MINUTES + 1, last + 1)}
    for row in measured.counts:
        of_minute = counts.get(row.minute) if row.process_no else None
        if of_minute is not None:
            for of_agent in read_counts(row.counts).values():
                of_minute.add_counts(of_agent)
    total = AgentCounts()
    for of_minute in counts.values():
        total.add_counts(of_minute)
    minutes = tuple(_build_minute(minute, of_minute) for minute, of_minute in counts.items())
    return minutes, _build_minute(min(counts), total)


def _build_minute(minute: int, counts: AgentCounts) -> MinuteOfCalls:
    buckets = counts.list_buckets()
    return MinuteOfCalls(
        minute=as_datetime(Instant(minute * MINUTE)),
        calls=counts.calls,
        failed=sum(counts.outcomes.get(end, 0) for end in FAILED_ENDS),
        p50_seconds=estimate_quantile(buckets, 0.5),
        p99_seconds=estimate_quantile(buckets, 0.99),
    )


def _list_rooms(processes: Sequence[ProcessRow], now: Instant) -> Iterator[AgentRoom]:
    for app in sorted({read_process_about(process).app for process in processes}):
        for agent, host in sorted(survey_hosts(processes, now, app).items()):
            places = None if host.free is None else host.places
            yield AgentRoom(agent=agent, app=app, health=host.health, free=host.free, places=places)


def _show_process(process: ProcessRow, now: Instant) -> LiveProcess:
    about = read_process_about(process)
    return LiveProcess(
        no=process.process_no,
        name=process.instance,
        app=about.app,
        roles=about.roles,
        is_alive=process.lease_until > now,
        is_leaving=about.leaving,
    )


def _show_held(row: TaskRow) -> HeldTask:
    task = legible(row)
    failure = None if task.failure is None else read_task_failure(task.failure)
    return HeldTask(
        id=task.task_id,
        workflow=task.workflow,
        step="" if failure is None else failure.step,
        reason="" if failure is None else failure.reason,
        since=as_datetime(task.submitted_at if task.ended_at is None else task.ended_at),
    )


def _list_retried(steps: Iterable[Retrying]) -> tuple[RetriedTask, ...]:
    newest = sorted(steps, key=lambda step: -step.task_no)[:SHOWN_MAX]
    return tuple(
        RetriedTask(
            id=step.task_id,
            agent=step.agent,
            step=step.step,
            attempt=step.attempt,
            failure_count=step.failure_count,
            next_at=to_datetime(step.next_at),
            reason=step.failure.message,
        )
        for step in newest
    )
