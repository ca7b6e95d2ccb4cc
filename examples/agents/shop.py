"""An order workflow whose Agents are programs in other languages: payments in TypeScript, shipping in sh and curl."""

from arriero import Agent, App, Supervision, workflow

PATIENT = Supervision(attempts=20, rounds=2)

payments, shipping = Agent("payments"), Agent("shipping")


@payments.step(remote=True, complete_within=5, supervision=PATIENT)
def charge(order: str, cents: int) -> str: ...  # type: ignore[empty-body]


@charge.compensation(complete_within=5, supervision=PATIENT)
def refund(order: str, cents: int) -> None: ...


@shipping.step(remote=True, complete_within=5, supervision=PATIENT)
def book(order: str, grams: int) -> str: ...  # type: ignore[empty-body]


@book.compensation(complete_within=5, supervision=PATIENT)
def cancel(order: str, grams: int) -> None: ...


@workflow
async def fulfil(order: str, cents: int, grams: int) -> str:
    """Charge, then ship. What is too heavy is refused by shipping, and the charge is undone.

    An attempt to book that was killed is in doubt. Then the booking is cancelled first: it may have been made.
    """
    await charge(order, cents)
    return await book(order, grams)


app = App("agents-shop", agents=[payments, shipping], workflows=[fulfil])
