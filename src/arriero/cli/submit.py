"""``arriero submit``: start a task from a terminal."""

import asyncio
import sys
from contextlib import suppress
from typing import Any

import click
import msgspec

from ..client.app import App
from ..client.json_payloads import build_call
from ..client.session import load_task
from ..client.submission import SubmissionOptions
from ..client.task import Task
from ..config import load_configuration
from ..declare.steps import StepCall
from ..declare.workflows import WorkflowCall
from ..errors import TaskFailed
from ..operations.problems import ExitCode
from ..text.escaping import one_line
from .operation_commands import gather_options
from .options import json_option, print_nobody_runs, read_option, store_option
from .output import print_json
from .stores import app_argument, load_chosen_app, open_client


class SubmittedTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """The output of ``submit --json``; ``output`` and ``failure`` only with ``--wait``. ``created``: see Task."""

    id: str
    workflow: str
    state: str
    created: bool
    output: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    failure: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


@click.command(short_help="Start a task.")
@app_argument
@click.argument("name", metavar="WORKFLOW_OR_STEP")
@click.option(
    "--arguments",
    metavar="JSON",
    default="{}",
    help="A JSON object with a member for each parameter. - reads it from standard input.",
)
@click.option("--task-id", metavar="ID", help="Your business id. The same id again is the same task.")
@gather_options(SubmissionOptions, "options")
@click.option("--wait", is_flag=True, help="Wait for the end, and exit with 1 if the task is not processed.")
@store_option
@json_option
def submit(
    app: str | None,
    name: str,
    arguments: str,
    task_id: str | None,
    options: SubmissionOptions,
    wait: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Start a task. When this returns, the task is durable, whether or not anything runs it now."""
    loaded = load_chosen_app(app, load_configuration(flags={"store": store}))
    command = ("arriero", "submit") if app is None else ("arriero", "submit", app)
    call = build_call(loaded.session, name, read_option(arguments, "--arguments"), "--arguments", command)
    submission = asyncio.run(_submit(loaded, call, store, task_id, options, wait=wait))
    if as_json:
        print_json(submission)
    else:
        _print_submitted(submission)
    if wait and submission.output is msgspec.UNSET:
        sys.exit(ExitCode.NO)


async def _submit(
    app: App,
    call: WorkflowCall[Any] | StepCall[Any],
    store: str | None,
    task_id: str | None,
    options: SubmissionOptions,
    *,
    wait: bool,
) -> SubmittedTask:
    async with open_client(app, store):
        task = await app.submit(call, task_id=task_id, **msgspec.structs.asdict(options))
        print_nobody_runs(await app.session.describe_missing_scheduler(of=app.name))
        if wait:
            await _wait_for_end(task)
        row = (await load_task(app.session, task.id)).task
        created = task.created is True
        if not wait:
            return SubmittedTask(row.task_id, row.workflow, row.state, created)
        return SubmittedTask(row.task_id, row.workflow, row.state, created, _to_raw(row.output), _to_raw(row.failure))


async def _wait_for_end(task: Task[Any]) -> None:
    with suppress(TaskFailed):  # the row shows it
        await task.result()


def _to_raw(text: str | None) -> msgspec.Raw | msgspec.UnsetType:
    return msgspec.UNSET if text is None else msgspec.Raw(text.encode())


def _print_submitted(submission: SubmittedTask) -> None:
    existed = "" if submission.created else " (it existed before)"
    click.echo(f"task {one_line(submission.id)} is {submission.state}{_format_ending(submission)}{existed}")


def _format_ending(submission: SubmittedTask) -> str:
    if isinstance(submission.output, msgspec.Raw):
        return f": {one_line(bytes(submission.output).decode())}"
    if isinstance(submission.failure, msgspec.Raw):
        return f": {one_line(msgspec.json.decode(submission.failure)['reason'])}"
    return ""
