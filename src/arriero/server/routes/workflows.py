"""Workflows: which of them are paused for new tasks."""

from ...client.workflows import load_workflows_of_name
from ...operations import workflows as operations
from ...operations.problems import UNKNOWN_NAME
from ..calls import Call
from ..operation_routes import add_operations_of
from ..parameters import OfApp, WorkflowName
from ..routing import RouteGroup
from ..scopes import Needs, Scope

workflows = RouteGroup("workflows")
add_operations_of(workflows, operations.LIST)


@workflows.operation(
    "GET",
    "/v1/workflows/{workflow}",
    Needs(Scope.READ),
    summary="A workflow of each App that has one of the name.",
    problems=(UNKNOWN_NAME,),
)
async def show_workflow(call: Call, workflow: WorkflowName, app: OfApp = None) -> operations.WorkflowListAnswer:
    return operations.WorkflowListAnswer(tuple(await load_workflows_of_name(call.session, workflow, app)))


add_operations_of(workflows, operations.PAUSE, operations.RESUME)
