"""What a live Agent answers after its time is kept once, with its value, and changes nothing."""

import asyncio
import threading
from typing import Any

import msgspec
import pytest
from runtime_world import Machine, eventually, session_of, until, within

from arriero import Agent, App, Attempt, Permanent, Retry, StoreError, Supervision, Transient, workflow
from arriero.model import LateAnswerRow, later
from arriero.model.commands import AnyCommand, Report

ONCE: dict[str, Any] = {"retry": Retry(tries=1), "supervision": Supervision(attempts=4)}


def answering(machine: Machine, agent: Agent, step: Any) -> tuple[App, Any]:
    """An App with one workflow that awaits the step once."""

    @workflow
    async def ask_once() -> int:
        return await step()  # type: ignore[no-any-return]

    return machine.app([agent], [ask_once]), ask_once


async def late_answers(app: App, count: int = 1) -> list[LateAnswerRow]:
    """Wait until so many are kept of the first task."""

    async def look() -> list[LateAnswerRow] | None:
        found = await app.session.store.late_answers(1)
        return found if len(found) >= count else None

    return await eventually(look)


async def verdicts(machine: Machine) -> list[str]:
    return [event["verdict"] for event in await machine.events("step.report")]


def swallowing(after: str, given: asyncio.Event | None = None) -> tuple[Agent, Any]:
    """A step whose first call is cancelled and answers all the same; its second one answers at once."""
    agent = Agent("stubborn")

    @agent.step(complete_within=0.4, **ONCE)
    async def stubborn(attempt: Attempt) -> int:
        if attempt.number > 1:
            return 2
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if given is not None:
                await given.wait()
            if after == "transient":
                raise Transient("the bank was busy") from None
            if after == "permanent":
                raise Permanent("the bank said no", code="declined") from None
            if after == "unknown":
                raise ValueError("no idea") from None
        return 1

    return agent, stubborn


async def test_a_cancelled_call_that_answers_after_all_is_kept_and_changes_nothing(machine: Machine) -> None:
    app, ask_once = answering(machine, *swallowing("value"))
    async with app.running(roles=["scheduler", "agents"]):  # no Supervisor: the attempt is still the one that counts
        task = await app.submit(ask_once())
        (answer,) = await late_answers(app)
        loaded = await app.session.store.find(task.id)
        assert loaded is not None
        (step,) = loaded.steps
        assert (str(step.state), step.attempt, step.failure_count) == ("running", 1, 0)
        async with machine.app([], []).running(roles=["supervisor"]):
            assert await within(task.result()) == 2
    assert (answer.attempt, answer.verdict, answer.outcome, answer.answer) == (1, "late", "succeeded", "1")
    # Its process counts the time from before the commit left, so it is over there a little before the store's is.
    assert answer.answered_at >= later(answer.complete_by, -1.0)
    assert await verdicts(machine) == ["late", "applied"]
    await machine.check()


@pytest.mark.parametrize(
    ("after", "says"),
    [("transient", "the bank was busy"), ("permanent", "the bank said no"), ("unknown", "ValueError: no idea")],
)
async def test_a_cancelled_call_that_fails_after_all_is_kept_with_its_failure(
    machine: Machine, after: str, says: str
) -> None:
    app, ask_once = answering(machine, *swallowing(after))
    async with app.running():
        task = await app.submit(ask_once())
        assert await within(task.result()) == 2
        (answer,) = await late_answers(app)
    failure = msgspec.json.decode(answer.answer)
    assert (answer.outcome, failure["cause"], failure["message"]) == ("failed", after, says)
    await machine.check()


async def test_an_answer_that_comes_while_the_next_attempt_or_the_end_has_been_there_is_kept_as_stale(
    machine: Machine,
) -> None:
    given = asyncio.Event()
    app, ask_once = answering(machine, *swallowing("value", given))
    async with app.running():
        task = await app.submit(ask_once())
        assert await within(task.result()) == 2
        given.set()
        (answer,) = await late_answers(app)
        assert (answer.verdict, answer.attempt, answer.answer) == ("stale", 1, "1")
        assert (await task.view()).state == "processed"
    assert await verdicts(machine) == ["applied", "stale"]
    await machine.check()


async def test_an_answer_after_the_task_was_undone_is_kept_and_leaves_it_undone(machine: Machine) -> None:
    given = asyncio.Event()
    agent = Agent("stubborn")

    @agent.step(complete_within=0.1, retry=Retry(tries=1), supervision=Supervision(attempts=1), effect_free=True)
    async def stubborn(attempt: Attempt) -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await given.wait()
        return 1

    app, ask_once = answering(machine, agent, stubborn)
    async with app.running():
        task = await app.submit(ask_once())

        async def undone() -> bool | None:
            return True if (await task.view()).state == "compensated" else None

        await eventually(undone)
        given.set()
        (answer,) = await late_answers(app)
        assert (answer.verdict, answer.answer) == ("stale", "1")
        assert (await task.view()).state == "compensated"
    await machine.check()


@pytest.mark.parametrize("outcome", ["value", "error"])
async def test_a_plain_function_that_outlives_its_time_in_its_thread_is_heard_and_holds_its_place(
    machine: Machine, outcome: str
) -> None:
    agent, go = Agent("plain", max_in_flight=2), threading.Event()

    @agent.step(complete_within=0.4, **ONCE)
    def plain(attempt: Attempt) -> int:
        if attempt.number == 1:
            go.wait()
            if outcome == "error":
                raise Transient("the bank was busy")
        return min(attempt.number, 2)

    app, ask_once = answering(machine, agent, plain)
    async with app.running():
        task = await app.submit(ask_once())
        try:
            assert await within(task.result()) == 2
            agents = session_of(app).agents
            assert agents.count_leaked_places() == 1  # as long as its function goes on
        finally:
            go.set()
        (answer,) = await late_answers(app)
        await until(lambda: agents.count_leaked_places() == 0)
    assert (answer.attempt, answer.outcome) == (1, "succeeded" if outcome == "value" else "failed")
    assert ("busy" in answer.answer) == (outcome == "error")
    assert sorted(await verdicts(machine)) == ["applied", "stale"]
    await machine.check()


async def test_a_late_answer_is_offered_once_and_is_lost_with_the_answer_of_its_commit(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, ask_once = answering(machine, *swallowing("value"))
    offered: list[AnyCommand] = []
    async with app.running(roles=["scheduler", "agents"]):
        committer = session_of(app).committer
        write = committer._write

        async def refusing(batch: Any) -> Any:
            late = [command for command in batch if isinstance(command, Report) and command.late]
            offered.extend(late)
            if late:
                raise StoreError("the test keeps it away")
            return await write(batch)

        monkeypatch.setattr(committer, "_write", refusing)
        task = await app.submit(ask_once())
        await until(lambda: offered)
        async with machine.app([], []).running(roles=["supervisor"]):
            assert await within(task.result()) == 2
        assert await app.session.store.late_answers(1) == []
    assert len(offered) == 1
    await machine.check()


async def test_an_attempt_that_is_told_to_be_late_is_still_not_begun_a_second_time(machine: Machine) -> None:
    """Until it is recovered, its row shows it as running here."""
    app, ask_once = answering(machine, *swallowing("value"))
    async with app.running(roles=["scheduler", "agents"]):
        task = await app.submit(ask_once())
        (answer,) = await late_answers(app)
        loaded = await app.session.store.find(task.id)
        assert loaded is not None
        assert (loaded.steps[0].step_no, answer.fence) in session_of(app).agents.registry
        async with machine.app([], []).running(roles=["supervisor"]):
            assert await within(task.result()) == 2
    await machine.check()


async def test_an_attempt_that_is_dropped_in_its_time_says_nothing_though_its_thread_answers(machine: Machine) -> None:
    agent, go, began = Agent("plain"), threading.Event(), threading.Event()

    @agent.step(complete_within=60, **ONCE)
    def plain(attempt: Attempt) -> int:
        began.set()
        go.wait()
        return 1

    app, ask_once = answering(machine, agent, plain)
    try:
        async with app.running():
            await app.submit(ask_once())
            await until(began.is_set)
            session = session_of(app)
            session.agents.abandon()
            go.set()
            await until(lambda: not session.agents.is_busy())
    finally:
        go.set()
    assert await verdicts(machine) == []
