"""The plan of faults: decided by the seed, sure to end, sure to show every kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.orders.faults import FINAL, LEVELS, Fault, FaultPlan, planned_faults
from examples.orders.generated import write_ledger
from examples.orders.ledger import read_ledger
from examples.orders.operations import OPERATIONS

ORDER_IDS = [str(number) for number in range(300)]


def test_the_same_seed_plans_the_same_faults_and_another_seed_others() -> None:
    def plan(seed: int) -> list[Fault | None]:
        return [FaultPlan("storm", seed).fault_of("payments", "charges", order_id, 1) for order_id in ORDER_IDS]

    assert plan(1) == plan(1) != plan(2)


@pytest.mark.parametrize("level", LEVELS)
def test_after_the_last_passing_fault_every_call_is_answered_or_finally_refused(level: str) -> None:
    plan = FaultPlan(level, 1)
    for operation in OPERATIONS:
        for order_id in ORDER_IDS:
            for name in (operation.name, operation.undo):
                answer = plan.fault_of(operation.service, name, order_id, LEVELS[level].calls_max + 1)
                assert answer == (FINAL[name] if plan.is_refused(name, order_id) else None)


def test_an_undo_is_never_finally_refused() -> None:
    plan = FaultPlan("storm", 1)
    assert not any(plan.is_refused(operation.undo, order_id) for operation in OPERATIONS for order_id in ORDER_IDS)


def test_a_refused_operation_is_never_planned_to_have_an_effect() -> None:
    plan = FaultPlan("storm", 1)
    refused = [order_id for order_id in ORDER_IDS if plan.is_refused("charges", order_id)]
    kinds = {plan.fault_of("payments", "charges", order_id, call) for order_id in refused for call in range(1, 6)}
    assert refused
    assert kinds <= {Fault.DECLINED, Fault.REFUSED, Fault.SERVER_ERROR, Fault.HANG}


@pytest.mark.parametrize("level", ["some", "storm"])
def test_the_default_orders_meet_every_kind_of_fault_whatever_the_seed(tmp_path: Path, level: str) -> None:
    for seed in range(50):
        path = tmp_path / str(seed)
        write_ledger(path, 500, seed)
        assert planned_faults(FaultPlan(level, seed), read_ledger(path).orders) == set(Fault)


def test_without_faults_none_is_planned(tmp_path: Path) -> None:
    write_ledger(tmp_path / "ledger", 500, seed=1)
    assert planned_faults(FaultPlan("none", 1), read_ledger(tmp_path / "ledger").orders) == frozenset()
