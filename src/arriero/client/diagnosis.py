"""Looks a store over: its file or server, its machine, the processes on it, and the tasks that wait for an operator."""

import asyncio
import platform
import sqlite3
import time
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from ..config import load_configuration
from ..core.alert_groups import summarize_groups
from ..core.alert_rows import BREAKER_CAUSE, SCHEDULE_CAUSE
from ..core.apps import follow_renames
from ..core.lease import read_process_about
from ..declare.steps import Agent
from ..events import read_events_to_show
from ..events.store import AppRenamed
from ..explain.agents import diagnose_breakers, diagnose_hosts, diagnose_limits
from ..explain.code_versions import diagnose_code_versions
from ..explain.convoys import effective_policy, gap_deadline, standing_since
from ..explain.doctor import (
    Finding,
    StoppedConvoys,
    Versions,
    diagnose_file,
    diagnose_outbox,
    diagnose_store,
    needs_care,
    sort_findings,
)
from ..explain.doctor_server import (
    diagnose_address,
    diagnose_leader,
    diagnose_server,
    diagnose_tokens,
    diagnose_unreadable_rows,
)
from ..explain.outages import diagnose_attempts
from ..explain.questions import diagnose_questions
from ..explain.schedules import diagnose_schedules
from ..explain.signals import diagnose_signals
from ..explain.workflows import diagnose_workflows
from ..inspection.attempts import Retrying
from ..inspection.facts import AgentLoad, Backlog
from ..model import AlertRow, Instant, TaskState
from ..model.processes import ProcessRow
from ..runtime.settings import HTTP
from ..store import MEMORY, open_store
from ..store.contract import ConvoyLoaded, Survey
from ..store.engine.batch import STORE_STREAM
from ..store.engine.reading import COMMITS_MAX
from ..store.quarantine import UNREADABLE
from ..store.readable import faults_of, legible
from ..store.state_store import StateStore
from ..version import __version__
from .convoy import build_convoy_view

QUESTIONS_MAX = 1_000  # looked through for late ones
COMMITS_GLANCED_AT = 1_000  # of the history's end, by what is drawn again and again
ALERTS_MAX = 1_000  # of the open ones, looked through for one that could not be delivered
CONVOYS_MAX = 1_000  # of those in one state, counted by the doctor; and
CONVOYS_SHOWN_MAX = 100  # for an overview
UNREADABLE_MAX = 1_000  # rows of no task that cannot be read, counted
SIGNALS_MAX = 100  # that were set aside, counted
GAPS_MAX = 100  # of those that wait at a gap, looked at for one past its limit


class Diagnosis(msgspec.Struct, frozen=True):
    """Findings of the doctor. ``healthy``: nothing needs care."""

    store: str
    healthy: bool
    findings: tuple[Finding, ...]


def build_diagnosis(url: str, findings: Sequence[Finding]) -> Diagnosis:
    """Build the diagnosis of a store, the most urgent findings first. ``url``: masked, as the store says it."""
    return Diagnosis(url, not needs_care(findings), tuple(sort_findings(findings)))


async def diagnose_machine(url: str) -> tuple[list[Finding], bool]:
    """Diagnose the file or the server of a store.

    Returns: the findings; and whether this release may open it without changing its schema.
    """
    if url == MEMORY:
        return [], True
    path: str | None = getattr(open_store(url), "path", None)
    return await (_diagnose_server(url) if path is None else _diagnose_file(path))


async def _diagnose_file(path: str) -> tuple[list[Finding], bool]:
    from ..store.sqlite.inspection import file_facts, synchronous_of

    file = await asyncio.to_thread(file_facts, path)
    is_readable = file.schema >= file.schema_known  # to open an older one would change it
    if is_readable:
        file = msgspec.structs.replace(file, synchronous=await asyncio.to_thread(synchronous_of, path))
    versions = Versions(__version__, platform.python_version(), _sqlite_version())
    return diagnose_file(file, versions), is_readable


async def _diagnose_server(url: str) -> tuple[list[Finding], bool]:
    import psycopg

    from ..store.postgres.inspection import server_facts

    server = await asyncio.to_thread(server_facts, url)
    versions = {"arriero": __version__, "python": platform.python_version(), "driver": psycopg.__version__}
    return diagnose_server(server, **versions), server.schema >= server.schema_known


def _sqlite_version() -> tuple[int, int, int]:
    first, second, third = sqlite3.sqlite_version_info[:3]
    return first, second, third


def list_steps_not_undoable(agents: Iterable[Agent]) -> list[tuple[str, str]]:
    """List the steps that cannot be undone, with their Agents."""
    return [(agent.name, step.name) for agent in agents for step in agent.steps.values() if step.lacks_undo]


_OF_NO_TASK = (UNREADABLE, BREAKER_CAUSE, SCHEDULE_CAUSE)


async def diagnose_tasks(store: StateStore, not_undoable: list[tuple[str, str]] | None) -> list[Finding]:
    """Diagnose what is in a store. ``not_undoable``: steps of the App that cannot be undone; None: no App is known."""
    survey = await store.survey()
    judged = await judge(store, survey, await _find_stopped_convoys(store, CONVOYS_MAX), not_undoable)
    refused = diagnose_leader(await store.survey_leader(), await store.count_refused_terms(), survey)
    versions = diagnose_code_versions(await store.count_versions(), survey.processes, survey.now)
    return [*judged.findings, *versions, *refused, *await _diagnose_http(store, survey)]


class StoreJudgement(msgspec.Struct, frozen=True):
    """Findings about tasks, Agents, schedules and alerts, with the rows that they come from.

    Args:
        retrying: steps that are tried again, of each Agent at most a fixed number.
    """

    findings: tuple[Finding, ...]
    processes: tuple[ProcessRow, ...]
    retrying: tuple[Retrying, ...]

    @property
    def healthy(self) -> bool:
        """True if nothing needs an operator."""
        return not needs_care(self.findings)


async def judge_unfinished(store: StateStore, backlog: Backlog, loads: Sequence[AgentLoad]) -> StoreJudgement:
    """Judge a store by what is not finished: the judgement of the doctor, as far as it reads no whole table.

    The doctor also looks at versions of code, at tasks that are paused or on probation, at tokens and at the machine.

    Args:
        backlog, loads: as the store has just measured them.
    Returns: with the findings that need care, then those for information; none about what is fine.
    """
    now, processes = await store.known_processes()
    still = bool(backlog.convoys_stopped or backlog.convoys_in_gap or backlog.convoys_parked)
    survey = Survey(
        now=now,
        states={
            TaskState.HELD: backlog.held,
            TaskState.PROCESSING: backlog.running + backlog.due + backlog.later + backlog.in_convoy,
        },
        paused=0,
        probation=0,
        waiting=(backlog.due, backlog.oldest_due_at),
        workflows=tuple(await store.list_due_workflows()),
        steps=(),
        not_undoable=(),
        processes=tuple(processes),
        queues=(),
        untold=(0, None),
        rows={},
    )
    convoys = await _find_stopped_convoys(store, CONVOYS_SHOWN_MAX) if still else []
    judged = await judge(store, survey, convoys, None, commits=COMMITS_GLANCED_AT)
    leader = diagnose_leader(await store.survey_leader(), (0, None), survey)
    more = [*diagnose_hosts(loads, processes, now), *diagnose_outbox(backlog), *leader]
    found = sort_findings([*judged.findings, *more])
    return msgspec.structs.replace(judged, findings=tuple(one for one in found if one.level != "fine"))


async def judge(
    store: StateStore,
    survey: Survey,
    convoys: list[StoppedConvoys],
    not_undoable: list[tuple[str, str]] | None,
    *,
    commits: int = COMMITS_MAX,
) -> StoreJudgement:
    """Judge a store by a survey of its tasks and by what its other tables hold; see ``diagnose_tasks``.

    ``commits``: the last ones, in which the ends of attempts are looked for.
    """
    of_attempts = await store.survey_attempts(commits=commits)
    breakers, down = diagnose_breakers(await store.list_breakers(), of_attempts.requests, survey.now)
    limits = diagnose_limits(await store.list_limits(), survey.processes, of_attempts.requests, survey.now)
    attempts = diagnose_attempts(of_attempts, survey.processes, down=down)
    alerts = await store.alerts(open_only=True, questions=False, limit=ALERTS_MAX)
    found = diagnose_store(
        survey,
        oldest_alert=next((alert for alert in alerts if alert.cause not in _OF_NO_TASK), None),
        causes=summarize_groups(alerts),
        unreadable=[alert for alert in alerts if alert.cause == UNREADABLE and alert.task_no],
        untold_alert=next(filter(_is_untold, alerts), None),
        not_undoable=not_undoable,
        standstills=convoys,
    )
    schedules = diagnose_schedules(
        [row for row in await store.list_schedules() if not faults_of(row)],
        store.now(),
        Instant(time.time_ns() // 1_000),
    )
    rows = diagnose_unreadable_rows(await store.list_unreadable(UNREADABLE_MAX))
    workflows = diagnose_workflows(list(map(legible, await store.list_workflow_pauses())), store.now())
    aside = await store.list_set_aside(SIGNALS_MAX)
    findings = (
        *found,
        *rows,
        *workflows,
        *diagnose_signals(aside, store.now(), more=len(aside) == SIGNALS_MAX),
        *await _diagnose_questions(store),
        *breakers,
        *limits,
        *attempts,
        *schedules,
    )
    return StoreJudgement(findings, survey.processes, of_attempts.retrying)


async def _diagnose_http(store: StateStore, survey: Survey) -> list[Finding]:
    settings = load_configuration()
    address = diagnose_address(
        settings.http_host,
        tls=bool(settings.http_tls_cert),
        behind_proxy=settings.http_behind_proxy,
        unix_socket=settings.http_unix_socket,
    )
    tokens = await store.list_tokens()
    names = await _read_new_names(store, survey, {app for token in tokens for app in token.apps})
    return [*diagnose_tokens(tokens, survey.now, serves=HTTP in settings.roles, names=names), *address]


async def _read_new_names(store: StateStore, survey: Survey, apps: set[str]) -> dict[str, str]:
    """Read the new names of those of these Apps that were renamed. One that runs under its old name was renamed back."""
    alive = {read_process_about(process).app for process in survey.processes if process.lease_until > survey.now}
    asked = apps - alive
    if not asked:
        return {}
    renames: list[tuple[str, str]] = []
    async for row in store.history(STORE_STREAM):
        renames += [(one.from_app, one.app) for one in read_events_to_show(row) if isinstance(one, AppRenamed)]
    return {old: new for old, new in follow_renames(renames).items() if old in asked}


async def _find_stopped_convoys(store: StateStore, most: int) -> list[StoppedConvoys]:
    stopped = await store.list_convoys("stopped", limit=most)
    parked = await store.list_convoys("parked", limit=most)
    gaps = await store.list_convoys("gap", limit=GAPS_MAX)
    found = [await store.find_convoy(listed.convoy.key, 1) for listed in gaps]
    overdue = [convoy for convoy in found if convoy is not None and _is_gap_overdue(convoy, store)]
    told = [
        await _summarize_convoys("stopped", stopped, store, more=len(stopped) == most),
        await _summarize_convoys("parked", parked, store, more=len(parked) == most),
        await _summarize_convoys("gap", overdue, store, more=bool(overdue) and len(gaps) == GAPS_MAX),
    ]
    return [still for still in told if still is not None]


def _is_gap_overdue(loaded: ConvoyLoaded, store: StateStore) -> bool:
    until = gap_deadline(loaded.convoy, effective_policy(loaded.convoy, next(iter(loaded.members), None)))
    return until is not None and until <= store.now()


async def _summarize_convoys(
    state: Literal["stopped", "parked", "gap"], listed: list[ConvoyLoaded], store: StateStore, *, more: bool
) -> StoppedConvoys | None:
    first = await store.find_convoy(listed[0].convoy.key, 1) if listed else None
    if first is None:
        return None
    return StoppedConvoys(
        state=state,
        count=len(listed),
        more=more,
        waiting=sum(convoy.waiting for convoy in listed),
        key=first.convoy.key,
        since=standing_since(first.convoy, next(iter(first.members), None)),
        waits_for=build_convoy_view(first, store.now()).waiting_for,
    )


async def _diagnose_questions(store: StateStore) -> list[Finding]:
    found = await store.questions(limit=QUESTIONS_MAX + 1)
    return diagnose_questions(found[:QUESTIONS_MAX], store.now(), has_more=len(found) > QUESTIONS_MAX)


def _is_untold(alert: AlertRow) -> bool:
    return alert.next_at is not None and bool(alert.error)
