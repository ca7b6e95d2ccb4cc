"""A shop behind the HTTP API: what its tests submit, and tasks in every state."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from server_world import TOKENS, ServerWorld, open_server

from arriero import Agent, App, Attempt, Permanent, Supervision, TaskFailed, Undo, sleep, workflow


@dataclass
class Order:
    item: str
    amount: int = 1


class ShopApp:
    """An App with a workflow that buys, one that sleeps and one that fails for good; each shop has its own."""

    def __init__(self, store: str = "memory://") -> None:
        till = Agent("till", breaker=None)

        @till.step(supervision=Supervision(attempts=1))
        async def charge(attempt: Attempt, order: Order) -> str:
            if order.item == "gold":
                raise Permanent(
                    "declined", code="declined", details={"card": "4711"}, public="Please pay in another way."
                )
            return f"receipt for {order.amount} {order.item}"

        @charge.compensation
        async def refund(undo: Undo[str], order: Order) -> None:
            pass

        @till.step(supervision=Supervision(attempts=1, then="hold"))
        async def audit(attempt: Attempt, item: str) -> str:
            raise Permanent("the books do not open", code="closed")

        @workflow
        async def fulfil(order: Order) -> str:
            return await charge(order)

        @workflow
        async def wait_long(seconds: float = 3_600.0) -> None:
            await sleep(seconds)

        @workflow
        async def inspect_item(item: str) -> str:
            return await audit(item)

        self.fulfil, self.wait_long, self.inspect_item = fulfil, wait_long, inspect_item
        self.app = App("shop", agents=[till], workflows=[fulfil, wait_long, inspect_item], store=store)


class ShopWorld(ServerWorld):
    """A server of the shop."""

    async def sell(self) -> None:
        """Submit a task in each state: processed, compensated, held and one that sleeps, and wait until it is there."""
        for task_id, workflow_name, arguments in (
            ("processed", "fulfil", {"order": {"item": "lamp"}}),
            ("compensated", "fulfil", {"order": {"item": "gold"}}),
            ("held", "inspect_item", {"item": "lamp"}),
            ("sleeping", "wait_long", {}),
        ):
            body = {"workflow": workflow_name, "arguments": arguments, "id": task_id}
            (await self.http.post("/v1/tasks", json=body)).raise_for_status()
        for task_id in ("processed", "compensated", "held"):
            with suppress(TaskFailed):
                await self.app.task(task_id).result(timeout=60)


@asynccontextmanager
async def open_shop(store: str = "memory://", *, running: bool = False, **options: Any) -> AsyncIterator[ShopWorld]:
    """Serve a shop. ``running``: its tasks are carried out in this process, too."""
    shop = ShopApp(store)
    async with open_server(shop.app, **options) as world:
        found = ShopWorld(*world)
        if not running:
            yield found
            return
        async with shop.app.running(store=store):
            yield found


def bearer(scope: str) -> dict[str, str]:
    """The header of a token that has one scope."""
    return {"Authorization": f"Bearer {TOKENS[scope]}"}
