"""Trouble that lasts is told once, and then now and again."""

import logging

import pytest

from arriero.runtime.seldom import EVERY_SECONDS, Seldom

logger = logging.getLogger("arriero.test")


def test_trouble_that_lasts_is_told_now_and_again_and_new_trouble_at_once(caplog: pytest.LogCaptureFixture) -> None:
    at = 100.0
    seldom = Seldom(logger, lambda: at)
    for _ in range(5):
        seldom.warn("away: %s", ValueError("one"))
    assert caplog.messages == ["away: one"]
    at += EVERY_SECONDS
    seldom.warn("away: %s", ValueError("two"))
    assert caplog.messages == ["away: one", "away: two"]
    seldom.over()
    seldom.warn("away: %s", ValueError("three"))
    assert caplog.messages[-1] == "away: three"
