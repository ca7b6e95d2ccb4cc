"""What an answer over HTTP says about a call: whether it happened, and whether another try may succeed. Pure.

The table follows from the semantics of HTTP (RFC 9110, RFC 6585 for 429, RFC 8470 for 425): which answers say that the
server has not begun the request, and which leave that open.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

from ..errors import InvalidInput

SERVICE_UNAVAILABLE = 503
NOT_BEGUN = frozenset((408, 425, 429))  # the server gave up before it began the request
ERRORS_FROM, SERVER_ERRORS_FROM = 400, 500


class Meaning(StrEnum):
    """The meaning of an answer for an attempt."""

    ANSWER = "answer"  # the call happened: the step gets the response
    TRANSIENT = "transient"  # it surely did not happen, another try may succeed
    PERMANENT = "permanent"  # it surely did not happen, and never will
    IN_DOUBT = "in_doubt"  # it may have happened


def interpret_status(status: int, *, has_retry_after: bool, meanings: Mapping[int, Meaning] | None = None) -> Meaning:
    """Say what an answer means.

    Args:
        status: of the response, 100 to 599.
        has_retry_after: the response says when to come again.
        meanings: what a service's statuses mean where it differs from the table.
    """
    if meanings is not None and status in meanings:
        return meanings[status]
    if status < ERRORS_FROM:
        return Meaning.ANSWER
    if status in NOT_BEGUN or (status == SERVICE_UNAVAILABLE and has_retry_after):
        return Meaning.TRANSIENT
    return Meaning.PERMANENT if status < SERVER_ERRORS_FROM else Meaning.IN_DOUBT


def check_meanings(meanings: Mapping[int, str]) -> dict[int, Meaning]:
    """Return the meanings that a client was given, checked.

    Raises: InvalidInput - a status that is no number from 100 to 599, or a meaning that there is not.
    """
    checked = {}
    for status, meaning in meanings.items():
        if isinstance(status, bool) or not isinstance(status, int) or not 100 <= status <= 599:
            raise InvalidInput(f"meanings: {status!r} is no status of HTTP; give a number from 100 to 599")
        if meaning not in set(Meaning):
            known = ", ".join(repr(one.value) for one in Meaning)
            raise InvalidInput(f"meanings: {status} is {meaning!r}; give one of {known}")
        checked[status] = Meaning(meaning)
    return checked


def parse_retry_after(text: str | None, now: datetime) -> float | None:
    """Seconds to wait that a Retry-After header names, as seconds or as a date (RFC 9110, section 10.2.3).

    Args:
        text: the header's value; None where there is none.
        now: aware; against which a date is held.
    Returns: None for none, and for one that cannot be read; at least 0.
    """
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds())
