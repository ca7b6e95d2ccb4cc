"""The commands of the verbs on tasks, built from their declarations in ``verb_rules``."""

from collections.abc import Callable
from typing import Any

import click
import msgspec

from ..client.app import App
from ..client.tasks import TaskSelector
from ..errors import InvalidInput
from ..model import Verb
from ..verb_rules import VERB_RULES, VERBS, AnswerArguments, VerbArguments
from .operation_commands import build_options, gather_options, name_option, read_arguments
from .options import Option, json_option, signature_options, store_option, yes_option
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
_TASK_ID: Option = click.argument("task_id", metavar="[ID]", required=False)
_STEP: list[Option] = [
    click.argument("positional_step", metavar="[STEP]", required=False),
    click.option(
        "--at-step",
        metavar="STEP",
        help="The same as STEP; it names the step where a filter stands for the ID.",
    ),
]


def build_verb_command(verb: Verb) -> click.Command:
    """Build the command of a verb."""
    declared = VERBS[verb]
    fields = {
        field.name: name_option(field).strip("-").replace("-", "_")
        for field in msgspec.structs.fields(declared.arguments)
    }
    own = build_options(declared.arguments)
    if declared.arguments is AnswerArguments:
        own = _STEP + build_options(declared.arguments, without=["step"])
    if any(_is_json(field) for field in msgspec.structs.fields(declared.arguments)):
        own.append(_APP)

    def run(app: str | None = None, **given: Any) -> None:
        if declared.arguments is AnswerArguments:
            given["at_step"] = _require_one_step(given.pop("positional_step"), given["at_step"])
        own_given = {name: given.pop(passed_as) for name, passed_as in fields.items()}
        request = TaskVerbRequest(verb=verb, **given)
        arguments: VerbArguments = read_arguments(declared.arguments, own_given)
        arguments.check()
        edited = [f"--{name}" for name in fields if isinstance(getattr(arguments, name), msgspec.Raw)]
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


VERB_COMMANDS = tuple(map(build_verb_command, Verb))
