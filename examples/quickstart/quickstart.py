import asyncio
from dataclasses import dataclass

from arriero import App, Attempt, Permanent, TaskCompensated, Undo


@dataclass(frozen=True)
class Order:
    id: str
    pieces: int


shop = App("shop")  # keeps its state in ./arriero.db
payments = shop.service("payments", max_in_flight=20)  # an Agent stands for one remote service
stock = shop.service("stock")


@payments.step(complete_within=10)  # timeout of an attempt, in seconds; a late result is discarded
async def charge(attempt: Attempt, order: Order) -> str:
    print("charge", order.id, "under", attempt.idempotency_key)  # the same key on every retry
    return f"receipt-{order.id}"


@charge.compensation  # arriero calls it if the order fails later, even after a crash
async def refund(undo: Undo[str], order: Order) -> None:
    print("refund", undo.result or "whatever was charged")  # None: the outcome is unknown


@stock.step  # plain functions are steps too
def reserve(order: Order) -> None:
    if order.pieces > 10:
        raise Permanent("out of stock")  # not retried: the order is undone
    print("reserve", order.pieces, "for", order.id)


@reserve.compensation
def release(order: Order) -> None:
    print("release", order.pieces, "of", order.id)


@shop.workflow  # after a crash it resumes at the last recorded step
async def fulfil(order: Order) -> str:
    receipt = await charge(order)
    await reserve(order)
    return receipt


async def main() -> None:
    async with shop.running():  # Scheduler, Agents and Supervisor in this process
        for order in Order("1001", 2), Order("1002", 99):
            try:
                print(order.id, await shop.execute(fulfil(order), task_id=order.id))
            except TaskCompensated as undone:
                print(order.id, "undone:", undone.reason)


if __name__ == "__main__":
    asyncio.run(main())
