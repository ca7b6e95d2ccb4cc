"""What must be so after a fail-over: nothing acknowledged lost, nothing doubled, history whole and equal to the tables."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from arriero.audit.check import History, find_differences
from arriero.store import existing_store
from examples.orders.books import balance
from examples.orders.effects import Effect, read_effects
from examples.orders.operations import OPERATIONS
from examples.orders.processes import check_history

from .orders import order_of

CHECK_SECONDS_MAX = 600.0
FORWARD = frozenset(operation.name for operation in OPERATIONS)


@dataclass(frozen=True)
class Verdict:
    """``problems`` says in words what is not as it must be."""

    effects: int
    doubled: int
    is_history_clean: bool
    problems: tuple[str, ...]


def judge(folder: Path, url: str, book: Path, states: dict[str, str], acknowledged: Iterable[str]) -> Verdict:
    """Judge the whole run, when everything has ended.

    Args:
        states: by task id, of every task there is.
        acknowledged: ids of the orders that clients hold an acknowledgement of.
    """
    effects = list(read_effects(book))
    # An order that was sent and never acknowledged may be there or not; either way it happened as a whole or not at all.
    expected = [order_of(id) for id in sorted({*acknowledged, *states})]
    books = balance(expected, states, effects)
    told = check_history(folder, url, CHECK_SECONDS_MAX)
    differing = asyncio.run(_differing(url))
    problems = [f"order {found.order_id}: {found.reason}" for found in books.discrepancies]
    problems += [] if told is None else [told]
    problems += differing
    return Verdict(
        effects=len(effects),
        doubled=_doubled(effects),
        is_history_clean=told is None and not differing,
        problems=tuple(problems),
    )


def _doubled(effects: Iterable[Effect]) -> int:
    """Effects beyond the first of an operation for an order. The services keep one a key: so these had another key."""
    counts = Counter((effect.order_id, effect.operation) for effect in effects if effect.operation in FORWARD)
    return sum(count - 1 for count in counts.values())


async def _differing(url: str) -> list[str]:
    """Where the tables say something else than the history."""
    store = existing_store(url)
    await store.open()
    try:
        history = History()
        async for row in store.history():
            history.add(row)
        found: list[str] = []
        for task_no, fold in history.tasks.items():
            loaded = await store.load(task_no)
            found += [f"task {task_no} is in the history only"] if loaded is None else find_differences(fold, loaded)
    finally:
        await store.close()
    return found
