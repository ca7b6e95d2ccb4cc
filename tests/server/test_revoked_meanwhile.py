"""A token that is revoked while its request is under way: what the request had not done is not done, and nothing more is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module

import httpx2
import pytest
from server_shop import ShopApp
from server_world import FixedTokens
from starlette.requests import Request

from arriero.server import routing
from arriero.server.application import build_application
from arriero.server.calls import Caller
from arriero.server.problems import build_credential_problem

ledgers = import_module("arriero.server.routes.ledgers")  # the package has the group under this name
LINE = b'{"workflow": "fulfil", "arguments": {"order": {"item": "lamp"}}}\n'


class RevocableTokens(FixedTokens):
    """The tokens of tests, until they are revoked."""

    is_revoked = False

    async def authenticate(self, request: Request) -> Caller:
        if self.is_revoked:
            raise build_credential_problem("the token is revoked")
        return await super().authenticate(request)


class RevocationWorld:
    """A shop that runs, and whose tokens can be revoked."""

    def __init__(self, shop: ShopApp) -> None:
        self.shop = shop
        self.tokens = RevocableTokens()
        self.server = build_application(shop.app, self.tokens)
        self.http = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=self.server, raise_app_exceptions=False),
            base_url="http://localhost",
            headers={"Authorization": "Bearer token-of-admin"},
        )


@pytest.fixture(autouse=True)
def let_each_request_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "CONFIRM_SECONDS", 0.0)
    monkeypatch.setattr(ledgers, "CONFIRM_SECONDS", 0.0)


@asynccontextmanager
async def open_world() -> AsyncIterator[RevocationWorld]:
    world = RevocationWorld(ShopApp())
    async with world.shop.app.running(store="memory://"), world.http:
        yield world


async def test_who_waits_for_the_end_of_a_submission_is_not_told_it() -> None:
    body = {"workflow": "wait_long", "id": "t-1"}
    async with open_world() as world:
        waiting = asyncio.create_task(world.http.post("/v1/tasks", json=body, headers={"Prefer": "wait=30"}))
        while await world.shop.app.tasks().count() == 0:
            await asyncio.sleep(0)
        world.tokens.is_revoked = True
        await world.shop.app.task("t-1").cancel(by="ana", reason="it is enough")
        answer = await waiting
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        assert "end" not in answer.json()


async def test_a_body_that_was_not_complete_does_nothing() -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b'{"workflow": "wait_long"'
        world.tokens.is_revoked = True
        yield b"}"

    async with open_world() as world:
        answer = await world.http.post("/v1/tasks", content=parts(), headers={"Content-Type": "application/json"})
        assert answer.status_code == 401
        assert await world.shop.app.tasks().count() == 0


async def test_a_ledger_that_was_not_complete_is_not_accepted() -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield LINE * 2
        world.tokens.is_revoked = True
        yield LINE

    headers = {"Content-Type": ledgers.NDJSON}
    async with open_world() as world:
        answer = await world.http.post("/v1/ledgers/l-1:stream", content=parts(), headers=headers)
        assert answer.status_code == 401
        assert await world.shop.app.tasks().count() == 0
