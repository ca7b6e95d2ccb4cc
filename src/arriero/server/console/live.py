"""Streams of events that say to a page that it is behind. They hold no data: the page then asks for itself again."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Query
from starlette.responses import Response, StreamingResponse

from ...errors import UnknownTask
from ..calls import Call, HttpCall
from ..parameters import TaskId
from ..problems import Problem
from ..routes.replies import end_without_store
from ..routes.submissions import wait_until_shutdown
from ..routes.task_changes import wait_for_version
from ..routes.tasks import find_task
from ..routing import EVENT_STREAM
from ..scopes import Needs, Scope
from .page import console

VERSION_LENGTH_MAX = 200


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
    task = await find_task(call, task_id)
    call.place.begin_wait()
    stream = end_without_store(_iterate_versions(call, task.task.task_no, seen))
    return StreamingResponse(stream, media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"})


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
