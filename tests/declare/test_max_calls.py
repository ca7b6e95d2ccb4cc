"""One number for all calls of a step: ``Retry(max_calls=)``."""

from typing import Any

import pytest

from arriero import Agent, App, DefinitionError, Retry, Supervision, TaskCompensated, Transient, testing, workflow
from arriero.core.call_policy import resolve_call_policy
from arriero.model.policies import encode_policy


def declare(agent: Agent | None = None, /, **options: Any) -> Any:
    def charge() -> None: ...

    return (agent or Agent("a")).step(**options)(charge)


def test_it_is_that_number_of_attempts_of_one_try() -> None:
    policy = declare(retry=Retry(max_calls=7)).policy
    assert (policy.retry.tries, policy.supervision.attempts, policy.supervision.rounds) == (1, 7, 1)
    assert policy.calls_max == 7


def test_the_attempts_of_a_workflow_do_not_change_it() -> None:
    step = declare(retry=Retry(max_calls=7))
    assert resolve_call_policy(step(), Supervision(attempts=50, rounds=9)).calls_max == 7


def test_one_call_may_have_another_number() -> None:
    step = declare(supervision=Supervision(attempts=20))
    assert resolve_call_policy(step().options(retry=Retry(max_calls=2)), Supervision()).calls_max == 2


def test_one_call_keeps_what_follows_and_its_number_whatever_else_is_said_of_it() -> None:
    hold, twice = Supervision(then="hold"), Retry(max_calls=2)

    def resolve(call: Any) -> tuple[int, str]:
        policy = resolve_call_policy(call, Supervision(attempts=50, complete_within_factor=2.0))
        assert policy.supervision.complete_within_factor == (2.0 if policy.supervision.then != "hold" else 1.0)
        return policy.calls_max, policy.supervision.then

    assert resolve(declare(supervision=hold)().options(retry=twice)) == (2, "hold")
    assert resolve(declare()().options(supervision=hold).options(retry=twice)) == (2, "hold")
    assert resolve(declare()().options(retry=twice).options(supervision=hold)) == (2, "hold")
    assert resolve(declare(retry=twice)().options(supervision=hold)) == (2, "hold")
    assert resolve(declare(retry=twice)()) == (2, "compensate")
    assert resolve(declare(retry=Retry(max_calls=4))().options(retry=Retry(tries=5))) == (5 * 50, "compensate")


def test_what_follows_may_be_said_beside_it() -> None:
    policy = declare(retry=Retry(max_calls=7), supervision=Supervision(then="hold")).policy
    assert (policy.calls_max, policy.supervision.then) == (7, "hold")


def test_a_compensation_and_a_remote_step_have_it_too() -> None:
    step = declare()
    step.compensation(retry=Retry(max_calls=30))(lambda: None)
    assert step.undone_by.policy.calls_max == 30
    assert declare(remote=True, retry=Retry(max_calls=4)).policy.calls_max == 4


@pytest.mark.parametrize("supervision", [Supervision(attempts=2), Supervision(rounds=2)])
def test_a_second_number_is_refused(supervision: Supervision) -> None:
    with pytest.raises(
        DefinitionError, match="max_calls says how often it is called in all: leave attempts and rounds"
    ):
        declare(retry=Retry(max_calls=7), supervision=supervision)


@pytest.mark.parametrize("other", [{"tries": 2}, {"delay": 1}, {"factor": 3}, {"delay_max": 9}])
def test_settings_of_tries_beside_it_are_refused(other: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="leave tries, delay, factor and delay_max out"):
        Retry(max_calls=7, **other)


@pytest.mark.parametrize("number", [0, 1_001, True, 2.0, "3"])
def test_a_number_that_cannot_be_is_refused(number: Any) -> None:
    with pytest.raises(DefinitionError, match=r"Retry.max_calls is .* from 1 to 1000"):
        Retry(max_calls=number)


def test_rows_keep_the_text_that_other_releases_know() -> None:
    text = encode_policy(declare(retry=Retry(max_calls=7)).policy)
    assert "max_calls" not in text
    assert text == encode_policy(declare(retry=Retry(tries=1), supervision=Supervision(attempts=7)).policy)


async def test_a_step_that_fails_again_and_again_is_called_that_often() -> None:
    agent = Agent("a", breaker=None)
    step = declare(agent, retry=Retry(max_calls=5))

    @workflow
    async def flow() -> None:
        await step()

    async with testing.running(App("a", agents=[agent], workflows=[flow])) as world:
        world.answers(step, *(Transient("busy") for _ in range(9)))
        with pytest.raises(TaskCompensated):
            await world.app.execute(flow())
        assert len(world.calls(step)) == 5
