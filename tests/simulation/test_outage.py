"""A service is silent, hundreds of attempts expire at once: they come back at the configured rate, whoever leads."""

import pytest

from arriero.model import MICROSECONDS
from lab.simulation.outage import PER_SECOND, OutageWorld


def most_in_a_second(due_at: list[int]) -> int:
    return max(sum(at <= other < at + MICROSECONDS for other in due_at) for at in due_at)


@pytest.mark.parametrize("seed", range(5))
def test_three_hundred_attempts_that_expire_at_once_come_back_at_the_rate_and_all_tasks_end(seed: int) -> None:
    world = OutageWorld(seed, tasks=300)
    result = world.run()
    assert not result.violations
    assert result.states == {"processed": 300}
    assert world.count_recovered() >= 300, "what did not expire shows nothing"
    assert most_in_a_second(world.due_times()) <= PER_SECOND + 1


@pytest.mark.parametrize("seed", range(5))
def test_while_leaders_die_the_rate_is_at_most_twice_the_configured_one(seed: int) -> None:
    world = OutageWorld(seed, tasks=300, leaders_lost=2)
    result = world.run()
    assert not result.violations
    assert result.states == {"processed": 300}
    assert result.fired["crash"] >= 1
    assert most_in_a_second(world.due_times()) <= 2 * (PER_SECOND + 1)
