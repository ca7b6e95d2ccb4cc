"""``arriero doctor``: what needs care in a store, on its machine and in the processes that work on it."""

import asyncio
import platform
import sqlite3
import sys
import time
from typing import Literal

import click
import msgspec

from .. import __version__
from ..client.app import App
from ..client.convoy import build_convoy_view
from ..core.alert_rows import BREAKER_CAUSE, SCHEDULE_CAUSE
from ..errors import ArrieroError
from ..escaping import one_line
from ..explain.agents import diagnose_breakers
from ..explain.convoys import effective_policy, gap_deadline, standing_since
from ..explain.doctor import Finding, StoppedConvoys, Versions, diagnose_file, diagnose_store, needs_care, sort_findings
from ..explain.doctor_server import diagnose_server
from ..explain.leader import diagnose_leader
from ..explain.limits import diagnose_limits
from ..explain.outages import diagnose_attempts
from ..explain.schedules import diagnose_schedules
from ..model import AlertRow, Instant
from ..store import existing_store
from ..store.contract import ConvoyLoaded, StateStore
from ..store.quarantine import UNREADABLE
from .loading import load_app
from .options import json_option, store_option
from .output import print_json, print_text
from .stores import load_configured_app, load_store_configuration, open_store_to_read, refuse_memory_store

NEEDS_CARE = 1
ALERTS_MAX = 1_000  # of the open ones, looked through for one that could not be told
CONVOYS_MAX = 1_000  # of those in one state, counted; and
GAPS_MAX = 100  # of those that wait at a gap, looked at for one past its limit
_MARKS = {"care": "CARE", "information": "note", "fine": "ok"}


class Diagnosis(msgspec.Struct, frozen=True):
    """The output of ``doctor --json``."""

    store: str
    healthy: bool
    findings: tuple[Finding, ...]


class AppDiagnosis(msgspec.Struct, frozen=True):
    """Steps of the App that cannot be undone, None without an App; and what is wrong with the configured one."""

    not_undoable: list[tuple[str, str]] | None
    findings: tuple[Finding, ...] = ()


@click.command(short_help="Say what needs care in a store and around it.")
@store_option
@click.option(
    "--app", "app", metavar="MODULE:APP", help="The App whose steps are looked at too; else the configured one."
)
@json_option
def doctor(store: str | None, app: str | None, as_json: bool) -> None:
    """Look a store over: its file or server, its machine, the processes on it, and the tasks that wait for somebody.

    Exits with 0 when all is well, with 1 when something needs care, with 2 when the store cannot be looked at.
    """
    diagnosis = asyncio.run(_diagnose(store, app))
    if as_json:
        print_json(diagnosis)
    else:
        _print_diagnosis(diagnosis)
    if not diagnosis.healthy:
        sys.exit(NEEDS_CARE)


async def _diagnose(given: str | None, target: str | None) -> Diagnosis:
    url = refuse_memory_store(load_store_configuration(given).store)
    store = existing_store(url)
    of_app = _diagnose_app(given, target)
    path: str | None = getattr(store, "path", None)
    findings = await (
        _diagnose_server_store(url, given, of_app) if path is None else _diagnose_file_store(path, given, of_app)
    )
    return Diagnosis(store.url, not needs_care(findings), tuple(sort_findings(findings)))


async def _diagnose_file_store(path: str, given: str | None, of_app: AppDiagnosis) -> list[Finding]:
    from ..store.sqlite.inspection import file_facts, synchronous_of

    file = await asyncio.to_thread(file_facts, path)
    versions = Versions(__version__, platform.python_version(), _sqlite_version())
    if file.schema < file.schema_known:  # to open it would change it
        return [*diagnose_file(file, versions), *of_app.findings]
    async with open_store_to_read(given) as opened:
        file = msgspec.structs.replace(file, synchronous=await asyncio.to_thread(synchronous_of, path))
        return [*diagnose_file(file, versions), *of_app.findings, *await _diagnose_tasks(opened, of_app)]


async def _diagnose_server_store(url: str, given: str | None, of_app: AppDiagnosis) -> list[Finding]:
    import psycopg

    from ..store.postgres.inspection import server_facts

    server = await asyncio.to_thread(server_facts, url)
    versions = {"arriero": __version__, "python": platform.python_version(), "driver": psycopg.__version__}
    findings = [*diagnose_server(server, **versions), *of_app.findings]
    if server.schema < server.schema_known:
        return findings
    async with open_store_to_read(given) as opened:
        return [*findings, *await _diagnose_tasks(opened, of_app)]


def _sqlite_version() -> tuple[int, int, int]:
    first, second, third = sqlite3.sqlite_version_info[:3]
    return first, second, third


_OF_NO_TASK = (UNREADABLE, BREAKER_CAUSE, SCHEDULE_CAUSE)


async def _diagnose_tasks(store: StateStore, of_app: AppDiagnosis) -> list[Finding]:
    survey = await store.survey()
    of_attempts = await store.survey_attempts()
    breakers, down = diagnose_breakers(await store.list_breakers(), of_attempts.requests, survey.now)
    limits = diagnose_limits(await store.list_limits(), survey.processes, of_attempts.requests, survey.now)
    attempts = diagnose_attempts(of_attempts, survey.processes, down=down)
    alerts = await store.alerts(open_only=True, limit=ALERTS_MAX)
    found = diagnose_store(
        survey,
        oldest_alert=next((alert for alert in alerts if alert.cause not in _OF_NO_TASK), None),
        unreadable=[alert for alert in alerts if alert.cause == UNREADABLE],
        untold_alert=next(filter(_is_untold, alerts), None),
        not_undoable=of_app.not_undoable,
        standstills=await _find_stopped_convoys(store),
    )
    leader = diagnose_leader(await store.survey_leader(), await store.count_refused_terms(), survey)
    schedules = diagnose_schedules(await store.list_schedules(), store.now(), Instant(time.time_ns() // 1_000))
    return [*found, *leader, *breakers, *limits, *attempts, *schedules]


async def _find_stopped_convoys(store: StateStore) -> list[StoppedConvoys]:
    stopped = await store.list_convoys("stopped", limit=CONVOYS_MAX)
    parked = await store.list_convoys("parked", limit=CONVOYS_MAX)
    gaps = await store.list_convoys("gap", limit=GAPS_MAX)
    found = [await store.find_convoy(listed.convoy.key, 1) for listed in gaps]
    overdue = [convoy for convoy in found if convoy is not None and _is_gap_overdue(convoy, store)]
    told = [
        await _summarize_convoys("stopped", stopped, store, more=len(stopped) == CONVOYS_MAX),
        await _summarize_convoys("parked", parked, store, more=len(parked) == CONVOYS_MAX),
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


def _is_untold(alert: AlertRow) -> bool:
    return alert.next_at is not None and bool(alert.error)


def _diagnose_app(given: str | None, target: str | None) -> AppDiagnosis:
    """Diagnose the App that was named, or the configured one.

    Raises: InvalidInput - the App that was named on the command line cannot be loaded.
    """
    if target is not None:
        return AppDiagnosis(_list_steps_not_undoable(load_app(target)))
    configuration = load_store_configuration(given)
    if not configuration.app:
        return AppDiagnosis(None)
    try:
        return AppDiagnosis(_list_steps_not_undoable(load_configured_app(configuration)))
    except ArrieroError as error:
        remedy = "commands that need its code will not work here: correct the setting, or go to the App's folder"
        return AppDiagnosis(None, (Finding("care", "app", str(error), remedy),))


def _list_steps_not_undoable(app: App) -> list[tuple[str, str]]:
    steps = [step for agent in app.agents for step in agent.steps.values()]
    loose = [step for step in steps if step.undone_by is None and not (step.effect_free or step.pivot)]
    return [(step.agent.name, step.name) for step in loose]  # a pivot is never undone, so it needs no compensation


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    click.echo(one_line(f"store {diagnosis.store}"))
    for finding in diagnosis.findings:
        print_text(finding.says, first=f"{_MARKS[finding.level]:4}  ", hanging=6)
        if finding.remedy:
            click.echo(f"      -> {one_line(finding.remedy)}")
    count = sum(finding.level == "care" for finding in diagnosis.findings)
    things = "1 thing needs" if count == 1 else f"{count} things need"
    click.echo("nothing needs care" if diagnosis.healthy else f"{things} care")
