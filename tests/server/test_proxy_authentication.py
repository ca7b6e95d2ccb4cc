"""Callers whom a proxy names: whom to believe, and what a header may say."""

import pytest
from starlette.requests import Request

from arriero.server.authentication import ProxyAuthenticator
from arriero.server.calls import Caller
from arriero.server.problems import Problem

USER = (b"x-user", b"ana")
GROUPS = (b"x-scopes", b"read, operate")


class OneToken:
    """Knows the token ``good``."""

    async def authenticate(self, request: Request) -> Caller:
        from arriero.server.problems import build_credential_problem

        if request.headers["authorization"] != "Bearer good":
            raise build_credential_problem("the token is unknown")
        return Caller("holder", frozenset({"submit"}), "0011")


async def enter(
    *headers: tuple[bytes, bytes], peer: str | None = "127.0.0.1", scopes_header: str = ""
) -> tuple[str, set[str]] | None:
    authenticator = ProxyAuthenticator(
        "x-user",
        addresses=["127.0.0.1", "10.1.0.0/24", "::1"],
        scopes=["read"],
        scopes_header=scopes_header,
        tokens=OneToken(),
    )
    client = None if peer is None else (peer, 4711)
    request = Request({"type": "http", "headers": list(headers), "client": client})
    try:
        caller = await authenticator.authenticate(request)
    except Problem as problem:
        assert problem.kind.status == 401
        return None
    return caller.name, set(caller.scopes)


@pytest.mark.parametrize("peer", ["127.0.0.1", "::ffff:127.0.0.1", "10.1.0.9", "::1", None, ""])
async def test_a_proxy_is_believed(peer: str | None) -> None:
    assert await enter(USER, peer=peer) == ("ana", {"read"})


@pytest.mark.parametrize("peer", ["10.1.1.9", "127.0.0.2", "::2", "proxy.example.com", "::ffff:10.1.1.9"])
async def test_nobody_else_is_believed_nor_answered(peer: str) -> None:
    assert await enter(USER, peer=peer) is None
    assert await enter((b"authorization", b"Bearer good"), peer=peer) is None


async def test_an_address_that_is_told_in_a_header_is_not_the_peer_s() -> None:
    assert await enter(USER, (b"x-forwarded-for", b"127.0.0.1"), peer="10.9.9.9") is None


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (USER, USER),
        (USER, (b"x-user", b"root")),
        ((b"x-user", b""),),
        ((b"x-user", b" "),),
        ((b"x-user", b"\xff"),),
        ((b"x-user", b"a" * 300),),
        ((b"x-user", b"a\x01b"),),
        ((b"x-user", "a\u200bna".encode()),),
        ((b"x-user", "\u0430na".encode()),),
    ],
)
async def test_a_header_that_names_nobody_or_two_lets_nobody_enter(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    assert await enter(*headers) is None


async def test_a_name_may_be_of_any_language() -> None:
    assert await enter((b"x-user", "José".encode())) == ("José", {"read"})


async def test_scopes_come_from_their_header_alone_once_it_is_named() -> None:
    assert await enter(USER, GROUPS, scopes_header="x-scopes") == ("ana", {"read", "operate"})
    assert await enter(USER, scopes_header="x-scopes") == ("ana", set())
    assert await enter(USER, GROUPS, GROUPS, scopes_header="x-scopes") is None
    assert await enter(USER, GROUPS) == ("ana", {"read"})


async def test_a_token_decides_where_there_is_one_and_the_header_helps_no_bad_one() -> None:
    assert await enter(USER, (b"authorization", b"Bearer good")) == ("holder", {"submit"})
    assert await enter(USER, (b"authorization", b"Bearer bad")) is None
