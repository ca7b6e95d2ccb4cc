"""An outage with attempts left: `arriero doctor` and `arriero task list` while tasks fail and are tried again."""

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Call, Run, json_lines

BANK = '''
"""A shop whose bank refuses every call while there is a file ``refuses``; and always for the order ``bad``."""

from pathlib import Path

from arriero import Agent, App, Attempt, Retry, Supervision, Transient, workflow

payments = Agent("payments", breaker=None)  # it would open after 20 calls, sooner or later by the speed of the machine
stock = Agent("stock")


@payments.step(retry=Retry(tries=1), supervision=Supervision(attempts=50))
def charge(attempt: Attempt, order: str) -> str:
    if order == "bad" or Path("refuses").exists():
        raise Transient("connection refused")
    return f"receipt-{order}"


@stock.step
def reserve(attempt: Attempt, order: str) -> None:
    pass


@workflow
async def sell(order: str) -> None:
    await reserve(order)
    await charge(order)


app = App("bank", agents=[payments, stock], workflows=[sell], store="sqlite:///arriero.db")
'''

pytestmark = pytest.mark.usefixtures("healthy_machine")


@pytest.fixture
def bank(call: Call, shop: Path, start: Callable[..., Run]) -> Iterator[Call]:
    """The command line beside a process that runs the shop."""
    (shop / "bank.py").write_text(BANK)
    start(target="bank:app").until("ready: ")
    yield call
    with suppress(FileNotFoundError):
        (shop / "refuses").unlink()


def sell(call: Call, *orders: str) -> None:
    for order in orders:
        arguments = json.dumps({"order": order})
        assert call("submit", "bank:app", "sell", "--task-id", order, "--arguments", arguments).exit_code == 0


def cares(call: Call) -> dict[str, dict[str, Any]]:
    """What needs care, by what it is about."""
    findings = json.loads(call("doctor", "--json").stdout)["findings"]
    found = {finding["about"]: finding for finding in findings if finding["level"] == "care"}
    assert "processes" not in found  # it is ended when a test takes too long
    return found


def until_processed(call: Call, *orders: str) -> None:
    """It is another process's work: there is no event to wait for but the store."""
    while {task["id"] for task in json_lines(call("task", "list", "--json", "--state", "processed").stdout)} < {
        *orders
    }:
        pass


def test_an_outage_is_told_while_attempts_are_left_and_is_over_when_the_service_is_back(bank: Call, shop: Path) -> None:
    (shop / "refuses").touch()
    orders = [f"order-{number}" for number in range(12)]
    sell(bank, *orders)
    while "all 12 tasks" not in cares(bank).get("outage", {}).get("says", ""):
        pass
    told = bank("doctor")
    assert (told.exit_code, told.stderr) == (1, "")
    lines = [line for line in told.stdout.splitlines() if line.startswith("CARE")]
    (line,) = lines
    assert line.startswith("CARE  Agent payments: all 12 tasks that asked it failed since 20")
    assert ": transient: connection refused; " in line
    assert " attempts failed and nothing succeeded" in line  # how many wait depends on how many are just tried
    remedy = told.stdout.splitlines()[told.stdout.splitlines().index(line) + 1]
    first, second = remedy.split("; arriero ")[1].split(", then arriero ")
    assert ids(bank(*shlex.split(first), "--json").stdout) == orders[::-1]
    assert "step charge" in bank(*shlex.split(second)).stdout
    (shop / "refuses").unlink()
    until_processed(bank, *orders)
    healthy = bank("doctor")
    assert (healthy.exit_code, healthy.stdout.splitlines()[-1]) == (0, "nothing needs care")


def test_one_task_that_fails_again_and_again_among_others_is_told_as_that(bank: Call) -> None:
    sell(bank, "bad", "order-1", "order-2", "order-3")
    until_processed(bank, "order-1", "order-2", "order-3")
    while "repeating" not in (found := cares(bank)):
        pass
    assert set(found) == {"repeating"}
    assert found["repeating"]["says"].startswith(
        "Agent payments: 1 of 4 tasks fails again and again: bad (step charge failed "
    )
    assert found["repeating"]["remedy"].endswith("arriero task explain bad")


def test_list_shows_what_is_tried_again_with_its_last_failure(bank: Call) -> None:
    sell(bank, "order-1", "bad")
    until_processed(bank, "order-1")
    while (
        not (listed := json_lines(bank("task", "list", "--json", "--state", "processing").stdout))
        or not listed[0]["retry"]
    ):
        pass
    (task,) = listed
    retry = task["retry"]
    assert (retry["agent"], retry["step"]) == ("payments", "charge")
    assert (retry["failure"]["cause"], retry["failure"]["message"]) == ("transient", "connection refused")
    assert retry["attempt"] == retry["failure_count"] + 1
    text = bank("task", "list", "--limit", "1")
    assert "  charge, attempt " in text.stdout
    assert text.stdout.endswith(": transient: connection refused\n")
    assert text.stderr == "arriero: and 1 more; --limit 0 shows all, --before 2 the next\n"


def ids(text: str) -> list[str]:
    return [task["id"] for task in json_lines(text)]
