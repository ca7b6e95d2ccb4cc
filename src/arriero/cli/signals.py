"""``arriero task send``, ``request`` and ``signals``: signals and requests to a task, and those that it got."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypedDict, TypeVar, Unpack

import click
import msgspec

from ..client.json_signals import (
    JsonKind,
    RequestAnswer,
    ShownSignal,
    build_json_send,
    build_request_answer,
    load_signals,
)
from ..client.session import Session, find_task
from ..client.signals import SignalReceipt, send, wait_for_reply
from ..client.task_verbs import load_task_to_act
from ..model import Loaded
from ..model.commands import SendSignal
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

T = TypeVar("T")


class SentSignal(msgspec.Struct, frozen=True):
    """The output of ``task send --json``; see ``SignalReceipt``."""

    id: str
    name: str
    signal_id: str
    number: int
    created: bool


class Typed(TypedDict):
    """The arguments and options that ``send`` and ``request`` share."""

    task_id: str
    name: str
    value: str
    by: str
    app: str | None
    store: str | None


def _typed_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments and options of ``Typed``."""
    app_help = "The App whose types check the JSON. By default the configured one, if any."
    for add in (
        store_option,
        click.option("--app", metavar="MODULE:APP", help=app_help),
        by_option,
        click.argument("value", metavar="[JSON]", default="null"),
        click.argument("name", metavar="NAME"),
        click.argument("task_id", metavar="ID"),
    ):
        function = add(function)
    return function


Kept = Callable[[Session, Loaded, SendSignal, SignalReceipt], Awaitable[T]]  # called while the store is open


def _send(typed: Typed, kind: JsonKind, given_id: str | None, then: Kept[T]) -> T:
    """Send what was typed. Returns: what ``then`` makes of it. Raises: as ``client.signals.send``; InvalidInput."""
    text, found, named = (
        read_option(typed["value"], "JSON"),
        find_app_with_types(typed["app"], typed["store"]),
        typed["app"],
    )

    async def run() -> T:
        async with open_operator(found, typed["store"]) as on:
            loaded = await load_task_to_act(on.session, on.task(typed["task_id"]).id)
            # An operator may send to any task. Who names an App means a task of it.
            sender = "" if named is None else on.session.app
            command = build_json_send(
                on.session, loaded, typed["name"], text, given_id, typed["by"], app=sender, kind=kind
            )
            return await then(on.session, loaded, command, await send(on.session, loaded.task.task_id, command))

    return asyncio.run(run())


@click.command("send", short_help="Send a signal to a task.")
@click.option(
    "--signal-id",
    metavar="ID",
    help="Sent again under the same id it changes nothing. By default a new one, which is printed.",
)
@_typed_options
@json_option
def send_signal(signal_id: str | None, as_json: bool, **typed: Unpack[Typed]) -> None:
    """Send a signal to a task, whose code waits for it now or later. When this returns, the signal is durable.

    JSON is its value, null by default; - reads it from standard input. It is checked against the type of the signal if the
    code of the task is here. Otherwise the process that runs the task sets a value aside that does not fit.
    """
    receipt, nobody = _send(typed, "signal", signal_id, _describe_kept)
    task_id, name = typed["task_id"], typed["name"]
    if as_json:
        print_json(SentSignal(task_id, name, receipt.signal_id, receipt.number, receipt.created))
    else:
        existed = "" if receipt.created else " (it was sent before)"
        print_text(
            f"signal {name} to task {task_id} is kept as number {receipt.number}, id {receipt.signal_id}{existed}"
        )
    print_nobody_runs(nobody)


async def _describe_kept(
    session: Session, loaded: Loaded, command: SendSignal, receipt: SignalReceipt
) -> tuple[SignalReceipt, str]:
    """The receipt, and that no Scheduler is alive, if so."""
    return receipt, await session.describe_missing_scheduler(of=loaded.task.app)


@click.command("request", short_help="Send a request to a task, and print the reply of its code.")
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
@_typed_options
@json_option
def send_request(timeout: float, request_id: str | None, as_json: bool, **typed: Unpack[Typed]) -> None:
    """Send a request to a task, wait until its code replies, and print the reply as JSON.

    JSON is its value, null by default; - reads it from standard input. Exits with 3 if the code refuses the request, or if the
    task receives it no longer.
    """

    async def wait(
        session: Session, loaded: Loaded, command: SendSignal, receipt: SignalReceipt
    ) -> tuple[RequestAnswer, str]:
        reply, says = await _wait(session, loaded, command, receipt, timeout)
        return await build_request_answer(session, loaded, typed["name"], receipt, reply), says

    answered, says = _send(typed, "request", request_id, wait)
    if as_json:
        print_json(answered)
    elif isinstance(answered.reply, msgspec.Raw):
        print_text(bytes(answered.reply).decode())
    if says:
        print_note(says)
        sys.exit(ExitCode.TIME_OVER)


async def _wait(
    session: Session, loaded: Loaded, command: SendSignal, receipt: SignalReceipt, timeout: float
) -> tuple[str | None, str]:
    """Wait for the reply to a request. Returns: its JSON text, and what is said if none came in time."""
    task = loaded.task
    try:
        with suppress(TimeoutError):  # the code may have ended long ago
            return await wait_for_reply(session, task.task_id, command, receipt.number, 0.0), ""
        print_nobody_runs(await session.describe_missing_scheduler(of=task.app))
        return await wait_for_reply(session, task.task_id, command, receipt.number, timeout), ""
    except TimeoutError as error:
        asked = f"--request-id {shell_argument(receipt.signal_id)}"
        return None, str(error).replace(f"request_id={receipt.signal_id!r}", asked)


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
    place = {
        "waiting": "waits in the inbox",
        "taken": f"wait {one.step}",
        "set_aside": f"set aside: {one.why}",
        "passed_on": "went along to the next run",
    }
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
