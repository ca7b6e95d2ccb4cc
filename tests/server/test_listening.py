"""Where a server may listen, as a rule; sockets and certificates that cannot be used."""

import asyncio
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from arriero.errors import InvalidInput
from arriero.server.sockets import (
    ListenOptions,
    describe_address,
    load_certificate,
    open_socket,
    plan_listening,
    refuse_open_without_token,
)
from arriero.system.loopback import is_loopback

TLS = {"tls_cert": "chain.pem", "tls_key": "key.pem"}
PROXY = {"behind_proxy": "x-user"}


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("localhost", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("127.1", False),
        ("2130706433", False),
        ("10.0.0.1", False),
        ("localhost.example.com", False),
        ("LOCALHOST", False),
        ("::ffff:10.0.0.1", False),
    ],
)
def test_only_what_is_surely_this_machine_counts_as_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("options", "is_open", "needs_token", "may_make_token"),
    [
        ({}, False, False, True),
        ({"host": "::1"}, False, False, True),
        (TLS, False, False, True),
        ({"unix_socket": "/run/a.sock"}, False, False, True),
        ({"unix_socket": "/run/a.sock", "host": "0.0.0.0"}, False, False, True),
        (PROXY, False, False, False),
        ({"host": "0.0.0.0", **TLS}, True, True, False),
        ({"host": "shop.example.com", **TLS}, True, True, False),
        ({"host": "0.0.0.0", **PROXY}, True, False, False),
    ],
)
def test_an_open_address_needs_tls_and_a_token_or_a_proxy(
    options: dict[str, Any], is_open: bool, needs_token: bool, may_make_token: bool
) -> None:
    plan = plan_listening(ListenOptions(**options))
    assert (plan.is_open, plan.needs_token, plan.may_make_token) == (is_open, needs_token, may_make_token)
    assert ("localhost" in plan.hosts) is not is_open
    assert ("*" in plan.hosts) is is_open
    if needs_token:
        with pytest.raises(InvalidInput, match="arriero token create"):
            refuse_open_without_token(plan, has_token=False)
        refuse_open_without_token(plan, has_token=True)
    else:
        refuse_open_without_token(plan, has_token=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "shop.example.com", "127.1"])
def test_an_open_address_without_tls_or_proxy_is_refused_with_the_remedy(host: str) -> None:
    for options in (ListenOptions(host=host), ListenOptions(host=host, tls_cert="chain.pem")):
        with pytest.raises(InvalidInput, match="--tls-cert and --tls-key, or name the header of a proxy"):
            plan_listening(options)


def test_names_that_are_given_are_the_only_ones_of_an_open_address() -> None:
    plan = plan_listening(ListenOptions(host="0.0.0.0", hosts=("API.example.com",), **TLS))
    assert plan.hosts == {"api.example.com"}


def test_a_port_that_is_in_use_is_refused() -> None:
    first = open_socket(plan_listening(ListenOptions()))
    with first:
        port = first.getsockname()[1]
        assert describe_address(plan_listening(ListenOptions()), first) == f"http://127.0.0.1:{port}"
        with pytest.raises(InvalidInput, match=f"127.0.0.1:{port} is in use by another program"):
            open_socket(plan_listening(ListenOptions(port=port)))


async def test_an_answer_in_two_parts_does_not_wait_for_an_acknowledgement_between_them() -> None:
    connected: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        connected.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = open_socket(plan_listening(ListenOptions()))
    async with await asyncio.start_server(note, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        assert await connected != 0
        writer.close()


def test_localhost_that_stands_for_another_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("10.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: found)
    with pytest.raises(InvalidInput, match="which others can reach"):
        open_socket(plan_listening(ListenOptions(host="localhost")))


def test_an_address_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidInput, match="192.0.2.1"):
        open_socket(plan_listening(ListenOptions(host="192.0.2.1", **PROXY)))


def test_a_unix_socket_is_for_its_owner_alone_and_replaces_what_a_killed_server_left(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    plan = plan_listening(ListenOptions(unix_socket=str(path)))
    first = open_socket(plan)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(InvalidInput, match="in use by another program"):
        open_socket(plan)
    first.close()
    open_socket(plan).close()
    path.unlink()
    path.write_text("not a socket")
    with pytest.raises(InvalidInput, match="is not a socket"):
        open_socket(plan)
    assert path.read_text() == "not a socket"


@pytest.mark.parametrize("text", [None, "", "no certificate"])
def test_a_certificate_that_cannot_be_used_is_refused(tmp_path: Path, text: str | None) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    if text is not None:
        chain.write_text(text)
        key.write_text(text)
    with pytest.raises(InvalidInput, match="chain.pem"):
        load_certificate(ListenOptions(tls_cert=str(chain), tls_key=str(key)))
    assert load_certificate(ListenOptions()) is None
