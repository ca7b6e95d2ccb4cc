"""Ledgers as operators and programs see them: how far each is, and a wait for the end of all tasks that it brought."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from ..core.ledgers import have_all_ended
from ..errors import InvalidInput, StoreError, UnknownName, UnknownTask
from ..model import LedgerRow, LedgerState
from ..model.policies import Duration, check_seconds
from ..payloads import codec
from ..runtime.ports import ProcessClock
from ..runtime.result_waiters import ResultWaiters
from ..store.state_store import StateStore
from .row_shapes import build_output, to_datetime
from .session import Session

UNFINISHED = (LedgerState.WRITING, LedgerState.DISCARDING, LedgerState.OPENED)


class LedgerView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ledger as it stands. Lists leave out ``tasks`` and what follows it: to count them, all its tasks are read.

    Args:
        state: ``writing``, ``discarding``, ``opened`` (its tasks are there, some are still to be released) or ``done``.
        written: entries. Of them ``accepted`` became tasks, ``duplicates`` were tasks before, ``aside`` became none.
        let_go: tasks that were released.
        ended: whether all tasks that it brought have ended, in whatever state; duplicates do not count. None: that
            cannot be known, because a release before 0.5 wrote some of them.
        tasks: how many of these tasks are in each state that occurs.
        purged: how many of them have ended and were purged.
        ended_at: when the last one ended, if all have.
        set_aside: entries that became no tasks, each with its reason.
    """

    ledger: str
    state: str
    written: int
    accepted: int
    duplicates: int
    aside: int
    let_go: int
    begun_at: datetime | None
    written_at: datetime | None
    opened_at: datetime | None
    ended: bool | None
    tasks: dict[str, int] | msgspec.UnsetType = msgspec.UNSET
    purged: int | msgspec.UnsetType = msgspec.UNSET
    ended_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
    set_aside: list[str] | msgspec.UnsetType = msgspec.UNSET


async def find_ledger(store: StateStore, ledger_id: str) -> LedgerRow:
    """Find a ledger. Raises UnknownName, StoreError."""
    row = await store.find_ledger(codec.check_id(ledger_id, "ledger_id"))
    if row is None:
        raise UnknownName(
            f"there is no ledger {ledger_id!r} in the store {store.url}; `arriero ledger list --all` lists them"
        )
    return row


async def list_ledger_views(store: StateStore, rows: Sequence[LedgerRow]) -> list[LedgerView]:
    """Build the views of a list, without counts of tasks. Raises StoreError."""
    is_open = await store.find_open_of_ledgers([row.ledger_no for row in rows if row.is_open])
    return [
        build_output(
            LedgerView,
            row,
            ledger=row.ledger_id,
            begun_at=to_datetime(row.created_at),
            ended=have_all_ended(row, is_any_open=row.ledger_no in is_open),
        )
        for row in rows
    ]


async def load_ledger_view(store: StateStore, ledger_id: str) -> LedgerView:
    """Load a ledger with the counts of its tasks and its entries that were set aside. Raises UnknownName, StoreError."""
    row = await find_ledger(store, ledger_id)
    lines = await store.ledger_aside(row.ledger_no) if row.aside else []
    counts: dict[str, int] = {}
    last = None
    if row.is_open:
        found = await store.count_of_ledger(row.ledger_no)
        counts, last = found.counts, found.ended_at
    (view,) = await list_ledger_views(store, [row])
    return msgspec.structs.replace(
        view,
        tasks=counts,
        purged=row.linked - sum(counts.values()) if row.is_open else 0,
        ended_at=to_datetime(last) if view.ended else None,
        set_aside=[f"line {line}: {reason}" for line, reason in lines],
    )


ASK_SECONDS = 0.25  # while its submitter is still writing it


class LedgerHandle:
    """A handle of one ledger. ``app.tasks(ledger=...)`` selects its tasks."""

    def __init__(self, session: Session, ledger_id: str) -> None:
        self.id = ledger_id
        self._session = session

    async def view(self) -> LedgerView:
        """The ledger as it stands, with the counts of its tasks. Raises: UnknownName - no such ledger; StoreError."""
        return await load_ledger_view(self._session.store, self.id)

    async def wait(self, timeout: Duration | None = None) -> LedgerView:
        """Wait until all its tasks have ended, in whatever state, and return the ledger with their counts.

        A task that an operator resubmits afterwards is open again, and so is the ledger.

        Args:
            timeout: seconds or timedelta; None waits as long as it takes.
        Raises: TimeoutError; UnknownName - no such ledger, or it was discarded; InvalidInput - a release before 0.5 wrote
            some of its tasks, so nobody knows which they are; StoreError.
        """
        limit = None if timeout is None else check_seconds(timeout, "timeout")
        session = self._session
        try:
            ended = await wait_for_ledger(session.store, session.waiting, session.ports.clock, self.id, limit)
        except TimeoutError as error:
            nobody = await session.describe_missing_scheduler()
            raise TimeoutError(f"{error}; {nobody}" if nobody else str(error)) from None
        if not ended:
            raise InvalidInput(explain_unknown_end(self.id))
        return await self.view()

    def __repr__(self) -> str:
        return f"<ledger {self.id}>"


def explain_unknown_end(ledger_id: str) -> str:
    """Explain why nobody can say whether the tasks of a ledger have ended."""
    return (
        f"ledger {ledger_id!r}: a release before 0.5 wrote some of its tasks, and they do not keep the ledger's number, so"
        " arriero does not know when all have ended; look at them by their ids"
    )


async def wait_for_ledger(
    store: StateStore, waiting: ResultWaiters, clock: ProcessClock, ledger_id: str, limit: float | None
) -> bool:
    """Wait until no task of a ledger is open. False: one may be, because not all of its tasks keep its number.

    It waits for one open task after the other, so however many there are, nothing is read that has ended.

    Args:
        limit: seconds; None: none.
    Raises: TimeoutError; UnknownName; StoreError.
    """
    until = None if limit is None else clock.monotonic() + limit
    is_known = False
    while True:
        first_open: int | None = None
        try:
            ledger = await find_ledger(store, ledger_id)
            first_open = (await store.find_open_of_ledgers([ledger.ledger_no])).get(ledger.ledger_no)
            ended = have_all_ended(ledger, is_any_open=first_open is not None)
            if ended is not False:
                return ended is True
            is_known = True
        except StoreError:
            if not is_known:
                raise  # later ones are asked again, as for the end of one task
        left = None if until is None else until - clock.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError(
                f"the tasks of ledger {ledger_id!r} have not all ended within {limit:g} s; they continue"
            )
        if first_open is None or not ledger.is_open:
            await clock.sleep(ASK_SECONDS if left is None else min(ASK_SECONDS, left))
            continue
        try:
            await waiting.wait_until_ended(first_open, left)
        except (TimeoutError, UnknownTask):
            continue  # the time is over, or the task was purged: the next look at the ledger decides
