"""Findings of the doctor about rows that belong to no task and cannot be read."""

from collections.abc import Sequence

from ..core.unreadable_rows import describe_shared_row
from ..errors import UnreadableRow
from .doctor import NAMES_SHOWN_MAX, Finding


def diagnose_unreadable_rows(errors: Sequence[UnreadableRow]) -> list[Finding]:
    """Diagnose rows that belong to no task and cannot be read. ``errors``: each row once."""
    found: list[Finding] = []
    for error in errors[:NAMES_SHOWN_MAX]:
        row = describe_shared_row(error.row)
        waits = f"; {row.waits}" if row.waits else ""
        found.append(Finding("care", "unreadable", f"{row.what} cannot be read: {error.what}{waits}", row.remedy))
    if len(errors) > NAMES_SHOWN_MAX:
        says = f"{len(errors) - NAMES_SHOWN_MAX:,} more rows that belong to no task cannot be read"
        found.append(Finding("care", "unreadable", says, "correct those that are named here, and look again"))
    return found
