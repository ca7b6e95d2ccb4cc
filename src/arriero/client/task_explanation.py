"""Loads what the explanation of a task needs: its history, its alert, the processes, Agents and limits of its store."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any

import msgspec

from ..core.undo import FORWARD_KINDS
from ..explain.available_actions import AvailableAction
from ..explain.children import NO_FAMILY
from ..explain.fork_reasons import FORKS_TOLD_MAX
from ..explain.task import Explanation, explain
from ..model import AlertRow, Instant, Loaded, TaskState
from ..model.failures import CapturedTraceback
from ..model.instants import as_datetime
from ..model.progress import PublishedRow
from ..store.readable import legible, legible_task
from ..store.state_store import StateStore
from .alerts import iterate_alert_rows
from .payload_record import ShownRecord, read_record
from .row_shapes import build_output
from .task_shapes import Payloads
from .task_view import find_published, load_tasks_ahead, read_family, read_published


class ShownReason(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is so. ``request``: of an approval, what exactly was approved, as JSON text."""

    kind: str
    says: str
    step: str = ""
    since: datetime | None = None
    until: datetime | None = None
    idempotency_key: str = ""
    trace: CapturedTraceback = ()
    request: str = ""


class ShownResult(msgspec.Struct, frozen=True):
    """The recorded result of a step; ``ordinal``: its number in the task."""

    ordinal: int
    step: str
    result: msgspec.Raw


class ShownPublished(msgspec.Struct, frozen=True):
    """The latest value that a step has published. ``ordinal`` 0, no ``step``: workflow code did."""

    ordinal: int
    step: str
    value: msgspec.Raw
    at: datetime


class ShownAct(msgspec.Struct, frozen=True):
    """An action of an operator. ``changes``: limits and tags that it changed, in words, with the old values."""

    at: datetime
    verb: str
    by: str
    reason: str
    before: str
    after: str
    changes: tuple[str, ...] = ()


class ActionAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A verb: what it would do to the task now, and how to ask for it; or why it would be refused.

    Args:
        command: as it is typed; empty: it is asked for over HTTP.
        path: of the request over HTTP, and the members of its body that it needs.
    """

    verb: str
    does: str
    step: str = ""
    command: str = ""
    path: str = ""
    needs: tuple[str, ...] = ()
    refused: str = ""


class ExplanationAnswer(msgspec.Struct, frozen=True):
    """Reasons for the state of a task, the most important first; acts of operators; verbs that would move it.

    Args:
        note: what must be set before a command is typed; empty: nothing.
        payloads: over HTTP: ``withheld`` if the token lacks the scope read-payloads; then results, output and record are left out.
        record: what operators gave by hand, and late answers.
        published: what the task and its steps have published last.
    """

    no: int
    id: str
    workflow: str
    state: str
    incarnation: int
    now: datetime
    reasons: tuple[ShownReason, ...]
    people: tuple[ShownAct, ...]
    verbs: tuple[ActionAnswer, ...]
    note: str = ""
    results: tuple[ShownResult, ...] | msgspec.UnsetType = msgspec.UNSET
    output: msgspec.Raw | msgspec.UnsetType | None = msgspec.UNSET
    record: ShownRecord | msgspec.UnsetType = msgspec.UNSET
    payloads: Payloads | msgspec.UnsetType = msgspec.UNSET
    published: tuple[ShownPublished, ...] | msgspec.UnsetType = msgspec.UNSET


def build_explanation(
    loaded: Loaded,
    explanation: Explanation,
    now: Instant,
    record: ShownRecord,
    published: Mapping[int, PublishedRow],
    build_action: Callable[[AvailableAction], ActionAnswer],
    **more: Any,
) -> ExplanationAnswer:
    """Build the explanation of a task for programs, from what ``load_explanation`` has found."""
    task = loaded.task
    return build_output(
        ExplanationAnswer,
        task,
        no=task.task_no,
        id=task.task_id,
        now=as_datetime(now),
        reasons=tuple(build_output(ShownReason, reason) for reason in explanation.reasons),
        people=tuple(build_output(ShownAct, act) for act in explanation.acts),
        verbs=tuple(map(build_action, explanation.actions)),
        results=tuple(list_results(loaded)),
        record=record,
        published=tuple(list_published(loaded, published)),
        **more,
    )


async def load_explanation(
    store: StateStore, loaded: Loaded
) -> tuple[Loaded, Explanation, Instant, ShownRecord, Mapping[int, PublishedRow]]:
    """Explain a task as it was read.

    Returns: the task as far as it can be read, why it is where it is, the store's clock, what is kept of its payloads, and what
        is published, by ordinal.
    Raises: StoreError.
    """
    task_no = loaded.task.task_no
    rows = [row async for row in store.history(task_no)]
    alert = await _find_alert(task_no, store) if loaded.task.state is TaskState.HELD else None
    now, processes = await store.known_processes()
    ahead, breakers = await load_tasks_ahead(loaded, store), await store.list_breakers()
    limits, pauses = await store.list_limits(), await store.list_workflow_pauses()
    family = await read_family(loaded, store)
    if forks := await store.list_forks(task_no, FORKS_TOLD_MAX + 1):
        family = (family or NO_FAMILY).with_forks([legible(task) for task in forks])
    explanation = explain(
        loaded,
        now,
        processes,
        history=rows,
        alert=alert,
        ahead=ahead,
        breakers=breakers,
        limits=limits,
        pauses=pauses,
        family=family,
    )
    record, published = await read_record(loaded, store, rows), await read_published(store, task_no)
    return legible_task(loaded)[0], explanation, now, record, published


async def _find_alert(task_no: int, store: StateStore) -> AlertRow | None:
    async with aclosing(iterate_alert_rows(store, open_only=True, questions=False)) as alerts:
        async for alert in alerts:
            if alert.task_no == task_no:
                return alert
    return None


def list_results(loaded: Loaded) -> Iterator[ShownResult]:
    """The results of a task's steps, as far as they say something."""
    for step in loaded.life:
        if step.kind in FORWARD_KINDS and step.result is not None and step.result != "null":
            yield ShownResult(step.ordinal, step.label, msgspec.Raw(step.result.encode()))


def list_published(loaded: Loaded, published: Mapping[int, PublishedRow]) -> Iterator[ShownPublished]:
    """List the latest values that a task and its steps have published; the task comes first."""
    labels = {step.ordinal: step.label for step in loaded.steps}
    for ordinal in sorted(published):
        row = find_published(published, ordinal)
        if row is not None and row.value is not None:
            value = msgspec.Raw(row.value.encode())
            yield ShownPublished(ordinal, labels.get(ordinal, ""), value, as_datetime(row.at))
