"""``arriero process``: the processes on a store."""

from ..client.processes import ProcessView
from ..operations import processes
from .operation_commands import add_listing, build_group
from .output import format_time

process = build_group("process", "Show the processes on the store.")
COLUMNS = ("no", "process", "app", "state", "roles", "agents", "leads", "lease until")


def _format_cells(view: ProcessView) -> tuple[str, ...]:
    leads = "yes" if view.leads else ""
    named = (", ".join(view.roles), ", ".join(view.agents))
    return (str(view.process), view.name, view.app, view.state, *named, leads, format_time(view.lease_until))


add_listing(process, processes.LIST, COLUMNS, _format_cells)
