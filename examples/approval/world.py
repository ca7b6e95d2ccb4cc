"""What is around the shop: the bank that sends webhooks, the operators of finance, and the kills in between."""

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

import httpx2

from arriero import ApprovalNeeded, InvalidInput, TaskFailed
from examples.approval.remote import Payment, Remote
from examples.approval.shop import Decision, app
from examples.approval.shop_process import ShopProcess
from examples.approval.webhooks import sign

PATIENCE = 120.0  # seconds: nothing here should take thirty
PAUSE = 0.05  # seconds, before a request to a shop that was killed is sent again
KILLS = (("collection", 6), ("answer", 5), ("notice", 7), ("parcel", 6), ("withdrawal", 4))
"""After which call of a kind, counted since the kill before, the shop is killed: before it learns what became of the call."""

Verdict = Literal["counted", "kept", "refused"]


class NotAsPromised(Exception):
    """Something is not as it must be; the message says what."""


@dataclass(frozen=True)
class Order:
    """An order, as its customer places it."""

    id: str
    story: str
    cents: int
    open_for: float


class World:
    """Everything around one shop.

    Attributes:
        shop: its process.
        at_collection: by order, what happens when the bank is first asked to collect, before it answers.
        counted: who gave the answers that counted, by order.
        given_back: payments of which the shop says that it gives them back.
        forgeries: forged webhooks, by the status of the answer.
    """

    def __init__(self, secret: str) -> None:
        self.remote = Remote(self._called)
        self.shop: ShopProcess
        self.at_collection: dict[str, Callable[[], Awaitable[None]]] = {}
        self.counted: defaultdict[str, list[str]] = defaultdict(list)
        self.given_back: set[str] = set()
        self.forgeries: Counter[int] = Counter()
        self._secret = secret
        self._web = httpx2.AsyncClient(timeout=10)
        self._collected: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._asked: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._kills = list(KILLS)
        self._seen = 0

    async def close(self) -> None:
        """Close the connections to the shop."""
        await self._web.aclose()

    # --- kills
    @property
    def kills_left(self) -> int:
        """Kills of the plan that have not happened."""
        return len(self._kills)

    def _note(self, kind: str) -> bool:
        """Count a call, and kill the shop if it is time. Returns: whether it was killed."""
        if not self._kills or self._kills[0][0] != kind:
            return False
        self._seen += 1
        if self._seen < self._kills[0][1]:
            return False
        del self._kills[0]
        self._seen = 0
        self.shop.kill_and_restart()
        return True

    async def _called(self, kind: str, order: str) -> None:
        if kind == "collection":
            self._collected[order].set()
            if (early := self.at_collection.pop(order, None)) is not None:
                await early()
        self._note(kind)

    # --- customers
    async def _post(self, path: str, body: bytes, headers: Callable[[], dict[str, str]]) -> httpx2.Response:
        """Send a request until the shop answers, with 503 the next time."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                answer = await self._web.post(f"{self.shop.url}{path}", content=body, headers=headers())
            except httpx2.TransportError:
                await asyncio.sleep(PAUSE)  # it was killed, and starts
                continue
            if answer.status_code < 500:
                return answer
            await asyncio.sleep(PAUSE)
        raise NotAsPromised(f"the shop has not answered {path} in {PATIENCE:g} s")

    async def place(self, order: Order) -> None:
        """Place an order; again if the shop was killed before it answered."""
        body = {"id": order.id, "cents": order.cents, "open_for": order.open_for}
        answer = await self._post("/orders", json.dumps(body).encode(), lambda: {"Content-Type": "application/json"})
        if answer.status_code != 202:
            raise NotAsPromised(f"order {order.id} was answered {answer.status_code}: {answer.text}")

    async def wait_for_collection(self, order: Order) -> None:
        """Wait until the shop has asked the bank for the money."""
        async with asyncio.timeout(PATIENCE):
            await self._collected[order.id].wait()

    async def wait_for_end(self, order: Order) -> None:
        """Wait until the order is delivered or undone."""
        task = app.task(order.id)
        with suppress(TaskFailed):
            try:
                await task.result(timeout=PATIENCE)
            except TimeoutError:
                view = await task.view()
                raise NotAsPromised(
                    f"order {order.id} ({order.story}) is {view.state} after {PATIENCE:g} s: it waits for {view.waiting_for}"
                ) from None

    # --- the bank
    async def notify(self, payment: Payment) -> int:
        """Send the webhook of a payment until it is answered. Returns: the status of the answer."""
        body = _write(payment)
        answer = await self._post("/bank/webhook", body, lambda: sign(self._secret, payment.id, body, int(time.time())))
        if self._note("notice"):  # the bank never got this answer
            return await self.notify(payment)
        if answer.status_code != 200:
            raise NotAsPromised(f"the notice of payment {payment.id} was answered {answer.status_code}: {answer.text}")
        if answer.json()["payment"] == "given back":
            self.given_back.add(payment.id)
        return answer.status_code

    async def forge(self, order: Order) -> None:
        """Send what the bank did not: signed with another secret, changed, recorded an hour ago, not signed."""
        reference = self.remote.by_order[order.id][0].reference
        body = _write(Payment(f"{order.id}-forged", order.id, order.cents, reference))
        now = int(time.time())
        for headers in (
            sign("whsec_" + "Zm9yZ2Vk" * 4, "forged", body, now),
            sign(self._secret, "forged", body + b" ", now),
            sign(self._secret, "forged", body, now - 3_600),
            {"webhook-id": "forged"},
        ):
            answer = await self._post("/bank/webhook", body, partial(dict, headers))
            self.forgeries[answer.status_code] += 1

    # --- finance
    async def watch_questions(self) -> None:
        """Look at the open questions to finance, until this is cancelled."""
        while True:
            async for question in app.questions(of="finance"):
                self._asked[question.task_id].set()
            await asyncio.sleep(PAUSE)

    async def wait_for_question(self, order: Order) -> None:
        """Wait until finance is asked."""
        async with asyncio.timeout(PATIENCE):
            await self._asked[order.id].wait()

    async def answer(self, order: Order, by: str, *, approved: bool) -> Verdict:
        """Answer the question of an order. Returns: what became of the answer."""
        decision = Decision(approved, "as the customer's file says")
        try:
            await app.task(order.id).answer(step="question:finance", result=decision, by=by, reason="seen the file")
        except ApprovalNeeded:
            return "kept"
        except InvalidInput:  # there is no such question, or it was answered, or its time is over
            return "refused"
        self.counted[order.id].append(by)
        self._note("answer")
        return "counted"


def _write(payment: Payment) -> bytes:
    return json.dumps({"payment": payment.id, "cents": payment.cents, "reference": payment.reference}).encode()
