"""A program that arriero calls: who it is must be shown by its certificate, and secrets stay out of logs and the history."""

import json
import logging
import ssl
from functools import partial
from pathlib import Path

import pytest
from pushed_program import KEY, SECRET, program, shipped, shipping_app
from runtime_world import Machine
from server_certificates import write_certificate

from arriero.http import AsyncClient, HttpAgent
from arriero.http import agent as http_agent


def serve_with(chain: Path, private: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, private)
    return context


def trust(monkeypatch: pytest.MonkeyPatch, chain: Path) -> None:
    context = ssl.create_default_context(cafile=str(chain))
    monkeypatch.setattr(http_agent, "AsyncClient", partial(AsyncClient, verify=context))


@pytest.mark.parametrize("of_host", ["ship.example", "other.example", "127.0.0.1"])
async def test_the_certificate_must_be_of_the_name_in_the_url(
    machine: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: dict[str, list[list[str]]],
    of_host: str,
) -> None:
    names["ship.example"] = [["127.0.0.1"]]
    chain, private = write_certificate(tmp_path, of_host)
    trust(monkeypatch, chain)
    async with program(tls=serve_with(chain, private)) as called:
        app = shipping_app(machine, called.url.replace("127.0.0.1", "ship.example"))
        async with app.running():
            said = await shipped(app)
        assert said == ("B-1" if of_host == "ship.example" else "transient unreachable")
        assert len(called.requests) == (1 if of_host == "ship.example" else 0)


async def test_a_certificate_that_nobody_vouches_for_is_refused_before_anything_is_sent(
    machine: Machine, tmp_path: Path
) -> None:
    async with program(tls=serve_with(*write_certificate(tmp_path))) as called:
        app = shipping_app(machine, called.url)
        async with app.running():
            assert await shipped(app) == "transient unreachable"
        assert called.requests == []


async def test_secrets_are_in_no_log_no_event_and_no_repr(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with program() as called:
        called.answers = [b"", (500, {}, {}), (402, {}, {"detail": "no"})]
        app = shipping_app(machine, called.url, callback="https://gate.example")
        async with app.running():
            await shipped(app)
        (agent,) = app.agents
        signatures = [headers["webhook-signature"] for headers, _ in called.requests]
        capabilities = [json.loads(body)["capability"] for _, body in called.requests]
    said = caplog.text + repr(await machine.events()) + repr(agent)
    assert isinstance(agent, HttpAgent)
    for secret in (SECRET, SECRET.removeprefix("whsec_"), KEY.decode(), *signatures, *capabilities):
        assert secret not in said


async def test_what_a_program_sets_as_a_cookie_is_not_sent_with_other_requests(machine: Machine) -> None:
    async with program() as called:
        called.answers = [(200, {"Set-Cookie": "of=task-1; Path=/"}, {"number": "B-1"})]
        app = shipping_app(machine, called.url)
        async with app.running():
            assert [await shipped(app) for _ in range(2)] == ["B-1", "B-1"]
        assert [headers.get("cookie") for headers, _ in called.requests] == [None, None]
