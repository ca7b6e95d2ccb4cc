"""Processes and epochs. The rules are in ``core.lease`` and ``core.apps``; stores find, lock and keep the rows."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from ...core import lease
from ...events import Event
from ...events.store import EpochOpened, LeaseLost, ProcessRetired
from ...model import Instant, later
from ...processes import ProcessRow
from ..apps import app_renamed, process_started, read_about, refuse_collision
from ..contract import SUPERVISOR_LEASE, Renewal
from .batch import STORE_STREAM, Batch, note_in_store
from .leases import LeaseTable, free_all_leases
from .limits import LimitTable, declare_all_limits
from .transactions import Lane, Transactions

# As rows of the history have it: no text in an event can look like that, because its quotes are escaped.
SAID_OF_REFUSED_TERMS = '"type":"leader.refused"'


class Renewals(msgspec.Struct, frozen=True):
    """Rows that a renewal reads.

    Args:
        last_at: when any process renewed last.
        nobody_frees_until: as it was kept; 0: never.
        others: as in ``Renewal``.
    """

    last_at: Instant | None
    nobody_frees_until: Instant
    others: tuple[ProcessRow, ...]


class ProcessRows(LeaseTable, LimitTable, Protocol):
    """Rows of processes and epochs inside one transaction."""

    def lock_known_code(self) -> Sequence[str]:
        """The code of all processes that ever started here, as JSON texts; nobody else registers until this transaction ends."""
        ...

    def count_unsaid(self, workflows: Sequence[str]) -> Mapping[str, int]:
        """Tasks that carry no App's name and are open or in error, by workflow."""
        ...

    def add_process(self, instance: str, lease_until: Instant, about: str) -> tuple[int, int]:
        """The number of a new process start, and the epoch in which it begins."""
        ...

    def lock_process(self, process_no: int) -> ProcessRow | None:
        """None: a restore has forgotten it."""
        ...

    def retire_process(self, process_no: int, now: Instant) -> None:
        """It cannot renew its lease any more, which has lapsed by now."""
        ...

    def select_renewals(self, process_no: int) -> Renewals:
        """The other rows that a renewal needs."""
        ...

    def renew_process(self, process_no: int, lease_until: Instant, now: Instant, room: str) -> bool:
        """Keep that it renewed now, prolong its lease, and keep what it reports of its room; False: it is retired."""
        ...

    def put_nobody_frees_until(self, until: Instant) -> None: ...

    def select_processes(self) -> list[ProcessRow]:
        """The processes that are not retired."""
        ...

    def describe_process(self, process_no: int, about: str) -> None:
        """Replace what it says of itself, unless it is retired."""
        ...

    def open_epoch(self) -> int:
        """Begin the next epoch; returns its number.

        All processes are retired, secrets are removed, and numbers that may have been given are left out.
        """
        ...

    def rename_workflows(self, old: str, new: str) -> None:
        """Let who submits by SQL find the workflows of an App under its new name, and no more under the old one."""
        ...


def register(rows: ProcessRows, instance: str, lease_seconds: float, about: str) -> tuple[int, int]:
    """A new process start: its number, and the epoch it speaks in."""
    refuse_collision(about, rows.lock_known_code(), rows.count_unsaid)
    now = rows.read_clock()
    process_no, epoch = rows.add_process(instance, later(now, lease_seconds), about)
    note_in_store(rows, instance, process_started(process_no, about))
    declare_all_limits(rows, process_no, read_about(about), instance)
    return process_no, epoch


def renew(rows: ProcessRows, process_no: int, lease_seconds: float, room: str = "") -> Renewal:
    """See ``ProcessStore.renew``."""
    found = rows.select_renewals(process_no)
    now = rows.read_clock()
    until = lease.compute_nobody_frees_until(found.nobody_frees_until, found.last_at, now, lease_seconds)
    if until != found.nobody_frees_until:
        rows.put_nobody_frees_until(until)
    return Renewal(now, rows.renew_process(process_no, later(now, lease_seconds), now, room), until, found.others)


def retire(rows: ProcessRows, process_no: int, by: str, known_dead: bool) -> tuple[bool, str]:
    """See ``ProcessStore.retire``; answers also the name of the process start."""
    row = rows.lock_process(process_no)
    if row is None:
        return True, ""
    if not lease.is_retirable(row, rows.read_clock(), known_dead=known_dead):
        return row.retired, row.instance
    rows.retire_process(process_no, rows.read_clock())
    # Before the history is locked: whoever takes a lease locks it first, too.
    lost = _take_lead_back(rows, process_no) if known_dead else []
    Batch(rows, rows.read_clock()).note(STORE_STREAM, by, [ProcessRetired(process_no, known_dead), *lost])
    return True, row.instance


def _take_lead_back(rows: ProcessRows, process_no: int) -> list[Event]:
    """Free the Supervisors' lease of a process that is gone: the next leader need not wait until it lapses.

    Not of one that is only silent: that one may still believe that it leads. Returns the event of it, if it led.
    """
    seen = rows.select_lease(SUPERVISOR_LEASE)
    row = rows.lock_lease(SUPERVISOR_LEASE) if seen is not None and seen.holder == process_no else None
    released = None if row is None else lease.release_lease(row, process_no, row.term)
    if released is None:
        return []
    rows.put_lease(released)
    return [LeaseLost(SUPERVISOR_LEASE, released.term, process_no)]


def open_epoch(rows: ProcessRows, actor: str, reason: str) -> int:
    """See ``ProcessStore.new_epoch``."""
    epoch = rows.open_epoch()
    free_all_leases(rows)
    note_in_store(rows, actor, EpochOpened(epoch, reason))
    return epoch


def rename_app(rows: ProcessRows, old: str, new: str, count: int, actor: str, reason: str) -> None:
    """See ``ProcessStore.rename_app``."""
    rows.rename_workflows(old, new)
    note_in_store(rows, actor, app_renamed(old, new, count, reason))


R = TypeVar("R", bound=ProcessRows)


class ProcessEngine(Transactions[R]):
    """``store.contract.ProcessStore`` over any store's rows, but for what a store alone knows of living processes."""

    def _on_registered(self, process_no: int, epoch: int) -> None:
        """This process speaks in that epoch from now on."""
        raise NotImplementedError

    def _on_retired(self, instance: str) -> None:
        """Called once the commit is made that retires a process start."""

    async def register(self, instance: str, lease_seconds: float, about: str = "{}") -> int:
        number, epoch = await self._write(lambda rows: register(rows, instance, lease_seconds, about))
        self._on_registered(number, epoch)
        return number

    async def renew(self, process_no: int, lease_seconds: float, room: str = "") -> Renewal:
        return await self._write(lambda rows: renew(rows, process_no, lease_seconds, room), Lane.RENEWALS)

    async def describe(self, process_no: int, about: str) -> None:
        await self._write(lambda rows: rows.describe_process(process_no, about), Lane.RENEWALS)

    async def known_processes(self) -> tuple[Instant, list[ProcessRow]]:
        return await self._read(lambda rows: (rows.read_clock(), rows.select_processes()))

    async def retire(self, process_no: int, *, by: str, known_dead: bool) -> bool:
        is_retired, instance = await self._write(lambda rows: retire(rows, process_no, by, known_dead))
        if is_retired and instance:
            self._on_retired(instance)
        return is_retired

    async def new_epoch(self, actor: str, reason: str = "") -> int:
        return await self._write(lambda rows: open_epoch(rows, actor, reason), Lane.UPKEEP)

    async def rename_app(self, old: str, new: str, count: int, actor: str, reason: str) -> None:
        await self._write(lambda rows: rename_app(rows, old, new, count, actor, reason), Lane.UPKEEP)
