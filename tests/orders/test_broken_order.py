"""The negative control of the order: with every task opened at once the demo finds out, and says which orders."""

from __future__ import annotations

import json

import pytest

from examples.orders.demo import run_demo


@pytest.mark.acceptance
def test_orders_handled_out_of_their_turn_are_found_out_by_the_services_own_book(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_demo(orders=150, faults="none", kills=0, broken="order", as_json=True) == 1
    figures = json.loads(capsys.readouterr().out)
    assert figures["books_balanced"]  # nothing else is wrong
    assert not figures["order_kept"]
    assert figures["order"]["out_of_order"] == len(figures["discrepancies"]) > 0
    assert any("had begun" in found["reason"] for found in figures["discrepancies"])
