"""The books: whatever is not an order's whole effect, or none of it, is named."""

from __future__ import annotations

from datetime import datetime

import pytest

from examples.orders.books import Books, balance, in_units
from examples.orders.effects import Effect
from examples.orders.ledger import Kind, Order

AT = datetime(2026, 1, 5, 8, 0)
PURCHASE = Order("1", Kind.PURCHASE, "7", "Spain", AT, pieces=4, pence=1000)
GIFT = Order("1", Kind.PURCHASE, "7", "Spain", AT, pieces=4, pence=0)
CANCELLATION = Order("C2", Kind.CANCELLATION, "7", "Spain", AT, pieces=-4, pence=-1000)
CORRECTION = Order("3", Kind.CORRECTION, None, "Spain", AT, pieces=-9, pence=0)


def effect(operation: str, amount: int, *, order_id: str = "1", key: str = "", undone_key: str | None = None) -> Effect:
    service = {"charges": "payments", "refunds": "payments", "paybacks": "payments"}.get(operation, "stock")
    service = "shipping" if operation in ("parcels", "recalls") else service
    return Effect(0, service, operation, order_id, key or f"key of {operation}", amount, undone_key)


WHOLE = (effect("charges", 1000), effect("reservations", 4), effect("parcels", 1))
UNDONE = (
    effect("refunds", 1000, undone_key="key of charges"),
    effect("releases", 4, undone_key="key of reservations"),
    effect("recalls", 1, undone_key="key of parcels"),
)


def reasons(books: Books) -> list[tuple[str, str]]:
    assert not books.are_balanced
    return [(found.order_id, found.reason) for found in books.discrepancies]


def test_whole_orders_of_every_kind_balance() -> None:
    effects = [
        *WHOLE,
        effect("paybacks", 1000, order_id="C2"),
        effect("returns", 4, order_id="C2"),
        effect("corrections", 9, order_id="3"),
    ]
    states = {"1": "processed", "C2": "processed", "3": "processed"}
    books = balance([PURCHASE, CANCELLATION, CORRECTION], states, effects)
    assert books.are_balanced
    assert books.states == {"processed": 3}
    assert {line.operation.name: (line.done, line.undone, line.expected) for line in books.lines} == {
        "charges": (1000, 0, 1000),
        "paybacks": (1000, 0, 1000),
        "reservations": (4, 0, 4),
        "returns": (4, 0, 4),
        "corrections": (9, 0, 9),
        "parcels": (1, 0, 1),
    }


@pytest.mark.parametrize("effects", [(), (*WHOLE, *UNDONE), (WHOLE[0], UNDONE[0])])
@pytest.mark.parametrize("state", ["compensated", "held"])
def test_an_order_that_left_no_trace_balances(state: str, effects: tuple[Effect, ...]) -> None:
    assert balance([PURCHASE], {"1": state}, effects).are_balanced


def test_a_processed_order_without_one_of_its_effects_is_named() -> None:
    assert reasons(balance([PURCHASE], {"1": "processed"}, WHOLE[1:])) == [
        (
            "1",
            "processed, but charges: 0 of 0.00 pounds in all, less 0 refunds of 0.00 pounds,"
            " where there should be one of 10.00 pounds",
        )
    ]


def test_a_processed_order_charged_a_penny_wrong_is_named() -> None:
    ((order_id, reason),) = reasons(balance([PURCHASE], {"1": "processed"}, [effect("charges", 1001), *WHOLE[1:]]))
    assert order_id == "1"
    assert "10.01 pounds" in reason


def test_a_second_effect_under_one_key_is_named_even_where_it_moved_nothing() -> None:
    effects = [effect("charges", 0), effect("charges", 0), *WHOLE[1:]]
    found = reasons(balance([GIFT], {"1": "processed"}, effects))
    assert ("1", "charges: 2 effects under the one key key of charges") in found
    assert any("charges: 2 of 0.00 pounds in all" in reason for _, reason in found)


def test_a_second_effect_is_named_though_an_undo_evens_it_out() -> None:
    effects = [*WHOLE, WHOLE[0], UNDONE[0]]
    assert reasons(balance([PURCHASE], {"1": "processed"}, effects)) == [
        ("1", "charges: 2 effects under the one key key of charges")
    ]


def test_a_processed_order_that_was_refunded_is_named() -> None:
    ((_, reason),) = reasons(balance([PURCHASE], {"1": "processed"}, [*WHOLE, UNDONE[0]]))
    assert reason.startswith("processed, but charges: 1 of 10.00 pounds in all, less 1 refunds of 10.00 pounds")


def test_an_effect_that_the_order_does_not_call_for_is_named() -> None:
    effects = [effect("corrections", 9, order_id="3"), effect("parcels", 1, order_id="3")]
    ((order_id, reason),) = reasons(balance([CORRECTION], {"3": "processed"}, effects))
    assert order_id == "3"
    assert "parcels: 1 of 1 parcels" in reason
    assert reason.endswith("where there should be none")


@pytest.mark.parametrize(("state", "word"), [("compensated", "compensated"), ("held", "held")])
def test_an_effect_left_behind_by_an_order_that_is_not_processed_is_named(state: str, word: str) -> None:
    ((order_id, reason),) = reasons(balance([PURCHASE], {"1": state}, [*WHOLE, *UNDONE[1:]]))
    assert order_id == "1"
    assert reason.startswith(f"{word}, but charges: 1 of 10.00 pounds in all, less 0 refunds")


def test_an_undo_of_what_never_happened_is_named() -> None:
    ((_, reason),) = reasons(balance([PURCHASE], {"1": "compensated"}, [UNDONE[0]]))
    assert "charges: 0 of 0.00 pounds in all, less 1 refunds of 10.00 pounds" in reason


@pytest.mark.parametrize("state", ["pending", "processing", "compensating"])
def test_an_order_that_has_not_ended_is_named(state: str) -> None:
    assert reasons(balance([PURCHASE], {"1": state}, [])) == [("1", f"has not ended, its task is {state}")]


def test_an_order_without_a_task_is_named() -> None:
    assert reasons(balance([PURCHASE], {}, [])) == [("1", "never became a task")]


def test_effects_and_tasks_of_orders_nobody_submitted_are_named() -> None:
    effects = [*WHOLE, effect("charges", 5, order_id="9")]
    assert reasons(balance([PURCHASE], {"1": "processed", "8": "processed"}, effects)) == [
        ("8", "a task of an order that nobody submitted"),
        ("9", "effects of an order that nobody submitted"),
    ]


def test_an_effect_of_an_unknown_operation_is_named() -> None:
    strange = Effect(1, "payments", "parcels", "1", "key", 1, None)
    assert reasons(balance([PURCHASE], {"1": "processed"}, [*WHOLE, strange])) == [
        ("1", "an effect of an unknown operation, payments/parcels")
    ]


def test_amounts_read_as_a_person_writes_them() -> None:
    assert [in_units(amount, "pence") for amount in (0, 5, 1250, -123_456_789)] == [
        "0.00 pounds",
        "0.05 pounds",
        "12.50 pounds",
        "-1,234,567.89 pounds",
    ]
    assert in_units(74_215, "pieces") == "74,215 pieces"
