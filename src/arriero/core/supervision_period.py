"""Period between passes of the Supervisor: short while something is overdue, else longer."""

GROWTH = 2.0  # of the period with each pass that found nothing: from 0.25 s to 2 s in three passes


def choose_period(
    last: float, *, found_overdue: bool, next_deadline_in: float | None, period_min: float, period_max: float
) -> float:
    """Choose the seconds until the next pass.

    Args:
        last: seconds before the pass that just ended.
        found_overdue: it found something to decide, or waits for an answer to a decision.
        next_deadline_in: seconds until the earliest known deadline; None: none is known.
        period_min, period_max: the bounds; a maximum below the minimum counts as the minimum.
    Returns: at least ``period_min``, and at most ``period_max``: an attempt that begins just after the pass and expires at
        once is not known, and waits no longer than that.
    """
    if found_overdue:
        return period_min
    grown = max(min(last * GROWTH, period_max), period_min)
    return grown if next_deadline_in is None else min(grown, max(next_deadline_in, period_min))
