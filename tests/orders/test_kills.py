"""Which worker may be killed: none whose task would be held for an operator, as if it had killed three processes itself."""

from __future__ import annotations

from typing import Any

import pytest

from examples.orders import demo
from examples.orders.processes import Worker
from examples.orders.progress import Held


class StubProcess:
    def __init__(self, pid: int) -> None:
        self.pid = pid


def stub(pid: int) -> Worker:
    """A worker as the store knows it, without a process behind it."""
    worker = Worker.__new__(Worker)
    process: Any = StubProcess(pid)
    worker._process = process
    return worker


def held(pid: int, tasks: dict[int, int]) -> Held:
    return Held(instance=f"a-host-{pid}-0123456789ab", steps_running=1, tasks=tasks)


MINE, OTHER = stub(10), stub(11)


@pytest.mark.parametrize(
    ("seen", "would_convict"),
    [
        ([held(10, {1: 0, 2: 1})], False),
        ([held(10, {1: 0, 2: 2})], True),
        ([held(11, {2: 2}), held(10, {1: 1})], False),
        # 99 was killed, and what it held is not freed yet.
        ([held(99, {1: 1}), held(10, {1: 1})], True),
        ([held(99, {1: 0}), held(98, {1: 0}), held(10, {1: 0})], True),
        ([held(99, {2: 1}), held(10, {1: 1})], False),
        # 11 is alive: that it attempts the same task costs nothing.
        ([held(11, {1: 1}), held(10, {1: 1})], False),
    ],
)
def test_a_task_is_spared_its_third_loss_also_where_losses_are_not_charged_yet(
    seen: list[Held], would_convict: bool
) -> None:
    assert demo._would_convict(MINE, [MINE, OTHER], seen) is would_convict


def test_a_worker_is_known_by_its_process_id_alone() -> None:
    assert MINE.is_named("a-host-10-0123456789ab")
    assert not MINE.is_named("a-host-110-0123456789ab")
    assert not MINE.is_named("host-10-99-0123456789ab")
