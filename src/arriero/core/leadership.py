"""Rules of leadership: how long a holder may trust its lease, when it renews, and when it stops to renew.

Source: Leader Election pattern; the trust window is ``core.lease.compute_trusted_until``.
"""

from enum import StrEnum

import msgspec

from ..errors import DefinitionError
from .lease import MARGIN_SHARE, compute_trusted_until

RENEWALS_PER_DURATION = 3.5  # less than a third of the duration, so that two renewals may fail
RENEW_SECONDS_MAX = 20.0  # also of a lease without an end, so that a break is seen
RETRY_SHARE = 0.05  # of the duration, between two tries of a renewal that got no answer
RETRY_SECONDS_MAX = 2.0
POLL_SHARE = 0.1  # of the duration, between two looks whether the lease is free
POLL_SECONDS_MAX = 1.0
POLL_SECONDS_MIN = 0.05
FOREVER = float("inf")


class LeadershipEnd(StrEnum):
    """Reason for the end of a term."""

    RELEASED = "released"  # the work ended, or was told to stop
    REFUSED = "refused"  # the provider says that the lease is another's, was broken, or has lapsed
    UNRENEWED = "unrenewed"  # no renewal was answered within the trust window
    HUNG = "hung"  # the work gave no proof of progress
    DISCONNECTED = "disconnected"  # the provider ended the session


class LeadershipSettings(msgspec.Struct, frozen=True):
    """Settings of a lease, in seconds.

    Args:
        duration: of the lease; None: it has no end, and only a person's break frees it from a holder that died.
        progress_within: renewal stops if the work gave no proof of progress for so long; None: it needs none.
        renew_every: between two renewals.
        poll_every: between two looks whether the lease is free.
    """

    duration: float | None
    progress_within: float | None
    renew_every: float
    poll_every: float

    @property
    def retry_every(self) -> float:
        """Seconds until a renewal that got no answer is tried again."""
        return RETRY_SECONDS_MAX if self.duration is None else min(RETRY_SECONDS_MAX, self.duration * RETRY_SHARE)


class Belief(msgspec.Struct, frozen=True):
    """Knowledge of a holder about its lease; instants on its own monotonic clock.

    Args:
        trusted_until: it must not act as the leader from then on.
        renewed_at: when the request of the last successful renewal left.
        is_suspended: the connection to the provider is interrupted: no trust until a renewal succeeds.
    """

    trusted_until: float
    renewed_at: float
    is_suspended: bool = False


def build_settings(duration: float | None, progress_within: float | None, name: str) -> LeadershipSettings:
    """Build the settings of a mutex. Raises DefinitionError - they cannot work.

    Args:
        duration: of the lease, seconds above 0; None: no end.
        progress_within: seconds; None: no proof of progress is needed.
        name: of the lease, for the message.
    """
    length = FOREVER if duration is None else duration
    renew_every = min(RENEW_SECONDS_MAX, length / RENEWALS_PER_DURATION)
    if progress_within is not None and progress_within <= renew_every:
        raise DefinitionError(
            f"lease {name!r}: progress_within is {progress_within:g} s, but the lease is renewed every {renew_every:.3g} s:"
            f" a proof of progress must be allowed to take longer than that; give more than {renew_every:.3g} s"
        )
    poll_every = max(POLL_SECONDS_MIN, min(POLL_SECONDS_MAX, length * POLL_SHARE))
    return LeadershipSettings(duration, progress_within, renew_every, poll_every)


def begin_belief(request_left_at: float, settings: LeadershipSettings) -> Belief:
    """The belief after a grant or a renewal whose request left at that time."""
    if settings.duration is None:
        return Belief(FOREVER, request_left_at)
    return Belief(compute_trusted_until(request_left_at, settings.duration), request_left_at)


def suspend(belief: Belief) -> Belief:
    """The belief while the connection to the provider is interrupted."""
    return msgspec.structs.replace(belief, is_suspended=True)


def is_trusted(belief: Belief, now: float) -> bool:
    """Returns True if a holder may act as the leader."""
    return not belief.is_suspended and now < belief.trusted_until


def has_ended(belief: Belief, now: float) -> bool:
    """Returns True if the trust window is over. An interrupted connection alone does not end it: it may come back."""
    return now >= belief.trusted_until


def is_hung(settings: LeadershipSettings, progress_at: float, now: float) -> bool:
    """Returns True if the work gave no proof of progress in time. ``progress_at``: when it gave the last one."""
    return settings.progress_within is not None and now - progress_at > settings.progress_within


def compute_next_renewal(belief: Belief, settings: LeadershipSettings, now: float, *, is_answered: bool) -> float:
    """Seconds until the next renewal leaves; 0: at once.

    Args:
        is_answered: the last renewal got an answer; else it is tried again soon.
    """
    if belief.is_suspended or not is_answered:
        return min(settings.retry_every, max(0.0, belief.trusted_until - now))
    return max(0.0, belief.renewed_at + settings.renew_every - now)  # well within the trust: see RENEWALS_PER_DURATION


def compute_margin(duration: float) -> float:
    """Seconds before the end of a lease from which its holder no longer trusts it."""
    return duration * MARGIN_SHARE
