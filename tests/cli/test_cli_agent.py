"""``arriero agent`` beside a process whose service goes down: what an operator sees, and what they may do."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_calls import Call, Run, json_lines

BANK = '''
"""A shop whose bank refuses every call while there is a file ``refuses``."""

from pathlib import Path

from arriero import Agent, App, Attempt, Breaker, Retry, Transient, workflow

payments = Agent("payments", breaker=Breaker(minimum=3, cool_off=1000))


@payments.step(retry=Retry(tries=1), effect_free=True)
def charge(attempt: Attempt, order: str) -> str:
    if Path("refuses").exists():
        raise Transient("connection refused")
    return f"receipt-{order}"


@workflow
async def sell(order: str) -> str:
    return await charge(order)


app = App("bank", agents=[payments], workflows=[sell], store="sqlite:///arriero.db")
'''
WHY = ("--by", "ana", "--reason", "she says so")
pytestmark = pytest.mark.usefixtures("healthy_machine")


@pytest.fixture
def down(call: Call, shop: Path, start: Callable[..., Run]) -> Call:
    """The command line beside a process whose payments have just been found down, with three orders that wait."""
    (shop / "bank.py").write_text(BANK)
    (shop / "refuses").touch()
    start(target="bank:app").until("ready: ")
    for order in "abc":
        arguments = json.dumps({"order": order})
        assert call("submit", "bank:app", "sell", "--task-id", order, "--arguments", arguments).exit_code == 0
    while [view["state"] for view in json_lines(call("agent", "list", "--json").stdout)] != ["open"]:
        pass  # it is another process's work: there is no event to wait for but the store
    return call


def test_a_person_sees_who_is_down_and_closes_it_once_it_is_well(down: Call, shop: Path) -> None:
    (listed,) = json_lines(down("agent", "list", "--json").stdout)
    assert (listed["agent"], listed["app"], listed["state"]) == ("payments", "bank", "open")
    shown = down("agent", "show", "payments").output
    assert "3 of 3 calls failed in 30 s: connection refused" in " ".join(shown.split())
    assert "arriero agent close payments --app-name bank --reason TEXT" in shown
    doctor = down("doctor")
    assert doctor.exit_code == 1
    assert "CARE  Agent payments gets no calls since" in doctor.output
    assert "gets no calls since" in " ".join(down("task", "explain", "a").output.split())
    assert down("task", "list", "--state", "held", "--json").output == ""
    (shop / "refuses").unlink()
    closed = down("agent", "close", "payments", *WHY)
    assert closed.output == "Agent payments of App bank gets calls as always\n"
    while len(json_lines(down("task", "list", "--state", "processed", "--json").stdout)) < 3:
        pass
    (line,) = json_lines(down("agent", "show", "payments", "--json").stdout)
    assert [text.split("Z ", 1)[1][:8] for text in line["history"]] == ["it opene", "ana clos"]


def test_how_its_calls_ended_is_told_once_the_process_has_left(
    call: Call, shop: Path, start: Callable[..., Run]
) -> None:
    (shop / "bank.py").write_text(BANK)
    running = start(target="bank:app")
    running.until("ready: ")
    assert "calls: none were counted so far" in " ".join(call("agent", "show", "payments").output.split())
    for order in "ab":
        arguments = json.dumps({"order": order})
        assert call("submit", "bank:app", "sell", "--task-id", order, "--arguments", arguments).exit_code == 0
    while len(json_lines(call("task", "list", "--state", "processed", "--json").stdout)) < 2:
        pass
    running.signal(signal.SIGTERM)
    assert running.ended()[0] == 0
    (line,) = json_lines(call("agent", "show", "payments", "--json").stdout)
    metrics = line["agent"]["metrics"]
    assert (metrics["app"], metrics["agent"], metrics["in_flight"], metrics["waiting"]) == ("bank", "payments", 0, 0)
    assert metrics["total"]["outcomes"] == {"succeeded": 2, "transient": 0, "permanent": 0, "unknown": 0, "expired": 0}
    assert sum(metrics["total"]["buckets"]) == 2
    assert len(metrics["total"]["buckets"]) == len(metrics["total"]["bounds_seconds"]) + 1
    assert [recent["minutes"] for recent in metrics["recent"]] == [1, 10, 60]
    (listed,) = json_lines(call("agent", "list", "--json").stdout)
    assert listed["metrics"]["total"] == metrics["total"]
    shown = " ".join(call("agent", "show", "payments").output.split())
    assert "calls: 2 calls since counting began; lately: last calls failed p50 p90 p99 1 min" in shown
    assert "60 min 2 0.0 % 0.0" in shown


def test_a_paused_agent_is_shown_with_who_and_why_and_resumed(down: Call) -> None:
    assert down("agent", "pause", "payments", *WHY, "--json").exit_code == 0
    assert "paused" in down("agent", "list").output
    assert 'by ana: "she says so"' in " ".join(down("agent", "show", "payments").output.split())
    refused = down("agent", "pause", "payments", *WHY)
    assert refused.exit_code == 3
    assert refused.stderr == "arriero: payments is paused already, by ana: she says so\n"
    resumed = down("agent", "resume", "payments", *WHY)
    assert resumed.output == "Agent payments of App bank takes requests again; its breaker is open\n"


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (("show", "nix"), "there is no Agent 'nix' in the store", 4),
        (("close", "nix", *WHY), "there is no Agent 'nix'; see `arriero agent list`", 4),
        (("close", "payments", "--app-name", "nix", *WHY), "there is no Agent 'payments' in App 'nix'", 4),
        (("close", "payments", "--target", "north", *WHY), "payments[north] is closed already", 3),
        (("open", "payments", "--by", "ana", "--reason", " "), "reason is ' '; a verb says who asks for it and why", 2),
        (("open", "payments", "--by", "ana"), "Missing option '--reason'", 2),
        (("show", ""), "name of an Agent has 0 characters", 2),
    ],
)
def test_what_cannot_be_done_is_one_line_and_an_exit_code(
    down: Call, words: tuple[str, ...], said: str, code: int
) -> None:
    result = down("agent", *words)
    assert result.exit_code == code
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


TWO_BANKS = BANK.replace(
    "@workflow",
    """eu = Agent("payments-eu", provides=payments, weight=3)


@eu.step(name="charge", effect_free=True)
def charge_eu(attempt: Attempt, order: str) -> str:
    return f"receipt-{order}"


@workflow""",
).replace("agents=[payments]", "agents=[payments, eu]")


def test_an_agent_with_providers_shows_what_each_of_them_gets(
    call: Call, shop: Path, start: Callable[..., Run]
) -> None:
    (shop / "bank.py").write_text(TWO_BANKS)
    start(target="bank:app").until("ready: ")

    def providers() -> list[dict[str, object]]:
        (shown,) = json_lines(call("agent", "show", "payments", "--json").stdout)
        found: list[dict[str, object]] = shown["agent"]["providers"]
        return found

    assert [(one["agent"], one["share"], one["is_hosted"]) for one in providers()] == [
        ("payments", 0.25, True),
        ("payments-eu", 0.75, True),
    ]
    while providers()[0]["free"] != 10:
        pass  # reported with the next renewal of another process
    shown = call("agent", "show", "payments").output
    assert "- payments-eu: 75%; closed, health 100%, 10 of 10 places free (weight 3, preference 0)" in shown
    assert call("agent", "pause", "payments", *WHY).exit_code == 0
    assert [(one["agent"], one["share"], one["state"]) for one in providers()] == [
        ("payments", 0.0, "paused"),
        ("payments-eu", 1.0, "closed"),
    ]
    assert json_lines(call("agent", "show", "payments-eu", "--json").stdout)[0]["agent"]["providers"] == []
