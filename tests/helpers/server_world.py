"""A server of an App on the memory store, reached without a socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx2
from starlette.requests import Request

from arriero import App
from arriero.model.tokens import Reach
from arriero.server.application import ApiServer, build_application
from arriero.server.calls import Caller
from arriero.server.problems import UNAUTHENTICATED, Problem

# A token of each scope; that of admin passes every gate.
TOKENS = {
    name: f"token-of-{name}"
    for name in ("submit", "read", "read-payloads", "operate", "admin", "agent:bank", "replies:bank", "replies:desk")
}
NARROWED = "token-of-narrowed"  # it has all scopes, of a workflow that no test submits to


class FixedTokens:
    """Knows the callers of ``TOKENS``, and the one of ``NARROWED``."""

    async def authenticate(self, request: Request) -> Caller:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        for name, token in TOKENS.items():
            if token == given:
                return Caller(f"caller-{name}", frozenset({name}))
        if given == NARROWED:
            return Caller("caller-narrowed", frozenset({"admin"}), reach=Reach(workflows=("elsewhere",)))
        raise Problem(UNAUTHENTICATED, "no token", headers={"WWW-Authenticate": 'Bearer realm="arriero"'})


class ServerWorld(NamedTuple):
    """An App, its server, and a client of HTTP that holds the token of admin."""

    app: App
    server: ApiServer
    http: httpx2.AsyncClient


@asynccontextmanager
async def open_server(app: App | None = None, *, opened: bool = True, **options: Any) -> AsyncIterator[ServerWorld]:
    """Serve an App. ``opened``: False leaves it closed. ``options``: of ``build_application``."""
    app = App("shop", store="memory://") if app is None else app
    server = build_application(app, FixedTokens(), **options)
    transport = httpx2.ASGITransport(app=server, raise_app_exceptions=False)
    headers = {"Authorization": f"Bearer {TOKENS['admin']}"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
        if not opened:
            yield ServerWorld(app, server, http)
            return
        async with app:
            yield ServerWorld(app, server, http)
