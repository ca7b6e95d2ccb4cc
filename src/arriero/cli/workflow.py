"""``arriero workflow``: workflows that are paused for new tasks, and what an operator may do to one."""

import asyncio

import click
import msgspec

from ..client.session import Session
from ..client.workflows import WorkflowView, load_workflows_of_name
from ..events import Event, UnreadableEvent
from ..events.store import WorkflowPausedEvent, WorkflowResumed
from ..model import HistoryRow
from ..operations import workflows
from ..text.escaping import shell_word
from .operation_commands import add_act, add_listing, build_group
from .options import json_option, store_option
from .output import format_time, print_commands, print_fields, print_history, print_json, truncate
from .stores import format_last_events, load_store_stream, open_operator


class ShownWorkflow(msgspec.Struct, frozen=True):
    """The output of ``workflow show --json``, a line for each App that has one of the name."""

    workflow: WorkflowView
    history: tuple[str, ...]


workflow = build_group("workflow", "Show workflows, and pause one for new tasks.")


def _format_cells(view: WorkflowView) -> tuple[str, ...]:
    waiting = f"{view.waiting:,}" if view.state != "active" else ""
    since, reason = format_time(view.paused_at), truncate(view.pause_reason)
    return (view.workflow, view.app, view.state, since, view.paused_by, waiting, str(view.runs_in), reason)


COLUMNS = ("workflow", "app", "state", "since", "by", "waiting", "processes", "reason")
add_listing(workflow, workflows.LIST, COLUMNS, _format_cells)
add_act(workflow, workflows.PAUSE)
add_act(workflow, workflows.RESUME)


@workflow.command("show", short_help="Show one workflow: whether new tasks begin, and who paused it.")
@click.argument("name", metavar="WORKFLOW")
@click.option("--app-name", "app", metavar="NAME", help="Only the workflow of this App. By default of all Apps.")
@store_option
@json_option
def show_workflow(name: str, app: str | None, store: str | None, as_json: bool) -> None:
    """Show a workflow of each App that has one of the name: whether new tasks of it begin, who paused it and why, how many
    tasks wait, and when it was paused and resumed before."""
    for shown in asyncio.run(_load_shown(name, app, store)):
        if as_json:
            print_json(shown)
        else:
            _print_workflow(shown, store)


async def _load_shown(name: str, app: str | None, store: str | None) -> list[ShownWorkflow]:
    async with open_operator(None, store) as operator:
        session: Session = operator.session
        views = await load_workflows_of_name(session, name, app)
        rows = await load_store_stream(session.store)
        return [ShownWorkflow(view, _list_events(rows, view)) for view in views]


def _list_events(rows: list[HistoryRow], view: WorkflowView) -> tuple[str, ...]:
    def is_meant(event: Event | UnreadableEvent) -> bool:
        of = (view.app, view.workflow)
        return isinstance(event, WorkflowPausedEvent | WorkflowResumed) and (event.app, event.workflow) == of

    return format_last_events(rows, is_meant)


def _print_workflow(shown: ShownWorkflow, store: str | None) -> None:
    view = shown.workflow
    fields = {"workflow": workflows.format_label(view), "state": view.state, "processes": str(view.runs_in)}
    if view.state != "active":
        fields |= {"since": format_time(view.paused_at), "by": view.paused_by, "reason": view.pause_reason}
        fields["waiting"] = f"{view.waiting:,}"
    print_fields(fields, 17)
    print_history(shown.history)
    print_commands(list_commands(view, store))
    click.echo()


def list_commands(view: WorkflowView, store: str | None) -> list[tuple[str, str]]:
    """List the commands that would change something, as they are typed, each with what it does."""
    is_paused = view.state in ("paused", "refusing")
    verb, does = (
        ("resume", "let new tasks begin again") if is_paused else ("pause", "let no new task begin for a while")
    )
    words = [shell_word(view.workflow), *(["--app-name", shell_word(view.app)] if view.app else []), "--reason", "TEXT"]
    words += ["--store", shell_word(store)] if store is not None and "@" not in store else []
    return [(f"arriero workflow {verb} {' '.join(words)}", does)]
