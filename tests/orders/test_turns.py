"""The order of each customer's orders: whatever was not handled in its turn is named."""

from __future__ import annotations

from datetime import datetime

import pytest

from examples.orders.effects import Effect
from examples.orders.ledger import Kind, Order
from examples.orders.turns import Life, Turns, check_turns

AT = datetime(2026, 1, 5, 8, 0)


def order(id_: str, customer_id: str | None = "7") -> Order:
    return Order(id_, Kind.PURCHASE, customer_id, "Spain", AT, pieces=4, pence=1000)


def effect(order_id: str, operation: str = "charges") -> Effect:
    return Effect(0, "payments", operation, order_id, f"{operation} of {order_id}", 1000, None)


def processed(started_at: int, ended_at: int) -> Life:
    return Life("processed", started_at, ended_at)


ORDERS = [order("1"), order("2"), order("3")]
IN_TURN = {"1": processed(0, 10), "2": processed(10, 20), "3": processed(25, 30)}


def reasons(turns: Turns) -> list[tuple[str, str]]:
    assert not turns.are_kept
    return [(found.order_id, found.reason) for found in turns.discrepancies]


def test_orders_handled_one_after_the_other_are_in_order() -> None:
    effects = [effect("1"), effect("1", "parcels"), effect("2"), effect("3"), effect("3", "parcels")]
    turns = check_turns(ORDERS, IN_TURN, effects)
    assert turns.are_kept
    assert (turns.customers, turns.operations, turns.set_aside) == (1, 3, ())


def test_an_effect_after_the_first_one_of_a_later_order_is_named() -> None:
    effects = [effect("1"), effect("2"), effect("1", "parcels"), effect("1", "parcels"), effect("3")]
    assert reasons(check_turns(ORDERS, IN_TURN, effects)) == [
        ("1", "out of order: its parcels happened after order 2 of customer 7 had begun")
    ]


def test_an_undo_after_the_first_effect_of_a_later_order_is_named() -> None:
    effects = [effect("1"), effect("2"), effect("1", "refunds")]
    lives = IN_TURN | {"1": Life("compensated", 0, 10)}
    assert reasons(check_turns(ORDERS, lives, effects)) == [
        ("1", "out of order: its refunds happened after order 2 of customer 7 had begun")
    ]


def test_orders_handled_in_another_order_one_at_a_time_are_named() -> None:
    lives = {"1": processed(10, 20), "2": processed(0, 10), "3": processed(20, 30)}
    turns = check_turns(ORDERS, lives, [effect("2"), effect("1"), effect("3")])
    assert [order_id for order_id, _ in reasons(turns)] == ["1", "2"]


@pytest.mark.parametrize(
    "first", [Life("compensated", 0, 11), Life("processing", 0, None), Life("pending", None, None)]
)
def test_an_order_without_effects_that_began_too_early_is_named(first: Life) -> None:
    turns = check_turns(ORDERS[:2], {"1": first, "2": processed(10, 20)}, [])
    assert reasons(turns) == [("2", "out of order: it began before order 1 of customer 7 had ended")]


def test_an_order_is_held_against_all_that_come_before_it_not_only_the_last() -> None:
    lives = {"1": processed(0, 50), "2": processed(60, 70), "3": processed(40, 45)}
    assert reasons(check_turns(ORDERS, lives, [])) == [
        ("3", "out of order: it began before order 2 of customer 7 had ended")
    ]


def test_an_order_that_was_cancelled_before_it_began_keeps_the_order() -> None:
    lives = IN_TURN | {"2": Life("compensated", None, 5)}
    assert check_turns(ORDERS, lives, [effect("1"), effect("3")]).are_kept


def test_customers_and_orders_of_nobody_known_do_not_wait_for_each_other() -> None:
    orders = [order("1"), order("2", "8"), order("3", None), order("4", None)]
    lives = {id_: processed(0, 10) for id_ in "1234"}
    effects = [effect(id_, operation) for operation in ("charges", "parcels") for id_ in "4321"]
    turns = check_turns(orders, lives, effects)
    assert turns.are_kept
    assert (turns.customers, turns.operations) == (2, 2)


def test_an_order_that_was_set_aside_is_told_and_keeps_the_order() -> None:
    lives = IN_TURN | {"2": Life("held", 10, 20, is_set_aside=True)}
    turns = check_turns(ORDERS, lives, [effect("1"), effect("2"), effect("2", "refunds"), effect("3")])
    assert turns.are_kept
    assert turns.set_aside == ("2",)


def test_an_order_that_never_became_a_task_is_left_to_the_books() -> None:
    lives = {"1": processed(0, 10), "3": processed(10, 20)}
    assert check_turns(ORDERS, lives, [effect("1"), effect("3")]).are_kept
