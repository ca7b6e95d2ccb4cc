"""Notices a world that makes attempts without end: a virtual clock lets an outage of days pass in no time."""

import msgspec

from ..core.supervision import decode_step_policy
from ..errors import ArrieroError
from ..failures import read_step_failure
from ..model import STEP_OPEN, StepKind, StepRow
from ..store.memory import MemoryStore

ATTEMPTS_MAX = 1_000  # without any step or task that ends; a test of more waits with world.clock.advance


class WorldProgress:
    """Count of the attempts and probes since something ended in a world."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._ended = -1
        self._attempts_then = 0

    def look(self) -> None:
        """Raise ArrieroError if more attempts than any policy allows were made while nothing ended."""
        steps = [step for of_task in self._store.steps.values() for step in of_task.values()]
        is_open = [step for step in steps if step.state in STEP_OPEN]
        ended = len(steps) - len(is_open) + sum(task.ended_at is not None for task in self._store.tasks.values())
        attempts = sum(step.attempt for step in steps) + sum(row.fence for row in self._store.breaker_rows.values())
        if ended != self._ended:
            self._ended, self._attempts_then = ended, attempts
            return
        allowed = ATTEMPTS_MAX + sum(
            decode_step_policy(step.policy).calls_max for step in is_open if step.kind is not StepKind.TIMER
        )
        made = attempts - self._attempts_then
        if made > allowed:
            self._attempts_then = attempts
            raise ArrieroError(
                f"the world made {made:,} attempts and probes, and nothing ended: {self._describe(is_open)}"
            )

    def _describe(self, steps: list[StepRow]) -> str:
        tried = sorted((step for step in steps if step.kind is not StepKind.TIMER), key=lambda step: -step.attempt)
        named = [
            f"task {self._store.tasks[step.task_no].task_id}, step {step.label}, attempt {step.attempt}{self._find_last_error(step)}"
            for step in tried[:3]
        ]
        open_breakers = sorted(row.label for row in self._store.breaker_rows.values() if row.is_outage)
        if open_breakers:
            named.append(f"the breaker of {', '.join(open_breakers)} is open, so attempts are not charged")
        return "; ".join(named) or "no step is open"

    def _find_last_error(self, step: StepRow) -> str:
        for row in reversed(self._store.log):
            if row.task_no != step.task_no:
                continue
            for event in reversed(msgspec.json.decode(bytes(row.events))):
                if (
                    event.get("type") == "recover.applied"
                    and event.get("step") == step.ordinal
                    and event.get("failure")
                ):
                    failure = read_step_failure(msgspec.json.encode(event["failure"]).decode())
                    return f", last error: {failure.message or failure.code or failure.cause}"
        return ""
