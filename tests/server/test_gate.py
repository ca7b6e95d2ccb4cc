"""The gate of the HTTP API: each route has one, and it lets nobody pass who lacks what the route needs."""

import httpx2
import pytest
from fastapi import FastAPI
from server_world import TOKENS, open_server
from starlette.routing import Mount, Route, WebSocketRoute

from arriero.errors import DefinitionError
from arriero.server.routing import refuse_ungated_routes
from arriero.server.scopes import AGENT, ANY_TOKEN, REPLIES, Needs, Scope, describe_missing_scope


@pytest.mark.parametrize(
    ("needs", "held", "missing"),
    [
        (Needs(Scope.READ), {"read"}, ""),
        (Needs(Scope.READ), {"operate", "submit", "read-payloads", "agent:bank"}, "read"),
        (Needs(Scope.ADMIN), {"operate"}, "admin"),
        (Needs(Scope.OPERATE), {"admin"}, ""),
        (Needs(Scope.OPERATE, also=Scope.SUBMIT), {"operate"}, "submit"),
        (Needs(Scope.OPERATE, also=Scope.SUBMIT), {"submit"}, "operate"),
        (Needs(Scope.OPERATE, also=Scope.SUBMIT), {"submit", "operate"}, ""),
        (AGENT, {"agent:bank"}, ""),
        (AGENT, {"agent:*"}, ""),
        (AGENT, {"agent:ban", "agent:banks", "operate"}, "agent:bank"),
        (REPLIES, {"replies:bank"}, ""),
        (REPLIES, {"replies:*"}, ""),
        (REPLIES, {"replies:ban", "replies:banks", "agent:bank", "agent:*", "submit"}, "replies:bank"),
        (AGENT, {"replies:bank", "replies:*"}, "agent:bank"),
        (ANY_TOKEN, set(), ""),
        (Needs(public="liveness"), set(), ""),
    ],
)
def test_a_route_needs_its_scope_and_no_other_but_admin_replaces_it(needs: Needs, held: set[str], missing: str) -> None:
    assert describe_missing_scope(needs, frozenset(held), "bank") == missing


@pytest.mark.parametrize(
    "route",
    [
        Route("/v1/open", lambda request: None),
        WebSocketRoute("/v1/socket", lambda socket: None),
        Mount("/files", app=FastAPI()),
    ],
    ids=["route", "websocket", "mount"],
)
async def test_nothing_is_served_beside_a_route_without_a_gate(route: Route) -> None:
    async with open_server() as world:
        routes = [*world.server.routes, route]
        with pytest.raises(DefinitionError, match="has no gate"):
            refuse_ungated_routes(routes)


async def test_head_is_answered_like_get_by_every_route_but_a_stream_and_passes_the_same_gate() -> None:
    async with open_server() as world:
        streams = []
        for route in world.server.routes:
            operation = route.operation  # type: ignore[attr-defined]
            if operation.method != "GET":
                continue
            path = operation.path.replace("{task_id}", "t-1").replace("{token_id}", "0011")
            known, unknown = await world.http.head(path), await world.http.head(path, headers={"Authorization": ""})
            if known.status_code == 405:
                assert known.headers["allow"] == "GET"
                streams.append(path)
                continue
            assert known.status_code == (await world.http.get(path)).status_code, path
            refused = 303 if operation.is_page else 401  # a page leads to the form to sign in
            assert unknown.status_code == (known.status_code if operation.needs.public else refused), path
        assert streams == ["/v1/tasks/t-1/changes", "/v1/replies/{queue}/events", "/live/tasks/t-1", "/live"]


async def test_every_route_refuses_a_caller_without_a_token() -> None:
    async with open_server() as world:
        for route in world.server.routes:
            operation = route.operation  # type: ignore[attr-defined]
            if operation.needs.public:
                continue
            path = operation.path.replace("{task_id}", "t-1").replace("{token_id}", "0011")
            answer = await world.http.request(operation.method, path, headers={"Authorization": ""})
            if operation.is_page:
                assert answer.status_code == 303, operation.path
                assert answer.headers["location"].startswith("/sign-in?next=")
                continue
            assert answer.status_code == 401, operation.path
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_caller_without_the_scope_is_told_which_one_is_missing() -> None:
    async with open_server() as world:
        answer = await world.http.get("/v1/tasks/t-1", headers={"Authorization": f"Bearer {TOKENS['submit']}"})
        assert answer.status_code == 403
        assert answer.json()["code"] == "forbidden"
        assert answer.json()["scope"] == "read"


async def test_an_unknown_task_is_a_problem_that_names_it() -> None:
    async with open_server() as world:
        answer: httpx2.Response = await world.http.get("/v1/tasks/no%2Fsuch")
        assert answer.status_code == 404
        assert answer.json()["type"] == "urn:arriero:problem:task-unknown"
        assert "no/such" in answer.json()["detail"]


async def test_an_app_that_is_not_open_is_a_problem_and_no_failure() -> None:
    async with open_server(opened=False) as world:
        answer = await world.http.get("/v1/tasks/t-1")
        assert answer.status_code == 503
        assert answer.json()["code"] == "not-open"
