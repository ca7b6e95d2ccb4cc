"""Which wait takes which signals: the first one that was opened, once it has what it waits for."""

import msgspec
from core_rows import NOW, step_row

from arriero.core.signals import find_ready_wait
from arriero.model import Instant, SignalRow, StepKind, StepRow, StepState, later


def wait(ordinal: int, count: int | None = None, until: Instant | None = None, name: str = "signal:paid") -> StepRow:
    arguments = "{}" if count is None else msgspec.json.encode({"count": count}).decode()
    state = StepState.PENDING
    return step_row(ordinal, kind=StepKind.TIMER, name=name, state=state, arguments=arguments, not_before=until)


def signals(*numbers: int, name: str = "signal:paid", at: float = 0) -> list[SignalRow]:
    return [
        SignalRow(
            task_no=1,
            number=number,
            name=name,
            signal_id=f"s{number}",
            value=str(number),
            sent_by="",
            sent_at=later(NOW, at),
        )
        for number in numbers
    ]


def ready(waits: list[StepRow], kept: list[SignalRow], seconds: float = 0) -> tuple[int, list[int]] | None:
    found = find_ready_wait(waits, kept, later(NOW, seconds))
    return None if found is None else (found[0].ordinal, [signal.number for signal in found[1]])


def test_a_wait_for_several_takes_them_together_in_their_order_and_no_more() -> None:
    assert ready([wait(1, 3)], signals(1, 2)) is None
    assert ready([wait(1, 3)], signals(1, 2, 4, 5)) == (1, [1, 2, 4])


def test_a_wait_for_several_takes_what_came_once_its_time_is_over() -> None:
    one = wait(1, 3, later(NOW, 10))
    assert ready([one], signals(1, 2), 9.9) is None
    assert ready([one], signals(1, 2), 10) == (1, [1, 2])
    assert ready([one], [], 10) is None


def test_what_was_sent_after_its_time_is_for_the_next_wait() -> None:
    waits = [wait(1, 3, later(NOW, 10)), wait(2)]
    assert ready(waits, signals(1) + signals(2, at=10), 5) == (2, [2])


def test_a_signal_is_for_the_wait_that_was_opened_first_though_that_waits_for_more() -> None:
    assert ready([wait(1, 3), wait(2)], signals(1, 2)) is None
    assert ready([wait(1, 3), wait(2)], signals(1, 2, 3, 4)) == (1, [1, 2, 3])
    assert ready([wait(1), wait(2, 3)], signals(1, 2)) == (1, [1])


def test_waits_of_other_names_take_their_signals_in_the_order_of_the_commits() -> None:
    waits = [wait(1, 2), wait(2, name="signal:approved")]
    assert ready(waits, signals(1) + signals(2, name="signal:approved") + signals(3)) == (2, [2])
    assert ready(waits, signals(1, 2) + signals(3, name="signal:approved")) == (1, [1, 2])


def test_a_wait_for_one_by_count_has_a_list() -> None:
    assert ready([wait(1, 1)], signals(1, 2)) == (1, [1])
