"""Requests that an Agent takes over from another one that provides the same steps. Shared by all stores."""

import msgspec

from ...core.apps import apps_run_by
from ...core.breaker_book import list_barred
from ...core.limits import LimitBook
from ...core.routing import OVERFLOW_SECONDS, Ways
from ...model import later
from .limits import KEYS_AT_ONCE, read_rates
from .take_transaction import TakeTransaction


class TakeOverRequest(msgspec.Struct, frozen=True):
    """Requests of ``sibling`` that ``agent`` has ``room`` for; none of a priority below ``priority_from``."""

    agent: str
    sibling: str
    room: int
    priority_from: int


def take_over(transaction: TakeTransaction, asked: TakeOverRequest, limits: LimitBook | None) -> int:
    """Take requests of another Agent that its breaker does not let through, or that wait because it has no room.

    ``limits``: of the Agent that takes them over. Returns: how many began.
    """
    rows = transaction.rows
    room = left = asked.room if limits is None else min(asked.room, limits.count_common_room())
    if limits is not None and limits.is_keyed:
        left -= _take_over_by_turns(transaction, asked, limits, left)  # those without keys are taken below
    while left > 0:
        now = rows.read_clock()
        closed, waited_since = list_barred(rows.breakers(asked.sibling), now), later(now, -OVERFLOW_SECONDS)
        found = transaction.find_movable(
            asked.sibling, left, asked.priority_from, to=asked.agent, closed=closed, waited_since=waited_since
        )
        if limits is not None:
            read_rates(rows, limits, [step.limit_keys for step in found])
        wanted, barred = left, transaction.list_barred(asked.agent)
        for step in found:
            has_room = limits is None or limits.count_room(step.limit_keys) > 0
            if has_room and transaction.take(step, limits, moved_to=asked.agent):
                left -= 1
        if len(found) < wanted or (left == wanted and barred == transaction.list_barred(asked.agent)):
            break  # what was found waits for its retry budget or for the room of its key
    return room - left


def _take_over_by_turns(transaction: TakeTransaction, asked: TakeOverRequest, limits: LimitBook, room: int) -> int:
    """Take over one request of each key that has room, so that a key without room keeps no other from moving."""
    rows, left = transaction.rows, room
    now = rows.read_clock()
    closed, waited_since = list_barred(rows.breakers(asked.sibling), now), later(now, -OVERFLOW_SECONDS)
    page = _read_next_keys(transaction, asked.sibling, limits.row.last_keys)
    read_rates(rows, limits, page)
    with_room = [keys for keys in page if limits.count_room(keys)]
    while with_room and left > 0:
        keys, with_room = with_room[:left], with_room[left:]
        ways = Ways(closed=closed, barred=transaction.list_barred(asked.agent), waited_since=waited_since)
        for step in transaction.find_movable_of_keys(asked.sibling, keys, 1, asked.priority_from, ways):
            if limits.count_room(step.limit_keys) and transaction.take(step, limits, moved_to=asked.agent):
                limits.note_turn(step)
                left -= 1
    if left > 0 and len(page) == KEYS_AT_ONCE:
        limits.note_passed(page[-1])  # the next Take looks at the keys behind these
    return room - left


def _read_next_keys(transaction: TakeTransaction, sibling: str, start: str) -> list[str]:
    """Read keys under which requests of another Agent wait: those behind ``start``, then the others, and no more than a page."""
    rows, apps = transaction.rows, apps_run_by(transaction.command.app)
    behind = rows.select_waiting_keys(sibling, apps, start, KEYS_AT_ONCE)
    if len(behind) == KEYS_AT_ONCE or not start:
        return behind
    before = rows.select_waiting_keys(sibling, apps, "", KEYS_AT_ONCE - len(behind))
    return behind + [keys for keys in before if keys <= start]
