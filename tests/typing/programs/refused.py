"""What type-checkers refuse. Every line that they must refuse says so at its end; no other line may be refused."""

import asyncio
from dataclasses import dataclass

from arriero import Agent, App, Attempt, Retry, Supervision, SyncStep, Transient, Undo, workflow


@dataclass(frozen=True)
class Order:
    id: str


@dataclass(frozen=True)
class Receipt:
    number: str


payments = Agent("payments")


@payments.step
async def charge(attempt: Attempt, order: Order, *, tip: int = 0) -> Receipt:
    return Receipt(order.id)


@payments.step(complete_within=5)
def count(attempt: Attempt, article: str) -> int:
    return 1


@workflow
async def fulfil(order: Order) -> str:
    return order.id


shop = App("shop", agents=[payments], workflows=[fulfil])

# --- arguments
charge("1001")  # refused: arg-type
charge()  # refused: call-arg
charge(Order("1"), tip="2")  # refused: arg-type
charge(Order("1"), 2)  # refused: call-arg
charge(Order("1"), colour="red")  # refused: call-arg
count(1)  # refused: arg-type
fulfil("1001")  # refused: arg-type
charge(Order("1")).options(key=1)  # refused: arg-type
charge(Order("1")).options(complete_within="5")  # refused: arg-type
charge(Order("1")).options(colour="red")  # refused: call-arg


# --- results
async def results() -> None:
    number: int = await charge(Order("1"))  # refused: assignment
    task = await shop.submit(fulfil(Order("1")))
    receipt: Receipt = await task.result()  # refused: assignment
    count_of: str = count.function(Attempt(), "a")  # refused: assignment, call-arg
    await asyncio.gather(count(receipt.number), count(count_of), count(str(number)))


# --- declarations
@payments.step
def without_attempt(order: Order) -> None: ...


without_attempt("1001")  # refused: arg-type
without_attempt.function(Attempt(), Order("1"))  # refused: call-arg, arg-type


@without_attempt.compensation  # refused: call-overload, arg-type
def of_other_arguments(order: str) -> None: ...


@payments.step(complete_within="5")  # refused: call-overload
def with_text(attempt: Attempt) -> None: ...


@workflow  # refused: call-overload, arg-type
def not_async(order: Order) -> str:
    return order.id


@charge.compensation  # refused: call-overload, arg-type
async def of_another_result(undo: Undo[str], order: Order, *, tip: int = 0) -> None: ...


@charge.compensation  # refused: call-overload, arg-type
async def of_other_parameters(undo: Undo[Receipt], order: Order) -> None: ...


@count.compensation(complete_within=5)  # refused: call-overload, arg-type
def with_options_of_another_result(undo: Undo[str], article: str) -> None: ...


Retry(tries="3")  # refused: arg-type
Retry(3)  # refused: call-arg, misc
Supervision(then="retry")  # refused: arg-type
Agent("a", max_in_flight="3")  # refused: arg-type
App("shop", agents=[charge])  # refused: list-item
App("shop", workflows=[count])  # refused: list-item
Transient(retry_after="5")  # refused: arg-type
sync: SyncStep[[Order], Receipt] = charge  # refused: assignment


async def front() -> None:
    await shop.submit(fulfil)  # refused: arg-type
    await shop.submit(Order("1"))  # refused: arg-type
    await shop.submit(fulfil(Order("1")), priority="9")  # refused: arg-type
    shop.task(1)  # refused: call-overload
    shop.task("1", charge)  # refused: call-overload
    await shop.task("1", fulfil).cancel(by="me")  # refused: call-arg
    view = await shop.task("1", fulfil).view()
    view.priority = 3  # refused: misc
    if view.state == "done":  # refused: comparison-overlap
        pass
    _ = view.output.number  # refused: union-attr, attr-defined


# --- what an App declares for itself
cards = shop.service("cards", max_inflight=3)  # refused: call-arg


@shop.workflow(share="3")  # refused: arg-type, call-overload
async def of_shop(order: Order) -> str:
    return order.id


@shop.workflow
async def buy(order: Order) -> int:
    return 1


async def in_one_call() -> None:
    await shop.execute(buy("1"))  # refused: arg-type
    await shop.execute(buy(Order("1")), connection=None)  # refused: call-arg
    text: str = await shop.execute(buy(Order("1")))  # refused: assignment, arg-type
    shop.sync.execute(buy(Order(text)), timeout="5")  # refused: arg-type


# --- app.sync has the signatures of the async front
def without_a_loop() -> None:
    shop.sync.submit(fulfil(Order("1")), taskid="1")  # refused: call-arg
    shop.sync.submit(fulfil(Order("1")), priority="high")  # refused: arg-type
    shop.sync.submit(fulfil)  # refused: arg-type
    shop.sync.submit_ledger("l", [], bad="drop")  # refused: arg-type
    shop.sync.task(1)  # refused: call-overload
    shop.sync.tasks("error")  # refused: call-arg
    shop.sync.convoy()  # refused: call-arg
    task = shop.sync.task("1", fulfil)
    task.cancel(by="ana")  # refused: call-arg
    task.extend(by="ana", reason="r", within="1 h")  # refused: arg-type
    _: int = task.result()  # refused: assignment
    shop.sync.tasks(state="held").newest(limit="3")  # refused: arg-type
    shop.sync.convoy("c").set(by="ana", reason="r", head="drop")  # refused: arg-type
