"""Convoys as people look at them: functions on one transaction that only reads."""

from collections.abc import Sequence

import msgspec

from ...core.readable import legible
from ...model import ConvoyRow
from ..base import ConvoyLoaded
from ..convoys import KNOWN_MAX, missing_of
from .rows import convoy_as_is, tail_of, task_as_is
from .session import Transaction


def find(transaction: Transaction, key: str, limit: int) -> ConvoyLoaded | None:
    """A convoy with the first of its members."""
    row = transaction.ask("select_convoy_by_key", {"key": key}).fetchone()
    if row is None:
        return None
    convoy = convoy_as_is(row)
    asked = {"convoy_no": convoy.convoy_no, "limit": limit}
    open_task = transaction.ask("select_task", {"task_no": convoy.open_task})
    waiting = transaction.ask("select_waiting", asked)
    aside = transaction.ask("select_set_aside", asked)
    known = transaction.ask("select_sequences", asked | {"start": convoy.expected, "limit": KNOWN_MAX})
    transaction.arrive()
    (loaded,) = _counted(transaction, [convoy])
    return msgspec.structs.replace(
        loaded,
        members=tuple(legible(task_as_is(found)) for found in (*open_task.fetchall(), *waiting.fetchall()))[:limit],
        passed_over=tuple(map(legible, map(task_as_is, aside.fetchall()))),
        missing=missing_of((number for (number,) in known.fetchall()), convoy.expected, loaded.tail, limit),
    )


def _counted(transaction: Transaction, convoys: Sequence[ConvoyRow]) -> list[ConvoyLoaded]:
    asked = {"convoy_nos": [convoy.convoy_no for convoy in convoys]}
    tails, counts = transaction.ask("select_tails", asked), transaction.ask("count_members", asked)
    transaction.arrive()
    tail = {found.convoy_no: found for found in map(tail_of, tails.fetchall())}
    count = {number: (waiting, aside) for number, waiting, aside in counts.fetchall()}
    return [ConvoyLoaded(convoy, tail[convoy.convoy_no], *count[convoy.convoy_no]) for convoy in convoys]


def listed(transaction: Transaction, shown: str | None, after: int, limit: int) -> list[ConvoyLoaded]:
    """Convoys in the order of their numbers, without members."""
    rows = transaction.ask("select_convoys", {"after": after, "shown": shown, "limit": limit}).fetchall()
    return _counted(transaction, [convoy_as_is(row) for row in rows])
