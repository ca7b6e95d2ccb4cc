"""Large bodies: their check leaves the event loop to others."""

import asyncio
import json
import random
import threading
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from server_shop import bearer, open_shop
from server_world import open_server
from starlette.requests import Request
from waiting import wait_until_async

from arriero import App, workflow
from arriero.server import request_body
from arriero.server.request_body import INLINE_BYTES_MAX, LINES_PER_TURN, POOL, TurnBudget
from arriero.server.routes.ledgers import iterate_lines


@pytest.mark.parametrize(
    ("method", "path", "media"),
    [
        ("POST", "/v1/tasks", "application/json"),
        ("POST", "/v1/ledgers/l-1:stream?bad=set_aside", "application/x-ndjson"),
    ],
)
async def test_other_requests_are_answered_while_a_large_text_is_checked(
    method: str, path: str, media: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, let_go, check = threading.Event(), threading.Event(), request_body.refuse_doubtful_json

    def check_slowly(data: bytes, what: str) -> None:
        if len(data) > INLINE_BYTES_MAX:
            begun.set()
            assert let_go.wait(60)
        check(data, what)

    monkeypatch.setattr(request_body, "refuse_doubtful_json", check_slowly)
    body = b'{"workflow": "fulfil", "arguments": {"x": "' + b"x" * INLINE_BYTES_MAX + b'"}}'
    async with open_shop() as world:
        headers = {"Content-Type": media}
        posting = asyncio.create_task(world.http.request(method, path, content=body, headers=headers))
        await asyncio.to_thread(begun.wait, 60)
        small = await world.http.post("/v1/tasks", json={"workflow": "wait_long"})
        assert small.status_code == 201
        assert not posting.done()
        let_go.set()
        assert (await posting).status_code in (200, 422)


async def test_a_caller_with_many_large_texts_delays_the_text_of_another_one_by_one_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, let_go, check = threading.Event(), threading.Event(), request_body.refuse_doubtful_json
    checked: list[bytes] = []

    def check_slowly(data: bytes, what: str) -> None:
        checked.append(data[-1:])
        begun.set()
        assert let_go.wait(60)
        check(data, what)

    monkeypatch.setattr(request_body, "refuse_doubtful_json", check_slowly)
    text = b'{"workflow": "wait_long"}' + b" " * INLINE_BYTES_MAX
    async with open_shop() as world:

        async def post(data: bytes, scope: str) -> int:
            headers = {"Content-Type": "application/json", **bearer(scope)}
            return (await world.http.post("/v1/tasks", content=data, headers=headers)).status_code

        places = world.server.gate._places
        many = [asyncio.create_task(post(text + b"\n", "admin")) for _ in range(20)]
        await asyncio.to_thread(begun.wait, 60)
        await wait_until_async(lambda: sum(places._requests.values()) == len(many))
        other = asyncio.create_task(post(text + b"\t", "submit"))
        await wait_until_async(lambda: len([one for one in places._thread_turns.values() if one.locked()]) == 2)
        let_go.set()
        assert {await other, *[await one for one in many]} == {201}
        assert checked.index(b"\t") <= 2


async def test_doubtful_json_in_a_large_body_is_refused_with_the_same_problem_as_in_a_small_one() -> None:
    async with open_shop() as world:
        for filler in ("", "x" * INLINE_BYTES_MAX):
            body = f'{{"workflow": "fulfil", "workflow": "fulfil", "id": "{filler}"}}'
            answer = await world.http.post("/v1/tasks", content=body, headers={"Content-Type": "application/json"})
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid-json")
            assert "the key 'workflow' twice" in answer.json()["detail"]


class Parts(Request):
    """A request whose body comes in given parts."""

    def __init__(self, parts: list[bytes]) -> None:
        super().__init__({"type": "http", "headers": []})
        self._parts = parts

    async def stream(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part


@pytest.mark.parametrize("seed", range(5))
async def test_lines_are_the_same_in_whatever_parts_they_come(seed: int) -> None:
    chance = random.Random(seed)
    body = b"\n".join(b"x" * chance.randrange(5) for _ in range(300))
    parts = []
    rest = body
    while rest:
        size = chance.choice((1, 2, 7, 100))
        parts.append(rest[:size])
        rest = rest[size:]
    assert [line async for line in iterate_lines(Parts(parts))] == body.split(b"\n")


async def test_the_event_loop_has_a_turn_after_some_lines_of_one_part() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    lines = [line async for line in iterate_lines(Parts([b"{}\n" * 10 * LINES_PER_TURN]))]
    assert len(lines) == 10 * LINES_PER_TURN + 1
    assert turns >= 10
    counting.cancel()


def test_a_turn_has_a_number_of_lines_and_of_bytes() -> None:
    by_lines, by_bytes = TurnBudget(), TurnBudget()
    assert [by_lines.is_spent(1) for _ in range(2 * LINES_PER_TURN)].count(True) == 2
    assert [by_bytes.is_spent(INLINE_BYTES_MAX // 2) for _ in range(6)] == [False, True] * 3


@pytest.mark.parametrize("size", [1, INLINE_BYTES_MAX])
async def test_the_tasks_of_a_batch_keep_their_order_in_a_convoy_however_large_it_is(size: int) -> None:
    tasks = [{"workflow": "wait_long", "id": f"t-{number}", "convoy": "c"} for number in range(50)]
    async with open_shop() as world:
        content = json.dumps({"tasks": tasks}) + " " * size
        headers = {"Content-Type": "application/json"}
        answer = await world.http.post("/v1/tasks:submit", content=content, headers=headers)
        assert answer.json()["refused"] == 0
        listed = (await world.http.get("/v1/tasks?limit=100")).json()["tasks"]
        assert [task["id"] for task in listed] == [task["id"] for task in tasks]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/tasks", {"workflow": "take", "arguments": {"value": "VALUE"}}),
        ("POST", "/v1/tasks:submit", {"tasks": [{"workflow": "take", "arguments": {"value": "VALUE"}}]}),
        ("PUT", "/v1/ledgers/l-1", {"entries": [{"workflow": "take", "arguments": {"value": "VALUE"}}]}),
        ("POST", "/v1/ledgers/l-1:stream", {"workflow": "take", "arguments": {"value": "VALUE"}}),
    ],
)
async def test_large_arguments_become_values_of_their_types_in_the_thread(method: str, path: str, body: Any) -> None:
    threads: set[str] = set()

    class Seen(msgspec.Struct):
        text: str

        def __post_init__(self) -> None:
            threads.add(threading.current_thread().name)

    @workflow
    async def take(value: Seen) -> None: ...

    async with open_server(App("shop", workflows=[take], store="memory://")) as world:
        content = json.dumps(body).replace('"VALUE"', json.dumps({"text": "x" * INLINE_BYTES_MAX}))
        media = "application/x-ndjson" if path.endswith(":stream") else "application/json"
        answer = await world.http.request(method, path, content=content, headers={"Content-Type": media})
        assert answer.status_code in (200, 201)
        assert {name.rpartition("_")[0] for name in threads} == {f"arriero-{POOL}"}
