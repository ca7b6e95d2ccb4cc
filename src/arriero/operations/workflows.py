"""Operations on workflows: list them, pause one for new tasks, and resume it."""

from typing import Annotated, Literal

import msgspec

from ..client.session import Session
from ..client.workflows import WorkflowView, choose_workflow, load_workflow_views
from ..errors import UnknownName, VerbRefused
from ..model.tokens import Scope
from ..text.format import format_count
from .declaration import Done, NoArguments, OperationDeclaration, ReasonRequest, Subject, say, say_app_name

WORKFLOW = Subject("workflow", "The workflow's name; step:NAME for tasks of one step", "WORKFLOW")


class WorkflowListAnswer(msgspec.Struct, frozen=True):
    """Workflows by App and name."""

    workflows: tuple[WorkflowView, ...]


class WorkflowVerbRequest(ReasonRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A verb on a workflow."""

    app: Annotated[
        str | None, say_app_name("The App of the workflow. Needed if several Apps have a workflow of this name.")
    ] = None


class WorkflowPauseRequest(WorkflowVerbRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pause of a workflow."""

    refuse: Annotated[bool, say("Refuse new tasks. By default they are accepted, and wait.")] = False


class WorkflowVerbAnswer(msgspec.Struct, frozen=True):
    """Outcome of a verb. ``workflow``: its state afterwards."""

    verb: str
    outcome: Literal["done"]
    workflow: WorkflowView


async def list_workflows(session: Session, _: NoArguments) -> WorkflowListAnswer:
    """List the workflows that processes alive run, or that are paused, of any App, with who paused one and why.

    active: new tasks begin. paused: they are accepted, and wait. refusing: they are refused. resuming: those that waited begin.
    """
    return WorkflowListAnswer(tuple(await load_workflow_views(session)))


LIST = OperationDeclaration(
    noun="workflow",
    name="list",
    function=list_workflows,
    summary="List the workflows of all Apps, and which of them are paused for new tasks.",
    arguments=NoArguments,
    answer=WorkflowListAnswer,
    scopes=(Scope.READ,),
)


async def pause_workflow(session: Session, workflow: str, by: str, asked: WorkflowPauseRequest) -> Done:
    """Pause a workflow for new tasks: they are accepted and begin once it is resumed, or with --refuse they are refused.

    Tasks that have begun continue to their end, with their retries and their undo. Its schedules submit nothing meanwhile.
    """
    view = await (await choose_workflow(session, workflow, asked.app)).pause(
        by=by, reason=asked.reason, refuse=asked.refuse
    )
    what = "takes no new tasks" if asked.refuse else "begins no new task; those that are submitted wait"
    says = f"workflow {format_label(view)} {what}, until it is resumed: `arriero workflow resume {view.workflow}`"
    waits = f"{format_count(view.waiting, 'task')} of it waited at that moment" if view.waiting else ""
    return Done(WorkflowVerbAnswer("pause", "done", view), tuple(filter(None, (says, waits))))


async def resume_workflow(session: Session, workflow: str, by: str, asked: WorkflowVerbRequest) -> Done:
    """Resume a workflow that was paused: the tasks that waited begin, and new ones. Its schedules submit again."""
    view = await (await choose_workflow(session, workflow, asked.app)).resume(by=by, reason=asked.reason)
    return Done(
        WorkflowVerbAnswer("resume", "done", view), (f"new tasks of workflow {format_label(view)} begin again",)
    )


PAUSE = OperationDeclaration(
    noun="workflow",
    name="pause",
    function=pause_workflow,
    summary="Let no new task of a workflow begin until it is resumed.",
    arguments=WorkflowPauseRequest,
    answer=WorkflowVerbAnswer,
    scopes=(Scope.OPERATE,),
    subject=WORKFLOW,
    raises=(UnknownName, VerbRefused),
    example={"reason": "the release is wrong", "refuse": True},
)
RESUME = OperationDeclaration(
    noun="workflow",
    name="resume",
    function=resume_workflow,
    summary="Let new tasks of a workflow begin again.",
    arguments=WorkflowVerbRequest,
    answer=WorkflowVerbAnswer,
    scopes=(Scope.OPERATE,),
    subject=WORKFLOW,
    raises=(UnknownName, VerbRefused),
    example={"reason": "the release is right now"},
    needs_scheduler=True,
)


def format_label(view: WorkflowView) -> str:
    """Format the name of a workflow, with its App if it has one."""
    return view.workflow + (f" of App {view.app}" if view.app else "")
