"""Assigns the tasks of a store to an App: those that name no App, or those of an App that was renamed."""

import shlex
from collections import Counter
from collections.abc import AsyncIterator, Callable

import msgspec

from ..core.lease import read_process_about
from ..errors import InvalidInput, UnknownTask
from ..model import NOT_SAID, LedgerRow, LedgerState, TaskRow, TaskState
from ..model.answers import Refusal
from ..model.commands import AssignApp
from ..payloads import codec
from ..store.state_store import StateStore
from ..store.task_filter import TaskFilter
from . import task_verbs
from .session import Session

PAGE = 200  # tasks read, and written, at a time
OPEN = (TaskState.PENDING, TaskState.PROCESSING, TaskState.COMPENSATING, TaskState.ERROR)
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


class Assigned(msgspec.Struct, frozen=True):
    """The result of an assignment.

    Args:
        workflows: how many tasks were given to the App (of a dry run: would be), by workflow.
        refused: ids of the others, each with the reason.
    """

    workflows: dict[str, int]
    refused: tuple[tuple[str, str], ...]

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
    """Give tasks to an App, each in its own history; run again, it goes on with what is left.

    Raises: InvalidInput - a bad name, or the App whose tasks are taken is running; StoreError.
    """
    who, why = task_verbs.check_signature(by, reason)
    _refuse_bad(asked)
    store = session.store
    await _refuse_running(store, asked)
    if not dry_run:
        await _let_ledgers_go(store)
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
    if asked.from_app and asked.workflow is None and not asked.task_ids and not dry_run:
        actor = f"{task_verbs.ACTOR} {who}"
        await store.rename_app(asked.from_app, asked.app, done.total(), actor, why)
    return Assigned(dict(sorted(done.items())), tuple(refused))


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
        raise InvalidInput(
            f"App {asked.from_app!r} runs in process {', '.join(map(str, alive))}: stop it first, or its tasks are its own"
        )


async def _load_named(store: StateStore, asked: Assignment) -> list[TaskRow]:
    """Load the tasks with the ids that were given. Raises UnknownTask."""
    found = []
    for task_id in asked.task_ids:
        loaded = await store.find(codec.check_id(task_id, "task id"))
        if loaded is None:
            raise UnknownTask(f"there is no task {task_id!r} in the store {store.url}; see `arriero task list`")
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
