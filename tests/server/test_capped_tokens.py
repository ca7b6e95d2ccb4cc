"""A token with a cap on its open tasks, over HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from server_shop import Order, ShopApp

from arriero import InvalidInput
from arriero.server.application import build_application
from arriero.server.authentication import TokenAuthenticator

LAMP = {"workflow": "fulfil", "arguments": {"order": {"item": "lamp"}}}


class Callers:
    """Callers of one shop."""

    def __init__(self, shop: ShopApp) -> None:
        self.app = shop.app
        self.shop = shop
        self._transport = httpx2.ASGITransport(app=build_application(shop.app, TokenAuthenticator(shop.app.session)))

    async def call(self, method: str, path: str, token: str, **options: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(transport=self._transport, base_url="http://localhost", headers=headers) as http:
            return await http.request(method, path, **options)

    async def make(self, *, apps: tuple[str, ...] = (), cap: int | None = 2) -> str:
        created = await self.app.tokens.create("partner", scopes=["submit"], by="ana", apps=apps, open_tasks_max=cap)
        assert created.about.open_tasks_max == cap
        return created.token

    async def submit(self, token: str, task_id: str) -> httpx2.Response:
        return await self.call("POST", "/v1/tasks", token, json={**LAMP, "id": task_id})


@asynccontextmanager
async def callers() -> AsyncIterator[Callers]:
    shop = ShopApp()
    async with shop.app:
        yield Callers(shop)


@pytest.mark.parametrize("apps", [(), ("shop",)])
async def test_a_token_that_has_as_many_open_tasks_as_its_cap_is_answered_429_and_others_are_not(
    apps: tuple[str, ...],
) -> None:
    async with callers() as world:
        token, other = await world.make(apps=apps), await world.make(cap=None)
        assert [(await world.submit(token, one)).status_code for one in ("a", "b")] == [201, 201]
        refused = await world.submit(token, "c")
        assert (refused.status_code, refused.json()["code"]) == (429, "too-many-open-tasks")
        assert refused.headers["retry-after"] == "10"
        assert "its open_tasks_max is 2" in refused.json()["detail"]
        assert (await world.submit(token, "a")).status_code == 200
        assert (await world.submit(other, "c")).status_code == 201
        await world.app.submit(world.shop.fulfil(Order("lamp")), task_id="python")
        assert await world.app.tasks().count() == 4
        async with world.app.running(store="memory://"):
            await world.app.task("a").result(timeout=60)
            assert (await world.submit(token, "d")).status_code == 201


async def test_a_batch_and_a_ledger_of_a_capped_token_go_as_far_as_the_cap() -> None:
    async with callers() as world:
        token = await world.make(apps=("shop",))
        batch = {"tasks": [{**LAMP, "id": one} for one in ("a", "b", "c")]}
        found = (await world.call("POST", "/v1/tasks:submit", token, json=batch)).json()
        assert [one["problem"] and one["problem"]["code"] for one in found["results"]] == [
            None,
            None,
            "too-many-open-tasks",
        ]
        body = {"entries": [LAMP]}
        refused = await world.call("PUT", "/v1/ledgers/may", token, json=body)
        assert (refused.status_code, refused.json()["code"]) == (429, "too-many-open-tasks")
        assert refused.headers["retry-after"] == "10"
        assert await world.app.tasks().count() == 2
        aside = await world.call("PUT", "/v1/ledgers/june", token, json=body | {"bad": "set_aside"})
        assert (aside.json()["accepted"], len(aside.json()["set_aside"])) == (0, 1)
        line = '{"workflow": "fulfil", "arguments": {"order": {"item": "lamp"}}}'
        headers = {"Content-Type": "application/x-ndjson"}
        streamed = await world.call("POST", "/v1/ledgers/july:stream", token, content=line, headers=headers)
        assert streamed.status_code == 429


async def test_a_cap_is_shown_with_its_token_and_made_over_http() -> None:
    async with callers() as world:
        admin = (await world.app.tokens.create("root", scopes=["admin"], by="ana")).token
        body = {"name": "partner", "scopes": ["submit"], "open_tasks_max": 7}
        made = await world.call("POST", "/v1/tokens", admin, json=body)
        assert made.json()["about"]["open_tasks_max"] == 7
        listed = (await world.call("GET", "/v1/tokens", admin)).json()["tokens"]
        assert [one["open_tasks_max"] for one in listed] == [None, 7]
        refused = await world.call("POST", "/v1/tokens", admin, json=body | {"open_tasks_max": 0})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid-request")


@pytest.mark.parametrize("cap", [0, -1, 1_000_001, True, 1.5])
async def test_a_cap_that_is_no_fit_number_is_refused(cap: Any) -> None:
    async with callers() as world:
        with pytest.raises(InvalidInput, match="it must be a whole number from 1 to 1,000,000, or none"):
            await world.make(cap=cap)
