"""Instants as datetimes, and back."""

from datetime import UTC, datetime, timedelta

from . import Instant

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_datetime(instant: Instant) -> datetime:
    """An instant as an aware datetime in UTC."""
    return EPOCH + timedelta(microseconds=instant)


def as_instant(when: datetime) -> Instant:
    """The instant of an aware datetime."""
    return Instant((when - EPOCH) // timedelta(microseconds=1))
