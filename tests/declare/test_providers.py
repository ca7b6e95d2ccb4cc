"""An Agent that provides the steps of another one: what is accepted, and what is refused where it is declared."""

from collections.abc import Callable
from typing import Any

import pytest

from arriero import Agent, App, Attempt, DefinitionError, InvalidInput, Retry, Undo
from arriero.declare.providers import group_agents


def base(name: str = "payments", **options: Any) -> Agent:
    payments = Agent(name)

    @payments.step(**options)
    async def charge(attempt: Attempt, order: str, amount: int = 1) -> int:
        return amount

    return payments


def provider(of: Agent, **options: Any) -> Agent:
    eu = Agent("payments-eu", provides=of)

    @eu.step(**options)
    async def charge(attempt: Attempt, order: str, amount: int = 1) -> int:
        return amount

    return eu


def test_an_agent_with_the_same_steps_is_in_the_group_of_its_base_which_comes_first() -> None:
    payments = base(retry=Retry(tries=5), interchangeable=True)
    eu = provider(payments)
    assert group_agents([eu, payments, Agent("stock")]) == {"payments": (payments, eu)}
    App("shop", agents=[payments, eu])


def test_agents_without_providers_are_in_no_group() -> None:
    assert group_agents([base(), Agent("stock")]) == {}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"weight": 0}, "weight is 0; it must be a number above 0"),
        ({"weight": -1.5}, "weight is -1.5"),
        ({"weight": True}, "weight is True"),
        ({"weight": float("nan")}, "weight is nan"),
        ({"preference": 0.5}, "preference is 0.5; it must be a whole number"),
        ({"preference": -1}, "preference is -1"),
        ({"preference": True}, "preference is True"),
        ({"provides": "payments"}, "provides is 'payments'; it must be of the type Agent"),
        ({"breaker_key": str}, "leave it out here"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        Agent("payments-eu", **({"provides": base()} | options))


def test_a_provider_of_a_provider_is_refused() -> None:
    with pytest.raises(DefinitionError, match="payments-us provides payments-eu, which itself provides payments"):
        Agent("payments-us", provides=provider(base()))


def test_a_provider_of_its_own_name_is_refused() -> None:
    with pytest.raises(DefinitionError, match="provides an Agent of its own name"):
        Agent("payments", provides=base())


def test_interchangeable_is_true_or_false() -> None:
    with pytest.raises(DefinitionError, match="interchangeable is 1; it must be of the type bool"):
        base(interchangeable=1)


def test_a_provider_without_its_base_in_the_app_is_refused() -> None:
    with pytest.raises(DefinitionError, match="payments-eu provides payments, which is not in this App: add payments"):
        App("shop", agents=[provider(base())])


def _lacks(of: Agent) -> Agent:
    return Agent("payments-eu", provides=of)


def _has_another(of: Agent) -> Agent:
    eu = provider(of)

    @eu.step
    async def refund(attempt: Attempt) -> None: ...

    return eu


def _takes_another_name(of: Agent) -> Agent:
    eu = Agent("payments-eu", provides=of)

    @eu.step
    async def charge(attempt: Attempt, bill: str, amount: int = 1) -> int:
        return 1

    return eu


def _has_another_default(of: Agent) -> Agent:
    eu = Agent("payments-eu", provides=of)

    @eu.step
    async def charge(attempt: Attempt, order: str, amount: int = 2) -> int:
        return 1

    return eu


def _gives_another_type(of: Agent) -> Agent:
    eu = Agent("payments-eu", provides=of)

    @eu.step
    async def charge(attempt: Attempt, order: str, amount: int = 1) -> str:
        return ""

    return eu


def _has_a_compensation(of: Agent) -> Agent:
    eu = provider(of)

    @eu.steps["charge"].compensation
    async def refund(undo: Undo[int], order: str, amount: int = 1) -> None: ...

    return eu


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (_lacks, "payments-eu provides payments, but has no step charge"),
        (_has_another, "payments-eu provides payments, which has no step refund"),
        (_takes_another_name, "give both the same parameters, defaults and types"),
        (_has_another_default, "give both the same parameters, defaults and types"),
        (_gives_another_type, "give both the same parameters, defaults and types"),
        (lambda of: provider(of, pivot=True), "pivot is True here and False there"),
        (lambda of: provider(of, effect_free=True), "effect_free is True here and False there"),
        (lambda of: provider(of, interchangeable=True), "interchangeable is said once, for payments"),
        (lambda of: provider(of, retry=Retry(tries=9)), "times, retry and supervision of payments hold"),
        (lambda of: provider(of, complete_within=3), "times, retry and supervision of payments hold"),
        (_has_a_compensation, "declare one for payments, too, or none for both"),
    ],
)
def test_steps_that_differ_are_refused_with_both_names(declare: Callable[[Agent], Agent], says: str) -> None:
    payments = base()
    with pytest.raises(DefinitionError, match=says) as refused:
        App("shop", agents=[payments, declare(payments)])
    assert "payments-eu" in str(refused.value)


def test_the_step_of_a_provider_is_not_called_directly() -> None:
    eu = provider(base())
    with pytest.raises(InvalidInput, match="call the step of payments, arriero chooses the Agent"):
        eu.steps["charge"]("order")
