"""``arriero purge``: remove ended tasks, with all that is kept of them, once nobody needs them any longer; or what is named."""

import asyncio
from datetime import datetime

import click
import msgspec

from ..client.task_verbs import ACTOR
from ..core.purging import Named
from ..errors import InvalidInput, NotAllowed, UnknownName
from ..model import Instant, TaskState, later
from ..model.instants import as_datetime
from ..store.contract import OBSOLETE_AT_ONCE, Purge, PurgeNamed
from ..store.state_store import StateStore
from ..store.task_filter import TaskFilter
from ..text.escaping import one_line
from ..text.format import format_seconds
from .options import (
    confirm,
    count_tasks,
    json_option,
    parse_duration,
    print_note,
    refuse_without_terminal,
    store_option,
    yes_option,
)
from .output import Progress, format_time, print_json
from .stores import load_store_configuration, open_store_to_read

PURGEABLE = (TaskState.PROCESSED, TaskState.COMPENSATED, TaskState.HELD)
BATCH = 200  # tasks removed in one transaction: others write in between
PAGE = 500
EMPTY_TRIES = 20  # a file's log is emptied once nobody reads an older state; between them
EMPTY_PAUSE_SECONDS = 0.25
STILL_IN_LOG = "note: a process reads an older state of the file, so its -wal may still hold what was removed; run the same again later"


class PurgeOutput(msgspec.Struct, frozen=True, omit_defaults=True):
    """The output of ``purge --json``: the number of removed tasks, or in a dry run, how many would be at most."""

    states: tuple[str, ...]
    ended_before: datetime
    removed: int | msgspec.UnsetType = msgspec.UNSET
    at_most: int | msgspec.UnsetType = msgspec.UNSET


class PurgeNamedOutput(msgspec.Struct, frozen=True, omit_defaults=True):
    """The output of ``purge --json`` for one name: how many tasks were removed, or would be."""

    what: Named
    name: str
    removed: int | msgspec.UnsetType = msgspec.UNSET
    would_remove: int | msgspec.UnsetType = msgspec.UNSET


@click.command(short_help="Delete ended tasks, or all data of one task, convoy or ledger.")
@click.option(
    "--older-than",
    metavar="DURATION",
    type=parse_duration,
    help="Delete tasks that ended at least this long ago, like 90d or 12h.",
)
@click.option("--task", metavar="ID", help="Delete this task, if it has ended.")
@click.option(
    "--convoy", metavar="KEY", help="Delete this key with its value and history, and all its tasks, if they have ended."
)
@click.option("--ledger", metavar="ID", help="Delete this ledger and all its tasks, if they have ended.")
@click.option(
    "--state",
    "states",
    type=click.Choice([str(state) for state in PURGEABLE]),
    multiple=True,
    help="Tasks in this state; may be given again. By default processed and compensated; error only when asked for.",
)
@click.option(
    "--batch",
    metavar="N",
    type=click.IntRange(1, 10_000),
    default=BATCH,
    show_default=True,
    help="Number of tasks per transaction.",
)
@click.option("--dry-run", is_flag=True, help="Only count what would be deleted.")
@yes_option("Do not ask before tasks are removed.")
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

    Left alone are tasks with messages that nobody has acknowledged, and with an alert that is not delivered yet. Never
    removed is what ended within purge.idempotency_keep_seconds, so that its id still answers with the same task.

    Of --task, --convoy and --ledger all that is kept goes, or nothing: what is in the way is named.
    """
    given: dict[Named, str | None] = {"task": task, "convoy": convoy, "ledger": ledger}
    named = [(what, name) for what, name in given.items() if name is not None]
    if len(named) + (older_than is not None) != 1:
        raise InvalidInput("purge: give one of --older-than, --task, --convoy and --ledger")
    if not dry_run:
        refuse_without_terminal("purge", yes=yes)
    if older_than is None:
        if states:
            raise InvalidInput("purge: --state goes with --older-than; what is named goes in whatever state it ended")
        _purge_one(*named[0], batch, dry_run=dry_run, yes=yes, store=store, as_json=as_json)
    else:
        _purge_aged(older_than, states, batch, dry_run=dry_run, yes=yes, store=store, as_json=as_json)


def _purge_aged(
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
    which, count = asyncio.run(_count_purgeable(store, meant, older_than, counts=dry_run or not yes))
    removed: int | msgspec.UnsetType = msgspec.UNSET
    if not dry_run:
        if count != 0:
            confirm(_format_question(which, count), yes=yes)
        removed = asyncio.run(_remove_aged(store, which, 0 if count == 0 else batch))
    if as_json:
        at_most: int | msgspec.UnsetType = count if dry_run and count is not None else msgspec.UNSET
        print_json(PurgeOutput(tuple(map(str, meant)), as_datetime(which.ended_before), removed, at_most))
    else:
        did = f"would remove at most {count_tasks(count or 0)}" if dry_run else f"removed {count_tasks(removed or 0)}"
        click.echo(f"{did} ({_describe_purge(which)})")


def _refuse_too_young(older_than: float, store: str | None) -> None:
    configuration = load_store_configuration(store)
    keep = configuration.purge_idempotency_keep_seconds
    if older_than < keep:
        raise InvalidInput(
            f"--older-than {format_seconds(older_than)} is shorter than purge.idempotency_keep_seconds, {format_seconds(keep)} "
            f"({configuration.origin('purge_idempotency_keep_seconds')}): the id of a younger task must still answer with "
            "that task; give more, or set it lower"
        )


async def _count_purgeable(
    store: str | None, states: tuple[TaskState, ...], older_than: float, *, counts: bool
) -> tuple[Purge, int | None]:
    """Return the selection by the store's clock, and how many tasks it has at most; None: not counted."""
    async with open_store_to_read(store) as opened:
        which = Purge(states=states, ended_before=later(opened.now(), -older_than))
        return which, await _count_at_most(opened, which) if counts else None


async def _count_at_most(store: StateStore, which: Purge) -> int:
    """Count the tasks that have ended so; messages and alerts may keep some of them."""
    count = 0
    with Progress("count", "tasks", beside_data=False) as progress:
        for state in which.states:
            older = TaskFilter(state=state, submitted_before=which.ended_before)
            after = 0
            while page := await store.list_tasks(older, after=after, limit=PAGE):
                count += sum(_has_ended(row.ended_at, which) and row.open_count == 0 for row in page)
                after = page[-1].task_no
                progress.set_count(count)
    return count


def _has_ended(at: Instant | None, which: Purge) -> bool:
    return at is not None and at <= which.ended_before


async def _remove_aged(store: str | None, which: Purge, batch: int) -> int:
    """Remove tasks and return their number; and rows of processes, leases and breakers that nothing refers to.

    ``batch`` 0: remove no tasks.
    """
    removed, after = 0, 0
    async with open_store_to_read(store) as opened:
        with Progress("purge", "tasks", beside_data=False) as progress:
            while batch:
                purged = await opened.purge(which, actor=ACTOR, limit=batch, after=after)
                removed += purged.count
                progress.set_count(removed)
                if purged.after is None:
                    break
                after = purged.after
        while max(await opened.remove_obsolete_rows(which.ended_before, which.ended_before, OBSOLETE_AT_ONCE)) > 0:
            continue
        await _empty_log(opened)
    return removed


async def _empty_log(store: StateStore) -> None:
    for _ in range(EMPTY_TRIES):
        if await store.empty_log():
            return
        await asyncio.sleep(EMPTY_PAUSE_SECONDS)
    print_note(STILL_IN_LOG)


def _purge_one(
    what: Named, name: str, batch: int, *, dry_run: bool, yes: bool, store: str | None, as_json: bool
) -> None:
    """Remove one task, convoy or ledger. Raises InvalidInput: it is not there, or something is in the way."""
    keep = load_store_configuration(store).purge_idempotency_keep_seconds
    count = asyncio.run(_remove_named(store, what, name, keep, None))
    shown = one_line(f"{what} {name}" if what == "task" else f"{what} {name} with {count_tasks(count)}")
    removed: int | msgspec.UnsetType = msgspec.UNSET
    if not dry_run:
        confirm(f"remove {shown} permanently", yes=yes)
        removed = asyncio.run(_remove_named(store, what, name, keep, batch))
    if as_json:
        print_json(PurgeNamedOutput(what, name, removed, count if dry_run else msgspec.UNSET))
    else:
        click.echo(f"would remove {shown}" if dry_run else f"removed {shown}")


async def _remove_named(store: str | None, what: Named, name: str, keep: float, batch: int | None) -> int:
    """Remove what is named and return the number of its tasks; ``batch`` None: only count them."""
    removed = 0
    async with open_store_to_read(store) as opened:
        which = PurgeNamed(what=what, name=name, ended_before=later(opened.now(), -keep))
        with Progress("purge", "tasks", beside_data=False) as progress:
            while True:
                purged = await opened.purge_named(which, actor=ACTOR, limit=batch)
                if purged.kept:
                    done = f"{count_tasks(removed)} of it were removed" if removed else "nothing was removed"
                    refusal = UnknownName if purged.is_done else NotAllowed  # done already: it is not there
                    raise refusal(f"purge: {purged.kept}; {done}")
                removed += purged.count
                progress.set_count(removed)
                if purged.is_done:
                    break
        if batch is not None:
            await _empty_log(opened)
    return removed


def _format_question(which: Purge, count: int | None) -> str:
    many = "tasks" if count is None else f"at most {count_tasks(count)}"
    return f"remove {many} permanently ({_describe_purge(which)})"


def _describe_purge(which: Purge) -> str:
    return f"{', '.join(which.states)}; ended before {_format_ended_before(which)}"


def _format_ended_before(which: Purge) -> str:
    return format_time(as_datetime(which.ended_before))
