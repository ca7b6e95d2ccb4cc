"""Processes and epochs. The rules are in ``core.lease`` and ``core.apps``; stores find, lock and keep the rows."""

from ...core import lease
from ...events import Event
from ...events.store import EpochOpened, LeaseLost, ProcessRetired
from ...model import Instant, later
from ...processes import ProcessRow
from ..apps import app_renamed, process_started, read_about, refuse_collision
from ..contract import SUPERVISOR_LEASE, Renewal
from ..sql.store_rows import StoreRows
from .batch import STORE_STREAM, Batch, note_in_store
from .leases import free_all_leases
from .limits import declare_all_limits
from .transactions import Lane, Transactions, writes

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
    # Before the history is locked: whoever takes a lease locks it first, too.
    lost = _take_lead_back(rows, process_no) if known_dead else []
    Batch(rows, rows.read_clock()).note(STORE_STREAM, by, [ProcessRetired(process_no, known_dead), *lost])
    return True, row.instance


def _take_lead_back(rows: StoreRows, process_no: int) -> list[Event]:
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


def open_epoch(rows: StoreRows, actor: str, reason: str = "") -> int:
    """Open the next epoch, after the store was restored from a backup; answers its number. ``reason``: kept.

    Every process is retired. What a process registered before sends is refused (``old_epoch``), also what it was
    about to send when the store was restored; it begins again by itself. See ``epoch`` for numbers.
    """
    epoch = rows.open_epoch()
    free_all_leases(rows)
    note_in_store(rows, actor, EpochOpened(epoch, reason))
    return epoch


def rename_app(rows: StoreRows, old: str, new: str, count: int, actor: str, reason: str) -> None:
    """Keep in the store's history that ``count`` tasks of App ``old`` are App ``new``'s from now on.

    Who submits by SQL does not find ``old`` any more. The tasks themselves are changed by ``AssignApp``.
    """
    rows.rename_workflows(old, new)
    note_in_store(rows, actor, app_renamed(old, new, count, reason))


class ProcessOperations(Transactions):
    """Process starts and their leases."""

    renew = writes(renew, Lane.RENEWALS)
    new_epoch = writes(open_epoch, Lane.UPKEEP)
    rename_app = writes(rename_app, Lane.UPKEEP)

    def announce(self, instance: str) -> None:
        """Make this process start's death visible to others at once, where the operating system can."""

    def is_known_dead(self, instance: str) -> bool:
        """Returns True if that process start is surely gone; False when nobody can tell."""
        return False

    def _on_registered(self, process_no: int, epoch: int) -> None:
        """This process speaks in that epoch from now on."""
        raise NotImplementedError

    def _on_retired(self, instance: str) -> None:
        """Called once the commit is made that retires a process start."""

    async def register(self, instance: str, lease_seconds: float, about: str = "{}") -> int:
        """A new process start; answers its number. ``instance`` was never used before.

        ``about``: what it runs, as JSON text; see ``runtime.node``. Raises AppCollision: see ``core.apps``; of two that
        start at once one comes first, so that they never both begin.
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
