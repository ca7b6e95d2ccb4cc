"""The fold of attempts that expired: when each leader let them come back, and whether that kept the configured rate."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ..events import Event, UnreadableEvent
from ..events.step import RecoverApplied, StepExpired
from ..model import MICROSECONDS
from .fold import Violation


class RedispatchFold:
    """Instants at which recovered attempts become due, for each term of the leader that recovered them."""

    def __init__(self) -> None:
        self._due_at: defaultdict[int, list[int]] = defaultdict(list)

    def fold_commit(self, events: Sequence[Event | UnreadableEvent]) -> None:
        """Fold one commit of a task."""
        terms = {
            (event.step, event.fence): event.term
            for event in events
            if isinstance(event, StepExpired) and event.why == "expired" and event.term is not None
        }
        for event in events if terms else ():
            term = terms.get((event.step, event.fence)) if isinstance(event, RecoverApplied) else None
            if term is None or not isinstance(event, RecoverApplied) or event.what == "error":
                continue
            if event.is_charged:  # what failed in an outage waits for its breaker, and comes back in waves of canaries
                self._due_at[term].append(event.not_before)

    def find_violations(self, per_second: int) -> Iterable[Violation]:
        """Find the terms in which more than ``per_second`` came back in a second, and one that began in it."""
        for term, instants in sorted(self._due_at.items()):
            due_at = sorted(instants)
            allowed = per_second + 1  # a second may begin and end inside a slot
            for first, beyond in zip(due_at, due_at[allowed:], strict=False):
                if beyond - first < MICROSECONDS:
                    yield Violation(
                        "I71",
                        "",
                        f"under term {term} more than {allowed} attempts that expired came back within the second from {first}",
                    )
                    break
