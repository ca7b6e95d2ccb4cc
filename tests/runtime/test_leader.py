"""One Supervisor leads at a time, under a term that only grows; the next takes over when it leaves or falls silent."""

import asyncio
from typing import Any

import msgspec
import pytest
from runtime_world import QUICK, SECONDS_MAX, Machine, session_of, until, within

from arriero import Agent, App, Attempt, Retry, StoreError, Supervision, workflow
from arriero.model import Instant
from arriero.model.answers import Refusal
from arriero.model.commands import Recover
from arriero.model.failures import StepFailure
from arriero.model.leases import LeaseRow
from arriero.model.moves import RetryAsked
from arriero.runtime.leader import Leader
from arriero.runtime.process_context import ProcessContext

slow = Agent("slow")


@slow.step(complete_within=0.1, supervision=Supervision(attempts=9, complete_within_factor=10), retry=Retry(tries=1))
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
        assert await within((await second.submit(once())).result()) >= 2
        assert term_of(second) is None
        await leading.__aexit__(None, None, None)
        await until(lambda: term_of(second) == 2)
        assert await within((await second.submit(once())).result()) >= 2
    expired = await machine.events("step.expired")
    assert list(dict.fromkeys(event["term"] for event in expired)) == [1, 2]
    await machine.check()


async def test_who_waits_to_lead_takes_over_at_once_when_the_leader_leaves_and_does_not_wait_for_its_period(
    machine: Machine,
) -> None:
    patient = msgspec.structs.replace(QUICK, supervise_seconds=10 * SECONDS_MAX, leader_seconds=100 * SECONDS_MAX)
    first, second = (machine.app([slow], [once], settings=patient) for _ in range(2))
    leading = first.running()
    await leading.__aenter__()
    await until(lambda: term_of(first) == 1)
    async with second.running():
        await until(lambda: session_of(second).leader.led_by is not None)
        await leading.__aexit__(None, None, None)
        await until(lambda: term_of(second) == 2)
    await machine.check()


async def test_a_decision_of_a_former_leader_is_counted_and_told_in_the_log(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = machine.app([slow], [once]), machine.app([slow], [once])
    async with first.running():
        await until(lambda: term_of(first) == 1)
        supervisor, store = session_of(first).supervisor, first.session.store
        load_overdue, loaded, go_on = store.load_overdue, asyncio.Event(), asyncio.Event()

        async def load_and_pause(*args: Any) -> Any:
            overdue = await load_overdue(*args)
            if overdue.expired and not go_on.is_set():
                loaded.set()
                await go_on.wait()
            return overdue

        async def leave_it_to_others(*_args: Any) -> Any:
            raise StoreError("store: cut off")

        store.load_overdue = load_and_pause  # type: ignore[method-assign]
        store.acquire_lease = leave_it_to_others  # type: ignore[method-assign]
        task = await first.submit(once())
        await within(loaded.wait())
        await session_of(first).leader.resign()
        async with second.running(roles=["supervisor"]):
            await until(lambda: term_of(second) == 2)
            await machine.event("step.expired", term=2)
            go_on.set()
            await until(lambda: supervisor.refused_terms)
            refused = await machine.event("leader.refused")
            assert (refused["term"], refused["current"]) == (1, 2)
            assert (await store.count_refused_terms())[0] == 1
            assert await within(task.result()) >= 2
    assert "another process leads, so a decision made here changed nothing: term 1, by now it is 2" in caplog.text
    await machine.check()


async def test_a_leader_that_falls_silent_is_followed_after_its_lease_and_its_old_term_writes_nothing(
    machine: Machine,
) -> None:
    first, second = machine.app([slow], [once]), machine.app([slow], [once])
    async with first.running():
        await until(lambda: term_of(first) == 1)
        async with second.running():
            assert first.session._store is not None

            async def no_answer(*_args: Any, **_kwargs: Any) -> Any:
                raise StoreError("store: cut off")

            first.session._store.renew_lease = first.session._store.acquire_lease = no_answer  # type: ignore[method-assign]
            await until(lambda: term_of(second) == 2)
            assert term_of(first) is None  # it stopped by itself, before the other could begin
            task = await second.submit(once())
            dispatched = await machine.event("step.dispatched", task=task.id)
            loaded = await second.session.store.find(task.id)
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
            (answer,) = await first.session._store.apply([old])
            assert isinstance(answer, Refusal)
            assert answer.verdict == "old_term"
            assert await within(task.result()) >= 2
            del first.session._store.renew_lease, first.session._store.acquire_lease
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
            assert await within(task.result()) >= 2
    assert {event["process"] for event in await machine.events("lease.granted")} == {2}


# --- what a leader believes
class Lease:
    """A lease whose answers take as long as the test says, on the clock of the one who asks; terms worked under."""

    def __init__(self) -> None:
        self.at = 100.0
        self.term = 0
        self.acquiring: list[float] = []  # seconds that the next answers take
        self.renewals: list[bool] = []  # the next answers; True when there are none left
        self.is_free = True
        self.worked: list[int] = []
        self.clock = self

    # the clock
    def monotonic(self) -> float:
        return self.at

    # the store
    async def acquire_lease(self, name: str, process_no: int, actor: str, seconds: float) -> LeaseRow:
        self.at += self.acquiring.pop(0) if self.acquiring else 0.0
        self.term += 1
        return LeaseRow(name, self.term, process_no if self.is_free else process_no + 1, Instant(0))

    async def renew_lease(self, name: str, process_no: int, term: int, seconds: float) -> bool:
        return self.renewals.pop(0) if self.renewals else True

    # the one who asks
    async def _work(self, term: int) -> int:
        self.worked.append(term)
        return 0

    async def passes(self, count: int) -> list[int]:
        """Terms that a leader worked under in so many passes."""
        common: Any = {"store": self, "committer": None, "ports": self, "settings": QUICK}
        context = ProcessContext(**common, actor="leader")
        context.process_no = 1
        leader = Leader(context, self._work)
        for _ in range(count):
            await leader._keep()
            await leader.make_pass()
            self.at += QUICK.supervise_seconds
        return self.worked


async def test_under_a_lease_whose_answer_came_when_its_trust_was_over_nothing_is_decided() -> None:
    lease = Lease()
    lease.acquiring = [QUICK.leader_seconds]
    assert await lease.passes(2) == [2]


async def test_a_leader_works_while_it_renews_and_is_over_with_a_renewal_that_is_refused() -> None:
    passes_per_renewal = round(QUICK.leader_seconds / 3 / QUICK.supervise_seconds)
    lease = Lease()
    assert set(await lease.passes(3 * passes_per_renewal)) == {1}
    lease = Lease()
    lease.renewals = [False]
    lease.acquiring = [0.0] * 10
    worked = await lease.passes(2 * passes_per_renewal)
    assert set(worked) == {1, 2}
    assert len(worked) == 2 * passes_per_renewal - 1  # the pass that was refused decides nothing


async def test_who_is_told_that_another_leads_decides_nothing() -> None:
    lease = Lease()
    lease.is_free = False
    assert await lease.passes(3) == []
