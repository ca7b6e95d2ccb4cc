"""Reads the timeline of a task, which a terminal and a page draw."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec

from ..errors import StoreError, UnknownTask
from ..explain.task_timeline import LAST_MAX, ROWS_MAX, TimelineBuilder
from ..explain.timeline_shapes import TaskTimeline
from ..model import Instant
from ..model.failures import read_task_failure
from ..store.readable import legible_task
from ..store.state_store import StateStore
from .session import Session, find_task
from .task_view import describe_release_wait, load_tasks_ahead, read_family, waiting_for

LOOK_SECONDS = 5.0  # without a change, the store is asked whether it answers
RETRY_SECONDS = 1.0  # between attempts to read while it does not


class WatchedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task as one sees it who watches it.

    Args:
        waiting_for: what moves it next, in words; empty: nothing does.
        reason: why it is undone or waits for an operator, in words; empty: neither is so.
        complete_by: its own limit; None: it has none.
        paused: an operator paused it.
        unreadable: what this release cannot read of it, in words.
    """

    timeline: TaskTimeline
    waiting_for: str
    reason: str = ""
    complete_by: Instant | None = None
    paused: bool = False
    unreadable: tuple[str, ...] = ()


class TimelineReader:
    """Reads the timeline of one task again and again. What it has read of the history it does not read again.

    Args:
        store: open.
        task_id: of the task. If that continues in another run, the timeline becomes that of the run.
        rows_max: how many rows of steps are shown at most. ``last_max``: how many of the last events are kept in words.
    """

    def __init__(self, store: StateStore, task_id: str, *, rows_max: int = ROWS_MAX, last_max: int = LAST_MAX) -> None:
        self._store = store
        self._task_id = task_id
        self._rows_max = rows_max
        self._last_max = last_max
        self._task_no = 0
        self._builder = TimelineBuilder(last_max=last_max)

    async def read(self) -> WatchedTask:
        """Read how it stands. Raises InvalidInput - no task has such an id; UnknownTask - also if it was purged meanwhile; StoreError."""
        as_it_stands = await find_task(self._task_id, self._store)
        loaded, faults = legible_task(as_it_stands)
        task = loaded.task
        if task.task_no != self._task_no or task.link < self._builder.link:  # another run, or a copy that was restored
            self._task_no, self._builder = task.task_no, TimelineBuilder(last_max=self._last_max)
        history = self._store.history(task.task_no, after=self._builder.link)
        async with aclosing(history) as rows:  # type: ignore[type-var]  # each store's is a generator
            async for row in rows:
                if row.link > task.link:  # written since the row was read
                    break
                self._builder.add(row)
        ahead, family = await load_tasks_ahead(loaded, self._store), await read_family(as_it_stands, self._store)
        return WatchedTask(
            timeline=self._builder.build(loaded, self._store.now(), rows_max=self._rows_max),
            waiting_for=describe_release_wait(faults) if faults else waiting_for(loaded, ahead, family),
            reason="" if task.failure is None else read_task_failure(task.failure).reason,
            complete_by=task.complete_by,
            paused=task.paused_at is not None,
            unreadable=tuple(fault.says for fault in faults),
        )


async def load_timeline(store: StateStore, task_id: str, *, rows_max: int = ROWS_MAX) -> WatchedTask:
    """Load the timeline of a task as it stands. Raises InvalidInput, UnknownTask, StoreError."""
    return await TimelineReader(store, task_id, rows_max=rows_max).read()


class TimelineFollower:
    """Follows the timeline of a task to its end. All who follow tasks by way of one opening of an App share one poll of the store.

    Args:
        session: open.
        task_id: of the task; its next runs are followed as well.
        last_max: how many of the last events are kept in words.
    """

    def __init__(self, session: Session, task_id: str, *, rows_max: int = ROWS_MAX, last_max: int = LAST_MAX) -> None:
        self._session = session
        self._task_id = task_id
        self._reader = TimelineReader(session.store, task_id, rows_max=rows_max, last_max=last_max)

    async def follow(self) -> AsyncIterator[WatchedTask | StoreError]:
        """Follow the task: as it stands now, and after each change that is seen. The last one is its end.

        Yields: the task; an error of the store while that does not answer: it is asked again.
        Raises: UnknownTask - there is no task of the id, or it was purged meanwhile; InvalidInput - no task has such an id.
        """
        number, known = (await find_task(self._task_id, self._session.store)).task.task_no, None
        while True:
            try:
                known = await self._wait(number, known)
                watched = await self._reader.read()
            except UnknownTask as error:
                raise UnknownTask(f"task {self._task_id!r} was purged while it was watched") from error
            except StoreError as error:
                yield error
                known = None  # what was missed is read as soon as the store answers
                await self._session.ports.clock.idle(asyncio.Event(), RETRY_SECONDS)
                continue
            if watched.timeline.no != number:  # it continues in another run
                number, known = watched.timeline.no, None
            yield watched
            if not watched.timeline.is_open:
                return

    async def _wait(self, number: int, known: str | None) -> str:
        """Wait for another version than ``known``. Raises: UnknownTask - it was purged; StoreError - the store does not answer."""
        waiter = asyncio.ensure_future(self._session.changes.wait(number, known))
        try:
            while not (await asyncio.wait({waiter}, timeout=LOOK_SECONDS))[0]:
                await self._session.store.load_versions([number])
            return await waiter
        finally:
            waiter.cancel()
