"""A Take in one transaction: it chooses the due requests that begin as attempts of the asking process."""

from ...answers import LimitedAgent, Taken
from ...breakers import BreakerRow
from ...commands import Take
from ...core.limits import LimitBook, find_limits
from ...core.reserve import URGENT_FROM
from ...limits import AgentLimitsRow
from ...model import seconds_between
from ..sql.agent_rows import CommandRows
from .limits import open_book, write_book
from .take_by_turns import take_by_turns
from .take_over import TakeOverRequest, take_over
from .take_transaction import TakeTransaction


def take_requests(command: Take, rows: CommandRows) -> Taken:
    """Take due requests of the Agents that have places, at most as many as those."""
    transaction = TakeTransaction(command, rows)
    books: dict[str, LimitBook] = {}
    locked: dict[str, AgentLimitsRow] = {}
    siblings = dict(command.siblings)
    wanted = [(agent, room, 0) for agent, room in command.room]
    wanted += [(agent, room, URGENT_FROM) for agent, room in command.urgent]
    for agent, room, priority_from in wanted:
        if agent not in books and find_limits(rows.limits(agent), command.app) is not None:
            book = open_book(rows, command.app, agent)
            if book is not None:
                books[agent], locked[agent] = book, book.row
        taken = _take(transaction, agent, room, priority_from, books.get(agent))
        if taken < room and rows.breakers(agent):
            with transaction.takes_failed(agent) as may_go:
                taken += _take(transaction, agent, room - taken, priority_from, books.get(agent)) if may_go else 0
        left = room - taken
        for sibling in siblings.get(agent, ()) if left else ():
            left -= take_over(transaction, TakeOverRequest(agent, sibling, left, priority_from), books.get(agent))
    breakers: list[BreakerRow] = []
    for agent, _ in command.room:
        breakers += rows.breakers(agent)
    for agent, book in books.items():
        write_book(rows, book, locked[agent])
    return Taken(tuple(transaction.dispatches), tuple(breakers), tuple(map(_describe, books.values())))


def _take(transaction: TakeTransaction, agent: str, room: int, priority_from: int, limits: LimitBook | None) -> int:
    """Take requests of an Agent. Returns how many."""
    if limits is None:
        return _take_in_order(transaction, agent, room, priority_from)
    return _take_limited(transaction, limits, room, priority_from)


def _take_in_order(
    transaction: TakeTransaction,
    agent: str,
    room: int,
    priority_from: int,
    limits: LimitBook | None = None,
    *,
    keyless: bool = False,
) -> int:
    """Take requests in the order of core.due. Returns how many."""
    left = room
    while left > 0:
        found = transaction.find_due(agent, left, priority_from, keyless=keyless)
        asked = left
        left -= sum([transaction.take(step, limits) for step in found])
        if len(found) < asked:
            break  # else some were passed over, and others may stand behind them
    return room - left


def _take_limited(transaction: TakeTransaction, book: LimitBook, room: int, priority_from: int) -> int:
    """Take requests as far as the limits have room. If a limit has keys, these take turns. Returns how many."""
    left = min(room, book.count_common_room())
    if left < room:
        book.held_back = True
    if not book.is_keyed:
        return _take_in_order(transaction, book.row.agent, left, priority_from, book)
    taken = 0
    if left and book.row.has_keyless and (may_begin := min(left, book.count_room(None))):
        taken = _take_in_order(transaction, book.row.agent, may_begin, priority_from, book, keyless=True)
    return taken + take_by_turns(transaction, book, left - taken, priority_from)


def _describe(book: LimitBook) -> LimitedAgent:
    next_at = book.compute_next_at()
    return LimitedAgent(
        book.row.agent,
        is_full=book.held_back,
        is_used_up=book.count_common_room() == 0,
        has_rate=book.has_rate,
        next_in=None if next_at is None else max(seconds_between(book.now, next_at), 0.0),
    )
