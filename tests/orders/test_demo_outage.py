"""`arriero demo --outage`: a service is down for a time, and the demo tells what the store knows of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arriero.model import HistoryRow, Instant
from examples.orders import processes
from examples.orders.demo import run_demo
from examples.orders.outage_report import (
    Attempts,
    Opening,
    OutageReport,
    count_attempts,
    describe_outage,
    find_openings,
)

HELPERS = Path(__file__).parents[1] / "helpers"
DOWN = {"cause": "transient", "message": "payments is down", "code": "down"}
OTHER = {"cause": "expired", "message": "no answer within its time"}


@pytest.mark.acceptance
def test_a_service_that_is_down_opens_its_breaker_and_costs_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HELPERS))
    monkeypatch.setattr(processes, "WORKER_MODULE", "quick_breakers")
    store = f"sqlite:///{tmp_path / 'tasks.sqlite'}"
    done = run_demo(
        orders=150, faults="none", kills=0, processes=2, store=store, outage=("payments", 8.0), as_json=True
    )
    captured = capsys.readouterr()
    assert done == 0, captured
    figures = json.loads(captured.out)
    assert (figures["books_balanced"], figures["held"]) == (True, 0)
    told = figures["outage"]
    assert (told["agent"], told["seconds"]) == ("payments", 8.0)
    first, *_ = told["openings"]
    assert "calls failed in 30 s" in first["reason"] or "calls all failed" in first["reason"]
    assert all(opening["closed_at"] > opening["opened_at"] for opening in told["openings"])
    assert first["answered"] > 0
    assert told["calls_while_down"] > 0
    assert told["orders_waiting_max"] > 0
    assert told["attempts_charged"] == 0
    down, up = (captured.err.index(text) for text in ("payments is down for 8.0 s", "payments answers again"))
    assert down < up


def test_an_unknown_agent_is_refused_with_the_names_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_demo(orders=10, outage=("bank", 20.0)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "the demo has no Agent 'bank': name one of payments, stock, shipping\n"


def history(*commits: tuple[int, int, list[dict[str, Any]]]) -> list[HistoryRow]:
    """Rows of these commits, each with its task (0: the store), its instant and its events."""
    return [
        HistoryRow(no, task_no, "", no, Instant(at), "test", msgspec.Raw(msgspec.json.encode(events)), "")
        for no, (task_no, at, events) in enumerate(commits, 1)
    ]


def breaker(kind: str, agent: str = "payments", **fields: Any) -> dict[str, Any]:
    return {"type": f"breaker.{kind}", "agent": agent, "fence": 1, "app": "shop", **fields}


def test_a_canary_that_fails_opens_the_breaker_no_second_time() -> None:
    rows = history(
        (0, 5, [breaker("opened", "stock", reason="another service")]),
        (0, 10, [breaker("opened", reason="20 of 20 calls failed in 30 s")]),
        (0, 20, [breaker("probed")]),
        (0, 21, [breaker("answered", outcome="failed"), breaker("opened", reason="a canary failed: down")]),
        (0, 30, [breaker("probed")]),
        (0, 31, [breaker("answered", outcome="lost")]),
        (0, 32, [breaker("probed")]),
        (0, 33, [breaker("answered", outcome="answered")]),
        (0, 60, [breaker("closed")]),
        (0, 90, [breaker("opened", reason="again")]),
    )
    first = Opening(10, "20 of 20 calls failed in 30 s", 60, canaries=3, answered=1, failed=1, lost=1)
    assert find_openings(rows, "payments") == (first, Opening(90, "again"))
    assert find_openings(rows, "shipping") == ()


def failed(failure: dict[str, Any], *, is_charged: bool = True) -> dict[str, Any]:
    return {"type": "recover.applied", "step": 1, "failure": failure, "is_charged": is_charged}


def test_only_attempts_that_failed_because_the_service_was_down_are_counted() -> None:
    opened = {"type": "step.opened", "step": 1, "agent": "payments"}
    returned = {"type": "step.attempts_returned", "step": 1, "count": 1, "failure_count": 1}
    rows = history(
        (1, 1, [opened]),
        (1, 2, [failed(OTHER)]),
        (1, 3, [failed(DOWN)]),
        (1, 4, [failed(DOWN, is_charged=False)]),
        (1, 5, [returned]),
        (2, 1, [opened]),
        (2, 3, [failed(DOWN)]),
        (3, 1, [{**opened, "agent": "stock"}]),
        (3, 3, [failed(DOWN)]),
    )
    assert count_attempts(rows, "payments") == Attempts(failed=3, charged=2, returned=1)


def test_what_the_store_does_not_know_is_not_told() -> None:
    began_at = datetime(2026, 11, 24, 18, 0, tzinfo=UTC)
    report = OutageReport("stock", 20.0, None, None, (), Attempts(0, 0, 0), 0)
    assert list(describe_outage(report)) == ["outage: stock was never down"]
    down = OutageReport("stock", 20.0, began_at, None, (), Attempts(3, 3, 0), 0)
    assert list(describe_outage(down)) == [
        "outage: stock was down from 2026-11-24 18:00:00Z for 20 s",
        "the breaker of stock did not open",
        "3 attempts failed because it was down: 3 charged at first, 0 of them given back, so 3 count",
    ]
    opened = OutageReport("stock", 20.0, began_at, 1, (Opening(0, "why", None, 1, 0, 1),), Attempts(1, 0, 0), 7)
    assert list(describe_outage(opened))[1:4] == [
        "the breaker of stock opened at 1970-01-01 00:00:00Z: why",
        "1 request went as canaries: 0 answered, 1 failed, 0 lost with their process",
        "the breaker of stock has not closed again",
    ]
