"""One task as server-sent events: how it stands now, and after each change that is seen."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

from fastapi import Header
from starlette.responses import Response, StreamingResponse

from ...errors import UnknownTask
from ...model import TaskRow
from ...operations.problems import TASK_UNKNOWN
from ..calls import Call, HttpCall
from ..parameters import TaskId
from ..problems import Problem
from ..routing import EVENT_STREAM
from ..scopes import Needs, Scope
from .replies import HEARTBEAT_SECONDS, end_without_store
from .submissions import wait_until_shutdown
from .tasks import find_task, load_shown, tasks


@tasks.operation(
    "GET",
    "/v1/tasks/{task_id}/changes",
    Needs(Scope.READ),
    is_narrowed=True,
    summary="Follow a task by server-sent events: as it stands now, then after each change; the last one is its end.",
    answer=str,
    answer_media=EVENT_STREAM,
    more_statuses={204: "It has ended, and Last-Event-ID names its last event: there is no more to follow."},
    problems=(TASK_UNKNOWN,),
    answer_example="id: 7-1f0a5e8c1f0a5e8c-2\nevent: changed\ndata: {}\n\n",
)
async def stream_changes(
    call: Call,
    task_id: TaskId,
    last_event_id: Annotated[
        str | None,
        Header(
            alias="Last-Event-ID",
            description="The id of the last event that was received. The next event is the first state that differs from it.",
        ),
    ] = None,
) -> Response:
    task = (await find_task(call, task_id)).task
    if last_event_id and await _is_last(call, task, last_event_id):
        return Response(status_code=204)
    call.place.begin_wait()
    stream = end_without_store(_iterate_events(call, task_id, task.task_no, last_event_id or None))
    return StreamingResponse(stream, media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"})


async def _is_last(call: HttpCall, task: TaskRow, event_id: str) -> bool:
    """Returns True if a task has ended, and an event shows its end. EventSource then connects no more."""
    versions = await call.session.store.load_versions([task.task_no])
    return task.ended_at is not None and versions.get(task.task_no) == event_id


async def _iterate_events(call: HttpCall, task_id: str, task_no: int, known: str | None) -> AsyncIterator[bytes]:
    clock = call.session.ports.clock
    begun_at = clock.monotonic()
    yield b"retry: 1000\n\n"
    while not call.shutdown.has_begun:
        try:
            version = await wait_until_shutdown(call, wait_for_version(call, task_no, known))
            await call.confirm(clock.monotonic() - begun_at)  # a token that was revoked meanwhile gets nothing more
            if version is None:
                yield b": heartbeat\n\n"
                continue
            shown, seen = await load_shown(call, task_id)  # which may be newer than what was waited for
        except (Problem, UnknownTask):  # the task was purged, or is no longer within the caller's reach
            return
        if seen == known:
            continue
        known = seen
        kind = b"changed" if shown.ended_at is None else b"ended"
        yield b"id: %s\nevent: %s\ndata: %s\n\n" % (seen.encode(), kind, call.encode(shown))
        if shown.ended_at is not None:
            return


async def wait_for_version(call: HttpCall, task_no: int, known: str | None) -> str | None:
    """Wait for another version of a task; None: there was none until a heartbeat is due."""
    with suppress(TimeoutError):
        async with asyncio.timeout(HEARTBEAT_SECONDS):
            return await call.session.changes.wait(task_no, known)
    return None
