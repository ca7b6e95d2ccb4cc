"""Pages of what a store has beside tasks: leases, workflows that may be paused, versions of code, processes."""

from ...client.verb_offers import offer_workflow_verbs
from ..calls import Call
from ..parameters import OfApp, WorkflowName
from ..scopes import Needs, Scope
from .asking import ask, may_ask
from .page import Page, page

WORKFLOW_STATES = {
    "active": ("good", "✓"),
    "paused": ("wait", "‖"),
    "refusing": ("bad", "✗"),
    "resuming": ("run", "▶"),
}
PROCESS_STATES = {"alive": ("good", "✓"), "draining": ("warn", "◐"), "lost": ("bad", "✗")}


@page("/leases", Needs(Scope.READ), "Leases: who holds each, and who leads the Supervisors.", is_live=True)
async def show_leases(call: Call) -> Page:
    listed = await ask(call, "list_leases")
    leader = await ask(call, "show_leader")
    context = {"leases": listed.leases, "leader": leader.leader, "may_operate": may_ask(call, "break_lease")}
    return Page("leases.html", "Leases", context)


@page("/workflows", Needs(Scope.READ), "Workflows: which are paused for new tasks, and by whom.", is_live=True)
async def show_workflows(call: Call) -> Page:
    listed = await ask(call, "list_workflows")
    return Page("workflows.html", "Workflows", {"workflows": listed.workflows, "states": WORKFLOW_STATES})


@page("/workflows/{workflow}", Needs(Scope.READ), "A workflow: whether new tasks begin, and its verbs.", is_live=True)
async def show_workflow_page(call: Call, workflow: WorkflowName, app: OfApp = None) -> Page:
    listed = await ask(call, "show_workflow", workflow=workflow, app=app)
    context = {
        "workflow": workflow,
        "views": [(one, offer_workflow_verbs(one)) for one in listed.workflows],
        "states": WORKFLOW_STATES,
        "may_operate": may_ask(call, "pause_workflow"),
    }
    return Page("workflow.html", workflow, context)


@page("/versions", Needs(Scope.READ), "Versions of code: which processes have each, and on request the tasks of each.")
async def show_versions(call: Call, count: bool = False) -> Page:
    running = await ask(call, "list_processes")
    holders: dict[tuple[str, str, str], list[str]] = {}
    for process in running.processes:
        for workflow in process.workflows if process.state != "lost" else ():
            for version in process.versions.get(workflow, ("1",)):
                holders.setdefault((process.app, workflow, version), []).append(process.name)
    counted = (await ask(call, "list_code_versions")).versions if count else ()  # it reads all tasks
    return Page("versions.html", "Versions", {"versions": counted, "holders": holders, "is_counted": count})


@page("/processes", Needs(Scope.READ), "Processes: the roles, the App and the lease of each.", is_live=True)
async def show_processes(call: Call) -> Page:
    listed = await ask(call, "list_processes")
    return Page("processes.html", "Processes", {"processes": listed.processes, "states": PROCESS_STATES})
