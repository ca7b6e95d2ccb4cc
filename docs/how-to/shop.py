"""The shop that the pages of this folder work on; run it with `arriero run shop:app`.

A file makes its services fail: while `bank-is-silent` is there nobody knows whether a charge happened, while
`refunds-are-down` is there no refund is accepted, while `stock-is-slow` is there a reservation takes its whole time.
"""

from pathlib import Path
from threading import Event

from arriero import Agent, App, Attempt, Permanent, Retry, Supervision, Transient, workflow

payments = Agent("payments")
stock = Agent("stock")


@stock.step
def reserve(attempt: Attempt, order: str) -> str:
    while Path("stock-is-slow").exists() and attempt.remaining > 0:
        Event().wait(0.02)
    return f"shelf-{order}"


@reserve.compensation
def release(order: str) -> None:
    pass


@payments.step(retry=Retry(tries=1), supervision=Supervision(attempts=1, then="hold"))  # then an operator decides
def charge(card: str, pence: int) -> str:
    if Path("bank-is-silent").exists():
        raise TimeoutError("the bank did not answer")  # it may have happened
    if card == "expired":
        raise Permanent("the card has expired", code="card_expired")
    return f"receipt-{pence}"


@charge.compensation(retry=Retry(tries=1), supervision=Supervision(attempts=1))
def refund(card: str, pence: int) -> None:
    if Path("refunds-are-down").exists():
        raise Transient("the bank takes no refunds now")


@stock.step(pivot=True)
def ship(order: str) -> str:
    return f"parcel-{order}"


@workflow(complete_within=3600)
async def fulfil(order: str, card: str, pence: int) -> str:
    """Reserve, charge, ship: once it is shipped, nothing is undone any more."""
    await reserve(order)
    receipt = await charge(card, pence)
    await ship(order)
    return receipt


@workflow(complete_within=3600)
async def prepay(order: str, card: str, pence: int) -> str:
    """The same without shipping, so that it can be undone."""
    await reserve(order)
    return await charge(card, pence)


app = App("shop", agents=[payments, stock], workflows=[fulfil, prepay])
