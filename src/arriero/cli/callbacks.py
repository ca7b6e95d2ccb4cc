"""``arriero task complete-callback``: completes a callback in place of the service that has its URL."""

import asyncio

import click
import msgspec

from ..client.app import App
from ..client.callbacks import complete_named
from ..client.json_payloads import check_json
from .options import by_option, json_option, print_nobody_runs, read_option, store_option
from .output import print_json, print_text
from .stores import find_app_with_types, open_operator


class CompletedCallback(msgspec.Struct, frozen=True):
    """The output of ``task complete-callback --json``. ``created``: False: it was completed by the same value before."""

    id: str
    name: str
    created: bool


@click.command("complete-callback", short_help="Complete a callback of a task in place of its service.")
@click.argument("task_id", metavar="ID")
@click.argument("name", metavar="NAME")
@click.argument("value", metavar="JSON")
@by_option
@click.option(
    "--app", metavar="MODULE:APP", help="The App whose code checks the JSON. By default the configured one, if any."
)
@store_option
@json_option
def complete_callback(
    task_id: str, name: str, value: str, by: str, app: str | None, store: str | None, as_json: bool
) -> None:
    """Complete a callback for which a task waits, in place of the service that has its URL.

    NAME is that of the callback, as `arriero task explain` shows it; of several that wait, NAME#2. JSON is the value;
    - reads it from standard input. It is checked if the code of the task is here. Otherwise the process that runs the
    task sets a value aside that does not fit.
    """
    text = read_option(value, "JSON")
    created, nobody = asyncio.run(_complete(find_app_with_types(app, store), store, task_id, name, text, by))
    if as_json:
        print_json(CompletedCallback(task_id, name, created))
    else:
        print_text(f"callback {name} of task {task_id} is completed{'' if created else ' (it was before)'}")
    print_nobody_runs(nobody)


async def _complete(
    loaded_app: App | None, store: str | None, task_id: str, name: str, text: str, by: str
) -> tuple[bool, str]:
    check_json(text, f"the value of callback {name}")
    async with open_operator(loaded_app, store) as on:
        created = await complete_named(on.session, on.task(task_id).id, name, text, by)
        return created, await on.session.describe_missing_scheduler()
