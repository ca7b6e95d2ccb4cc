"""Turns of the keys of limits in a Take: which keys are looked at, and when they are looked at next. Shared by all stores."""

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ...core.apps import apps_run_by
from ...core.limits import LimitBook
from ...limits import WITHOUT_KEYS, WaitingKeysRow
from .limits import KEYS_AT_ONCE, read_rates
from .take_transaction import TakeTransaction

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
