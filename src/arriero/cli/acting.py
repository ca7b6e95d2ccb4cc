"""Carrying out a verb that a person asks for, on one task or on all that a filter names, and telling what came of it."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, Literal

import msgspec

from .. import operating
from ..app import App
from ..bulk import Acted, Tasks
from ..core.verbs import VERB_RULES, judged
from ..errors import InvalidInput, VerbRefused
from ..escaping import shell_argument
from ..model import Loaded, TaskRow, TaskState, Verb
from ..task_view import asked_ahead
from .filters import Which
from .operators import NOT_DONE, confirm, note, note_nobody_runs, tasks_counted
from .operators import operating as opened
from .output import Progress, print_json, print_text
from .shapes import StandingTask, standing

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
    task: StandingTask | msgspec.UnsetType = msgspec.UNSET


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
async def _act_on_one(ask: Ask, task_id: str, app: App | None, what: What) -> tuple[StandingTask, str]:
    """The task as it stands, and that nobody runs it, if so."""
    async with opened(app, ask.store) as on:
        task = on.task(task_id)
        loaded = await task._load_to_act()
        try:
            if ask.dry_run:
                _judge(ask, on, loaded, what(loaded))
                return standing(loaded), ""
            await task._operate(ask.verb, loaded, ask.by, ask.reason, **what(loaded))
        except VerbRefused as refused:
            raise InvalidInput(_with_what_is_allowed(refused)) from refused
        after = await task._load()
        return standing(after, await asked_ahead(after, on._store_open())), await on._nobody_runs()


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


def _tell_one(ask: Ask, view: StandingTask, nobody: str) -> None:
    if ask.as_json:
        print_json(Outcome(view.id, ask.verb, "would_be_done" if ask.dry_run else "done", task=view))
    elif ask.dry_run:
        print_text(f"{ask.verb} would be accepted; task {_standing(view)}", hanging=2)
    else:
        print_text(f"task {_standing(view)}", hanging=2)
    if ask.verb is Verb.ANSWER and view.state == TaskState.ERROR and not ask.dry_run:
        note(f"note: it stays in error until `arriero task resubmit {shell_argument(view.id)}` goes on from there")
    note_nobody_runs(nobody)


def _standing(view: StandingTask) -> str:
    paused = ", paused" if view.paused else ""
    waiting = f"; it waits for {view.waiting_for}" if view.waiting_for else ""
    reason = f"; {view.reason}" if view.reason and view.state == TaskState.ERROR else ""
    return f"{view.id} is {view.state}{paused}{waiting}{reason}"


# --- many tasks
class Counted(Tasks):
    """Tasks of a filter, only those that a person was told the number of; others that fit it since are left alone."""

    def __init__(self, app: App, which: Which, counted: Collection[int] | None = None) -> None:
        super().__init__(app, which.filter(app._store_open().now()))
        self._counted = counted

    async def _rows(self) -> AsyncIterator[TaskRow]:
        async for row in super()._rows():
            if self._counted is None or row.task_no in self._counted:
                yield row


class Done(msgspec.Struct, frozen=True):
    """What a verb did, or would do, to many tasks.

    Args:
        numbers: of the tasks that it was asked of, by their ids.
        in_error: ids of those of them that were in error before.
        nobody: that no Scheduler is alive to go on with them; empty: one is.
    """

    acted: Acted
    numbers: dict[str, int]
    in_error: frozenset[str]
    nobody: str


def _act_on_many(ask: Ask, app: App | None, what: What) -> None:
    trial = asyncio.run(_act_on_each(ask, app, what, dry_run=True))
    _refuse_nothing_to_do(ask, trial.acted)
    if ask.dry_run or not trial.acted.done:
        _tell_many(ask, trial.acted)
    else:
        left = f"; {left_out_told(trial.acted)}" if trial.acted.left_out else ""
        confirm(f"{ask.verb} {tasks_counted(len(trial.acted.done))}{_refused_counted(trial.acted)}{left}", yes=ask.yes)
        counted = {trial.numbers[task_id] for task_id in trial.acted.done}
        done = asyncio.run(_act_on_each(ask, app, what, dry_run=False, counted=counted))
        acted = _after_trial(done.acted, trial.acted)
        _tell_many(ask, acted, gone=len(counted) - done.acted.meant - done.acted.left_out_count)
        _note_what_waits(ask, done)
        if acted.refused:
            sys.exit(NOT_DONE)
    if trial.acted.refused:
        sys.exit(NOT_DONE)


async def _act_on_each(
    ask: Ask, app: App | None, what: What, *, dry_run: bool, counted: Collection[int] | None = None
) -> Done:
    numbers: dict[str, int] = {}
    in_error: set[str] = set()

    def noted(loaded: Loaded) -> dict[str, Any]:
        numbers[loaded.task.task_id] = loaded.task.task_no
        if loaded.task.state is TaskState.ERROR:
            in_error.add(loaded.task.task_id)
        return what(loaded)

    async with opened(app, ask.store) as on:
        with Progress(f"{ask.verb}, looking" if dry_run else ask.verb, "tasks", beside_data=False) as progress:
            tasks = Counted(on, ask.which, counted)
            acted = await tasks._each(ask.verb, ask.by, ask.reason, dry_run, progress.reached, noted)
        return Done(acted, numbers, frozenset(in_error), await on._nobody_runs())


def _refuse_nothing_to_do(ask: Ask, acted: Acted) -> None:
    """Raises InvalidInput: no task fits the filter, or the state of none that does allows the verb."""
    if acted.meant:
        return
    if not acted.left_out:
        raise InvalidInput(f"no task fits {ask.which}; `arriero task list` takes the same options")
    states = ", ".join(state for of, state in VERB_RULES if of is ask.verb)
    raise InvalidInput(
        f"there is nothing to {ask.verb} among what fits {ask.which}: {left_out_told(acted)}; {ask.verb} is for tasks that"
        f" are {states}"
    )


def _after_trial(acted: Acted, trial: Acted) -> Acted:
    """What was done, and what the look beforehand had refused and left out already."""
    left_out = Counter(dict(trial.left_out)) + Counter(dict(acted.left_out))
    refused = (*trial.refused, *acted.refused)
    return Acted(len(acted.done) + len(refused), acted.done, refused, tuple(left_out.most_common()))


def left_out_told(acted: Acted) -> str:
    """How many were left alone, and what they are: ``98 tasks left out (97 processed, 1 compensated)``."""
    what = ", ".join(f"{count:,} {state}" for state, count in acted.left_out)
    return f"{tasks_counted(acted.left_out_count)} left out ({what})"


def _refused_counted(acted: Acted) -> str:
    return f", refused for {len(acted.refused):,}" if acted.refused else ""


def _tell_many(ask: Ask, acted: Acted, *, gone: int = 0) -> None:
    dry_run = ask.dry_run
    if ask.as_json:
        outcome: Literal["done", "would_be_done"] = "would_be_done" if dry_run else "done"
        for task_id in acted.done:
            print_json(Outcome(task_id, ask.verb, outcome))
        for task_id, reason in acted.refused:
            print_json(Outcome(task_id, ask.verb, "refused", reason))
        if acted.left_out:
            note(left_out_told(acted))  # beside the data, in which each line is one task that was asked
        return
    if dry_run:
        for task_id in acted.done:
            print_text(f"would {ask.verb} {task_id}", hanging=2)
    for task_id, reason in acted.refused:
        print_text(f"{'would be ' * dry_run}refused {task_id}: {reason}", hanging=2)
    accepted = "would be accepted" if dry_run else "accepted"
    told = f"{ask.verb}: {accepted} for {len(acted.done):,} of {tasks_counted(acted.meant)}{_refused_counted(acted)}"
    left_out = f"; {left_out_told(acted)}" if acted.left_out else ""
    print_text(f"{told}{left_out}{f'; {gone:,} no longer fit the filter' if gone else ''}", hanging=2)


def _note_what_waits(ask: Ask, done: Done) -> None:
    if not done.acted.done:
        return
    staying = done.in_error.intersection(done.acted.done) if ask.verb is Verb.ANSWER else ()
    if staying:
        note(f"note: {tasks_counted(len(staying))} in error until `arriero task resubmit` goes on from there")
    note_nobody_runs(done.nobody)
