"""Requests as JSON: what the command line and HTTP accept, the reply that both print, and what each refuses by name."""

import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import json_senders
import pytest
from json_senders import call, check_refusals
from server_world import open_server
from signal_shop import change_address, deliver, open_app, plant

from arriero import App, RequestRefused
from arriero.model.signals import VALUE_BYTES_MAX

by_command, by_http = partial(json_senders.by_command, "request"), partial(json_senders.by_http, "request")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'requests.db'}"


@pytest.fixture
async def shop(url: str) -> AsyncIterator[App]:
    shop = open_app(url)
    async with shop.running():
        yield shop


BIG = json.dumps("a" * 1_000_000)
RIGHT = '"Main Street 1"'
BAD = [
    # task, name, value, request_id; then the code of the problem, the exit code, and a part of what both say
    ("delivers", "change_address", BIG, "b1", "invalid-request", 2, f"at most {VALUE_BYTES_MAX:,} are sent"),
    ("delivers", "change_address", "{", "b2", "invalid-request", 2, "is not JSON"),
    ("delivers", "change_address", "NaN", "b3", "invalid-request", 2, "is not JSON"),
    ("delivers", "change_address", '{"by": "a", "by": "b"}', "b4", "invalid-request", 2, "the key 'by' twice"),
    ("delivers", "change_address", "5", "b5", "invalid-request", 2, "request change_address"),
    ("delivers", "approved", RIGHT, "b6", "invalid-request", 2, "receives no request 'approved'; it receives: change_address"),
    ("waits", "approved", RIGHT, "b7", "invalid-request", 2, "is a signal: send it with `arriero task send waits approved JSON`"),
    ("one-step", "change_address", RIGHT, "b8", "invalid-request", 2, "it receives: none"),
    ("delivers", "change_address%232", RIGHT, "b9", "invalid-request", 2, "without '#'"),
    ("delivers", "n" * 300, RIGHT, "b10", "invalid-request", 2, "it must have 1 to 255"),
    ("delivers", "change_address", RIGHT, "", "invalid-request", 2, "request_id has 0 characters"),
    ("delivers", "change_address", RIGHT, "i" * 300, "invalid-request", 2, "request_id has 300 characters"),
    ("nobody", "change_address", RIGHT, "b11", "task-unknown", 4, "no task 'nobody'"),
    ("elsewhere", "change_address", RIGHT, "b12", "signal-refused:another_app", 3, "of App 'travel', this is App 'shop'"),
    ("ended", "change_address", RIGHT, "b13", "signal-refused:ended", 3, "request change_address to task 'ended' is refused"),
    ("undone", "change_address", RIGHT, "b14", "signal-refused:undone", 3, "the task is compensated"),
]  # fmt: skip


async def test_bad_requests_are_refused_alike_by_the_command_line_and_by_http_and_change_nothing(url: str) -> None:
    await plant(url)
    shop = open_app(url)
    async with open_server(shop) as world:
        await shop.submit(deliver(), task_id="delivers")
        await check_refusals("request", url, world, BAD)
        for task in ("delivers", "waits", "ended", "undone", "elsewhere"):
            assert (await world.http.get(f"/v1/tasks/{task}/signals")).json()["signals"] == []
        odd = await world.http.post("/v1/tasks/delivers/requests/change_address", json={"value": "x", "by": "ana"})
        assert (odd.status_code, odd.json()["code"]) == (400, "invalid-json")


async def test_a_reply_is_the_same_from_each_interface_and_for_each_that_asks_again(url: str, shop: App) -> None:
    await shop.submit(deliver(), task_id="delivers")
    async with open_server(shop, opened=False) as world:
        for _ in range(2):
            typed = await by_command(url, "delivers", "change_address", RIGHT, "r1")
            assert (typed.status, typed.answer["reply"], typed.answer["state"]) == (0, 1, "replied")
            asked = await by_http(world, "delivers", "change_address", RIGHT, "r1")
            assert (asked.status, asked.answer["reply"], asked.answer["number"]) == (200, 1, 1)
            assert (asked.answer["request_id"], asked.answer["created"]) == ("r1", False)
        assert await shop.task("delivers").request(change_address("Main Street 1"), request_id="r1", timeout=60) == 1
        changed = await by_http(world, "delivers", "change_address", '"Main Street 9"', "r1")
        assert (changed.code, changed.because) == ("signal-refused", "another_value")
        done = await call(url, "task", "request", "delivers", "change_address", '"Main Street 2"', "--by", "ana")
        assert (done.exit_code, done.stdout) == (0, "2\n"), done.output
        assert await shop.task("delivers").result(timeout=60) == ["Main Street 1", "Main Street 2"]
        asked = await by_http(world, "delivers", "change_address", RIGHT, "r1")
        assert (asked.status, asked.answer["reply"]) == (200, 1)


async def test_a_refusal_of_the_code_says_its_reason_to_those_who_may_read_reasons(url: str, shop: App) -> None:
    await shop.submit(deliver(), task_id="delivers")
    async with open_server(shop, opened=False) as world:
        typed = await by_command(url, "delivers", "change_address", '""', "r1")
        assert (typed.code, typed.status) == ("request-refused", 3)
        assert typed.says == "task 'delivers' refuses the request: an address has at least one letter"
        asked = await by_http(world, "delivers", "change_address", '""', "r1")
        assert (asked.status, asked.code, asked.says) == (409, "request-refused", typed.says)
        asked = await by_http(world, "delivers", "change_address", '""', "r1", of="submit")
        assert (asked.status, asked.says) == (409, "task 'delivers' refuses the request")
        asked = await by_http(world, "delivers", "change_address", RIGHT, "r2", of="submit")
        assert (asked.status, asked.answer["payloads"], asked.answer["state"]) == (200, "withheld", "replied")
        assert "reply" not in asked.answer


async def test_a_request_without_a_reply_in_time_stays_and_says_how_to_ask_again(url: str) -> None:
    shop = open_app(url)
    async with open_server(shop) as world:
        await shop.submit(deliver(), task_id="delivers")
        for prefer in ("respond-async", "wait=0"):
            asked = await by_http(world, "delivers", "change_address", RIGHT, "r1", prefer)
            assert (asked.status, asked.answer["state"]) == (202, "waiting")
            assert "reply" not in asked.answer
            assert asked.headers["Preference-Applied"] == prefer
        typed = await call(
            url, "task", "request", "delivers", "change_address", RIGHT, "--request-id", "r1", "--timeout", "0"
        )
        assert typed.exit_code == 75
        assert (
            "has not received it within 0 s: request change_address stays; ask again with --request-id r1 to"
            in typed.stderr
        )
        assert "no Scheduler is alive" in typed.stderr
        late = await call(
            url,
            "task",
            "request",
            "delivers",
            "change_address",
            RIGHT,
            "--request-id",
            "r1",
            "--timeout",
            "0",
            "--json",
        )
        document = json.loads(late.stdout)
        assert (late.exit_code, document["state"], document["created"], document["number"]) == (75, "waiting", False, 1)
    shop = open_app(url)
    async with shop.running():
        again = await by_command(url, "delivers", "change_address", RIGHT, "r1")
        assert (again.status, again.answer["reply"]) == (0, 1)


async def test_a_request_to_a_task_that_ends_without_a_reply_is_refused_by_name(url: str, shop: App) -> None:
    await shop.submit(deliver(), task_id="delivers")
    store = shop.session.store
    async with open_server(shop, opened=False) as world:
        assert (await by_http(world, "delivers", "change_address", RIGHT, "r1")).status == 200
        await shop.task("delivers").cancel(by="ana", reason="test")
        with pytest.raises(Exception, match="undone|cancel"):
            await shop.task("delivers").result(timeout=60)
        asked = await by_http(world, "delivers", "change_address", RIGHT, "r2")
        assert (asked.status, asked.code, asked.because) == (409, "signal-refused", "undone")
    assert len(await store.list_signals(1)) == 1


async def test_operators_read_the_command_that_sends_a_request(url: str, shop: App) -> None:
    task = await shop.submit(deliver(), task_id="delivers")
    await task.request(change_address("Main Street 1"), timeout=60)
    explained = " ".join((await call(url, "task", "explain", "delivers")).stdout.split())
    assert "`arriero task request delivers change_address JSON` sends it" in explained


def test_code_without_an_event_loop_asks_and_gets_the_same_reply(url: str) -> None:
    shop = open_app(url)
    with shop.sync.running():
        task = shop.sync.submit(deliver(), task_id="delivers")
        for _ in range(2):
            assert task.request(change_address("Main Street 1"), timeout=60, request_id="r1") == 1
        with pytest.raises(RequestRefused, match="an address has at least one letter"):
            task.request(change_address(""), timeout=60)
