"""The entries of a ledger in batches, as they are written, and the digest by which a repeated ledger is recognized."""

import hashlib
from typing import Any

import msgspec

from ..model import Instant, LedgerRow
from ..model.commands import Submit

ASIDE_MAX = 10_000  # entries set aside; a ledger with more is refused: it is not what its splitter takes it for


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry as it is written.

    Args:
        line: its number, from 1.
        digest: over all entries up to and with this one.
        submit: the task; None: it can be none, for the reason ``bad``.
    """

    line: int
    digest: str
    submit: Submit | None = None
    bad: str = ""


class LedgerBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Entries to be written in one transaction.

    Args:
        after: that many must be written before; else another process came first.
        refuses: whether one bad entry means that nothing of the ledger is kept.
    """

    ledger_no: int
    after: int
    entries: tuple[LedgerEntry, ...]
    refuses: bool


class LedgerWritten(msgspec.Struct, frozen=True):
    """The ledger as it now is (None: it no longer exists), and the bad entry for which it is refused: its line and reason.

    ``verdict``: of a refusal beyond a cap on open tasks; else empty.
    """

    ledger: LedgerRow | None
    refused: tuple[int, str] | None = None
    verdict: str = ""


class LedgerOpened(msgspec.Struct, frozen=True):
    """The ledger as it now is (None: it no longer exists), and whether it was opened with this."""

    ledger: LedgerRow | None
    opened: bool = False


class LedgerTasks(msgspec.Struct, frozen=True):
    """The tasks of a ledger that are in the store.

    Args:
        counts: how many there are in each state that occurs.
        ended_at: when the last one of those that have ended did so; None: none has.
    """

    counts: dict[str, int]
    ended_at: Instant | None


def start_digest(app: str) -> str:
    """Return the start of the digest of an App's ledger: equal lines under one id are two ledgers in two Apps."""
    return f"App {app}"


def extend_digest(
    before: str,
    *,
    workflow: str = "",
    arguments: str = "",
    convoy: str | None = None,
    sequence: int | None = None,
    task_id: str | None = None,
    bad: str = "",
    priority: int | str | None = None,
    tags: str = "",
) -> str:
    """Return the digest over the entries before and this one, by which a repeated ledger is recognized.

    ``priority``: None: the default one; ``tags``: empty: none. Then the digest is the one of releases whose entries had no such thing.
    """
    parts: tuple[Any, ...] = (before, workflow, arguments, convoy, sequence, task_id, bad)
    if priority is not None:
        parts = (*parts, priority)
    text = msgspec.json.encode((*parts, {"tags": tags}) if tags else parts)
    return hashlib.blake2b(text, digest_size=16).hexdigest()
