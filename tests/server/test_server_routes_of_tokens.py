"""Tokens over HTTP, health, and what the gate does while a request is under way."""

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest
from server_world import open_server

from arriero import App
from arriero.errors import StoreError
from arriero.events import read_events
from arriero.server.application import build_application
from arriero.server.authentication import TokenAuthenticator
from arriero.server.calls import Call
from arriero.server.problems import STOPPING
from arriero.server.routing import GateLimits, RouteGroup, add_operations
from arriero.server.scopes import Needs, Scope


async def test_tokens_are_made_listed_and_revoked_by_an_admin_and_the_history_names_the_caller() -> None:
    async with open_server() as world:
        made = await world.http.post("/v1/tokens", json={"name": "ci", "scopes": ["read"], "expires_in": 60})
        assert made.status_code == 201
        about = made.json()["about"]
        assert (about["created_by"], about["scopes"]) == ("caller-admin", ["read"])
        secret = made.json()["token"].rpartition("_")[2]
        listed = await world.http.get("/v1/tokens")
        assert [one["id"] for one in listed.json()["tokens"]] == [about["id"]]
        assert secret not in listed.text
        gone = await world.http.post(f"/v1/tokens/{about['id']}:revoke", json={"reason": "lost"})
        assert (gone.json()["state"], gone.json()["revoked_by"]) == ("revoked", "caller-admin")
        unknown = await world.http.post("/v1/tokens/0011:revoke", json={"reason": "lost"})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "token-unknown")
        rows = [row async for row in world.app.session.store.history(0)]
        acts = [(row.actor, event.type) for row in rows for event in read_events(row.events)]
        assert acts == [("caller-admin", "token.created"), ("caller-admin", "token.revoked")]
        assert not [row for row in rows if secret.encode() in bytes(row.events)]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"name": "ci", "scopes": ["reed"]}', 422),
        (b'{"name": "", "scopes": ["read"]}', 422),
        (b'{"name": "ci", "scopes": ["read"], "by": "eve"}', 400),
        (b'{"name": "ci", "name": "root", "scopes": ["read"]}', 400),
        (b'{"name": "ci", "scopes": ["read"], "expires_in": NaN}', 400),
        (b'{"name": "c\\u0000i", "scopes": ["read"]}', 400),
        (b'{"name": "\\ud800", "scopes": ["read"]}', 400),
        (b"[" * 100_000, 400),
        (b'{"name": ' + b"[" * 200 + b"]" * 200 + b"}", 400),
        (b'{"expires_in": ' + b"9" * 10_000 + b"}", 400),
        (b"\xff\xfe", 400),
        (b"", 400),
        (b'{"name": "ci\\r\\nX-Evil: 1", "scopes": ["read"]}', 422),
    ],
)
async def test_a_doubtful_body_makes_no_token(body: bytes, status: int) -> None:
    async with open_server() as world:
        answer = await world.http.post("/v1/tokens", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == status, answer.text
        assert await world.app.tokens.list() == []


async def test_a_body_that_does_not_end_is_given_up() -> None:
    async def drip() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with open_server(limits=GateLimits(body_seconds=0.01)) as world:
        answer = await world.http.post("/v1/tokens", content=drip(), headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (408, "body-too-slow")
        assert answer.headers["connection"] == "close"


async def test_a_server_is_live_without_a_store_and_ready_only_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_server() as world:
        http, readiness = world.http, world.server.readiness  # type: ignore[attr-defined]
        http.headers.pop("authorization")
        answer = await http.get("/v1/health/ready")
        assert (answer.status_code, answer.json()) == (200, {"status": "ready"})

        async def find_lease(name: str) -> None:
            asked.append(name)
            raise StoreError("postgresql://user@secret-host: gone")

        asked: list[str] = []
        monkeypatch.setattr(world.app.session.store, "find_lease", find_lease)
        readiness._asked_at = None
        answers = [await http.get("/v1/health/ready") for _ in range(3)]
        assert [(answer.status_code, answer.json()) for answer in answers] == [(503, {"status": "not-ready"})] * 3
        assert len(asked) == 1  # remembered for a second
        assert (await http.get("/v1/health/live")).json() == {"status": "live"}


async def test_a_server_that_is_about_to_end_or_whose_app_is_not_open_is_not_ready() -> None:
    async with open_server(opened=False) as world:
        assert (await world.http.get("/v1/health/ready")).status_code == 503
    async with open_server() as world:
        world.server.shutdown.begin()  # type: ignore[attr-defined]
        assert (await world.http.get("/v1/health/ready")).status_code == 503
        assert (await world.http.get("/v1/health/live")).status_code == 200


# --- while a request is under way
class Poll:
    """A server with a route that waits for news, and one that acts meanwhile."""

    def __init__(self) -> None:
        self.app = App("shop", store="memory://")
        self.begun, self.news = asyncio.Event(), asyncio.Event()
        group = RouteGroup("poll")

        @group.operation("GET", "/v1/poll", Needs(Scope.READ), summary="Waits for news.")
        async def poll(call: Call) -> None:
            self.begun.set()
            await self.news.wait()

        @group.operation("POST", "/v1/act", Needs(Scope.READ), summary="Acts, and takes its time.")
        async def act(call: Call) -> None:
            self.begun.set()
            await self.news.wait()

        self.server = build_application(self.app, TokenAuthenticator(self.app.session))
        add_operations(self.server, self.server.gate, group)


async def ask(poll: Poll, method: str, path: str, token: str) -> httpx2.Response:
    transport = httpx2.ASGITransport(app=poll.server)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        return await http.request(method, path, headers={"Authorization": f"Bearer {token}"})


async def test_a_token_that_is_revoked_in_the_middle_of_a_long_poll_is_told_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    poll = Poll()
    async with poll.app as app:
        made = await app.tokens.create("ci", scopes=["read"], by="ana")
        asking = asyncio.create_task(ask(poll, "GET", "/v1/poll", made.token))
        await poll.begun.wait()
        await app.tokens.revoke(made.about.id, by="bob", reason="lost")
        clock = app.session.ports.clock
        monkeypatch.setattr(clock, "monotonic", lambda before=clock.monotonic: before() + 2.0)
        poll.news.set()
        assert (await asking).status_code == 401


async def test_what_waits_for_news_ends_at_once_and_what_acts_ends_by_itself() -> None:
    poll = Poll()
    async with poll.app as app:
        made = await app.tokens.create("ci", scopes=["read"], by="ana")
        asking = asyncio.create_task(ask(poll, "GET", "/v1/poll", made.token))
        await poll.begun.wait()
        poll.begun.clear()
        acting = asyncio.create_task(ask(poll, "POST", "/v1/act", made.token))
        await poll.begun.wait()
        poll.server.shutdown.begin()
        refused = await asking
        assert (refused.status_code, refused.json()["code"]) == (503, STOPPING.code)
        assert not acting.done()
        poll.news.set()
        assert (await acting).status_code == 200


async def test_a_store_that_is_gone_is_unavailable_and_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    poll = Poll()
    async with poll.app as app:
        made = await app.tokens.create("ci", scopes=["read"], by="ana")

        async def find_tokens(token_ids: list[str]) -> None:
            raise StoreError("gone")

        monkeypatch.setattr(app.session.store, "find_tokens", find_tokens)
        answer = await ask(poll, "GET", "/v1/poll", made.token)
        assert (answer.status_code, answer.json()["code"]) == (503, "store-unavailable")
        assert answer.headers["retry-after"] == "1"
