"""``arriero task resubmit``, ``compensate``, ``cancel``, ``extend``, ``answer``, ``pause`` and ``resume``."""

from collections.abc import Callable
from typing import Any

import click

from ..client.json_payloads import build_answer_from_json, build_edit_from_json, check_json, check_object
from ..client.task_verbs import (
    check_limit,
)
from ..client.tasks import TaskSelector
from ..errors import InvalidInput
from ..model import Loaded, Verb
from ..verb_rules import VERB_RULES
from .operation_commands import gather_options
from .options import (
    Option,
    declare_verb,
    json_option,
    parse_duration,
    read_option,
    signature_options,
    store_option,
    yes_option,
)
from .stores import load_app_with_types
from .verb_execution import TaskVerbRequest, execute_verb

_SHARED_OPTIONS: tuple[Option, ...] = (
    gather_options(TaskSelector, "which"),
    signature_options("the task's history"),
    click.option("--dry-run", is_flag=True, help="Only say what would be done, and what would be refused."),
    yes_option("Do not ask before many tasks are changed."),
    store_option,
    json_option,
)
_APP: Option = click.option(
    "--app", metavar="MODULE:APP", help="The App whose types check the JSON; else the configured one."
)
_ONE_OR_MANY = "One task by its ID, or all that a filter names."


def _verb_command(verb: Verb, short_help: str, *own: Option) -> Callable[[Callable[..., None]], click.Command]:
    task_id: Option = click.argument("task_id", metavar="[ID]", required=False)
    options = (task_id, *own, *_SHARED_OPTIONS)
    return declare_verb(verb, TaskVerbRequest, VERB_RULES, "tasks", short_help, options)


@_verb_command(
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
def resubmit(request: TaskVerbRequest, arguments: str | None, at_step: str | None, app: str | None) -> None:
    """Go on from an error, doing again only what failed; or run again, from the beginning, what was undone.

    One task by its ID, or all that a filter names.
    """
    if arguments is None:
        if at_step is not None:
            raise InvalidInput("--at-step names the step whose --arguments are edited; give both, or none of them")
        execute_verb(request, None if app is None else load_app_with_types(app, request.store, "--app"))
        return
    if request.task_id is None:
        raise InvalidInput("--arguments are edited of one task at a time; give its ID instead of a filter")
    text = check_object(read_option(arguments, "--arguments"), "--arguments")
    loaded_app = load_app_with_types(app, request.store, "--arguments")

    def build_fields(loaded: Loaded) -> dict[str, Any]:
        return build_edit_from_json(loaded_app.session, loaded, text, at_step, by=request.by, reason=request.reason)

    execute_verb(request, loaded_app, build_fields)


@_verb_command(
    Verb.EXTEND,
    "Move a task's own limit to later.",
    click.option(
        "--within",
        metavar="DURATION",
        type=parse_duration,
        required=True,
        help="The new limit, from now: 90, 15m, 2h, 3d.",
    ),
)
def extend(request: TaskVerbRequest, within: float) -> None:
    """Move a task's own limit, its complete_by, to so long from now; only later, never earlier.

    One task by its ID, or all that a filter names.
    """
    limit = check_limit(within)
    execute_verb(request, build_fields=lambda loaded: {"within": limit})


@_verb_command(
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
    request: TaskVerbRequest,
    step_given: str | None,
    at_step: str | None,
    result: str | None,
    did_not_happen: bool,
    app: str | None,
) -> None:
    """Give a step's result by hand, or say that a step in doubt did not happen.

    STEP is its label, or its number, as `arriero task show` tells them; or undo:LABEL for its compensation, which
    somebody did by hand and which has no result. One task by its ID, or all that a filter names, with --at-step.
    """
    step = _require_one_step(step_given, at_step)
    if result is not None and did_not_happen:
        raise InvalidInput("--result and --did-not-happen exclude each other; give one of them")
    text, code = None, None
    if result is not None:
        text = read_option(result, "--result")
        check_json(text, "--result")
        code = load_app_with_types(app, request.store, "--result")
    elif app is not None:
        code = load_app_with_types(app, request.store, "--app")
    codes = {} if code is None else code.session.codes

    def build_fields(loaded: Loaded) -> dict[str, Any]:
        return build_answer_from_json(codes, loaded, step, text, did_not_happen=did_not_happen)

    execute_verb(request, code, build_fields)


def _require_one_step(step_given: str | None, at_step: str | None) -> str:
    if step_given is not None and at_step is not None:
        raise InvalidInput(f"the step is named twice, {step_given!r} and --at-step {at_step!r}; name it once")
    step = at_step if step_given is None else step_given
    if step is None:
        raise InvalidInput(
            "answer which step? Name it after the ID, or with --at-step; `arriero task show ID` lists them"
        )
    return step


# --- verbs that need no more than their name
def _plain_verb(verb: Verb, short_help: str, text: str) -> click.Command:
    def run(request: TaskVerbRequest) -> None:
        execute_verb(request)

    run.__doc__ = f"{text}\n\n{_ONE_OR_MANY}"
    return _verb_command(verb, short_help)(run)


VERBS = (
    resubmit,
    _plain_verb(
        Verb.COMPENSATE,
        "Undo everything a task has done, also after its end.",
        "Undo everything a task has done, also after its end; refused past a pivot.",
    ),
    _plain_verb(
        Verb.CANCEL,
        "Stop a task that is under way, and undo what it did.",
        "Stop a task that is under way: what it did is undone; past a pivot it is held in error.",
    ),
    extend,
    answer,
    _plain_verb(
        Verb.PAUSE,
        "Let nothing new begin in a task until it is resumed.",
        "Let nothing new begin in a task until it is resumed; attempts under way end. Its own limit goes on counting, and "
        "is enforced only once it is resumed.",
    ),
    _plain_verb(Verb.RESUME, "Let a paused task go on.", "Let a paused task go on."),
)
