"""``arriero task resubmit``, ``compensate``, ``cancel``, ``extend``, ``answer``, ``pause`` and ``resume``."""

import functools
from collections.abc import Callable
from typing import Any

import click
import msgspec

from .. import operating
from ..app import App
from ..core.verbs import VERB_RULES
from ..errors import InvalidInput
from ..model import Loaded, StepKind, Verb
from ..runtime.code import STEP_PREFIX
from .acting import Ask, What, act
from .durations import duration
from .filters import Which, filter_options
from .operators import app_with_types, login_name
from .payloads import checked_json, checked_object, given_or_read, typed_arguments, typed_result
from .stores import json_option, store_option

Option = Callable[[Callable[..., None]], Callable[..., None]]

_ID: Option = click.argument("task_id", metavar="[ID]", required=False)
_OF_EVERY_VERB: tuple[Option, ...] = (
    filter_options,
    click.option("--by", metavar="NAME", help="Who asks for it; your login name by default."),
    click.option("--reason", metavar="TEXT", required=True, help="Why; kept in the task's history."),
    click.option("--dry-run", is_flag=True, help="Only say what would be done, and what would be refused."),
    click.option("--yes", is_flag=True, help="Do not ask before many tasks are changed."),
    store_option,
    json_option,
)
_APP: Option = click.option(
    "--app", metavar="MODULE:APP", help="The App whose types check the JSON; else the configured one."
)


def verb_command(verb: Verb, short_help: str, *own: Option) -> Callable[[Callable[..., None]], click.Command]:
    """Declare a verb's command: its function gets an ``Ask``, and the values of the verb's own options."""

    def declare(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def gathered(task_id: str | None, which: Which, by: str | None, **given: Any) -> None:
            _refuse_unless_one(verb, task_id, which)
            names = ("reason", "dry_run", "yes", "store", "as_json")
            every = {name: given.pop(name) for name in names}
            who = login_name() if by is None else by
            function(Ask(verb=verb, task_id=task_id, which=which, by=who, **every), **given)

        command: Callable[..., None] = gathered
        for option in reversed((_ID, *own, *_OF_EVERY_VERB)):
            command = option(command)
        states = ", ".join(state for of, state in VERB_RULES if of is verb)
        return click.command(str(verb), short_help=short_help, epilog=f"For tasks that are: {states}.")(command)

    return declare


def _refuse_unless_one(verb: Verb, task_id: str | None, which: Which) -> None:
    filters = str(which)
    if task_id is None and not filters:
        raise InvalidInput(
            f"{verb} what? Give the ID of a task, or say what many have in common, like --state error; "
            f"see `arriero task {verb} --help`"
        )
    if task_id is not None and filters:
        is_misled = which.step is not None and verb in (Verb.RESUBMIT, Verb.ANSWER)
        hint = "; a step of one task is named by --at-step" if is_misled else ""
        raise InvalidInput(f"both the ID {task_id!r} and a filter ({filters}) are given; give one of them{hint}")


@verb_command(
    Verb.RESUBMIT,
    "Go on from an error, or run again what was undone.",
    click.option(
        "--arguments",
        metavar="JSON",
        help="Of one task: send the failed step these from now on, by parameter name; those not named stay. "
        "Of a task that was undone, or has no steps: the workflow's. - reads them from standard input.",
    ),
    click.option(
        "--at-step", metavar="STEP", help="Whose arguments are edited, where several steps failed: its label or number."
    ),
    _APP,
)
def resubmit(ask: Ask, arguments: str | None, at_step: str | None, app: str | None) -> None:
    """Go on from an error, doing again only what failed; or run again, from the beginning, what was undone.

    One task by its ID, or all that a filter names.
    """
    if arguments is None:
        if at_step is not None:
            raise InvalidInput("--at-step names the step whose --arguments are edited; give both, or none of them")
        act(ask, None if app is None else app_with_types(app, ask.store, "--app"))
        return
    if ask.task_id is None:
        raise InvalidInput("--arguments are edited of one task at a time; give its ID instead of a filter")
    text = checked_object(given_or_read(arguments, "--arguments"), "--arguments")
    act(ask, *_edited(app_with_types(app, ask.store, "--arguments"), text, at_step))


def _edited(app: App, text: str, at_step: str | None) -> tuple[App, What]:
    def what(loaded: Loaded) -> dict[str, Any]:
        _, definition = operating.edited_definition(loaded, app._codes, at_step)
        typed = typed_arguments(definition.signature, text)
        return operating.edited(loaded, app._codes, typed, at_step)

    return app, what


@verb_command(Verb.COMPENSATE, "Undo everything a task has done, also after its end.")
def compensate(ask: Ask) -> None:
    """Undo everything a task has done, also after its end; refused past a pivot.

    One task by its ID, or all that a filter names.
    """
    act(ask)


@verb_command(Verb.CANCEL, "Stop a task that is under way, and undo what it did.")
def cancel(ask: Ask) -> None:
    """Stop a task that is under way: what it did is undone; past a pivot it is held in error.

    One task by its ID, or all that a filter names.
    """
    act(ask)


@verb_command(
    Verb.EXTEND,
    "Move a task's own limit to later.",
    click.option(
        "--within", metavar="DURATION", type=duration, required=True, help="The new limit, from now: 90, 15m, 2h, 3d."
    ),
)
def extend(ask: Ask, within: float) -> None:
    """Move a task's own limit, its complete_by, to so long from now; only later, never earlier.

    One task by its ID, or all that a filter names.
    """
    limit = operating.limit_seconds(within)
    act(ask, what=lambda loaded: {"within": limit})


@verb_command(
    Verb.ANSWER,
    "Give a step's result by hand, or say that it did not happen.",
    click.argument("step_given", metavar="[STEP]", required=False),
    click.option(
        "--at-step", metavar="STEP", help="The same as STEP; the way to name it where a filter stands for the ID."
    ),
    click.option("--result", metavar="JSON", help="What the step answered; - reads it from standard input."),
    click.option("--did-not-happen", is_flag=True, help="The step is in doubt, and you know that it did not happen."),
    _APP,
)
def answer(
    ask: Ask, step_given: str | None, at_step: str | None, result: str | None, did_not_happen: bool, app: str | None
) -> None:
    """Give a step's result by hand, or say that a step in doubt did not happen.

    STEP is its label, or its number, as `arriero task show` tells them; or undo:LABEL for its compensation, which
    somebody did by hand and which has no result. One task by its ID, or all that a filter names, with --at-step.
    """
    step = _one_step(step_given, at_step)
    if result is not None and did_not_happen:
        raise InvalidInput("--result and --did-not-happen exclude each other; give one of them")
    if result is None:
        code = None if app is None else app_with_types(app, ask.store, "--app")
        act(ask, code, lambda loaded: _answered_without_result(loaded, step, did_not_happen))
    else:
        text = given_or_read(result, "--result")
        checked_json(text, "--result")
        act(ask, *_answered(app_with_types(app, ask.store, "--result"), text, step))


def _one_step(step_given: str | None, at_step: str | None) -> str:
    if step_given is not None and at_step is not None:
        raise InvalidInput(f"the step is named twice, {step_given!r} and --at-step {at_step!r}; name it once")
    step = at_step if step_given is None else step_given
    if step is None:
        raise InvalidInput(
            "answer which step? Name it after the ID, or with --at-step; `arriero task show ID` lists them"
        )
    return step


def _answered_without_result(loaded: Loaded, step: str, did_not_happen: bool) -> dict[str, Any]:
    row = operating.step_named(loaded, step)
    if row.kind is StepKind.STEP and not did_not_happen:
        raise InvalidInput(f"step {row.label}: give its --result JSON, or say --did-not-happen")
    return operating.answered(loaded, {}, step, msgspec.UNSET, did_not_happen)


def _answered(app: App, text: str, step: str) -> tuple[App, What]:
    def what(loaded: Loaded) -> dict[str, Any]:
        row = operating.step_named(loaded, step)
        if row.kind is StepKind.COMPENSATION:
            raise InvalidInput(f"undo:{row.label} is a compensation and has no result: leave --result out")
        definition = operating.definition_of(app._codes, STEP_PREFIX + row.name)
        return operating.answered(loaded, app._codes, step, typed_result(definition.signature, text), False)

    return app, what


@verb_command(Verb.PAUSE, "Let nothing new begin in a task until it is resumed.")
def pause(ask: Ask) -> None:
    """Let nothing new begin in a task until it is resumed; attempts under way end, and its own limit waits too.

    One task by its ID, or all that a filter names.
    """
    act(ask)


@verb_command(Verb.RESUME, "Let a paused task go on.")
def resume(ask: Ask) -> None:
    """Let a paused task go on.

    One task by its ID, or all that a filter names.
    """
    act(ask)


VERBS = (resubmit, compensate, cancel, extend, answer, pause, resume)
