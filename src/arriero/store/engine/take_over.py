"""Requests that an Agent takes over from another one that provides the same steps. Shared by all stores."""

import msgspec

from ...core.breaker_book import list_barred
from ...core.limits import LimitBook
from ...core.routing import OVERFLOW_SECONDS
from ...model import later
from .limits import read_rates
from .taking import Taking


class Asked(msgspec.Struct, frozen=True):
    """Requests of ``sibling`` that ``agent`` has ``room`` for; none of a priority below ``priority_from``."""

    agent: str
    sibling: str
    room: int
    priority_from: int


def take_over(taking: Taking, asked: Asked, limits: LimitBook | None) -> int:
    """Take requests of another Agent that its breaker does not let through, or that wait because it has no room.

    ``limits``: of the Agent that takes them over. Returns: how many began.
    """
    rows = taking.rows
    left = asked.room if limits is None else min(asked.room, limits.count_common_room())
    room = left
    while left > 0:
        now = rows.read_clock()
        closed, waited_since = list_barred(rows.breakers(asked.sibling), now), later(now, -OVERFLOW_SECONDS)
        found = taking.find_movable(
            asked.sibling, left, asked.priority_from, to=asked.agent, closed=closed, waited_since=waited_since
        )
        if limits is not None:
            read_rates(rows, limits, [step.limit_keys for step in found])
        wanted, barred = left, taking.list_barred(asked.agent)
        for step in found:
            has_room = limits is None or limits.count_room(step.limit_keys) > 0
            if has_room and taking.take(step, limits, moved_to=asked.agent):
                left -= 1
        if len(found) < wanted or (left == wanted and barred == taking.list_barred(asked.agent)):
            break  # what was found waits for its retry budget or for the room of its key
    return room - left
