"""The submission: each customer's orders are one convoy in the ledger's order, whatever became of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from examples.orders import submit
from examples.orders.generated import write_ledger
from examples.orders.ledger import Order, read_ledger
from examples.orders.places import Place, place_of

BY_PLACE = "SELECT key, task_id FROM arriero_task JOIN arriero_convoy_tail USING (convoy_no) ORDER BY convoy_no, place"


class Killed(Exception):
    """The process died here."""


@pytest.fixture
def orders(tmp_path: Path) -> tuple[Order, ...]:
    write_ledger(tmp_path / "ledger.csv", 120, seed=3)
    return read_ledger(tmp_path / "ledger.csv").orders


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    monkeypatch.setenv("ARRIERO_STORE", url)
    return place_of(url)


def placed(place: Place) -> dict[str, list[str]]:
    """The tasks of each convoy, by their places."""
    found: dict[str, list[str]] = {}
    with place.reading() as connection:
        for key, task_id in connection.execute(BY_PLACE).fetchall():
            found.setdefault(key, []).append(task_id)
    return found


def in_ledger_order(orders: Sequence[Order]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for order in orders:
        if order.customer_id is not None:
            found.setdefault(order.customer_id, []).append(order.id)
    return found


def kill_at(monkeypatch: pytest.MonkeyPatch, order_id: str) -> None:
    keep = submit.keep_order

    def keep_or_die(connection: Any, place: Place, order: Order) -> None:
        if order.id == order_id:
            raise Killed
        keep(connection, place, order)

    monkeypatch.setattr(submit, "keep_order", keep_or_die)


def test_each_customers_orders_are_one_convoy_in_the_ledgers_order(orders: tuple[Order, ...], place: Place) -> None:
    asyncio.run(submit.submit_orders(orders, place))
    assert placed(place) == in_ledger_order(orders)
    with place.reading() as connection:
        free = connection.execute("SELECT count(*) FROM arriero_task WHERE convoy_no IS NULL").fetchall()
    assert free == [(sum(order.customer_id is None for order in orders),)]


@pytest.mark.parametrize("at", [0, 20, 50, 119])
def test_a_submission_that_died_is_run_again_and_no_order_changes_its_place(
    orders: tuple[Order, ...], place: Place, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    with monkeypatch.context() as patch:
        kill_at(patch, orders[at].id)
        with pytest.raises(Killed):
            asyncio.run(submit.submit_orders(orders, place))
    whole_batches = orders[: at // submit.BATCH * submit.BATCH]
    assert placed(place) == in_ledger_order(whole_batches)
    for _ in range(2):
        asyncio.run(submit.submit_orders(orders, place))
        assert placed(place) == in_ledger_order(orders)


@pytest.mark.parametrize("seed", range(5))
def test_two_submissions_at_once_leave_each_order_at_its_place(
    orders: tuple[Order, ...], place: Place, seed: int
) -> None:
    async def run() -> None:
        turns = Random(seed)
        submissions = [batches(orders, size) for size in (7, 11)]
        async with submit.shop:
            with place.connected() as connection:
                submit.make_table(connection, place)
                while submissions:
                    submission = turns.choice(submissions)
                    batch = next(submission, None)
                    if batch is None:
                        submissions.remove(submission)
                    else:
                        assert await submit.submitted_together(batch, place, connection)

    asyncio.run(run())
    assert placed(place) == in_ledger_order(orders)


def batches(orders: Sequence[Order], size: int) -> Iterator[Sequence[Order]]:
    return (orders[at : at + size] for at in range(0, len(orders), size))
