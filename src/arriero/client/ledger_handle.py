"""The handle of one ledger: how far it is, and a wait for the end of all tasks that it brought."""

from ..core.ledgers import have_all_ended
from ..errors import InvalidInput, StoreError, UnknownTask
from ..policies import Duration, check_seconds
from ..runtime.ports import ProcessClock
from ..runtime.result_waiters import ResultWaiters
from ..store.state_store import StateStore
from .ledger_views import LedgerView, find_ledger, load_ledger_view
from .session import Session

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

        A task that a person resubmits afterwards is open again, and so is the ledger.

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
        " arriero cannot tell when all have ended; look at them by their ids"
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
