"""`arriero replies`."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from cli_calls import SECONDS_MAX, Call, json_lines

from arriero import TaskFailed

QUEUE = "web-1"
RECEIVED = "arriero.task.received"


@pytest.fixture
def told(call: Call) -> Call:
    """The command line on a store with seven messages in one reply queue, of two tasks that have ended."""
    from shopfront import Order, app, fulfil

    async def sell() -> None:
        async with app.running():
            for task_id, pieces in (("sold", 1), ("undone", 11)):
                task = await app.submit(fulfil(Order(task_id, pieces)), task_id=task_id, reply_to=QUEUE)
                with suppress(TaskFailed):
                    await task.result()

    asyncio.run(sell())
    return call


def submit(task_id: str) -> None:
    """A task that nobody runs; its queue gets one message."""
    from shopfront import Order, app, later

    async def ask() -> None:
        async with app:
            await app.submit(later(Order(task_id)), task_id=task_id, reply_to=QUEUE)

    asyncio.run(ask())


def kinds(text: str) -> list[tuple[str, str]]:
    return [(event["subject"], event["data"]["kind"]) for event in json_lines(text)]


ALL = [
    ("sold", "received"),
    ("sold", "started"),
    ("sold", "completed"),
    ("undone", "received"),
    ("undone", "started"),
    ("undone", "failed"),
    ("undone", "compensated"),
]


def test_what_is_printed_is_acknowledged(told: Call) -> None:
    first = told("replies", QUEUE)
    assert (first.exit_code, first.stderr) == (0, "")
    says = [line.split("Z ", 1)[1] for line in first.stdout.splitlines()]
    assert says == [
        "sold #1 received",
        "sold #2 started",
        'sold #3 completed: "receipt-sold"',
        "undone #1 received",
        "undone #2 started",
        "undone #3 failed: out of stock [out_of_stock]",
        "undone #4 compensated: out of stock [out_of_stock]",
    ]
    second = told("replies", QUEUE)
    assert (second.exit_code, second.stdout) == (0, "")
    assert second.stderr == "arriero: no messages in the reply queue 'web-1' now\n"


def test_messages_are_printed_as_cloud_events(told: Call) -> None:
    printed = told("replies", QUEUE, "--json").stdout
    assert kinds(printed) == ALL
    third = json_lines(printed)[2]
    assert (third["specversion"], third["type"], third["id"]) == ("1.0", "arriero.task.completed", "1-3")
    assert (third["subject"], third["data"]["output"], third["data"]["number"]) == ("sold", "receipt-sold", 3)


def test_peek_acknowledges_nothing(told: Call) -> None:
    for _ in range(2):
        assert kinds(told("replies", QUEUE, "--peek", "--json").stdout) == ALL
    some = told("replies", QUEUE, "--peek", "--json", "--limit", "2")
    assert (kinds(some.stdout), some.stderr) == (ALL[:2], "arriero: there are more than 2: --limit N shows more\n")


def test_a_limit_acknowledges_what_it_printed_and_no_more(told: Call) -> None:
    assert kinds(told("replies", QUEUE, "--json", "--limit", "3").stdout) == ALL[:3]
    assert kinds(told("replies", QUEUE, "--json").stdout) == ALL[3:]


def test_an_empty_queue_tells_which_ones_are_not(told: Call) -> None:
    empty = told("replies", "web-2")
    assert (empty.exit_code, empty.stdout) == (0, "")
    said = "no messages in the reply queue 'web-2' now; queues with messages: web-1 (7)"
    assert empty.stderr == f"arriero: {said}\n"
    assert told("replies", "web-2", "--peek").stderr == empty.stderr


class Reader:
    """`arriero replies` in a process, into a pipe that is read line by line."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.pipe, written = os.pipe()
        self.lines = os.fdopen(self.pipe, "rb", buffering=0)
        self.child = subprocess.Popen(
            [sys.executable, "-m", "arriero", "replies", QUEUE, "--json", *options],
            cwd=folder,
            stdout=written,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(written)

    def line(self) -> str:
        return self.lines.readline().decode()

    def ended(self) -> tuple[int, str]:
        _, errors = self.child.communicate(timeout=SECONDS_MAX)
        self.lines.close()
        return self.child.returncode, errors


def test_nothing_is_acknowledged_that_could_not_be_written(told: Call, shop: Path) -> None:
    reader = Reader(shop)
    reader.lines.close()  # before it has said anything
    assert reader.ended() == (1, "")
    assert kinds(told("replies", QUEUE, "--json").stdout) == ALL


def test_a_full_disk_acknowledges_nothing(told: Call, shop: Path) -> None:
    full = f"{sys.executable} -m arriero replies {QUEUE} --json > /dev/full"
    ended = subprocess.run(full, shell=True, cwd=shop, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "no space is left" in line
    assert kinds(told("replies", QUEUE, "--json").stdout) == ALL


def test_following_prints_what_comes_until_its_reader_is_gone(call: Call, shop: Path) -> None:
    submit("one")
    reader = Reader(shop, "--follow")
    assert kinds(reader.line()) == [("one", "received")]
    submit("two")
    assert kinds(reader.line()) == [("two", "received")]
    reader.lines.close()
    submit("three")
    assert reader.ended() == (1, "")
    assert kinds(call("replies", QUEUE, "--json").stdout) == [("three", "received")]


def test_following_ends_after_a_limit_or_an_interrupt_with_all_acknowledged(call: Call, shop: Path) -> None:
    submit("one")
    reader = Reader(shop, "--follow", "--limit", "1")
    assert kinds(reader.line()) == [("one", "received")]
    assert reader.ended() == (0, "")

    submit("two")
    reader = Reader(shop, "--follow")
    assert kinds(reader.line()) == [("two", "received")]
    reader.child.send_signal(signal.SIGINT)
    assert reader.ended()[0] == 130
    assert call("replies", QUEUE).stdout == ""


@pytest.mark.parametrize(
    ("arguments", "part", "code"),
    [
        ([], "Missing argument 'QUEUE'", 2),
        ([""], "reply queue has 0 characters", 2),
        ([QUEUE, "--peek", "--follow"], "--peek and --follow exclude each other", 2),
        ([QUEUE, "--limit", "0"], "0 is not in the range", 2),
        ([QUEUE, "--store", "sqlite:///missing.db"], "there is no such file", 5),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_is_one_line_and_an_exit_code(call: Call, arguments: list[str], part: str, code: int) -> None:
    refused = call("replies", *arguments)
    assert (refused.exit_code, refused.stdout) == (code, "")
    (line,) = refused.stderr.splitlines()
    assert part in line
