"""Turns of the connections whose input is not parsed yet: each turn of the event loop parses a bounded amount for all of them."""

from collections.abc import Callable
from typing import Protocol

COST_PER_TURN = 512  # about 5 ms of parsing
COST_OF_REQUEST = 16  # so 32 begin in a turn; each takes about a millisecond in the next one


class Parsing(Protocol):
    """A connection. ``handle_events`` parses a bounded part of what has come, and returns its cost: 1 for each part of a body."""

    def handle_events(self) -> int: ...


class ParsingQueue:
    """Visits connections in the order in which they came, so that none waits for all that another one sent.

    Args:
        call_soon: calls a function in the next turn of the event loop.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._waiting: dict[Parsing, None] = {}
        self._left = COST_PER_TURN
        self._is_scheduled = False

    def __contains__(self, connection: Parsing) -> bool:
        return connection in self._waiting

    def offer(self, connection: Parsing) -> None:
        """Visit a connection now, if this turn has room and nobody waits; otherwise in a later turn."""
        self._schedule()
        if self._waiting or self._left <= 0:
            self._waiting[connection] = None
        else:
            self._visit(connection)

    def add(self, connection: Parsing) -> None:
        """Visit a connection in a later turn."""
        self._schedule()
        self._waiting[connection] = None

    def remove(self, connection: Parsing) -> None:
        """Forget a connection that is closed."""
        self._waiting.pop(connection, None)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._run_turn)

    def _run_turn(self) -> None:
        self._is_scheduled = False
        self._left = COST_PER_TURN
        for connection in list(self._waiting):
            if self._left <= 0:
                break
            if connection in self._waiting:  # a visit may close another one
                del self._waiting[connection]
                self._visit(connection)
        if self._waiting:
            self._schedule()

    def _visit(self, connection: Parsing) -> None:
        self._left -= 1 + connection.handle_events()
