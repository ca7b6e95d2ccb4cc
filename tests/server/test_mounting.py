"""The HTTP API inside a user's own FastAPI or Starlette."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from arriero import Agent, App, Attempt, InvalidInput
from arriero.client.remote_agents import RemoteAgents, RemoteReport
from arriero.server import Caller, mount
from arriero.server.routing import refuse_ungated_routes


def build(kind: str, shop: App, **options: Any) -> FastAPI | Starlette:
    @asynccontextmanager
    async def lifespan(web: object) -> AsyncIterator[None]:
        async with shop.running():
            yield

    api = mount(shop, **options)
    refuse_ungated_routes(api.routes)
    if kind == "starlette":
        return Starlette(routes=[Mount("/arriero", app=api)], lifespan=lifespan)
    web = FastAPI(lifespan=lifespan)
    web.mount("/arriero", api)
    return web


@asynccontextmanager
async def reach(web: FastAPI | Starlette) -> AsyncIterator[httpx2.AsyncClient]:
    async with web.router.lifespan_context(web):
        transport = httpx2.ASGITransport(app=web)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost/arriero") as http:
            yield http


@pytest.mark.parametrize("kind", ["fastapi", "starlette"])
async def test_it_works_under_a_prefix_with_tokens_of_the_store(kind: str) -> None:
    shop = App("shop", store="memory://")
    async with reach(build(kind, shop)) as http:
        assert (await http.get("/v1/health/ready")).json() == {"status": "ready"}
        assert (await http.get("/v1/tasks/a%2Fb")).status_code == 401
        made = await shop.tokens.create("ci", scopes=["admin"], by="ana")
        http.headers["Authorization"] = f"Bearer {made.token}"
        answer = await http.get("/v1/tasks/a%2Fb%3Acancel")
        assert answer.status_code == 404
        assert "a/b:cancel" in answer.json()["detail"]
        revoked = await http.post(f"/v1/tokens/{made.about.id}:revoke", json={"reason": "lost"})
        assert revoked.json()["revoked_by"] == "ci"


async def test_the_users_own_function_says_who_acts() -> None:
    async def authenticate(request: Request) -> Caller | None:
        name = request.headers.get("x-session", "")
        return Caller(name, frozenset({"admin"})) if name != "nobody" else None

    shop = App("shop", store="memory://")
    async with reach(build("fastapi", shop, authenticate=authenticate)) as http:
        body = {"name": "ci", "scopes": ["read"]}
        made = await http.post("/v1/tokens", json=body, headers={"X-Session": "ana"})
        assert made.json()["about"]["created_by"] == "ana"
        for name in ("nobody", "", " ", "a\xadna"):
            refused = await http.post("/v1/tokens", json=body, headers={"X-Session": name.encode("latin-1")})
            assert refused.status_code == 401
        assert "U+00AD SOFT HYPHEN, which cannot be seen" in refused.json()["detail"]
        evil = {"X-Session": "ana", "Origin": "https://evil.test"}
        assert (await http.post("/v1/tokens", json=body, headers=evil)).status_code == 403


async def test_only_names_that_were_given_are_answered() -> None:
    shop = App("shop", store="memory://")
    async with reach(build("starlette", shop, hosts=["Shop.example.com"])) as http:
        for host, status in (("shop.example.com", 200), ("localhost", 200), ("evil.test", 421)):
            assert (await http.get("/v1/health/live", headers={"Host": host})).status_code == status


async def test_before_the_lifespan_opens_the_app_it_is_not_open() -> None:
    web = build("starlette", App("shop", store="memory://"))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=web), base_url="http://localhost/arriero") as http:
        assert (await http.get("/v1/tokens", headers={"Authorization": "Bearer x"})).json()["code"] == "not-open"
        assert (await http.get("/v1/health/live")).status_code == 200
        assert (await http.get("/v1/health/ready")).status_code == 503


async def test_a_program_that_mounts_the_api_gives_out_requests_of_agents_with_the_role_http() -> None:
    carrier = Agent("carrier")

    @carrier.step(remote=True)
    def book(attempt: Attempt, parcel: str) -> str: ...  # type: ignore[empty-body]

    app = App("shop", agents=[carrier], store="memory://")
    async with app.running(roles=["scheduler", "agents", "supervisor", "http"]):
        await app.submit(book("P-7"), task_id="P-7")
        agents = RemoteAgents(app.session)
        async with agents.taking("carrier", 1, 10) as requests:
            (request,) = requests
        result = msgspec.Raw(b'"B-1"')
        report = RemoteReport(task=request.task, capability=request.capability, status="succeeded", result=result)
        await agents.report("carrier", report)
        assert await app.task("P-7").result(timeout=60) == "B-1"


@pytest.mark.parametrize(
    "origin", ["*", "null", "desk.example.com", "https://desk.example.com/", "https://*.example.com"]
)
def test_any_page_and_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(InvalidInput, match="origins are .*(any page: each could act|without a path)"):
        mount(App("shop"), origins=[origin])
