"""Limits of how many tasks a Scheduler claims and begins."""

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
