"""One pass of the Supervisor: a row's or a command's trouble costs no other its recovery."""

from collections.abc import Callable
from typing import Any

from core_rows import NOW, step_row, task_row
from runtime_world import QUICK

from arriero import StoreError
from arriero.commands import AnyCommand, Applied, Recover, Refusal
from arriero.model import StepRow
from arriero.runtime.ports import SystemPorts
from arriero.runtime.supervisor import Supervisor
from arriero.store.contract import Overdue


class Bench:
    """A store in which rows are overdue, and a committer that answers as the test says; what was asked of it."""

    def __init__(self, *expired: StepRow) -> None:
        self.expired = expired
        self.asked: list[int] = []
        self.refused: set[int] = set()
        self.broken: set[int] = set()

    async def load_overdue(self, limit: int, progress_seconds: float) -> Overdue:
        return Overdue(NOW, self.expired, (), (), ())

    def put(self, command: AnyCommand, on_answer: Callable[[Any], None]) -> None:
        assert isinstance(command, Recover)
        self.asked.append(command.step_no)
        if command.step_no in self.broken:
            on_answer(StoreError("it cannot be written"))
        else:
            on_answer(Refusal("moved_on") if command.step_no in self.refused else Applied(task_row(), (), ()))

    async def written(self) -> int:
        common: Any = {"store": self, "committer": self, "ports": SystemPorts(), "settings": QUICK}
        return await Supervisor(**common, actor="supervisor").tick(1)


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
