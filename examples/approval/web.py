"""The shop's web server: it takes orders, and the bank's webhook.

export ARRIERO_STORE=sqlite:///shop.db ARRIERO_PUBLIC_URL=https://shop.example.com
SHOP_BANK=... SHOP_WAREHOUSE=... SHOP_BANK_SECRET=whsec_... uvicorn examples.approval.web:api
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI, HTTPException, Request
from pydantic import TypeAdapter, ValidationError

from arriero import CallbackRefused
from examples.approval import webhooks
from examples.approval.shop import Receipt, app, give_back, sell


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    async with app.running():  # or `async with app:` here, and `arriero run` in a process of its own
        yield


api = FastAPI(lifespan=lifespan)


@dataclass
class NewOrder:
    id: str
    cents: int
    open_for: float


@api.post("/orders", status_code=202)
async def place(new: NewOrder) -> dict[str, str]:
    task = await app.submit(sell(new.id, new.cents, new.open_for), task_id=new.id)
    return {"task": task.id}


@dataclass
class Payment:
    """What the bank sends. ``reference``: that of the collection, which is the token of the callback."""

    payment: str
    cents: int
    reference: str


@api.post("/bank/webhook")
async def hear_from_bank(request: Request) -> dict[str, str]:
    """Take a payment. The bank sends a message again, under the same id, until it is answered with 200."""
    body = await request.body()
    if not webhooks.is_genuine(os.environ["SHOP_BANK_SECRET"], request.headers, body):
        raise HTTPException(401, "the signature is wrong, or too old")
    try:
        paid = TypeAdapter(Payment).validate_json(body)
    except ValidationError:
        raise HTTPException(422, "this is not a payment") from None
    try:
        await app.complete_callback(
            paid.reference, Receipt(paid.payment, paid.cents), idempotency_key=request.headers["webhook-id"]
        )
    except CallbackRefused as refused:
        if refused.because in {"unfit", "inbox_full", "too_many", "unreadable"}:
            raise HTTPException(503, "send it again later") from refused
        if refused.because == "unknown":
            raise HTTPException(404, "no order has this reference") from refused
        # The order is undone, or another payment of it came first. The money must not stay with the shop.
        await app.submit(give_back(paid.payment), task_id=f"give-back-{paid.payment}")
        return {"payment": "given back"}
    return {"payment": "taken"}
