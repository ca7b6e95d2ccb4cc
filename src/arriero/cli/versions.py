"""``arriero versions``: which version of the code has how many tasks, and whether a process with it is alive."""

import asyncio

import click

from ..config import load_configuration
from ..explain.code_versions import CodeVersionView
from ..operations import code_versions as operations
from ..operations.declaration import NoArguments
from .operation_commands import print_answer
from .options import json_option, print_empty, store_option
from .output import format_time, print_table
from .stores import load_chosen_app, open_operator

COLUMNS = ("workflow", "app", "version", "processes", "begin new", "pending", "processing", "held", "undone", "oldest")


@click.command(short_help=operations.LIST.summary)
@click.argument("app", metavar="[MODULE:APP]", required=False)
@store_option
@json_option
def versions(app: str | None, store: str | None, as_json: bool) -> None:
    """List the versions of the code of all workflows: how many open and held tasks each has, and how many processes alive.

    A task is continued by the version that began it; `arriero task pin` moves it to another one. A line without a version has the
    tasks that none has begun. The store is that of --store, of the App, or of the settings.
    """
    answer = asyncio.run(_load(app, store))
    if as_json:
        print_answer(answer)
    elif answer.versions:
        print_table(COLUMNS, [_format_cells(view) for view in answer.versions])
    else:
        print_empty("versions")


async def _load(app: str | None, store: str | None) -> operations.CodeVersionsAnswer:
    loaded = None if app is None else load_chosen_app(app, load_configuration())
    async with open_operator(loaded, store) as operator:
        return await operations.list_code_versions(operator.session, NoArguments())


def _format_cells(view: CodeVersionView) -> tuple[str, ...]:
    counts = (view.processes, view.begins, view.pending, view.processing, view.held, view.compensating)
    version = view.version or "(not begun)"
    return (view.workflow, view.app, version, *(f"{count:,}" for count in counts), format_time(view.oldest))
