"""``arriero doctor``: what needs care in a store, on its machine and in the processes that work on it."""

import asyncio
import sys

import click
import msgspec

from ..client.diagnosis import Diagnosis, build_diagnosis, diagnose_machine, diagnose_tasks, list_steps_not_undoable
from ..errors import ArrieroError
from ..explain.doctor import Finding
from ..model import TaskState
from ..operations.problems import ExitCode
from ..store import existing_store
from ..text.escaping import one_line
from ..text.format import format_count
from .options import json_option, store_option
from .output import print_json, print_text
from .stores import load_app, load_configured_app, load_store_configuration, open_store_to_read, refuse_memory_store

_MARKS = {"care": "CARE", "information": "note", "fine": "ok"}
_LOOKS_LIKE = {"care": TaskState.HELD, "information": TaskState.COMPENSATED, "fine": TaskState.PROCESSED}  # its colour


class AppDiagnosis(msgspec.Struct, frozen=True):
    """Steps of the App that cannot be undone, None without an App; and what is wrong with the configured one."""

    not_undoable: list[tuple[str, str]] | None
    findings: tuple[Finding, ...] = ()


@click.command(short_help="Check the store and its processes for problems.")
@store_option
@click.option(
    "--app", "app", metavar="MODULE:APP", help="The App whose steps are also checked. By default the configured one."
)
@click.option("--verbose", is_flag=True, help="Also list the checks that found nothing.")
@json_option
def doctor(store: str | None, app: str | None, verbose: bool, as_json: bool) -> None:
    """Check a store: its file or server, its machine, its processes, and the tasks that wait for an operator.

    Problems come first, each with the next command. The exit code is 0 if nothing needs care, 1 if something does, and 5 if
    the store cannot be read.
    """
    diagnosis = asyncio.run(_diagnose(store, app))
    if as_json:
        print_json(diagnosis)
    else:
        _print_diagnosis(diagnosis, verbose=verbose)
    if not diagnosis.healthy:
        sys.exit(ExitCode.NO)


async def _diagnose(given: str | None, target: str | None) -> Diagnosis:
    url = refuse_memory_store(load_store_configuration(given).store)
    store_url = existing_store(url).url
    of_app = _diagnose_app(given, target)
    machine, is_readable = await diagnose_machine(url)
    findings = [*machine, *of_app.findings]
    if is_readable:
        async with open_store_to_read(given) as opened:
            findings += await diagnose_tasks(opened, of_app.not_undoable)
    return build_diagnosis(store_url, findings)


def _diagnose_app(given: str | None, target: str | None) -> AppDiagnosis:
    """Diagnose the App that was named, or the configured one.

    Raises: InvalidInput - the App that was named on the command line cannot be loaded.
    """
    if target is not None:
        return AppDiagnosis(list_steps_not_undoable(load_app(target).agents))
    configuration = load_store_configuration(given)
    if not configuration.app:
        return AppDiagnosis(None)
    try:
        return AppDiagnosis(list_steps_not_undoable(load_configured_app(configuration).agents))
    except ArrieroError as error:
        remedy = "commands that need its code will not work here: correct the setting, or go to the App's folder"
        return AppDiagnosis(None, (Finding("care", "app", str(error), remedy),))


def _print_diagnosis(diagnosis: Diagnosis, *, verbose: bool) -> None:
    click.echo(one_line(f"store {diagnosis.store}"))
    passed = [finding for finding in diagnosis.findings if finding.level == "fine"]
    for finding in diagnosis.findings:
        if finding.level != "fine" or verbose:
            first = f"{_MARKS[finding.level]:4}  "
            print_text(finding.says, first=first, hanging=6, state=_LOOKS_LIKE[finding.level])
            if finding.remedy:
                print_text(finding.remedy, first="      -> ", hanging=9)
    if passed and not verbose:
        everything = "all " if len(passed) == len(diagnosis.findings) else ""
        print_text(
            f"{everything}{format_count(len(passed), 'check')} passed (--verbose lists them)", first="ok    ", hanging=6
        )
    count = sum(finding.level == "care" for finding in diagnosis.findings)
    things = f"{format_count(count, 'thing')} {'needs' if count == 1 else 'need'}"
    click.echo("nothing needs care" if diagnosis.healthy else f"{things} care")
