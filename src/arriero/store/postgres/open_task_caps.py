"""Open tasks of the capped submitters of a batch, counted once at its start, when nobody else submits for them."""

from collections import Counter
from collections.abc import Sequence

from ...commands import Submit
from .session import Transaction


class OpenTaskCounts:
    """Counts of one batch, with the tasks that it adds. If no submission of the batch has a cap, nothing is asked."""

    def __init__(self, transaction: Transaction, batch: Sequence[Submit]) -> None:
        caps: dict[str, int] = {}
        for command in batch:
            if command.submitter is not None and command.open_tasks_max is not None:
                caps[command.submitter] = max(caps.get(command.submitter, 0), command.open_tasks_max)
        self._counts: dict[str, int] = {}
        if not caps:
            return
        for submitter in sorted(caps):  # in one order, so that two batches never deadlock
            transaction.ask("lock_submitter", {"submitter": submitter})
        asked = {
            submitter: transaction.ask("count_open_tasks", {"submitter": submitter, "limit": cap})
            for submitter, cap in caps.items()
        }
        transaction.arrive()
        for submitter, answer in asked.items():
            row = answer.fetchone()
            assert row is not None
            self._counts[submitter] = row[0]

    def count_open_tasks(self, submitter: str, limit: int) -> int:
        return min(limit, self._counts[submitter])

    def add(self, submitter: str | None) -> None:
        """Count a task that is accepted."""
        if submitter in self._counts:
            self._counts[submitter] += 1

    def list_within(self, batch: Sequence[Submit]) -> Sequence[Submit]:
        """List submissions as far as the caps let all of them be accepted: for others no convoy is to be made yet."""
        if not self._counts:
            return batch
        counts, found = Counter(self._counts), []
        for command in batch:
            if command.submitter is not None and command.open_tasks_max is not None:
                if counts[command.submitter] >= command.open_tasks_max:
                    continue
                counts[command.submitter] += 1
            found.append(command)
        return found
