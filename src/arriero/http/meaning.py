"""Meaning of an HTTP answer: whether the request happened, and whether another try may succeed. Pure.

The table follows from the semantics of HTTP (RFC 9110; RFC 6585 for 429, RFC 8470 for 425): which answers say that the
server did not perform the request, and which leave that open. What it leaves open is in doubt.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

from ..errors import InvalidInput

SWITCHING_PROTOCOLS, NOT_MODIFIED, TOO_MANY_REQUESTS, SERVICE_UNAVAILABLE = 101, 304, 429, 503
NOT_BEGUN = frozenset((408, 425, TOO_MANY_REQUESTS))  # the server gave up before it began the request
SECONDS_DIGITS_MAX = 12  # more digits name no time: 12 are 30,000 years
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")


class Meaning(StrEnum):
    """The meaning of an answer for a try."""

    ANSWER = "answer"  # the request happened: the step gets the response
    TRANSIENT = "transient"  # it definitely did not happen, another try may succeed
    PERMANENT = "permanent"  # it definitely did not happen, and never will
    IN_DOUBT = "in_doubt"  # it may have happened


def interpret_status(
    status: int, *, retry_after: float | None, meanings: Mapping[int, Meaning] | None = None
) -> Meaning:
    """Say what the answer to one request means for this request.

    Args:
        status: of the response; one that HTTP does not have is in doubt.
        retry_after: seconds of its Retry-After; None: it has none that can be read.
        meanings: what statuses mean at a service that differs from the table.
    """
    if meanings is not None and status in meanings:
        return meanings[status]
    if 200 <= status < 300 or status in (SWITCHING_PROTOCOLS, NOT_MODIFIED):
        return Meaning.ANSWER
    if status in NOT_BEGUN or (status == SERVICE_UNAVAILABLE and retry_after is not None):
        return Meaning.TRANSIENT
    return Meaning.PERMANENT if 400 <= status < 500 else Meaning.IN_DOUBT


def is_unavailable(status: int, retry_after: float | None) -> bool:
    """Returns True if the service itself says that it takes no calls at present, and for how long. 0 s asks for a call immediately."""
    return status in (TOO_MANY_REQUESTS, SERVICE_UNAVAILABLE) and retry_after is not None and retry_after > 0


def check_meanings(meanings: Mapping[int, str]) -> dict[int, Meaning]:
    """Return the meanings that a client was given, checked.

    Raises: InvalidInput - a status that is not a number from 100 to 599, or an unknown meaning.
    """
    checked = {}
    for status, meaning in meanings.items():
        if isinstance(status, bool) or not isinstance(status, int) or not 100 <= status <= 599:
            raise InvalidInput(f"meanings: {status!r} is not a status of HTTP; give a number from 100 to 599")
        if meaning not in set(Meaning):
            known = ", ".join(repr(one.value) for one in Meaning)
            raise InvalidInput(f"meanings: {status} is {meaning!r}; give one of {known}")
        checked[int(status)] = Meaning(meaning)
    return checked


def parse_retry_after(text: str | None, date: str | None, now: datetime) -> float | None:
    """Seconds to wait that a Retry-After header names, as seconds or as a date (RFC 9110, section 10.2.3).

    Args:
        text: the value of the header; None where there is none.
        date: the value of the header Date of the same response. A date is counted from it, because the clock of the
            service may differ from ours.
        now: aware; a date is counted from it if ``date`` cannot be read.
    Returns: None for none, and for one that cannot be read; at least 0. ``Transient`` bounds it.
    """
    text = (text or "").strip()
    if _SECONDS.fullmatch(text):
        return float(text) if len(text.partition(".")[0]) <= SECONDS_DIGITS_MAX else float("inf")
    at = _parse_date(text)
    return None if at is None else max(0.0, (at - (_parse_date(date) or now)).total_seconds())


def _parse_date(text: str | None) -> datetime | None:
    try:
        at = parsedate_to_datetime(text or "")
    except (
        ValueError,
        TypeError,
        OverflowError,
        IndexError,
    ):  # what it raises for a wrong date depends on how it is wrong
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
