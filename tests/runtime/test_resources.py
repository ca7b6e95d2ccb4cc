"""Resources: opened where the Agent is hosted, used by its steps, closed after drain."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from runtime_world import Machine, session_of, until, within

from arriero import Agent, ArrieroError, Attempt, Permanent, TaskCompensated, Undo, workflow


class Bank:
    """An Agent with two resources, and what became of them."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.go = asyncio.Event()
        agent = self.agent = Agent("bank")
        log, go = self.log, self.go

        @agent.resource
        async def client() -> AsyncIterator[str]:
            log.append("client opens")
            yield "client"
            log.append("client closes")

        @agent.resource
        def ledger() -> Iterator[list[str]]:
            log.append("ledger opens")
            yield log
            log.append("ledger closes")

        @agent.step
        async def ask(attempt: Attempt) -> str:
            log.append("ask")
            await go.wait()
            ledger().append("asked")
            return client()

        @ask.compensation
        def unask(undo: Undo[str]) -> None:
            ledger().append(f"unasked in {threading.current_thread().name.partition('_')[0]} with {client()}")

        @agent.step
        def look(attempt: Attempt) -> str:
            ledger().append("looked")
            return f"{client()} in {threading.current_thread().name.partition('_')[0]}"

        self.client, self.ask, self.look = client, ask, look


async def test_they_are_open_in_steps_of_both_kinds_and_in_compensations(machine: Machine) -> None:
    bank = Bank()
    bank.go.set()

    @workflow
    async def doomed() -> None:
        await bank.ask()
        raise Permanent("no")

    app = machine.app([bank.agent], [doomed])
    async with app.running():
        assert await within((await app.submit(bank.ask())).result()) == "client"
        assert await within((await app.submit(bank.look())).result()) == "client in arriero-bank"
        with pytest.raises(TaskCompensated):
            await within((await app.submit(doomed())).result())
    assert bank.log[:2] == ["client opens", "ledger opens"]
    assert bank.log[-2:] == ["ledger closes", "client closes"]
    assert "unasked in arriero-bank with client" in bank.log


async def test_they_are_closed_only_after_the_last_attempt_has_ended(machine: Machine) -> None:
    bank = Bank()
    app = machine.app([bank.agent])
    running = app.running()
    await running.__aenter__()
    await app.submit(bank.ask())
    await until(lambda: "ask" in bank.log)
    closing = asyncio.create_task(running.__aexit__(None, None, None))
    await until(lambda: app.session.node is None)
    assert "client closes" not in bank.log
    bank.go.set()
    await within(closing)
    assert bank.log == ["client opens", "ledger opens", "ask", "asked", "ledger closes", "client closes"]


async def test_a_process_that_does_not_host_the_agent_opens_nothing(machine: Machine) -> None:
    bank, other = Bank(), Agent("other")
    app = machine.app([bank.agent, other])
    async with app.running(agents=["other"]):
        pass
    async with app.running(roles=["scheduler", "supervisor"]):
        pass
    async with app:
        pass
    assert bank.log == []


async def test_outside_of_a_step_a_resource_says_where_it_is_open(machine: Machine) -> None:
    bank = Bank()
    app = machine.app([bank.agent])
    async with app.running():
        with pytest.raises(ArrieroError, match="client.. is open only inside steps of Agent 'bank'"):
            bank.client()


async def test_a_resource_that_cannot_be_opened_stops_the_start_and_leaves_nothing_behind(machine: Machine) -> None:
    bank = Bank()

    @bank.agent.resource
    async def broken() -> AsyncIterator[str]:
        raise ConnectionError("no bank today")
        yield "never"

    app = machine.app([bank.agent])
    before = asyncio.all_tasks()
    with pytest.raises(ConnectionError, match="no bank today"):
        async with app.running():
            raise AssertionError("never reached")
    assert bank.log == ["client opens", "ledger opens", "ledger closes", "client closes"]
    assert asyncio.all_tasks() == before
    assert app.session._store is None
    bank.agent.resources.pop()
    bank.go.set()
    async with app.running():
        assert await within((await app.submit(bank.ask())).result()) == "client"
    assert len(await machine.events("process.retired")) == 2


async def test_a_process_that_begins_again_opens_them_again(machine: Machine) -> None:
    bank = Bank()
    bank.go.set()
    app = machine.app([bank.agent])
    async with app.running():
        first = session_of(app)
        await first._store.retire(first.context.process_no, by="test", known_dead=True)
        await until(lambda: bank.log.count("client opens") == 2)
        assert await within((await app.submit(bank.ask())).result()) == "client"
    assert [line for line in bank.log if "client" in line] == ["client opens", "client closes"] * 2
