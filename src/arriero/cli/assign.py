"""``arriero store assign``: say which App runs the tasks of a store."""

import asyncio
import sys

import click
import msgspec

from ..assigning import Assigned, Assignment, assign
from .operators import NOT_DONE, confirm, login_name, operating, tasks_counted
from .output import Progress, one_line, print_json
from .stores import json_option, store_option


class Told(msgspec.Struct, frozen=True):
    """What ``store assign --json`` prints. ``workflows``: how many tasks of each; ``refused``: ids with the reason."""

    app: str
    from_app: str
    dry_run: bool
    workflows: dict[str, int]
    refused: dict[str, str]


@click.command("assign", short_help="Say which App runs tasks that do not say so, or were another App's.")
@click.option("--app", "name", metavar="NAME", required=True, help="The App that runs them from now on, App(NAME).")
@click.option("--from", "from_app", metavar="NAME", default="", help="Whose they are; else tasks that do not say so.")
@click.option("--workflow", metavar="NAME", help="Only tasks of this workflow; step:NAME for tasks of one step.")
@click.option("--task", "task_ids", metavar="ID", multiple=True, help="Only this task; may be given again.")
@click.option("--ended", is_flag=True, help="Also tasks that have ended, so that the App undoes them if asked to.")
@click.option("--by", metavar="NAME", help="Who asks for it; your login name by default.")
@click.option("--reason", metavar="TEXT", required=True, help="Why; kept in the history of each task.")
@click.option("--dry-run", is_flag=True, help="Only count them.")
@click.option("--yes", is_flag=True, help="Do not ask before they are changed.")
@store_option
@json_option
def assign_command(
    name: str,
    from_app: str,
    workflow: str | None,
    task_ids: tuple[str, ...],
    ended: bool,
    by: str | None,
    reason: str,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Say which App runs tasks of this store: open ones and those in error, with --ended also the others.

    Without --from: tasks that do not say whose they are, as release 0.4.0 kept them. With --from: the tasks of an App that
    has another name now; it must not be running. A task that is held is freed; attempts under way count.
    """
    asked = Assignment(app=name, from_app=from_app, workflow=workflow, task_ids=task_ids, ended=ended)
    who = login_name() if by is None else by
    found = asyncio.run(_assigned(asked, who, reason, store, dry_run=True))
    if found.count and not dry_run:
        confirm(one_line(f"give {tasks_counted(found.count)} to App {name!r}"), yes=yes)
    if not dry_run:
        found = asyncio.run(_assigned(asked, who, reason, store, dry_run=False))
    _tell(asked, found, dry_run=dry_run, as_json=as_json)
    if found.refused:
        sys.exit(NOT_DONE)


async def _assigned(asked: Assignment, by: str, reason: str, store: str | None, *, dry_run: bool) -> Assigned:
    async with operating(None, store) as on:
        with Progress("assign", "tasks", beside_data=False) as progress:
            return await assign(on, asked, by=by, reason=reason, dry_run=dry_run, progress=progress.reached)


def _tell(asked: Assignment, found: Assigned, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json(Told(asked.app, asked.from_app, dry_run, found.workflows, dict(found.refused)))
        return
    for task_id, reason in found.refused:
        click.echo(one_line(f"refused {task_id}: {reason}"))
    of = ", ".join(f"{count:,} of {workflow}" for workflow, count in found.workflows.items())
    did = "would be of" if dry_run else "are of" if found.count != 1 else "is of"
    click.echo(one_line(f"{tasks_counted(found.count)} {did} App {asked.app!r}{f': {of}' if of else ''}"))
