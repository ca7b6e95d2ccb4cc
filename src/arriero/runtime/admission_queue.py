"""Priority queue that limits how many commands are in transit to the store.

Free places go alternately to the highest rank and to the oldest waiter, so that a high rank does not wait for all that
came before it, and a low one does not wait indefinitely. Waiters with the same key keep their order.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import NoReturn

from ..store.contract import Unwritten


class AdmissionQueue:
    """Priority queue that limits the commands in flight.

    Args:
        room: how many more commands may be in transit now, not counting callers that were let go and did not resume yet.
    """

    def __init__(self, room: Callable[[], int]) -> None:
        self._room = room
        self._waiting: dict[int, OrderedDict[int, asyncio.Future[None]]] = {}  # by rank, in the order they came
        self._keys: dict[str, list[int]] = {}  # of those who wait: the rank they have in common, and how many they are
        self._arrivals = 0
        self._called = 0  # called, and not resumed yet
        self._all_gone = asyncio.Event()  # nobody is called who has not gone
        self._all_gone.set()
        self._by_age = False  # to whom the next place goes
        self._is_closed = False

    def count_waiting(self) -> int:
        """Count the callers that wait for a place."""
        return sum(map(len, list(self._waiting.values())))

    async def enter(self, rank: int, key: str | None = None) -> None:
        """Wait for a place. The caller must put its command before it awaits anything else.

        If others wait with the same key, their rank is used.

        Raises: Unwritten - the line is closed.
        """
        if self._is_closed:
            await refuse_later()
        if not self._waiting and not self._called and self._room() > 0:
            return
        loop = asyncio.get_running_loop()
        called: asyncio.Future[None] = loop.create_future()
        if key is not None:
            of_key = self._keys.setdefault(key, [rank, 0])
            rank, of_key[1] = of_key[0], of_key[1] + 1
        self._arrivals += 1
        arrival = self._arrivals
        self._waiting.setdefault(rank, OrderedDict())[arrival] = called
        loop.call_soon(self.admit)  # there may be room once those have gone who are called already
        try:
            await called
        except BaseException:  # it is cancelled, or thrown away
            if called.done() and not called.cancelled():
                self._resume()
                self.admit()
            else:
                self._remove(rank, arrival)
            raise
        finally:
            if key is not None:
                self._forget_key(key)
        self._resume()

    def _forget_key(self, key: str) -> None:
        of_key = self._keys[key]
        of_key[1] -= 1
        if not of_key[1]:
            del self._keys[key]

    def admit(self) -> None:
        """Let the next ones go, as many as there is room for."""
        while self._waiting and self._room() > self._called:
            rank = min(self._waiting, key=self._find_oldest) if self._by_age else max(self._waiting)
            if self._call(rank, self._find_oldest(rank)):
                self._by_age = not self._by_age

    async def close(self) -> None:
        """Let all who wait go, in the order they came. Nobody else may enter."""
        self._is_closed = True
        everybody = [(arrival, rank) for rank, waiting in self._waiting.items() for arrival in waiting]
        for arrival, rank in sorted(everybody):
            self._call(rank, arrival)
        await self._all_gone.wait()

    def _find_oldest(self, rank: int) -> int:
        return next(iter(self._waiting[rank]))

    def _call(self, rank: int, arrival: int) -> bool:
        """Let one go. Returns False if it was cancelled a moment ago."""
        called = self._remove(rank, arrival)
        if called is None or called.done():
            return False
        self._called += 1
        self._all_gone.clear()
        called.set_result(None)
        return True

    def _resume(self) -> None:
        self._called -= 1
        if not self._called:
            self._all_gone.set()

    def _remove(self, rank: int, arrival: int) -> asyncio.Future[None] | None:
        of_rank = self._waiting.get(rank, OrderedDict())
        called = of_rank.pop(arrival, None)
        if not of_rank:
            self._waiting.pop(rank, None)
        return called


async def refuse_later() -> NoReturn:
    """Refuse after one turn of the event loop, so that a caller that tries again does not starve those who close."""
    turn = asyncio.Event()
    asyncio.get_running_loop().call_soon(turn.set)
    await turn.wait()
    raise Unwritten.as_it_closes()
