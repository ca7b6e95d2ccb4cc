"""The stories of the orders: when the bank's webhook and the answer of finance come, and how the order must end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from examples.approval.shop import LIMIT, LIMIT_OF_ONE
from examples.approval.world import NotAsPromised, Order, World

End = Literal["processed", "compensated"]
Play = Callable[[World, Order], Awaitable[End]]
Early = Callable[[World, Order], Awaitable[None]]

LONG, SHORT = 600.0, 2.0  # seconds for which an order is open: nothing waits for the first to pass


class Story(NamedTuple):
    """What happens around an order of this kind.

    Args:
        play: what customer, bank and finance do after the order was placed. Returns: how the order must end.
        cents: the least and the most that it costs.
        open_for: seconds for which the customer may pay, and finance may answer.
        early: what happens while the shop asks the bank to collect, before the code awaits it.
    """

    play: Play
    cents: tuple[int, int] = (100, LIMIT)
    open_for: float = LONG
    early: Early | None = None


def expect(found: object, wanted: object, what: str) -> None:
    """Raises: NotAsPromised - what was found is not what was wanted."""
    if found != wanted:
        raise NotAsPromised(f"{what}: {found}, not {wanted}")


async def pay(world: World, order: Order, cents: int | None = None) -> None:
    """Pay, and let the bank send its webhook."""
    await world.notify(world.remote.pay(order.id, order.cents if cents is None else cents))


async def answer_early(world: World, order: Order) -> None:
    expect(await world.answer(order, "ana", approved=True), "refused", "an answer before the question")


# --- the bank's webhook
async def webhook_early(world: World, order: Order) -> End:
    return "processed"


async def webhook_later(world: World, order: Order) -> End:
    await world.wait_for_collection(order)
    await pay(world, order)
    return "processed"


async def webhook_three_times(world: World, order: Order) -> End:
    await world.wait_for_collection(order)
    payment = world.remote.pay(order.id, order.cents)
    await asyncio.gather(world.notify(payment), world.notify(payment))
    await world.wait_for_end(order)
    await world.notify(payment)
    return "processed"


async def paid_twice(world: World, order: Order) -> End:
    await world.wait_for_collection(order)
    await asyncio.gather(pay(world, order), pay(world, order))
    return "processed"


async def paid_too_little(world: World, order: Order) -> End:
    await world.wait_for_collection(order)
    await pay(world, order, order.cents - 1)
    return "compensated"


async def webhook_late(world: World, order: Order) -> End:
    await world.wait_for_collection(order)
    payment = world.remote.pay(order.id, order.cents)
    await world.wait_for_end(order)
    await world.notify(payment)
    return "compensated"


async def paid_late(world: World, order: Order) -> End:
    await world.wait_for_end(order)
    await pay(world, order)
    return "compensated"


async def never_paid(world: World, order: Order) -> End:
    return "compensated"


async def webhook_forged(world: World, order: Order) -> End:
    await world.wait_for_collection(order)
    await world.forge(order)
    await pay(world, order)
    return "processed"


# --- the answer of finance
async def approved_then_paid(world: World, order: Order) -> End:
    await world.wait_for_question(order)
    expect(await world.answer(order, "ana", approved=True), "counted", "an answer")
    await pay(world, order)
    return "processed"


async def paid_then_approved(world: World, order: Order) -> End:
    await world.wait_for_question(order)
    expect(await world.answer(order, "ana", approved=True), "counted", "an answer")
    return "processed"


async def paid_then_refused(world: World, order: Order) -> End:
    await world.wait_for_question(order)
    expect(await world.answer(order, "bo", approved=False), "counted", "an answer")
    return "compensated"


async def refused_then_paid(world: World, order: Order) -> End:
    await world.wait_for_question(order)
    expect(await world.answer(order, "bo", approved=False), "counted", "an answer")
    await pay(world, order)  # while the order is undone, or after
    return "compensated"


async def answered_twice(world: World, order: Order) -> End:
    await world.wait_for_question(order)
    answers = [("ana", True), ("bo", False)]
    if order.cents % 2:
        answers.reverse()
    verdicts = await asyncio.gather(*(world.answer(order, by, approved=approved) for by, approved in answers))
    expect(sorted(verdicts), ["counted", "refused"], "two answers at the same time")
    await pay(world, order)
    return "processed" if world.counted[order.id] == ["ana"] else "compensated"


async def answered_late(world: World, order: Order) -> End:
    await world.wait_for_end(order)
    expect(await world.answer(order, "ana", approved=True), "refused", "an answer after the end")
    return "compensated"


async def never_answered(world: World, order: Order) -> End:
    return "compensated"


async def two_operators(world: World, order: Order) -> End:
    await world.wait_for_question(order)
    expect(await world.answer(order, "ana", approved=True), "kept", "the first operator's answer")
    expect(await world.answer(order, "bo", approved=True), "counted", "the second operator's answer")
    await pay(world, order)
    return "processed"


ABOVE = (LIMIT + 1, LIMIT_OF_ONE)
STORIES = {
    "webhook early": Story(webhook_early, early=pay),
    "webhook later": Story(webhook_later),
    "webhook three times": Story(webhook_three_times),
    "webhook forged": Story(webhook_forged),
    "webhook late": Story(webhook_late, open_for=SHORT),
    "paid twice": Story(paid_twice),
    "paid too little": Story(paid_too_little),
    "paid late": Story(paid_late, open_for=SHORT),
    "never paid": Story(never_paid, open_for=SHORT),
    "approved, then paid": Story(approved_then_paid, ABOVE),
    "paid, then approved": Story(paid_then_approved, ABOVE, early=pay),
    "paid, then refused": Story(paid_then_refused, ABOVE, early=pay),
    "refused, then paid": Story(refused_then_paid, ABOVE),
    "answered twice": Story(answered_twice, ABOVE),
    "answered early": Story(approved_then_paid, ABOVE, early=answer_early),
    "answered late": Story(answered_late, ABOVE, SHORT, early=pay),
    "never answered": Story(never_answered, ABOVE, SHORT, early=pay),
    "two operators": Story(two_operators, (LIMIT_OF_ONE + 1, 10 * LIMIT_OF_ONE)),
}
