"""``arriero task send``, ``request`` and ``signals``: signals and requests to a task, and those that it got."""

import asyncio
import sys
from contextlib import suppress

import click
import msgspec

from ..client.app import App
from ..client.json_signals import (
    RequestAnswer,
    ShownSignal,
    build_json_send,
    build_request_answer,
    load_signals,
)
from ..client.signals import SignalReceipt, send, wait_for_reply
from ..client.task_verbs import find_task, load_task_to_act
from ..operations.problems import ExitCode
from ..text.escaping import shell_argument
from .options import (
    NUMBER,
    by_option,
    json_option,
    parse_duration,
    print_empty,
    print_nobody_runs,
    print_note,
    read_option,
    store_option,
)
from .output import format_time, print_json, print_table, print_text, truncate
from .stores import find_app_with_types, open_operator, open_store_to_read


class SentSignal(msgspec.Struct, frozen=True):
    """The output of ``task send --json``; see ``SignalReceipt``."""

    id: str
    name: str
    signal_id: str
    number: int
    created: bool


@click.command("send", short_help="Send a signal to a task.")
@click.argument("task_id", metavar="ID")
@click.argument("name", metavar="NAME")
@click.argument("value", metavar="[JSON]", default="null")
@click.option(
    "--signal-id",
    metavar="ID",
    help="Sent again under the same id it changes nothing. By default a new one, which is printed.",
)
@by_option
@click.option(
    "--app", metavar="MODULE:APP", help="The App whose types check the JSON. By default the configured one, if any."
)
@store_option
@json_option
def send_signal(
    task_id: str,
    name: str,
    value: str,
    signal_id: str | None,
    by: str,
    app: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Send a signal to a task, whose code waits for it now or later. When this returns, the signal is durable.

    JSON is its value, null by default; - reads it from standard input. It is checked against the type of the signal if the
    code of the task is here. Otherwise the process that runs the task sets a value aside that does not fit.
    """
    text = read_option(value, "JSON")
    receipt, nobody = asyncio.run(
        _send(find_app_with_types(app, store), store, task_id, name, text, signal_id, by, app)
    )
    if as_json:
        print_json(SentSignal(task_id, name, receipt.signal_id, receipt.number, receipt.created))
    else:
        existed = "" if receipt.created else " (it was sent before)"
        print_text(
            f"signal {name} to task {task_id} is kept as number {receipt.number}, id {receipt.signal_id}{existed}"
        )
    print_nobody_runs(nobody)


async def _send(
    loaded_app: App | None,
    store: str | None,
    task_id: str,
    name: str,
    text: str,
    signal_id: str | None,
    by: str,
    named: str | None,
) -> tuple[SignalReceipt, str]:
    async with open_operator(loaded_app, store) as on:
        session = on.session
        loaded = await load_task_to_act(session, on.task(task_id).id)
        # An operator may send to any task. Who names an App means a task of it.
        sender = "" if named is None else session.app
        command = build_json_send(session, loaded, name, text, signal_id, by, app=sender)
        return await send(session, task_id, command), await session.describe_missing_scheduler(of=loaded.task.app)


REPLY_SECONDS = 30.0


@click.command("request", short_help="Send a request to a task, and print the reply of its code.")
@click.argument("task_id", metavar="ID")
@click.argument("name", metavar="NAME")
@click.argument("value", metavar="[JSON]", default="null")
@click.option(
    "--timeout",
    metavar="DURATION",
    type=parse_duration,
    default="30",
    show_default=True,
    help="Exit with 75 after this long without a reply. The request stays. 0 looks once.",
)
@click.option(
    "--request-id",
    metavar="ID",
    help="The same again waits for the same reply. By default a new one, which is printed if no reply comes.",
)
@by_option
@click.option(
    "--app", metavar="MODULE:APP", help="The App whose types check the JSON. By default the configured one, if any."
)
@store_option
@json_option
def send_request(
    task_id: str,
    name: str,
    value: str,
    timeout: float,
    request_id: str | None,
    by: str,
    app: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Send a request to a task, wait until its code replies, and print the reply as JSON.

    JSON is its value, null by default; - reads it from standard input. Exits with 3 if the code refuses the request, or if the
    task receives it no longer.
    """
    text = read_option(value, "JSON")
    sending = _ask(find_app_with_types(app, store), store, task_id, name, text, request_id, by, app, timeout)
    answered, says = asyncio.run(sending)
    if as_json:
        print_json(answered)
    elif isinstance(answered.reply, msgspec.Raw):
        print_text(bytes(answered.reply).decode())
    if says:
        print_note(says)
        sys.exit(ExitCode.TIME_OVER)


async def _ask(
    loaded_app: App | None,
    store: str | None,
    task_id: str,
    name: str,
    text: str,
    request_id: str | None,
    by: str,
    named: str | None,
    timeout: float,
) -> tuple[RequestAnswer, str]:
    """Send a request and wait for its reply. Returns: the output, and what is said if no reply came in time."""
    async with open_operator(loaded_app, store) as on:
        session = on.session
        loaded = await load_task_to_act(session, on.task(task_id).id)
        sender = "" if named is None else session.app
        command = build_json_send(session, loaded, name, text, request_id, by, app=sender, kind="request")
        receipt = await send(session, task_id, command)
        reply, says = None, ""
        try:
            with suppress(TimeoutError):
                reply = await wait_for_reply(
                    session, task_id, command, receipt.number, 0.0
                )  # the code may have ended long ago
            if reply is None:
                print_nobody_runs(await session.describe_missing_scheduler(of=loaded.task.app))
                reply = await wait_for_reply(session, task_id, command, receipt.number, timeout)
        except TimeoutError as error:
            asked = f"--request-id {shell_argument(receipt.signal_id)}"
            says = str(error).replace(f"request_id={receipt.signal_id!r}", asked)
        return await build_request_answer(session, loaded, name, receipt, reply), says


PAGE = 100


@click.command("signals", short_help="List the signals that a task got.")
@click.argument("task_id", metavar="ID")
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, 100_000), default=PAGE, show_default=True, help="Maximum number."
)
@click.option(
    "--after", metavar="NO", type=NUMBER, default=0, help="Only signals after this number, which is the next page."
)
@store_option
@json_option
def list_signals(task_id: str, limit: int, after: int, store: str | None, as_json: bool) -> None:
    """List the signals that were sent to a task, in order: which wait took each, and which were set aside, and why."""
    signals, has_more = asyncio.run(_load(task_id, limit, after, store))
    if as_json:
        for one in signals:
            print_json(one)
    elif not signals:
        print_empty("signals", f"task {task_id}" + (f" --after {after}" if after else ""))
    else:
        columns = ("no", "kind", "name", "id", "by", "at", "taken by", "value")
        print_table(columns, [_format_cells(one) for one in signals], optional=("kind", "by", "at"))
    if has_more:
        print_note(f"there are more; --after {signals[-1].number} shows the next")


async def _load(task_id: str, limit: int, after: int, url: str | None) -> tuple[list[ShownSignal], bool]:
    async with open_store_to_read(url) as store:
        task = (await find_task(task_id, store)).task
        return await load_signals(store, task.task_no, limit, after)


def _format_cells(one: ShownSignal) -> tuple[str, ...]:
    place = {"waiting": "waits in the inbox", "taken": f"wait {one.step}", "set_aside": f"set aside: {one.why}"}
    place["unreadable"] = one.why
    value = bytes(one.value).decode() if isinstance(one.value, msgspec.Raw) else ""
    return (
        str(one.number),
        one.kind,
        one.name,
        one.signal_id,
        one.by,
        format_time(one.at),
        truncate(place[one.state]),
        truncate(value),
    )
