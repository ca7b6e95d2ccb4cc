"""The header Prefer as text: what is applied of it."""

import pytest

from arriero.server.parameters import WAIT_SECONDS_MAX, Preferences, read_preferences


@pytest.mark.parametrize(
    ("header", "preferences"),
    [
        (None, Preferences()),
        ("wait=5", Preferences(wait=5)),
        ('Respond-Async, wait="7"; x=1, wait=9', Preferences(respond_async=True, wait=7)),
        ("wait=999999999", Preferences(wait=WAIT_SECONDS_MAX)),
        (f"wait={'9' * 5_000}", Preferences()),
        ("wait=\u0663", Preferences()),
        ("wait=-1, wait=1.5, depth=3", Preferences()),
    ],
)
def test_a_wait_is_a_minute_at_most_and_what_is_misspelt_is_not_applied(
    header: str | None, preferences: Preferences
) -> None:
    assert read_preferences(header) == preferences
