"""``arriero replies``: the messages of a reply queue, printed before they are acknowledged."""

import asyncio
from typing import BinaryIO

import click
import msgspec

from ..client.app import App
from ..client.replies import Replies, Status, build_status
from ..errors import InvalidInput
from ..payloads import codec
from ..text.escaping import one_line
from ..text.format import format_count
from .options import print_note, store_option
from .output import encode_text, format_time, json_line, open_data_output
from .stores import open_operator

TEXT_SHOWN_MAX = 300
PEEK_MAX = 10_000  # messages read together when none is taken away


class QueueRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for messages of a queue; ``limit`` None: all."""

    queue: str
    follow: bool
    limit: int | None
    as_json: bool


@click.command(short_help="Print the messages of a reply queue.")
@click.argument("queue", metavar="QUEUE")
@click.option("--follow", is_flag=True, help="Wait for more messages until Ctrl-C.")
@click.option("--peek", is_flag=True, help="Acknowledge nothing, so that the next reader gets all messages again.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, 1_000_000), help="Maximum number of messages. By default all."
)
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print CloudEvents as JSON, one per line.")
def replies(queue: str, follow: bool, peek: bool, limit: int | None, store: str | None, as_json: bool) -> None:
    """Print what became of the tasks that were submitted with reply_to=QUEUE, in order: all there is now.

    A message is acknowledged, and so gone from the queue, once it is written to standard output. What could not be
    written is there for the next reader.
    """
    codec.check_id(queue, "reply queue")
    if peek and follow:
        raise InvalidInput("--peek and --follow exclude each other: a queue advances only by acknowledging; give one")
    ask = QueueRequest(queue=queue, follow=follow, limit=limit, as_json=as_json)
    asyncio.run(_print_unacknowledged(ask, store) if peek else _print_and_acknowledge(ask, store))


async def _print_and_acknowledge(ask: QueueRequest, store: str | None) -> None:
    output = open_data_output()
    async with open_operator(None, store) as app:
        queue = app.replies(ask.queue)
        count = 0
        # Taking the next message acknowledges the one before: it must have left this process by then.
        while count != ask.limit and (status := await _next_status(queue, ask)) is not None:
            _write_status(output, status, ask)
            count += 1
        queue.acknowledge()
        if not count:
            await _print_empty_note(app, ask.queue)


async def _next_status(queue: Replies, ask: QueueRequest) -> Status | None:
    return await anext(queue) if ask.follow else await queue.next_ready()


async def _print_unacknowledged(ask: QueueRequest, store: str | None) -> None:
    output = open_data_output()
    limit = PEEK_MAX if ask.limit is None else ask.limit
    async with open_operator(None, store) as app:
        opened = app.session.store
        rows = await opened.load_statuses(ask.queue, limit + 1)
        for row in rows[:limit]:
            _write_status(output, build_status(row, opened.store_id), ask)
        if len(rows) > limit:
            print_note(f"there are more than {limit:,}: --limit N shows more")
        if not rows:
            await _print_empty_note(app, ask.queue)


def _write_status(output: BinaryIO, status: Status, ask: QueueRequest) -> None:
    line = json_line(status.cloud_event()) if ask.as_json else _format_status(status)
    output.write(encode_text(f"{line}\n"))
    output.flush()


def _format_status(status: Status) -> str:
    says = _describe_status(status)
    if len(says) > TEXT_SHOWN_MAX:
        says = f"{says[:TEXT_SHOWN_MAX]}... [{len(says):,} characters; whole with --json]"
    about = f"- {status.kind}"
    if status.task_id:
        number = f"#{status.number} " if status.number else ""  # a value that was published has none
        about = f"{status.task_id} {number}{status.kind}"
    return one_line(f"{format_time(status.at)} {about}{says and ': '}{says}")


def _describe_status(status: Status) -> str:
    if status.kind == "dropped":
        return f"{format_count(status.dropped, 'message')} not read within replies.keep_seconds: deleted"
    if status.kind == "completed":
        return msgspec.json.encode(status.output).decode()
    if status.kind == "progress":
        value = msgspec.json.encode(status.value).decode()
        return f"{status.step} {value}" if status.step else value
    if status.kind == "asked":
        return f"{status.of}: {status.question}"
    code = f" [{status.code}]" if status.code else ""
    return f"{status.reason}{code}"


async def _print_empty_note(app: App, queue: str) -> None:
    """A queue without messages and a name that was mistyped look the same: so say which others there are."""
    others = [f"{other.queue} ({other.count:,})" for other in (await app.session.store.survey()).queues]
    waiting = f"; queues with messages: {', '.join(others)}" if others else ""
    print_note(f"no messages in the reply queue {queue!r} now{waiting}")
