"""An App whose workflow waits for signals, on a store that the command line reaches too."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from arriero import Agent, App, Attempt, Permanent, Request, Signal, TaskFailed, workflow


@dataclass
class Approval:
    by: str
    note: str = ""


approved = Signal("approved", Approval)
paid = Signal("paid", int)
other = Signal("other", int)  # nobody here waits for it
change_address = Request("change_address", str, int)
till = Agent("till", breaker=None)


@till.step()
async def charge(attempt: Attempt) -> None: ...


async def wait_for_payment() -> int:
    return await paid.wait()


@workflow
async def sell() -> str:
    approval, _ = await asyncio.gather(approved.wait(), wait_for_payment())
    return approval.by


@workflow
async def sell_at_once() -> None: ...


@workflow
async def refuse() -> None:
    raise Permanent("no")


@workflow
async def deliver() -> list[str]:
    addresses: list[str] = []
    while len(addresses) < 2:
        request = await change_address.receive()
        if not request.value:
            request.refuse("an address has at least one letter")
            continue
        addresses.append(request.value)
        request.reply(len(addresses))
    return addresses


WORKFLOWS = [sell, sell_at_once, refuse, deliver]
app = App("shop", agents=[till], workflows=WORKFLOWS)  # for the command line, which names the store


def open_app(url: str, name: str = "shop") -> App:
    return App(name, agents=[till], workflows=WORKFLOWS, store=url)


async def plant(url: str) -> None:
    """Bring tasks into the store: one that waits for signals, those that receive nothing, and one of another App."""
    shop = open_app(url)
    async with shop.running():
        for task_id, work in (("ended", sell_at_once()), ("undone", refuse())):
            with suppress(TaskFailed):
                await shop.execute(work, task_id=task_id)
    async with shop:
        for task_id in ("waits", "full", "one-step"):
            await shop.submit(sell() if task_id != "one-step" else charge(), task_id=task_id)
    travel = open_app(url, "travel")
    async with travel:
        await travel.submit(sell(), task_id="elsewhere")
