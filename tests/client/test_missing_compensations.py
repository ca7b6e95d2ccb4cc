"""An App that undoes its tasks says, when it is first opened, which of its steps nothing undoes."""

from typing import Any

import pytest
from runtime_world import Machine

from arriero import Agent, App, MissingCompensationWarning, testing, workflow

pytestmark = pytest.mark.filterwarnings("error::arriero.MissingCompensationWarning")


def build_agents(*, with_undo: bool = True, **options: Any) -> list[Agent]:
    """Build a service whose charge is undone, and a stock whose step ``reserve`` has these options and no compensation."""
    payments, stock = Agent("payments"), Agent("stock")

    @payments.step
    def charge() -> None: ...

    if with_undo:

        @charge.compensation
        def refund() -> None: ...

    @stock.step(**options)
    def reserve() -> None: ...

    return [payments, stock]


@workflow
async def fulfil() -> None: ...


def open_app(app: App) -> None:
    with app.sync:
        pass


def test_an_app_with_a_step_that_nothing_undoes_names_it_and_the_ways_out_once(machine: Machine) -> None:
    shop = App("shop", agents=build_agents(), workflows=[fulfil], store=machine.url)
    with pytest.warns(MissingCompensationWarning) as warned:
        open_app(shop)
        open_app(shop)
    (one,) = warned
    text = str(one.message)
    assert "App shop: nothing undoes the step reserve of Agent stock." in text
    for way in ("@STEP.compensation", "effect_free=True", "pivot=True"):
        assert way in text
    assert (one.filename, one.lineno) == (__file__, open_app.__code__.co_firstlineno + 6)  # where the App is made


def test_compensations_that_are_declared_below_the_app_count(machine: Machine) -> None:
    payments, stock = build_agents()
    shop = App("shop", agents=[payments, stock], workflows=[fulfil], store=machine.url)

    @stock.steps["reserve"].compensation
    def release() -> None: ...

    open_app(shop)


@pytest.mark.parametrize("option", ["effect_free", "pivot"])
def test_a_step_that_needs_no_undo_is_not_named(option: str, machine: Machine) -> None:
    open_app(App("shop", agents=build_agents(**{option: True}), workflows=[fulfil], store=machine.url))


def test_an_app_that_undoes_nothing_or_runs_nothing_does_not_warn(machine: Machine) -> None:
    open_app(App("shop", agents=build_agents(with_undo=False), workflows=[fulfil], store=machine.url))
    open_app(App("shop", agents=build_agents(), store=machine.url))


async def test_an_app_that_declares_its_own_warns_when_it_is_opened(machine: Machine) -> None:
    def build(*, complete: bool) -> App:
        shop = App("shop", store=f"sqlite:///{machine.path}")
        stock = shop.service("stock")

        @stock.step
        def reserve() -> None: ...

        @shop.workflow
        async def take() -> None:
            await reserve()

        @stock.step
        def pick() -> None: ...

        @pick.compensation
        def put_back() -> None: ...

        if complete:

            @reserve.compensation
            def release() -> None: ...

        return shop

    async with build(complete=True):
        pass
    shop = build(complete=False)
    with pytest.warns(MissingCompensationWarning, match="nothing undoes the step reserve of Agent stock"):
        async with shop:
            pass


async def test_the_first_world_of_a_test_says_it_and_the_next_one_does_not_say_it_again() -> None:
    app = App("shop", agents=build_agents(), workflows=[fulfil])
    with pytest.warns(MissingCompensationWarning, match="App shop: nothing undoes the step reserve") as warned:
        async with testing.running(app):
            pass
    assert [one.filename for one in warned] == [__file__]
    async with testing.running(app) as world:
        await world.app.execute(fulfil())
