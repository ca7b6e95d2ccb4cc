"""``arriero submit``: start a task from a terminal."""

import asyncio
import sys
from contextlib import suppress
from typing import Any

import click
import msgspec

from ..app import App
from ..calls import StepCall, WorkflowCall
from ..errors import TaskFailed
from ..task import Task
from .loading import find_definition, load_app
from .operators import note_nobody_runs
from .output import one_line, print_json
from .payloads import checked_object, given_or_read, typed_arguments
from .stores import client, json_option, store_option

TASK_FAILED = 1


class Submission(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is printed of a submitted task; the rest only with ``--wait``."""

    id: str
    workflow: str
    state: str
    output: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    failure: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


@click.command(short_help="Start a task.")
@click.argument("app", metavar="MODULE:APP")
@click.argument("name", metavar="WORKFLOW_OR_STEP")
@click.option(
    "--arguments",
    metavar="JSON",
    default="{}",
    help="A JSON object, by parameter name; - reads it from standard input.",
)
@click.option("--task-id", metavar="ID", help="Your business id; the same id again is the same task.")
@click.option("--priority", metavar="N", type=int, default=5, show_default=True, help="0 to 9; 9 is claimed first.")
@click.option("--delay", metavar="SECONDS", type=float, default=0.0, help="Before it may start.")
@click.option(
    "--reply-to", metavar="QUEUE", help="A reply queue that is told what becomes of it; see `arriero replies`."
)
@click.option("--convoy", metavar="KEY", help="Its convoy: tasks of one key are handled one after the other, in order.")
@click.option("--sequence", metavar="N", type=int, help="The producer's own number in the convoy: 1, 2, ...")
@click.option("--end-of-sequence", is_flag=True, help="Nothing comes after it in its convoy.")
@click.option("--wait", is_flag=True, help="Wait for the end; exit with 1 when it is not processed.")
@store_option
@json_option
def submit(
    app: str,
    name: str,
    arguments: str,
    task_id: str | None,
    priority: int,
    delay: float,
    reply_to: str | None,
    convoy: str | None,
    sequence: int | None,
    end_of_sequence: bool,
    wait: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Start a task. When this returns, the task is durable, whether or not anything runs it now."""
    loaded = load_app(app)
    call = _call(loaded, name, given_or_read(arguments, "--arguments"))
    options = {"task_id": task_id, "priority": priority, "delay": delay, "reply_to": reply_to}
    options |= {"convoy": convoy, "sequence": sequence, "end_of_sequence": end_of_sequence}
    submission = asyncio.run(_submit(loaded, call, store, wait=wait, **options))
    if as_json:
        print_json(submission)
    else:
        _print(submission)
    if wait and submission.output is msgspec.UNSET:
        sys.exit(TASK_FAILED)


def _call(app: App, name: str, arguments: str) -> WorkflowCall[Any] | StepCall[Any]:
    """The typed call. Raises InvalidInput: an unknown name, or arguments its types refuse."""
    definition = find_definition(app, name)
    typed = typed_arguments(definition.signature, checked_object(arguments, "--arguments"))
    call: WorkflowCall[Any] | StepCall[Any] = definition(**typed)
    return call


async def _submit(
    app: App, call: WorkflowCall[Any] | StepCall[Any], store: str | None, *, wait: bool, **options: Any
) -> Submission:
    async with client(app, store):
        task = await app.submit(call, **options)
        note_nobody_runs(await app._nobody_runs(of=app.name))
        if wait:
            await _ended(task)
        row = (await task._load()).task
        if not wait:
            return Submission(row.task_id, row.workflow, row.state)
        return Submission(row.task_id, row.workflow, row.state, _raw(row.output), _raw(row.failure))


async def _ended(task: Task[Any]) -> None:
    with suppress(TaskFailed):  # the row tells it
        await task.result()


def _raw(text: str | None) -> msgspec.Raw | msgspec.UnsetType:
    return msgspec.UNSET if text is None else msgspec.Raw(text.encode())


def _print(submission: Submission) -> None:
    click.echo(f"task {one_line(submission.id)} is {submission.state}{_ending(submission)}")


def _ending(submission: Submission) -> str:
    if isinstance(submission.output, msgspec.Raw):
        return f": {one_line(bytes(submission.output).decode())}"
    if isinstance(submission.failure, msgspec.Raw):
        return f": {one_line(msgspec.json.decode(submission.failure)['reason'])}"
    return ""
