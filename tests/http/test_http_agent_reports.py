"""Reports of a program that arriero calls, when its answer to the call is lost or says something else."""

import asyncio
from typing import Any

import msgspec
import pytest
from pushed_program import Answer, program, shipped, shipping_app
from runtime_world import Machine, session_of, until, within

from arriero import TaskCompensated
from arriero.client.remote_agents import RemoteAgents, RemoteReport
from arriero.errors import StoreError
from arriero.runtime.hosted_agent import HostedAgent
from arriero.runtime.settings import ROLES


def succeed(said: dict[str, Any], number: str = "B-7") -> RemoteReport:
    result = msgspec.Raw(msgspec.json.encode({"number": number}))
    return RemoteReport(task=said["task"], capability=said["capability"], status="succeeded", result=result)


@pytest.mark.parametrize(
    "answer", [b"", (500, {}, {}), (429, {}, {}), (202, {}, b"")], ids=["cut", "500", "429", "202"]
)
async def test_no_further_try_is_made_once_the_program_has_reported(machine: Machine, answer: Answer) -> None:
    async with program() as called:
        called.answers = [answer]
        app = shipping_app(machine, called.url)

        async def report(said: dict[str, Any]) -> None:
            await RemoteAgents(app.session).report("shipping", succeed(said))

        called.meanwhile = report
        async with app.running(roles=ROLES):
            assert await shipped(app) == "B-7"
            await until(lambda: not session_of(app).agents.in_flight)
        assert len(called.requests) == 1
    await machine.check()


@pytest.mark.parametrize("body", [b"", b"null"])
async def test_the_connection_of_a_202_is_kept(machine: Machine, body: bytes) -> None:
    async with program() as called:
        called.answers = [(202, {}, body)]
        app = shipping_app(machine, called.url)

        async def report(said: dict[str, Any]) -> None:
            await RemoteAgents(app.session).report("shipping", succeed(said))

        called.meanwhile = report
        async with app.running(roles=ROLES):
            for _ in range(3):
                assert await shipped(app) == "B-7"
                await until(lambda: not session_of(app).agents.in_flight)
        assert (len(called.requests), called.connections) == (3, 1)


async def test_a_promise_whose_body_is_cut_is_a_promise(machine: Machine) -> None:
    async with program() as called:
        called.answers = [b"HTTP/1.1 202 Accepted\r\nContent-Length: 9\r\n\r\n123"]
        app = shipping_app(machine, called.url)
        async with app.running(roles=ROLES):
            flow = next(flow for flow in app.workflows if flow.name == "ship")
            task, dispatcher = await app.submit(flow("P-1")), session_of(app).agents.remote
            await until(lambda: dispatcher._remote_attempts)
            await RemoteAgents(app.session).report("shipping", succeed(called.read()))
            assert await within(task.result()) == "B-7"
        assert len(called.requests) == 1


async def test_a_request_is_not_sent_again_after_its_undo(machine: Machine) -> None:
    async with program() as called:
        called.answers = [b"", (200, {}, {})]
        app = shipping_app(machine, called.url)
        undone = asyncio.Event()

        async def report_and_hang(said: dict[str, Any]) -> None:
            if said["kind"] == "compensation":
                undone.set()
                return
            await RemoteAgents(app.session).report("shipping", succeed(said))
            await undone.wait()  # then its connection is cut

        called.meanwhile = report_and_hang
        async with app.running(roles=ROLES):
            with pytest.raises(TaskCompensated):
                await shipped(app, "ship_and_fail")
            await until(lambda: not session_of(app).agents.in_flight)
        assert [called.read(number)["kind"] for number in range(len(called.requests))] == ["step", "compensation"]
    await machine.check()


async def test_a_try_is_not_repeated_while_the_store_does_not_answer(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with program() as called:
        called.answers = [(500, {}, {}), (200, {}, {"number": "B-8"})]
        app = shipping_app(machine, called.url)
        async with app.running():
            begin_try, asked = HostedAgent.begin_try, []

            async def fail(self: HostedAgent, step: Any, *, in_doubt: bool) -> float | None:
                asked.append(step)
                if len(asked) == 1:
                    raise StoreError("the connection was cut")
                return await begin_try(self, step, in_doubt=in_doubt)

            monkeypatch.setattr(HostedAgent, "begin_try", fail)
            assert await shipped(app) == "B-8"
        assert [called.read(number)["attempt"] for number in range(2)] == [1, 2]
        assert "it will expire" not in caplog.text  # the first attempt has reported its failure
    await machine.check()


@pytest.mark.parametrize("said", ["permanent", "release"])
async def test_the_doubt_of_a_lost_answer_outlives_what_another_process_is_told_of_a_later_try(
    machine: Machine, said: str
) -> None:
    """The first try has its effect and no answer. What a program says of the second one does not speak of the first."""
    async with program() as called:
        called.answers = [b"", (202, {}, b""), (422, {}, {}), (204, {}, b"")]
        sender, gateway = shipping_app(machine, called.url), shipping_app(machine, called.url)
        reports: list[asyncio.Task[None]] = []

        async def report(request: dict[str, Any]) -> None:
            agents, named = RemoteAgents(gateway.session), (request["task"], request["capability"])
            if said == "release":
                await agents.release("shipping", *named)
            else:
                told = RemoteReport(task=named[0], capability=named[1], status="permanent", message="not begun here")
                await agents.report("shipping", told)

        async def work(request: dict[str, Any]) -> None:
            if len(called.requests) == 2:
                called.answers = called.answers[1 if said == "permanent" else 0 :]
                reports.append(asyncio.ensure_future(report(request)))

        called.meanwhile = work
        async with gateway.running(roles=("http",)), sender.running():
            with pytest.raises(TaskCompensated):
                await shipped(sender, "ship_or_fail")
            await within(asyncio.gather(*reports))
        undo = called.read()
        assert (undo["kind"], undo["outcome"]) == ("compensation", "unknown")
        (failed,) = await machine.events("step.failed")
        assert failed["in_doubt"]
    await machine.check()
