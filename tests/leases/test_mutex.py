"""The mutex: who works, for how long it trusts its lease, and what becomes of work whose lease is lost."""

import asyncio
import logging
import random
import sqlite3
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from arriero import DefinitionError, InvalidInput, LeadershipLost, LeaseRefused, LeaseUnavailable
from arriero.leases import (
    DistributedMutex,
    DurationRange,
    Leadership,
    Lease,
    LeaseConnection,
    LeaseGrant,
    LeaseSignal,
    LeaseView,
    open_lease,
)
from arriero.testing.clock import VirtualClock

DURATION = 10.0
TRUST = 8.0  # of it; the rest is the margin
TURNS = 30  # of the event loop, after which everybody waits for the clock


class Machine:
    """Ports whose clock the test moves; what runs in a thread elsewhere runs on the loop, step by step."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.random = random.Random(1)
        self._numbers = count(1)

    runs_inline = True

    def new_instance(self) -> str:
        return f"contender-{next(self._numbers)}"

    async def run_in_thread(
        self, pool: str, size: int, function: Callable[[], Any], on_done: Callable[[], None]
    ) -> Any:
        return await asyncio.to_thread(function)

    async def settle(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def move(self, seconds: float) -> None:
        """Let so much time pass; what is due meanwhile happens at its time."""
        until = self.clock.monotonic() + seconds
        await self.settle()
        while (due := self.clock.next_timer()) is not None and due <= until:
            self.clock.jump_to(due)
            await self.settle()
        self.clock.jump_to(until)
        await self.settle()


class ScriptedLease(Lease):
    """A lease whose answers are as the test says.

    Attributes:
        is_free: whether the next one who asks gets it.
        answers: of the next renewals: True, False, or an error; True once there are none left.
        answer_seconds: that each request takes.
    """

    name, provider = "scripted", "test"
    durations = DurationRange(1, 60)

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.is_free = True
        self.answers: list[bool | Exception] = []
        self.acquire_error: Exception | None = None
        self.connect_error: Exception | None = None
        self.answer_seconds = 0.0
        self.holder = ""
        self.term = 0
        self.renewed_at: list[float] = []
        self.released: list[int] = []
        self.signals: asyncio.Queue[LeaseSignal] = asyncio.Queue()

    async def connect(self) -> "ScriptedConnection":
        if self.connect_error is not None:
            raise self.connect_error
        return ScriptedConnection(self)


class ScriptedConnection(LeaseConnection):
    def __init__(self, lease: ScriptedLease) -> None:
        self.lease = lease

    async def acquire(self, holder: str, duration: float | None) -> LeaseGrant | None:
        lease = self.lease
        if lease.answer_seconds:
            await lease.machine.clock.sleep(lease.answer_seconds)
        if lease.acquire_error is not None:
            raise lease.acquire_error
        if not lease.is_free:
            return None
        lease.is_free, lease.holder, lease.term = False, holder, lease.term + 1
        return LeaseGrant(lease.name, holder, lease.term)

    async def renew(self, grant: LeaseGrant, duration: float | None) -> bool:
        lease = self.lease
        lease.renewed_at.append(lease.machine.clock.monotonic())
        if lease.answer_seconds:
            await lease.machine.clock.sleep(lease.answer_seconds)
        answer = lease.answers.pop(0) if lease.answers else True
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def release(self, grant: LeaseGrant) -> None:
        self.lease.released.append(grant.term)
        self.lease.is_free = True

    async def inspect(self) -> LeaseView:
        return LeaseView(name=self.lease.name, provider="test", holder=self.lease.holder, term=self.lease.term)

    async def break_lease(self, actor: str, reason: str, *, at_once: bool = False) -> LeaseView:
        raise NotImplementedError

    async def wait_for_change(self, seconds: float) -> None:
        await self.lease.machine.clock.sleep(seconds)

    async def wait_for_signal(self, grant: LeaseGrant) -> LeaseSignal:
        return await self.lease.signals.get()


class Work:
    """Work that waits until the test ends it; it keeps what happened."""

    def __init__(self) -> None:
        self.terms: list[Leadership] = []
        self.cancelled: list[int] = []
        self.done = asyncio.Event()

    async def __call__(self, leadership: Leadership) -> str:
        self.terms.append(leadership)
        try:
            await self.done.wait()
        except asyncio.CancelledError:
            self.cancelled.append(leadership.term)
            raise
        return f"done in term {leadership.term}"

    @property
    def last(self) -> Leadership:
        return self.terms[-1]


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def lease(machine: Machine) -> ScriptedLease:
    return ScriptedLease(machine)


@pytest.fixture
async def work() -> Work:
    return Work()


def mutex(lease: ScriptedLease, **options: Any) -> DistributedMutex:
    return DistributedMutex(lease, ports=lease.machine, **{"duration": DURATION, **options})  # type: ignore[arg-type]


async def begun(running: Coroutine[Any, Any, Any], machine: Machine) -> "asyncio.Task[Any]":
    task = asyncio.get_running_loop().create_task(running)
    await machine.settle()
    return task


async def test_the_work_runs_once_under_a_term_and_its_result_comes_back(
    machine: Machine, lease: ScriptedLease, work: Work
) -> None:
    running = await begun(mutex(lease).run_once(work), machine)
    assert (work.last.term, work.last.name, work.last.holder) == (1, "scripted", "contender-1")
    assert work.last.is_held()
    work.done.set()
    assert await running == "done in term 1"
    assert lease.released == [1]
    assert not work.last.is_held(), "it was given back"


async def test_a_contender_waits_while_another_one_holds_the_lease(
    machine: Machine, lease: ScriptedLease, work: Work
) -> None:
    lease.is_free = False
    running = await begun(mutex(lease).run_once(work), machine)
    await machine.move(60)
    assert not work.terms
    lease.is_free = True
    await machine.move(1)
    assert work.last.is_held()
    work.done.set()
    await running


async def test_a_renewal_leaves_in_less_than_a_third_of_the_duration(
    machine: Machine, lease: ScriptedLease, work: Work
) -> None:
    began = machine.clock.monotonic()
    running = await begun(mutex(lease).run_once(work), machine)
    await machine.move(60)
    gaps = [late - early for early, late in zip([began, *lease.renewed_at], lease.renewed_at, strict=False)]
    assert 0.25 * DURATION < min(gaps) <= max(gaps) < DURATION / 3
    assert work.last.is_held()
    work.done.set()
    await running


async def test_run_contends_again_when_the_work_has_come_to_its_end(machine: Machine, lease: ScriptedLease) -> None:
    terms: list[int] = []

    async def short(leadership: Leadership) -> None:
        terms.append(leadership.term)

    one = mutex(lease)
    running = await begun(one.run(short), machine)
    assert terms == [1]
    for _ in range(3):
        await machine.move(2)
    assert terms == [1, 2, 3, 4]
    one.stop()
    await running
    assert lease.released == terms


async def test_work_whose_lease_is_refused_is_cancelled_and_begins_again_under_the_next_term(
    machine: Machine, lease: ScriptedLease, work: Work
) -> None:
    lost: list[tuple[int, str]] = []
    one = mutex(lease, on_lost=lambda leadership, why: lost.append((leadership.term, why)))
    running = await begun(one.run_once(work), machine)
    lease.answers = [False]
    await machine.move(DURATION / 3)
    assert work.cancelled == [1]
    assert not work.last.is_held()
    assert lost == [(1, "the provider refused the renewal: the lease lapsed, was broken, or is another's")]
    assert not lease.released, "it is another's by now"
    lease.is_free = True
    await machine.move(1)
    assert work.last.term == 2
    work.done.set()
    assert await running == "done in term 2"


async def test_without_an_answer_trust_ends_before_the_lease_lapses_and_the_work_is_cancelled(
    machine: Machine, lease: ScriptedLease, work: Work
) -> None:
    running = await begun(mutex(lease).run_once(work), machine)
    lease.answers = [LeaseUnavailable("cut off")] * 1_000
    await machine.move(TRUST - 0.01)
    assert work.last.is_held()
    assert not work.cancelled
    await machine.move(0.02)
    assert not work.last.is_held()
    assert work.cancelled == [1]
    assert "no renewal was answered in time" in work.last.why_lost
    assert not lease.released, "nobody knows whose it is"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_trust_counts_from_when_the_request_left_not_from_the_answer(
    machine: Machine, lease: ScriptedLease, work: Work
) -> None:
    lease.answer_seconds = 3.0
    running = await begun(mutex(lease).run_once(work), machine)
    await machine.move(3.0)
    assert work.last.seconds_left == pytest.approx(TRUST - 3.0)
    work.done.set()
    await machine.move(5.0)
    await running


async def test_a_grant_whose_answer_came_too_late_to_trust_it_is_given_back(
    machine: Machine, lease: ScriptedLease, work: Work
) -> None:
    lease.answer_seconds = TRUST + 0.1
    running = await begun(mutex(lease).run_once(work), machine)
    await machine.move(TRUST + 0.2)
    assert not work.terms
    assert lease.released == [1]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_one_renewal_that_fails_costs_nothing(machine: Machine, lease: ScriptedLease, work: Work) -> None:
    running = await begun(mutex(lease).run_once(work), machine)
    lease.answers = [LeaseUnavailable("cut off"), TimeoutError()]
    await machine.move(3 * DURATION)
    assert work.last.is_held()
    work.done.set()
    assert await running == "done in term 1"


# --- a leader that hangs
async def test_without_a_proof_of_progress_renewal_stops_and_another_one_may_lead(
    machine: Machine, lease: ScriptedLease, work: Work
) -> None:
    running = await begun(mutex(lease, progress_within=5).run_once(work), machine)
    await machine.move(4)
    work.last.beat()
    await machine.move(4)
    work.last.beat()
    await machine.move(5)
    assert work.last.is_held()
    await machine.move(DURATION)
    assert work.cancelled == [1]
    assert "no proof of progress" in work.last.why_lost
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_proof_of_progress_that_comes_late_brings_renewal_back_while_the_lease_is_trusted(
    machine: Machine, lease: ScriptedLease, work: Work
) -> None:
    running = await begun(mutex(lease, progress_within=5).run_once(work), machine)
    await machine.move(7.9)
    work.last.beat()
    await machine.move(3)
    assert work.last.is_held()
    assert not work.cancelled
    work.done.set()
    await running


# --- what a provider tells by itself
async def test_an_interrupted_connection_stops_trust_at_once_and_a_renewal_brings_it_back(
    machine: Machine, lease: ScriptedLease, work: Work
) -> None:
    running = await begun(mutex(lease).run_once(work), machine)
    lease.answers = [LeaseUnavailable("cut off")] * 4
    lease.signals.put_nowait(LeaseSignal.SUSPENDED)
    await machine.settle()
    assert not work.last.is_held()
    assert not work.cancelled, "the connection may come back"
    with pytest.raises(LeadershipLost, match="term 1"):
        work.last.raise_if_lost()
    await machine.move(4)
    assert work.last.is_held()
    work.last.raise_if_lost()
    work.done.set()
    await running


async def test_a_session_that_the_provider_ended_ends_the_term_at_once(
    machine: Machine, lease: ScriptedLease, work: Work
) -> None:
    running = await begun(mutex(lease).run_once(work), machine)
    lease.signals.put_nowait(LeaseSignal.LOST)
    await machine.settle()
    assert work.cancelled == [1]
    assert "its session ended" in work.last.why_lost
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


# --- the end
async def test_stop_cancels_the_work_and_gives_the_lease_back(
    machine: Machine, lease: ScriptedLease, work: Work
) -> None:
    one = mutex(lease)
    running = await begun(one.run(work), machine)
    one.stop()
    await running
    assert (work.cancelled, lease.released) == ([1], [1])


@pytest.mark.parametrize("turns", range(6))
async def test_a_stop_that_comes_together_with_a_renewal_or_a_signal_is_not_lost(
    machine: Machine, lease: ScriptedLease, work: Work, turns: int
) -> None:
    one = mutex(lease)
    running = await begun(one.run(work), machine)
    lease.signals.put_nowait(LeaseSignal.SUSPENDED)
    for _ in range(turns):
        await asyncio.sleep(0)
    one.stop()
    await machine.settle()
    await machine.settle()
    assert running.done()
    assert lease.released == [1]


async def test_stop_ends_the_wait_for_a_lease(machine: Machine, lease: ScriptedLease, work: Work) -> None:
    lease.is_free = False
    one = mutex(lease)
    running = await begun(one.run_once(work), machine)
    one.stop()
    assert await running is None
    assert not work.terms


async def test_a_cancelled_run_waits_for_its_work_and_gives_the_lease_back(
    machine: Machine, lease: ScriptedLease
) -> None:
    last_words = asyncio.Event()

    async def slow_to_stop(leadership: Leadership) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await last_words.wait()

    running = await begun(mutex(lease).run(slow_to_stop), machine)
    running.cancel()
    await machine.settle()
    assert not running.done()
    assert not lease.released, "the work is not over"
    last_words.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert lease.released == [1]


async def test_what_the_work_raises_comes_out_after_the_lease_was_given_back(
    machine: Machine, lease: ScriptedLease
) -> None:
    async def broken(leadership: Leadership) -> None:
        raise ValueError("no such file")

    with pytest.raises(ValueError, match="no such file"):
        await mutex(lease).run(broken)
    assert lease.released == [1]


async def test_a_plain_function_that_lost_its_lease_is_waited_for_before_this_contends_again(
    machine: Machine, lease: ScriptedLease
) -> None:
    terms: list[int] = []
    may_look = asyncio.Event()
    loop = asyncio.get_running_loop()

    def plain(leadership: Leadership) -> str:
        terms.append(leadership.term)
        if leadership.term == 1:
            asyncio.run_coroutine_threadsafe(may_look.wait(), loop).result()
            leadership.raise_if_lost()
        return f"done in term {leadership.term}"

    running = await begun(mutex(lease).run_once(plain), machine)
    while not terms:
        await asyncio.sleep(0)
    lease.answers = [False]
    lease.is_free = True
    await machine.move(DURATION)
    assert terms == [1]
    assert lease.term == 1, "it must not hold the lease beside a function of its own"
    may_look.set()
    while not running.done():
        await machine.move(0.1)
    assert await running == "done in term 2"


async def test_what_the_callbacks_raise_is_logged_and_the_work_goes_on(
    machine: Machine, lease: ScriptedLease, work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    async def on_elected(leadership: Leadership) -> None:
        raise RuntimeError("the pager is off")

    work.done.set()
    assert await mutex(lease, on_elected=on_elected).run_once(work) == "done in term 1"
    assert "the pager is off" in caplog.text


# --- trouble with the provider
async def test_a_provider_that_cannot_be_reached_at_the_start_is_waited_for(
    machine: Machine, lease: ScriptedLease, work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    lease.connect_error = LeaseUnavailable("nobody listens")
    running = await begun(mutex(lease).run_once(work), machine)
    await machine.move(600)
    assert "lease scripted: the provider cannot be reached: nobody listens" in caplog.text
    assert len(caplog.records) < 150, "a line, then counts"
    lease.connect_error = None
    await machine.move(3)
    assert work.last.is_held()
    work.done.set()
    await running


async def test_a_provider_that_refuses_the_lease_ends_the_run_with_its_reason(
    machine: Machine, lease: ScriptedLease, work: Work
) -> None:
    lease.acquire_error = LeaseRefused("wrong credentials")
    with pytest.raises(LeaseRefused, match="wrong credentials"):
        await mutex(lease).run(work)


# --- settings
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"duration": 0.5}, r"test takes 1 to 60 s"),
        ({"duration": 61}, r"test takes 1 to 60 s"),
        ({"duration": None}, r"knows no lease without an end"),
        ({"duration": "long"}, r"duration of a mutex is 'long'"),
        ({"duration": float("nan")}, r"duration of a mutex is nan"),
        ({"progress_within": 2.5}, r"give more than 2.86 s"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_construction(
    lease: ScriptedLease, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((DefinitionError, InvalidInput), match=message):
        mutex(lease, **options)


def test_a_mutex_needs_a_lease() -> None:
    with pytest.raises(DefinitionError, match=r"open_lease"):
        DistributedMutex("nightly")  # type: ignore[arg-type]


async def test_a_mutex_runs_one_work_at_a_time(machine: Machine, lease: ScriptedLease, work: Work) -> None:
    one = mutex(lease)
    running = await begun(one.run_once(work), machine)
    with pytest.raises(InvalidInput, match="runs already"):
        await one.run_once(work)
    work.done.set()
    await running


# --- on a real clock
async def test_work_that_blocks_the_event_loop_does_not_cost_the_lease(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def block(leadership: Leadership) -> bool:
        connection = sqlite3.connect(path)
        seen = set()
        while len(seen) < 6:  # the loop stands still until five renewals have been written
            seen.add(connection.execute("SELECT until FROM arriero_lease WHERE name = 'nightly'").fetchone())
        connection.close()
        return leadership.is_held()

    assert await DistributedMutex(open_lease(f"sqlite:///{path}", "nightly"), duration=1.0).run_once(block) is True


async def test_two_contenders_on_one_store_never_work_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    url = f"sqlite:///{tmp_path / 'store.db'}"
    at_work: list[int] = []
    terms: list[int] = []

    async def work(leadership: Leadership) -> None:
        at_work.append(leadership.term)
        for _ in range(50):
            await asyncio.sleep(0)
            assert at_work == [leadership.term]
        terms.append(leadership.term)
        at_work.remove(leadership.term)

    async def contend() -> None:
        for _ in range(5):
            await DistributedMutex(open_lease(url, "nightly"), duration=5.0).run_once(work)

    await asyncio.gather(*(contend() for _ in range(3)))
    assert terms == list(range(1, 16))
    assert not caplog.records
