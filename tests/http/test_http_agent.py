"""An Agent whose program arriero calls: what is sent, what answers mean, reports that come later, and addresses."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpcore2
import msgspec
import pytest
from httpcore2._backends.auto import AutoBackend
from pushed_program import SECRET, Answer, Program, program, shipped, shipping_app, verify
from runtime_world import Machine, session_of, until, within

from arriero import (
    Agent,
    App,
    Attempt,
    DefinitionError,
    Retry,
    TaskCompensated,
    Transient,
)
from arriero.client.remote_agents import RemoteAgents, RemoteReport
from arriero.errors import AgentRequestRefused
from arriero.http import HttpAgent
from arriero.http.agent import check_addresses, is_public
from arriero.runtime.settings import ROLES


# --- one call
async def test_an_attempt_is_a_signed_request_and_its_answer_is_the_result(machine: Machine) -> None:
    async with program() as called:
        app = shipping_app(machine, called.url, callback="https://gate.example/")
        async with app.running():
            assert await shipped(app) == "B-1"
        headers, body = called.requests[0]
        said = called.read(0)
        assert verify(headers, body)
        assert not verify(headers, body + b" ")
        assert not verify({**headers, "webhook-id": headers["webhook-id"] + "0"}, body)
        assert not verify({**headers, "webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)}, body)
        assert (said["step"], said["kind"], said["arguments"]) == ("book", "step", {"parcel": "P-1"})
        assert said["callback"] == "https://gate.example/v1/agents/shipping/requests:report"
        assert headers["idempotency-key"] == said["idempotency_key"]
        assert headers["arriero-complete-by"] == said["complete_by"]
        assert headers["host"] == called.url.split("/")[2]
    await machine.check()


async def test_an_undo_is_a_request_too(machine: Machine) -> None:
    async with program() as called:
        app = shipping_app(machine, called.url)
        async with app.running():
            with pytest.raises(TaskCompensated):
                await shipped(app, "ship_and_fail")
        undo = called.read()
        assert (undo["kind"], undo["outcome"], undo["result"]) == ("compensation", "completed", {"number": "B-1"})


@pytest.mark.parametrize(
    ("answer", "said", "calls"),
    [
        ((404, {"Content-Type": "application/json"}, {"code": "no_street"}), "permanent no_street", 1),
        ((302, {"Location": "http://127.0.0.1:1/"}, {}), "unknown 302", 4),
        ((500, {}, {}), "unknown 500", 4),
        ((200, {}, b"{"), "unknown bad_answer", 4),
        ((200, {}, [1]), "unknown unrecordable_result", 1),
    ],
    ids=["404", "302", "500", "no JSON", "another type"],
)
async def test_other_answers_mean_what_they_mean_for_every_client(
    machine: Machine, answer: Answer, said: str, calls: int
) -> None:
    async with program() as called:
        called.answers = [answer]
        app = shipping_app(machine, called.url)
        async with app.running():
            assert await shipped(app) == said
        assert len(called.requests) == calls
        assert len({headers["idempotency-key"] for headers, _ in called.requests}) == 1


async def test_tries_of_an_attempt_share_the_id_of_their_message_and_attempts_do_not(machine: Machine) -> None:
    async with program() as called:
        called.answers = [(503, {"Retry-After": "0"}, {}), (500, {}, {}), (200, {}, {"number": "B-2"})]
        app = shipping_app(machine, called.url)
        async with app.running():
            assert await shipped(app) == "B-2"
        ids = [headers["webhook-id"] for headers, _ in called.requests]
        assert ids[0] == ids[1] != ids[2]


# --- a report that comes later
@asynccontextmanager
async def promised(
    machine: Machine, *roles: Any
) -> AsyncIterator[tuple[App, Any, Program, Callable[[], RemoteAgents]]]:
    async with program() as called:
        called.answers = [(202, {}, b"")]
        app = shipping_app(machine, called.url)
        async with app.running(roles=ROLES):
            flow = next(flow for flow in app.workflows if flow.name == "ship")
            task = await app.submit(flow("P-1"))
            dispatcher = session_of(app).agents.remote
            await until(lambda: called.requests and dispatcher._remote_attempts)
            yield app, task, called, lambda: RemoteAgents(app.session)


async def test_a_program_that_promises_its_report_gives_it_with_the_capability(machine: Machine) -> None:
    async with promised(machine) as (_, task, called, agents):
        said = called.read()
        report = RemoteReport(
            task=said["task"],
            capability=said["capability"],
            status="succeeded",
            result=msgspec.Raw(b'{"number":"B-9"}'),
        )
        await agents().report("shipping", report)
        assert await within(task.result()) == "B-9"
        with pytest.raises(AgentRequestRefused, match="already"):
            await agents().report("shipping", report)
    await machine.check()


async def test_a_reported_failure_ends_the_attempt_without_a_further_try(machine: Machine) -> None:
    async with promised(machine) as (_, task, called, agents):
        said = called.read()
        called.answers = [(200, {}, {"number": "B-3"})]
        await agents().report(
            "shipping",
            RemoteReport(task=said["task"], capability=said["capability"], status="transient", message="busy"),
        )
        assert await within(task.result()) == "B-3"
        assert [called.read(number)["attempt"] for number in range(2)] == [1, 2]


async def test_a_report_to_another_process_ends_the_attempt_here(machine: Machine) -> None:
    async with promised(machine) as (app, task, called, _):
        other = shipping_app(machine, called.url)
        said = called.read()
        async with other.running(roles=["http"]):
            await RemoteAgents(other.session).report(
                "shipping",
                RemoteReport(
                    task=said["task"],
                    capability=said["capability"],
                    status="succeeded",
                    result=msgspec.Raw(b'{"number":"B-4"}'),
                ),
            )
        assert await within(task.result()) == "B-4"
        await until(lambda: not session_of(app).agents.in_flight)


async def test_the_requests_of_such_an_agent_cannot_be_taken(machine: Machine) -> None:
    async with promised(machine) as (_, task, called, agents):
        with pytest.raises(AgentRequestRefused, match="arriero sends"):
            await agents().take("shipping")
        said = called.read()
        await agents().report(
            "shipping", RemoteReport(task=said["task"], capability=said["capability"], status="permanent", code="x")
        )
        assert await within(task.result()) == "permanent x"


# --- addresses
@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "::1", "fe80::1",
     "fc00::1", "::ffff:10.0.0.1", "2002:a00:1::", "64:ff9b::a00:1", "100.64.0.1",
     "::127.0.0.1", "fec0::1", "64:ff9b:1::a00:1", "::ffff:0:7f00:1", "5f00::1"],
)  # fmt: skip
def test_an_address_that_is_not_public_is_refused_unless_it_is_allowed(address: str) -> None:
    one = ipaddress.ip_address(address)
    assert not is_public(one)
    with pytest.raises(Transient, match="allow_private=True") as refusal:
        check_addresses("inner.example", [ipaddress.ip_address("8.8.8.8"), one], allow_private=False)
    assert refusal.value.code == "address_refused"
    assert check_addresses("inner.example", [one], allow_private=True) == [str(one)]


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:2800:21f::1", "::ffff:8.8.8.8", "2002:808:808::", "64:ff9b::808:808"]
)
def test_an_address_of_the_public_internet_may_be_called(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


def test_public_addresses_are_connected_to_in_their_order() -> None:
    addresses = [ipaddress.ip_address(one) for one in ("93.184.216.34", "8.8.8.8")]
    assert check_addresses("example.com", addresses, allow_private=False) == ["93.184.216.34", "8.8.8.8"]


def at(called: Program, host: str) -> str:
    return called.url.replace("127.0.0.1", host)


async def test_another_address_of_the_name_is_called_if_there_is_no_connection_to_the_first(
    machine: Machine, names: dict[str, list[list[str]]]
) -> None:
    names["ship.example"] = [["127.0.0.2", "127.0.0.1"]]
    async with program() as called:
        app = shipping_app(machine, at(called, "ship.example"))
        async with app.running():
            assert await shipped(app) == "B-1"
        assert called.requests[0][0]["host"] == at(called, "ship.example").split("/")[2]


async def test_an_address_that_does_not_answer_leaves_time_for_the_next_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, names: dict[str, list[list[str]]]
) -> None:
    names["ship.example"] = [["127.0.0.2", "127.0.0.1"]]
    connect, waits = AutoBackend.connect_tcp, {}

    async def wait_in_vain(self: AutoBackend, host: str, port: int, timeout: float | None = None, **more: Any) -> Any:
        waits[host] = timeout
        if host == "127.0.0.2":
            raise httpcore2.ConnectTimeout("nobody answers")
        return await connect(self, host, port, timeout, **more)

    monkeypatch.setattr(AutoBackend, "connect_tcp", wait_in_vain)
    async with program() as called:
        app = shipping_app(machine, at(called, "ship.example"))
        async with app.running():
            assert await shipped(app) == "B-1"
    assert waits["127.0.0.2"] == 2
    assert 2 < waits["127.0.0.1"] <= 15


async def test_no_other_address_is_called_if_the_first_may_have_the_request(
    machine: Machine, names: dict[str, list[list[str]]]
) -> None:
    async with program() as first, program("127.0.0.2", first.port) as second:
        names["ship.example"] = [["127.0.0.2", "127.0.0.1"]]
        for second.answers, said in (([b""], "unknown "), ([(429, {}, {"code": "unreachable"})], "transient 429")):
            app = shipping_app(machine, at(first, "ship.example"))
            async with app.running():
                assert await shipped(app) == said
        assert (len(first.requests), len(second.requests)) == (0, 8)


async def test_the_name_is_asked_for_once_and_what_it_stands_for_later_does_not_count(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, names: dict[str, list[list[str]]]
) -> None:
    async with program() as called:
        names["ship.example"] = [["8.8.8.8"], ["127.0.0.1"]]  # as one who changes the name between check and connection
        connected: list[str] = []

        async def connect(self: Any, host: str, *_: Any, **__: Any) -> Any:
            connected.append(host)
            raise httpcore2.ConnectError("no way out of the test")

        monkeypatch.setattr(AutoBackend, "connect_tcp", connect)
        app = shipping_app(machine, at(called, "ship.example"), allow_private=False, retry=Retry(tries=1))
        async with app.running():
            assert await shipped(app) == "transient address_refused"
        assert connected == ["8.8.8.8"]
        assert called.requests == []


async def test_a_name_in_unicode_is_asked_for_as_it_is_sent(
    machine: Machine, names: dict[str, list[list[str]]]
) -> None:
    names["xn--strae-oqa.example"] = [["127.0.0.1"]]
    async with program() as called:
        app = shipping_app(machine, at(called, "stra\u00dfe.example"))
        async with app.running():
            assert await shipped(app) == "B-1"
        assert called.requests[0][0]["host"].startswith("xn--strae-oqa.example:")


@pytest.mark.parametrize("host", ["0x7f.1", "127.1", "2130706433", "017700000001", "[::ffff:7f00:1]", "localhost"])
async def test_other_spellings_of_this_machine_are_refused_before_anything_is_sent(machine: Machine, host: str) -> None:
    async with program() as called:
        with suppress(DefinitionError):
            app = shipping_app(machine, at(called, host), allow_private=False)
            async with app.running():
                assert await shipped(app) == "transient address_refused"
        assert called.requests == []


async def test_no_proxy_of_the_environment_is_used(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with program() as called, program() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url.partition("/hooks")[0])
        app = shipping_app(machine, called.url)
        async with app.running():
            assert await shipped(app) == "B-1"
        assert (len(called.requests), len(proxy.requests)) == (1, 0)


async def test_the_calls_at_once_are_bounded_by_the_places_alone(machine: Machine) -> None:
    calls = 120  # a client of httpx2 has 100 connections by default
    async with program() as called:
        app, all_are_here = shipping_app(machine, called.url, max_in_flight=calls), asyncio.Event()

        async def wait_for_all(said: dict[str, Any]) -> None:
            if len(called.requests) == calls:
                all_are_here.set()
            await all_are_here.wait()

        called.meanwhile = wait_for_all
        async with app.running():
            assert await asyncio.gather(*(shipped(app) for _ in range(calls))) == ["B-1"] * calls


async def test_a_name_that_stands_for_this_machine_is_refused_before_anything_is_sent(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with program() as called:
        app = shipping_app(machine, called.url.replace("127.0.0.1", "localhost"))
        (agent,) = app.agents
        monkeypatch.setattr(agent, "_allow_private", False)
        async with app.running():
            assert await shipped(app) == "transient address_refused"
        assert called.requests == []


# --- declaration
@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"url": "ftp://x.example"}, "url must be http"),
        ({"url": "https://user:word@x.example"}, "without user or password"),
        ({"url": "https://"}, "with a host"),
        ({"url": "http://127.0.0.1/"}, "allow_private=True"),
        ({"url": "http://[::1]/"}, "allow_private=True"),
        ({"secret": "whsec_short"}, "secret"),
        ({"callback": "nowhere"}, "callback must be http"),
        ({"callback": "https://gate.example/?of=shop"}, "query or fragment"),
        ({"secret": None}, "secret is not text"),
        ({"url": None}, "url cannot be read"),
        ({"url": "https://a..example/"}, "url cannot be read"),
        ({"url": f"https://{'a' * 64}.example/"}, "url cannot be read"),
        ({"url": "https://x.example:99999/"}, "port from 1 to 65535"),
        ({"url": "https://x.example:0/"}, "port from 1 to 65535"),
        ({"allow_private": "no"}, "must be of the type bool"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_declared(given: dict[str, str], match: str) -> None:
    fields: Any = {"url": "https://x.example", "secret": SECRET} | given
    with pytest.raises(DefinitionError, match=match) as refusal:
        HttpAgent("shipping", **fields)
    assert (
        "whsec_" not in str(refusal.value) or given.get("secret") is None or given["secret"] not in str(refusal.value)
    )


def test_its_steps_have_no_body_and_run_nowhere_here() -> None:
    agent = HttpAgent("shipping", url="https://x.example", secret=SECRET)
    with pytest.raises(DefinitionError, match="body would never run"):

        @agent.step
        def book(attempt: Attempt) -> int:
            return 1

    with pytest.raises(DefinitionError, match="leave run_in out"):
        agent.step(run_in="process")
    assert isinstance(agent, Agent)
