"""``arriero doctor``: what needs care in a store, on its machine and in the processes that work on it."""

import asyncio
import platform
import sqlite3
import sys
from typing import Literal

import click
import msgspec

from .. import __version__
from ..app import App
from ..convoy import convoy_view
from ..core.convoy_words import gap_until, policy_shown, still_since
from ..core.diagnosis import Finding, Standstill, Versions, diagnose_file, diagnose_store, in_order, needs_care
from ..core.outages import diagnose_attempts
from ..core.server_diagnosis import diagnose_server
from ..errors import ArrieroError
from ..model import AlertRow
from ..store import existing_store
from ..store.apart import UNREADABLE
from ..store.base import ConvoyLoaded, StateStore
from .loading import load_app
from .output import one_line, print_json, print_text
from .stores import _shared, configured, configured_app, json_option, reading, store_option

NEEDS_CARE = 1
ALERTS_MAX = 1_000  # of the open ones, looked through for one that could not be told
CONVOYS_MAX = 1_000  # of those in one state, counted; and
GAPS_MAX = 100  # of those that wait at a gap, looked at for one past its limit
_MARKS = {"care": "CARE", "information": "note", "fine": "ok"}


class Diagnosis(msgspec.Struct, frozen=True):
    """What ``doctor --json`` prints."""

    store: str
    healthy: bool
    findings: tuple[Finding, ...]


class OfApp(msgspec.Struct, frozen=True):
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
    diagnosis = asyncio.run(_diagnosed(store, app))
    if as_json:
        print_json(diagnosis)
    else:
        _print(diagnosis)
    if not diagnosis.healthy:
        sys.exit(NEEDS_CARE)


async def _diagnosed(given: str | None, target: str | None) -> Diagnosis:
    url = _shared(configured(given).store)
    store = existing_store(url)
    of_app = _of_app(given, target)
    path: str | None = getattr(store, "path", None)
    findings = await (_of_server(url, given, of_app) if path is None else _of_file(path, given, of_app))
    return Diagnosis(store.url, not needs_care(findings), tuple(in_order(findings)))


async def _of_file(path: str, given: str | None, of_app: OfApp) -> list[Finding]:
    from ..store.sqlite import facts

    file = await asyncio.to_thread(facts.file_facts, path)
    versions = Versions(__version__, platform.python_version(), _sqlite_version())
    if file.schema < file.schema_known:  # to open it would change it
        return [*diagnose_file(file, versions), *of_app.findings]
    async with reading(given) as opened:
        file = msgspec.structs.replace(file, synchronous=await asyncio.to_thread(facts.synchronous_of, path))
        return [*diagnose_file(file, versions), *of_app.findings, *await _of_tasks(opened, of_app)]


async def _of_server(url: str, given: str | None, of_app: OfApp) -> list[Finding]:
    import psycopg

    from ..store.postgres import facts

    server = await asyncio.to_thread(facts.server_facts, url)
    versions = {"arriero": __version__, "python": platform.python_version(), "driver": psycopg.__version__}
    findings = [*diagnose_server(server, **versions), *of_app.findings]
    if server.schema < server.schema_known:
        return findings
    async with reading(given) as opened:
        return [*findings, *await _of_tasks(opened, of_app)]


def _sqlite_version() -> tuple[int, int, int]:
    first, second, third = sqlite3.sqlite_version_info[:3]
    return first, second, third


async def _of_tasks(store: StateStore, of_app: OfApp) -> list[Finding]:
    survey = await store.survey()
    attempts = diagnose_attempts(await store.survey_attempts(), survey.processes)
    alerts = await store.alerts(open_only=True, limit=ALERTS_MAX)
    found = diagnose_store(
        survey,
        oldest_alert=next((alert for alert in alerts if alert.cause != UNREADABLE), None),
        unreadable=[alert for alert in alerts if alert.cause == UNREADABLE],
        untold_alert=next(filter(_is_untold, alerts), None),
        not_undoable=of_app.not_undoable,
        standstills=await _standstills(store),
    )
    return [*found, *attempts]


async def _standstills(store: StateStore) -> list[Standstill]:
    stopped = await store.list_convoys("stopped", limit=CONVOYS_MAX)
    parked = await store.list_convoys("parked", limit=CONVOYS_MAX)
    gaps = await store.list_convoys("gap", limit=GAPS_MAX)
    found = [await store.find_convoy(listed.convoy.key, 1) for listed in gaps]
    overdue = [convoy for convoy in found if convoy is not None and _is_overdue(convoy, store)]
    told = [
        await _standstill("stopped", stopped, store, more=len(stopped) == CONVOYS_MAX),
        await _standstill("parked", parked, store, more=len(parked) == CONVOYS_MAX),
        await _standstill("gap", overdue, store, more=bool(overdue) and len(gaps) == GAPS_MAX),
    ]
    return [still for still in told if still is not None]


def _is_overdue(loaded: ConvoyLoaded, store: StateStore) -> bool:
    until = gap_until(loaded.convoy, policy_shown(loaded.convoy, next(iter(loaded.members), None)))
    return until is not None and until <= store.now()


async def _standstill(
    state: Literal["stopped", "parked", "gap"], listed: list[ConvoyLoaded], store: StateStore, *, more: bool
) -> Standstill | None:
    first = await store.find_convoy(listed[0].convoy.key, 1) if listed else None
    if first is None:
        return None
    return Standstill(
        state=state,
        count=len(listed),
        more=more,
        waiting=sum(convoy.waiting for convoy in listed),
        key=first.convoy.key,
        since=still_since(first.convoy, next(iter(first.members), None)),
        waits_for=convoy_view(first, store.now()).waiting_for,
    )


def _is_untold(alert: AlertRow) -> bool:
    return alert.next_at is not None and bool(alert.error)


def _of_app(given: str | None, target: str | None) -> OfApp:
    """What the App shows.

    Raises: InvalidInput - the App that was named on the command line cannot be loaded.
    """
    if target is not None:
        return OfApp(_not_undoable(load_app(target)))
    configuration = configured(given)
    if not configuration.app:
        return OfApp(None)
    try:
        return OfApp(_not_undoable(configured_app(configuration)))
    except ArrieroError as error:
        remedy = "commands that need its code will not work here: correct the setting, or go to the App's folder"
        return OfApp(None, (Finding("care", "app", str(error), remedy),))


def _not_undoable(app: App) -> list[tuple[str, str]]:
    steps = [step for agent in app.agents for step in agent.steps.values()]
    loose = [step for step in steps if step.undone_by is None and not (step.effect_free or step.pivot)]
    return [(step.agent.name, step.name) for step in loose]  # a pivot is never undone, so it needs no compensation


def _print(diagnosis: Diagnosis) -> None:
    click.echo(one_line(f"store {diagnosis.store}"))
    for finding in diagnosis.findings:
        print_text(finding.says, first=f"{_MARKS[finding.level]:4}  ", hanging=6)
        if finding.remedy:
            click.echo(f"      -> {one_line(finding.remedy)}")
    count = sum(finding.level == "care" for finding in diagnosis.findings)
    things = "1 thing needs" if count == 1 else f"{count} things need"
    click.echo("nothing needs care" if diagnosis.healthy else f"{things} care")
