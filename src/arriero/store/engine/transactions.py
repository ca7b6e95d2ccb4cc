"""Transactions as the engine asks a store for them, and the alerts about rows that cannot be read."""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from enum import StrEnum
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from ...errors import StoreError, UnreadableRow
from ...model import Instant
from .. import quarantine
from ..quarantine import Quarantine
from ..sql.store_rows import StoreRows

logger = logging.getLogger("arriero")
T = TypeVar("T")
P = ParamSpec("P")
TASKS_MAX = 1_000  # with an alert of a row that cannot be read, looked at again in one pass


class Lane(StrEnum):
    """Purpose of a transaction. A store may run transactions of two lanes at the same time, one lane never waits for another."""

    ENGINE = "engine"  # commands
    SUBMISSIONS = "submissions"
    RENEWALS = "renewals"  # come before everything else
    OTHERS = "others"
    OUTBOX = "mail"  # statuses and alerts: a lock on them must cost nobody the Supervisors' lease
    READS = "reads"
    SURVEYS = "surveys"  # read many rows
    UPKEEP = "upkeep"  # change many rows, or rows that no other command changes


class Transactions:
    """Transactions over a store's rows."""

    _quarantine: Quarantine

    def now(self) -> Instant:
        """The store's clock. Never goes back, also over restarts; setting the wall clock moves nothing."""
        raise NotImplementedError

    def on_wake_up(self, wake: Callable[[], None]) -> None:
        """Call ``wake``, in the loop of ``open``, when another process may have brought something.

        A hint: it may come late, twice or never.
        """

    async def _write(self, work: Callable[[StoreRows], T], lane: Lane = Lane.OTHERS) -> T:
        """All that ``work`` writes, durably, or nothing when it raises. It may be run more than once."""
        raise NotImplementedError

    async def _read(self, work: Callable[[StoreRows], T], lane: Lane = Lane.READS) -> T:
        """Run ``work`` in a transaction that reads as of one moment."""
        raise NotImplementedError

    async def _reporting(self, transaction: Awaitable[T]) -> T:
        """The result of a transaction. Then alerts report the rows that this process could not read in it."""
        result = await transaction
        if self._quarantine.unreported:
            await self._report_unreadable()
        return result

    async def _report_unreadable(self) -> None:
        """Open an alert for each row that nobody was notified of. The one who finds the row next does, if this process dies."""
        errors = self._quarantine.take_unreported()
        try:
            named = await self._write(lambda rows: [(error, _add_alert(error, rows)) for error in errors])
        except StoreError as error:
            self._quarantine.give_back(errors)
            logger.warning("an alert could not be opened yet: %s", error)
            return
        for unreadable, task_id in named:
            quarantine.log(unreadable, task_id)


def writes(
    work: Callable[Concatenate[StoreRows, P], T], lane: Lane = Lane.OTHERS
) -> Callable[Concatenate[Transactions, P], Coroutine[Any, Any, T]]:
    """An operation of a store: ``work`` in one transaction that writes. Parameters and docstring are those of ``work``."""

    @wraps(work)
    async def operation(self: Transactions, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._write(lambda rows: work(rows, *args, **kwargs), lane)

    return operation


def reads(
    work: Callable[Concatenate[StoreRows, P], T], lane: Lane = Lane.READS
) -> Callable[Concatenate[Transactions, P], Coroutine[Any, Any, T]]:
    """An operation of a store: ``work`` in one transaction that reads. See ``writes``."""

    @wraps(work)
    async def operation(self: Transactions, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._read(lambda rows: work(rows, *args, **kwargs), lane)

    return operation


def _add_alert(error: UnreadableRow, rows: StoreRows) -> str:
    """Open an alert, unless the task or the shared row has one; answers the task's id.

    Of a convoy in which nothing is open, the task that comes next is reported.
    """
    task_no = error.task_no or (rows.select_first_waiting(error.convoy_no) if error.convoy_no else 0)
    name = rows.select_name(task_no) if task_no else None
    if name is None:
        if error.row:
            rows.add_alert(quarantine.alert(error, 0, "", "", 0, rows.read_clock()))
        return ""
    task_id, workflow, incarnation = str(name[0]), str(name[1]), name[2]
    rows.add_alert(quarantine.alert(error, task_no, task_id, workflow, incarnation, rows.read_clock()))
    return task_id
