"""One verb on a bounded number of tasks, for doors whose answer may be lost on its way.

A dry run gives the plan: each task that allows the verb, with its incarnation. Whoever acts by a plan may send it again: what was
done by the first request is told as done before, and nothing is done twice.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated

import msgspec

from ..events import read_events_to_show
from ..events.task import OperatorAction
from ..model import NUMBER_MAX, Instant, Loaded, TaskRow, Verb
from ..store.state_store import StateStore
from .session import Session
from .task_verbs import Acted, FieldsBuilder, operate_rows

PLANNED_MAX = 200  # tasks of one plan


class PlannedTask(msgspec.Struct, frozen=True, array_like=True):
    """A task on which a verb is to be carried out, as it was when a person decided."""

    task_no: Annotated[int, msgspec.Meta(ge=1, le=NUMBER_MAX)]
    incarnation: Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]


class VerbPlan(msgspec.Struct, frozen=True, array_like=True):
    """The tasks on which a verb is to be carried out, as of an instant by the store's clock."""

    made_at: Annotated[Instant, msgspec.Meta(ge=0, le=NUMBER_MAX)]
    tasks: Annotated[tuple[PlannedTask, ...], msgspec.Meta(max_length=PLANNED_MAX)]


class ActedByPlan(msgspec.Struct, frozen=True):
    """The result of a verb on the tasks of a plan.

    Args:
        acted: what this request did.
        done_before: ids of those on which the same person carried out the same verb for the same reason before.
    """

    acted: Acted
    done_before: tuple[str, ...]


async def plan_rows(
    session: Session,
    verb: Verb,
    rows: Sequence[TaskRow],
    by: str,
    reason: str,
    build_fields: FieldsBuilder | None = None,
) -> tuple[Acted, VerbPlan]:
    """Judge a verb on tasks without a change. Returns: the judgement, and the tasks that allow it."""
    made_at = session.store.now()
    acted = await operate_rows(session, verb, iterate_rows(rows), by, reason, dry_run=True, build_fields=build_fields)
    allowed = frozenset(acted.done)
    tasks = tuple(PlannedTask(row.task_no, row.incarnation) for row in rows if row.task_id in allowed)
    return acted, VerbPlan(made_at, tasks)


async def operate_plan(
    session: Session, verb: Verb, plan: VerbPlan, by: str, reason: str, build_fields: FieldsBuilder | None = None
) -> ActedByPlan:
    """Carry out a verb on each task of a plan that still is as it was planned.

    Raises: InvalidInput - nobody signs; StoreError.
    """
    store = session.store
    meant: list[TaskRow] = []
    before: list[str] = []
    refused: list[tuple[str, str]] = []
    for planned in plan.tasks:
        loaded = await store.load(planned.task_no)
        if loaded is None:
            refused.append((f"number {planned.task_no}", "it is no longer there: it was purged"))
        elif await was_done(store, loaded, plan.made_at, verb, by, reason):
            before.append(loaded.task.task_id)
        elif loaded.task.incarnation != planned.incarnation:
            says = f"it is in incarnation {loaded.task.incarnation}, and was planned in {planned.incarnation}"
            refused.append((loaded.task.task_id, says))
        else:
            meant.append(loaded.task)
    acted = await operate_rows(session, verb, iterate_rows(meant), by, reason, build_fields=build_fields)
    merged = Acted(acted.meant + len(refused), acted.done, (*refused, *acted.refused), acted.left_out)
    return ActedByPlan(merged, tuple(before))


async def was_done(store: StateStore, loaded: Loaded, since: Instant, verb: Verb, by: str, reason: str) -> bool:
    """Return True if the person carried out the verb on the task for that reason since then, as its history tells."""
    async for row in store.history(loaded.task.task_no):
        if row.at < since:
            continue
        for event in read_events_to_show(row):
            if isinstance(event, OperatorAction) and (event.verb, event.by, event.reason) == (verb, by, reason):
                return True
    return False


async def iterate_rows(rows: Sequence[TaskRow]) -> AsyncIterator[TaskRow]:
    """Iterate over rows that are loaded already."""
    for row in rows:
        yield row
