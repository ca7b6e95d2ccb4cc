"""Programs outside of Python take requests and report, through one process or several, and what they must not do is refused."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import Any

import msgspec
import pytest
from runtime_world import QUICK, Machine, eventually, session_of, until, within

from arriero import (
    Agent,
    App,
    Attempt,
    Breaker,
    Callback,
    Permanent,
    StepFailed,
    Supervision,
    TaskCompensated,
    Undo,
    callback,
    workflow,
)
from arriero.client.remote_agents import RemoteAgents, RemoteReport, RemoteRequest
from arriero.errors import AgentRequestRefused, InvalidInput, UnreadableRow
from arriero.model.answers import Applied
from arriero.model.commands import AssignApp
from arriero.runtime.settings import DEFAULT_ROLES, ROLES

GATEWAY = ("http",)
OTHERS = DEFAULT_ROLES


class Booking(msgspec.Struct, frozen=True):
    """What the program of shipping answers."""

    number: str
    pieces: int = 1


def shipping(*, complete_within: float = 15, **options: Any) -> Agent:
    agent = Agent("shipping", **options)

    @agent.step(remote=True, complete_within=complete_within, supervision=Supervision(attempts=3))
    def book(attempt: Attempt, parcel: str, pieces: int = 2) -> Booking: ...  # type: ignore[empty-body]

    @book.compensation
    def cancel(undo: Undo[Booking], parcel: str, pieces: int = 2) -> None: ...

    return agent


def machine_app(machine: Machine, agent: Agent) -> App:
    book = agent.steps["book"]

    @workflow
    async def ship(parcel: str) -> str:
        try:
            return (await book(parcel)).number
        except StepFailed as failed:
            return f"{failed.cause} {failed.code} {failed.message} {failed.attempts}{failed.public}"

    @workflow
    async def ship_and_fail(parcel: str) -> str:
        await book(parcel)
        raise Permanent("the order was cancelled")

    return machine.app([agent, Agent("bank")], [ship, ship_and_fail])


def succeeded(request: RemoteRequest, result: Any = None, **changes: Any) -> RemoteReport:
    result = {"number": "B-1"} if result is None else result
    fields: dict[str, Any] = {"task": request.task, "capability": request.capability, "status": "succeeded"}
    return RemoteReport(**(fields | {"result": msgspec.Raw(msgspec.json.encode(result))} | changes))


def failed(request: RemoteRequest, status: str, **more: Any) -> RemoteReport:
    return RemoteReport(task=request.task, capability=request.capability, status=status, **more)  # type: ignore[arg-type]


class Gateway:
    """One process with its App, as programs see it."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.agents = RemoteAgents(app.session)

    async def submit(self, name: str = "ship", parcel: str = "P") -> Any:
        flow = next(flow for flow in self.app.workflows if flow.name == name)
        return await self.app.submit(flow(parcel))

    async def take_one(self) -> RemoteRequest:
        (request,) = await within(self.agents.take("shipping", 1, 15))
        return request

    async def refused(self, code: str, report: RemoteReport, agent: str = "shipping") -> None:
        with pytest.raises(AgentRequestRefused) as refusal:
            await within(self.agents.report(agent, report))
        assert refusal.value.code == code


@asynccontextmanager
async def gateways(machine: Machine, *roles: tuple[str, ...], **options: Any) -> AsyncIterator[list[Gateway]]:
    async with AsyncExitStack() as stack:
        found = []
        for one in roles:
            app = machine_app(machine, shipping(**options))
            await stack.enter_async_context(app.running(roles=one))
            found.append(Gateway(app))
        yield found


# --- the way of a request
async def test_a_program_takes_a_request_and_its_result_reaches_the_workflow(machine: Machine) -> None:
    async with gateways(machine, ROLES) as (gateway,):
        task = await gateway.submit()
        request = await gateway.take_one()
        assert (request.task, request.step, request.kind, request.attempt) == (task.id, "book", "step", 1)
        assert msgspec.json.decode(request.arguments) == {"parcel": "P", "pieces": 2}  # with its defaults
        assert request.headers["Idempotency-Key"] == request.idempotency_key
        assert 0 < request.remaining_ms <= 15_000
        assert request.complete_by.endswith("+00:00")
        await gateway.agents.report("shipping", succeeded(request))
        assert await within(task.result()) == "B-1"
    await machine.check()


async def test_scheduler_and_gateway_work_in_processes_of_their_own(machine: Machine) -> None:
    async with gateways(machine, OTHERS, GATEWAY) as (scheduler, gateway):
        tasks = [await scheduler.submit(parcel=f"P{number}") for number in range(5)]
        done = 0
        while done < 5:
            requests = await within(gateway.agents.take("shipping", 10, 15))
            await asyncio.gather(*(gateway.agents.report("shipping", succeeded(one)) for one in requests))
            done += len(requests)
        assert [await within(task.result()) for task in tasks] == ["B-1"] * 5
    await machine.check()


async def test_a_report_is_committed_when_its_answer_comes(machine: Machine) -> None:
    async with gateways(machine, OTHERS, GATEWAY) as (scheduler, gateway):
        await scheduler.submit()
        request = await gateway.take_one()
        await gateway.agents.report("shipping", succeeded(request))
        assert [event["verdict"] for event in await machine.events("step.report")] == ["applied"]


async def test_failures_reach_the_policy_and_the_workflow_as_those_of_python_do(machine: Machine) -> None:
    async with gateways(machine, ROLES) as (gateway,):
        task = await gateway.submit()
        request = await gateway.take_one()
        await gateway.agents.report("shipping", failed(request, "transient", message="busy", code="busy"))
        request = await gateway.take_one()
        assert request.attempt == 2
        await gateway.agents.report("shipping", failed(request, "unknown", message="cut"))
        request = await gateway.take_one()
        details = msgspec.Raw(b'{"why":[1]}')
        await gateway.agents.report(
            "shipping",
            failed(
                request, "permanent", message="no such street", code="address", details=details, public=": check it"
            ),
        )
        assert await within(task.result()) == "permanent address no such street 3: check it"
        recovered = await machine.events("step.retry", "recover.applied", "step.failed")
        assert [one["in_doubt"] for one in recovered if "in_doubt" in one] == [False, True, True]
    await machine.check()


async def test_the_undo_of_a_remote_step_is_a_request_with_what_the_step_has_done(machine: Machine) -> None:
    async with gateways(machine, ROLES) as (gateway,):
        task = await gateway.submit("ship_and_fail")
        request = await gateway.take_one()
        await gateway.agents.report("shipping", succeeded(request, {"number": "B-7"}))
        undo = await gateway.take_one()
        assert (undo.step, undo.kind, undo.outcome) == ("book", "compensation", "completed")
        assert undo.forward_key == request.idempotency_key != undo.idempotency_key
        assert undo.result is not None
        assert msgspec.json.decode(undo.result) == {"number": "B-7"}
        await gateway.refused("report-duplicate", succeeded(request))  # of the step that is being undone
        await gateway.agents.report("shipping", failed(undo, "succeeded"))
        with pytest.raises(TaskCompensated):
            await within(task.result())
        await gateway.refused("report-duplicate", succeeded(request))
    await machine.check()


async def test_a_program_gets_the_url_of_a_callback_among_its_arguments(machine: Machine) -> None:
    bank = Agent("shipping")

    @bank.step(remote=True)
    def pay(number: int, done: Callback[str], extra: list[Callback[str]]) -> None: ...

    @workflow
    async def order(number: int) -> list[str]:
        done, other = callback(str, name="done"), callback(str, name="other")
        await pay(number, done, [other])
        return [await done, await other]

    app = machine.app([bank], [order], settings=msgspec.structs.replace(QUICK, public_url="https://shop"))
    async with app.running(roles=ROLES):
        task, gateway = await app.submit(order(7)), Gateway(app)
        request = await gateway.take_one()
        arguments = msgspec.json.decode(request.arguments)
        for given in (arguments["done"], *arguments["extra"]):
            assert given["url"] == f"https://shop/v1/callbacks/{given['token']}"
            assert given["expires_at"]
        await gateway.agents.report("shipping", succeeded(request, msgspec.Raw(b"null")))
        assert await app.complete_callback(arguments["extra"][0]["token"], "b")
        assert await app.complete_callback(arguments["done"]["token"], "a")
        assert await within(task.result()) == ["a", "b"]
        loaded = await app.session.store.find(task.id)
        assert loaded is not None
        step = next(step for step in loaded.steps if step.name == "pay")
        assert step.arguments == '{"done":{"callback":"done#1"},"extra":[{"callback":"other#1"}],"number":7}'
    await machine.check()


# --- places
async def test_nothing_is_taken_while_no_program_asks(machine: Machine) -> None:
    async with gateways(machine, ROLES) as (gateway,):
        await gateway.submit()
        await machine.event("step.opened")
        hosts = session_of(gateway.app).agents
        await until(lambda: hosts.hosted["shipping"].has_backlog)
        assert hosts.hosted["shipping"].compute_room().open == 0


async def test_a_poll_takes_as_many_as_it_asks_for_and_max_in_flight_bounds_them_all(machine: Machine) -> None:
    async with gateways(machine, ROLES, max_in_flight=3) as (gateway,):
        for number in range(5):
            await gateway.submit(parcel=f"P{number}")
        taken: list[RemoteRequest] = []
        while len(taken) < 3:
            taken += await within(gateway.agents.take("shipping", 2, 15))
        assert len(taken) == 3
        assert await gateway.agents.take("shipping", 5, 0.2) == ()  # the others wait in the store
        await gateway.agents.report("shipping", succeeded(taken[0]))
        more = await within(gateway.agents.take("shipping", 5, 15))
        assert len(more) == 1
        assert session_of(gateway.app).agents.count_leaked_places() == 0
        for request in (*taken[1:], *more):
            await gateway.agents.report("shipping", succeeded(request))
        (last,) = await within(gateway.agents.take("shipping", 5, 15))
        await gateway.agents.report("shipping", succeeded(last))


async def test_a_request_whose_program_went_away_before_its_answer_goes_to_the_next_one(machine: Machine) -> None:
    async with gateways(machine, ROLES) as (gateway,):
        await gateway.submit()
        with pytest.raises(ConnectionError):
            async with gateway.agents.taking("shipping", 1, 15) as (lost,):
                raise ConnectionError
        request = await gateway.take_one()
        assert (request.capability, request.attempt) == (lost.capability, 1)
        await gateway.agents.report("shipping", succeeded(request))


async def test_a_request_that_nobody_fetches_goes_back_without_costing_an_attempt(machine: Machine) -> None:
    async with gateways(machine, ROLES) as (gateway,):
        task = await gateway.submit()
        with pytest.raises(ConnectionError):
            async with gateway.agents.taking("shipping", 1, 15) as (lost,):
                raise ConnectionError
        await machine.event("attempt.released", step=1)
        await until(lambda: not session_of(gateway.app).agents.in_flight)
        await gateway.refused("report-stale", succeeded(lost))
        request = await gateway.take_one()
        assert request.attempt == 1
        await gateway.agents.report("shipping", succeeded(request))
        assert await within(task.result()) == "B-1"
        assert session_of(gateway.app).agents.count_leaked_places() == 0
    await machine.check()


async def test_an_attempt_that_ended_before_its_request_was_fetched_frees_its_place(machine: Machine) -> None:
    async with gateways(machine, ROLES, GATEWAY, complete_within=120) as (gateway, other):
        task = await gateway.submit()
        with pytest.raises(ConnectionError):
            async with gateway.agents.taking("shipping", 1, 15) as (request,):
                await other.agents.report("shipping", succeeded(request))
                raise ConnectionError
        assert await within(task.result()) == "B-1"
        await until(lambda: not session_of(gateway.app).agents.in_flight)  # its release was refused
        assert session_of(gateway.app).agents.count_leaked_places() == 0
    await machine.check()


async def test_a_poll_that_is_cancelled_gives_its_request_on(machine: Machine) -> None:
    async with gateways(machine, ROLES) as (gateway,):
        poll = asyncio.create_task(gateway.agents.take("shipping", 1, 30))
        desk = session_of(gateway.app).agents.hosted["shipping"]
        await until(lambda: desk.count_wanted())
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
        assert desk.count_wanted() == 0
        await gateway.submit()
        await gateway.agents.report("shipping", succeeded(await gateway.take_one()))


# --- what a program must not do
async def test_a_result_that_does_not_fit_its_type_is_refused_and_the_right_one_counts(machine: Machine) -> None:
    async with gateways(machine, ROLES) as (gateway,):
        task = await gateway.submit()
        request = await gateway.take_one()
        for wrong in ({"number": 5}, [], {"number": "B", "pieces": "x"}, "B-1"):
            await gateway.refused("result-invalid", succeeded(request, wrong))
        deep: Any = "x"
        for _ in range(150):
            deep = [deep]
        await gateway.refused("result-invalid", succeeded(request, {"number": "B-1", "more": deep}))
        assert await machine.events("step.report") == []
        await gateway.agents.report("shipping", succeeded(request))
        assert await within(task.result()) == "B-1"


async def test_a_report_counts_once_however_often_it_comes(machine: Machine) -> None:
    async with gateways(machine, ROLES) as (gateway,):
        task = await gateway.submit()
        request = await gateway.take_one()
        answers = await asyncio.gather(
            *(gateway.agents.report("shipping", succeeded(request)) for _ in range(20)), return_exceptions=True
        )
        assert answers.count(None) == 1
        assert {getattr(one, "code", "") for one in answers if one is not None} == {"report-duplicate"}
        assert await within(task.result()) == "B-1"
        events = len(await machine.events())
        for _ in range(100):
            await gateway.refused("report-duplicate", succeeded(request))
        assert len(await machine.events()) == events  # a thousand of them fill no history
        assert gateway.agents.refusals["report-duplicate"] == 119
    await machine.check()


async def test_a_capability_speaks_for_one_attempt_of_one_agent_alone(machine: Machine) -> None:
    async with gateways(machine, ROLES) as (gateway,):
        await gateway.submit()
        await gateway.submit(parcel="Q")
        first, second = [await gateway.take_one() for _ in range(2)]
        version, said, signature = first.capability.split(".")
        for forged in ("", "x", "a.b", f"{version}.{said}.", f"{version}.{said}.{signature[:-1]}", "..", "é.é.é",
                       f"{version}.{second.capability.split('.')[1]}.{signature}", "1." + "x" * 5000 + ".y"):  # fmt: skip
            await gateway.refused("capability-invalid", succeeded(first, capability=forged))
        await gateway.refused("capability-invalid", succeeded(first, task=second.task))
        await gateway.refused("agent-not-remote", succeeded(first), "bank")
        await gateway.refused("agent-unknown", succeeded(first), "nobody")
        assert await machine.events("step.report") == []
        for request in (first, second):
            await gateway.agents.report("shipping", succeeded(request))


async def test_an_older_attempt_cannot_report(machine: Machine) -> None:
    async with gateways(machine, ROLES) as (gateway,):
        await gateway.submit()
        first = await gateway.take_one()
        await gateway.agents.report("shipping", failed(first, "transient"))
        second = await gateway.take_one()
        await gateway.refused("report-stale", succeeded(first))
        await gateway.agents.report("shipping", succeeded(second))
        await gateway.refused("report-stale", failed(first, "permanent"))
    await machine.check()


async def test_what_is_asked_wrongly_is_told_with_its_code(machine: Machine) -> None:
    async with gateways(machine, ROLES, OTHERS) as (gateway, other):
        for agent, code in (("nobody", "agent-unknown"), ("bank", "agent-not-remote")):
            with pytest.raises(AgentRequestRefused) as refusal:
                await gateway.agents.take(agent)
            assert refusal.value.code == code
        with pytest.raises(AgentRequestRefused, match="role http"):
            await other.agents.take("shipping")
        for limit, seconds in ((0, 1), (101, 1), (True, 1), (1, -1), (1, 61), (1, float("nan"))):
            with pytest.raises(InvalidInput):
                await gateway.agents.take("shipping", limit, seconds)


# --- time
async def test_a_report_after_the_deadline_is_refused_and_kept_once_for_people(machine: Machine) -> None:
    agent = Agent("shipping")

    @agent.step(remote=True, complete_within=0.3, supervision=Supervision(attempts=1))
    def book(attempt: Attempt, parcel: str) -> Booking: ...  # type: ignore[empty-body]

    app = machine_app(machine, agent)
    async with app.running(roles=ROLES):
        gateway = Gateway(app)
        task = await gateway.submit()
        request = await gateway.take_one()
        assert await within(task.result()) == "expired expired no answer within its time (attempt 1) 1"
        for _ in range(3):
            await gateway.refused("report-expired", succeeded(request))
        (late,) = [one for one in await machine.events("step.report") if one.get("kept")]
        assert late["outcome"] == "succeeded"
    await machine.check()


@pytest.mark.parametrize("by_another", [False, True])
async def test_an_extension_gives_a_new_capability_and_both_count(machine: Machine, by_another: bool) -> None:
    async with gateways(machine, ROLES, GATEWAY) as (gateway, other):
        asked = other if by_another else gateway
        tasks = [await gateway.submit(parcel=f"P{number}") for number in range(2)]
        first, second = [await gateway.take_one() for _ in range(2)]
        for request in (first, second):
            term = await asked.agents.extend("shipping", request.task, request.capability, 60)
            assert term.remaining_ms > 50_000
            assert term.complete_by > request.complete_by
            if request is first:
                await asked.agents.report("shipping", succeeded(request, capability=term.capability))
            else:
                await asked.agents.report("shipping", succeeded(request))
        assert [await within(task.result()) for task in tasks] == ["B-1"] * 2
    await machine.check()


async def test_an_extension_by_another_process_reaches_the_one_that_holds_the_attempt(machine: Machine) -> None:
    async with gateways(machine, ROLES, GATEWAY) as (gateway, other):
        task = await gateway.submit()
        request = await gateway.take_one()
        await other.agents.extend("shipping", request.task, request.capability, 60)
        (attempt,) = session_of(gateway.app).agents.remote._remote_attempts.values()
        await until(lambda: attempt.time.remaining_seconds() > 30)
        await gateway.agents.report("shipping", succeeded(request))
        assert await within(task.result()) == "B-1"


@pytest.mark.parametrize("by_another", [False, True])
async def test_a_checkpoint_and_a_published_value_may_come_by_way_of_any_gateway(
    machine: Machine, by_another: bool
) -> None:
    async with gateways(machine, ROLES, GATEWAY) as (gateway, other):
        first, second = (other, gateway) if by_another else (gateway, other)
        task = await gateway.submit()
        request = await gateway.take_one()
        for number, asked in enumerate((first, second, first)):
            value = msgspec.Raw(str(number).encode())
            await asked.agents.save_checkpoint("shipping", request.task, request.capability, value)
            await asked.agents.publish("shipping", request.task, request.capability, value)
        await second.agents.report("shipping", succeeded(request))
        assert await within(task.result()) == "B-1"
        step = (await task.view()).steps[0]
        assert (step.checkpoint, step.published) == (2, 2)
    await machine.check()


@pytest.mark.parametrize("asked", ["save_checkpoint", "publish"])
async def test_after_its_deadline_an_attempt_keeps_and_publishes_nothing(machine: Machine, asked: str) -> None:
    agent = Agent("shipping")

    @agent.step(remote=True, complete_within=0.3, supervision=Supervision(attempts=1))
    def book(attempt: Attempt, parcel: str) -> Booking: ...  # type: ignore[empty-body]

    app = machine_app(machine, agent)
    async with app.running(roles=ROLES):
        gateway = Gateway(app)
        task = await gateway.submit()
        request = await gateway.take_one()
        assert await within(task.result()) == "expired expired no answer within its time (attempt 1) 1"
        with pytest.raises(AgentRequestRefused) as refused:
            await getattr(gateway.agents, asked)("shipping", request.task, request.capability, msgspec.Raw(b"1"))
        assert refused.value.code in ("report-stale", "report-expired", "report-duplicate")
        step = (await task.view()).steps[0]
        assert (step.checkpoint, step.published) == (None, None)


# --- going back, other processes, the end
@pytest.mark.parametrize("by_another", [False, True])
async def test_a_released_request_goes_to_the_next_program_and_its_capability_is_stale(
    machine: Machine, by_another: bool
) -> None:
    async with gateways(machine, ROLES, GATEWAY) as (gateway, other):
        asked = other if by_another else gateway
        task = await gateway.submit()
        request = await gateway.take_one()
        await asked.agents.release("shipping", request.task, request.capability)
        again = await gateway.take_one()
        assert (again.attempt, again.idempotency_key) == (1, request.idempotency_key)
        await gateway.refused("report-stale", succeeded(request))
        with pytest.raises(AgentRequestRefused) as refusal:
            await asked.agents.release("shipping", request.task, request.capability)
        assert refusal.value.code == "report-stale"
        await gateway.agents.report("shipping", succeeded(again))
        assert await within(task.result()) == "B-1"
    await machine.check()


async def test_a_report_to_another_process_counts_and_frees_the_place_of_the_one_that_holds_it(
    machine: Machine,
) -> None:
    async with gateways(machine, ROLES, GATEWAY, max_in_flight=1) as (gateway, other):
        task = await gateway.submit()
        request = await gateway.take_one()
        await other.agents.report("shipping", succeeded(request))
        assert await within(task.result()) == "B-1"
        hosts = session_of(gateway.app).agents
        await until(lambda: not hosts.in_flight)
        assert hosts.hosted["shipping"].used == 0
        await gateway.refused("report-duplicate", succeeded(request))
        await gateway.submit(parcel="Q")
        await gateway.agents.report("shipping", succeeded(await gateway.take_one()))
    await machine.check(complete=False)


@pytest.mark.parametrize(("status", "in_doubt"), [("transient", False), ("unknown", True)])
async def test_what_is_reported_to_another_process_leaves_the_doubt_that_its_status_says(
    machine: Machine, status: str, in_doubt: bool
) -> None:
    async with gateways(machine, ROLES, GATEWAY) as (gateway, other):
        await gateway.submit()
        await other.agents.report("shipping", failed(await gateway.take_one(), status))
        (recovered,) = await machine.events("recover.applied")
        assert recovered["in_doubt"] is in_doubt
        await other.agents.report("shipping", succeeded(await gateway.take_one()))


async def test_nothing_is_delivered_by_a_process_that_has_lost_trust_in_its_lease(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(machine, ROLES) as (gateway,):
        task = await gateway.submit()
        hosts = session_of(gateway.app).agents
        hand_out, is_trusted, trusts = hosts.remote._hand_out, hosts.context.is_trusted, [True]

        def hand_out_and_lose_trust(agent: str) -> None:
            hand_out(agent)
            trusts[0] = trusts[0] and not any(poll.requests for poll in hosts.remote._polls[agent])

        with monkeypatch.context() as patch:
            patch.setattr(hosts.remote, "_hand_out", hand_out_and_lose_trust)
            patch.setattr(hosts.context, "is_trusted", lambda: trusts[0] and is_trusted())
            assert await within(gateway.agents.take("shipping", 1, 1)) == ()  # others may have freed it
            assert not trusts[0]
        await gateway.agents.report("shipping", succeeded(await gateway.take_one()))
        assert await within(task.result()) == "B-1"


async def test_a_poll_without_waiting_gets_the_request_that_it_has_asked_for(machine: Machine) -> None:
    async with gateways(machine, OTHERS, GATEWAY) as (scheduler, gateway):
        tasks = [await scheduler.submit(parcel=f"P{number}") for number in range(3)]
        await machine.event("step.opened", task=tasks[-1].id)
        for _ in tasks:
            (request,) = await within(gateway.agents.take("shipping", 1, 0))
            await gateway.agents.report("shipping", succeeded(request))
        assert [await within(task.result()) for task in tasks] == ["B-1"] * 3
        assert await within(gateway.agents.take("shipping", 1, 0)) == ()  # and it does not wait longer than for that
    assert await machine.events("attempt.released") == []
    await machine.check()


async def test_a_poll_without_waiting_is_answered_although_the_store_does_not_answer(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arriero.runtime.remote_dispatcher.TAKE_SECONDS_MAX", 0.1)
    async with gateways(machine, GATEWAY) as (gateway,):
        taker = session_of(gateway.app).agents.taker
        monkeypatch.setattr(taker, "find_asking", lambda: taker.answered + 1_000)  # of a Take that is never answered
        assert await within(gateway.agents.take("shipping", 1, 0)) == ()


async def test_a_gateway_of_another_app_takes_nothing_for_an_attempt_that_is_not_its_own(machine: Machine) -> None:
    agent = Agent("shipping")

    @agent.step(remote=True, complete_within=15)
    def book(attempt: Attempt, parcel: str, pieces: int = 2) -> str: ...  # type: ignore[empty-body]  # of another type

    foreign = App("depot", agents=[agent], store=machine.url)
    foreign.session.settings = QUICK
    async with gateways(machine, ROLES) as (gateway,), foreign.running(roles=GATEWAY):
        task = await gateway.submit()
        request = await gateway.take_one()
        other = Gateway(foreign)
        await other.refused("capability-invalid", succeeded(request, "B-1"))
        for asked in (
            other.agents.extend("shipping", request.task, request.capability, 60),
            other.agents.release("shipping", request.task, request.capability),
        ):
            with pytest.raises(AgentRequestRefused, match="ask a gateway of 'machine'"):
                await asked
        await gateway.agents.report("shipping", succeeded(request))
        assert await within(task.result()) == "B-1"
    await machine.check()


async def test_a_program_reports_to_the_app_that_its_task_was_given_to_meanwhile(machine: Machine) -> None:
    heir = App("heir", agents=[shipping(), Agent("bank")], store=machine.url)
    heir.session.settings = QUICK
    async with gateways(machine, ROLES) as (gateway,), heir.running(roles=GATEWAY):
        task = await gateway.submit()
        request = await gateway.take_one()
        await handed_over(machine)
        store = gateway.app.session.store
        loaded = await store.find(task.id)
        assert loaded is not None
        (answer,) = await store.apply(
            [
                AssignApp(
                    actor="a", task_no=loaded.task.task_no, app="heir", from_app="machine", by="Ana", reason="it moves"
                )
            ]
        )
        assert isinstance(answer, Applied)
        await Gateway(heir).agents.report("shipping", succeeded(request))
        assert (await machine.event("step.report"))["verdict"] == "applied"


async def test_failures_that_come_to_another_process_open_the_breaker(machine: Machine) -> None:
    options = {"breaker": Breaker(minimum=2)}
    async with gateways(machine, ROLES, GATEWAY, **options) as (gateway, other):
        for number in range(2):
            await gateway.submit(parcel=f"P{number}")
        for request in [await gateway.take_one() for _ in range(2)]:
            await other.agents.report("shipping", failed(request, "unknown", message="down"))
        assert await machine.event("breaker.opened")


async def test_a_report_of_a_step_that_cannot_be_read_changes_nothing_and_counts_once_it_can(machine: Machine) -> None:
    async with gateways(machine, ROLES, GATEWAY) as (gateway, other):
        task = await gateway.submit()
        request = await gateway.take_one()
        (policy,) = _write_policies(machine, '{"supervision":{"attempts":"adaptive"}}')
        for report in (failed(request, "transient"), succeeded(request)):
            with pytest.raises(UnreadableRow, match="column policy of table step"):
                await other.agents.report("shipping", report)
        _write_policies(machine, policy)
        await other.agents.report("shipping", succeeded(request))
        assert await within(task.result()) == "B-1"
    await machine.check()


def _write_policies(machine: Machine, policy: str) -> list[str]:
    """Write the policy of every step. Returns those that stood there."""
    with closing(sqlite3.connect(machine.path)) as connection, connection:
        found = [row[0] for row in connection.execute("SELECT policy FROM arriero_step")]
        connection.execute("UPDATE arriero_step SET policy = ?", (policy,))
    return found


@pytest.mark.parametrize(
    ("what", "counted"),
    [
        ("silence", [("holder", "expired")]),
        ("report", [("other", "succeeded")]),
        ("report twice", [("other", "succeeded")]),
        ("extension", [("other", "succeeded")]),
    ],
)
async def test_a_call_is_counted_once_although_its_holder_does_not_know_yet_what_came_to_another_process(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, what: str, counted: list[tuple[str, str]]
) -> None:
    agent = Agent("shipping")

    @agent.step(remote=True, complete_within=1, supervision=Supervision(attempts=1))
    def book(attempt: Attempt, parcel: str) -> Booking: ...  # type: ignore[empty-body]

    app = machine_app(machine, agent)
    async with app.running(roles=ROLES), gateways(machine, GATEWAY) as (other,):
        # The holder is not to find by itself what came to the other process.
        monkeypatch.setattr("arriero.runtime.remote_dispatcher.LOOK_SECONDS", 1e9)
        calls: list[tuple[str, str]] = []
        for name, gateway in (("holder", Gateway(app)), ("other", other)):
            monkeypatch.setattr(
                session_of(gateway.app).agents.hosted["shipping"].breakers,
                "note_call",
                lambda _step, call, name=name, **_: calls.append((name, call.end)),
            )
        task = await Gateway(app).submit()
        request = await Gateway(app).take_one()
        capability = request.capability
        if what == "extension":
            capability = (await other.agents.extend("shipping", request.task, capability, 4)).capability
        elif what != "silence":
            await other.agents.report("shipping", succeeded(request))
        if what == "report twice":
            await Gateway(app).refused("report-duplicate", succeeded(request))
        hosts = session_of(app).agents
        await until(lambda: not hosts.in_flight and not hosts.remote.is_busy())
        if what == "extension":
            await other.agents.report("shipping", succeeded(request, capability=capability))
        await within(task.result())
    assert calls == counted


async def test_an_attempt_whose_gateway_dies_as_it_is_delivered_is_taken_again_and_nobody_is_blamed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arriero.runtime.remote_dispatcher.LOOK_SECONDS", 1e9)  # the store is not told of the delivery
    async with gateways(machine, OTHERS, GATEWAY, GATEWAY) as (scheduler, doomed, other):
        task = await scheduler.submit()
        request = await doomed.take_one()
        await session_of(doomed.app).abandon(retire=True)
        again = await other.take_one()
        assert (again.attempt, again.idempotency_key) == (1, request.idempotency_key)
        await other.refused("report-stale", succeeded(request))
        await other.agents.report("shipping", succeeded(again))
        assert await within(task.result()) == "B-1"
    assert len(await machine.events("step.lost")) == 1
    assert await machine.events("task.lost") == []  # no code of the task ran in a gateway
    await machine.check()


async def handed_over(machine: Machine, count: int = 1) -> None:
    """Wait until the store knows that so many programs hold their attempts."""

    async def look() -> bool | None:
        return len(await machine.events("attempt.delivered")) >= count or None

    await eventually(look)


async def test_a_program_keeps_its_attempt_through_the_loss_of_every_gateway(machine: Machine) -> None:
    async with gateways(machine, OTHERS) as (scheduler,):
        task = await scheduler.submit()
        request = None
        for _ in range(4):  # more than a task survives of processes that are lost with it
            async with gateways(machine, GATEWAY) as (doomed,):
                if request is None:
                    request = await doomed.take_one()
                    await handed_over(machine)
                await session_of(doomed.app).abandon(retire=True)
        async with gateways(machine, GATEWAY) as (last,):
            await last.agents.extend("shipping", request.task, request.capability, 60)
            await last.agents.report("shipping", succeeded(request))
            assert await within(task.result()) == "B-1"
            await last.refused("report-duplicate", succeeded(request))
    assert await machine.events("step.lost", "task.lost", "recover.applied") == []
    await machine.check()


async def test_a_delivered_attempt_that_is_released_by_way_of_another_process_goes_to_the_next_program(
    machine: Machine,
) -> None:
    async with gateways(machine, ROLES, GATEWAY) as (gateway, other):
        task = await gateway.submit()
        request = await gateway.take_one()
        await handed_over(machine)
        await other.agents.release("shipping", request.task, request.capability)
        again = await gateway.take_one()
        assert (again.attempt, again.idempotency_key) == (1, request.idempotency_key)
        await gateway.agents.report("shipping", succeeded(again))
        assert await within(task.result()) == "B-1"
        await until(lambda: not session_of(gateway.app).agents.in_flight)  # also of the first one
    await machine.check()


async def test_cancel_takes_the_attempt_from_its_program_and_undoes_at_once(machine: Machine) -> None:
    async with gateways(machine, ROLES) as (gateway,):
        task = await gateway.submit()
        request = await gateway.take_one()
        await handed_over(machine)
        await task.cancel(by="Ana", reason="the customer has left")
        undo = await gateway.take_one()
        assert (undo.kind, undo.outcome, undo.forward_key) == ("compensation", "unknown", request.idempotency_key)
        await gateway.refused("report-stale", succeeded(request))
        await gateway.agents.report("shipping", failed(undo, "succeeded"))
        with pytest.raises(TaskCompensated):
            await within(task.result())
        assert session_of(gateway.app).agents.count_leaked_places() == 0
    await machine.check()


async def test_a_person_takes_an_attempt_from_its_program_by_saying_that_it_did_not_happen(machine: Machine) -> None:
    async with gateways(machine, ROLES) as (gateway,):
        task = await gateway.submit()
        request = await gateway.take_one()
        await handed_over(machine)
        await task.answer(step="book", did_not_happen=True, by="Ana", reason="its machine has burnt")
        again = await gateway.take_one()
        assert (again.attempt, again.idempotency_key) == (1, request.idempotency_key)
        await gateway.refused("report-stale", succeeded(request))
        await gateway.agents.report("shipping", succeeded(again))
        assert await within(task.result()) == "B-1"
    await machine.check()


@pytest.mark.parametrize("verb", ["report", "extend", "release"])
async def test_a_process_that_drains_takes_what_programs_say_and_gives_nothing_out(machine: Machine, verb: str) -> None:
    go = asyncio.Event()
    agent = Agent("slow")

    @agent.step
    async def wait(attempt: Attempt) -> None:
        await go.wait()

    app = machine.app([shipping(), agent], [])
    async with gateways(machine, OTHERS) as (scheduler,), app:
        running = app.running(agents=["shipping", "slow"], roles=("http", "agents", "scheduler"))
        await running.__aenter__()
        gateway = Gateway(app)
        await app.submit(wait())
        task = await scheduler.submit()
        request = await gateway.take_one()
        await machine.event("step.dispatched", task=task.id)
        waiting = asyncio.create_task(gateway.agents.take("shipping", 1, 30))
        hosts = session_of(app).agents
        await until(lambda: hosts.hosted["shipping"].count_wanted() == 2)
        await until(lambda: len(hosts.in_flight) == 2)
        leaving = asyncio.create_task(running.__aexit__(None, None, None))
        assert await within(waiting) == ()
        await handed_over(machine)
        with pytest.raises(AgentRequestRefused, match="ask another one"):
            await gateway.agents.take("shipping")
        assert not leaving.done()  # it waits for what it carries out itself
        if verb == "report":
            await gateway.agents.report("shipping", succeeded(request))
            assert await within(task.result()) == "B-1"
        elif verb == "extend":
            term = await gateway.agents.extend("shipping", request.task, request.capability, 60)
            assert term.remaining_ms > 50_000
        else:
            await gateway.agents.release("shipping", request.task, request.capability)
            assert await machine.event("attempt.released")
        go.set()
        await within(leaving)
        with pytest.raises(AgentRequestRefused) as refusal:
            await gateway.agents.release("shipping", request.task, request.capability)
        assert refusal.value.code == "gateway-not-running"
    assert await machine.events("step.lost", "task.lost") == []
    await machine.check(complete=False)


async def test_a_drain_does_not_wait_for_programs_and_another_process_takes_their_reports(machine: Machine) -> None:
    async with gateways(machine, OTHERS) as (scheduler,):
        async with gateways(machine, GATEWAY) as (gateway,):
            tasks = [await scheduler.submit(parcel=f"P{number}") for number in range(3)]
            requests = [await gateway.take_one() for _ in tasks]
        # it has drained, and nobody has reported
        async with gateways(machine, GATEWAY) as (other,):
            for request in requests:
                await other.agents.report("shipping", succeeded(request))
            assert [await within(task.result()) for task in tasks] == ["B-1"] * 3
    assert await machine.events("step.lost", "task.lost", "recover.applied") == []
    await machine.check()
