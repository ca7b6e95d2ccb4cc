"""What the history says of the attempts that failed in the outage: were they charged, and were they given back?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from arriero.events import decode_event_fields
from arriero.model import HistoryRow


@dataclass
class FailedAttempts:
    """Attempts that failed.

    Attributes:
        failed: all of them.
        charged: of these, counted against their step when they failed: no breaker was open yet.
        returned: of these, given back when the next attempt of the step began.
        gone_on: of these, the next attempt began while no breaker was open yet, so nobody knew of an outage.
    """

    failed: int = 0
    charged: int = 0
    returned: int = 0
    gone_on: int = 0
    _charges: dict[tuple[int, int], int] = field(default_factory=dict)  # of a step, since its last attempt began

    @property
    def left(self) -> int:
        """Attempts that stay charged although the outage was known."""
        return self.charged - self.returned - self.gone_on

    def add(self, task_no: int, event: dict[str, object], *, is_open: bool) -> None:
        step = (task_no, int(str(event.get("step", 0))))
        match event["type"]:
            case "recover.applied" | "step.failed":
                self.failed += 1
                if event.get("is_charged", True):
                    self.charged += 1
                    self._charges[step] = self._charges.get(step, 0) + 1
            case "step.attempts_returned":
                count = int(str(event["count"]))
                self.returned += count
                self._charges[step] = self._charges.get(step, 0) - count
            case "step.dispatched" if not is_open:
                self.gone_on += self._charges.pop(step, 0)


def count_failed_attempts(rows: Iterable[HistoryRow]) -> FailedAttempts:
    """Count the failed attempts of a history, in which one Agent had one outage."""
    counts, is_open = FailedAttempts(), False
    for row in rows:
        for event in decode_event_fields(row):
            if event["type"] == "breaker.opened":
                is_open = True
            counts.add(row.task_no, event, is_open=is_open)
    return counts
