"""The remote services, as real processes: what they promise about keys, and each way in which they fail."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from waiting import HANGS_AFTER_SECONDS, wait_until

from examples.orders.effects import Effect, read_effects
from examples.orders.faults import Fault, FaultPlan

REPOSITORY = Path(__file__).parents[2]
SEED = 1
SLOW_SECONDS = 3600.0  # no test waits for a slow answer
PATIENT = httpx2.Timeout(HANGS_AFTER_SECONDS)
# The request is sent, however busy the machine is; the answer is not waited for.
NO_ANSWER = httpx2.Timeout(HANGS_AFTER_SECONDS, read=0.1)


class Running:
    """One process of the services and a client of it."""

    def __init__(self, book: Path, *options: str) -> None:
        self.book = book
        command = [sys.executable, "-m", "examples.orders.services", "--book", str(book), "--seed", str(SEED)]
        pauses = ["--slow-seconds", str(SLOW_SECONDS), "--hang-seconds", "30"]
        self.process = subprocess.Popen(
            [*command, *pauses, *options], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert ready.startswith("listening on http://127.0.0.1:"), ready
        self.client = httpx2.Client(base_url=ready.split()[-1], timeout=PATIENT, trust_env=False)

    def charge(
        self, order_id: str, *, key: str = "key", amount: int = 1000, timeout: httpx2.Timeout = PATIENT
    ) -> httpx2.Response:
        return self.post("/payments/charges", key, {"order_id": order_id, "amount": amount}, timeout)

    def refund(self, order_id: str, *, key: str = "undo", forward_key: str = "key") -> httpx2.Response:
        return self.post("/payments/refunds", key, {"order_id": order_id, "forward_key": forward_key})

    def post(self, path: str, key: str, body: Any, timeout: httpx2.Timeout = PATIENT) -> httpx2.Response:
        return self.client.post(path, json=body, headers={"Idempotency-Key": key}, timeout=timeout)

    def effects(self) -> list[tuple[str, int, str]]:
        return [(effect.operation, effect.amount, effect.idempotency_key) for effect in read_effects(self.book)]

    def fired(self) -> dict[str, int]:
        fired: dict[str, int] = self.client.get("/faults").json()["fired"]
        return {kind: count for kind, count in fired.items() if count}

    def end(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def calm(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "book.sqlite", "--faults", "none")
    yield running
    running.end()


@pytest.fixture
def stormy(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "book.sqlite", "--faults", "storm")
    yield running
    running.end()


def order_with(*faults: Fault | None) -> str:
    """An order whose first calls of a charge meet exactly these faults."""
    plan = FaultPlan("storm", SEED)
    for order_id in map(str, range(100_000)):
        if all(plan.fault_of("payments", "charges", order_id, call) is fault for call, fault in enumerate(faults, 1)):
            return order_id
    raise AssertionError(f"no order meets {faults}")


def test_a_call_has_its_effect_once_under_its_key(calm: Running) -> None:
    first, again = calm.charge("1"), calm.charge("1")
    assert first.status_code == again.status_code == 200
    assert first.json() == again.json()
    assert calm.charge("1", key="another").json() != first.json()
    assert calm.effects() == [("charges", 1000, "key"), ("charges", 1000, "another")]


def test_one_key_for_two_contents_is_refused(calm: Running) -> None:
    calm.charge("1")
    assert calm.charge("1", amount=1001).status_code == 422
    assert calm.charge("2").status_code == 422
    assert len(calm.effects()) == 1


def test_simultaneous_calls_under_one_key_have_one_effect(calm: Running) -> None:
    answers: list[object] = []
    callers = [threading.Thread(target=lambda: answers.append(calm.charge("1").json())) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(answers) == 8
    assert all(answer == answers[0] for answer in answers)
    assert len(calm.effects()) == 1


def test_services_do_not_share_their_keys(calm: Running) -> None:
    calm.charge("1")
    assert calm.post("/stock/reservations", "key", {"order_id": "1", "amount": 4}).status_code == 200
    assert [operation for operation, *_ in calm.effects()] == ["charges", "reservations"]


def test_an_undo_undoes_what_stands_under_the_forward_key_once(calm: Running) -> None:
    calm.charge("1")
    assert calm.refund("1").json() == calm.refund("1").json() == {"undone": 1}
    assert calm.refund("1", key="another undo").json() == {"undone": 0}
    *_, undo = read_effects(calm.book)
    assert undo == Effect(2, "payments", "refunds", "1", "undo", 1000, "key")


def test_an_undone_key_is_barred_though_its_answer_was_recorded(calm: Running) -> None:
    calm.charge("1")
    calm.refund("1")
    late = calm.charge("1")
    assert (late.status_code, late.json()["code"]) == (409, "barred")
    assert len(calm.effects()) == 2


def test_a_call_that_lands_after_its_undo_has_no_effect(calm: Running) -> None:
    assert calm.refund("1").json() == {"undone": 0}
    late = calm.charge("1")
    assert (late.status_code, late.json()["code"]) == (409, "barred")
    assert calm.effects() == []


def test_a_charge_of_nothing_is_an_effect(calm: Running) -> None:
    assert calm.charge("1", amount=0).status_code == 200
    assert calm.effects() == [("charges", 0, "key")]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/payments/charges", {"order_id": "1"}),
        ("/payments/charges", {"order_id": "1", "amount": -1}),
        ("/payments/charges", {"order_id": "1", "amount": True}),
        ("/payments/charges", {"order_id": "1", "amount": 2**63}),
        ("/payments/charges", {"order_id": 1, "amount": 1}),
        ("/payments/charges", [1]),
        ("/payments/refunds", {"order_id": "1"}),
        ("/payments/parcels", {"order_id": "1", "amount": 1}),
    ],
)
def test_a_call_that_cannot_be_understood_is_refused(calm: Running, path: str, body: object) -> None:
    assert calm.post(path, "key", body).status_code == 400
    assert calm.effects() == []


def test_a_call_without_a_key_is_refused(calm: Running) -> None:
    assert calm.client.post("/payments/charges", json={"order_id": "1", "amount": 1}).status_code == 400


def test_keys_and_bars_outlive_the_process(tmp_path: Path) -> None:
    book = tmp_path / "book.sqlite"
    before = Running(book, "--faults", "none")
    answer = before.charge("1").json()
    before.charge("2", key="undone")
    before.refund("2", forward_key="undone")
    before.end()
    assert len(list(read_effects(book))) == 3  # the killed process's book can be read without it
    after = Running(book, "--faults", "none")
    assert after.charge("1").json() == answer
    assert after.charge("2", key="undone").status_code == 409
    assert len(after.effects()) == 3
    after.end()


def test_forgetful_services_repeat_their_effects(tmp_path: Path) -> None:
    running = Running(tmp_path / "book.sqlite", "--faults", "none", "--break", "dedup")
    running.charge("1")
    running.charge("1")
    assert running.effects() == [("charges", 1000, "key")] * 2
    running.end()


def test_a_refused_connection_ends_without_answer_or_effect(stormy: Running) -> None:
    order_id = order_with(Fault.REFUSED, None)
    with pytest.raises(httpx2.TransportError):
        stormy.charge(order_id)
    assert stormy.effects() == []
    assert stormy.charge(order_id).status_code == 200
    assert stormy.fired() == {"refused": 1}


def test_a_server_error_has_no_effect(stormy: Running) -> None:
    order_id = order_with(Fault.SERVER_ERROR, None)
    assert stormy.charge(order_id).status_code == 500
    assert stormy.effects() == []
    assert stormy.charge(order_id).status_code == 200
    assert stormy.fired() == {"server_error": 1}


def test_a_lost_answer_leaves_its_effect_and_the_next_call_is_told_of_it(stormy: Running) -> None:
    order_id = order_with(Fault.LOST_ANSWER, None)
    with pytest.raises(httpx2.TransportError):
        stormy.charge(order_id)
    assert len(stormy.effects()) == 1
    assert stormy.charge(order_id).json() == {"number": "charges-1"}
    assert len(stormy.effects()) == 1
    assert stormy.fired() == {"lost_answer": 1}


def test_a_slow_answer_comes_after_the_deadline_and_its_effect_is_there_before(stormy: Running) -> None:
    order_id = order_with(Fault.SLOW, None)
    with pytest.raises(httpx2.TimeoutException):
        stormy.charge(order_id, timeout=NO_ANSWER)
    wait_until(lambda: len(stormy.effects()) == 1, "the effect")
    assert stormy.charge(order_id).status_code == 200
    assert len(stormy.effects()) == 1
    assert stormy.fired() == {"slow": 1}


def test_a_hanging_call_has_no_effect_and_no_answer(stormy: Running) -> None:
    order_id = order_with(Fault.HANG, None)
    with pytest.raises(httpx2.TimeoutException):
        stormy.charge(order_id, timeout=NO_ANSWER)
    wait_until(lambda: stormy.fired() == {"hang": 1}, "the fault")
    assert stormy.effects() == []
    assert stormy.charge(order_id).status_code == 200
    assert stormy.fired() == {"hang": 1}


def test_a_declined_card_stays_declined(stormy: Running) -> None:
    order_id = order_with(Fault.DECLINED)
    for key in ("key", "key", "another"):
        answer = stormy.charge(order_id, key=key)
        assert (answer.status_code, answer.json()["code"]) == (402, "declined")
    assert stormy.effects() == []
    assert stormy.fired() == {"declined": 3}


def test_an_empty_shelf_stays_empty(stormy: Running) -> None:
    plan = FaultPlan("storm", SEED)
    order_id = next(
        order_id
        for order_id in map(str, range(100_000))
        if plan.fault_of("stock", "reservations", order_id, 1) is Fault.OUT_OF_STOCK
    )
    answer = stormy.post("/stock/reservations", "key", {"order_id": order_id, "amount": 1})
    assert (answer.status_code, answer.json()["code"]) == (409, "out_of_stock")
    assert stormy.effects() == []
    assert stormy.fired() == {"out_of_stock": 1}


def test_a_service_that_is_down_refuses_every_call_and_nothing_happens(stormy: Running) -> None:
    order_id = order_with(Fault.SERVER_ERROR, None)
    stormy.client.post("/outages", json={"service": "payments", "seconds": 3600})
    for answer in (stormy.charge(order_id), stormy.charge(order_id), stormy.refund(order_id)):
        assert (answer.status_code, answer.json()["code"]) == (503, "down")
    assert stormy.post("/stock/nothing", "key", {"order_id": order_id}).status_code == 400  # the others answer
    assert stormy.client.get("/outages").json() == {"calls_while_down": {"payments": 3, "stock": 0, "shipping": 0}}
    assert stormy.fired() == {}
    stormy.client.post("/outages", json={"service": "payments", "seconds": 0})
    assert [stormy.charge(order_id).status_code for _ in range(2)] == [500, 200]
    assert stormy.effects() == [("charges", 1000, "key")]


def test_faults_follow_the_calls_under_a_key_not_the_clock(stormy: Running) -> None:
    order_id = order_with(Fault.SERVER_ERROR, Fault.SERVER_ERROR, None)
    assert [stormy.charge(order_id).status_code for _ in range(4)] == [500, 500, 200, 200]
    assert [stormy.charge(order_id, key="another").status_code for _ in range(3)] == [500, 500, 200]
