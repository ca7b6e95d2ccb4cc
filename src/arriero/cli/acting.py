"""Carrying out a verb that a person asks for, on one task or on all that a filter names, and telling what came of it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import click
import msgspec

from .. import operating
from ..app import App
from ..bulk import Acted, Tasks
from ..core.verbs import judged
from ..errors import InvalidInput, VerbRefused
from ..escaping import shell_argument
from ..model import Loaded, TaskState, Verb
from ..task import TaskView, view_of
from .filters import Which
from .operators import NOT_DONE, confirm, note, note_nobody_runs, tasks_counted
from .operators import operating as opened
from .output import Progress, one_line, print_json

What = Callable[[Loaded], dict[str, Any]]


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asks for: a verb, of the task named by its id, or else of all tasks that the filter names."""

    verb: Verb
    task_id: str | None
    which: Which
    by: str
    reason: str
    dry_run: bool
    yes: bool
    store: str | None
    as_json: bool


class Outcome(msgspec.Struct, frozen=True):
    """What ``--json`` prints of each task; ``task`` only where one was named: as it stands now."""

    id: str
    verb: str
    outcome: Literal["done", "would_be_done", "refused"]
    reason: str = ""
    task: TaskView | msgspec.UnsetType = msgspec.UNSET


def nothing_more(loaded: Loaded) -> dict[str, Any]:
    """Of verbs that need no more than their name."""
    return {}


def act(ask: Ask, app: App | None = None, what: What = nothing_more) -> None:
    """Carry the verb out and tell what came of it; ends the command with 1 when some of many were refused.

    Args:
        app: whose code is needed to check what was typed; None: no code is needed.
        what: what the verb carries beside its name, for a task as it was just read.
    Raises: InvalidInput - a refusal, or a filter that names nothing; StoreError.
    """
    operating.signed(ask.by, ask.reason)
    if ask.task_id is None:
        _act_on_many(ask, app, what)
    else:
        _tell_one(ask, *asyncio.run(_act_on_one(ask, ask.task_id, app, what)))


# --- one task
async def _act_on_one(ask: Ask, task_id: str, app: App | None, what: What) -> tuple[TaskView, str]:
    """The task as it stands, and that nobody runs it, if so."""
    async with opened(app, ask.store) as on:
        task = on.task(task_id)
        loaded = await task._load_to_act()
        try:
            if ask.dry_run:
                _judge(ask, on, loaded, what(loaded))
                return view_of(loaded), ""
            await task._operate(ask.verb, loaded, ask.by, ask.reason, **what(loaded))
        except VerbRefused as refused:
            raise InvalidInput(_with_what_is_allowed(refused)) from refused
        return await task.view(), await on._nobody_runs()


def _judge(ask: Ask, app: App, loaded: Loaded, what: dict[str, Any]) -> None:
    store = app._store_open()
    command = operating.command(ask.verb, loaded, store.store_id, by=ask.by, reason=ask.reason, **what)
    if refusal := judged(command, loaded, store.now()):
        operating.raise_refused(ask.verb, loaded.task.task_id, refusal)


def _with_what_is_allowed(refused: VerbRefused) -> str:
    """The refusal, and what else the task allows, unless it says so itself."""
    others = [verb for verb in refused.allowed if verb != refused.verb]
    text = str(refused)
    return text if "allowed:" in text or not others else f"{text}; also allowed: {', '.join(others)}"


def _tell_one(ask: Ask, view: TaskView, nobody: str) -> None:
    if ask.as_json:
        print_json(Outcome(view.id, ask.verb, "would_be_done" if ask.dry_run else "done", task=view))
    elif ask.dry_run:
        click.echo(one_line(f"{ask.verb} would be accepted; task {_standing(view)}"))
    else:
        click.echo(one_line(f"task {_standing(view)}"))
    if ask.verb is Verb.ANSWER and view.state == TaskState.ERROR and not ask.dry_run:
        note(f"note: it stays in error until `arriero task resubmit {shell_argument(view.id)}` goes on from there")
    note_nobody_runs(nobody)


def _standing(view: TaskView) -> str:
    paused = ", paused" if view.paused else ""
    waiting = f"; it waits for {view.waiting_for}" if view.waiting_for else ""
    reason = f"; {view.reason}" if view.reason and view.state == TaskState.ERROR else ""
    return f"{view.id} is {view.state}{paused}{waiting}{reason}"


# --- many tasks
class Counted(Tasks):
    """Tasks of a filter, only those that a person was told the number of; others that fit it since are left alone."""

    def __init__(self, app: App, which: Which, counted: frozenset[int] | None = None) -> None:
        super().__init__(app, which.filter(app._store_open().now()))
        self._counted = counted

    async def numbers(self) -> frozenset[int]:
        """Which there are now."""
        return frozenset([number async for number in self._numbers()])

    async def _numbers(self) -> AsyncIterator[int]:
        async for number in super()._numbers():
            if self._counted is None or number in self._counted:
                yield number


def _act_on_many(ask: Ask, app: App | None, what: What) -> None:
    counted = asyncio.run(_count(ask, app))
    if not counted:
        raise InvalidInput(f"no task fits {ask.which}; `arriero task list` takes the same options")
    if not ask.dry_run:
        confirm(f"{ask.verb} {tasks_counted(len(counted))}", yes=ask.yes)
    done = asyncio.run(_act_on_each(ask, app, what, counted))
    _tell_many(ask, done.acted, len(counted))
    if done.acted.done and not ask.dry_run:
        if done.in_error:
            note(f"note: {tasks_counted(done.in_error)} in error until `arriero task resubmit` goes on from there")
        note_nobody_runs(done.nobody)
    if done.acted.refused:
        sys.exit(NOT_DONE)


async def _count(ask: Ask, app: App | None) -> frozenset[int]:
    async with opened(app, ask.store) as on:
        return await Counted(on, ask.which).numbers()


class Done(msgspec.Struct, frozen=True):
    """What a verb did to many tasks, how many of these stay in error, and that nobody runs them, if so."""

    acted: Acted
    in_error: int
    nobody: str


async def _act_on_each(ask: Ask, app: App | None, what: What, counted: frozenset[int]) -> Done:
    in_error: set[str] = set()

    def noted(loaded: Loaded) -> dict[str, Any]:
        if loaded.task.state is TaskState.ERROR:
            in_error.add(loaded.task.task_id)
        return what(loaded)

    async with opened(app, ask.store) as on:
        with Progress(ask.verb, "tasks", beside_data=False) as progress:
            acted = await Counted(on, ask.which, counted)._each(
                ask.verb, ask.by, ask.reason, ask.dry_run, progress.reached, noted
            )
        staying = in_error.intersection(acted.done) if ask.verb is Verb.ANSWER else ()
        return Done(acted, len(staying), await on._nobody_runs())


def _tell_many(ask: Ask, acted: Acted, counted: int) -> None:
    done: Literal["done", "would_be_done"] = "would_be_done" if ask.dry_run else "done"
    if ask.as_json:
        for task_id in acted.done:
            print_json(Outcome(task_id, ask.verb, done))
        for task_id, reason in acted.refused:
            print_json(Outcome(task_id, ask.verb, "refused", reason))
        return
    if ask.dry_run:
        for task_id in acted.done:
            click.echo(one_line(f"would {ask.verb} {task_id}"))
    for task_id, reason in acted.refused:
        click.echo(one_line(f"{'would be ' * ask.dry_run}refused {task_id}: {reason}"))
    accepted = "would be accepted" if ask.dry_run else "accepted"
    refused = f", refused for {len(acted.refused):,}" if acted.refused else ""
    gone = f"; {counted - acted.meant:,} no longer fit the filter" if acted.meant < counted else ""
    click.echo(f"{ask.verb}: {accepted} for {len(acted.done):,} of {tasks_counted(acted.meant)}{refused}{gone}")
