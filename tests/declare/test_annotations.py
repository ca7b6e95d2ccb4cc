"""Types under ``from __future__ import annotations``: of the module, of a function, and defined further down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from arriero import Agent, App, Attempt, DefinitionError, Undo, workflow

if TYPE_CHECKING:
    from somewhere import Unknown  # type: ignore[import-not-found]

remote = Agent("remote")


@dataclass
class Order:
    id: str
    parts: list[Order]


@remote.step
async def charge(attempt: Attempt, order: Order, *, later: Later | None = None) -> Later: ...


@charge.compensation
async def refund(undo: Undo[Later], order: Order, *, later: Later | None = None) -> None: ...


@workflow
async def fulfil(order: Order, later: Later) -> Later: ...


@dataclass
class Later:
    number: int


def test_a_type_of_the_module_is_found() -> None:
    order = Order("a", [Order("b", [])])
    assert charge.signature.arguments(charge(order).arguments) == {"order": order}


def test_a_type_defined_further_down_is_found_at_the_first_use() -> None:
    order = Order("a", [])
    assert charge.signature.arguments(charge(order, later=Later(1)).arguments)["later"] == Later(1)
    assert charge.signature.result('{"number":3}') == Later(3)
    assert fulfil.signature.arguments(fulfil(order, Later(2)).arguments) == {"order": order, "later": Later(2)}
    assert charge.undone_by is not None
    assert charge.undone_by.signature.arguments('{"order":{"id":"a","parts":[]}}') == {"order": order}


def test_types_local_to_a_function_are_found_with_and_without_options() -> None:
    @dataclass
    class Local:
        number: int

    agent = Agent("a")

    @agent.step
    def plain(attempt: Attempt, value: Local) -> list[Local]: ...

    @agent.step(complete_within=5)
    def with_options(attempt: Attempt, value: Local) -> Local: ...

    @with_options.compensation
    def undo_it(undo: Undo[Local], value: Local) -> None: ...

    @plain.compensation(complete_within=5)
    def undo_plain(undo: Undo[list[Local]], value: Local) -> None: ...

    @workflow(name="local")
    async def flow(value: Local) -> Local: ...

    for definition in (plain, with_options, flow):
        assert definition.signature.arguments(definition(Local(1)).arguments) == {"value": Local(1)}
    for step in (plain, with_options):
        assert step.undone_by is not None
        assert step.undone_by.signature.arguments('{"value":{"number":1}}') == {"value": Local(1)}
    App("shop", agents=[agent], workflows=[flow])


def test_a_type_that_is_nowhere_is_named_at_the_first_use() -> None:
    @Agent("a").step
    def step(attempt: Attempt, value: Unknown) -> None: ...

    @workflow
    async def flow() -> Unknown: ...

    with pytest.raises(DefinitionError, match="step step: name 'Unknown' is not defined; its types must be importable"):
        step(1)
    with pytest.raises(DefinitionError, match="workflow flow: name 'Unknown' is not defined"):
        flow()
