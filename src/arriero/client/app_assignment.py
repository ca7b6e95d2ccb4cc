"""Assigns the tasks of a store to an App: those that name no App, or those of an App that was renamed."""

import shlex
from collections import Counter
from collections.abc import AsyncIterator, Callable

import msgspec

from ..core.lease import read_process_about
from ..core.tokens import list_left_behind
from ..errors import InvalidInput, NotAllowed, UnknownName
from ..events import read_events_to_show
from ..events.store import AppRenamed
from ..events.task import TaskAssigned
from ..explain.doctor_server import format_replacement
from ..model import NOT_SAID, LedgerRow, LedgerState, TaskRow, TaskState
from ..model.answers import Refusal
from ..model.commands import AssignApp
from ..model.tokens import Reach
from ..model.workflow_pauses import OperateWorkflow, PauseState
from ..payloads import codec
from ..store.engine.batch import STORE_STREAM
from ..store.state_store import StateStore
from ..store.task_filter import TaskFilter
from . import task_verbs
from .session import Session, find_task

PAGE = 200  # tasks read, and written, at a time
OPEN = (TaskState.PENDING, TaskState.PROCESSING, TaskState.COMPENSATING, TaskState.HELD)
ENDED = (TaskState.PROCESSED, TaskState.COMPENSATED)


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """A request to assign tasks.

    Args:
        app: the App that runs the tasks from now on.
        from_app: the App they are taken from; empty: tasks that name none.
        workflow: only tasks of it; None: of any.
        task_ids: only these; none given: any.
        ended: also tasks that have ended well, so that the App carries out a later compensate.
    """

    app: str
    from_app: str = NOT_SAID
    workflow: str | None = None
    task_ids: tuple[str, ...] = ()
    ended: bool = False

    @property
    def is_rename(self) -> bool:
        """Returns True if all open tasks of one App are assigned to another one."""
        return bool(self.from_app) and self.workflow is None and not self.task_ids


class TokenLeftBehind(msgspec.Struct, frozen=True):
    """A token of the HTTP API that is restricted to the App of before, and so does not reach what was assigned.

    Args:
        id: by which operators name it.
        name: signs what its holder does.
        apps: to which it is restricted.
        remedy: the commands that replace it.
    """

    id: str
    name: str
    apps: tuple[str, ...]
    remedy: str


class Assigned(msgspec.Struct, frozen=True):
    """The result of an assignment.

    Args:
        workflows: how many tasks were given to the App (of a dry run: would be), by workflow.
        refused: ids of the others, each with the reason.
        tokens: that do not reach these tasks any longer.
    """

    workflows: dict[str, int]
    refused: tuple[tuple[str, str], ...]
    tokens: tuple[TokenLeftBehind, ...] = ()

    @property
    def count(self) -> int:
        """Number of tasks of all workflows."""
        return sum(self.workflows.values())


async def assign(
    session: Session,
    asked: Assignment,
    *,
    by: str,
    reason: str,
    dry_run: bool = False,
    progress: Callable[[int], None] = lambda count: None,
) -> Assigned:
    """Give tasks to an App, each in its own history; run again, it continues with what is left.

    Raises: InvalidInput - a bad name, or the App whose tasks are taken is running; UnknownName - there is no such App; StoreError.
    """
    who, why = task_verbs.check_signature(by, reason)
    _refuse_bad(asked)
    store = session.store
    await _refuse_running(store, asked)
    await _refuse_unknown(store, asked)
    if not dry_run:
        await _let_ledgers_go(store)
        if asked.is_rename:
            await _change_pauses(session, asked, who, app=asked.app, state=None)  # before the first task comes there
    done: Counter[str] = Counter()
    refused: list[tuple[str, str]] = []
    async for page in _read_pages(store, asked):
        commands = [
            AssignApp(
                actor=task_verbs.ACTOR,
                task_no=task.task_no,
                app=asked.app,
                from_app=asked.from_app,
                by=who,
                reason=why,
            )
            for task in page
        ]
        answers = [None] * len(page) if dry_run else await session.operate(commands)
        for task, answer in zip(page, answers, strict=True):
            if isinstance(answer, Refusal):
                refused.append((task.task_id, answer.detail))
            elif isinstance(answer, Exception):
                refused.append((task.task_id, str(answer)))
            else:
                done[task.workflow] += 1
        progress(done.total() + len(refused))
    if asked.is_rename and not dry_run:
        actor = f"{task_verbs.ACTOR} {who}"
        await store.rename_app(asked.from_app, asked.app, done.total(), actor, why)
        await _change_pauses(session, asked, who, app=asked.from_app, state=PauseState.RESUMING, reason=why)
    return Assigned(dict(sorted(done.items())), tuple(refused), await _list_tokens_left_behind(store, asked))


async def _list_tokens_left_behind(store: StateStore, asked: Assignment) -> tuple[TokenLeftBehind, ...]:
    if not asked.from_app:
        return ()
    now = store.now()
    found: list[TokenLeftBehind] = []
    for row in list_left_behind(await store.list_tokens(), {asked.from_app: asked.app}, now):
        if asked.workflow is None or Reach(workflows=row.workflows).includes(asked.app, asked.workflow):
            kept = [app for app in row.apps if app != asked.from_app or not asked.is_rename]
            remedy = format_replacement(row, [*kept, asked.app], now)
            found.append(TokenLeftBehind(row.token_id, row.name, row.apps, remedy))
    return tuple(found)


async def _change_pauses(
    session: Session, asked: Assignment, by: str, *, app: str, state: PauseState | None, reason: str | None = None
) -> None:
    """Change how the workflows stand under ``app`` that are paused under the old name. What stands so already is left.

    Args:
        state: None: as under the old name.
        reason: None: that the App was renamed, and why each was paused.
    """
    for row in await session.store.list_workflow_pauses():
        if row.app == asked.from_app and row.is_paused:
            before = f"App {row.app!r} has this name now, and {row.paused_by} had paused it there: {row.pause_reason}"
            command = OperateWorkflow(
                actor=task_verbs.ACTOR,
                app=app,
                workflow=row.workflow,
                state=state or row.state,
                by=by,
                reason=reason or before,
            )
            await session.store.change_workflow_pause(command)


async def _let_ledgers_go(store: StateStore) -> None:
    """Release the tasks of opened ledgers: a task's history, which names its App, begins only then."""
    for ledger in await store.list_ledgers([LedgerState.OPENED]):
        left: LedgerRow | None = ledger
        while left is not None and left.state is LedgerState.OPENED:
            left = await store.let_go(left.ledger_no, PAGE, task_verbs.ACTOR)


def _refuse_bad(asked: Assignment) -> None:
    codec.check_id(asked.app, "name of an App")
    if asked.from_app:
        codec.check_id(asked.from_app, "name of an App")
    if asked.app == asked.from_app:
        raise InvalidInput(f"App {asked.app!r} has these tasks already: name another App, or leave --from out")


async def _refuse_running(store: StateStore, asked: Assignment) -> None:
    """Refuse while a process runs under the old name: it would submit under it, and hold tasks that are taken from it."""
    if not asked.from_app:
        return
    now, processes = await store.known_processes()
    alive = [p.process_no for p in processes if p.lease_until > now and read_process_about(p).app == asked.from_app]
    if alive:
        raise NotAllowed(
            f"App {asked.from_app!r} runs in process {', '.join(map(str, alive))}: stop it first, or its tasks are its own"
        )


async def _refuse_unknown(store: StateStore, asked: Assignment) -> None:
    """Refuse a rename of an App that the store does not know: a typing error must not be recorded as one.

    An assignment that a crash has ended before its rename was recorded is known by the tasks that it has moved.
    """
    if not asked.is_rename or await _knows_app(store, asked.from_app) or await _has_moved_tasks(store, asked):
        return
    known = sorted(
        {task.app for task in await store.list_tasks(TaskFilter(), after=0, newest_first=True, limit=PAGE)} - {NOT_SAID}
    )
    remedy = f"; Apps of its latest tasks: {', '.join(map(repr, known))}" if known else ""
    raise UnknownName(f"there is no App {asked.from_app!r} in the store {store.url}{remedy}")


async def _knows_app(store: StateStore, app: str) -> bool:
    """Return True if a task, a process, a schedule, a token or an earlier rename names an App."""
    if await store.list_tasks(TaskFilter(app=app), after=0, limit=1):
        return True
    _, processes = await store.known_processes()
    named = [read_process_about(process).app for process in processes]
    named += [row.app for row in await store.list_schedules()]
    named += [one for row in await store.list_tokens() for one in row.apps]
    if app in named:
        return True
    async for row in store.history(STORE_STREAM):
        if any(
            isinstance(event, AppRenamed) and app in (event.app, event.from_app) for event in read_events_to_show(row)
        ):
            return True
    return False


async def _has_moved_tasks(store: StateStore, asked: Assignment) -> bool:
    for task in await store.list_tasks(TaskFilter(app=asked.app), after=0, newest_first=True, limit=PAGE):
        async for row in store.history(task.task_no):
            if any(
                isinstance(event, TaskAssigned) and event.from_app == asked.from_app
                for event in read_events_to_show(row)
            ):
                return True
    return False


async def _load_named(store: StateStore, asked: Assignment) -> list[TaskRow]:
    """Load the tasks with the ids that were given. Raises UnknownTask."""
    found = []
    for task_id in asked.task_ids:
        loaded = await find_task(task_id, store)
        if loaded.task.app not in (asked.from_app, asked.app):
            remedy = f"give it away with --from {shlex.quote(loaded.task.app)}"
            raise InvalidInput(f"task {task_id!r} is of App {loaded.task.app!r}: {remedy}")
        if loaded.task.app == asked.from_app and asked.workflow in (None, loaded.task.workflow):
            found.append(loaded.task)
    return found


async def _read_pages(store: StateStore, asked: Assignment) -> AsyncIterator[list[TaskRow]]:
    if asked.task_ids:
        yield await _load_named(store, asked)
        return
    for state in (*OPEN, *(ENDED if asked.ended else ())):
        which, after = TaskFilter(state=state, workflow=asked.workflow, app=asked.from_app), 0
        while page := await store.list_tasks(which, after=after, limit=PAGE):
            yield page
            after = page[-1].task_no
