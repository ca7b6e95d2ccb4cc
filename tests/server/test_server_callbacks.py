"""Callbacks over HTTP: what a service may send, once, and what those learn who should not send it."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import httpx2
import msgspec
import pytest
from server_world import TOKENS, FixedTokens

from arriero import Agent, App, Callback, TaskCompensated, callback, testing, workflow
from arriero.model import TaskState
from arriero.model.signals import VALUE_BYTES_MAX
from arriero.server.application import build_application
from arriero.server.caller_limits import RatePolicy
from arriero.server.routing import GateLimits
from arriero.server.security_middleware import hide_token
from arriero.store.contract import Purge
from arriero.testing import World

NO_CODE = AsyncMock(return_value=None)  # as at a server without the code
bank = Agent("bank")
urls: list[str] = []


@dataclass
class Receipt:
    id: str
    amount: int = 0


@bank.step
async def pay(number: int, done: Callback[Receipt]) -> None:
    urls.append(done.url)


@workflow
async def order(number: int) -> str:
    receipt = callback(Receipt, within=timedelta(hours=1))
    await pay(number, receipt)
    return (await receipt).id


class Service:
    """A world, and a client of HTTP that has no token but that in a URL."""

    def __init__(self, world: World, http: httpx2.AsyncClient) -> None:
        self.world = world
        self.http = http

    async def begin(self, task_id: str = "order-1") -> tuple[Any, str]:
        """A task that has passed its callback on, and the path of it."""
        urls.clear()
        task = await self.world.app.submit(order(1), task_id=task_id)
        await self.world.clock.advance(5)
        return task, urls[-1].removeprefix("https://callbacks.test")

    async def refused(self, path: str, status: int, code: str, because: str = "", value: Any = None) -> str:
        answer = await self.http.post(path, json={"id": "r-9"} if value is None else value)
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem.get("because", "")) == (status, code, because), problem
        assert path.rpartition("/")[2] not in answer.text
        return str(problem["detail"])


@asynccontextmanager
async def serve(**options: Any) -> AsyncIterator[Service]:
    async with testing.running(App("shop", agents=[bank], workflows=[order])) as world:
        server = build_application(world.app, FixedTokens(), **options)
        transport = httpx2.ASGITransport(app=server, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield Service(world, http)


async def test_a_service_completes_a_callback_with_the_url_alone() -> None:
    async with serve() as service:
        task, path = await service.begin()
        answer = await service.http.post(path, json={"id": "r-1", "amount": 5})
        assert (answer.status_code, answer.json()) == (200, {"created": True})
        assert await task.result() == "r-1"


async def test_explain_says_who_is_to_send_what_the_task_waits_for() -> None:
    async with serve() as service:
        await service.begin()
        headers = {"Authorization": f"Bearer {TOKENS['read']}"}
        answer = (await service.http.get("/v1/tasks/order-1/explain", headers=headers)).json()
        assert answer["reasons"][0]["says"] == (
            "it waits for callback receipt, until 2026-01-01 01:00:00Z (in 59 min 54 s); the service that step pay passed its URL"
            " to sends it; `arriero task complete-callback order-1 receipt JSON` sends it"
        )


async def test_the_same_delivery_is_answered_alike_and_another_value_is_refused() -> None:
    async with serve() as service:
        task, path = await service.begin()
        body, key = {"id": "r-1", "amount": 5}, {"Idempotency-Key": "delivery-1"}
        for number in range(2):  # before and after the task has ended
            for headers in {}, key:
                answer = await service.http.post(path, json=body, headers=headers)
                assert (answer.status_code, answer.json()["created"]) == (200, (number, headers) == (0, {}))
            await service.refused(path, 409, "callback-answered", "answered")
            assert await task.result() == "r-1"


async def test_a_sender_is_asked_to_try_again_while_another_value_is_not_read() -> None:
    async with serve() as service:
        task, path = await service.begin()
        await task.pause(by="ana", reason="a release")
        assert (await service.http.post(path, json={"id": "r-1"})).json() == {"created": True}
        await service.refused(path, 503, "callback-busy", "undecided")
        answer = await service.http.post(path, json={"id": "r-9"})
        assert answer.headers["retry-after"] == "10"
        await task.resume(by="ana", reason="released")
        assert await task.result() == "r-1"
        await service.refused(path, 409, "callback-answered", "answered")


async def test_explain_names_the_command_that_completes_a_callback_whose_value_was_set_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("arriero.client.callbacks.check_by_code", NO_CODE)
    async with serve() as service:
        _, path = await service.begin()
        assert (await service.http.post(path, json={"id": 7})).json() == {"created": True}
        await service.world.clock.advance(1)
        headers = {"Authorization": f"Bearer {TOKENS['read']}"}
        reasons = (await service.http.get("/v1/tasks/order-1/explain", headers=headers)).json()["reasons"]
        (says,) = [one["says"] for one in reasons if one["kind"] == "set_aside_signals"]
        assert "; `arriero task complete-callback order-1 'receipt#1' JSON` sends one that fits; " in says


async def test_an_operator_completes_a_callback_in_place_of_its_service() -> None:
    async with serve() as service:
        task, path = await service.begin()
        named = "/v1/tasks/order-1/callbacks/receipt"
        body = {"value": {"id": "r-1"}}
        for scope, status in ("read", 403), ("submit", 403), ("operate", 200):
            headers = {"Authorization": f"Bearer {TOKENS[scope]}"}
            unfit = await service.http.post(named, json={"value": 7}, headers=headers)
            answer = await service.http.post(named, json=body, headers=headers)
            assert (unfit.status_code, answer.status_code) == (422 if status == 200 else 403, status), answer.text
        assert await task.result() == "r-1"
        again = await service.http.post(path, json={"id": "r-1"})
        assert again.json() == {"created": False}
        await service.refused(path, 409, "callback-answered", "answered")
        for name, code in ("/v1/tasks/none/callbacks/receipt", "task-unknown"), (f"{named}s", "invalid-request"):
            refused = await service.http.post(name, json=body, headers=headers)
            assert refused.json()["code"] == code


async def test_the_same_key_is_the_same_delivery_whatever_its_body() -> None:
    async with serve() as service:
        task, path = await service.begin()
        key = {"Idempotency-Key": "delivery-1"}
        first = await service.http.post(path, json={"id": "r-1"}, headers=key)
        again = await service.http.post(path, json={"id": "r-1", "amount": 7}, headers=key)
        assert [one.json()["created"] for one in (first, again)] == [True, False]
        assert await task.result() == "r-1"
        bad = await service.http.post(path, json={"id": "r-1"}, headers={"Idempotency-Key": "x" * 256})
        assert bad.status_code == 422


@pytest.mark.parametrize(
    ("body", "media", "status", "code"),
    [
        (b'{"id":7}', "application/json", 422, "callback-unfit"),
        (b"null", "application/json", 422, "callback-unfit"),
        (b'{"amount":1}', "application/json", 422, "callback-unfit"),
        (b"", "application/json", 400, "invalid-json"),
        (b'{"id":"a","id":"b"}', "application/json", 400, "invalid-json"),
        (b'{"id":"a\\u0000"}', "application/json", 400, "invalid-json"),
        (b'{"id":"\xff"}', "application/json", 400, "invalid-json"),
        (b"[" * 5_000 + b"]" * 5_000, "application/json", 400, "invalid-json"),
        (b"<id/>", "application/xml", 415, "unsupported-media-type"),
        (b'{"id":"' + b"x" * 1_000_000 + b'"}', "application/json", 413, "too-large"),
        (b'{"id":"' + b"x" * VALUE_BYTES_MAX + b'"}', "application/json", 413, "too-large"),
    ],
    ids=lambda value: str(value)[:24],
)
async def test_a_value_that_does_not_fit_changes_nothing(body: bytes, media: str, status: int, code: str) -> None:
    async with serve() as service:
        task, path = await service.begin()
        answer = await service.http.post(path, content=body, headers={"Content-Type": media})
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
        loaded = await service.world.app.session.store.find(task.id)
        assert loaded is not None
        assert (loaded.task.inbox, loaded.signals) == (0, ())
        assert (await service.http.post(path, json={"id": "r-1"})).json() == {"created": True}
        assert await task.result() == "r-1"


async def test_a_largest_value_is_taken() -> None:
    async with serve() as service:
        task, path = await service.begin()
        body = json.dumps({"id": "x" * (VALUE_BYTES_MAX - 10)}, separators=(",", ":"))
        assert len(body) <= VALUE_BYTES_MAX
        answer = await service.http.post(
            path, content=body, headers={"Content-Type": "application/json; charset=utf-8"}
        )
        assert answer.json() == {"created": True}
        assert len(await task.result()) == VALUE_BYTES_MAX - 10


async def test_a_forged_token_learns_nothing() -> None:
    async with serve() as service:
        _, path = await service.begin()
        _, other = await service.begin("order-2")
        prefix, _, token = path.rpartition("/")
        version, said, signature = token.split(".")
        of_other = other.rpartition("/")[2].split(".")
        for forged in (
            "x",
            "%00",
            "1..",
            "." * 200,
            "1." + "A" * 5_000 + ".A",
            f"{version}.{said}.{of_other[2]}",
            f"{version}.{of_other[1]}.{signature}",
            f"2.{said}.{signature}",
            f"{version}.{said}A.{signature}",
            f"{version}.{said}.{signature}=",
        ):
            answer = await service.http.post(f"{prefix}/{forged}", json={"id": "r-1"})
            assert (answer.status_code, answer.json()["code"]) == (404, "callback-unknown"), forged
            assert answer.json()["detail"] == "there is no such callback"
        async with serve() as elsewhere:
            await elsewhere.begin()
            await elsewhere.refused(path, 404, "callback-unknown")


async def test_a_callback_of_a_task_that_is_over_is_gone() -> None:
    async with serve() as service:
        task, path = await service.begin()
        await task.cancel(by="ana", reason="the customer left")
        with pytest.raises(TaskCompensated):
            await task.result()
        await service.refused(path, 410, "callback-closed", "undone")
        await task.resubmit(by="ana", reason="the customer is back")
        await service.world.clock.advance(5)
        await service.refused(path, 410, "callback-closed", "past_life")
        now = urls[-1].removeprefix("https://callbacks.test")
        assert (await service.http.post(now, json={"id": "r-2"})).json() == {"created": True}
        assert await task.result() == "r-2"
        store = service.world.app.session.store
        await service.world.clock.advance(timedelta(days=30))
        await store.purge(Purge(states=tuple(TaskState), ended_before=store.now()), actor="t", limit=9)
        await service.refused(now, 410, "callback-closed", "purged")


async def test_a_callback_of_a_task_that_cannot_be_read_is_to_be_sent_again() -> None:
    async with serve() as service:
        task, path = await service.begin()
        rows: Any = service.world.app.session.store.steps[1]  # type: ignore[attr-defined]  # of the memory store
        whole = dict(rows)
        for number, row in whole.items():
            rows[number] = msgspec.structs.replace(row, fence="?")
        detail = await service.refused(path, 503, "callback-busy", "unreadable")
        assert detail == "the callback is refused: a row of its task cannot be read just now"
        rows.update(whole)
        assert (await service.http.post(path, json={"id": "r-1"})).json() == {"created": True}
        assert await task.result() == "r-1"


async def test_a_late_callback_is_gone() -> None:
    async with serve() as service:
        task, path = await service.begin()
        with pytest.raises(TaskCompensated, match="callback receipt did not come within 1 h"):
            await task.result()
        await service.refused(path, 410, "callback-closed", "undone")


async def test_no_log_shows_a_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serve() as service:
        task, path = await service.begin()
        await service.refused(path, 422, "callback-unfit", "unfit", value=7)
        for method in "GET", "PUT", "DELETE":
            answer = await service.http.request(method, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        await service.http.post(f"{path}/more?token={path}", json={})
        await service.http.post(path, json={"id": "r-1"})
        await service.refused(path, 409, "callback-answered", "answered")
        await task.result()
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("httpx")]
    assert any(line.startswith("POST /v1/callbacks/*** 200") for line in ours)
    assert not [line for line in ours if path.rpartition(".")[2] in line]


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/v1/callbacks/1.a.b", "/v1/callbacks/***"),
        ("/arriero/v1/callbacks/1.a.b/more", "/arriero/v1/callbacks/***"),
        ("/v1/callbacks/", "/v1/callbacks/"),
        ("/v1/tasks/1", "/v1/tasks/1"),
    ],
)
def test_a_path_is_shown_without_its_token(path: str, shown: str) -> None:
    assert hide_token(path) == shown


async def test_the_requests_of_one_task_are_counted_together() -> None:
    async with serve(limits=GateLimits(rate=RatePolicy(0.001, 2))) as service:
        _, path = await service.begin()
        _, other = await service.begin("order-2")
        for _ in range(2):
            await service.refused(path, 422, "callback-unfit", "unfit", value=7)
        await service.refused(path, 429, "too-many-requests")
        assert (await service.http.post(other, json={"id": "r-1"})).json() == {"created": True}
