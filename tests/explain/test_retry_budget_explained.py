"""Explanations of retries that wait for the retry budget of their Agent."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from click.testing import CliRunner
from runtime_world import Machine, eventually, session_of
from server_world import TOKENS, FixedTokens

from arriero import Agent, App, Attempt, Retry, Supervision, Transient, Workflow, testing, workflow
from arriero.cli.main import commands
from arriero.core.routing import AgentReport, HeldRetries, encode_reports
from arriero.explain.agents import describe_held_tries, describe_spent_retry_budget
from arriero.explain.outages import diagnose_attempts
from arriero.inspection.attempts import AttemptSurvey, Requests
from arriero.model import Instant, later
from arriero.model.processes import ProcessAbout, ProcessRow
from arriero.server.application import build_application
from arriero.testing import World

NOW = Instant(1_000_000_000_000)
SPENT = (
    ": at most 20% of its calls in a process may be retries, with a burst of 10 and 1 more each second; waiting spends no"
    " attempt and no try; see why its calls fail: arriero agent show bank"
)


def refusing(tries: int, **options: Any) -> tuple[Agent, Workflow[Any, Any]]:
    """A bank that refuses every call, and a workflow that asks it."""
    bank = Agent("bank", breaker=None, **options)

    @bank.step(
        retry=Retry(tries=tries, delay=0.1),
        supervision=Supervision(attempts=1_000),
        complete_within=60,
        effect_free=True,
    )
    async def charge(attempt: Attempt, order: int) -> int:
        raise Transient("busy")

    @workflow
    async def order(number: int) -> int:
        return await charge(number)

    return bank, order


@asynccontextmanager
async def open_http(world: World) -> AsyncIterator[httpx2.AsyncClient]:
    """Open the HTTP API of a world whose process has just renewed its lease; by itself it never does."""
    session = session_of(world.app)
    report = encode_reports(session.agents.router.report_room())
    await world.app.session.store.renew(session.context.process_no, 1e9, report)
    transport = httpx2.ASGITransport(app=build_application(world.app, FixedTokens()))
    headers = {"Authorization": f"Bearer {TOKENS['admin']}"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as http:
        yield http


@asynccontextmanager
async def refused_orders(count: int, tries: int, seconds: float, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A world with orders that were refused. Yields a client of its HTTP API."""
    bank, order = refusing(tries, **options)
    async with testing.running(App("shop", agents=[bank], workflows=[order])) as world:
        for number in range(count):
            await world.app.submit(order(number), task_id=f"order-{number}")
        await world.clock.advance(seconds)
        async with open_http(world) as http:
            yield http


async def read_reasons(http: httpx2.AsyncClient, count: int, kind: str) -> list[str]:
    """What the HTTP API says of the orders whose step waits or runs."""
    found: list[str] = []
    for number in range(count):
        answer = (await http.get(f"/v1/tasks/order-{number}/explain")).raise_for_status().json()
        found += [reason["says"] for reason in answer["reasons"] if reason["kind"] == kind]
    return found


async def test_an_attempt_that_waits_in_the_store_for_the_budget_is_explained_with_numbers_and_the_next_command() -> (
    None
):
    async with refused_orders(60, tries=1, seconds=3) as http:
        waiting = await read_reasons(http, 60, "untaken")
        assert len(waiting) > 20
        for says in waiting:
            assert "the retry budget of Agent bank is spent at process 1" in says
            assert SPENT in says
            assert "has no room" not in says


async def test_an_attempt_whose_next_try_waits_for_the_budget_is_explained() -> None:
    async with refused_orders(60, tries=3, seconds=2) as http:
        running = await read_reasons(http, 60, "running")
        assert running
        assert all(
            "attempts of Agent bank there wait for its retry budget before the next try: at most" in says
            for says in running
        )


async def test_without_a_budget_nothing_is_said_of_one() -> None:
    async with refused_orders(30, tries=1, seconds=3, retry_budget=None) as http:
        assert not [
            says
            for kind in ("untaken", "running", "retry")
            for says in await read_reasons(http, 30, kind)
            if "budget" in says
        ]


async def test_a_first_attempt_that_waits_for_a_place_does_not_name_the_budget() -> None:
    bank = Agent("bank", breaker=None, max_in_flight=1)
    gate = asyncio.Event()

    @bank.step(effect_free=True)
    async def charge(attempt: Attempt) -> None:
        await gate.wait()

    @workflow
    async def order() -> None:
        await charge()

    async with testing.running(App("shop", agents=[bank], workflows=[order])) as world:
        world.replace(charge, lambda: gate.wait())
        for number in range(3):
            await world.app.submit(order(), task_id=f"order-{number}")
        await world.clock.advance(6)
        async with open_http(world) as http:
            waiting = await read_reasons(http, 3, "untaken")
        gate.set()
    assert len(waiting) == 2
    assert not [says for says in waiting if "budget" in says]


async def test_the_command_line_says_the_same_of_a_store_in_a_file(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "machine.db")
    bank, order = refusing(tries=1)
    app = machine.app([bank], [order])
    async with app.running(store=machine.url):
        for number in range(40):
            await app.submit(order(number), task_id=f"order-{number}")

        async def ask() -> str | None:
            said = await asyncio.to_thread(
                CliRunner().invoke, commands, ["task", "explain", "order-39", "--json", "--store", machine.url]
            )
            found = [
                reason["says"] for reason in json.loads(said.stdout)["reasons"] if "retry budget" in reason["says"]
            ]
            return found[0] if found else None

        assert SPENT in await eventually(ask)


# --- several processes
def process(number: int, report: AgentReport | None) -> ProcessRow:
    about = ProcessAbout(app="shop", roles=("agents",), steps=(("bank", "charge"),))
    room = "" if report is None else encode_reports({"bank": report})
    return ProcessRow(number, f"p{number}", later(NOW, 90), False, msgspec.json.encode(about).decode(), room)


HELD = HeldRetries(0.05, leaves_attempts=True, tries=0)


def test_only_where_no_process_with_room_may_retry_the_budget_is_named() -> None:
    spent, free = process(1, AgentReport(3, 10, held=HELD)), process(2, AgentReport(3, 10))
    full = process(3, AgentReport(0, 10))
    assert "is spent at process 1 (p1): at most 5% of its calls" in describe_spent_retry_budget([spent], "bank")
    assert "is spent at process 1 (p1): " in describe_spent_retry_budget([spent, full], "bank")
    assert describe_spent_retry_budget([spent, free], "bank") == ""
    assert describe_spent_retry_budget([full], "bank") == ""
    assert describe_spent_retry_budget([process(4, None)], "bank") == ""


def test_a_single_try_that_waits_is_counted_as_one() -> None:
    report = AgentReport(3, 10, held=HeldRetries(0.2, leaves_attempts=False, tries=1))
    assert describe_held_tries(process(1, report), "bank").startswith(
        "1 attempt of Agent bank there waits for its retry budget"
    )
    assert describe_held_tries(process(1, AgentReport(3, 10, held=HELD)), "bank") == ""


def test_the_doctor_names_the_budget_and_not_the_places_where_later_attempts_wait_for_it() -> None:
    requests = (Requests(agent="bank", due=7, oldest_at=later(NOW, -90)),)
    survey = AttemptSurvey(now=NOW, retrying=(), ends=(), ends_from=None, requests=requests)
    (found,) = [
        finding
        for finding in diagnose_attempts(survey, [process(1, AgentReport(3, 10, held=HELD))])
        if finding.about == "starved"
    ]
    assert "the retry budget of Agent bank is spent at process 1 (p1)" in found.says
    assert "places" not in found.says
    assert found.remedy.startswith("repair the service, or raise Agent('bank', retry_budget=...)")
