"""A shop in trouble, for looking at the console: each state of a task, groups of failures, a question, convoys, a breaker, schedules.

    python -m lab.console_shop --port 8400    # prints an address and a token; Ctrl-C ends it

Its services are functions of this process. What is wrong with an order stands in the order.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from arriero import (
    Agent,
    App,
    Breaker,
    ConvoyPolicy,
    Permanent,
    Retry,
    Supervision,
    Transient,
    Workflow,
    ask,
    sleep,
    workflow,
)
from arriero.server.application import build_application
from arriero.server.authentication import TokenAuthenticator
from arriero.server.connection_limits import ConnectionLimits
from arriero.server.http_server import HttpServer
from arriero.server.sockets import ListenOptions, open_socket, plan_listening

HOLD = Supervision(attempts=1, then="hold")
TRIES = Retry(tries=2, delay=0.05)

payments = Agent("payments", max_in_flight=20)
stock = Agent("stock", max_in_flight=20)
shipping = Agent("shipping", max_in_flight=20, breaker=Breaker(minimum=3, window=30, cool_off=600))


@dataclass(frozen=True)
class Address:
    """Where a parcel goes."""

    street: str
    city: str
    country: str = "ES"


@dataclass(frozen=True)
class Order:
    """An order of a customer. ``card``: ``expired`` and ``stolen`` are refused."""

    id: str
    cents: int
    address: Address
    card: str = "valid"
    pieces: int = 1


@dataclass(frozen=True)
class Decision:
    """What finance says of a large refund."""

    approved: bool
    note: str = ""


@payments.step(supervision=HOLD, retry=TRIES)
async def charge(order: Order) -> str:
    """Charge the customer's card."""
    if order.card == "expired":
        raise Permanent("the card has expired", code="card_expired")
    if order.card == "slow":
        await asyncio.sleep(0.3)
    return f"receipt-{order.id}"


@charge.compensation
async def refund(order: Order) -> None:
    """Give the money back."""


@stock.step(retry=TRIES)
async def reserve(order: Order) -> str:
    """Set the pieces aside."""
    if order.pieces > 100:
        raise Permanent(f"there are not {order.pieces} pieces on the shelf", code="out_of_stock")
    return f"shelf-{order.pieces}"


@reserve.compensation
async def release(order: Order) -> None:
    """Put the pieces back."""


@shipping.step(supervision=HOLD, retry=Retry(tries=1))
async def ship(order: Order) -> str:
    """Hand the parcel to the carrier."""
    if not order.address.city:
        raise Permanent("the carrier needs a city", code="address_incomplete")
    return f"parcel-{order.id}"


@ship.compensation
async def recall(order: Order) -> None:
    """Call the parcel back."""


courier = Agent("courier", breaker=Breaker(minimum=3, window=30, cool_off=600))


@courier.step(supervision=Supervision(attempts=50), retry=Retry(tries=1))
async def send_courier(order_id: str) -> str:
    """Send a courier; the courier's service is down."""
    raise Transient("connection refused by courier.example.com:443", code="unreachable")


@workflow(convoy_policy=ConvoyPolicy(head="park", gap="wait", gap_within=3_600))
async def fulfil(order: Order) -> str:
    """The money first, then pieces and parcel."""
    receipt = await charge(order)
    await asyncio.gather(reserve(order), ship(order))
    return receipt


@workflow
async def express(order_id: str) -> str:
    """A parcel by courier."""
    return await send_courier(order_id)


@workflow
async def pay_out(customer: str, euros: int) -> str:
    """A refund that finance approves."""
    decision = await ask(f"Pay out {euros:,} EUR to {customer}?", Decision, of="finance", within=172_800)
    return "paid" if decision.approved else f"refused: {decision.note}"


@workflow
async def remind(order_id: str) -> None:
    """A reminder some days later."""
    await sleep(259_200)


@workflow
async def close_books(day: str = "today") -> str:
    """The books of a day."""
    return day


WORKFLOWS: list[Workflow[..., Any]] = [fulfil, express, pay_out, remind, close_books]


def build_shop(store: str = "memory://") -> App:
    """Build the App on a store. Its schedules are declared."""
    app = App("shop", agents=[payments, stock, shipping, courier], workflows=WORKFLOWS, store=store)
    app.schedule("nightly-books", close_books(), cron="30 3 * * *", timezone="Europe/Madrid")
    app.schedule("hourly-report", close_books("hour"), every=3_600.0)
    return app


def _order(number: int, **changes: object) -> Order:
    given = {
        "card": "valid",
        "pieces": 1 + number % 3,
        "address": Address(f"Calle Mayor {number}", "Madrid"),
        **changes,
    }
    return Order(f"order-{number}", 1_990 + 37 * number, **given)  # type: ignore[arg-type]  # as a test names them


async def plant(app: App, orders: int = 40) -> None:
    """Submit what the pages show, and wait until it stands as it should. The App runs."""
    good = [
        await app.submit(fulfil(_order(n)), task_id=f"order-{n}", tags={"channel": "web"})
        for n in range(1000, 1000 + orders)
    ]
    for task in good:
        await task.result()
    expired = [
        await app.submit(fulfil(_order(n, card="expired")), task_id=f"order-{n}", tags={"channel": "shop"})
        for n in range(2000, 2012)
    ]
    empty = [await app.submit(fulfil(_order(n, pieces=500)), task_id=f"order-{n}") for n in range(3000, 3004)]
    stuck = await app.submit(
        fulfil(_order(4711, address=Address("Calle Mayor 4711", ""))), task_id="order-4711", tags={"channel": "web"}
    )
    convoy = [
        await app.submit(
            fulfil(_order(n, card="expired" if n == 5001 else "valid")), task_id=f"order-{n}", convoy="customer-7"
        )
        for n in range(5000, 5004)
    ]
    await app.submit(fulfil(_order(5102)), task_id="order-5102", convoy="customer-8", sequence=2)
    await app.submit(pay_out("Ana <b>Ruiz</b>", 4_200), task_id="refund-31")
    await app.submit(pay_out("Eva Sanz", 12_500), task_id="refund-32")
    await app.submit(remind("order-1000"), task_id="reminder-1000")
    for number in range(6):
        await app.submit(express(f"order-{6000 + number}"), task_id=f"express-{6000 + number}")
    for task in (*expired, *empty, stuck, convoy[0], convoy[1]):
        with suppress(Exception):
            async with asyncio.timeout(20):
                await task.result()
    async with asyncio.timeout(20):
        while not await _is_in_trouble(app):
            await app.session.ports.clock.sleep(0.02)


async def _is_in_trouble(app: App) -> bool:
    store = app.session.store
    is_open = any(row.state != "closed" for row in await store.list_breakers())
    return is_open and len(await store.questions()) == 2


class ServedShop:
    """A shop that runs and is served.

    Attributes:
        url: of the server; it stays the same when the server restarts.
        token: of an admin named ana.
    """

    def __init__(self, app: App, port: int) -> None:
        self.app = app
        self.token = ""
        self._open(port)
        self._port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"

    def _open(self, port: int) -> None:
        self.server = build_application(self.app, TokenAuthenticator(self.app.session))
        self._listener = open_socket(plan_listening(ListenOptions(port=port)))
        self._http = HttpServer(self.server, self._listener, None, ConnectionLimits(400, 500))

    async def serve(self) -> None:
        """Accept connections."""
        await self._http.start()

    async def stop_serving(self) -> None:
        """End the server, and leave the App running."""
        self.server.shutdown.begin()
        await self._http.stop()

    async def serve_again(self) -> None:
        """Serve at the same address again."""
        self._open(self._port)
        await self._http.start()


@asynccontextmanager
async def serving_shop(store: str = "memory://", port: int = 0, orders: int = 40) -> AsyncIterator[ServedShop]:
    """Run the shop, bring it into trouble, and serve it on a port of this machine. ``port``: 0 for a free one."""
    app = build_shop(store)
    async with app.running():
        shop = ServedShop(app, port)
        await shop.serve()
        try:
            shop.token = (await app.tokens.create("ana", scopes=["admin"], by="lab")).token
            await plant(app, orders)
            yield shop
        finally:
            await shop.stop_serving()


async def main(port: int) -> None:
    """Serve until Ctrl-C."""
    async with serving_shop(port=port) as shop:
        sys.stdout.write(f"{shop.url}/sign-in#{shop.token}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--port", type=int, default=8400)
    with suppress(KeyboardInterrupt):
        asyncio.run(main(parser.parse_args().port))
