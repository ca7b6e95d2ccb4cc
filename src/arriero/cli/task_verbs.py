"""The commands of the verbs on tasks, built from their declarations in ``model.verb_rules``."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Literal

import click
import msgspec

from ..client.app import App
from ..client.json_payloads import build_verb_fields
from ..client.session import load_task
from ..client.task_shapes import StandingTask, load_standing_task
from ..client.task_verbs import (
    Acted,
    check_signature,
    load_task_to_act,
    operate_task,
    operate_tasks,
    preview_verb,
)
from ..client.tasks import TaskSelector
from ..errors import InvalidInput, NotAllowed, UnknownTask
from ..model import Loaded, TaskState, Verb
from ..model.tags import gather_tags, parse_tag
from ..model.verb_rules import VERB_RULES, VERBS, AnswerArguments, TagArguments, VerbArguments
from ..operations.problems import ExitCode
from ..text.escaping import shell_argument
from ..text.format import CARRIED_OUT, UNCHANGED
from .operation_commands import (
    build_option_names,
    build_options,
    format_options,
    gather_options,
    read_arguments,
)
from .options import (
    Option,
    confirm,
    count_tasks,
    json_option,
    print_nobody_runs,
    print_note,
    signature_options,
    store_option,
    yes_option,
)
from .output import Progress, print_json, print_text
from .stores import load_app_with_types, open_operator


class TaskVerbRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A verb that an operator asks for, on the task named by its id, or else on all tasks that the filter selects."""

    verb: Verb
    task_id: str | None
    which: TaskSelector
    by: str
    reason: str
    dry_run: bool
    yes: bool
    store: str | None
    as_json: bool

    def __post_init__(self) -> None:
        filters, verb = format_options(self.which.check("--")), self.verb
        if self.task_id is None and not filters:
            raise InvalidInput(
                f"{verb} what? Give the ID of a task, or say what many have in common, like --state held; "
                f"see `arriero task {verb} --help`"
            )
        if self.task_id is not None and filters:
            is_misled = self.which.step is not None and verb in (Verb.RESUBMIT, Verb.ADJUST, Verb.ANSWER)
            hint = "; a step of one task is named by --at-step" if is_misled else ""
            raise InvalidInput(
                f"both the ID {self.task_id!r} and a filter ({filters}) are given; give one of them{hint}"
            )


class TaskVerbOutcome(msgspec.Struct, frozen=True):
    """One line of ``--json`` for each task; ``task``, as it stands now, only where one was named.

    ``outcome``: ``would_count`` where a dry run finds that the verb would only count as one approval of several.
    ``changes``: in words: each limit and tag that changed, with its old value, and what did not; and approvals. Of a dry run, what
    would change.
    """

    id: str
    verb: str
    outcome: Literal["done", "would_be_done", "would_count", "refused"]
    reason: str = ""
    changes: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    task: StandingTask | msgspec.UnsetType = msgspec.UNSET


def execute_verb(request: TaskVerbRequest, arguments: VerbArguments, app: App | None = None) -> None:
    """Carry the verb out and print what came of it; exits with 1 if some of many tasks were refused.

    Args:
        app: whose code checks what was typed; None: no code is needed.
    Raises: InvalidInput - a refusal, or a filter that names nothing; StoreError.
    """
    check_signature(request.by, request.reason)
    if request.task_id is None:
        _execute_on_many(request, app, arguments)
    else:
        _print_one(request, *asyncio.run(_execute_on_one(request, request.task_id, app, arguments)))


# --- one task
async def _execute_on_one(
    request: TaskVerbRequest, task_id: str, app: App | None, arguments: VerbArguments
) -> tuple[StandingTask, str, tuple[str, ...]]:
    """The task as it stands, that nobody runs it, if so, and what has changed, or would."""
    async with open_operator(app, request.store) as on:
        session = on.session
        loaded = await load_task_to_act(session, on.task(task_id).id)
        fields = build_verb_fields(session, loaded, arguments, by=request.by, reason=request.reason)
        if request.dry_run:
            changes = await preview_verb(session, request.verb, loaded, request.by, request.reason, **fields)
            return await load_standing_task(loaded, session.store), "", changes
        changes = await operate_task(session, request.verb, loaded, request.by, request.reason, **fields)
        after = await load_task(session, task_id)
        return await load_standing_task(after, session.store), await session.describe_missing_scheduler(), changes


def _print_one(request: TaskVerbRequest, view: StandingTask, nobody: str, changes: tuple[str, ...]) -> None:
    if request.as_json:
        outcome: Literal["done", "would_be_done"] = "would_be_done" if request.dry_run else "done"
        print_json(TaskVerbOutcome(view.id, request.verb, outcome, changes=changes or msgspec.UNSET, task=view))
    else:
        accepted = f"{request.verb} would be accepted; " if request.dry_run else ""
        print_text(f"{accepted}task {_format_standing(view)}", hanging=2)
        changed = "would change" if request.dry_run else "changed"
        for change in changes:
            print_text(change if change.startswith(_NO_VALUES) else f"{changed}: {change}", hanging=2)
    if request.verb is Verb.ANSWER and view.state == TaskState.HELD and not request.dry_run:
        print_note(f"note: it stays held until `arriero task resubmit {shell_argument(view.id)}` continues it")
    print_nobody_runs(nobody)


_NO_VALUES = (UNCHANGED, CARRIED_OUT, _WOULD_BE := "would be ")  # begin what is said beside changed values


def _format_standing(view: StandingTask) -> str:
    paused = ", paused" if view.paused else ""
    waiting = f"; it waits for {view.waiting_for}" if view.waiting_for else ""
    reason = f"; {view.reason}" if view.reason and view.state == TaskState.HELD else ""
    return f"{view.id} is {view.state}{paused}{waiting}{reason}"


# --- many tasks
class ManyDone(msgspec.Struct, frozen=True):
    """The outcome of a verb on many tasks, or of its dry run.

    Args:
        numbers: of the tasks that it was asked of, by their ids.
        held: ids of those of them that were held before.
        nobody: that no Scheduler is alive to continue with them; empty: one is.
    """

    acted: Acted
    numbers: dict[str, int]
    held: frozenset[str]
    nobody: str


def _execute_on_many(request: TaskVerbRequest, app: App | None, arguments: VerbArguments) -> None:
    trial = asyncio.run(_execute_on_each(request, app, arguments, dry_run=True))
    _refuse_empty_selection(request, trial.acted)
    if request.dry_run or not trial.acted.done:
        _print_many(request, trial.acted)
    else:
        left = f"; {format_left_out(trial.acted)}" if trial.acted.left_out else ""
        confirm(
            f"{request.verb} {count_tasks(len(trial.acted.done))}{_format_exceptions(trial.acted)}{left}",
            yes=request.yes,
        )
        counted = {trial.numbers[task_id] for task_id in trial.acted.done}
        done = asyncio.run(_execute_on_each(request, app, arguments, dry_run=False, counted=counted))
        acted = _merge_trial(done.acted, trial.acted)
        _print_many(request, acted, gone=len(counted) - done.acted.meant - done.acted.left_out_count)
        _print_what_waits(request, done)
        if acted.refused:
            sys.exit(ExitCode.NO)
    if trial.acted.refused:
        sys.exit(ExitCode.NO)


async def _execute_on_each(
    request: TaskVerbRequest,
    app: App | None,
    arguments: VerbArguments,
    *,
    dry_run: bool,
    counted: Collection[int] | None = None,
) -> ManyDone:
    """``counted``: numbers of the tasks that an operator was notified of; others that fit the filter since are left alone."""
    numbers: dict[str, int] = {}
    held: set[str] = set()

    def note_task(loaded: Loaded) -> dict[str, Any]:
        numbers[loaded.task.task_id] = loaded.task.task_no
        if loaded.task.state is TaskState.HELD:
            held.add(loaded.task.task_id)
        return build_verb_fields(session, loaded, arguments, by=request.by, reason=request.reason)

    async with open_operator(app, request.store) as on:
        session = on.session
        with Progress(f"{request.verb}, looking" if dry_run else request.verb, "tasks", beside_data=False) as progress:
            acted = await operate_tasks(
                session,
                request.verb,
                request.which.build_filter(session.store.now()),
                request.by,
                request.reason,
                dry_run=dry_run,
                progress=progress.set_count,
                build_fields=note_task,
                is_meant=lambda row: counted is None or row.task_no in counted,
            )
        return ManyDone(acted, numbers, frozenset(held), await session.describe_missing_scheduler())


def _refuse_empty_selection(request: TaskVerbRequest, acted: Acted) -> None:
    """Refuse a filter that no task fits, or whose tasks all have a state that does not allow the verb."""
    if acted.meant:
        return
    meant = format_options(request.which)
    if not acted.left_out:
        raise UnknownTask(f"no task fits {meant}; `arriero task list` takes the same options")
    states = ", ".join(state for of, state in VERB_RULES if of is request.verb)
    raise NotAllowed(
        f"there is nothing to {request.verb} among what fits {meant}: {format_left_out(acted)}; {request.verb} is for tasks that"
        f" are {states}"
    )


def _merge_trial(acted: Acted, trial: Acted) -> Acted:
    """Add to the outcome the tasks that the dry run before it refused and left out."""
    left_out = Counter(dict(trial.left_out)) + Counter(dict(acted.left_out))
    refused = (*trial.refused, *acted.refused)
    return Acted(len(acted.done) + len(refused), acted.done, refused, tuple(left_out.most_common()), acted.changes)


def format_left_out(acted: Acted) -> str:
    """Format the tasks that were left out: ``98 tasks left out (97 processed, 1 compensated)``."""
    what = ", ".join(f"{count:,} {state}" for state, count in acted.left_out)
    return f"{count_tasks(acted.left_out_count)} left out ({what})"


def _format_exceptions(acted: Acted) -> str:
    counts = f", for {len(acted.would_count):,} only as one approval of several" if acted.would_count else ""
    return f"{counts}{f', refused for {len(acted.refused):,}' if acted.refused else ''}"


def _print_many(request: TaskVerbRequest, acted: Acted, *, gone: int = 0) -> None:
    dry_run = request.dry_run
    if request.as_json:
        counting = frozenset(acted.would_count)
        for task_id in acted.done:
            foreseen: Literal["would_be_done", "would_count"] = (
                "would_count" if task_id in counting else "would_be_done"
            )
            changes = acted.changes.get(task_id, msgspec.UNSET)
            print_json(TaskVerbOutcome(task_id, request.verb, foreseen if dry_run else "done", changes=changes))
        for task_id, reason in acted.refused:
            print_json(TaskVerbOutcome(task_id, request.verb, "refused", reason))
        if acted.left_out:
            print_note(format_left_out(acted))  # beside the data, in which each line is one task that was asked
        return
    for task_id in acted.done:
        changed = "; ".join(acted.changes.get(task_id, ()))
        if changed or dry_run:
            would = "would " if dry_run and not changed.startswith(_WOULD_BE) else ""
            print_text(f"{would}{request.verb} {task_id}{f': {changed}' if changed else ''}", hanging=2)
    for task_id, reason in acted.refused:
        print_text(f"{'would be ' * dry_run}refused {task_id}: {reason}", hanging=2)
    accepted = "would be accepted" if dry_run else "accepted"
    told = (
        f"{request.verb}: {accepted} for {len(acted.done):,} of {count_tasks(acted.meant)}{_format_exceptions(acted)}"
    )
    left_out = f"; {format_left_out(acted)}" if acted.left_out else ""
    print_text(f"{told}{left_out}{f'; {gone:,} no longer fit the filter' if gone else ''}", hanging=2)


def _print_what_waits(request: TaskVerbRequest, done: ManyDone) -> None:
    if not done.acted.done:
        return
    staying = done.held.intersection(done.acted.done) if request.verb is Verb.ANSWER else ()
    if staying:
        print_note(f"note: {count_tasks(len(staying))} held until `arriero task resubmit` continues from there")
    print_nobody_runs(done.nobody)


_SHARED_OPTIONS: tuple[Option, ...] = (
    gather_options(TaskSelector, "which"),
    signature_options("the task's history"),
    click.option("--dry-run", is_flag=True, help="Only print what would be done, and what would be refused."),
    yes_option("Do not ask before many tasks are changed."),
    store_option,
    json_option,
)
_APP: Option = click.option(
    "--app", metavar="MODULE:APP", help="The App whose types check the JSON. By default the configured one."
)
_TASK_ID: Option = click.argument("task_id", metavar="[ID]", required=False)
_STEP: list[Option] = [
    click.argument("positional_step", metavar="[STEP]", required=False),
    click.option(
        "--at-step",
        metavar="STEP",
        help="The same as STEP. Use it with a filter in place of the ID.",
    ),
]


_CHANGES: list[Option] = [click.argument("words", metavar="[NAME=VALUE|NAME-]...", nargs=-1)]


def build_verb_command(verb: Verb) -> click.Command:
    """Build the command of a verb."""
    declared = VERBS[verb]
    names = build_option_names(declared.arguments)
    own = build_options(declared.arguments)
    if declared.arguments is AnswerArguments:
        own = _STEP + build_options(declared.arguments, without=["step"])
    elif declared.arguments is TagArguments:
        own = _CHANGES + own
    if any(_is_json(field) for field in msgspec.structs.fields(declared.arguments)):
        own.append(_APP)

    def run(app: str | None = None, **given: Any) -> None:
        if declared.arguments is AnswerArguments:
            given["at_step"] = _require_one_step(given.pop("positional_step"), given["at_step"])
        elif declared.arguments is TagArguments:
            given |= _read_tag_words(given)
        own_given = {name: given.pop(option.strip("-").replace("-", "_")) for name, option in names.items()}
        request = TaskVerbRequest(verb=verb, **given)
        if not names:
            execute_verb(request, VerbArguments())
            return
        arguments: VerbArguments = read_arguments(declared.arguments, own_given)
        arguments.check(names.__getitem__)
        edited = [option for name, option in names.items() if isinstance(getattr(arguments, name), msgspec.Raw)]
        if edited and declared.is_edit and request.task_id is None:
            raise InvalidInput(f"{edited[0]} are edited of one task at a time; give its ID instead of a filter")
        execute_verb(request, arguments, _load_types(app, request.store, edited))

    command: Callable[..., None] = run
    for option in reversed((_TASK_ID, *own, *_SHARED_OPTIONS)):
        command = option(command)
    text = f"{declared.text}\n\nOne task by its ID, or all that a filter names."
    epilog = f"For tasks that are: {', '.join(state for of, state in VERB_RULES if of is verb)}."
    return click.command(str(verb), short_help=declared.summary, help=text, epilog=epilog)(command)


def _is_json(field: msgspec.structs.FieldInfo) -> bool:
    return field.default is msgspec.UNSET


def _load_types(app: str | None, store: str | None, edited: list[str]) -> App | None:
    """Load the App whose types check the JSON that was typed; None: none was, and no App was named."""
    if edited:
        return load_app_with_types(app, store, edited[0])
    return None if app is None else load_app_with_types(app, store, "--app")


def _require_one_step(positional: str | None, at_step: str | None) -> str:
    if positional is not None and at_step is not None:
        raise InvalidInput(f"the step is named twice, {positional!r} and --at-step {at_step!r}; name it once")
    step = at_step if positional is None else positional
    if step is None:
        raise InvalidInput(
            "answer which step? Name it after the ID, or with --at-step; `arriero task show ID` lists them"
        )
    return step


def _read_tag_words(given: dict[str, Any]) -> dict[str, Any]:
    """Read the words of a change of tags, which follow the ID, or a filter in place of it."""
    words: tuple[str, ...] = given.pop("words")
    task_id: str | None = given["task_id"]
    if task_id is not None and format_options(given["which"]):
        words, task_id = (task_id, *words), None
    removed = [word for word in words if "=" not in word]
    for word in removed:
        if not word.endswith("-"):
            raise InvalidInput(f"{word!r} is not a change of a tag; write NAME=VALUE to put it, or NAME- to remove it")
    put = gather_tags([*given["put"], *(parse_tag(word) for word in words if "=" in word)])
    remove = (*given["remove"], *(word.removesuffix("-") for word in removed))
    return {"task_id": task_id, "put": put, "remove": remove}


VERB_COMMANDS = tuple(map(build_verb_command, Verb))
