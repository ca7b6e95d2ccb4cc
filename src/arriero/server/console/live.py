"""Streams of events that say to a page that it is behind. They hold no data: the page then asks for itself again."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Query
from starlette.responses import Response, StreamingResponse

from ...errors import UnknownTask
from ...model import NUMBER_MAX
from ...runtime.ports import ProcessClock
from ...store.state_store import StateStore
from ..calls import Call, HttpCall
from ..parameters import TaskId
from ..problems import Problem
from ..routes.replies import HEARTBEAT_SECONDS, end_without_store
from ..routes.submissions import wait_until_shutdown
from ..routes.task_changes import wait_for_version
from ..routes.tasks import find_task
from ..routing import EVENT_STREAM
from ..scopes import Needs, Scope
from .page import console

VERSION_LENGTH_MAX = 200
ASK_SECONDS = 1.0  # between two looks at the store, however many pages are open
TASK_REST_SECONDS = 0.4  # of the page of a task after it was asked to look again
REST_SECONDS = 2.0  # of a page after it was asked to look again
PAGES_PER_SECOND = 10.0  # that are drawn again, all together, while the store is busy


@console.operation(
    "GET",
    "/live/tasks/{task_id}",
    Needs(Scope.READ),
    is_narrowed=True,
    is_page=True,
    summary="Says when a task has changed.",
    answer_media=EVENT_STREAM,
)
async def stream_task_versions(
    call: Call, task_id: TaskId, seen: Annotated[str | None, Query(max_length=VERSION_LENGTH_MAX)] = None
) -> Response:
    task_no = (await find_task(call, task_id)).task.task_no
    return _stream(call, _iterate_versions(call, task_no, seen))


@console.operation(
    "GET",
    "/live",
    Needs(Scope.READ),
    is_narrowed=True,
    is_page=True,
    summary="Says when anything in the store has changed.",
    answer_media=EVENT_STREAM,
)
async def stream_store_changes(call: Call, seen: Annotated[int | None, Query(ge=0, le=NUMBER_MAX)] = None) -> Response:
    state = call.request.app.state
    if not hasattr(state, "store_watch"):
        state.store_watch = StoreWatch()
    return _stream(call, _iterate_changes(call, state.store_watch, seen))


def _stream(call: HttpCall, events: AsyncIterator[bytes]) -> Response:
    call.place.begin_wait()
    return StreamingResponse(end_without_store(events), media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"})


async def _iterate_versions(call: HttpCall, task_no: int, known: str | None) -> AsyncIterator[bytes]:
    clock = call.session.ports.clock
    begun_at = clock.monotonic()
    yield b"retry: 1000\n\n"
    while not call.shutdown.has_begun:
        try:
            version = await wait_until_shutdown(call, wait_for_version(call, task_no, known))
            await call.confirm(clock.monotonic() - begun_at)  # a token that was revoked meanwhile gets nothing more
        except (Problem, UnknownTask):  # the task was purged, or is no longer within the caller's reach
            return
        if version is None:
            yield b": heartbeat\n\n"
            continue
        known = version
        yield b"event: changed\ndata: %s\n\n" % version.encode()
        await wait_until_shutdown(call, clock.sleep(TASK_REST_SECONDS))


class StoreWatch:
    """Watches a store for all pages of a process: one look at the end of the history in a second, while a page is open.

    On PostgreSQL a commit may become readable after one with a higher number. So a change is followed by a second one as soon as
    the store is quiet.
    """

    def __init__(self) -> None:
        self.pages = 0
        self.changes = 0
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def wait(self, store: StateStore, clock: ProcessClock, known: int) -> int:
        """Wait until there are more changes than ``known``. Returns: how many were seen. Raises StoreError."""
        while self.changes == known:
            if self._watching is None or self._watching.done():
                self._watching = asyncio.get_running_loop().create_task(self._watch(store, clock))
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait({changed, self._watching}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
            if self._watching.done() and not self._watching.cancelled():
                self._watching.result()
        return self.changes

    async def _watch(self, store: StateStore, clock: ProcessClock) -> None:
        end, is_settled = await store.find_history_end(), True
        while self.pages:
            await clock.sleep(ASK_SECONDS)
            before, end = end, await store.find_history_end()
            if end != before or not is_settled:
                self._note_change()
            is_settled = end == before

    def leave(self) -> None:
        """Count a page that was closed; the last one ends the looks at the store."""
        self.pages -= 1
        if not self.pages and self._watching is not None:
            self._watching.cancel()

    def _note_change(self) -> None:
        self.changes += 1
        self._changed.set()
        self._changed = asyncio.Event()


async def _iterate_changes(call: HttpCall, watch: StoreWatch, end: int | None) -> AsyncIterator[bytes]:
    """``end``: of the history, as the page has seen it."""
    clock, store = call.session.ports.clock, call.client.session.store
    begun_at, known = clock.monotonic(), watch.changes
    yield b"retry: 1000\n\n"
    if end is not None and end != await store.find_history_end():
        yield b"event: changed\ndata: %d\n\n" % known
    watch.pages += 1
    try:
        while not call.shutdown.has_begun:
            waiting = asyncio.wait_for(watch.wait(store, clock, known), HEARTBEAT_SECONDS)
            seen = await wait_until_shutdown(call, waiting)
            try:
                await call.confirm(clock.monotonic() - begun_at)
            except Problem:
                return
            if seen is None:
                yield b": heartbeat\n\n"
                continue
            known = seen
            yield b"event: changed\ndata: %d\n\n" % known
            await wait_until_shutdown(call, clock.sleep(max(REST_SECONDS, watch.pages / PAGES_PER_SECOND)))
    finally:
        watch.leave()
