"""Carries out a verb of a person on one task, or on each task that a filter names; the same for all doors."""

from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Any

import msgspec

from ..answers import Refusal
from ..commands import Operate
from ..core.verb_preview import find_verb_refusal
from ..errors import InvalidInput, UnknownTask
from ..model import Loaded, TaskRow, TaskState, Verb
from ..store.contract import StateStore
from ..store.task_filter import ANY_TASK, TaskFilter
from ..verb_rules import explain_left_out
from . import verb_commands
from .session import Session

PAGE = 200  # tasks read, and verbs written, at a time

Progress = Callable[[int], None]
FieldsBuilder = Callable[[Loaded], dict[str, Any]]  # of ``Operate``, besides those that all verbs have


async def load_task(session: Session, task_id: str) -> Loaded:
    """The task as it stands. Raises UnknownTask, StoreError."""
    loaded = await session.store.find(task_id)
    if loaded is None:
        raise UnknownTask(f"no task {task_id!r} in the store {session.store.url}")
    return loaded


async def load_task_to_act(session: Session, task_id: str) -> Loaded:
    """The task, if a verb can be judged on it. Raises UnknownTask, UnreadableRow, StoreError."""
    return verb_commands.require_readable(await load_task(session, task_id))


async def operate_task(session: Session, verb: Verb, loaded: Loaded, by: str, reason: str, **fields: Any) -> None:
    """Carry out a verb on a task as it was just seen. Raises VerbRefused, InvalidInput, StoreError."""
    command = verb_commands.build_command(verb, loaded, session.store.store_id, by=by, reason=reason, **fields)
    (answer,) = await session.operate([command])
    if isinstance(answer, Refusal):
        verb_commands.raise_refused(verb, loaded.task.task_id, answer)


def preview_verb(session: Session, verb: Verb, loaded: Loaded, by: str, reason: str, **fields: Any) -> None:
    """Judge a verb on a task as it was just seen, and change nothing. Raises VerbRefused, InvalidInput."""
    command = verb_commands.build_command(verb, loaded, session.store.store_id, by=by, reason=reason, **fields)
    if refusal := find_verb_refusal(command, loaded, session.store.now()):
        verb_commands.raise_refused(verb, loaded.task.task_id, refusal)


async def list_rows(store: StateStore, which: TaskFilter) -> AsyncIterator[TaskRow]:
    """The rows of all tasks that a filter names, in the order of submission, read page by page."""
    after = 0
    while page := await store.list_tasks(which, after=after, limit=PAGE):
        for row in page:
            yield row
        after = page[-1].task_no


class Acted(msgspec.Struct, frozen=True):
    """The result of one verb on many tasks.

    Args:
        meant: how many tasks of the filter the verb was asked of: those done and those refused.
        done: ids of those it was carried out on; with a dry run, of those that allow it.
        refused: ids of those whose state allows it but that refuse it, each with the reason, like a pivot.
        left_out: how many tasks of the filter were left alone, by what they are: ``(("processed", 98),)``. Their state
            does not allow the verb: most of them have ended.
    """

    meant: int
    done: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    left_out: tuple[tuple[str, int], ...] = ()

    @property
    def left_out_count(self) -> int:
        """Number of tasks of the filter that were left alone."""
        return sum(count for _, count in self.left_out)


async def operate_tasks(
    session: Session,
    verb: Verb,
    which: TaskFilter,
    by: str,
    reason: str,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    build_fields: FieldsBuilder | None = None,
    is_meant: Callable[[TaskRow], bool] = lambda row: True,
) -> Acted:
    """Carry out a verb on each task of a filter that allows it.

    Args:
        dry_run: only judge the tasks; change nothing.
        progress: called with the number of tasks that were asked so far, after each page.
        build_fields: builds the fields that the verb needs besides its name, for a task as it was just read.
        is_meant: returns False for a task of the filter that is to be passed over, uncounted.
    Raises: InvalidInput - the filter names everything there is, or nobody signs; StoreError.
    """
    refuse_all_tasks(verb, which)
    rows = list_rows(session.store, which)
    return await operate_rows(
        session,
        verb,
        rows,
        by,
        reason,
        dry_run=dry_run,
        progress=progress,
        build_fields=build_fields,
        is_meant=is_meant,
    )


def refuse_all_tasks(verb: Verb, which: TaskFilter) -> None:
    """Refuse a verb on everything there is. Raises InvalidInput."""
    if which == ANY_TASK:
        raise InvalidInput(f"{verb} of all tasks there are: name at least one thing they have in common, like state=")


async def operate_rows(
    session: Session,
    verb: Verb,
    rows: AsyncIterable[TaskRow],
    by: str,
    reason: str,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    build_fields: FieldsBuilder | None = None,
    is_meant: Callable[[TaskRow], bool] = lambda row: True,
) -> Acted:
    """Carry out a verb on each of these tasks that allows it. Arguments and errors are those of ``operate_tasks``."""
    verb_commands.check_signature(by, reason)
    store = session.store
    done: list[str] = []
    refused: list[tuple[str, str]] = []
    left_out: Counter[str] = Counter()
    waiting: list[tuple[Operate, Loaded]] = []

    async def carry_out() -> None:
        for (_, loaded), refusal in zip(waiting, await _list_refusals(session, waiting, dry_run), strict=True):
            if refusal is None:
                done.append(loaded.task.task_id)
            else:
                refused.append((loaded.task.task_id, refusal.detail))
        waiting.clear()
        if progress is not None:
            progress(len(done) + len(refused))

    async for row in rows:
        if not is_meant(row):
            continue
        if isinstance(row.state, TaskState) and (why := explain_left_out(verb, row)):
            left_out[why] += 1
            continue
        loaded = await store.load(row.task_no)
        if loaded is None:
            continue
        try:
            verb_commands.require_readable(loaded)
            fields = {} if build_fields is None else build_fields(loaded)
        except InvalidInput as error:
            refused.append((loaded.task.task_id, str(error)))
            continue
        waiting.append(
            (verb_commands.build_command(verb, loaded, store.store_id, by=by, reason=reason, **fields), loaded)
        )
        if len(waiting) == PAGE:
            await carry_out()
    await carry_out()
    return Acted(len(done) + len(refused), tuple(done), tuple(refused), tuple(left_out.most_common()))


async def _list_refusals(session: Session, asked: list[tuple[Operate, Loaded]], dry_run: bool) -> list[Refusal | None]:
    if dry_run:
        now = session.store.now()
        return [find_verb_refusal(command, loaded, now) for command, loaded in asked]
    answers = await session.operate([command for command, _ in asked])
    return [answer if isinstance(answer, Refusal) else None for answer in answers]
