"""Processes, leases, epochs, and rows that are obsolete. The rules are in ``core.lease``, ``core.apps``, ``core.purging``."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ...core import lease
from ...core.apps import find_name_conflict
from ...core.purging import (
    FENCE_FLOOR,
    TERM_FLOOR,
    find_newest,
    is_obsolete_breaker,
    is_obsolete_lease,
    list_obsolete_processes,
)
from ...errors import AppCollision
from ...events import Event
from ...events.store import (
    AppRenamed,
    EpochOpened,
    LeaseBroken,
    LeaseGranted,
    LeaseLost,
    ProcessRetired,
    ProcessStarted,
)
from ...model import Instant, later
from ...model.leases import LeaseHolder, LeaseRow
from ...model.processes import ProcessAbout, ProcessRow, compute_first_number
from ..contract import SUPERVISOR_LEASE, RemovedRows, Renewal
from ..sql.store_rows import StoreRows
from .batch import STORE_STREAM, Batch, note_in_store
from .limits import declare_all_limits
from .transactions import Lane, Transactions, writes

read_about = msgspec.json.Decoder(ProcessAbout).decode


def refuse_collision(
    about: str, known: Iterable[str], count_unsaid: Callable[[Sequence[str]], Mapping[str, int]]
) -> None:
    """Raises AppCollision: see ``core.apps.find_name_conflict``, whose arguments these are, as JSON texts."""
    why = find_name_conflict(read_about(about), [_as_told(text) for text in set(known)], count_unsaid)
    if why is not None:
        raise AppCollision(why)


def _as_told(about: str) -> ProcessAbout:
    """A row that cannot be read reports no App: it must not keep others from starting."""
    try:
        return read_about(about)
    except msgspec.MsgspecError:
        return ProcessAbout()


def process_started(process_no: int, about: str) -> ProcessStarted:
    """The event of a process start; with its App, where it names one, and the versions of its code."""
    said = read_about(about)
    return ProcessStarted(process_no, said.app, said.versions)


def app_renamed(old: str, new: str, count: int, reason: str) -> AppRenamed:
    """The event of a store whose tasks of one App are another's from now on."""
    return AppRenamed(old, new, count, reason)


def remove_obsolete_processes(rows: StoreRows, before: Instant, limit: int) -> int:
    """Remove the rows of processes that are retired, older than the newest with their code, and named by nothing."""
    found = rows.select_unnamed_processes(before, limit)
    numbers = list_obsolete_processes(found, find_newest(rows.select_code_of_processes()), before) if found else []
    if numbers:
        rows.remove_processes(numbers)
    return len(numbers)


def remove_obsolete_leases(rows: StoreRows, before: Instant, limit: int) -> int:
    """Remove the leases that were not held since ``before``. Terms of leases that get a row again lie above theirs."""
    found = [row for row in rows.lock_old_leases(before, limit) if is_obsolete_lease(row, before)]
    if found:
        rows.raise_floor(TERM_FLOOR, max(row.term for row in found))
        rows.remove_leases([row.name for row in found])
    return len(found)


def remove_obsolete_breakers(rows: StoreRows, before: Instant, limit: int) -> int:
    """Remove the breakers that have been closed since ``before``. Fences of breakers that get a row again lie above theirs."""
    now = rows.read_clock()
    found = [row for row in rows.lock_old_breakers(before, limit) if is_obsolete_breaker(row, before, now)]
    if found:
        rows.raise_floor(FENCE_FLOOR, max(row.fence for row in found))
        rows.remove_breakers([(row.app, row.agent, row.target) for row in found])
    return len(found)


class ObsoleteRowsOperations(Transactions):
    """Rows of processes, leases and breakers that nothing refers to any longer; ``core.purging`` has the rules."""

    async def remove_obsolete_rows(self, before: Instant, breakers_before: Instant, limit: int) -> RemovedRows:
        """Remove obsolete rows, at most ``limit`` of each kind.

        A process that finds its row removed is refused like one that is retired. Terms of leases and fences of breakers
        continue to grow when a row is made again. With them go alerts of no task that are closed and delivered.

        Args:
            before: rows of processes, leases and alerts that were in use later stay.
            breakers_before: the same for breakers.
        """
        processes = await self._write(lambda rows: remove_obsolete_processes(rows, before, limit), Lane.UPKEEP)
        leases = await self._write(lambda rows: remove_obsolete_leases(rows, before, limit), Lane.UPKEEP)
        breakers = await self._write(lambda rows: remove_obsolete_breakers(rows, breakers_before, limit), Lane.UPKEEP)
        alerts = await self._write(lambda rows: rows.remove_told_alerts(before, limit), Lane.UPKEEP)
        return RemovedRows(processes=processes, leases=leases, breakers=breakers, alerts=alerts)


def acquire_lease(rows: StoreRows, name: str, holder: LeaseHolder, actor: str, seconds: float) -> LeaseRow:
    """See ``LeaseOperations.acquire_lease``."""
    seen = rows.select_lease(name)
    if seen is not None and lease.is_led_by_another(seen, holder, rows.read_clock()):
        return seen  # unlocked: the one who leads must not wait for those who ask
    if seen is None:
        rows.add_lease(name)
    while (row := rows.lock_lease(name, to_grant=True)) is None:
        rows.add_lease(name)  # upkeep has just removed it
    first_term = max(compute_first_number(rows.read_epoch()), rows.read_floor(TERM_FLOOR) + 1 if not row.term else 0)
    granted = lease.grant_lease(row, holder, rows.read_clock(), seconds, first_term)
    if granted is None:
        return row
    if granted.term != row.term:
        note_in_store(rows, actor, LeaseGranted(name, granted.term, *_split(holder)))
    rows.put_lease(granted)
    return granted


def renew_lease(rows: StoreRows, name: str, holder: LeaseHolder, term: int, seconds: float) -> bool:
    """Prolong it, only for (holder, term). False: it is another's, was broken, or has lapsed."""
    row = rows.lock_lease(name)
    prolonged = None if row is None else lease.prolong_lease(row, holder, term, rows.read_clock(), seconds)
    if prolonged is not None:
        rows.put_lease(prolonged)
    return prolonged is not None


def release_lease(rows: StoreRows, name: str, holder: LeaseHolder, term: int, actor: str) -> None:
    """Give it back. Nothing happens if it is another's."""
    row = rows.lock_lease(name)
    released = None if row is None else lease.release_lease(row, holder, term)
    if released is not None:
        rows.put_lease(released)
        note_in_store(rows, actor, LeaseLost(name, term, *_split(holder)))


def break_lease(rows: StoreRows, name: str, actor: str, reason: str, *, at_once: bool) -> LeaseRow | None:
    """Take it from its holder; answers how it stands then. None: nobody holds it. See ``core.lease.break_lease``."""
    row = rows.lock_lease(name, to_grant=True)
    broken = None if row is None else lease.break_lease(row, rows.read_clock(), actor, reason, at_once=at_once)
    if broken is not None:
        assert broken.holder is not None
        rows.put_lease(broken)
        note_in_store(rows, actor, LeaseBroken(name, broken.term, *_split(broken.holder), at_once, reason))
    return broken


def free_all_leases(rows: StoreRows) -> None:
    """Free all leases, after a restore: the one who holds one may not be who holds it by the backup."""
    for row in rows.select_leases():
        rows.put_lease(msgspec.structs.replace(row, holder=None, until=Instant(0)))


def _split(holder: LeaseHolder) -> tuple[int, str]:
    """A holder as events have it: the number of a process, and the name of another holder."""
    return (holder, "") if isinstance(holder, int) else (0, holder)


class LeaseOperations(Transactions):
    """Leases that one holder at a time may have: a process, for the Supervisors' lease, or a mutex.

    Time is the store's clock. Each write touches exactly one row, and only if holder and term are still as the caller says.
    """

    renew_lease = writes(renew_lease, Lane.RENEWALS)
    release_lease = writes(release_lease)
    break_lease = writes(break_lease)

    async def acquire_lease(self, name: str, holder: LeaseHolder, actor: str, seconds: float) -> LeaseRow:
        """Take a lease that is free, lapsed or held by this holder (same term then); answers how it stands now."""
        return await self._reporting(
            self._write(lambda rows: acquire_lease(rows, name, holder, actor, seconds), Lane.OTHERS)
        )

    async def list_leases(self) -> tuple[Instant, Sequence[LeaseRow]]:
        """The store's clock, and all leases by name."""
        return await self._read(lambda rows: (rows.read_clock(), rows.select_leases()))

    async def find_lease(self, name: str) -> tuple[Instant, LeaseRow | None]:
        """The store's clock, and one lease; None: nobody ever held it."""
        return await self._read(lambda rows: (rows.read_clock(), rows.select_lease(name)))


# As rows of the history have it: no text in an event can look like that, because its quotes are escaped.
SAID_OF_REFUSED_TERMS = '"type":"leader.refused"'


def register(rows: StoreRows, instance: str, lease_seconds: float, about: str) -> tuple[int, int]:
    """A new process start: its number, and the epoch it speaks in."""
    refuse_collision(about, rows.lock_known_code(), rows.count_unsaid)
    now = rows.read_clock()
    process_no, epoch = rows.add_process(instance, later(now, lease_seconds), about)
    note_in_store(rows, instance, process_started(process_no, about))
    declare_all_limits(rows, process_no, read_about(about), instance)
    return process_no, epoch


def renew(rows: StoreRows, process_no: int, lease_seconds: float, room: str = "") -> Renewal:
    """Prolong a process's lease, unless it is retired; see who else there is.

    When no process renewed for longer than a lease, nobody may free for one lease (``nobody_frees_until``).
    """
    found = rows.select_renewals(process_no)
    now = rows.read_clock()
    until = lease.compute_nobody_frees_until(found.nobody_frees_until, found.last_at, now, lease_seconds)
    if until != found.nobody_frees_until:
        rows.put_nobody_frees_until(until)
    return Renewal(now, rows.renew_process(process_no, later(now, lease_seconds), now, room), until, found.others)


def retire(rows: StoreRows, process_no: int, by: str, known_dead: bool) -> tuple[bool, str]:
    """See ``ProcessOperations.retire``; answers also the name of the process start."""
    row = rows.lock_process(process_no)
    if row is None:
        return True, ""
    if not lease.is_retirable(row, rows.read_clock(), known_dead=known_dead):
        return row.retired, row.instance
    rows.retire_process(process_no, rows.read_clock())
    # Before the history is locked: the one who takes a lease locks it first, too.
    lost = _take_lead_back(rows, process_no) if known_dead else []
    Batch(rows, rows.read_clock()).note(STORE_STREAM, by, [ProcessRetired(process_no, known_dead), *lost])
    return True, row.instance


def _take_lead_back(rows: StoreRows, process_no: int) -> list[Event]:
    """Free the Supervisors' lease of a process that has ended: the next leader need not wait until it lapses.

    Not of one that is only silent: that one may still believe that it leads. Returns the event of it, if it led.
    """
    seen = rows.select_lease(SUPERVISOR_LEASE)
    row = rows.lock_lease(SUPERVISOR_LEASE) if seen is not None and seen.holder == process_no else None
    released = None if row is None else lease.release_lease(row, process_no, row.term)
    if released is None:
        return []
    rows.put_lease(released)
    return [LeaseLost(SUPERVISOR_LEASE, released.term, process_no)]


def open_epoch(rows: StoreRows, actor: str, reason: str = "") -> int:
    """Open the next epoch, after the store was restored from a backup; answers its number. ``reason``: kept.

    Every process is retired. What a process registered before sends is refused (``old_epoch``), also what it was
    about to send when the store was restored; it begins again by itself. See ``model.processes`` for numbers.

    Open alerts are delivered again: an alert that an operator ended in the lost time is open again, and its sinks know only of its end.
    """
    epoch = rows.open_epoch()
    free_all_leases(rows)
    rows.deliver_open_alerts_again()
    note_in_store(rows, actor, EpochOpened(epoch, reason))
    return epoch


def rename_app(rows: StoreRows, old: str, new: str, count: int, actor: str, reason: str) -> None:
    """Keep in the store's history that ``count`` tasks of App ``old`` are App ``new``'s from now on.

    Who submits by SQL no longer finds ``old``. The tasks themselves are changed by ``AssignApp``.
    """
    rows.rename_workflows(old, new)
    note_in_store(rows, actor, app_renamed(old, new, count, reason))


class ProcessOperations(Transactions):
    """Process starts and their leases."""

    renew = writes(renew, Lane.RENEWALS)
    new_epoch = writes(open_epoch, Lane.UPKEEP)
    rename_app = writes(rename_app, Lane.UPKEEP)

    def announce(self, instance: str) -> None:
        """Make this process start's death visible to others immediately, where the operating system can."""

    def is_known_dead(self, instance: str) -> bool:
        """Returns True if that process start is definitely gone; False when nobody can know."""
        return False

    def _on_registered(self, process_no: int, epoch: int) -> None:
        """This process speaks in that epoch from now on."""
        raise NotImplementedError

    def _on_retired(self, instance: str) -> None:
        """Called once the commit is made that retires a process start."""

    async def register(self, instance: str, lease_seconds: float, about: str = "{}") -> int:
        """A new process start; answers its number. ``instance`` was never used before.

        ``about``: what it runs, as JSON text; see ``runtime.node``. Raises AppCollision: see ``core.apps``; of two that
        start at the same time one comes first, so that they never both begin.
        """
        number, epoch = await self._write(lambda rows: register(rows, instance, lease_seconds, about))
        self._on_registered(number, epoch)
        return number

    async def describe(self, process_no: int, about: str) -> None:
        """Replace what a process says of itself (``ProcessRow.about``), unless it is retired. It goes the way of renewals."""
        await self._write(lambda rows: rows.describe_process(process_no, about), Lane.RENEWALS)

    async def known_processes(self) -> tuple[Instant, list[ProcessRow]]:
        """The store's clock, and the processes that are not retired."""
        return await self._read(lambda rows: (rows.read_clock(), rows.select_processes()))

    async def retire(self, process_no: int, *, by: str, known_dead: bool) -> bool:
        """Declare a process lost, if its lease has (still) lapsed or it is known to be dead, or by its own wish.

        From then on its renewals fail and what it holds may be freed. One that is known to be dead leads no more.
        """
        is_retired, instance = await self._write(lambda rows: retire(rows, process_no, by, known_dead))
        if is_retired and instance:
            self._on_retired(instance)
        return is_retired
