"""Signals by the command line and by HTTP: what each accepts, and what each refuses by name with nothing changed."""

import json
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import json_senders
import pytest
from json_senders import call, check_refusals
from server_world import open_server
from signal_shop import Approval, approved, open_app, plant

from arriero.core import signals as rules
from arriero.model.signals import VALUE_BYTES_MAX

by_command, by_http = partial(json_senders.by_command, "signal"), partial(json_senders.by_http, "signal")
BIG = json.dumps({"by": "a" * 1_000_000})
RIGHT = '{"by": "ana"}'
BAD = [
    # task, name, value, signal_id; then the code of the problem, the exit code, and a part of what both say
    ("waits", "approved", BIG, "b1", "invalid-request", 2, f"at most {VALUE_BYTES_MAX:,} are sent"),
    ("waits", "approved", "{", "b2", "invalid-request", 2, "is not JSON"),
    ("waits", "approved", '{"by": NaN}', "b3", "invalid-request", 2, "is not JSON"),
    ("waits", "approved", '{"by": "a", "by": "b"}', "b4", "invalid-request", 2, "the key 'by' twice"),
    ("waits", "approved", '{"by": 5}', "b5", "invalid-request", 2, "signal approved"),
    ("waits", "paid", '"five"', "b6", "invalid-request", 2, "signal paid"),
    ("waits", "aproved", RIGHT, "b7", "invalid-request", 2, "it receives: approved, paid"),
    ("one-step", "approved", RIGHT, "b8", "invalid-request", 2, "it receives: none"),
    ("waits", "approved%232", RIGHT, "b9", "invalid-request", 2, "without '#'"),
    ("waits", "n" * 300, RIGHT, "b10", "invalid-request", 2, "it must have 1 to 255"),
    ("waits", "approved", RIGHT, "", "invalid-request", 2, "signal_id has 0 characters"),
    ("waits", "approved", RIGHT, "i" * 300, "invalid-request", 2, "signal_id has 300 characters"),
    ("nobody", "approved", RIGHT, "b11", "task-unknown", 4, "no task 'nobody'"),
    ("elsewhere", "approved", RIGHT, "b12", "signal-refused:another_app", 3, "of App 'travel', this is App 'shop'"),
    ("ended", "approved", RIGHT, "b13", "signal-refused:ended", 3, "the task has ended"),
    ("ended", "approved", '"unfit"', "b14", "signal-refused:ended", 3, "the task has ended"),
    ("undone", "approved", RIGHT, "b15", "signal-refused:undone", 3, "the task is compensated"),
    ("full", "approved", RIGHT, "b16", "signal-refused:inbox_full", 3, "1 signal with"),
]  # fmt: skip


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'signals.db'}"


async def test_bad_signals_are_refused_alike_by_the_command_line_and_by_http_and_change_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plant(url)
    shop = open_app(url)
    async with open_server(shop) as world:
        await shop.task("full").send(approved(Approval("ana")))
        monkeypatch.setattr(rules, "INBOX_MAX", 1)
        await check_refusals("signal", url, world, BAD)
        for task, count in (("waits", 0), ("full", 1), ("ended", 0), ("undone", 0), ("elsewhere", 0)):
            listed = await world.http.get(f"/v1/tasks/{task}/signals")
            assert len(listed.json()["signals"]) == count, listed.text


async def test_a_signal_is_the_same_from_each_interface(url: str) -> None:
    await plant(url)
    shop = open_app(url)
    async with open_server(shop) as world:
        receipt = await shop.task("waits").send(approved(Approval("ana")), signal_id="s1", by="ana")
        assert (receipt.number, receipt.created) == (1, True)
        for _ in range(2):
            assert (await by_command(url, "waits", "approved", '{ "by" : "ana" }', "s1")).code == ""
            assert (await by_http(world, "waits", "approved", '{"note": "", "by": "ana"}', "s1")).code == ""
        changed = await by_http(world, "waits", "approved", '{"by": "bob"}', "s1")
        assert (changed.code, changed.because) == ("signal-refused", "another_value")
        assert (await by_http(world, "waits", "paid", "5", "s2")).code == ""
        listed = (await world.http.get("/v1/tasks/waits/signals?limit=1")).json()
        (first,) = listed["signals"]
        assert (first["number"], first["name"], first["signal_id"], first["by"]) == (1, "approved", "s1", "ana")
        assert (first["state"], first["value"]) == ("waiting", {"by": "ana", "note": ""})
        rest = (await world.http.get(f"/v1/tasks/waits/signals?cursor={listed['next']}")).json()
        assert [(one["number"], one["by"]) for one in rest["signals"]] == [(2, "caller-admin")]
        assert rest["next"] is None
        printed = await call(url, "task", "signals", "waits")
        assert "approved" in printed.stdout
        assert "waits in the inbox" in printed.stdout
        assert [
            json.loads(line)["number"]
            for line in (await call(url, "task", "signals", "waits", "--json")).stdout.splitlines()
        ] == [1, 2]


async def test_without_the_code_of_a_task_an_operator_may_send_anything_that_is_json(url: str) -> None:
    await plant(url)
    sent = await call(url, "task", "send", "elsewhere", "approved", '{"any": 1}', "--signal-id", "s1", "--by", "ana")
    assert sent.exit_code == 0, sent.output
    assert "is kept as number 1, id s1" in sent.stdout
    again = await call(url, "task", "send", "elsewhere", "approved", '{"any":1}', "--signal-id", "s1", "--by", "ana")
    assert "(it was sent before)" in again.stdout


async def test_a_signal_whose_row_is_damaged_is_named_by_each_interface_and_hides_no_other(url: str) -> None:
    await plant(url)
    shop = open_app(url)
    async with open_server(shop) as world:
        for number in (1, 2):
            await shop.task("waits").send(approved(Approval("ana")), signal_id=f"s{number}")
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute("UPDATE arriero_signal SET value = '{' WHERE signal_id = 's1'")
        named = "column value of table signal (row "
        listed = (await world.http.get("/v1/tasks/waits/signals")).json()["signals"]
        assert [one["state"] for one in listed] == ["unreadable", "waiting"]
        assert named in listed[0]["why"]
        assert "value" not in listed[0]
        lines = (await call(url, "task", "signals", "waits", "--json")).stdout.splitlines()
        assert [json.loads(line)["state"] for line in lines] == ["unreadable", "waiting"]
        for command in ("signals", "show", "explain"):
            shown = await call(url, "task", command, "waits")
            assert shown.exit_code == 0, shown.output
            assert named in " ".join(shown.stdout.split()), shown.stdout
        refused = await by_command(url, "waits", "approved", RIGHT, "s3")
        assert (refused.code, refused.status) == ("unreadable-row", 3)
        assert (await by_http(world, "waits", "approved", RIGHT, "s3")).code == "unreadable-row"
