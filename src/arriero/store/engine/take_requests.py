"""A Take in one transaction: it chooses the due requests that begin as attempts of the asking process."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
from msgspec.structs import replace

from ...core import transitions
from ...core.apps import apps_run_by
from ...core.breaker_book import (
    NOTHING_BARRED,
    Barred,
    bar_failed,
    bar_retries,
    find_breaker,
    list_barred,
    list_outages,
)
from ...core.capacity import URGENT_FROM
from ...core.due import WantedRequests
from ...core.lease import is_on_probation
from ...core.limits import LimitBook, find_limits
from ...core.routing import OVERFLOW_SECONDS, Ways
from ...model import Instant, StepRow, later, seconds_between
from ...model.agents import WITHOUT_KEYS, AgentLimitsRow, BreakerRow, WaitingKeysRow
from ...model.answers import Dispatch, LimitedAgent, Taken
from ...model.commands import Take
from ..sql.agent_rows import CommandRows
from .batch import Batch, complete_within
from .limits import KEYS_AT_ONCE, open_book, read_rates, write_book


class TakeTransaction:
    """State of one Take: the requests taken so far."""

    def __init__(self, command: Take, rows: CommandRows) -> None:
        self.command = command
        self.rows = rows
        self.dispatches: list[Dispatch] = []
        self._probation = command.probation
        self._retries = dict(command.retries)  # that may still be taken, of Agents with a budget
        self._turned_away: dict[str, Barred] = {}  # by Agent: what a breaker did not let through
        self._takes_failed = False  # requests that failed in an outage that lasts, too

    def list_barred(self, agent: str) -> Barred:
        """List the targets that the breakers of an Agent and the retry budget of the process do not let through."""
        barred = list_barred(self.rows.breakers(agent), self.rows.read_clock())
        barred = barred.joined_with(self._turned_away.get(agent, NOTHING_BARRED))
        return bar_retries(barred, self.rows.breakers(agent)) if self._retries.get(agent) == 0 else barred

    def _list_barred_canaries(self, agent: str) -> Barred:
        barred = self.list_barred(agent)
        return barred if self._takes_failed else bar_failed(barred, self.rows.breakers(agent))

    @contextmanager
    def takes_failed(self, agent: str) -> Iterator[bool]:
        """Take canaries also of requests that failed in the outage: those that failed longest ago come first.

        Else a request that always fails would be the canary again and again, and those behind it would wait indefinitely.
        Yields False if no breaker of the Agent lets a canary through.
        """
        self._takes_failed = True
        may_go = list_outages(self.rows.breakers(agent)) - self.list_barred(agent).targets
        yield bool(may_go)
        self._takes_failed = False

    def _want(self, agent: str, priority_from: int, barred: Barred) -> WantedRequests:
        return WantedRequests(self.command, agent, self._probation, priority_from, barred, self._takes_failed)

    def find_due(self, agent: str, limit: int, priority_from: int, *, keyless: bool = False) -> Sequence[StepRow]:
        """Lock due requests of an Agent in their order."""
        wanted = self._want(agent, priority_from, self._list_barred_canaries(agent))
        return self.rows.lock_takeable(wanted, limit, keyless=keyless)

    def find_due_of_keys(self, agent: str, keys: Sequence[str], of_each: int, priority_from: int) -> Sequence[StepRow]:
        """Lock the first due requests of some keys."""
        wanted = self._want(agent, priority_from, self._list_barred_canaries(agent))
        return self.rows.lock_takeable_of_keys(wanted, keys, of_each)

    def find_movable_of_keys(
        self, sibling: str, keys: Sequence[str], of_each: int, priority_from: int, ways: Ways
    ) -> Sequence[StepRow]:
        """Lock the first requests of some keys that another Agent may take over."""
        wanted = self._want(sibling, priority_from, ways.barred)
        found = self.rows.lock_takeable_of_keys(wanted, keys, of_each)
        return [step for step in found if ways.lead(step)]

    def find_movable(
        self, sibling: str, limit: int, priority_from: int, *, to: str, closed: Barred, waited_since: Instant
    ) -> Sequence[StepRow]:
        """Lock due requests of ``sibling`` that another Agent may take over."""
        ways = Ways(closed=closed, barred=self.list_barred(to), waited_since=waited_since)
        return self.rows.lock_movable(self._want(sibling, priority_from, ways.barred), limit, ways)

    def take(self, step: StepRow, limits: LimitBook | None = None, *, moved_to: str = "") -> bool:
        """Take a request that this transaction has locked. Returns False if it must wait.

        Args:
            limits: of the Agent that takes it.
            moved_to: the Agent that takes it over from its own.
        """
        rows, agent = self.rows, moved_to or step.agent
        task = rows.task(step.task_no)
        assert task is not None
        is_retry = step.taken and agent in self._retries and not self._is_probed(step)
        if is_retry and not self._retries[agent]:
            return False
        if is_on_probation(task):
            if self._probation not in (None, task.task_no):
                return False
            self._probation = task.task_no  # of those on probation this one alone
        work = Batch(rows, rows.read_clock())
        change = transitions.take(
            task, step, self.command.process_no, work.now, complete_within(step), rows, limits, moved_to
        )
        if change is None:
            self._turned_away[agent] = self._turned_away.get(agent, NOTHING_BARRED).with_request(step)
            return False
        work.write(change, self.command.actor)
        self.dispatches += change.dispatches
        if is_retry:
            self._retries[agent] -= 1
        return True

    def _is_probed(self, step: StepRow) -> bool:
        breaker = find_breaker(self.rows.breakers(step.agent), step)
        return breaker is not None and breaker.is_outage


class TakeOverRequest(msgspec.Struct, frozen=True):
    """Requests of ``sibling`` that ``agent`` has ``room`` for; none of a priority below ``priority_from``."""

    agent: str
    sibling: str
    room: int
    priority_from: int


def take_over(transaction: TakeTransaction, asked: TakeOverRequest, limits: LimitBook | None) -> int:
    """Take requests of another Agent that its breaker does not let through, or that wait because it has no room.

    ``model.agents``: of the Agent that takes them over. Returns: how many began.
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


FRUITLESS_PAGES_MAX = 2  # of keys that one Take looks at: those that wait for a slot, or behind a breaker, may be many


def take_by_turns(transaction: TakeTransaction, book: LimitBook, room: int, priority_from: int) -> int:
    """Begin requests of the keys that are to be looked at: of each as many as is its share. Returns how many began."""
    left, begun = room, Counter[str]()
    if not left:
        return 0
    rows, agent, apps = transaction.rows, book.row.agent, apps_run_by(transaction.command.app)
    fruitless = 0
    for number, page in enumerate(_iterate_pages(transaction, book)):
        keys = list(dict.fromkeys(row.keys for row in page))
        asked = keys if number else [WITHOUT_KEYS, *keys]
        read_rates(rows, book, asked)
        looked_at = _serve(transaction, book, asked, left, priority_from, begun)
        fruitless += left == room - begun.total()
        left = room - begun.total()
        _plan_next_looks(transaction, book, [row for row in page if row.keys in looked_at], begun, len(page))
        if not left or fruitless == FRUITLESS_PAGES_MAX:
            break
    next_look = rows.select_next_key_look(agent, apps, book.now)
    if next_look is not None:
        book.note_next_look(next_look)
    return room - left


def _iterate_pages(transaction: TakeTransaction, book: LimitBook) -> Iterator[Sequence[WaitingKeysRow]]:
    """Yield the keys that are to be looked at, in pages; one page at least, which may be empty."""
    rows, apps = transaction.rows, apps_run_by(transaction.command.app)
    last: WaitingKeysRow | None = None
    while True:
        page = rows.lock_waiting_keys(book.row.agent, apps, book.now, last, KEYS_AT_ONCE)
        yield page
        if len(page) < KEYS_AT_ONCE:
            return
        last = page[-1]


def _serve(
    transaction: TakeTransaction,
    book: LimitBook,
    keys: Sequence[str],
    room: int,
    priority_from: int,
    begun: Counter[str],
) -> set[str]:
    """Begin requests under some keys, in rounds. ``begun``: counts them by their keys. Returns the keys that were looked at."""
    agent, left = book.row.agent, room
    waiting = [one for one in keys if book.count_room(one)]
    looked_at = set(keys) - set(waiting)
    if looked_at:
        book.held_back = True
    while waiting and left > 0:
        again: list[str] = []
        while waiting and left > 0:
            asked, waiting = waiting[:left], waiting[left:]
            of_each, before = left // len(asked), Counter(begun)
            looked_at.update(asked)
            for step in transaction.find_due_of_keys(agent, asked, of_each, priority_from):
                if left > 0 and book.count_room(step.limit_keys) and transaction.take(step, book):
                    assert step.limit_keys is not None
                    begun[step.limit_keys] += 1
                    left -= 1
            again += [one for one in asked if begun[one] - before[one] == of_each and book.count_room(one)]
            if begun != before:  # what began may have used up a limit that others share
                full = {one for one in waiting if not book.count_room(one)}
                looked_at |= full
                waiting = [one for one in waiting if one not in full]
        waiting = again
    return looked_at


def _plan_next_looks(
    transaction: TakeTransaction, book: LimitBook, page: Sequence[WaitingKeysRow], begun: Counter[str], size: int
) -> None:
    """Keep when the keys that were looked at are looked at next. ``size``: of the page that they stand in."""
    rows, apps = transaction.rows, apps_run_by(transaction.command.app)
    idle = [row.keys for row in page if not begun[row.keys] and book.count_room(row.keys)]
    first_due = rows.select_first_due(book.row.agent, apps, idle) if idle else {}
    moved: list[WaitingKeysRow] = []
    removed: list[WaitingKeysRow] = []
    for row in page:
        due = first_due.get((row.app, row.keys)) if row.keys in idle else row.look_at
        at = book.find_next_look(row, has_begun=begun[row.keys] > 0, first_due=due, is_crowded=size >= KEYS_AT_ONCE)
        if at is None:
            removed.append(row)
        elif at != row.look_at:
            moved.append(replace(row, look_at=at))
    if moved:
        rows.move_waiting_keys(moved)
    if removed:
        rows.remove_waiting_keys(removed)


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
