"""Programs outside of Python over HTTP: they take requests and report, and each refusal has its own type."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from runtime_world import Machine, session_of, until, within
from server_world import TOKENS, ServerWorld, open_server
from starlette.requests import Request

from arriero import Agent, App, Attempt, Supervision, workflow
from arriero.client.remote_agents import RemoteAgents, RemoteReport
from arriero.errors import StoreError
from arriero.runtime.settings import ROLES
from arriero.server.application import ApiServer
from arriero.server.caller_limits import CallerLimits, CallerPlaces
from arriero.server.calls import Caller, HttpCall, ShutdownSignal
from arriero.server.problems import UNAUTHENTICATED, Problem
from arriero.server.routes.agent_requests import TakeBody, TakenResponse


def bank_app(machine: Machine) -> App:
    bank = Agent("bank")

    @bank.step(remote=True, complete_within=15, supervision=Supervision(attempts=3))
    def pay(attempt: Attempt, cents: int) -> int: ...  # type: ignore[empty-body]

    @workflow
    async def buy(cents: int) -> int:
        return await pay(cents)

    return machine.app([bank, Agent("plain")], [buy])


@asynccontextmanager
async def serving(machine: Machine) -> AsyncIterator[ServerWorld]:
    app = bank_app(machine)
    async with app.running(roles=ROLES), open_server(app, opened=False) as world:
        world.http.headers["Authorization"] = f"Bearer {TOKENS['agent:bank']}"
        yield world


def build_call(world: ServerWorld, confirm: Callable[[float], Awaitable[None]]) -> HttpCall:
    """A call of the Agent whose token is confirmed by a function."""
    caller = Caller("bank", frozenset({"agent:bank"}))
    return HttpCall(
        world.app,
        caller,
        b"",
        Request({"type": "http", "headers": []}),
        ShutdownSignal(),
        confirm,
        CallerPlaces(CallerLimits()).enter("bank"),
    )


async def submit(world: ServerWorld, cents: int = 5) -> Any:
    (buy,) = world.app.workflows
    return await world.app.submit(buy(cents))


async def post(world: ServerWorld, verb: str, body: Any, agent: str = "bank") -> httpx2.Response:
    return await within(world.http.post(f"/v1/agents/{agent}/requests:{verb}", json=body))


async def take_one(world: ServerWorld) -> dict[str, Any]:
    answer = await post(world, "take", {"wait_seconds": 15})
    assert answer.status_code == 200
    (request,) = answer.json()["requests"]
    found: dict[str, Any] = request
    return found


def of(request: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"task": request["task"], "capability": request["capability"], **more}


async def refused(answer: httpx2.Response, status: int, code: str) -> None:
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_request_is_taken_and_reported_over_http(machine: Machine) -> None:
    async with serving(machine) as world:
        task = await submit(world)
        request = await take_one(world)
        assert request["arguments"] == {"cents": 5}
        answer = await post(world, "report", of(request, status="succeeded", result=7))
        assert (answer.status_code, answer.content) == (204, b"")
        assert await within(task.result()) == 7
        await refused(await post(world, "report", of(request, status="succeeded", result=7)), 409, "report-duplicate")
    await machine.check()


async def test_each_report_of_a_batch_is_recorded_or_refused_by_itself(machine: Machine) -> None:
    async with serving(machine) as world:
        tasks = [await submit(world, cents) for cents in range(4)]
        requests = [await take_one(world) for _ in tasks]
        first, second, third, fourth = (of(request, status="succeeded", result=7) for request in requests)
        reports = [first, {**second, "result": "seven"}, {**third, "task": "another"}, fourth, fourth]
        answer = await post(world, "report-batch", {"reports": reports})
        assert answer.status_code == 200
        codes = [one["problem"] and one["problem"]["code"] for one in answer.json()["results"]]
        assert codes == [None, "result-invalid", "capability-invalid", None, "report-duplicate"]
        assert answer.json()["refused"] == 3
        answer = await post(world, "report-batch", {"reports": [first, second, third]})
        codes = [one["problem"] and one["problem"]["code"] for one in answer.json()["results"]]
        assert codes == ["report-duplicate", None, None]
        assert [await within(task.result()) for task in tasks] == [7] * 4
    await machine.check()


async def test_a_batch_of_reports_has_its_bounds_and_names_an_agent_that_is_not_there(machine: Machine) -> None:
    async with serving(machine) as world:
        await submit(world)
        good = of(await take_one(world), status="succeeded", result=1)
        for reports in ([], [good] * 101):
            await refused(await post(world, "report-batch", {"reports": reports}), 422, "invalid-request")
        await refused(
            await post(world, "report-batch", {"reports": [good, {**good, "status": "done"}]}), 400, "invalid-json"
        )
        world.http.headers["Authorization"] = f"Bearer {TOKENS['admin']}"
        await refused(await post(world, "report-batch", {"reports": [good]}, "nobody"), 404, "agent-unknown")
        await refused(await post(world, "report-batch", {"reports": [good]}, "plain"), 409, "agent-not-remote")
        assert (await post(world, "report", good)).status_code == 204  # nothing was changed before


async def test_a_report_of_a_batch_whose_commit_is_unknown_is_to_be_sent_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(machine) as world:
        tasks = [await submit(world, cents) for cents in range(2)]
        reports = [of(await take_one(world), status="succeeded", result=7) for _ in tasks]
        report = RemoteAgents.report

        async def report_in_doubt(self: RemoteAgents, agent: str, given: RemoteReport) -> None:
            await report(self, agent, given)
            if given.task == reports[0]["task"]:
                raise StoreError("the connection was cut")

        with monkeypatch.context() as patch:
            patch.setattr(RemoteAgents, "report", report_in_doubt)
            answer = await post(world, "report-batch", {"reports": reports})
        problems = [one["problem"] for one in answer.json()["results"]]
        assert (problems[0]["status"], problems[1]) == (503, None)
        again = (await post(world, "report-batch", {"reports": reports})).json()["results"]
        assert [one["problem"]["code"] for one in again] == ["report-duplicate"] * 2


async def test_an_extension_and_a_release_over_http(machine: Machine) -> None:
    async with serving(machine) as world:
        task = await submit(world)
        request = await take_one(world)
        term = (await post(world, "extend", of(request, seconds=60))).json()
        assert term["remaining_ms"] > 50_000
        assert (await post(world, "release", of(request))).status_code == 204
        await refused(await post(world, "report", of(request, status="unknown")), 409, "report-stale")
        again = await take_one(world)
        await post(world, "report", of(again, status="succeeded", result=1))
        assert await within(task.result()) == 1


async def test_a_checkpoint_over_http_is_in_the_request_of_the_next_attempt(machine: Machine) -> None:
    async with serving(machine) as world:
        task = await submit(world)
        request = await take_one(world)
        assert "checkpoint" not in request
        for page in (1, 2):
            answer = await post(world, "checkpoint", of(request, checkpoint={"page": page}))
            assert (answer.status_code, answer.content) == (204, b"")
        await post(world, "report", of(request, status="transient", message="busy", retry_after=0))
        again = await take_one(world)
        assert again["checkpoint"] == {"page": 2}
        await refused(await post(world, "checkpoint", of(request, checkpoint=3)), 409, "report-stale")
        await post(world, "report", of(again, status="succeeded", result=1))
        await refused(await post(world, "checkpoint", of(again, checkpoint=3)), 409, "report-duplicate")
        assert await within(task.result()) == 1
        (step,) = (await task.view()).steps
        assert step.checkpoint == {"page": 2}
    await machine.check()


async def test_published_values_over_http_are_shown_and_the_last_one_is_written_before_its_answer(
    machine: Machine,
) -> None:
    async with serving(machine) as world:
        task = await submit(world)
        request = await take_one(world)
        assert (await post(world, "publish", of(request, value="first"))).status_code == 204
        answers = await asyncio.gather(*(post(world, "publish", of(request, value=number)) for number in range(5)))
        assert [answer.status_code for answer in answers] == [204] * 5
        (step,) = (await task.view()).steps
        assert step.published in range(5)
        (row,) = await world.app.session.store.published(1)
        assert row.number == 2
        await post(world, "report", of(request, status="succeeded", result=1))
        await refused(await post(world, "publish", of(request, value="late")), 409, "report-duplicate")
        assert await within(task.result()) == 1


@pytest.mark.parametrize(("verb", "member"), [("checkpoint", "checkpoint"), ("publish", "value")])
async def test_a_bad_value_to_keep_is_refused_and_changes_nothing(machine: Machine, verb: str, member: str) -> None:
    async with serving(machine) as world:
        task = await submit(world)
        request = await take_one(world)
        good = of(request, **{member: 1})
        for body, status, code in (
            (of(request), 400, "invalid-json"),
            ({**good, "more": 1}, 400, "invalid-json"),
            ({**good, "task": "another"}, 403, "capability-invalid"),
            ({**good, "capability": "x"}, 403, "capability-invalid"),
            ({**good, member: "x" * 3_000_000}, 413, "too-large"),
        ):
            await refused(await post(world, verb, body), status, code)
        where = f"/v1/agents/bank/requests:{verb}"
        as_json = {"content-type": "application/json"}
        for content in (
            b"{",
            b'{"task":"t","capability":"c","' + member.encode() + b'":1,"' + member.encode() + b'":2}',
        ):
            answer = await world.http.post(where, content=content, headers=as_json)
            assert answer.status_code in (400, 403)
        deep = b'{"task":"t","capability":"c","' + member.encode() + b'":' + b"[" * 40_000 + b"]" * 40_000 + b"}"
        answer = await world.http.post(where, content=deep, headers=as_json)
        assert 400 <= answer.status_code < 500
        (step,) = (await task.view()).steps
        assert (step.checkpoint, step.published) == (None, None)


async def test_a_published_value_over_10_kb_is_refused_with_its_size(machine: Machine) -> None:
    async with serving(machine) as world:
        await submit(world)
        request = await take_one(world)
        answer = await post(world, "publish", of(request, value="x" * 10_000))
        assert answer.status_code == 422
        assert "has 10,002 bytes as JSON; at most 10,000 are kept" in answer.json()["detail"]


async def test_only_who_holds_the_scope_of_the_agent_may_ask(machine: Machine) -> None:
    async with serving(machine) as world:
        for verb, body in (
            ("take", {}),
            ("report", {}),
            ("report-batch", {}),
            ("extend", {}),
            ("release", {}),
            ("checkpoint", {}),
            ("publish", {}),
        ):
            await refused(await post(world, verb, body, "plain"), 403, "forbidden")
            world.http.headers["Authorization"] = f"Bearer {TOKENS['submit']}"
            await refused(await post(world, verb, body), 403, "forbidden")
            world.http.headers["Authorization"] = f"Bearer {TOKENS['agent:bank']}"


async def test_bad_input_is_refused_and_changes_nothing(machine: Machine) -> None:
    async with serving(machine) as world:
        task = await submit(world)
        request = await take_one(world)
        good = of(request, status="succeeded", result=1)
        for body, status, code in (
            ([], 400, "invalid-json"),
            ({**good, "more": 1}, 400, "invalid-json"),
            ({**good, "status": "done"}, 400, "invalid-json"),
            ({**good, "result": "five"}, 422, "result-invalid"),
            ({**good, "task": "another"}, 403, "capability-invalid"),
            ({**good, "capability": "x"}, 403, "capability-invalid"),
        ):
            await refused(await post(world, "report", body), status, code)
        answer = await world.http.post(
            "/v1/agents/bank/requests:report", content=b"{", headers={"content-type": "application/json"}
        )
        await refused(answer, 400, "invalid-json")
        deep = b'{"task":"t","capability":"c","status":"unknown","details":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        answer = await world.http.post(
            "/v1/agents/bank/requests:report", content=deep, headers={"content-type": "application/json"}
        )
        assert answer.status_code in (400, 403)
        for body in ({"limit": 0}, {"limit": 101}, {"wait_seconds": 61}, {"wait_seconds": -1}):
            await refused(await post(world, "take", body), 422, "invalid-request")
        assert await machine.events("step.report") == []
        await post(world, "report", good)
        assert await within(task.result()) == 1


async def test_an_agent_that_is_not_there_and_one_in_python_have_problems_of_their_own(machine: Machine) -> None:
    async with serving(machine) as world:
        world.http.headers["Authorization"] = f"Bearer {TOKENS['admin']}"
        await refused(await post(world, "take", {}, "nobody"), 404, "agent-unknown")
        await refused(await post(world, "take", {}, "plain"), 409, "agent-not-remote")


async def test_a_poll_without_requests_is_answered_after_its_time(machine: Machine) -> None:
    async with serving(machine) as world:
        answer = await post(world, "take", {"wait_seconds": 0})
        assert (answer.status_code, answer.json()) == (200, {"requests": []})


async def test_a_poll_ends_at_once_when_the_server_is_about_to_end(machine: Machine) -> None:
    async with serving(machine) as world:
        polling = asyncio.create_task(post(world, "take", {"wait_seconds": 60}))
        desk = session_of(world.app).agents.hosted["bank"]
        await until(lambda: desk.count_wanted())
        assert isinstance(world.server, ApiServer)
        world.server.shutdown.begin()
        assert (await within(polling)).status_code == 503
        assert desk.count_wanted() == 0


async def test_a_token_that_was_revoked_during_a_poll_is_given_nothing(machine: Machine) -> None:
    async with serving(machine) as world:
        task, asked = await submit(world), []

        async def refuse(seconds: float) -> None:
            asked.append(seconds)
            raise Problem(UNAUTHENTICATED, "revoked")

        response = TakenResponse(RemoteAgents(world.app.session), "bank", TakeBody(), build_call(world, refuse))

        async def never() -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

        with pytest.raises(Problem, match="revoked"):
            await within(response({"type": "http"}, never, never))  # type: ignore[arg-type]
        assert len(asked) == 1
        request = await take_one(world)
        await post(world, "report", of(request, status="succeeded", result=1))
        assert await within(task.result()) == 1


# --- callers who go away
async def admit(seconds: float) -> None:
    """The caller's token is still valid."""


async def poll(world: ServerWorld, gone: asyncio.Event, sent: list[Any]) -> None:
    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    response = TakenResponse(
        RemoteAgents(world.app.session), "bank", TakeBody(wait_seconds=30), build_call(world, admit)
    )
    await response({"type": "http"}, receive, send)


async def test_a_caller_who_goes_away_while_it_waits_is_forgotten(machine: Machine) -> None:
    async with serving(machine) as world:
        gone, sent = asyncio.Event(), []
        polling = asyncio.create_task(poll(world, gone, sent))
        desk = session_of(world.app).agents.hosted["bank"]
        await until(lambda: desk.count_wanted())
        gone.set()
        await within(polling)
        assert (sent, desk.count_wanted()) == ([], 0)
        task = await submit(world)
        request = await take_one(world)
        await post(world, "report", of(request, status="succeeded", result=1))
        assert await within(task.result()) == 1


@pytest.mark.parametrize("where", [0, 1])
async def test_a_request_whose_answer_could_not_be_written_goes_to_the_next_program(
    machine: Machine, where: int
) -> None:
    async with serving(machine) as world:
        task = await submit(world)
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

        async def send(message: Any) -> None:
            sent.append(message)
            if len(sent) > where:
                raise OSError("the connection is closed")

        response = TakenResponse(
            RemoteAgents(world.app.session), "bank", TakeBody(wait_seconds=15), build_call(world, admit)
        )
        with pytest.raises(OSError, match="closed"):
            await within(response({"type": "http"}, receive, send))
        request = await take_one(world)
        assert request["attempt"] == 1
        await post(world, "report", of(request, status="succeeded", result=1))
        assert await within(task.result()) == 1
