"""Telling the log of trouble that lasts: once, and then now and again, however often it is met."""

import logging
from collections.abc import Callable

EVERY_SECONDS = 10.0


class Seldom:
    """One kind of trouble. ``monotonic``: seconds."""

    def __init__(self, logger: logging.Logger, monotonic: Callable[[], float]) -> None:
        self._logger = logger
        self._monotonic = monotonic
        self._next_at = float("-inf")

    def warn(self, message: str, error: Exception) -> None:
        """Log a warning, unless the last one is younger than ``EVERY_SECONDS``. ``message``: with one ``%s``."""
        now = self._monotonic()
        if now >= self._next_at:
            self._next_at = now + EVERY_SECONDS
            self._logger.warning(message, error)

    def over(self) -> None:
        """It is over; the next one is told at once."""
        self._next_at = float("-inf")
