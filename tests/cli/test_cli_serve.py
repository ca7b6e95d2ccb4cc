"""`arriero serve` and the role http as processes: who is let in, from where, and the end."""

import json
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cli_calls import APP, Run, arriero, json_lines, order
from server_certificates import write_certificate
from waiting import wait_until

pytestmark = pytest.mark.acceptance


class Served:
    """A server in a process of its own, and requests to it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.address = run.until("ready: ").rpartition(", ")[2]

    def ask(self, path: str = "/v1/tokens", token: str = "", **options: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        verify = options.pop("verify", True)
        uds = self.address.removeprefix("unix:") if self.address.startswith("unix:") else None
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=uds, verify=verify)) as http:
            base = "http://localhost" if uds else self.address
            return http.request(options.pop("method", "GET"), base + path, headers=headers, **options)

    def send(self, text: bytes) -> bytes:
        """All that is answered to a request that asks for the end of its connection."""
        port = int(self.address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(text)
            parts = []
            while part := connection.recv(65_536):
                parts.append(part)
            return b"".join(parts)

    def end(self) -> str:
        """Its log, after it has drained."""
        self.run.signal(signal.SIGTERM)
        code, output, errors = self.run.ended()
        assert code == 0
        assert "drained" in output
        return output + errors


@pytest.fixture
def serve(shop: Path, start: Callable[..., Run]) -> Iterator[Callable[..., Served]]:
    def begin(*options: str) -> Served:
        return Served(start("--port", "0", *options, command=("serve", APP)))

    yield begin


def create(shop: Path, *scopes: str) -> str:
    made = arriero(shop, "token", "create", "ci", "--scope", ",".join(scopes), "--by", "ana")
    assert made.returncode == 0
    return made.stdout.strip()


def test_a_token_lets_in_until_it_is_revoked_and_no_secret_is_in_the_log(
    shop: Path, serve: Callable[..., Served]
) -> None:
    server = serve()
    first = (shop / "arriero.token").read_text().strip()
    token = create(shop, "admin")
    assert server.ask().status_code == 401
    assert server.ask(token=token + "x").status_code == 401
    assert server.ask(token=token).status_code == 200
    made = server.ask(token=first, method="POST", json={"name": "desk", "scopes": ["read"]}).json()
    assert made["about"]["created_by"] == "admin"
    assert server.ask(f"/v1/tokens?token={token}", token=made["token"]).status_code == 403
    view = next(view for view in json_lines(arriero(shop, "token", "list", "--json").stdout) if view["name"] == "ci")
    assert view["last_used_at"] is not None
    assert arriero(shop, "token", "revoke", view["id"], "--reason", "lost", "--by", "bob").returncode == 0
    wait_until(lambda: server.ask(token=token).status_code != 200, "the revocation")
    assert server.ask(token=token).status_code == 401
    log = server.end()
    assert "GET /v1/tokens 200" in log
    for secret in (first, token, made["token"]):
        assert secret.rpartition("_")[2] not in log


def test_a_second_start_makes_no_second_token(shop: Path, serve: Callable[..., Served]) -> None:
    serve().end()
    (shop / "arriero.token").unlink()
    serve().end()
    assert not (shop / "arriero.token").exists()
    assert len(json_lines(arriero(shop, "token", "list", "--json").stdout)) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--host", "0.0.0.0"), "--tls-cert and --tls-key, or name the header of a proxy"),
        (("--host", "::"), "can be reached from other machines"),
        (("--tls-cert", "no.pem", "--tls-key", "no.key"), "no.pem cannot be read: No such file"),
        (("--tls-cert", "no.pem"), "of no use without its key"),
        (("--port", "70000"), "--port is 70000"),
        (("--host", "no.such.name.invalid", "--behind-proxy", "X-User"), "there is no address"),
        (("--proxy-address", "0.0.0.0/0"), "that is any address"),
        (("--behind-proxy", "Authorization"), "the name of a header that says nothing else"),
        (("--token-file", "no/such/folder/token"), "the first token cannot be written"),
        (("--unix-socket", "x" * 200), "nothing can listen on the socket"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(shop: Path, options: tuple[str, ...], said: str) -> None:
    refused = arriero(shop, "serve", APP, *(() if "--port" in options else ("--port", "0")), *options)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert refused.stdout == ""


def test_a_port_in_use_is_refused_in_one_line(shop: Path, serve: Callable[..., Served]) -> None:
    server = serve()
    port = server.address.rpartition(":")[2]
    refused = arriero(shop, "serve", APP, "--port", port)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert f"127.0.0.1:{port} is in use by another program" in refused.stderr
    server.end()


def test_an_open_address_needs_tls_and_a_token(shop: Path, serve: Callable[..., Served]) -> None:
    chain, key = write_certificate(shop)
    options = ("--host", "0.0.0.0", "--tls-cert", str(chain), "--tls-key", str(key))
    refused = arriero(shop, "serve", APP, "--port", "0", *options)
    assert refused.returncode == 2
    assert "arriero token create" in refused.stderr
    assert not (shop / "arriero.token").exists()
    token = create(shop, "admin")
    server = serve(*options)
    assert server.address.startswith("https://0.0.0.0:")
    server.address = server.address.replace("0.0.0.0", "127.0.0.1")
    trusted = ssl.create_default_context(cafile=str(chain))
    assert server.ask(token=token, verify=trusted).status_code == 200
    assert server.ask(verify=trusted).status_code == 401
    with pytest.raises(httpx2.TransportError):
        server.ask("/v1/health/live", verify=True)
    server.end()


def test_a_unix_socket_serves_its_owner(shop: Path, serve: Callable[..., Served]) -> None:
    server = serve("--unix-socket", str(shop / "a.sock"))
    token = (shop / "arriero.token").read_text().strip()
    assert server.ask(token=token).status_code == 200
    assert server.ask().status_code == 401
    server.end()


def test_a_proxy_names_the_caller_and_what_they_may_do(shop: Path, serve: Callable[..., Served]) -> None:
    server = serve("--behind-proxy", "X-User", "--proxy-scope", "admin", "--allow-host", "api.example.com")
    assert not (shop / "arriero.token").exists()
    lines = b"Connection: close\r\nHost: api.example.com\r\nX-User: ana\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
    body = b'{"name": "ci", "scopes": ["read"]}'
    answer = server.send(b"POST /v1/tokens HTTP/1.1\r\n" + lines % (len(body), body))
    assert answer.startswith(b"HTTP/1.1 201 ")
    assert b'"created_by":"ana"' in answer
    assert server.ask().status_code == 401
    server.end()


ODD_HEADERS: list[tuple[tuple[bytes, ...], int]] = [
    ((b"Host: localhost",), 401),
    ((b"Host: evil.test",), 421),
    ((), 400),
    ((b"Host: localhost", b"Host: localhost"), 400),
    ((b"Host: localhost", b"authorization: bearer TOKEN"), 200),
    ((b"Host: localhost", b"Authorization: Bearer TOKEN", b"Authorization: Bearer TOKEN"), 401),
    ((b"Host: localhost", b"Authorization: Bearer " + b"a" * 10_000), 401),
    ((b"Host: localhost", b"Authorization: Bearer " + b"a" * 20_000), 431),
    ((b"Host: localhost", b"Authorization: Bearer " + b"a" * 40_000), 431),
    ((b"Host: localhost", b"Authorization: Bearer \xff\xfe"), 401),
    ((b"Host: localhost", b"Authorization : Bearer TOKEN"), 400),
    ((b"Host: localhost", b"Authorization: Bearer\tTOKEN"), 401),
    ((b"Host: localhost", b"X: 1\r\n Authorization: Bearer TOKEN"), 401),
    ((b"Host: localhost", b"Content-Length: 5", b"Transfer-Encoding: chunked"), 422),
    ((b"Host: localhost", b"Content-Length: 5", b"Content-Length: 6"), 400),
    ((b"Host: localhost", b"Upgrade: websocket", b"Connection: Upgrade"), 401),
]


def test_headers_that_are_odd_let_nobody_in(shop: Path, serve: Callable[..., Served]) -> None:
    server = serve()
    token = (shop / "arriero.token").read_text().strip().encode()
    for lines, status in ODD_HEADERS:
        head = b"\r\n".join((b"GET /v1/tokens HTTP/1.1", b"Connection: close", *lines)).replace(b"TOKEN", token)
        answer = server.send(head + b"\r\n\r\n")
        assert int(answer.split(b" ")[1]) == status, lines
        assert b"\r\nserver:" not in answer.lower()
        assert b"Traceback" not in answer
    log = server.end()
    assert "Traceback" not in log
    assert token.decode().rpartition("_")[2] not in log


def test_the_server_is_the_last_to_go_when_a_process_with_all_roles_drains(
    shop: Path, start: Callable[..., Run]
) -> None:
    server = Served(start("--roles", "scheduler,agents,supervisor,http", "--port", "0"))
    token = (shop / "arriero.token").read_text().strip()
    assert server.ask("/v1/health/ready").status_code == 200
    arriero(shop, "submit", APP, "parcel", "--arguments", order("1"), "--task-id", "one")
    server.run.until("packing 1")
    idle = socket.create_connection(("127.0.0.1", int(server.address.rpartition(":")[2])))
    server.run.signal(signal.SIGTERM)
    server.run.until("draining")
    while server.ask("/v1/health/ready").status_code == 200:
        pass
    assert server.ask("/v1/tasks/one", token=token).json()["state"] == "processing"
    (shop / "gate").touch()
    code, output, _ = server.run.ended()
    assert (code, "drained" in output) == (0, True)
    idle.close()
    steps = json.loads(arriero(shop, "task", "show", "one", "--json").stdout)["steps"]
    assert [step["state"] for step in steps] == ["completed", "completed"]
