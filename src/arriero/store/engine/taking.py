"""A Take in one transaction: which due requests begin as attempts of the process that asks."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from ...answers import Dispatch, LimitedAgent, Taken
from ...breakers import BreakerRow
from ...commands import Take
from ...core import transitions
from ...core.breaker_book import NOTHING_BARRED, Barred, bar_retries, find_breaker, list_barred
from ...core.lease import is_on_probation
from ...core.limits import LimitBook, find_limits
from ...core.reserve import URGENT_FROM
from ...limits import AgentLimitsRow
from ...model import StepRow, seconds_between
from .batch import Batch, complete_within
from .limits import LimitTable, open_book, read_rates, write_book

KEYS_AT_ONCE = 200  # keys of waiting requests that are read with one statement


class TakeRows(LimitTable, Protocol):
    """Requests that are due."""

    def lock_takeable(
        self,
        command: Take,
        agent: str,
        probation: int | None,
        limit: int,
        priority_from: int,
        barred: Barred,
        *,
        keyless: bool = False,
    ) -> Sequence[StepRow]:
        """Due requests for an Agent, in the order of core.ageing. What cannot be read is set apart, and asked past.

        ``probation``: of tasks on probation only this one's; None: of any. ``priority_from``: none of a lower priority.
        ``barred``: is left out. ``keyless``: only those that carry no keys of limits.
        """
        ...

    def lock_takeable_of_keys(
        self,
        command: Take,
        agent: str,
        probation: int | None,
        keys: Sequence[str],
        of_each: int,
        priority_from: int,
        barred: Barred,
    ) -> Sequence[StepRow]:
        """As ``lock_takeable``: for each of these keys, in their order, the first ``of_each`` requests."""
        ...


class Taking:
    """What one Take has taken so far."""

    def __init__(self, command: Take, rows: TakeRows) -> None:
        self.command = command
        self.rows = rows
        self.dispatches: list[Dispatch] = []
        self._probation = command.probation
        self._retries = dict(command.retries)  # that may still be taken, of Agents with a budget
        self._turned_away: dict[str, Barred] = {}  # by Agent: what a breaker did not let through

    def list_barred(self, agent: str) -> Barred:
        """What the breakers of an Agent, and the retry budget of the process, do not let through."""
        barred = list_barred(self.rows.breakers(agent), self.rows.read_clock())
        barred = barred.joined_with(self._turned_away.get(agent, NOTHING_BARRED))
        return bar_retries(barred, self.rows.breakers(agent)) if self._retries.get(agent) == 0 else barred

    def find_due(self, agent: str, limit: int, priority_from: int, *, keyless: bool = False) -> Sequence[StepRow]:
        """Lock due requests of an Agent in their order."""
        barred = self.list_barred(agent)
        return self.rows.lock_takeable(
            self.command, agent, self._probation, limit, priority_from, barred, keyless=keyless
        )

    def find_due_of_keys(self, agent: str, keys: Sequence[str], of_each: int, priority_from: int) -> Sequence[StepRow]:
        """Lock the first due requests of some keys."""
        barred = self.list_barred(agent)
        return self.rows.lock_takeable_of_keys(
            self.command, agent, self._probation, keys, of_each, priority_from, barred
        )

    def take(self, step: StepRow, limits: LimitBook | None = None) -> bool:
        """Take a request that this transaction has locked. Returns False if it must wait."""
        rows = self.rows
        task = rows.task(step.task_no)
        assert task is not None
        is_retry = step.taken and step.agent in self._retries and not self._is_probed(step)
        if is_retry and not self._retries[step.agent]:
            return False
        if is_on_probation(task):
            if self._probation not in (None, task.task_no):
                return False
            self._probation = task.task_no  # of those on probation this one alone
        work = Batch(rows, rows.read_clock())
        change = transitions.take(task, step, self.command.process_no, work.now, complete_within(step), rows, limits)
        if change is None:
            turned_away = self._turned_away.get(step.agent, NOTHING_BARRED)
            self._turned_away[step.agent] = turned_away.with_request(step)
            return False
        work.write(change, self.command.actor)
        self.dispatches += change.dispatches
        if is_retry:
            self._retries[step.agent] -= 1
        return True

    def _is_probed(self, step: StepRow) -> bool:
        breaker = find_breaker(self.rows.breakers(step.agent), step)
        return breaker is not None and breaker.is_outage


def take_requests(command: Take, rows: TakeRows) -> Taken:
    """Take due requests of the Agents that have places, at most as many as those."""
    taking = Taking(command, rows)
    books: dict[str, LimitBook] = {}
    locked: dict[str, AgentLimitsRow] = {}
    wanted = [(agent, room, 0) for agent, room in command.room]
    wanted += [(agent, room, URGENT_FROM) for agent, room in command.urgent]
    for agent, room, priority_from in wanted:
        if agent not in books and find_limits(rows.limits(agent), command.app) is not None:
            book = open_book(rows, command.app, agent)
            if book is not None:
                books[agent], locked[agent] = book, book.row
        if agent in books:
            _take_limited(taking, books[agent], room, priority_from)
        else:
            _take_in_order(taking, agent, room, priority_from)
    breakers: list[BreakerRow] = []
    for agent, _ in command.room:
        breakers += rows.breakers(agent)
    for agent, book in books.items():
        write_book(rows, book, locked[agent])
    return Taken(tuple(taking.dispatches), tuple(breakers), tuple(map(_describe, books.values())))


def _take_in_order(
    taking: Taking,
    agent: str,
    room: int,
    priority_from: int,
    limits: LimitBook | None = None,
    *,
    keyless: bool = False,
) -> int:
    """Take requests in the order of core.ageing. Returns how many."""
    left = room
    while left > 0:
        found = taking.find_due(agent, left, priority_from, keyless=keyless)
        asked = left
        left -= sum([taking.take(step, limits) for step in found])
        if len(found) < asked:
            break  # else some were passed over, and others may stand behind them
    return room - left


def _take_limited(taking: Taking, book: LimitBook, room: int, priority_from: int) -> None:
    """Take requests as far as the limits have room. If a limit has keys, these take turns."""
    left = min(room, book.count_common_room())
    if left < room:
        book.held_back = True
    if not book.is_keyed:
        _take_in_order(taking, book.row.agent, left, priority_from, book)
        return
    taken = 1
    while left > 0 and taken:
        taken = _take_one_turn(taking, book, left, priority_from)
        left -= taken


def _take_one_turn(taking: Taking, book: LimitBook, room: int, priority_from: int) -> int:
    """Go over all keys once, and begin as many requests of each as is its share. Returns how many began."""
    agent, left = book.row.agent, room
    if book.row.has_keyless and (may_begin := min(left, book.count_room(None))):
        left -= _take_in_order(taking, agent, may_begin, priority_from, book, keyless=True)
    for page in _iterate_waiting_keys(taking, book):
        read_rates(taking.rows, book, page)
        with_room = [keys for keys in page if book.count_room(keys)]
        if len(with_room) < len(page):
            book.held_back = True
        while with_room and left > 0:
            asked, with_room = with_room[:left], with_room[left:]
            for step in taking.find_due_of_keys(agent, asked, left // len(asked), priority_from):
                if left > 0 and book.count_room(step.limit_keys) and taking.take(step, book):
                    book.note_turn(step)
                    left -= 1
        if left == 0:
            break
    return room - left


def _iterate_waiting_keys(taking: Taking, book: LimitBook) -> Iterator[list[str]]:
    """Yield the keys under which requests wait, in pages: first those behind the keys that came last, then the others."""
    rows, agent, own = taking.rows, book.row.agent, taking.command.app
    start = book.row.last_keys
    for after, end in ((start, None), ("", start)):
        page = [after]
        while page and (end is None or page[-1] < end):
            page = rows.select_waiting_keys(agent, own, page[-1], KEYS_AT_ONCE)
            if found := [keys for keys in page if end is None or keys <= end]:
                yield found


def _describe(book: LimitBook) -> LimitedAgent:
    next_at = book.compute_next_at()
    return LimitedAgent(
        book.row.agent,
        is_full=book.held_back,
        has_rate=book.has_rate,
        next_in=None if next_at is None else max(seconds_between(book.now, next_at), 0.0),
    )
