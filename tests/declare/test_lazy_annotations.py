"""Types of Python 3.14, which evaluates annotations when they are asked for: defined further down, or for type checkers alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("annotationlib", reason="before Python 3.14 annotations are evaluated where they stand")

from arriero import Agent, App, DefinitionError, testing, workflow

if TYPE_CHECKING:
    from somewhere import Unknown

    from arriero import Attempt, Undo

remote = Agent("remote")


@remote.step
async def charge(order: Order, *, later: Later | None = None) -> Later:
    return Later(len(order.parts))


@charge.compensation
async def refund(undo: Undo[Later], order: Order, *, later: Later | None = None) -> None: ...


@remote.step
async def count(attempt: Attempt, order: Order) -> list[Later]:
    return [Later(attempt.number)]


@workflow
async def fulfil(order: Order) -> Later:
    await count(order)
    return await charge(order, later=Later(7))


@dataclass
class Order:
    id: str
    parts: list[Order]


@dataclass
class Later:
    number: int


async def test_types_that_are_defined_further_down_are_found_at_the_first_use() -> None:
    async with testing.running(App("shop", agents=[remote], workflows=[fulfil])) as world:
        assert await world.app.execute(fulfil(Order("a", [Order("b", [])]))) == Later(1)
    assert charge.undone_by is not None
    assert charge.undone_by.signature.arguments('{"order":{"id":"a","parts":[]}}') == {"order": Order("a", [])}


def test_an_attempt_and_an_undo_that_only_type_checkers_import_are_given() -> None:
    assert (charge.signature.is_given, count.signature.is_given) == (False, True)
    assert charge.undone_by is not None and charge.undone_by.signature.is_given


def test_types_local_to_a_function_are_found_also_below_it() -> None:
    agent = Agent("a")

    @agent.step
    def before(value: Below) -> Below: ...

    @dataclass
    class Below:
        number: int

    @agent.step
    def after(value: Below) -> list[Below]: ...

    for step in (before, after):
        assert step.signature.arguments(step(Below(1)).arguments) == {"value": Below(1)}


def test_a_type_that_is_nowhere_is_named_at_the_first_use() -> None:
    @Agent("a").step
    def step(value: Unknown) -> None: ...

    @Agent("a").step
    def nested(value: list[Unknown]) -> None: ...

    @workflow
    async def flow(value: dict[str, Unknown | None]) -> None: ...

    for call, what in ((step, "step step"), (nested, "step nested"), (flow, "workflow flow")):
        with pytest.raises(
            DefinitionError, match=f"{what}: name 'Unknown' is not defined; its types must be importable"
        ):
            call(1)


def test_a_compensation_whose_parameters_are_typed_for_type_checkers_alone_is_named() -> None:
    agent = Agent("a")

    @agent.step
    def pack(value: int) -> None: ...

    @pack.compensation
    def unpack(value: Unknown) -> None: ...

    assert pack.undone_by is not None
    with pytest.raises(DefinitionError, match="name 'Unknown' is not defined"):
        pack.undone_by.signature.arguments('{"value":1}')
