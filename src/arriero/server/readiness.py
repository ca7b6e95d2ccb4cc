"""Readiness of the server: the store answers, and the loops of the App are alive."""

import asyncio
import logging

from ..client.client import Client
from ..errors import ArrieroError
from ..store.contract import SUPERVISOR_LEASE
from .shutdown_signal import ShutdownSignal

logger = logging.getLogger("arriero.server")
ANSWER_SECONDS_MAX = 2.0  # a store that takes longer counts as gone
REMEMBERED_SECONDS = 1.0  # however many ask, the store is asked once in it


class ServerReadiness:
    """Asks the store, and remembers its answer for a second."""

    def __init__(self, client: Client, shutdown: ShutdownSignal) -> None:
        self._client = client
        self._shutdown = shutdown
        self._answers = False
        self._asked_at: float | None = None
        self._asking: asyncio.Task[bool] | None = None

    async def find_obstacle(self) -> str:
        """Find why no work can be sent here; empty: it can."""
        session = self._client.session
        if self._shutdown.has_begun:
            return "the server is about to end"
        if not session.is_open:
            return "the App is not open"
        if session.node is not None and (session.node.session is None or not self._are_loops_alive()):
            return "a loop of the App has ended"
        return "" if await self._ask_store_once() else "the store does not answer"

    def _are_loops_alive(self) -> bool:
        node = self._client.session.node
        return node is not None and node.session is not None and all(node.session.list_loop_liveness().values())

    async def _ask_store_once(self) -> bool:
        now = self._client.session.ports.clock.monotonic()
        if self._asked_at is not None and now - self._asked_at < REMEMBERED_SECONDS:
            return self._answers
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask_store())
        self._answers = await asyncio.shield(self._asking)
        self._asked_at = self._client.session.ports.clock.monotonic()
        return self._answers

    async def _ask_store(self) -> bool:
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                await self._client.session.store.find_lease(SUPERVISOR_LEASE)
        except (ArrieroError, TimeoutError) as error:
            logger.warning("the store does not answer: %s", error or f"not within {ANSWER_SECONDS_MAX:g} s")
            return False
        return True
