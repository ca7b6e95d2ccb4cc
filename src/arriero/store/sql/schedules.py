"""Schedules that both databases find and keep by statements of the same names."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ...model import Instant
from ...schedules import DueSchedule, OpenRun, ScheduleRow
from ..rows import Row, shared_as_is
from .rows import SqlRows


def schedule_as_is(row: Row) -> ScheduleRow:
    """A schedule, also where this release cannot read it."""
    return shared_as_is(ScheduleRow, row)


class SqlScheduleRows(SqlRows):
    """``engine.schedules.ScheduleRows`` inside one transaction."""

    def select_due_schedules(self, now: Instant, limit: int) -> list[DueSchedule]:
        found = self.ask("select_due_schedules", {"now": now, "limit": limit}).fetchall()
        schedules = [(schedule_as_is(row[:-2]), row[-2:]) for row in found]
        return [
            DueSchedule(row, bool(is_open), cancellable or "", self._quarantine.is_readable(row))
            for row, (is_open, cancellable) in schedules
        ]

    def lock_cancellable_runs(self, app: str, name: str, limit: int) -> list[OpenRun]:
        asked = {"app": app, "name": name, "limit": limit}
        return [OpenRun(*row) for row in self.ask("select_cancellable_runs", asked).fetchall()]

    def select_next_look(self, now: Instant) -> Instant | None:
        row = self.ask("select_next_look", {"now": now}).fetchone()
        return None if row is None else Instant(row[0])

    def has_open_run(self, app: str, name: str) -> bool:
        return self.ask("select_open_run", {"app": app, "name": name}).fetchone() is not None

    def lock_schedules(self, keys: Sequence[tuple[str, str]]) -> list[ScheduleRow]:
        asked = {"apps": [app for app, _ in keys], "names": [name for _, name in keys]}
        return [schedule_as_is(row) for row in self.ask("lock_schedules", asked).fetchall()]

    def add_schedule(self, row: ScheduleRow) -> bool:
        return self.ask("add_schedule", _parameters_of(row)).rowcount == 1

    def put_schedule(self, row: ScheduleRow) -> None:
        self.ask("put_schedule", _parameters_of(row))

    def remove_schedule(self, row: ScheduleRow) -> None:
        self.ask("remove_schedule", {"app": row.app, "name": row.name})

    def close_schedule_alert(self, row: ScheduleRow, at: Instant) -> None:
        self.ask("close_schedule_alert", {"step": row.name, "code": row.app, "at": at})

    def select_schedules(self, app: str | None) -> list[ScheduleRow]:
        return [schedule_as_is(row) for row in self.ask("select_schedules", {"app": app}).fetchall()]

    def select_schedule(self, app: str, name: str) -> ScheduleRow | None:
        row = self.ask("select_schedule", {"app": app, "name": name}).fetchone()
        return None if row is None else schedule_as_is(row)


def _parameters_of(row: ScheduleRow) -> dict[str, Any]:
    return msgspec.structs.asdict(row) | {"state": str(row.state)}
