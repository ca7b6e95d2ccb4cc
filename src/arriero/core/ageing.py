"""The order in which due tasks are claimed and due requests are taken: by priority, and by how long each has waited.

Each step of priority is worth ten minutes of waiting. A row's place is a number that never changes while the row waits, so
nothing is rewritten as time passes, and every store can select by it.

The bound: a row of priority p is passed only by rows that became due less than (9 - p) x 10 minutes after it. However many
come later, all of them stand behind it.

Ten minutes: a step must be worth more than what an ordinary disturbance leaves behind (a fail-over, a deployment, a few
minutes without the service), else the urgent would stand behind all of that. The lowest priority then waits 90 minutes
behind an endless stream of the highest one, not for ever. The number is a rule of all processes that share a store.
"""

from ..model import MICROSECONDS, Instant

PRIORITY_STEP_SECONDS = 600
HEAD_START = PRIORITY_STEP_SECONDS * MICROSECONDS  # of each step of priority, in the unit of instants


def compute_position(priority: int, due_since: Instant, number: int, head_start: int = HEAD_START) -> tuple[int, int]:
    """Compute the place of a task or request among those that are due; the smallest goes first.

    Args:
        priority: 0 to 9, the task's.
        due_since: since when it may be claimed or taken: its ``not_before``.
        number: the row's own; of two that are equal otherwise the older one goes first.
        head_start: what a step of priority is worth; 0 where only the wait decides.
    """
    return due_since - priority * head_start, number
