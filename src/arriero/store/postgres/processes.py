"""Process starts and leases in the tables: functions on one transaction."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...core.apps import NOT_SAID
from ...core.epoch import first_number
from ...model import Instant, LeaseRow, ProcessAbout, later
from ..apps import process_started, refuse_collision
from ..base import Renewal
from ..batch import STORE_STREAM, Batch
from . import columns
from .rows import process_of
from .session import Transaction
from .tables import Tables

_read_about = msgspec.json.Decoder(ProcessAbout).decode


def now_of(transaction: Transaction, given: Instant | None) -> Instant:
    """The store's clock."""
    row = transaction.ask("select_now", {"given": given}).fetchone()
    assert row is not None
    return Instant(row[0])


def note(transaction: Transaction, now: Instant, actor: str, event: dict[str, Any]) -> None:
    """One event of the store itself."""
    tables = Tables(transaction)
    Batch(tables, now).note(STORE_STREAM, actor, [event])
    tables.flush()


def register(
    transaction: Transaction, instance: str, lease_seconds: float, about: str, given: Instant | None
) -> tuple[int, int]:
    """A new process start: its number, and the epoch it is of."""
    transaction.ask("lock_registration").fetchone()
    known = [text for (text,) in transaction.ask("select_known_code").fetchall()]
    refuse_collision(about, known, lambda workflows: _count_unsaid(transaction, workflows))
    now = now_of(transaction, given)
    asked = {"instance": instance, "lease_until": later(now, lease_seconds), "about": about}
    row = transaction.ask("insert_process", asked).fetchone()
    assert row is not None
    said = _read_about(about)
    if said.policies:
        rows = columns.as_json(_workflows(said.policies))
        transaction.ask("put_workflows", {"rows": rows})
        if said.app != NOT_SAID:
            transaction.ask("put_app_workflows", {"app": said.app, "rows": rows})
    note(transaction, now, instance, process_started(row[0], about))
    return row[0], row[1]


def _count_unsaid(transaction: Transaction, workflows: Sequence[str]) -> dict[str, int]:
    return dict(transaction.ask("count_unsaid", {"workflows": list(workflows)}).fetchall())


def _workflows(policies: Mapping[str, str]) -> list[dict[str, Any]]:
    limits = {name: msgspec.json.decode(policy).get("complete_within") for name, policy in policies.items()}
    return [{"name": n, "policy": policies[n], "complete_within": limits[n]} for n in sorted(policies)]


def renew(
    transaction: Transaction, process_no: int, epoch: int, lease_seconds: float, given: Instant | None
) -> Renewal:
    """See ``StateStore.renew``."""
    if given is None:
        transaction.ask("mend_clock")
    clock = transaction.ask("select_now", {"given": given})
    seen = transaction.ask("select_last_renewal")
    others = transaction.ask("select_other_processes", {"process_no": process_no})
    transaction.arrive()
    (now,) = clock.fetchone() or (0,)
    last, until = seen.fetchone() or (None, None)
    nobody_frees_until = Instant(until or 0)
    until = later(Instant(now), lease_seconds)
    if last is not None and now > later(Instant(last), lease_seconds):
        nobody_frees_until = until
        transaction.ask("put_meta", {"name": "nobody_frees_until", "value": str(until)})
    asked = {"process_no": process_no, "epoch": epoch, "lease_until": until, "renewed_at": now}
    renewed = transaction.ask("renew_process", asked)
    transaction.arrive()
    rows = tuple(process_of(row) for row in others.fetchall())
    (is_renewed,) = renewed.fetchone() or (False,)
    return Renewal(Instant(now), is_renewed, nobody_frees_until, rows)


def retire(
    transaction: Transaction, process_no: int, by: str, known_dead: bool, given: Instant | None
) -> tuple[bool, str]:
    """See ``StateStore.retire``; answers also the name of the process start."""
    row = transaction.ask("lock_process", {"process_no": process_no}).fetchone()
    now = now_of(transaction, given)
    if row is None:
        return True, ""  # forgotten by a restore
    process = process_of(row)
    if process.retired or (not known_dead and process.lease_until > now):
        return process.retired, process.instance
    transaction.ask("retire_process", {"process_no": process_no})
    note(transaction, now, by, {"type": "process.retired", "process": process_no, "known_dead": known_dead})
    return True, process.instance


def _lease(transaction: Transaction, name: str) -> LeaseRow | None:
    row = transaction.ask("select_lease", {"name": name}).fetchone()
    return None if row is None else LeaseRow(*row)


def _is_another_s(row: LeaseRow, process_no: int, now: Instant) -> bool:
    return row.holder not in (None, process_no) and row.until > now


def acquire(
    transaction: Transaction, name: str, process_no: int, actor: str, seconds: float, given: Instant | None
) -> LeaseRow:
    """See ``StateStore.acquire_lease``."""
    seen = transaction.ask("look_at_lease", {"name": name}).fetchone()
    now = now_of(transaction, given)
    if seen is not None and _is_another_s(LeaseRow(*seen), process_no, now):
        return LeaseRow(*seen)  # unlocked: whoever leads must not wait for those who ask
    if seen is None:
        transaction.ask("add_lease", {"name": name})
    row = _lease(transaction, name)
    now = now_of(transaction, given)
    assert row is not None
    if _is_another_s(row, process_no, now):
        return row
    if row.holder != process_no or row.until <= now:
        row = LeaseRow(name, row.term + 1, process_no, row.until)
        event = {"type": "lease.granted", "lease": name, "term": row.term, "process": process_no}
        note(transaction, now, actor, event)
    row = msgspec.structs.replace(row, until=later(now, seconds))
    transaction.ask("put_lease", msgspec.structs.asdict(row))
    return row


def renew_lease(
    transaction: Transaction, name: str, process_no: int, term: int, seconds: float, given: Instant | None
) -> bool:
    """See ``StateStore.renew_lease``."""
    row = _lease(transaction, name)
    now = now_of(transaction, given)
    if row is None or (row.holder, row.term) != (process_no, term) or row.until <= now:
        return False
    transaction.ask("put_lease", msgspec.structs.asdict(msgspec.structs.replace(row, until=later(now, seconds))))
    return True


def release(transaction: Transaction, name: str, process_no: int, term: int, actor: str, given: Instant | None) -> None:
    """See ``StateStore.release_lease``."""
    row = _lease(transaction, name)
    now = now_of(transaction, given)
    if row is not None and (row.holder, row.term) == (process_no, term):
        transaction.ask("put_lease", msgspec.structs.asdict(msgspec.structs.replace(row, holder=None)))
        note(transaction, now, actor, {"type": "lease.lost", "lease": name, "term": term, "process": process_no})


def rename_app(
    transaction: Transaction, old: str, new: str, event: dict[str, Any], actor: str, given: Instant | None
) -> None:
    """See ``StateStore.rename_app``. Who submits by SQL finds the workflows under the new name at once."""
    transaction.ask("copy_app_workflows", {"app": old, "new": new})
    transaction.ask("delete_app_workflows", {"app": old})
    note(transaction, now_of(transaction, given), actor, event)


def new_epoch(transaction: Transaction, actor: str, reason: str, given: Instant | None) -> int:
    """Open a new epoch: whatever a process of an earlier one still sends is refused. Answers its number."""
    row = transaction.ask("lock_epoch").fetchone()
    assert row is not None
    epoch = int(row[0]) + 1
    transaction.ask("put_meta", {"name": "epoch", "value": str(epoch)})
    transaction.ask("close_epoch")
    transaction.ask("number_from", {"first": first_number(epoch)})
    note(transaction, now_of(transaction, given), actor, {"type": "epoch.opened", "epoch": epoch, "reason": reason})
    return epoch
