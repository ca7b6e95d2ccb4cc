"""Schedules, a part of the contract in ``store.contract``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ..answers import Refusal
from ..errors import ArrieroError

if TYPE_CHECKING:  # only who runs an App, or looks at schedules, pays for loading these
    from ..schedules import DueSchedules, ScheduleApplied, ScheduleCommand, ScheduleRow


class ScheduleStore(Protocol):
    """Schedules of all Apps."""

    async def load_due_schedules(self, limit: int) -> "DueSchedules":
        """Load schedules that the leader is to look at now, longest due first. It reads no row that is not due, except
        the one that is due next."""
        ...

    async def change_schedules(
        self, batch: "Sequence[ScheduleCommand]"
    ) -> "Sequence[ScheduleApplied | Refusal | ArrieroError]":
        """Apply commands in order, in one transaction, each with its submissions: whole or not at all; answers in order.

        A command whose guard fails is answered with a Refusal, changes nothing and submits nothing. Busy: another
        transaction has a row of it open; ask again soon. After a StoreError it may be written, or not: repeating it is
        safe, because of the row's revision and because a run's id is its instant.
        """
        ...

    async def list_schedules(self, app: str | None = None) -> "list[ScheduleRow]":
        """All schedules by App and name. ``app``: only of this one."""
        ...

    async def find_schedule(self, app: str, name: str) -> "ScheduleRow | None":
        """One schedule. None: there is none of the name."""
        ...
