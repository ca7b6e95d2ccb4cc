"""Delays before the next try or attempt."""

DELAY_SECONDS_MAX = 60.0  # between attempts of one round; longer waits are what rounds and cool_off are for
ATTEMPT_DELAY_SECONDS = 0.5
JITTER_SHARE = 0.5  # up to half of a delay is chance, so that what failed together does not come back together


def retry_delay(tries_done: int, *, delay: float, factor: float, delay_max: float, jitter: float) -> float:
    """Seconds before the next try inside an attempt.

    Args:
        tries_done: tries that failed, 1 or more.
        delay, factor, delay_max: of the Retry policy; seconds.
        jitter: in [0, 1); 0 gives the shortest delay.
    Returns: between half of the grown delay and all of it, at most ``delay_max``.
    """
    grown = min(delay * factor ** min(tries_done - 1, 64), delay_max)
    return grown * (1 - JITTER_SHARE) + grown * JITTER_SHARE * jitter


def attempt_delay(failure_count: int, *, jitter: float) -> float:
    """Seconds before the next attempt of a round: doubles from half a second up to a minute.

    Args:
        failure_count: attempts of this round that failed, 1 or more.
        jitter: in [0, 1).
    """
    return retry_delay(failure_count, delay=ATTEMPT_DELAY_SECONDS, factor=2, delay_max=DELAY_SECONDS_MAX, jitter=jitter)
