import asyncio
from dataclasses import dataclass

from arriero import App, Attempt, Permanent, TaskCompensated, Undo


@dataclass(frozen=True)
class Order:
    id: str
    pieces: int


shop = App("shop")  # keeps its state in ./arriero.db
payments = shop.service("payments", max_in_flight=20)  # an Agent: the one object for one remote service
stock = shop.service("stock")


@payments.step(complete_within=10)  # seconds; later answers never count
async def charge(attempt: Attempt, order: Order) -> str:
    print("charge", order.id, "under", attempt.idempotency_key)  # the same key at every attempt
    return f"receipt-{order.id}"


@charge.compensation  # arriero calls it, also after a crash; you never do
async def refund(undo: Undo[str], order: Order) -> None:
    print("refund", undo.result or "whatever was charged")  # None: nobody knows whether it happened


@stock.step  # plain functions are steps too
def reserve(order: Order) -> None:
    if order.pieces > 10:
        raise Permanent("out of stock")  # surely did not happen: nothing to release
    print("reserve", order.pieces, "for", order.id)


@reserve.compensation
def release(order: Order) -> None:
    print("release", order.pieces, "of", order.id)


@shop.workflow  # resumes after its last recorded step, whatever died
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
