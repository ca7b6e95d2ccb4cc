"""What type-checkers infer of definitions, call values and tasks. Never run: every line is judged by its types."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, assert_type
from uuid import UUID

import arriero
from arriero import (
    Agent,
    App,
    AsyncStep,
    AsyncStepWithoutAttempt,
    Attempt,
    ConvoyPolicy,
    Permanent,
    Retry,
    Step,
    StepCall,
    StepFailed,
    Supervision,
    SyncStep,
    SyncStepWithoutAttempt,
    Task,
    TaskCompensated,
    TaskFailed,
    TaskView,
    Transient,
    Undo,
    Workflow,
    WorkflowCall,
    testing,
    workflow,
)


@dataclass(frozen=True)
class Order:
    id: str


@dataclass(frozen=True)
class Receipt:
    number: str


class Client:
    async def post(self, path: str) -> str:
        return path


payments = Agent("payments", max_in_flight=20)
stock = Agent("stock")


# --- resources
@payments.resource
async def bank() -> AsyncIterator[Client]:
    yield Client()


@stock.resource
def shelf() -> Iterator[dict[str, int]]:
    yield {}


assert_type(bank(), Client)
assert_type(shelf(), dict[str, int])


# --- steps
@payments.step
async def charge(attempt: Attempt, order: Order, *, tip: int = 0) -> Receipt:
    assert_type(attempt.idempotency_key, str)
    assert_type(attempt.remaining, float)
    assert_type(attempt.complete_by, datetime)
    if tip > 100:
        raise Permanent("too much", code="tip", details={"tip": tip})
    if tip < 0:
        raise Transient("later", retry_after=timedelta(seconds=1))
    return Receipt(await bank().post(order.id))


@payments.step(name="pay-back", complete_within=10, wait_within=timedelta(hours=1), retry=Retry(tries=1), pivot=True)
async def pay_back(attempt: Attempt, order: Order) -> str:
    return order.id


@stock.step
def reserve(attempt: Attempt, order: Order) -> None: ...


@stock.step(supervision=Supervision(attempts=10, then="hold"), effect_free=True)
def count(attempt: Attempt, article: str) -> int:
    return shelf()[article]


@payments.step
async def price(order: Order, *, tip: int = 0) -> Receipt:
    assert_type(arriero.current_attempt(), Attempt)
    return Receipt(arriero.current_attempt().idempotency_key)


@payments.step(complete_within=10)
async def look_up(order: Order) -> str:
    return order.id


@stock.step
def weigh(order: Order) -> int:
    return 1


@stock.step(effect_free=True)
def tidy() -> None: ...


assert_type(price(Order("1"), tip=2), StepCall[Receipt])
assert_type(look_up(order=Order("1")), StepCall[str])
assert_type(weigh(Order("1")), StepCall[int])
assert_type(tidy(), StepCall[None])
async_without: AsyncStepWithoutAttempt[[Order], str] = look_up
sync_without: SyncStepWithoutAttempt[[Order], int] = weigh
step_without: Step[[Order], int] = weigh


@price.compensation
async def unprice(order: Order, *, tip: int = 0) -> None:
    assert_type(arriero.current_undo(), Undo[Any])


@weigh.compensation(complete_within=5)
def unweigh(undo: Undo[int], order: Order) -> None: ...


@look_up.compensation(complete_within=5)
def forget(order: Order) -> None: ...


async def test_a_step_without_an_attempt_by_its_function() -> None:
    assert_type(await price.function(Order("1"), tip=1), Receipt)
    assert_type(weigh.function(Order("1")), int)
    assert_type(tidy.function(), None)
    assert_type(await unprice(Order("1"), tip=1), None)


assert_type(charge(Order("1"), tip=2), StepCall[Receipt])
assert_type(pay_back(order=Order("1")), StepCall[str])
assert_type(reserve(Order("1")), StepCall[None])
assert_type(count("a"), StepCall[int])
assert_type(count("a").options(key="k", complete_within=5, wait_within=1, pivot=False), StepCall[int])
assert_type(
    count("a").options(retry=Retry(delay=timedelta(seconds=1)), supervision=Supervision(rounds=2)), StepCall[int]
)

as_async: AsyncStep[[Order], str] = pay_back
as_sync: SyncStep[[str], int] = count
as_step: Step[[str], int] = count
any_step: Step[..., Any] = charge
as_coroutine: Coroutine[Any, Any, Receipt] = charge(Order("1"))


async def test_a_step_by_its_function() -> None:
    assert_type(await charge.function(testing.attempt(), Order("1"), tip=1), Receipt)
    assert_type(await pay_back.function(testing.attempt(number=2), Order("1")), str)
    assert_type(count.function(testing.attempt(remaining=1.0), "a"), int)


# --- compensations: async and plain, with and without options; each stays the plain function
@charge.compensation
async def refund(undo: Undo[Receipt], order: Order, *, tip: int = 0) -> None:
    assert_type(undo.result, Receipt | None)
    assert_type(undo.forward_key, str)


@pay_back.compensation(complete_within=60, retry=Retry(tries=5), supervision=Supervision(attempts=20))
async def take_again(undo: Undo[str], order: Order) -> None: ...


@reserve.compensation
def release(undo: Undo[None], order: Order) -> None: ...


@count.compensation(complete_within=timedelta(minutes=1))
def uncount(undo: Undo[int], article: str) -> None: ...


plain_async: Callable[[Undo[str], Order], Coroutine[Any, Any, None]] = take_again
plain_sync: Callable[[Undo[int], str], None] = uncount


async def test_a_compensation_is_the_plain_function() -> None:
    nothing: Receipt | None = None
    await refund(testing.undo(Receipt("r")), Order("1"), tip=0)
    await refund(testing.undo(nothing, outcome="unknown"), Order("1"))
    await take_again(testing.undo("r"), Order("1"))
    release(testing.undo(None), Order("1"))
    uncount(testing.undo(3), "a")


# --- workflows
@workflow
async def fulfil(order: Order, *, gift: bool = False) -> list[str]:
    assert_type(await charge(order), Receipt)
    assert_type(await count("a").options(key="first"), int)
    assert_type(await asyncio.gather(charge(order), count("a")), tuple[Receipt, int])
    assert_type(await asyncio.gather(*(pay_back(order).options(key=key) for key in "ab")), list[str])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(charge(order))
    assert_type(task.result(), Receipt)
    done, _ = await asyncio.wait([asyncio.create_task(count("a"))], return_when=asyncio.FIRST_COMPLETED)
    assert_type([task.result() for task in done], list[int])
    try:
        await reserve(order)
    except StepFailed as failed:
        assert_type(failed.code, str)
        assert_type(failed.attempts, int)
    try:
        await reserve(order)
    except* StepFailed as several:
        assert_type(several, ExceptionGroup[StepFailed])
    await arriero.sleep(timedelta(days=30))
    await arriero.sleep(1.5)
    assert_type(arriero.now(), datetime)
    assert_type(arriero.uuid(), UUID)
    assert_type(arriero.random(), Random)
    return []


@workflow(
    name="correct-stock",
    complete_within=timedelta(days=2),
    supervision=Supervision(then="hold"),
    convoy_policy=ConvoyPolicy(head="skip"),
)
async def correct(article: str) -> int:
    return await count(article)


assert_type(fulfil(Order("1"), gift=True), WorkflowCall[list[str]])
assert_type(correct("a"), WorkflowCall[int])
as_workflow: Workflow[[str], int] = correct

shop = App("shop", agents=[payments, stock], workflows=[fulfil, correct], store="sqlite:///shop.db")


# --- tasks
async def main() -> None:
    async with shop as client:
        assert_type(client, App)
    async with shop.running(store="memory:", roles=["agents"], agents=["stock"]) as running:
        assert_type(running, App)
        task = await shop.submit(fulfil(Order("1")), task_id="1", priority=9, delay=timedelta(minutes=1))
        assert_type(task, Task[list[str]])
        assert_type(await task.result(timeout=30), list[str])
        assert_type(await shop.submit(charge(Order("1"))), Task[Receipt])
        assert_type(shop.task("1", fulfil), Task[list[str]])
        assert_type(shop.task("1", correct), Task[int])
        assert_type(shop.task("1"), Task[Any])
        view = await task.view()
        assert_type(view, TaskView[list[str]])
        assert_type(view.output, list[str] | None)
        assert_type(view.state, arriero.ProcessState)
        assert_type(view.ended_at, datetime | None)
        assert_type(view.took_seconds, float | None)
        assert_type(view.steps, tuple[arriero.StepView, ...])
        assert_type(view.last_failure, arriero.FailureView | None)
        assert_type(await shop.task("1").view(), TaskView[Any])
        try:
            await task.result()
        except TaskCompensated as undone:
            assert_type(undone.reason, str)
        except TaskFailed as failed:
            assert_type(failed.open_compensations, tuple[str, ...])


# --- people and messages
@shop.on_alert
def page(alert: arriero.Alert) -> None: ...


@shop.on_alert
async def page_later(alert: arriero.Alert) -> None: ...


def headline(view: TaskView) -> str:
    """Every state is there: else a checker would say that it may return None. A bare TaskView is one of any output."""
    match view.state:
        case "pending" | "processing":
            return view.waiting_for
        case "processed":
            return "done"
        case "compensating" | "compensated":
            return f"undone: {view.reason}"
        case "held":
            return "an operator"


def bar(step: arriero.StepView) -> int:
    match step.state:
        case "planned" | "pending":
            return 0
        case "running":
            return 50
        case "completed" | "failed" | "withdrawn":
            return 100


async def people() -> None:
    task = shop.task("1", fulfil)
    await task.resubmit(by="ana", reason="new card", arguments={"order": Order("1")}, step="charge")
    await task.answer(by="ana", reason="paid in cash", step="charge", result=Receipt("r"))
    await task.extend(by="ana", reason="slow week", within=timedelta(days=1))
    stuck = shop.tasks(state="held", agent="payments", older_than=timedelta(hours=2))
    assert_type(await stuck.count(), int)
    assert_type(await stuck.resubmit(by="ana", reason="bank is back", dry_run=True), arriero.Acted)
    async for view in stuck:
        assert_type(view, TaskView)
    async for status in shop.replies("web-1"):
        assert_type(status, arriero.Status)


def scripts() -> None:
    with arriero.connect("sqlite:///shop.db") as database:
        task = shop.sync.submit(count("a"), task_id="t", reply_to="web-1", connection=database)
    assert_type(task, arriero.SyncTask[int])
    assert_type(task.result(timeout=1), int)
    assert_type(task.view(), TaskView[int])
    assert_type(task.view().output, int | None)
    assert_type(list(shop.sync.tasks(state="held")), list[TaskView[Any]])
    task.cancel(by="ana", reason="no longer needed")
    assert_type(shop.sync.task("1", fulfil), arriero.SyncTask[list[str]])
    assert_type(shop.sync.tasks(state="held").count(), int)
    for status in shop.sync.replies("web-1", timeout=1):
        assert_type(status, arriero.Status)


def sync_mirrors_all_of_the_async_front() -> None:
    with shop.sync as front:
        assert_type(front, arriero.SyncApp)
    with shop.sync.running(store="memory:", roles=["agents"], agents=["stock"], lost_processes_max=3) as running:
        assert_type(running, arriero.SyncApp)
    front = shop.sync
    assert_type(front.submit(fulfil(Order("1")), task_id="1", convoy="c", sequence=1), arriero.SyncTask[list[str]])
    assert_type(front.submit(charge(Order("1")), priority=9, delay=1, end_of_sequence=False), arriero.SyncTask[Receipt])
    entries = [arriero.Entry(count("a"))]
    assert_type(front.submit_ledger("l", entries, bad="refuse"), arriero.Ledger)
    assert_type(front.task("1", correct), arriero.SyncTask[int])
    assert_type(front.task("1", of=correct), arriero.SyncTask[int])
    assert_type(front.task("1"), arriero.SyncTask[Any])
    assert_type(front.convoy("c"), arriero.SyncConvoy)
    assert_type(front.convoys(state="gap"), Iterator[arriero.ConvoyView])
    assert_type(front.replies("web-1"), Iterator[arriero.Status])
    tasks = front.tasks(state="held", workflow="w", agent="a", step="s", older_than=1, since=datetime.now(), code="c")
    assert_type(tasks, arriero.SyncTasks)

    task = front.task("1", correct)
    assert_type(task.id, str)
    assert_type(task.result(), int)
    assert_type(task.view().output, int | None)
    nothing: None = task.resubmit(by="ana", reason="new", arguments={"article": "b"}, step="count")
    nothing = task.compensate(by="ana", reason="gone")
    nothing = task.cancel(by="ana", reason="gone")
    assert_type(task.extend(by="ana", reason="slow", within=timedelta(days=1)), tuple[str, ...])
    nothing = task.answer(by="ana", reason="seen", step="count", result=3)
    nothing = task.pause(by="ana", reason="wait")
    nothing = task.resume(by="ana", reason="go")

    assert_type(tasks.count(), int)
    assert_type(tasks.newest(limit=3), list[TaskView[Any]])
    assert_type(next(iter(tasks)), TaskView[Any])
    assert_type(tasks.resubmit(by="ana", reason="r", dry_run=True, progress=print), arriero.Acted)
    assert_type(tasks.compensate(by="ana", reason="r"), arriero.Acted)
    assert_type(tasks.cancel(by="ana", reason="r"), arriero.Acted)
    assert_type(tasks.extend(by="ana", reason="r", within=5), arriero.Acted)
    assert_type(tasks.answer(by="ana", reason="r", step="s", did_not_happen=True), arriero.Acted)
    assert_type(tasks.pause(by="ana", reason="r"), arriero.Acted)
    assert_type(tasks.resume(by="ana", reason="r"), arriero.Acted)

    convoy = front.convoy("c")
    assert_type(convoy.key, str)
    assert_type(convoy.view(limit=3), arriero.ConvoyView)
    assert_type(
        convoy.set(by="ana", reason="r", head="skip", gap=None, gap_within=timedelta(hours=1)), arriero.ConvoyOutcome
    )
    assert_type(convoy.release(by="ana", reason="r"), arriero.ConvoyOutcome)
    assert_type(convoy.skip(by="ana", reason="r", seen=3), arriero.ConvoyOutcome)
    assert_type(convoy.park(by="ana", reason="r"), arriero.ConvoyOutcome)
    assert_type(convoy.move_to_head("1", by="ana", reason="r"), arriero.ConvoyOutcome)
    assert nothing is None


# --- ledgers and convoys
async def later() -> None:
    entries = [arriero.Entry(fulfil(Order("1")), convoy="c"), arriero.Entry(count("a"), task_id="t", sequence=1)]
    ledger = await shop.submit_ledger("l", entries, bad="set_aside")
    assert_type(ledger.accepted, int)


# --- an App that declares its own, and answers in one call
front = App("front")
cards = front.service("cards", max_in_flight=20, retry_budget=None)
assert_type(cards, Agent)


@cards.step
async def pay(order: Order) -> Receipt:
    return Receipt(order.id)


@front.workflow
async def buy(order: Order) -> Receipt:
    return await pay(order)


@front.workflow(name="sell", complete_within=5, undo_on_doubt="stop")
async def sell(order: Order, *, tip: int = 0) -> int:
    assert_type(arriero.convoy_state(Order), Order | None)
    return tip


async def answer_in_one_call() -> None:
    assert_type(buy(Order("1")), WorkflowCall[Receipt])
    assert_type(await front.execute(buy(Order("1")), task_id="1", timeout=5), Receipt)
    assert_type(await front.execute(pay(Order("1")), priority=9), Receipt)
    assert_type(front.sync.execute(sell(Order("1"), tip=1), timeout=timedelta(seconds=1)), int)
