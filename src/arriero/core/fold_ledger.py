"""What a history says of ledgers: their tasks are submitted after the commit that opened the ledger, as many as it promised."""

from collections import Counter

from .fold import Event, Violation


class LedgerFold:
    """Ledgers as the store's own events tell of them, and the tasks that name one."""

    def __init__(self) -> None:
        self.accepted: dict[str, int] = {}
        self.let_go: Counter[str] = Counter()
        self.violations: list[Violation] = []

    def opened(self, event: Event) -> None:
        """From here on all its tasks are there."""
        name = event["ledger"]
        if name in self.accepted:
            self._convict("", f"the ledger {name!r} was opened twice")
        self.accepted[name] = event["accepted"]

    def discarded(self, event: Event) -> None:
        """Nothing of it was ever there."""
        name = event["ledger"]
        if name in self.accepted:
            self._convict("", f"the ledger {name!r} was discarded after it had been opened")

    def submitted(self, task_id: str, event: Event) -> None:
        """A task that came with one."""
        name = event.get("ledger")
        if name is None:
            return
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
