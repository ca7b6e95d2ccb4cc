"""Workflows as operators see them: whether new tasks of one begin, who paused it, and the verbs on one of them."""

from datetime import datetime

import msgspec

from ..core.lease import is_alive, read_process_about
from ..errors import InvalidInput, UnknownName, VerbRefused
from ..model import TaskState
from ..model.answers import Refusal
from ..model.instants import as_datetime
from ..model.workflow_pauses import OperateWorkflow, PauseState, WorkflowPauseRow, index_pauses
from ..payloads import codec
from ..store.readable import legible
from ..store.state_store import StateStore
from ..store.task_filter import TaskFilter
from .session import Session
from .task_verbs import ACTOR, check_signature

BEGIN_AT_ONCE = 500  # tasks that one transaction lets begin after their workflow was resumed
WAITING_MAX = 10_000  # tasks that wait for a workflow, counted


class WorkflowView(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow of an App as it stands.

    Attributes:
        workflow: its name; ``step:NAME`` for tasks of one step.
        state: ``active``; ``paused``: new tasks are accepted and wait; ``refusing``: new tasks are refused; ``resuming``: the tasks
            that waited begin, some at a time.
        runs_in: how many processes alive have its code and run a Scheduler.
        waiting: tasks of a paused workflow that have not begun, counted up to 10,000.
        paused_at, paused_by, pause_reason: since when, by whom and why it is paused.
    """

    workflow: str
    app: str
    state: str
    runs_in: int
    waiting: int
    paused_at: datetime | None
    paused_by: str
    pause_reason: str


class WorkflowHandle:
    """A workflow of one App, for operators. ``App.workflow_named`` makes it; nothing is asked of the store by that."""

    def __init__(self, session: Session, app: str, workflow: str) -> None:
        self._session = session
        self._app = app
        self.workflow = workflow

    async def view(self) -> WorkflowView:
        """The workflow as it stands. Raises UnknownName - the App has no such workflow; StoreError."""
        (view,) = await load_workflows_of_name(self._session, self.workflow, self._app)
        return view

    async def pause(self, *, by: str, reason: str, refuse: bool = False) -> WorkflowView:
        """Let no new task begin until it is resumed. Once this returns, no process begins one.

        Tasks that have begun continue to their end, with their retries and their undo. Its schedules submit nothing; when it is
        resumed, their missed runs follow their ``catch_up``.

        Args:
            refuse: refuse new tasks (WorkflowPaused); else they are accepted, and wait.
            by, reason: who asks, and why; kept in the store's history, and in the error of a refused submission.
        Raises: VerbRefused - it is paused so already; UnknownName - the App has no such workflow; InvalidInput - who asks or
            why is not said; StoreError.
        """
        await self.view()  # a name with a slip is refused
        await self._operate(PauseState.REFUSING if refuse else PauseState.PAUSED, by, reason)
        return await self.view()

    async def resume(self, *, by: str, reason: str) -> WorkflowView:
        """Let new tasks begin again, those that waited first. Raises VerbRefused - it is not paused; as ``pause``."""
        pause = await self._operate(PauseState.RESUMING, by, reason)
        while await self._session.store.let_waiting_begin(pause.app, pause.workflow, BEGIN_AT_ONCE, ACTOR):
            pass  # if this process dies here, the leader's upkeep continues
        self._session.hint()
        return await self.view()

    async def _operate(self, state: PauseState, by: str, reason: str) -> WorkflowPauseRow:
        who, why = check_signature(by, reason)
        command = OperateWorkflow(actor=ACTOR, app=self._app, workflow=self.workflow, state=state, by=who, reason=why)
        answer = await self._session.store.change_workflow_pause(command)
        if isinstance(answer, Refusal):
            verb = "resume" if state is PauseState.RESUMING else "pause"
            raise VerbRefused(answer.detail, verb=verb, state=answer.state)
        return answer


async def load_workflow_views(session: Session) -> list[WorkflowView]:
    """All workflows that processes alive run, or that are paused, of any App, by App and name. Raises StoreError."""
    store = session.store
    now, processes = await store.known_processes()
    pauses = index_pauses(map(legible, await store.list_workflow_pauses()))
    runs: dict[tuple[str, str], int] = dict.fromkeys(pauses, 0)
    runs |= {(session.app, name): 0 for name in session.codes} if session.app else {}
    for process in processes:
        if is_alive(process, "scheduler", now):
            about = read_process_about(process)
            for name in about.workflows:
                runs[about.app, name] = runs.get((about.app, name), 0) + 1
    return [await _build_view(store, *key, runs[key], pauses.get(key)) for key in sorted(runs)]


async def _build_view(
    store: StateStore, app: str, workflow: str, runs_in: int, pause: WorkflowPauseRow | None
) -> WorkflowView:
    waiting = 0
    if pause is not None:
        which = TaskFilter(state=TaskState.PENDING, workflow=workflow, app=app or None)
        waiting = await store.count_listed(which, limit=WAITING_MAX)
    return WorkflowView(
        workflow=workflow,
        app=app,
        state="active" if pause is None else str(pause.state),
        runs_in=runs_in,
        waiting=waiting,
        paused_at=None if pause is None else as_datetime(pause.paused_at),
        paused_by="" if pause is None else pause.paused_by,
        pause_reason="" if pause is None else pause.pause_reason,
    )


async def load_workflows_of_name(session: Session, workflow: str, app: str | None) -> list[WorkflowView]:
    """Load the workflow of each App that has one of the name, also if only its tasks are known. Raises UnknownName, StoreError."""
    codec.check_id(workflow, "name of a workflow")
    views = await load_workflow_views(session)
    found = [view for view in views if view.workflow == workflow and app in (None, view.app)]
    if not found:
        which = TaskFilter(workflow=workflow, app=app)
        tasks = await session.store.list_tasks(which, newest_first=True, limit=1)
        found = [await _build_view(session.store, task.app, workflow, 0, None) for task in tasks]
    if not found:
        where = "" if app is None else f" of App {app!r}"
        raise UnknownName(
            f"no process alive runs a workflow {workflow!r}{where}, and the store has no task of it; see `arriero workflow list`"
        )
    return found


async def choose_workflow(session: Session, workflow: str, app: str | None) -> WorkflowHandle:
    """Choose the workflow that an operator means. Raises UnknownName, InvalidInput - several Apps have one; StoreError."""
    apps = sorted({view.app for view in await load_workflows_of_name(session, workflow, app)})
    if len(apps) > 1:
        raise InvalidInput(
            f"several Apps have a workflow {workflow!r}: name one with --app-name, of {', '.join(map(repr, apps))}"
        )
    return WorkflowHandle(session, apps[0], workflow)
