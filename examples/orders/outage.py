"""The outage of ``--outage``: one service is down for a time, for all workers at once.

The services are one process, so a service that is down there is down for everybody. The demonstration says when it begins,
reads the breaker's row of the store meanwhile, and does not end before the outage is over and the breaker has closed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from arriero.text.format import format_duration

from .places import Place
from .processes import RemoteServices

BEGINS_FROM = 0.1
"""The share of the orders that have ended when the outage begins: its service has answered until then."""
CLOSED, HALF_OPEN = "closed", "half_open"
STATE = "SELECT state FROM {breaker} WHERE agent = {mark}"
WAITING = "SELECT count(DISTINCT task_no) FROM {step} WHERE agent = {mark} AND state = 'pending' AND kind <> 'timer'"


@dataclass(frozen=True)
class Outage:
    """Which service shall be down, by the name of its Agent, and for how long."""

    agent: str
    seconds: float


class OutageCourse:
    """The outage of a demonstration as it goes.

    Attributes:
        began_at: by this machine's clock; None: it has not begun.
        waiting_max: the most orders that were seen waiting for the Agent at once, while its breaker was not closed.

    Args:
        orders: of the ledger.
        announce: shows a line to people.
    """

    def __init__(
        self, outage: Outage, place: Place, services: RemoteServices, orders: int, announce: Callable[[str], None]
    ) -> None:
        self.outage = outage
        self.began_at: datetime | None = None
        self.waiting_max = 0
        self._place = place
        self._services = services
        self._begins_from = int(BEGINS_FROM * orders)
        self._announce = announce
        self._over_at: float | None = None
        self._is_over = False
        self._state = CLOSED
        self._has_told_of_the_wait = False

    def look(self, ended: int) -> None:
        """Begin the outage when its time has come, say when it is over, and see how many orders wait.

        Args:
            ended: orders that have ended so far.
        Raises: NotReadable.
        """
        if self._over_at is None and ended >= self._begins_from:
            self._begin()
        elif self._over_at is not None and not self._is_over and time.monotonic() >= self._over_at:
            self._is_over = True
            self._announce(f"{self.outage.agent} answers again, after {self._told_seconds}")
        if self._over_at is not None:
            self._read_breaker()

    @property
    def is_settled(self) -> bool:
        """Whether the outage is over and its breaker does not let through canaries only."""
        return self._is_over and self._state != HALF_OPEN

    def note_all_ended(self) -> None:
        """Report once why the demonstration continues, though every order has ended."""
        if self._has_told_of_the_wait or self.is_settled:
            return
        self._has_told_of_the_wait = True
        what = f"the breaker of {self.outage.agent} closes" if self._is_over else f"{self.outage.agent} answers again"
        self._announce(f"every order has ended; the demo waits until {what}")

    @property
    def _told_seconds(self) -> str:
        return format_duration(self.outage.seconds)

    def _begin(self) -> None:
        self.began_at = datetime.now(UTC)
        self._services.take_down(self.outage.agent, self.outage.seconds)
        # Counted from the services' answer, so it is over there when it is over here.
        self._over_at = time.monotonic() + self.outage.seconds
        self._announce(f"{self.outage.agent} is down for {self._told_seconds}: it refuses every call")

    def _read_breaker(self) -> None:
        with self._place.reading() as connection:
            agent = (self.outage.agent,)
            states = connection.execute(STATE.format(**self._place.tables), agent).fetchall()
            self._state = states[0][0] if states else CLOSED
            if self._state != CLOSED:
                ((waiting,),) = connection.execute(WAITING.format(**self._place.tables), agent).fetchall()
                self.waiting_max = max(self.waiting_max, waiting)
