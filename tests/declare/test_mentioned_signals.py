"""The signals that a workflow may wait for are found in its code, and nothing of it runs."""

import asyncio
import types
from typing import Any

import pytest

from arriero import DefinitionError, Request, Signal, workflow
from arriero.declare.signals import find_mentioned_signals

approved = Signal("approved", bool)
paid = Signal("paid", int)
shipped = Signal("shipped", int)
unused = Signal("unused", int)
change_address = Request("change_address", str, int)
channels = types.ModuleType("channels")
channels.paid = paid  # type: ignore[attr-defined]
SEVERAL = {"a": approved, "b": [paid]}


class Signals:
    shipped = shipped


def find(function: Any) -> list[str]:
    found = find_mentioned_signals(function)
    assert found.are_all
    return found.list_names()


async def wait_for_payment() -> int:
    return await channels.paid.wait()  # type: ignore[no-any-return]


def explode() -> None:
    raise AssertionError("it ran")


async def test_signals_are_found_by_their_names_in_modules_in_classes_and_in_functions_that_are_mentioned() -> None:
    async def code() -> None:
        await asyncio.gather(approved.wait(), wait_for_payment())
        explode()

        async def later() -> None:
            await Signals.shipped.wait()

        await later()

    assert find(code) == ["approved", "paid", "shipped"]


async def test_signals_are_found_in_variables_of_the_function_around_in_containers_and_in_imports() -> None:
    local = Signal("local", int)

    async def code() -> None:
        await local.wait()
        for one in SEVERAL.values():
            await one.wait()  # type: ignore[attr-defined]

    async def imports() -> None:
        from signal_shop import approved as mine

        await mine.wait()

    import signal_shop

    assert signal_shop.approved.name == "approved"
    assert find(code) == ["approved", "local", "paid"]
    assert find(imports) == ["approved"]


async def test_the_code_of_another_workflow_that_runs_as_a_part_is_looked_through() -> None:
    @workflow
    async def part() -> None:
        await approved.wait()

    @workflow
    async def whole() -> None:
        await part.function()

    assert whole.signals.list_names() == ["approved"]


async def test_functions_that_mention_each_other_are_looked_through_once() -> None:
    async def first() -> None:
        await second()

    async def second() -> None:
        await approved.wait()
        await first()

    assert find(first) == ["approved"]


async def test_requests_are_found_beside_signals_and_code_that_makes_them_may_receive_any() -> None:
    async def code() -> None:
        await approved.wait()
        await change_address.receive()

    async def makes(name: str) -> None:
        await Request(name, str, int).receive()

    found = find_mentioned_signals(code)
    assert (found.list_names(), found.list_names("request"), found.are_all) == (["approved"], ["change_address"], True)
    assert not find_mentioned_signals(makes).are_all
    assert workflow(signals=[change_address])(makes).signals.list_names("request") == ["change_address"]


async def test_code_that_makes_signals_or_imports_what_is_not_loaded_may_wait_for_any() -> None:
    async def makes(name: str) -> None:
        await Signal(name, int).wait()

    async def imports() -> None:
        from not_there import mine  # type: ignore[import-not-found]

        await mine.wait()

    assert not find_mentioned_signals(makes).are_all
    assert not find_mentioned_signals(imports).are_all


async def test_declared_signals_are_known_beside_those_that_the_code_mentions() -> None:
    @workflow(signals=[paid])
    async def code() -> None:
        await approved.wait()

    assert code.signals.list_names() == ["approved", "paid"]
    with pytest.raises(DefinitionError, match="each of signals is 'paid'; it must be of the type Signal or Request"):
        workflow(signals=["paid"])(code.function)  # type: ignore[list-item]
