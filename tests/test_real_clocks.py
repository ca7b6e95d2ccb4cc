"""No test measures how fast the machine is: it moves a clock or waits for an event, and gives up only what hangs."""

import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
NOT_RUN_HERE = ("typing/programs", "data", Path(__file__).name)  # programs that are only read, and another release's
CLOCK = re.compile(
    r"\btime\.(?:(?:monotonic|perf_counter|process_time|thread_time|clock_gettime)(?:_ns)?|time(?:_ns)?)\("
    r"|\bfrom time import (?!sleep$)|\bget_\w+_loop\(\)\.time\b",
    re.MULTILINE,
)
MAY_READ_A_CLOCK = {
    "helpers/waiting.py": "waits, and fails if the event never comes",
    "helpers/lease_campaign.py": "compares instants of contenders with each other",
    "acceptance/test_leader_campaign.py": "ends after the time that somebody asked for, and reports the gaps",
    "runtime/test_attempts_begun_once.py": "asks which of the machine's clocks is read",
    "runtime/test_hostile.py": "workflow code reads it and is refused",
    "lint/test_hazards.py": "the programs that are read call it",
    "cli/test_cli_lint.py": "the programs that are read call it",
    "core/test_replay.py": "workflow code reads it and is refused",
    "test_growth.py": "compares CPU times of one reader with each other: how they grow, not how long they are",
}
# A wait that is meant to end by its limit ends within a second. Any other limit only says that a test hangs.
LIMITED = re.compile(r'\.(?:(?:timeout|result|join)\((?:timeout=)?|wait_for\([^"\n]*, (?:timeout=)?)(\d+(?:\.\d+)?)\)')
MEANT_SECONDS_MAX = 1.0
HANGS_SECONDS_MIN = 60.0


@cache
def read_sources() -> dict[str, str]:
    """The text of each file of tests, by its path."""
    paths = {path.relative_to(TESTS).as_posix(): path for path in sorted(TESTS.rglob("*.py"))}
    return {name: path.read_text() for name, path in paths.items() if not name.startswith(NOT_RUN_HERE)}


def test_only_helpers_that_wait_read_the_machines_clock() -> None:
    assert {name for name, text in read_sources().items() if CLOCK.search(text)} == set(MAY_READ_A_CLOCK)


def test_a_wait_is_meant_to_end_by_its_limit_or_the_limit_is_that_of_a_test_that_hangs() -> None:
    limits = [(name, found) for name, text in read_sources().items() for found in LIMITED.finditer(text)]
    assert len(limits) > 40
    wrong = [(name, found[0]) for name, found in limits if MEANT_SECONDS_MAX < float(found[1]) < HANGS_SECONDS_MIN]
    assert not wrong
