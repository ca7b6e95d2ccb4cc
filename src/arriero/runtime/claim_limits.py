"""Limits of how many tasks a Scheduler claims and begins."""

from collections import Counter
from collections.abc import Iterable, Mapping

from ..commands import ClaimShare

CLAIM_MAX = 100  # tasks in one claim: few enough that processes which claim at once share what there is
BEGINNING_MAX = 100  # tasks that begin with their submission whose commits are on their way; others are claimed


def count_claimable(*, tasks_max: int, taken: int, others: int) -> int:
    """Returns how many tasks to claim now; none if below 1.

    Args:
        tasks_max: what the process may hold at once.
        taken: what it holds, or begins with submissions that are on their way.
        others: how many other processes claim tasks.
    """
    return min(tasks_max - taken, max(CLAIM_MAX // (1 + others), 1))


def may_begin(*, tasks_max: int, taken: int, beginning: int, others: int) -> bool:
    """Returns True if one more task may begin with its submission; beyond a share of the room, all processes claim them.

    Args:
        beginning: of ``taken``, those whose submission is on its way; the rest as for ``count_claimable``.
    """
    share = BEGINNING_MAX // (1 + others)
    limit = min(tasks_max, share) if others else tasks_max
    return beginning < share and taken < limit


def build_shares(weights: Mapping[str, int | None], held: Iterable[str]) -> tuple[ClaimShare, ...]:
    """Build the shares of a claim: one of each workflow with a weight, and one of weight 1 of all others together.

    Args:
        weights: of all workflows with code here; None: it has no share of its own.
        held: the workflow of each task that the process holds.
    Returns: empty if no workflow has a share of its own.
    """
    if not any(weights.values()):
        return ()
    counts = Counter(held)
    shares = [ClaimShare((name,), weight, counts.pop(name, 0)) for name, weight in weights.items() if weight]
    others = tuple(name for name, weight in weights.items() if not weight)
    return (*shares, ClaimShare(others, 1, counts.total()))
