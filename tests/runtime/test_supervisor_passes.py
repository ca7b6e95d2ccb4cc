"""Recovery, the leader's lease and upkeep have passes of their own: what holds up one of them holds up no other."""

import asyncio
import random
from typing import Any

import pytest
from core_rows import NOW, step_row
from runtime_world import Machine, session_of, until, within

from arriero import Agent, Attempt, Retry, StoreError, Supervision, workflow
from arriero.client.assembly import run_node
from arriero.config import Configuration
from arriero.model import Instant
from arriero.model.answers import Applied
from arriero.model.leases import LeaseRow
from arriero.runtime import upkeep as upkeep_module
from arriero.runtime.leader import PASS_SECONDS_MAX, Leader
from arriero.runtime.process_context import ProcessContext
from arriero.runtime.settings import Settings, check_roles
from arriero.runtime.supervisor import ANSWER_SECONDS, Supervisor
from arriero.runtime.upkeep import Upkeep
from arriero.store.contract import Overdue
from arriero.store.sqlite.store import SqliteStore

slow = Agent("slow")


@slow.step(complete_within=0.1, supervision=Supervision(attempts=9, complete_within_factor=10), retry=Retry(tries=1))
async def hang_once(attempt: Attempt) -> int:
    if attempt.number == 1:
        await asyncio.Event().wait()
    return attempt.number


@workflow
async def once() -> int:
    return await hang_once()


class Ports:
    """A clock moved by hand, on which nothing lasts."""

    def __init__(self) -> None:
        self.clock = self
        self.random = random.Random(1)
        self.at = 100.0
        self.idled: list[float] = []

    def monotonic(self) -> float:
        return self.at

    async def idle(self, event: asyncio.Event, seconds: float) -> None:
        self.idled.append(seconds)
        await asyncio.sleep(0)


# --- upkeep
@pytest.mark.parametrize("hung", ["drop_statuses", "look_at_forgotten", "list_ledgers", "take_alerts"])
async def test_upkeep_or_alerts_that_hang_delay_no_recovery(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, hung: str
) -> None:
    hangs = asyncio.Event()

    async def hang(*_args: Any, **_kwargs: Any) -> Any:
        hangs.set()
        await asyncio.Event().wait()

    store = SqliteStore(str(machine.path))
    monkeypatch.setattr(store, hung, hang)
    app = machine.app([slow], [once])
    async with run_node(app.session, store, check_roles(None), app.agents, Configuration()):
        await within(hangs.wait())
        renewed = session_of(app).leader._renewed_at
        assert await within((await app.submit(once())).result()) >= 2
        await until(lambda: session_of(app).leader._renewed_at > renewed)


async def test_a_duty_of_upkeep_that_fails_keeps_the_others_from_nothing_and_is_tried_again_later() -> None:
    done: list[str] = []

    class Store:
        def now(self) -> int:
            return 0

        async def list_ledgers(self, *_args: Any, **_kwargs: Any) -> list[Any]:
            done.append("ledgers")
            raise MemoryError

        async def look_at_forgotten(self) -> int:
            done.append("convoys")
            raise MemoryError

        async def drop_statuses(self, *_args: Any) -> int:
            done.append("statuses")
            return 0

    ports = Ports()
    kept: Any = Upkeep(store=Store(), ports=ports, replies_keep_seconds=1.0)  # type: ignore[arg-type]  # as far as needed
    await kept.tick()
    await kept.tick()
    assert done == ["ledgers", "convoys", "statuses"]
    ports.at += upkeep_module.AGAIN_SECONDS
    await kept.tick()
    assert done[3:] == ["ledgers", "convoys"]


async def test_upkeep_is_done_by_the_leader_only(machine: Machine) -> None:
    first, second = machine.app([slow], [once]), machine.app([slow], [once])
    ticks: list[str] = []
    async with first.running():
        await until(lambda: session_of(first).leader.is_leading())
        async with second.running():
            for name, app in (("first", first), ("second", second)):
                upkeep = session_of(app)._plan.upkeep
                assert upkeep is not None
                upkeep.tick = lambda name=name: _note(ticks, name)  # type: ignore[method-assign,misc]  # bound now
            await until(lambda: len(ticks) >= 2)
    assert set(ticks) == {"first"}


async def _note(ticks: list[str], name: str) -> None:
    ticks.append(name)


# --- recovery
class Committer:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Any]] = []

    def put(self, command: Any, on_answer: Any) -> None:
        self.asked.append((command, on_answer))


class Steps:
    """Steps that expired, as a store tells of them."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    async def load_overdue(self, limit: int, progress_seconds: float, ahead_seconds: float) -> Overdue:
        return Overdue(NOW, tuple(map(step_row, self.numbers)), (), (), ())


def context_of(store: Any, ports: Any, committer: Any = None) -> ProcessContext:
    context = ProcessContext(store=store, committer=committer, ports=ports, settings=Settings(), actor="a")
    context.process_no = 1
    return context


async def test_a_decision_whose_answer_does_not_come_holds_up_no_pass_and_is_not_asked_for_twice() -> None:
    store, committer, ports = Steps(1, 2), Committer(), Ports()
    supervisor = Supervisor(context_of(store, ports, committer))
    assert await within(supervisor.tick(1)) == 0
    assert ports.idled == [ANSWER_SECONDS]
    (_, first), (_, second) = committer.asked
    second(Applied(task=None))  # type: ignore[arg-type]  # nobody looks at it
    store.numbers = (1, 2, 3)
    assert await within(supervisor.tick(1)) == 0
    assert [command.step_no for command, _ in committer.asked] == [
        1001,
        1002,
        1002,
        1003,
    ]  # the first one is still on its way
    first(RuntimeError("it could not be written"))
    assert await within(supervisor.tick(1)) == 0
    assert [command.step_no for command, _ in committer.asked][4:] == [1001]
    assert supervisor.refused == 1


class Leases:
    """Gives everybody the lease."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def acquire_lease(self, name: str, process_no: int, actor: str, seconds: float) -> LeaseRow:
        self.calls.append("acquire")
        return LeaseRow(name, len(self.calls), process_no, Instant(0))

    async def renew_lease(self, *_args: Any) -> bool:
        self.calls.append("renew")
        return True

    async def release_lease(self, *_args: Any) -> None:
        self.calls.append("release")


async def test_a_long_pass_costs_no_lease_and_one_that_hangs_gives_it_back_until_it_ends() -> None:
    leases, ports, ends = Leases(), Ports(), asyncio.Event()

    async def work(_term: int) -> int:
        await ends.wait()
        return 0

    leader = Leader(context_of(leases, ports), work)
    await leader._keep()
    recovering = asyncio.create_task(leader.recover())
    await until(lambda: leader._pass_since is not None)
    ports.at += Settings().leader_seconds / 2
    await leader._keep()
    assert leases.calls == ["acquire", "renew"]
    assert leader.is_leading()
    ports.at += PASS_SECONDS_MAX
    await leader._keep()
    await leader._keep()
    assert leases.calls == ["acquire", "renew", "release"]
    ends.set()
    await until(lambda: leader._pass_since is None)
    await leader._keep()
    assert leases.calls[3:] == ["acquire"]
    recovering.cancel()


async def test_a_leader_waits_as_long_as_the_last_pass_says_and_the_shortest_period_while_it_fails_or_does_not_lead() -> (
    None
):
    leases, ports, settings = Leases(), Ports(), Settings()
    broken = asyncio.Event()
    passes = 0

    async def work(_term: int) -> int:
        nonlocal passes
        passes += 1
        if broken.is_set():
            raise StoreError("it does not answer")
        return 0

    leader = Leader(context_of(leases, ports), work, period=lambda: 1.75)
    recovering = asyncio.create_task(leader.recover())
    await until(lambda: len(ports.idled) > 0)
    assert ports.idled[0] == settings.supervise_seconds  # nobody leads yet
    await leader._keep()
    await until(lambda: passes > 1)
    assert ports.idled[-1] == 1.75
    broken.set()
    seen = passes
    await until(lambda: passes > seen + 2)
    assert ports.idled[-1] == settings.supervise_seconds
    recovering.cancel()
