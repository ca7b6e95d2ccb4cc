"""Requests that nobody should send: each is refused with a problem document, and nothing of it is kept."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from server_shop import ShopApp, ShopWorld, open_shop
from server_world import TOKENS, FixedTokens
from starlette.applications import Starlette
from starlette.routing import Mount

from arriero.server.application import build_application
from arriero.server.parameters import write_id
from arriero.system.rate_limited_log import LINES_MAX

LAMP: dict[str, Any] = {"workflow": "fulfil", "arguments": {"order": {"item": "lamp"}}}
HOSTILE_IDS = [
    "a/b",
    "..",
    ".",
    "../../etc/passwd",
    "<script>alert(1)</script>",
    "\u202eabc",
    "a b",
    "%2F",
    "a:cancel",
    "a?x=1#y",
    "ü" * 255,
    "😀",
    "'; DROP TABLE task; --",
]
IDS_THAT_ARE_NONE = ["", "x" * 10_000, "a\0b", "a\nb", "\x7f", "x" * 256]


@pytest.mark.parametrize("task_id", HOSTILE_IDS)
async def test_an_id_of_any_signs_is_kept_as_it_is_and_found_under_its_location(task_id: str) -> None:
    async with open_shop() as world:
        made = await world.http.post("/v1/tasks", json={**LAMP, "id": task_id})
        assert made.status_code == 201
        shown = await world.http.get(made.headers["location"])
        assert shown.json()["id"] == task_id
        paused = await world.http.post(f"/v1/tasks/{write_id(task_id)}:pause", json={"reason": "why"})
        assert paused.json()["task"]["paused"] is True


@pytest.mark.parametrize("task_id", IDS_THAT_ARE_NONE, ids=ascii)
async def test_what_is_no_id_is_refused_in_the_body_and_in_the_path(task_id: str) -> None:
    async with open_shop() as world:
        refused = await world.http.post("/v1/tasks", json={**LAMP, "id": task_id})
        assert refused.status_code in (400, 422)
        assert refused.headers["content-type"] == "application/problem+json"
        for path in ("", "/history", "/children", "/explain", "/result", ":pause"):
            method = "POST" if path == ":pause" else "GET"
            body = {"reason": "why"} if path == ":pause" else None
            answer = await world.http.request(method, f"/v1/tasks/{write_id(task_id)}{path}", json=body)
            assert 400 <= answer.status_code < 500
            assert answer.headers["content-type"] == "application/problem+json"
        assert await world.app.tasks().count() == 0


async def test_a_body_of_100_mb_is_refused_before_it_is_read() -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 1_000_000

    async with open_shop() as world:
        headers = {"Content-Type": "application/json", "Content-Length": str(100_000_000)}
        declared = await world.http.post("/v1/tasks", content=parts(), headers=headers)
        assert (declared.status_code, declared.json()["code"]) == (413, "too-large")
        undeclared = await world.http.post("/v1/tasks", content=parts(), headers={"Content-Type": "application/json"})
        assert (undeclared.status_code, undeclared.json()["code"]) == (413, "too-large")


@pytest.mark.parametrize("media", ["text/plain", "application/xml", "", "application/x-www-form-urlencoded"])
async def test_a_body_of_another_media_type_is_refused(media: str) -> None:
    async with open_shop() as world:
        answer = await world.http.post("/v1/tasks", content=b"{}", headers={"Content-Type": media})
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported-media-type")


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PUT", "PATCH", "DELETE", "BREW"])
async def test_a_method_that_a_path_does_not_take_is_told_which_it_takes(method: str) -> None:
    async with open_shop() as world:
        for path, allow in (
            ("/v1/tasks", "GET, HEAD, POST"),
            ("/v1/tasks/x", "GET, HEAD"),
            ("/v1/tasks/x:cancel", "POST"),
        ):
            answer = await world.http.request(method, path)
            assert answer.status_code == 405
            assert answer.headers["allow"] == allow


@pytest.mark.parametrize(
    "path", ["/nothing", "/v1", "/v1/", "/v1/tasks/", "/v1/tasks/a/b", "/v2/tasks", "/docs", "/openapi.json"]
)
async def test_a_path_that_is_none_is_a_problem_document(path: str) -> None:
    async with open_shop() as world:
        answer = await world.http.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


async def test_no_answer_repeats_a_secret_of_a_header() -> None:
    async with open_shop() as world:
        answer = await world.http.get("/v1/replies/desk/events", headers={"Last-Event-ID": "secret"})
        assert answer.status_code == 422
        assert "secret" not in answer.text


async def test_a_flood_of_requests_without_a_token_writes_few_lines_and_a_caller_with_one_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "arriero.server.access")
    async with open_shop() as world:
        for _ in range(50):
            answer = await world.http.get("/v1/tasks", headers={"Authorization": "Bearer nobody"})
            assert answer.status_code == 401
        assert len(caplog.records) == LINES_MAX
        for _ in range(2 * LINES_MAX):
            await world.http.get("/v1/tasks/unknown")
        assert len(caplog.records) == 3 * LINES_MAX


class CutOff:
    """Sends a request and is gone before the answer. ``is_complete``: False: before the whole body has come, too."""

    def __init__(
        self,
        world: ShopWorld,
        path: str,
        body: bytes,
        *,
        media: bytes = b"application/json",
        is_complete: bool = True,
    ) -> None:
        self._scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [
                (b"host", b"localhost"),
                (b"content-type", media),
                (b"authorization", f"Bearer {TOKENS['admin']}".encode()),
            ],
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
        }
        self._world = world
        self._is_complete = is_complete
        self._parts = [{"type": "http.request", "body": body, "more_body": not is_complete}]

    async def _receive(self) -> dict[str, Any]:
        return self._parts.pop(0) if self._parts else {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if self._is_complete:
            raise ConnectionResetError("the caller is gone")

    async def run(self) -> None:
        if not self._is_complete:  # a server lets what is sent to nobody pass
            await self._world.server(self._scope, self._receive, self._send)
            return
        with pytest.raises((ConnectionResetError, BaseExceptionGroup, OSError)):
            await self._world.server(self._scope, self._receive, self._send)


@pytest.mark.parametrize(
    ("path", "media", "body"),
    [
        ("/v1/tasks", b"application/json", b'{"workflow": "wait_long"}'),
        ("/v1/ledgers/l-1:stream", b"application/x-ndjson", b'{"workflow": "wait_long"}\n'),
    ],
)
async def test_a_caller_that_is_gone_before_its_body_has_come_does_nothing_and_is_no_failure_of_ours(
    path: str, media: bytes, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_shop() as world:
        await CutOff(world, path, body, media=media, is_complete=False).run()
        assert await world.app.tasks().count() == 0
        assert "incident" not in caplog.text


async def test_a_length_of_thousands_of_digits_is_too_large_and_no_failure_of_ours() -> None:
    async with open_shop() as world:
        headers = {"Content-Type": "application/json", "Content-Length": "9" * 5_000}
        answer = await world.http.post("/v1/tasks", content=b"{}", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


async def test_a_caller_that_is_gone_in_the_middle_of_a_verb_on_many_learns_later_what_was_done() -> None:
    async with open_shop(running=True) as world:
        for number in range(3):
            body = {"workflow": "inspect_item", "arguments": {"item": "a"}, "id": f"held-{number}"}
            await world.http.post("/v1/tasks", json=body)
            await world.http.get(f"/v1/tasks/held-{number}/result?wait=30")
        why = {"reason": "the books were found"}
        planned = await world.http.post(
            "/v1/tasks:compensate", json={**why, "filter": {"state": "held"}, "dry_run": True}
        )
        plan = planned.json()["plan"]
        await CutOff(world, "/v1/tasks:compensate", f'{{"reason": "{why["reason"]}", "plan": "{plan}"}}'.encode()).run()
        again = (await world.http.post("/v1/tasks:compensate", json={**why, "plan": plan})).json()
        assert (again["done"], again["done_before"]) == ([], ["held-0", "held-1", "held-2"])


async def test_a_caller_that_is_gone_before_the_answer_to_a_submission_finds_the_same_task() -> None:
    async with open_shop() as world:
        body = b'{"workflow": "fulfil", "arguments": {"order": {"item": "lamp"}}, "id": "order-1"}'
        await CutOff(world, "/v1/tasks", body).run()
        again = await world.http.post("/v1/tasks", json={**LAMP, "id": "order-1"})
        assert (again.status_code, again.json()["created"]) == (200, False)


async def test_a_store_that_does_not_answer_is_a_problem_with_a_time_to_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from arriero import StoreError

    async with open_shop() as world:

        async def fail(*arguments: Any, **options: Any) -> Any:
            raise StoreError("the disk is gone")

        monkeypatch.setattr(world.app.session.store, "find", fail)
        answer = await world.http.get("/v1/tasks/x")
        assert (answer.status_code, answer.json()["code"]) == (503, "store-unavailable")
        assert re.fullmatch(r"\d+", answer.headers["retry-after"])


async def test_a_bug_of_ours_shows_its_number_and_nothing_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_shop() as world:

        async def fail(*arguments: Any, **options: Any) -> Any:
            raise RuntimeError("a secret of the server")

        monkeypatch.setattr(world.app.session.store, "find", fail)
        answer = await world.http.get("/v1/tasks/x")
        assert (answer.status_code, answer.json()["code"]) == (500, "internal")
        assert answer.json()["incident"]
        assert "secret" not in answer.text


async def test_many_readers_that_wait_hold_no_submission_up() -> None:
    async with open_shop() as world:
        await world.http.post("/v1/tasks", json={**LAMP, "id": "a"})
        waiting = [asyncio.create_task(world.http.get("/v1/tasks/a/result?wait=20")) for _ in range(20)]
        async with asyncio.timeout(60):
            assert (await world.http.post("/v1/tasks", json={**LAMP, "id": "b"})).status_code == 201
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_an_api_that_is_mounted_names_paths_under_which_it_is_found() -> None:
    shop = ShopApp()
    web = Starlette(routes=[Mount("/arriero", app=build_application(shop.app, FixedTokens()))])
    headers = {"Authorization": f"Bearer {TOKENS['admin']}"}
    transport = httpx2.ASGITransport(app=web)
    async with shop.app, httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
        made = await http.post("/arriero/v1/tasks", json={**LAMP, "id": "a/b:c"})
        assert made.headers["location"] == "/arriero/v1/tasks/a%2Fb%3Ac"
        assert (await http.get(made.headers["location"])).json()["id"] == "a/b:c"
        assert (await http.put("/arriero/v1/tasks/x:cancel")).headers["allow"] == "POST"
        explained = (await http.get(f"{made.headers['location']}/explain")).json()
        path = next(verb["path"] for verb in explained["verbs"] if verb["verb"] == "cancel")
        assert (await http.post(path, json={"reason": "why"})).status_code == 200
        assert (await http.get("/arriero/v1/openapi.json")).json()["servers"] == [{"url": "/arriero"}]
