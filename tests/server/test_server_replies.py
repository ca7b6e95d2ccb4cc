"""Reply queues over HTTP: nothing is lost with a connection, and what was acknowledged does not come again."""

import asyncio
import importlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_shop import ShopWorld, bearer, open_shop

from arriero.errors import StoreError
from arriero.server.problems import Problem
from arriero.server.routes.replies import format_runs, read_runs

REPLIES = importlib.import_module("arriero.server.routes.replies")  # the package has the group under this name


async def _sell(world: ShopWorld, count: int) -> None:
    """Have tasks processed whose messages go to the queue ``desk``."""
    for number in range(count):
        body = {"workflow": "fulfil", "arguments": {"order": {"item": "lamp"}}, "id": f"t-{number}", "reply_to": "desk"}
        (await world.http.post("/v1/tasks", json=body, headers={"Prefer": "wait=30"})).raise_for_status()


async def _list(world: ShopWorld, **options: Any) -> list[dict[str, Any]]:
    answer = await world.http.get("/v1/replies/desk?limit=200", **options)
    assert answer.status_code == 200
    return list(answer.json()["messages"])


async def test_a_message_stays_until_it_is_acknowledged() -> None:
    async with open_shop(running=True) as world:
        await _sell(world, 1)
        messages = await _list(world)
        assert [one["event"]["type"] for one in messages] == [
            "arriero.task.received",
            "arriero.task.started",
            "arriero.task.completed",
        ]
        assert await _list(world) == messages
        numbers = [one["no"] for one in messages]
        body = {"numbers": [*numbers[:2], 999_999]}
        answer = await world.http.post("/v1/replies/desk:acknowledge", json=body)
        assert (answer.status_code, answer.content) == (204, b"")
        assert [one["no"] for one in await _list(world)] == numbers[2:]


async def test_an_output_is_withheld_from_who_may_not_read_payloads() -> None:
    async with open_shop(running=True) as world:
        await _sell(world, 1)
        assert "output" in (await _list(world))[-1]["event"]["data"]
        assert "output" not in (await _list(world, headers=bearer("replies:desk")))[-1]["event"]["data"]
        assert (await world.http.get("/v1/replies/desk", headers=bearer("read"))).status_code == 403


async def test_a_queue_is_read_and_acknowledged_by_holders_of_its_own_scope_alone() -> None:
    async with open_shop(running=True) as world:
        await _sell(world, 1)
        for scope in ("submit", "replies:bank"):
            for method, path in (
                ("GET", "/v1/replies/desk"),
                ("GET", "/v1/replies/desk/events"),
                ("POST", "/v1/replies/desk:acknowledge"),
                ("GET", "/v1/replies/desk%2F"),
                ("GET", "/v1/replies/%64esk"),
            ):
                body = None if method == "GET" else {"numbers": [1, 2, 3]}
                answer = await world.http.request(method, path, json=body, headers=bearer(scope))
                assert (answer.status_code, answer.json()["scope"][:12]) == (403, "replies:desk")
                assert "`arriero token create NAME --scope replies:desk" in answer.json()["detail"]
        held = await _list(world, headers=bearer("replies:desk"))
        assert len(held) == 3
        body = {"numbers": [held[0]["no"]]}
        answer = await world.http.post("/v1/replies/desk:acknowledge", json=body, headers=bearer("replies:desk"))
        assert answer.status_code == 204
        assert len(await _list(world)) == 2


async def test_a_reason_is_withheld_from_who_may_only_read_the_queue_and_customers_have_a_text_of_their_own() -> None:
    async with open_shop(running=True) as world:
        body = {"workflow": "fulfil", "arguments": {"order": {"item": "gold"}}, "reply_to": "desk"}
        (await world.http.post("/v1/tasks", json=body, headers={"Prefer": "wait=30"})).raise_for_status()
        for options, reason in (({}, "declined"), ({"headers": bearer("replies:desk")}, None)):
            failed, undone = (one["event"]["data"] for one in (await _list(world, **options))[-2:])
            assert [failed["kind"], undone["kind"]] == ["failed", "compensated"]
            for data in (failed, undone):
                assert (data["public"], data.get("reason")) == ("Please pay in another way.", reason)


async def test_a_queue_gets_no_message_of_another_one_acknowledged() -> None:
    async with open_shop(running=True) as world:
        await _sell(world, 1)
        numbers = [one["no"] for one in await _list(world)]
        await world.http.post("/v1/replies/other:acknowledge", json={"numbers": numbers})
        assert len(await _list(world)) == len(numbers)


@pytest.mark.parametrize("numbers", [[0], [-1], [2**63], [1] * 1_001])
async def test_numbers_that_are_none_are_refused(numbers: list[int]) -> None:
    async with open_shop() as world:
        answer = await world.http.post("/v1/replies/desk:acknowledge", json={"numbers": numbers})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")


async def test_events_go_on_behind_the_last_one_and_each_message_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REPLIES, "UNACKNOWLEDGED_MAX", 4)
    async with open_shop(running=True) as world:
        await _sell(world, 4)
        wanted = [one["no"] for one in await _list(world)]
        assert len(wanted) == 12
        seen: list[int] = []
        last = ""
        for _ in range(3):  # a connection ends when so many are not acknowledged
            headers = {"Last-Event-ID": last} if last else {}
            text = (await world.http.get("/v1/replies/desk/events", headers=headers)).text
            events = [
                dict(line.split(": ", 1) for line in part.split("\n")) for part in text.split("\n\n") if "id: " in part
            ]
            assert len(events) == 4
            last = events[-1]["id"]
            seen += read_runs(last, 1_000)
            assert json.loads(events[0]["data"])["specversion"] == "1.0"
        assert seen == wanted
        assert [one["no"] for one in await _list(world)] == wanted[8:]


async def test_what_a_lost_connection_sent_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REPLIES, "UNACKNOWLEDGED_MAX", 3)
    async with open_shop(running=True) as world:
        await _sell(world, 1)
        first = (await world.http.get("/v1/replies/desk/events")).text
        again = (await world.http.get("/v1/replies/desk/events")).text
        assert first == again


async def test_a_small_number_that_becomes_visible_late_is_not_taken_for_received(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Transactions commit in another order than they draw numbers."""
    monkeypatch.setattr(REPLIES, "UNACKNOWLEDGED_MAX", 1)
    async with open_shop(running=True) as world:
        await _sell(world, 1)
        numbers = [one["no"] for one in await _list(world)]
        late = {"Last-Event-ID": str(numbers[-1])}  # only the last one was visible on the connection before
        text = (await world.http.get("/v1/replies/desk/events", headers=late)).text
        assert f"id: {numbers[0]}\n" in text


async def test_a_message_that_becomes_visible_behind_a_later_one_comes_on_the_same_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(REPLIES, "UNACKNOWLEDGED_MAX", 3)
    async with open_shop(running=True) as world:
        await _sell(world, 1)
        load = world.app.session.store.load_statuses
        asked = 0

        async def hide_the_first(queue: str, limit: int) -> Any:
            nonlocal asked
            asked += 1
            rows = await load(queue, limit)
            return rows[1:] if asked == 1 else rows

        monkeypatch.setattr(world.app.session.store, "load_statuses", hide_the_first)
        async with asyncio.timeout(60):
            text = (await world.http.get("/v1/replies/desk/events")).text
        assert [line for line in text.splitlines() if line.startswith("event: ")] == [
            "event: started",
            "event: completed",
            "event: received",
        ]


async def test_a_silent_stream_beats_and_ends_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REPLIES, "HEARTBEAT_SECONDS", 0.0)
    beats = asyncio.Event()
    rows_asked = 0
    async with open_shop() as world:
        load = world.app.session.store.load_statuses

        async def count(queue: str, limit: int) -> Any:
            nonlocal rows_asked
            rows_asked += 1
            if rows_asked == 3:
                beats.set()
            return await load(queue, limit)

        monkeypatch.setattr(world.app.session.store, "load_statuses", count)
        asked = asyncio.create_task(world.http.get("/v1/replies/desk/events"))
        async with asyncio.timeout(60):
            await beats.wait()
            world.server.shutdown.begin()
            text = (await asked).text
        assert text.startswith("retry: 1000")
        assert text.count(": heartbeat") >= 2


async def test_a_stream_ends_without_an_incident_when_the_store_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_shop() as world:

        async def refuse(queue: str, limit: int) -> Any:
            raise StoreError("the store is away")

        monkeypatch.setattr(world.app.session.store, "load_statuses", refuse)
        answer = await world.http.get("/v1/replies/desk/events")
        assert (answer.status_code, answer.text) == (200, "retry: 1000\n\n")
        assert "incident" not in caplog.text


@pytest.mark.parametrize("given", ["x", "1-", "-1", "5-1", "1-2000", "1,,2", "1;2", "9" * 30])
async def test_an_id_that_is_none_of_ours_is_refused(given: str) -> None:
    async with open_shop() as world:
        answer = await world.http.get("/v1/replies/desk/events", headers={"Last-Event-ID": given})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")


@given(st.sets(st.integers(1, 60)))
def test_runs_of_numbers_come_back_as_they_were(numbers: set[int]) -> None:
    if numbers:
        assert read_runs(format_runs(numbers), 100) == sorted(numbers)
        with pytest.raises(Problem):
            read_runs(format_runs(numbers), len(numbers) - 1)
