"""What ``help()`` and editors show of decorated functions: the function as its author wrote it."""

import inspect
import pydoc
import re
from collections.abc import Iterator

import pytest

from arriero import Agent, Attempt, Undo, workflow
from arriero.declare.declared import Declared

bank = Agent("bank")


@bank.resource
def client() -> Iterator[str]:
    """The open client."""
    yield "client"


@bank.step(complete_within=10)
async def charge(attempt: Attempt, order: str, *, pence: int = 3) -> str:
    """Charge the card.

    Raises Permanent when the card is refused.
    """
    return client()


@charge.compensation
def refund(undo: Undo[str], order: str, *, pence: int = 3) -> None:
    """Give it back."""


@bank.step
def look(attempt: Attempt, order: str) -> str:
    return order


@workflow(name="pay for it")
async def pay(order: str) -> str:
    """Charge, and no more."""
    return await charge(order)


def shown(declared: object) -> list[str]:
    """The lines of its help, without the modules of types: Python 3.14 does not show them any more."""
    lines = [line.strip() for line in pydoc.plain(pydoc.render_doc(declared)).splitlines()[2:]]
    return [re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", line) for line in lines if line]


def test_help_of_a_step_shows_its_function() -> None:
    assert shown(charge) == [
        "charge(attempt: Attempt, order: str, *, pence: int = 3) -> str",
        "Charge the card.",
        "Raises Permanent when the card is refused.",
    ]
    assert shown(look) == ["look(attempt: Attempt, order: str) -> str"]


def test_help_of_workflows_compensations_and_resources_shows_their_functions() -> None:
    assert shown(pay) == ["pay(order: str) -> str", "Charge, and no more."]
    assert shown(refund)[1:] == ["Give it back."]
    assert shown(client) == ["client() -> Iterator[str]", "The open client."]


@pytest.mark.parametrize(
    ("declared", "function"), [(charge, charge.function), (look, look.function), (pay, pay.function)]
)
def test_it_has_the_signature_name_and_module_of_its_function(declared: Declared, function: object) -> None:
    assert inspect.signature(declared) == inspect.signature(function)  # type: ignore[arg-type]
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        assert getattr(declared, name) == getattr(function, name)


def test_the_attributes_of_a_function_do_not_get_into_what_is_made_of_it() -> None:
    def ship(attempt: Attempt) -> None: ...

    ship.policy = "mine"  # type: ignore[attr-defined]
    assert bank.step(ship).policy.complete_within == 30


def test_as_an_attribute_of_a_class_a_step_is_itself() -> None:
    class Shop:
        charge = charge

    assert Shop.charge is Shop().charge is charge


@pytest.mark.parametrize("decorator", [Agent.step, type(charge).compensation, workflow])
def test_the_docstring_of_a_decorator_names_all_its_options(decorator: object) -> None:
    names = [name for name in inspect.signature(decorator).parameters if name not in ("self", "fn")]  # type: ignore[arg-type]
    assert [
        name
        for name in names
        if f"{name}:" not in (decorator.__doc__ or "") and f"{name}," not in (decorator.__doc__ or "")
    ] == []
    assert len(names) >= 3
