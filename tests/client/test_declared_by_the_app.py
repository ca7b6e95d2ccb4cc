"""Agents and workflows that an App declares for itself, and tasks that it executes in one call."""

import asyncio
from datetime import timedelta

import pytest
from runtime_world import Machine, within

from arriero import (
    Agent,
    App,
    DefinitionError,
    InvalidInput,
    Permanent,
    Retry,
    Supervision,
    TaskCompensated,
    TaskExists,
    TaskFailed,
    TaskHeld,
    testing,
    workflow,
)


def build_shop(store: str | None = None) -> App:
    """Build a shop whose workflows are ``fulfil`` and ``hold``."""
    shop = App("shop", store=store)
    payments = shop.service("payments", max_in_flight=3, breaker=None)

    @payments.step
    def charge(order: str) -> str:
        return f"receipt-{order}"

    @charge.compensation
    def refund(order: str) -> None: ...

    @payments.step(effect_free=True, retry=Retry(tries=1), supervision=Supervision(attempts=1))
    def check(order: str) -> None:
        if order.startswith("bad"):
            raise Permanent("out of stock")

    @shop.workflow
    async def fulfil(order: str) -> str:
        receipt = await charge(order)
        await check(order)
        return receipt

    @shop.workflow(name="hold", supervision=Supervision(then="hold"))
    async def hold_it(order: str) -> str:
        raise Permanent("no")

    return shop


# --- app.service and app.workflow
async def test_what_an_app_declares_runs(machine: Machine) -> None:
    shop = build_shop(f"sqlite:///{machine.path}")
    fulfil, _ = shop.workflows
    assert [agent.max_in_flight for agent in shop.agents] == [3]
    async with shop.running():
        assert await within(shop.execute(fulfil("1"))) == "receipt-1"
        assert await within(shop.execute(shop.agents[0].steps["charge"]("2"))) == "receipt-2"


async def test_a_world_runs_what_an_app_declares() -> None:
    shop = build_shop()
    async with testing.running(shop) as world:
        assert await world.app.execute(shop.workflows[0]("1")) == "receipt-1"


def test_an_app_has_both_what_it_is_given_and_what_it_declares() -> None:
    given = Agent("given")

    @given.step
    def pack(order: str) -> None: ...

    @workflow
    async def send(order: str) -> None:
        await pack(order)

    shop = App("shop", agents=[given], workflows=[send])
    own = shop.service("own")

    @shop.workflow
    async def keep(order: str) -> None: ...

    assert shop.agents == (given, own)
    assert shop.workflows == (send, keep)


def test_a_name_is_declared_once() -> None:
    shop = build_shop()
    with pytest.raises(DefinitionError, match="two Agents are named 'payments'"):
        shop.service("payments")
    with pytest.raises(DefinitionError, match="two workflows are named 'fulfil'"):
        shop.workflow(name="fulfil")(shop.workflows[1].function)
    assert (len(shop.agents), len(shop.workflows)) == (1, 2)


async def test_two_agents_with_a_step_of_one_name_are_refused_when_the_app_opens(machine: Machine) -> None:
    shop = App("shop", store=f"sqlite:///{machine.path}")
    for name in ("a", "b"):
        shop.service(name).step(name="same")(lambda: None)
    with pytest.raises(DefinitionError, match="two steps are named 'same'"):
        async with shop:
            pass
    assert shop.session.users == 0


async def test_nothing_is_declared_while_the_app_is_open(machine: Machine) -> None:
    shop = build_shop(f"sqlite:///{machine.path}")

    async def late(order: str) -> None: ...

    async with shop:
        with pytest.raises(DefinitionError, match="workflow late was declared while App shop is open.*before"):
            shop.workflow(late)
        with pytest.raises(DefinitionError, match="Agent late was declared while App shop is open"):
            shop.service("late")
        payments = shop.agents[0]
        with pytest.raises(DefinitionError, match="step late was declared while App shop is open"):
            payments.step(late)
        with pytest.raises(
            DefinitionError, match="the compensation of step charge was declared while App shop is open"
        ):
            payments.steps["charge"].compensation(late)
        with pytest.raises(DefinitionError, match="the probe of Agent payments was declared while App shop is open"):
            payments.probe(late)
        with pytest.raises(DefinitionError, match="schedule nightly was declared while App shop is open"):
            shop.schedule("nightly", shop.workflows[0]("1"), every=60)
        with pytest.raises(DefinitionError, match="on_alert function .*late was declared while App shop is open"):
            shop.on_alert(late)
    assert shop.workflow(late).name == "late"
    async with shop:
        assert "late" in shop.session.codes


def test_a_service_takes_and_shows_the_options_of_an_agent() -> None:
    with pytest.raises(DefinitionError, match="max_in_flight is 0"):
        App("shop").service("payments", max_in_flight=0)
    with pytest.raises(TypeError, match="max_inflight"):
        App("shop").service("payments", max_inflight=0)  # type: ignore[call-arg]


def test_a_schedule_may_name_a_step_that_was_declared_after_the_app() -> None:
    shop = build_shop()
    shop.schedule("nightly", shop.agents[0].steps["charge"]("1"), every=60)
    shop.schedule("hourly", shop.workflows[0]("1"), every=3600)
    assert set(shop.session.schedules) == {"nightly", "hourly"}


# --- app.execute
async def test_execute_again_with_the_same_id_answers_by_the_same_task(machine: Machine) -> None:
    shop = build_shop(f"sqlite:///{machine.path}")
    fulfil, hold = shop.workflows
    async with shop.running():
        both = await within(asyncio.gather(*(shop.execute(fulfil("1"), task_id="t") for _ in range(2))))
        assert both == ["receipt-1", "receipt-1"]
        assert await shop.tasks().count() == 1
        with pytest.raises(TaskExists):
            await shop.execute(hold("1"), task_id="t")


async def test_execute_raises_what_became_of_the_task() -> None:
    shop = build_shop()
    fulfil, hold = shop.workflows
    async with testing.running(shop) as world:
        with pytest.raises(TaskCompensated, match="out of stock"):
            await world.app.execute(fulfil("bad"))
        with pytest.raises(TaskHeld) as held:
            await world.app.execute(hold("1"))
    assert held.value.state == "held"


async def test_who_stops_waiting_leaves_the_task_as_it_is(machine: Machine) -> None:
    shop = build_shop(f"sqlite:///{machine.path}")
    (fulfil, _) = shop.workflows
    async with shop:  # nobody runs it
        with pytest.raises(TimeoutError):
            await shop.execute(fulfil("1"), task_id="t", timeout=timedelta(0))
        waiting = asyncio.create_task(shop.execute(fulfil("1"), task_id="t"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await shop.task("t").view()).state == "pending"
    async with shop.running():
        assert await within(shop.execute(fulfil("1"), task_id="t")) == "receipt-1"


async def test_a_bad_timeout_submits_nothing(machine: Machine) -> None:
    shop = build_shop(f"sqlite:///{machine.path}")
    async with shop:
        with pytest.raises(InvalidInput, match="timeout"):
            await shop.execute(shop.workflows[0]("1"), timeout=-1)
        assert await shop.tasks().count() == 0


def test_execute_without_a_loop(machine: Machine) -> None:
    shop = build_shop(f"sqlite:///{machine.path}")
    with shop.sync.running():
        assert shop.sync.execute(shop.workflows[0]("1"), task_id="t", timeout=60) == "receipt-1"
        with pytest.raises(TaskCompensated):
            shop.sync.execute(shop.workflows[0]("bad"))


# --- what it raises
def test_a_task_that_was_undone_and_one_that_is_held_are_two_kinds_of_one() -> None:
    assert issubclass(TaskCompensated, TaskFailed)
    assert issubclass(TaskHeld, TaskFailed)
    assert not issubclass(TaskCompensated, TaskHeld)
    assert not issubclass(TaskHeld, TaskCompensated)
