"""What an event loop that stood still means for an attempt, and how it is told."""

import msgspec
import pytest
from core_rows import NOW, step_row

from arriero.explain.standstills import (
    Standstill,
    add_standstill,
    build_expiry_failure,
    find_standstill_in_the_way,
    format_begun_line,
    format_ended_line,
    is_worth_saying,
    read_standstill,
)
from arriero.model import StepRow, later
from arriero.model.failures import CapturedError, Frame
from arriero.model.processes import ProcessAbout

TRACE = (CapturedError("the event loop was blocked", (Frame("shop/steps.py", 12, "charge", "time.sleep(5)"),)),)
WITHIN = 30.0  # of core_rows' policy


def attempt() -> StepRow:
    """It began at NOW."""
    return step_row(name="charge", complete_by=later(NOW, WITHIN), attempt=2)


def still(start: float, seconds: float) -> Standstill:
    return Standstill(later(NOW, start), later(NOW, start + seconds), "step charge of task t-1", trace=TRACE)


def test_it_is_in_the_way_when_it_took_half_of_the_time_or_its_end() -> None:
    assert find_standstill_in_the_way(attempt(), [still(1, 15)]) == still(1, 15)
    assert find_standstill_in_the_way(attempt(), [still(1, 8), still(10, 9)]) == still(10, 9)
    assert find_standstill_in_the_way(attempt(), [still(29, 1.5)]) == still(29, 1.5)
    assert find_standstill_in_the_way(attempt(), [still(-10, 26)]) == still(-10, 26)


def test_a_short_one_in_the_middle_and_one_before_or_after_are_not() -> None:
    assert find_standstill_in_the_way(attempt(), []) is None
    assert find_standstill_in_the_way(attempt(), [still(5, 1)]) is None
    assert find_standstill_in_the_way(attempt(), [still(-20, 20)]) is None
    assert find_standstill_in_the_way(attempt(), [still(30, 20)]) is None
    assert find_standstill_in_the_way(step_row(complete_by=None), [still(0, 50)]) is None


def test_the_failure_says_how_long_where_by_what_and_the_remedy() -> None:
    failure = build_expiry_failure(attempt(), still(1, 31))
    assert failure.message == (
        "no answer within its 30 s; the event loop of its process was blocked for 31 s meanwhile, at shop/steps.py:12, in"
        " charge: `time.sleep(5)` (step charge of task t-1): make the step a plain function (def), or await"
        " asyncio.to_thread(...)"
    )
    assert (failure.cause, failure.code, failure.trace) == ("expired", "expired", TRACE)


def test_where_nothing_is_known_of_what_ran_nothing_is_said_of_it() -> None:
    unknown = Standstill(NOW, later(NOW, 31))
    assert "was blocked for 31 s meanwhile: make" in build_expiry_failure(attempt(), unknown).message
    assert format_ended_line(unknown) == "the event loop is running again after being blocked for 31 s"


def test_workflow_code_has_another_remedy() -> None:
    line = format_begun_line(Standstill(NOW, later(NOW, 2), "the code of workflow fulfil, task t-1", True))
    assert "(the code of workflow fulfil, task t-1)" in line
    assert line.endswith("move what takes long into a step that is a plain function (def)")


def test_a_process_says_it_in_its_row_and_others_read_it() -> None:
    about = msgspec.json.encode(ProcessAbout(app="shop", roles=("agents",))).decode()
    over = add_standstill(about, still(1, 5), lasts=False)
    assert read_standstill(over, later(NOW, 100)) == still(1, 5)
    assert msgspec.json.decode(over, type=ProcessAbout).roles == ("agents",)
    lasting = add_standstill(about, still(1, 5), lasts=True)
    assert lasting == add_standstill(about, still(1, 6), lasts=True)
    assert read_standstill(lasting, later(NOW, 100)) == still(1, 99)
    assert read_standstill(about, NOW) is None


@pytest.mark.parametrize("about", ["", '{"loop":7}', '{"loop":{"lasts":true}}', '"loop"', '{"loop":null}'])
def test_what_cannot_be_read_of_another_process_is_nothing(about: str) -> None:
    assert read_standstill(about, NOW) is None


def test_short_ones_and_those_of_which_nothing_is_known_are_not_said() -> None:
    assert is_worth_saying(still(0, 1))
    assert not is_worth_saying(still(0, 0.4))
    assert not is_worth_saying(Standstill(NOW, later(NOW, 9)))
