"""Schedules in the memory store."""

from collections.abc import Sequence

from ...core.alert_rows import SCHEDULE_CAUSE
from ...model import TASK_OPEN, Instant
from ...schedules import DueSchedule, ScheduleRow
from .rows import MemoryUpkeep


class MemorySchedules(MemoryUpkeep):
    """See ``engine.schedules.ScheduleRows``."""

    def select_due_schedules(self, now: Instant, limit: int) -> list[DueSchedule]:
        due = [(row.look_at, row) for row in self.schedule_rows.values() if row.look_at is not None]
        found = sorted(((at, row.app, row.name, row) for at, row in due if at <= now), key=lambda one: one[:3])
        return [DueSchedule(row, self._is_run_open(row)) for _, _, _, row in found[:limit]]

    def _is_run_open(self, row: ScheduleRow) -> bool:
        task = self.tasks.get(row.last_task_no)
        return task is not None and task.state in TASK_OPEN

    def select_next_look(self, now: Instant) -> Instant | None:
        looks = (row.look_at for row in self.schedule_rows.values() if row.look_at is not None)
        return min((at for at in looks if at > now), default=None)

    def lock_schedules(self, keys: Sequence[tuple[str, str]]) -> list[ScheduleRow]:
        return [self.schedule_rows[key] for key in sorted(keys) if key in self.schedule_rows]

    def read_term(self, lease: str) -> int:
        return self.term(lease)

    def add_schedule(self, row: ScheduleRow) -> bool:
        self.put_schedule(row)
        return True

    def put_schedule(self, row: ScheduleRow) -> None:
        self._put(self.schedule_rows, (row.app, row.name), row)

    def remove_schedule(self, row: ScheduleRow) -> None:
        self._remove(self.schedule_rows, (row.app, row.name))

    def close_schedule_alert(self, row: ScheduleRow, at: Instant) -> None:
        for alert in list(self.alert_rows.values()):
            if (alert.cause, alert.step, alert.code) == (SCHEDULE_CAUSE, row.name, row.app):
                self._close(alert, at)

    def select_schedules(self, app: str | None) -> list[ScheduleRow]:
        return [self.schedule_rows[key] for key in sorted(self.schedule_rows) if app in (None, key[0])]

    def select_schedule(self, app: str, name: str) -> ScheduleRow | None:
        return self.schedule_rows.get((app, name))
