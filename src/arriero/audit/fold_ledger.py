"""The fold of ledgers: their tasks come after the commit that opened the ledger, as many as it promised."""

from collections import Counter

from ..events.store import LedgerDiscarded, LedgerOpenedEvent
from .fold import Violation


class LedgerFold:
    """The fold of ledgers: the store's own events about them, and the tasks that name one."""

    def __init__(self) -> None:
        self.accepted: dict[str, int] = {}
        self.let_go: Counter[str] = Counter()
        self.violations: list[Violation] = []

    def open(self, event: LedgerOpenedEvent) -> None:
        """Fold the opening of a ledger: all its tasks are there from now on."""
        name = event.ledger
        if name in self.accepted:
            self._convict("", f"the ledger {name!r} was opened twice")
        self.accepted[name] = event.accepted

    def discard(self, event: LedgerDiscarded) -> None:
        """Fold the removal of a ledger before it was opened: none of its tasks was ever there."""
        name = event.ledger
        if name in self.accepted:
            self._convict("", f"the ledger {name!r} was discarded after it had been opened")

    def submit(self, task_id: str, name: str) -> None:
        """Fold a task that came with the ledger of this name."""
        if name not in self.accepted:
            self._convict(task_id, f"submitted with the ledger {name!r}, which was not opened")
            return
        self.let_go[name] += 1
        if self.let_go[name] > self.accepted[name]:
            self._convict(
                task_id, f"the ledger {name!r} brought more than the {self.accepted[name]} tasks that it accepted"
            )

    def _convict(self, task_id: str, detail: str) -> None:
        self.violations.append(Violation("I5", task_id, detail))
