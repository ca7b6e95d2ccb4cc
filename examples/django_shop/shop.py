"""The shop's work, run by `arriero run examples.django_shop.shop:app` or, as here, beside the web."""

import os
from collections.abc import Iterator

from arriero import Agent, App, Permanent, Undo, workflow
from arriero.http import SyncClient

PAYMENTS = os.environ.get("SHOP_PAYMENTS", "http://localhost:8001")  # python -m examples.payment_service prints its own

payments = Agent("payments")
stock = Agent("stock")


@payments.resource
def client() -> Iterator[SyncClient]:
    with SyncClient(base_url=PAYMENTS) as opened:  # in a step it sends the key, and raises what an answer means
        yield opened


@payments.probe
def ask_payments() -> None:
    client().get("/health").raise_for_status()


@payments.step
def charge(order_id: str, pence: int) -> str:
    answer = client().post("/charges", json={"order": order_id, "pence": pence})
    return str(answer.json()["receipt"])


@charge.compensation
def refund(undo: Undo[str], order_id: str, pence: int) -> None:
    client().post("/refunds", json={"order": order_id, "charged_under": undo.forward_key})
    print(f"    refunded {pence} of {order_id}")


@stock.step(effect_free=True)  # it only looks
def reserve(pieces: int) -> None:
    if pieces > 10:
        raise Permanent(f"the warehouse has no {pieces} pieces", public="out of stock")


@workflow
async def fulfil(order_id: str, pieces: int, pence: int) -> str:
    receipt = await charge(order_id, pence)
    await reserve(pieces)
    return receipt


DATABASE = os.environ.get("SHOP_DATABASE", "postgresql://localhost/shop")
app = App("shop", agents=[payments, stock], workflows=[fulfil], store=DATABASE)
