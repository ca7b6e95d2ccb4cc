"""One pass of the Supervisor: a row's or a command's trouble costs no other its recovery."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from core_rows import NOW, step_row, task_row
from runtime_world import QUICK

from arriero import StoreError
from arriero.model import MICROSECONDS, StepRow, later
from arriero.model.answers import Applied, Refusal
from arriero.model.commands import AnyCommand, Recover
from arriero.model.moves import RetryAsked
from arriero.runtime.ports import SystemPorts
from arriero.runtime.process_context import ProcessContext
from arriero.runtime.supervisor import Supervisor
from arriero.store.contract import Overdue


class Bench:
    """A store in which rows are overdue, and a committer that answers as the test says; what was asked of it."""

    def __init__(self, *expired: StepRow) -> None:
        self.expired = expired
        self.next_in: float | None = None
        self.is_away = False
        self.asked: list[int] = []
        self.retried_at: list[int] = []
        self.refused: set[int] = set()
        self.broken: set[int] = set()

    async def load_overdue(self, limit: int, progress_seconds: float, ahead_seconds: float) -> Overdue:
        if self.is_away:
            raise StoreError("it does not answer")
        next_at = None if self.next_in is None or self.next_in > ahead_seconds else later(NOW, self.next_in)
        return Overdue(NOW, self.expired, (), (), (), next_at)

    def put(self, command: AnyCommand, on_answer: Callable[[Any], None]) -> None:
        assert isinstance(command, Recover)
        self.asked.append(command.step_no)
        if isinstance(command.outcome, RetryAsked):
            self.retried_at.append(command.outcome.not_before)
        if command.step_no in self.broken:
            on_answer(StoreError("it cannot be written"))
        else:
            on_answer(Refusal("moved_on") if command.step_no in self.refused else Applied(task_row(), (), ()))

    async def written(self) -> int:
        return await self.supervisor().tick(1)

    def supervisor(self, **settings: Any) -> Supervisor:
        common: Any = {"store": self, "committer": self, "ports": SystemPorts()}
        context = ProcessContext(**common, settings=msgspec.structs.replace(QUICK, **settings), actor="supervisor")
        return Supervisor(context)


async def test_a_row_that_nobody_can_decide_about_keeps_no_other_from_its_recovery() -> None:
    bench = Bench(step_row(1), step_row(2, policy='{"written by":"another release"}'), step_row(3))
    assert await bench.written() == 2
    assert bench.asked == [1001, 1003]


async def test_a_decision_that_cannot_be_written_costs_the_others_nothing() -> None:
    bench = Bench(*map(step_row, (1, 2, 3)))
    bench.broken = {1001}
    assert await bench.written() == 2
    assert bench.asked == [1001, 1002, 1003]


async def test_what_was_refused_does_not_count_as_written() -> None:
    """A pass that wrote as much as it may is followed by another at once; refusals alone must not be asked for ever."""
    bench = Bench(*map(step_row, (1, 2, 3)))
    bench.refused = {1001, 1002, 1003}
    assert await bench.written() == 0


# --- many at once
def _most_in_a_second(instants: list[int]) -> int:
    return max(sum(at <= other < at + MICROSECONDS for other in instants) for at in instants)


async def test_what_expired_together_comes_back_at_the_configured_rate_over_all_passes() -> None:
    bench = Bench()
    supervisor = bench.supervisor(redispatch_per_second_max=50)
    for first in (1, 101, 201):
        bench.expired = tuple(map(step_row, range(first, first + 100)))
        assert await supervisor.tick(1) == 100
    assert len(bench.retried_at) == 300
    assert _most_in_a_second(bench.retried_at) <= 51
    assert 5.5 < (max(bench.retried_at) - NOW) / MICROSECONDS < 7


async def test_two_leaders_in_turn_give_at_most_twice_the_rate() -> None:
    bench = Bench()
    for first in (1, 101):
        bench.expired = tuple(map(step_row, range(first, first + 100)))
        await bench.supervisor(redispatch_per_second_max=50).tick(1)
    assert 51 < _most_in_a_second(bench.retried_at) <= 2 * 51


async def test_one_that_expires_alone_comes_back_after_the_delay_of_its_policy() -> None:
    bench = Bench(step_row(1))
    await bench.supervisor(redispatch_per_second_max=1).tick(1)
    assert NOW + 250_000 <= bench.retried_at[0] <= NOW + 500_000


# --- the period
async def test_the_period_grows_while_nothing_is_overdue_and_is_short_again_at_once() -> None:
    bench = Bench()
    supervisor = bench.supervisor(supervise_seconds=0.1, supervise_seconds_max=0.5)
    periods = []
    for _ in range(4):
        await supervisor.tick(1)
        periods.append(supervisor.period_seconds)
    assert periods == [0.2, 0.4, 0.5, 0.5]
    bench.expired = (step_row(1),)
    bench.refused = {1001}  # another leader decided it: there is trouble all the same
    await supervisor.tick(1)
    assert supervisor.period_seconds == 0.1


async def test_the_next_pass_comes_with_the_next_deadline_that_the_store_knows() -> None:
    bench = Bench()
    bench.next_in = 0.3
    supervisor = bench.supervisor(supervise_seconds=0.1, supervise_seconds_max=1000.0)
    for _ in range(4):
        await supervisor.tick(1)
    assert 0.1 < supervisor.period_seconds <= 0.3


async def test_after_a_pass_that_failed_the_period_is_the_shortest() -> None:
    bench = Bench()
    supervisor = bench.supervisor(supervise_seconds=0.1, supervise_seconds_max=0.5)
    await supervisor.tick(1)
    bench.is_away = True
    with pytest.raises(StoreError):
        await supervisor.tick(1)
    assert supervisor.period_seconds == 0.1
