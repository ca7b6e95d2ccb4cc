"""One Supervisor leads at a time, under a term that only grows; the next takes over when it leaves or falls silent."""

import asyncio
from typing import Any

from runtime_world import Machine, session_of, until, within

from arriero import Agent, App, Attempt, Retry, StoreError, Supervision, workflow
from arriero.commands import Recover, Refusal, RetryAsked
from arriero.model import StepFailure

slow = Agent("slow")


@slow.step(complete_within=0.1, supervision=Supervision(attempts=3), retry=Retry(tries=1))
async def hang_once(attempt: Attempt) -> int:
    if attempt.number == 1:
        await asyncio.Event().wait()
    return attempt.number


@workflow
async def once() -> int:
    return await hang_once()


def term_of(app: App) -> int | None:
    return session_of(app).leader.term


async def test_of_two_one_leads_and_the_other_takes_over_with_a_higher_term_when_it_leaves(machine: Machine) -> None:
    first, second = machine.app([slow], [once]), machine.app([slow], [once])
    leading = first.running()
    await leading.__aenter__()
    await until(lambda: term_of(first) == 1)
    async with second.running():
        assert await within((await second.submit(once())).result()) == 2
        assert term_of(second) is None
        await leading.__aexit__(None, None, None)
        await until(lambda: term_of(second) == 2)
        assert await within((await second.submit(once())).result()) == 2
    expired = await machine.events("step.expired")
    assert [event["term"] for event in expired] == [1, 2]
    await machine.check()


async def test_a_leader_that_falls_silent_is_followed_after_its_lease_and_its_old_term_writes_nothing(
    machine: Machine,
) -> None:
    first, second = machine.app([slow], [once]), machine.app([slow], [once])
    async with first.running():
        await until(lambda: term_of(first) == 1)
        async with second.running():
            assert first._store is not None

            async def no_answer(*_args: Any, **_kwargs: Any) -> Any:
                raise StoreError("store: cut off")

            first._store.renew_lease = first._store.acquire_lease = no_answer  # type: ignore[method-assign]
            await until(lambda: term_of(second) == 2)
            assert term_of(first) is None  # it stopped by itself, before the other could begin
            task = await second.submit(once())
            dispatched = await machine.event("step.dispatched", task=task.id)
            loaded = await second._store_open().find(task.id)
            assert loaded is not None
            outcome = RetryAsked(StepFailure("expired"), True, loaded.steps[0].opened_at)
            old = Recover(
                actor="old",
                step_no=loaded.steps[0].step_no,
                fence=dispatched["fence"],
                starved=False,
                outcome=outcome,
                term=1,
            )
            (answer,) = await first._store.apply([old])
            assert isinstance(answer, Refusal)
            assert answer.verdict == "old_term"
            assert await within(task.result()) == 2
            del first._store.renew_lease, first._store.acquire_lease
    await machine.check()


async def test_a_leader_keeps_its_term_while_it_renews(machine: Machine) -> None:
    app = machine.app([slow], [once])
    async with app.running():
        await until(lambda: term_of(app) == 1)
        leader = session_of(app).leader
        renewed = leader._renewed_at
        await until(lambda: leader._renewed_at > renewed)
        renewed = leader._renewed_at
        await until(lambda: leader._renewed_at > renewed)
        assert leader.term == 1
    assert [event["term"] for event in await machine.events("lease.granted")] == [1]
    assert [event["term"] for event in await machine.events("lease.lost")] == [1]


async def test_a_process_without_the_role_never_leads(machine: Machine) -> None:
    app = machine.app([slow], [once])
    async with app.running(roles=["scheduler", "agents"]):
        task = await app.submit(once())
        await machine.event("step.dispatched", task=task.id)
        async with machine.app([slow], [once]).running(roles=["supervisor"]):
            assert await within(task.result()) == 2
    assert {event["process"] for event in await machine.events("lease.granted")} == {2}
