"""``arriero purge``: remove ended tasks, with all that is kept of them, once nobody needs them any more; or what is named."""

import asyncio
from datetime import datetime

import click
import msgspec

from ..attempt import as_datetime
from ..core.purging import Named
from ..errors import InvalidInput
from ..model import Instant, TaskState, later
from ..operating import ACTOR
from ..store.base import Purge, PurgeNamed, StateStore, TaskFilter
from .durations import duration, shown_seconds
from .operators import confirm, note, refuse_unless_asked, tasks_counted
from .output import Progress, one_line, print_json, shown_time
from .stores import configured, json_option, reading, store_option

PURGEABLE = (TaskState.PROCESSED, TaskState.COMPENSATED, TaskState.ERROR)
BATCH = 200  # tasks removed in one transaction: others write in between
PAGE = 500
EMPTY_TRIES = 20  # a file's log is emptied once nobody reads an older state; between them
EMPTY_PAUSE_SECONDS = 0.25
STILL_IN_LOG = "note: somebody reads an older state of the file, so its -wal may still hold what was removed; run the same again later"


class Purging(msgspec.Struct, frozen=True, omit_defaults=True):
    """What ``purge --json`` prints: how many were removed, or with a dry run, would be at most."""

    states: tuple[str, ...]
    ended_before: datetime
    removed: int | msgspec.UnsetType = msgspec.UNSET
    at_most: int | msgspec.UnsetType = msgspec.UNSET


class PurgingNamed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What ``purge --json`` prints of what was named: how many tasks were removed, or would be."""

    what: Named
    name: str
    removed: int | msgspec.UnsetType = msgspec.UNSET
    would_remove: int | msgspec.UnsetType = msgspec.UNSET


@click.command(short_help="Remove ended tasks for good, or all that is kept of one task, convoy or ledger.")
@click.option("--older-than", metavar="DURATION", type=duration, help="Tasks that ended so long ago: 90d, 12h.")
@click.option("--task", metavar="ID", help="This task, if it has ended.")
@click.option(
    "--convoy", metavar="KEY", help="This key with its value and history, and all its tasks, if they have ended."
)
@click.option("--ledger", metavar="ID", help="This ledger, and all its tasks, if they have ended.")
@click.option(
    "--state",
    "states",
    type=click.Choice([str(state) for state in PURGEABLE]),
    multiple=True,
    help="Tasks in this state; may be given again. By default processed and compensated; error only when asked for.",
)
@click.option(
    "--batch", metavar="N", type=click.IntRange(1, 10_000), default=BATCH, show_default=True, help="So many at a time."
)
@click.option("--dry-run", is_flag=True, help="Only count what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask before tasks are removed.")
@store_option
@json_option
def purge(
    older_than: float | None,
    task: str | None,
    convoy: str | None,
    ledger: str | None,
    states: tuple[str, ...],
    batch: int,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Remove tasks that ended long ago, with their steps and history; or what is named. This cannot be undone.

    Left alone are tasks with messages that nobody has acknowledged, and with an alert that is still to be told. Never
    removed is what ended within purge.idempotency_keep_seconds, so that its id still answers with the same task.

    Of --task, --convoy and --ledger all that is kept goes, or nothing: what is in the way is named.
    """
    given: dict[Named, str | None] = {"task": task, "convoy": convoy, "ledger": ledger}
    named = [(what, name) for what, name in given.items() if name is not None]
    if len(named) + (older_than is not None) != 1:
        raise InvalidInput("purge: give one of --older-than, --task, --convoy and --ledger")
    if not dry_run:
        refuse_unless_asked("purge", yes=yes)
    if older_than is None:
        if states:
            raise InvalidInput("purge: --state goes with --older-than; what is named goes in whatever state it ended")
        _named(*named[0], batch, dry_run=dry_run, yes=yes, store=store, as_json=as_json)
    else:
        _aged(older_than, states, batch, dry_run=dry_run, yes=yes, store=store, as_json=as_json)


def _aged(
    older_than: float,
    states: tuple[str, ...],
    batch: int,
    *,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> None:
    _refuse_too_young(older_than, store)
    meant = tuple(dict.fromkeys(map(TaskState, states))) or (TaskState.PROCESSED, TaskState.COMPENSATED)
    which, count = asyncio.run(_looked_at(store, meant, older_than, counts=dry_run or not yes))
    removed: int | msgspec.UnsetType = msgspec.UNSET
    if not dry_run:
        if count != 0:
            confirm(_question(which, count), yes=yes)
        removed = asyncio.run(_purge(store, which, 0 if count == 0 else batch))
    if as_json:
        at_most: int | msgspec.UnsetType = count if dry_run and count is not None else msgspec.UNSET
        print_json(Purging(tuple(map(str, meant)), as_datetime(which.ended_before), removed, at_most))
    else:
        did = (
            f"would remove at most {tasks_counted(count or 0)}" if dry_run else f"removed {tasks_counted(removed or 0)}"
        )
        click.echo(f"{did} ({_described(which)})")


def _refuse_too_young(older_than: float, store: str | None) -> None:
    configuration = configured(store)
    keep = configuration.purge_idempotency_keep_seconds
    if older_than < keep:
        raise InvalidInput(
            f"--older-than {shown_seconds(older_than)} is shorter than purge.idempotency_keep_seconds, {shown_seconds(keep)} "
            f"({configuration.origin('purge_idempotency_keep_seconds')}): the id of a younger task must still answer with "
            "that task; give more, or set it lower"
        )


async def _looked_at(
    store: str | None, states: tuple[TaskState, ...], older_than: float, *, counts: bool
) -> tuple[Purge, int | None]:
    """What is meant, by the store's clock, and how many these are at most; None: not counted."""
    async with reading(store) as opened:
        which = Purge(states=states, ended_before=later(opened.now(), -older_than))
        return which, await _at_most(opened, which) if counts else None


async def _at_most(store: StateStore, which: Purge) -> int:
    """How many have ended so; messages and alerts may keep some of them."""
    count = 0
    with Progress("count", "tasks", beside_data=False) as progress:
        for state in which.states:
            older = TaskFilter(state=state, submitted_before=which.ended_before)
            after = 0
            while page := await store.list_tasks(older, after=after, limit=PAGE):
                count += sum(_has_ended(row.ended_at, which) and row.open_count == 0 for row in page)
                after = page[-1].task_no
                progress.reached(count)
    return count


def _has_ended(at: Instant | None, which: Purge) -> bool:
    return at is not None and at <= which.ended_before


async def _purge(store: str | None, which: Purge, batch: int) -> int:
    """How many went. ``batch`` 0: none is to go; what went before may still stand in the log."""
    removed, after = 0, 0
    async with reading(store) as opened:
        with Progress("purge", "tasks", beside_data=False) as progress:
            while batch:
                purged = await opened.purge(which, actor=ACTOR, limit=batch, after=after)
                removed += purged.count
                progress.reached(removed)
                if purged.after is None:
                    break
                after = purged.after
        await _empty_log(opened)
    return removed


async def _empty_log(store: StateStore) -> None:
    for _ in range(EMPTY_TRIES):
        if await store.empty_log():
            return
        await asyncio.sleep(EMPTY_PAUSE_SECONDS)
    note(STILL_IN_LOG)


def _named(what: Named, name: str, batch: int, *, dry_run: bool, yes: bool, store: str | None, as_json: bool) -> None:
    """Remove one task, convoy or ledger. Raises InvalidInput: it is not there, or something is in the way."""
    keep = configured(store).purge_idempotency_keep_seconds
    count = asyncio.run(_purge_named(store, what, name, keep, None))
    shown = one_line(f"{what} {name}" if what == "task" else f"{what} {name} with {tasks_counted(count)}")
    removed: int | msgspec.UnsetType = msgspec.UNSET
    if not dry_run:
        confirm(f"remove {shown} for good", yes=yes)
        removed = asyncio.run(_purge_named(store, what, name, keep, batch))
    if as_json:
        print_json(PurgingNamed(what, name, removed, count if dry_run else msgspec.UNSET))
    else:
        click.echo(f"would remove {shown}" if dry_run else f"removed {shown}")


async def _purge_named(store: str | None, what: Named, name: str, keep: float, batch: int | None) -> int:
    """How many tasks went; ``batch`` None: would go."""
    removed = 0
    async with reading(store) as opened:
        which = PurgeNamed(what=what, name=name, ended_before=later(opened.now(), -keep))
        with Progress("purge", "tasks", beside_data=False) as progress:
            while True:
                purged = await opened.purge_named(which, actor=ACTOR, limit=batch)
                if purged.kept:
                    done = f"{tasks_counted(removed)} of it were removed" if removed else "nothing was removed"
                    raise InvalidInput(f"purge: {purged.kept}; {done}")
                removed += purged.count
                progress.reached(removed)
                if purged.is_done:
                    break
        if batch is not None:
            await _empty_log(opened)
    return removed


def _question(which: Purge, count: int | None) -> str:
    many = "tasks" if count is None else f"at most {tasks_counted(count)}"
    return f"remove {many} for good ({_described(which)})"


def _described(which: Purge) -> str:
    return f"{', '.join(which.states)}; ended before {_before(which)}"


def _before(which: Purge) -> str:
    return shown_time(as_datetime(which.ended_before))
