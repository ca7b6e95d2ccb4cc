"""A shop for the pages of convoys, Agents, schedules and administration, with a browser that a token signs in."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import NamedTuple

from console_pages import Browser
from server_world import TOKENS, open_server

from arriero import Agent, App, Attempt, Permanent, Supervision, TaskFailed, convoy_state, keep_convoy_state, workflow

HOSTILE = '<script>alert(1)</script>/../\u202e"evil'
LONGEST = "x" * 255


class BoardShop:
    """Orders of customers: those named ``bad`` fail and are held."""

    def __init__(self) -> None:
        desk = Agent("desk")
        self.bad = {"bad"}

        @desk.step(supervision=Supervision(attempts=1, then="hold"))
        async def book(attempt: Attempt, name: str) -> None:
            if name in self.bad:
                raise Permanent(f"declined: {HOSTILE}", code="declined")

        @workflow(supervision=Supervision(attempts=1, then="hold"))
        async def order(name: str) -> int:
            count = (convoy_state(int) or 0) + 1
            await book(name)
            keep_convoy_state(count)
            return count

        self.order = order
        self.app = App("shop", agents=[desk], workflows=[order], store="memory://")
        self.app.schedule("hourly", order("regular"), every=timedelta(hours=1), tags={"team": "books"})


class BoardWorld(NamedTuple):
    """A shop that runs, and a browser that looks at it."""

    shop: BoardShop
    browser: Browser

    @property
    def app(self) -> App:
        return self.shop.app

    async def sign_in(self, token: str = TOKENS["admin"]) -> None:
        await self.browser.sign_in(token)

    async def block(self, key: str, *names: str) -> None:
        """Submit tasks of a key whose first one is held; their ids are ``KEY-1``, ``KEY-2``, ..."""
        for number, name in enumerate(("bad", *names), 1):
            await self.app.submit(self.shop.order(name), task_id=f"{key}-{number}"[:255], convoy=key)
        with suppress(TaskFailed):
            await self.app.task(f"{key}-1"[:255]).result(timeout=60)

    async def open_as(self, path: str, token: str) -> str:
        """Open a page with another token. Returns the text of the page."""
        self.browser.http.cookies.clear()
        await self.browser.sign_in(token)
        return (await self.browser.open(path)).text


@asynccontextmanager
async def open_board(*, running: bool = True) -> AsyncIterator[BoardWorld]:
    """Serve a shop and sign the token of admin in. ``running``: its tasks are carried out in this process, too."""
    shop = BoardShop()
    async with open_server(shop.app) as served:
        world = BoardWorld(shop, Browser(served.http))
        await world.sign_in()
        if not running:
            yield world
            return
        async with shop.app.running(store="memory://"):
            yield world
