"""Limits as users declare them: what cannot work is refused where it stands, with the thing and the remedy."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from arriero import Agent, Attempt, Concurrent, DefinitionError, Rate
from arriero.core.key_functions import KeyFunctionFailed, compute_limit_keys
from arriero.declare.limits import Limit, encode_policies
from arriero.model.agents import read_limits


def agent(*limits: Limit) -> Agent:
    made = Agent("payments", limits=limits)

    @made.step
    async def charge(attempt: Attempt, merchant: str, cents: int) -> None: ...

    return made


def keys(*limits: Limit, merchant: str = "m1") -> str:
    step = agent(*limits).steps["charge"]
    return compute_limit_keys(step, msgspec.json.encode({"merchant": merchant, "cents": 5}).decode())


def of_merchant(merchant: str, cents: int) -> str:
    return merchant


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Concurrent(0), "Concurrent: 0 is not a limit"),
        (lambda: Concurrent(True), "Concurrent: True is not a limit"),
        (lambda: Concurrent(2.5), "Concurrent: 2.5 is not a limit"),  # type: ignore[arg-type]
        (lambda: Rate(0, per=1), "Rate: 0 is not a limit"),
        (lambda: Rate(1, per=0), "Rate.per is 0 seconds"),
        (lambda: Rate(1, per=timedelta(days=2)), "Rate.per is 172800 seconds"),
        (lambda: Concurrent(1, key="merchant"), "Concurrent.key is 'merchant'"),  # type: ignore[arg-type]
        (lambda: Concurrent(1, name=""), "name of a limit"),
        (lambda: agent(Concurrent(1), Concurrent(2)), "two limits with the name 'concurrent'"),
        (lambda: agent(5), "5 is not a limit; use Concurrent"),  # type: ignore[arg-type]
        (lambda: Agent("payments", limits=Concurrent(1)), "give a list"),  # type: ignore[arg-type]
    ],
)
def test_a_limit_that_cannot_work_is_refused(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        make()


def test_limits_travel_as_plain_data() -> None:
    text = encode_policies((Concurrent(50), Rate(100, per=timedelta(seconds=2)), Concurrent(2, key=of_merchant)))
    assert [(one.name, one.kind, one.most, one.per, one.is_keyed) for one in read_limits(text)] == [
        ("concurrent", "concurrent", 50, 0.0, False),
        ("rate", "rate", 100, 2.0, False),
        ("concurrent by key", "concurrent", 2, 0.0, True),
    ]


def test_a_call_is_counted_under_the_keys_of_its_arguments() -> None:
    assert keys(Concurrent(5)) == "{}"
    assert keys(Concurrent(5), Concurrent(2, key=of_merchant)) == '{"concurrent by key":"m1"}'


def test_a_key_that_raises_names_the_agent_the_limit_and_the_step() -> None:
    def fail(merchant: str, cents: int) -> str:
        raise LookupError("no such merchant")

    with pytest.raises(
        KeyFunctionFailed, match="Agent payments: the key of limit 'rate by key' failed for step charge: .*no such"
    ) as caught:
        keys(Rate(5, per=1, key=fail))
    assert caught.value.code == "limit_key"


def test_a_key_that_is_no_text_is_refused() -> None:
    with pytest.raises(
        KeyFunctionFailed, match="the key of limit 'concurrent by key' of Agent payments for step charge"
    ):
        keys(Concurrent(5, key=lambda merchant, cents: cents))  # type: ignore[arg-type,return-value]


def test_keys_that_no_index_of_a_store_could_hold_are_refused() -> None:
    limits = [Concurrent(1, key=of_merchant, name=f"limit {number}") for number in range(3)]
    with pytest.raises(KeyFunctionFailed, match="the keys of the limits of Agent payments for step charge") as caught:
        keys(*limits, merchant="\N{GRINNING FACE}" * 255)
    assert caught.value.code == "limit_key"
    assert "limit 0" in keys(limits[0], merchant="\N{GRINNING FACE}" * 255)


def test_a_key_gets_the_arguments_by_their_place_also_where_a_default_was_left_out() -> None:
    shop = Agent("shop", limits=[Concurrent(2, key=lambda region, merchant: f"{region}/{merchant}")])

    @shop.step
    async def charge(attempt: Attempt, region: str = "eu", merchant: str = "m") -> None: ...

    assert compute_limit_keys(charge, '{"merchant":"x"}') == '{"concurrent by key":"eu/x"}'


def test_a_key_may_take_the_first_arguments_alone() -> None:
    shop = Agent("shop", limits=[Concurrent(2, key=lambda merchant: merchant)])

    @shop.step
    async def charge(attempt: Attempt, merchant: str, cents: int = 5) -> None: ...

    assert compute_limit_keys(charge, '{"merchant":"x","cents":7}') == '{"concurrent by key":"x"}'
