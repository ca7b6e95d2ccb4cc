"""Every operation of the OpenAPI document against every scope and every credential that is none: the gate does as the document says."""

import re
from typing import NamedTuple

import httpx2
import msgspec
import pytest
from server_shop import ShopApp, bearer
from server_world import TOKENS, FixedTokens

from arriero import App
from arriero.server import GateLimits
from arriero.server.application import ApiServer, build_application
from arriero.server.authentication import TokenAuthenticator
from arriero.server.caller_limits import RatePolicy
from arriero.server.openapi import build_openapi

PUBLIC = {
    "GET /v1/health/live",
    "GET /v1/health/ready",
    "POST /v1/callbacks/bank",
}  # in the last one, a token is in the path
MANY = GateLimits(rate=RatePolicy(1e6, 1e6), agent_rate=RatePolicy(1e6, 1e6))


class Listed(NamedTuple):
    """An operation of the document. ``path``: one that fits it. ``scope``: None if it needs no token. ``also``: a second scope."""

    method: str
    path: str
    scope: str | None
    also: str | None


def list_operations(server: ApiServer) -> list[Listed]:
    document = msgspec.json.decode(msgspec.json.encode(build_openapi(server.routes)))
    return [
        Listed(
            method.upper(), re.sub(r"\{.*?\}", "bank", path), operation.get("x-scope"), operation.get("x-also-scope")
        )
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


async def ask(server: ApiServer, method: str, path: str, headers: dict[str, str]) -> httpx2.Response:
    transport = httpx2.ASGITransport(app=server, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        return await http.request(method, path, json=None if method == "GET" else {}, headers=headers)


async def test_each_scope_passes_exactly_the_operations_that_the_document_says() -> None:
    shop = ShopApp()
    server = build_application(shop.app, FixedTokens(), limits=MANY)
    operations = list_operations(server)
    assert {f"{one.method} {one.path}" for one in operations if one.scope is None} == PUBLIC
    assert any(one.also for one in operations)
    async with shop.app:
        server.shutdown.begin()  # nothing waits, so streams and polls end at once
        for method, path, scope, also in operations:
            for held in TOKENS:
                answer = await ask(server, method, path, bearer(held))
                wanted = scope and scope.replace("NAME", "bank")
                missing = [one for one in (wanted, also) if one and held not in (one, "admin")]
                is_refused = answer.status_code == 403 and answer.json()["code"] == "forbidden"
                assert is_refused is bool(missing), (method, path, held, answer.text)
                if is_refused:
                    assert answer.json()["scope"] == missing[0]
                assert answer.status_code not in (401, 500), (method, path, held, answer.text)


@pytest.mark.parametrize("kind", ["none", "malformed", "expired", "revoked", "of another store", "mistyped"])
async def test_no_operation_is_open_to_a_credential_that_is_none(kind: str) -> None:
    shop = ShopApp()
    async with shop.app, App("shop", store="memory://") as other:
        token = await _build_credential(shop.app, other, kind)
        server = build_application(shop.app, TokenAuthenticator(shop.app.session), limits=MANY)
        server.shutdown.begin()
        for method, path, scope, _ in list_operations(server):
            answer = await ask(server, method, path, {} if token is None else {"Authorization": f"Bearer {token}"})
            assert (answer.status_code == 401) is (scope is not None), (method, path, answer.text)
            if scope is not None:
                assert answer.json()["code"] == "unauthenticated"
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert token is None or token not in answer.text


async def _build_credential(app: App, other: App, kind: str) -> str | None:
    owner = other if kind == "of another store" else app
    created = await owner.tokens.create(
        "ci", scopes=["admin"], by="ana", expires_in=1e-6 if kind == "expired" else None
    )
    match kind:
        case "none":
            return None
        case "malformed":
            return "admin"
        case "mistyped":
            return created.token[:-1] + ("0" if created.token[-1] != "0" else "1")
        case "revoked":
            await app.tokens.revoke(created.about.id, by="ana", reason="lost")
    return created.token
