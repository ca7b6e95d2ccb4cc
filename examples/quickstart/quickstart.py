import asyncio
from dataclasses import dataclass

from arriero import Agent, App, Attempt, Permanent, TaskCompensated, Undo, workflow


@dataclass(frozen=True)
class Order:
    id: str
    pieces: int


payments = Agent("payments", max_in_flight=20)  # an Agent is the one object for one remote service
stock = Agent("stock")


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
        raise Permanent("out of stock")


@workflow  # resumes after its last recorded step, whatever died
async def fulfil(order: Order) -> str:
    receipt = await charge(order)
    await reserve(order)
    return receipt


shop = App("shop", agents=[payments, stock], workflows=[fulfil])  # keeps its state in ./arriero.db


async def main() -> None:
    async with shop.running():  # Scheduler, Agents and Supervisor in this process
        for order in Order("1001", 2), Order("1002", 99):
            task = await shop.submit(fulfil(order), task_id=order.id)
            try:
                print(order.id, await task.result())
            except TaskCompensated as undone:
                print(order.id, "undone:", undone.reason)


if __name__ == "__main__":
    asyncio.run(main())
