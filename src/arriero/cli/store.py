"""``arriero store``: what is done to a store as a whole."""

import asyncio
import sys

import click
import msgspec

from ..client.app_assignment import Assigned, Assignment, TokenLeftBehind, assign
from ..client.task_verbs import ACTOR, check_signature
from ..operations.problems import ExitCode
from ..text.escaping import one_line
from .near_misses import NearMissGroup
from .options import confirm, count_tasks, json_option, signature_options, store_option, yes_option
from .output import Progress, print_json
from .stores import open_operator, open_store_to_read


class Epoch(msgspec.Struct, frozen=True):
    """The output of ``store new-epoch --json``."""

    store: str
    epoch: int


class AssignResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The output of ``store assign --json``.

    Args:
        workflows: how many tasks of each.
        refused: ids with the reason.
        tokens: that do not reach these tasks any longer; left out if there are none.
    """

    app: str
    from_app: str
    dry_run: bool
    workflows: dict[str, int]
    refused: dict[str, str]
    tokens: tuple[TokenLeftBehind, ...] = ()


@click.group(cls=NearMissGroup, short_help="Assign tasks to an App, and start a new epoch after a restore.")
def store() -> None:
    """Do something to a store as a whole."""


@store.command("new-epoch", short_help="Start a new epoch after the store was restored from a backup.")
@signature_options("the store's history")
@store_option
@json_option
def new_epoch(by: str, reason: str, store: str | None, as_json: bool) -> None:
    """Open a new epoch, once after a store was restored from a backup and before anything runs on it again.

    Whatever a process of before still sends is refused; processes that run begin again by themselves. Numbers that may
    have been given since the backup are not given again.
    """
    who, why = check_signature(by, reason)
    epoch = asyncio.run(_open_epoch(store, f"{ACTOR} {who}", why))
    if as_json:
        print_json(epoch)
    else:
        click.echo(one_line(f"store {epoch.store} is in epoch {epoch.epoch}; processes that run on it begin again"))


async def _open_epoch(given: str | None, actor: str, reason: str) -> Epoch:
    async with open_store_to_read(given) as opened:
        return Epoch(opened.url, await opened.new_epoch(actor, reason))


@store.command("assign", short_help="Assign tasks to an App.")
@click.option("--to", "name", metavar="NAME", required=True, help="The App that runs the tasks from now on, App(NAME).")
@click.option(
    "--from",
    "from_app",
    metavar="NAME",
    default="",
    help="The App of the tasks until now. By default tasks without an App.",
)
@click.option("--workflow", metavar="NAME", help="Only tasks of this workflow, or step:NAME for tasks of one step.")
@click.option("--task", "task_ids", metavar="ID", multiple=True, help="Only this task. Can be repeated.")
@click.option("--ended", is_flag=True, help="Also tasks that have ended, so that the App can undo them.")
@signature_options("the history of each task")
@click.option("--dry-run", is_flag=True, help="Only count the tasks.")
@yes_option("Do not ask before they are changed.")
@store_option
@json_option
def assign_tasks(
    name: str,
    from_app: str,
    workflow: str | None,
    task_ids: tuple[str, ...],
    ended: bool,
    by: str,
    reason: str,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Say which App runs tasks of this store: open ones and those held, with --ended also the others.

    Without --from: tasks that do not say whose they are, as release 0.4.0 kept them. With --from: the tasks of an App that
    has another name now; it must not be running. A task that a process drives is freed; running attempts count.
    """
    asked = Assignment(app=name, from_app=from_app, workflow=workflow, task_ids=task_ids, ended=ended)
    found = asyncio.run(_assign(asked, by, reason, store, dry_run=True))
    if found.count and not dry_run:
        confirm(one_line(f"give {count_tasks(found.count)} to App {name!r}"), yes=yes)
    if not dry_run:
        found = asyncio.run(_assign(asked, by, reason, store, dry_run=False))
    _print_assigned(asked, found, dry_run=dry_run, as_json=as_json)
    if found.refused:
        sys.exit(ExitCode.NO)


async def _assign(asked: Assignment, by: str, reason: str, store: str | None, *, dry_run: bool) -> Assigned:
    async with open_operator(None, store) as on:
        with Progress("assign", "tasks", beside_data=False) as progress:
            return await assign(on.session, asked, by=by, reason=reason, dry_run=dry_run, progress=progress.set_count)


def _print_assigned(asked: Assignment, found: Assigned, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json(AssignResult(asked.app, asked.from_app, dry_run, found.workflows, dict(found.refused), found.tokens))
        return
    for task_id, reason in found.refused:
        click.echo(one_line(f"refused {task_id}: {reason}"))
    of = ", ".join(f"{count:,} of {workflow}" for workflow, count in found.workflows.items())
    did = "would be of" if dry_run else "are of" if found.count != 1 else "is of"
    click.echo(one_line(f"{count_tasks(found.count)} {did} App {asked.app!r}{f': {of}' if of else ''}"))
    for token in found.tokens:
        reaches = "would not reach" if dry_run else "does not reach"
        click.echo(
            one_line(
                f"token {token.id} of {token.name} is restricted to App {', '.join(token.apps)}: it {reaches} them"
            )
        )
        click.echo(f"    {one_line(token.remedy)}")
