import asyncio
from dataclasses import dataclass

from arriero import App, Attempt, Permanent, TaskCompensated, Undo


@dataclass(frozen=True)
class Order:
    id: str
    pieces: int


shop = App("shop")  # keeps its state in ./arriero.db
payments = shop.service("payments", max_in_flight=20)  # one remote service, with at most 20 calls at a time
stock = shop.service("stock")


@payments.step(complete_within=10)  # timeout in seconds: then the outcome is unknown
async def charge(attempt: Attempt, order: Order) -> str:
    print("charge", order.id, "under", attempt.idempotency_key)  # the same key on every retry
    return f"receipt-{order.id}"


@charge.compensation  # arriero calls it if the order fails later, even after a crash
async def refund(undo: Undo[str], order: Order) -> None:
    # The result is None if the outcome is unknown: undo.forward_key, the key of the charge, names it all the same.
    print("refund", undo.result or undo.forward_key)


@stock.step  # plain functions are steps too
def reserve(order: Order) -> None:
    if order.pieces > 10:
        raise Permanent("out of stock")  # not retried: the order is undone
    print("reserve", order.pieces, "for", order.id)


@reserve.compensation
def release(order: Order) -> None:
    print("release", order.pieces, "of", order.id)


@shop.workflow  # after a crash it runs again from its first line, over the recorded results
async def fulfil(order: Order) -> str:
    receipt = await charge(order)
    await reserve(order)
    return receipt


async def main() -> None:
    async with shop.running():  # does the work in this process, until the block ends
        for order in Order("1001", 2), Order("1002", 99):
            try:
                print(order.id, await shop.execute(fulfil(order), task_id=order.id))
            except TaskCompensated as undone:
                print(order.id, "undone:", undone.reason)


if __name__ == "__main__":
    asyncio.run(main())
