"""``arriero lint``: calls in workflow code that a replay cannot repeat, found by reading it."""

import sys
import warnings
from typing import TYPE_CHECKING

import click

from ..client.app import App
from ..config import load_configuration
from ..operations.problems import ExitCode
from ..text.escaping import one_line
from ..text.format import format_count
from .options import json_option, print_note
from .output import print_json
from .stores import app_argument, load_chosen_app

if TYPE_CHECKING:
    from ..lint import LintReport

WORKFLOWS_SHOWN_MAX = 3  # of those that reach one finding


@click.command(short_help="Find calls in workflow code that a replay cannot repeat.")
@app_argument
@json_option
def lint(app: str | None, as_json: bool) -> None:
    """Find calls in workflow code that a replay cannot repeat: clocks, chance, environment, files, network, threads.

    It reads the code of the App's workflows and of your own functions that it calls, and runs neither. Steps are not
    workflow code. A line with the comment `# arriero: allow REASON` is accepted.

    The exit code is 0 if nothing was found, and 1 if something was. Code that cannot be read is named on standard error and
    does not change the exit code.
    """
    from ..lint import find_hazards  # only here: it reads all modules that it finds

    report = find_hazards([(one.name, one.function) for one in _load_quietly(app).workflows])
    for unread in report.unread:
        print_note(f"not read: workflow {unread.workflow}: {unread.reason}")
    if as_json:
        print_json(report)
    else:
        for finding in report.findings:
            place = f"{finding.path}:{finding.line}:{finding.column}"
            what = f"{finding.calls} {finding.fact}".strip()
            click.echo(
                one_line(f"{place}: {_name_workflows(finding.workflows, finding.through)}{what}; {finding.instead}")
            )
        click.echo(_summarize(report))
    if report.findings:
        sys.exit(ExitCode.NO)


def _summarize(report: "LintReport") -> str:
    read = f"{format_count(report.workflows, 'workflow')}, {format_count(report.functions, 'function')}"
    count = format_count(len(report.findings), "finding") if report.findings else "nothing was found"
    accepted = f", {report.allowed:,} accepted" if report.allowed else ""
    unread = len({one.workflow for one in report.unread})
    verb = "was" if unread == 1 else "were"
    rest = f"; {format_count(unread, 'workflow')} {verb} not read in full" if unread else ""
    return f"{read}: {count}{accepted}{rest}"


def _load_quietly(named: str | None) -> App:
    """Load the App without the warnings of its decorators, which say a part of what is found here. Raises InvalidInput."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"workflow .* calls ", UserWarning)
        return load_chosen_app(named, load_configuration())


def _name_workflows(workflows: tuple[str, ...], through: tuple[str, ...]) -> str:
    if not workflows:
        return ""
    shown = ", ".join(workflows[:WORKFLOWS_SHOWN_MAX])
    more = f" and {len(workflows) - WORKFLOWS_SHOWN_MAX:,} more" if len(workflows) > WORKFLOWS_SHOWN_MAX else ""
    way = f", through {' > '.join(through)}" if through else ""
    return f"workflow{'s' if len(workflows) > 1 else ''} {shown}{more}{way}: "
