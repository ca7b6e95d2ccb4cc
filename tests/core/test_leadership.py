"""When a holder renews its lease: well before its trust ends, and soon again where no answer came."""

import pytest

from arriero.core.lease import RENEW_SECONDS_MAX, begin_belief, build_settings, compute_next_renewal

DURATIONS = (0.5, 3.0, 60.0, 3_600.0)


@pytest.mark.parametrize("duration", DURATIONS)
def test_two_renewals_may_fail_before_the_trust_ends(duration: float) -> None:
    settings = build_settings(duration, None, "nightly")
    belief = begin_belief(100.0, settings)
    wait = compute_next_renewal(belief, settings, 100.0, is_answered=True)
    assert 0 < wait <= RENEW_SECONDS_MAX
    assert 100.0 + 2 * wait < belief.trusted_until
    assert compute_next_renewal(belief, settings, 100.0 + 2 * wait, is_answered=True) == 0


@pytest.mark.parametrize("duration", DURATIONS)
def test_a_renewal_without_an_answer_is_tried_again_soon_and_not_after_the_trust_has_ended(duration: float) -> None:
    settings = build_settings(duration, None, "nightly")
    belief = begin_belief(100.0, settings)
    assert compute_next_renewal(belief, settings, 100.0, is_answered=False) == settings.retry_every
    left = settings.retry_every / 2
    late = compute_next_renewal(belief, settings, belief.trusted_until - left, is_answered=False)
    assert late == pytest.approx(left)
    assert compute_next_renewal(belief, settings, belief.trusted_until + 1, is_answered=False) == 0
