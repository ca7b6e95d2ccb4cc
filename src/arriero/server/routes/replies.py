"""Reply queues: pages with explicit acknowledgement, and server-sent events.

A message is there until it is acknowledged, so it may come twice: to a reader that lost its connection before it said what it
had got, and to a second reader of the queue. The numbers of a queue order its messages, but a smaller number may become visible
after a larger one, as transactions commit. So nothing is acknowledged by "all up to this number": each acknowledgement lists what
was received. The id of an event lists the numbers that were sent on its connection; EventSource sends it back as Last-Event-ID.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Annotated, Any

import msgspec
from fastapi import Header
from starlette.responses import Response, StreamingResponse

from ...client.replies import ASK_SECONDS, ASK_SECONDS_MAX, build_status
from ...client.task_shapes import Payloads
from ...errors import StoreError
from ...model import NUMBER_MAX, StatusRow
from ...operations.problems import INVALID_REQUEST
from ...payloads.codec import check_id
from ..calls import Call, HttpCall
from ..parameters import LIMIT, Limit, QueueName
from ..problems import Problem
from ..routing import EVENT_STREAM, RouteGroup
from ..scopes import REPLIES

logger = logging.getLogger("arriero.server")
replies = RouteGroup("replies")

ACKNOWLEDGED_MAX = 1_000  # messages that one request acknowledges
UNACKNOWLEDGED_MAX = 100  # messages sent on one connection; the next one acknowledges them
HEARTBEAT_SECONDS = 15.0  # proxies close connections that are silent for a minute

_match_run = re.compile(r"(\d{1,19})(?:-(\d{1,19}))?", re.ASCII).fullmatch


def format_runs(numbers: Iterable[int]) -> str:
    """Format numbers as one short text: ``5-9,12`` are 5, 6, 7, 8, 9 and 12. The largest one stands last."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def read_runs(text: str, count_max: int) -> list[int]:
    """Read numbers. Raises Problem - the text is not so written, or there are too many."""
    found: list[int] = []
    for part in text.split(","):
        run = _match_run(part.strip())
        if run is None:
            raise Problem(INVALID_REQUEST, "Last-Event-ID is not the id of an event of this stream")
        first, last = int(run[1]), int(run[2] or run[1])
        if last < first or last - first + len(found) >= count_max:
            raise Problem(
                INVALID_REQUEST, f"Last-Event-ID is not an id of an event: it names more than {count_max:,} messages"
            )
        found += range(first, last + 1)
    return found


class ReplyMessage(msgspec.Struct, frozen=True):
    """A message. ``no``: its number in the queue, for the acknowledgement. ``event``: a CloudEvent 1.0."""

    no: int
    event: dict[str, Any]


class ReplyPageAnswer(msgspec.Struct, frozen=True):
    """The oldest messages that are not acknowledged. ``payloads``: ``withheld``: outputs are left out.

    Reasons of failures are left out for a token without the scope read; ``public`` is what customers may read of them.
    """

    messages: tuple[ReplyMessage, ...]
    payloads: Payloads


class AcknowledgeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``numbers``: ``no`` of the messages that were received, up to 1,000."""

    numbers: list[int]


EXAMPLE = {
    "no": 7,
    "event": {
        "specversion": "1.0",
        "id": "3-2",
        "source": "/arriero/8c1f0a5e",
        "type": "arriero.task.completed",
        "time": "2026-11-20T14:15:18+00:00",
        "datacontenttype": "application/json",
        "data": {"number": 2, "kind": "completed", "workflow": "fulfil", "incarnation": 1, "queue": "desk"},
        "subject": "order-1001",
    },
}


@replies.operation(
    "GET",
    "/v1/replies/{queue}",
    REPLIES,
    is_narrowed=True,
    summary="The oldest messages of a reply queue. They stay until they are acknowledged.",
    answer_example={"messages": [EXAMPLE], "payloads": "included"},
)
async def list_replies(call: Call, queue: QueueName, limit: Limit = LIMIT) -> ReplyPageAnswer:
    rows = await call.session.store.load_statuses(check_id(queue, "reply queue"), limit)
    messages = tuple(build_message(call, row) for row in rows)
    return ReplyPageAnswer(messages, call.payloads)


@replies.operation(
    "POST",
    "/v1/replies/{queue}:acknowledge",
    REPLIES,
    is_narrowed=True,
    summary="Remove messages that were received. One that was removed before is not an error.",
    body=AcknowledgeRequest,
    status=204,
    examples={"two": {"numbers": [7, 8]}},
)
async def acknowledge_replies(call: Call, queue: QueueName) -> None:
    await acknowledge(call, check_id(queue, "reply queue"), call.read(AcknowledgeRequest).numbers)


async def acknowledge(call: HttpCall, queue: str, numbers: Sequence[int]) -> None:
    """Remove messages from a queue. Raises Problem - there are too many numbers, or one is none."""
    if len(numbers) > ACKNOWLEDGED_MAX or any(not 0 < number <= NUMBER_MAX for number in numbers):
        raise Problem(
            INVALID_REQUEST, f"numbers of messages are whole numbers above 0, up to {ACKNOWLEDGED_MAX:,} at a time"
        )
    if numbers:
        await call.session.store.acknowledge([(queue, number) for number in numbers])


@replies.operation(
    "GET",
    "/v1/replies/{queue}/events",
    REPLIES,
    is_narrowed=True,
    summary="The messages of a reply queue as server-sent events, as they come.",
    answer=str,
    answer_media=EVENT_STREAM,
    answer_example="id: 7\nevent: completed\ndata: {}\n\n",
)
async def stream_replies(
    call: Call,
    queue: QueueName,
    last_event_id: Annotated[
        str | None,
        Header(
            alias="Last-Event-ID",
            description="The id of the last event that was received. It acknowledges the messages that it lists.",
        ),
    ] = None,
) -> Response:
    checked = check_id(queue, "reply queue")
    call.place.begin_wait()
    if last_event_id:
        await acknowledge(call, checked, read_runs(last_event_id, ACKNOWLEDGED_MAX))
    stream = end_without_store(iterate_events(call, checked))
    return StreamingResponse(stream, media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"})


async def end_without_store(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Pass events on, and end when the store does not answer: the reader connects again, and then gets 503."""
    try:
        async for event in events:
            yield event
    except StoreError as error:
        logger.info("a stream of replies ends: %s", error)


async def iterate_events(call: HttpCall, queue: str) -> AsyncIterator[bytes]:
    """Send messages as they come, up to ``UNACKNOWLEDGED_MAX``; then the reader connects again and acknowledges them."""
    store, clock = call.session.store, call.session.ports.clock
    sent: list[int] = []
    begun_at = clock.monotonic()
    wait, beat_at = ASK_SECONDS, begun_at + HEARTBEAT_SECONDS
    yield b"retry: 1000\n\n"
    while not call.shutdown.has_begun and len(sent) < UNACKNOWLEDGED_MAX:
        rows = [row for row in await store.load_statuses(queue, UNACKNOWLEDGED_MAX) if row.no not in sent]
        if rows or clock.monotonic() >= beat_at:
            try:  # a token that was revoked meanwhile gets nothing more
                await call.confirm(clock.monotonic() - begun_at)
            except Problem:
                return
            beat_at = clock.monotonic() + HEARTBEAT_SECONDS
            yield b"" if rows else b": heartbeat\n\n"
        for row in rows[: UNACKNOWLEDGED_MAX - len(sent)]:
            sent.append(row.no)
            yield format_event(format_runs(sent), str(row.kind), call.show(build_message(call, row)).event)
        wait = ASK_SECONDS if rows else min(wait * 1.5, ASK_SECONDS_MAX)
        if not rows:
            await clock.idle(asyncio.Event(), wait)


def build_message(call: HttpCall, row: StatusRow) -> ReplyMessage:
    """Build a message from its row."""
    return ReplyMessage(row.no, build_status(row, call.session.store.store_id).cloud_event())


def format_event(event_id: str, kind: str, data: dict[str, Any]) -> bytes:
    """Format one server-sent event. JSON has no line breaks outside of its texts, and escapes those within."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (event_id.encode(), kind.encode(), msgspec.json.encode(data))
