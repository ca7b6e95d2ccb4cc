"""A year before the world: rows of process starts, mutexes and breakers that nothing needs any longer. Upkeep removes them."""

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

import msgspec

from arriero.audit.check import Violation
from arriero.core.purging import FENCE_FLOOR, KEPT_SECONDS, TERM_FLOOR
from arriero.model import Instant, later
from arriero.model.agents import BreakerRow
from arriero.model.leases import LeaseRow
from arriero.model.processes import ProcessAbout, ProcessRow

if TYPE_CHECKING:
    from .world import World

SHARE = 0.15  # of the seeds with operators and without rows that cannot be read
STARTS = 365
MUTEXES = 20
NAME = "last year"


class OldRows:
    """The rows of one world, from its beginning."""

    def __init__(self, world: "World") -> None:
        self._store = store = world.store
        before = later(store.now(), -2 * KEPT_SECONDS)
        about = msgspec.json.encode(ProcessAbout(app=NAME)).decode()
        store.number_from("process", STARTS + 1)
        for number in range(1, STARTS + 1):
            store.processes[number] = ProcessRow(number, f"{NAME}-{number}", before, retired=True, about=about)
        for number in range(1, MUTEXES + 1):
            name, at = f"{NAME}-{number}", Instant(before - number)
            store.leases[name] = LeaseRow(name=name, term=number, holder=name, until=at, since=at)
            row = BreakerRow(app=NAME, agent=NAME, target=name, fence=number, changed_at=at, opened_at=at, closed_at=at)
            store.breaker_rows[NAME, NAME, name] = row

    def check(self) -> Iterator[Violation]:
        """When everything has ended: only the last start with its code is left, and no term or fence comes again."""
        store = self._store
        if store.processes.keys() & set(range(1, STARTS + 1)) != {STARTS}:
            yield Violation(
                "bug", NAME, "upkeep leaves rows of processes that nothing refers to, or removed the last start"
            )
        if any(name.startswith(NAME) for name in store.leases) or any(NAME in key for key in store.breaker_rows):
            yield Violation("bug", NAME, "upkeep leaves rows of leases or breakers that nothing refers to")
        if min(store.read_floor(TERM_FLOOR), store.read_floor(FENCE_FLOOR)) < MUTEXES:
            yield Violation("bug", NAME, "a term or fence that was given may be given again")


def draw_old_rows(world: "World", seed: int, *, may_have: bool) -> OldRows | None:
    """Draw whether a world has such rows. A source of its own leaves worlds without them as they were."""
    return OldRows(world) if Random(f"year-{seed}").random() < SHARE and may_have else None
