"""The shop's work, run by `arriero run examples.django_shop.shop:app` or, as here, beside the web."""

import os

from arriero import Agent, App, Attempt, Permanent, Undo, workflow

payments = Agent("payments")
stock = Agent("stock")


@payments.step
def charge(attempt: Attempt, order_id: str, pence: int) -> str:
    return f"receipt-{order_id}-{pence}"


@charge.compensation
def refund(undo: Undo[str], order_id: str, pence: int) -> None:
    print(f"    refunded {pence} of {order_id}")


@stock.step
def reserve(attempt: Attempt, pieces: int) -> None:
    if pieces > 10:
        raise Permanent("out of stock")


@workflow
async def fulfil(order_id: str, pieces: int, pence: int) -> str:
    receipt = await charge(order_id, pence)
    await reserve(pieces)
    return receipt


DATABASE = os.environ.get("SHOP_DATABASE", "postgresql://localhost/shop")
app = App("shop", agents=[payments, stock], workflows=[fulfil], store=DATABASE)
