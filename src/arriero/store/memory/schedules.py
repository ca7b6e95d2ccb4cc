"""Schedules in the memory store."""

from collections.abc import Collection, Sequence

from ...core.alert_rows import SCHEDULE_CAUSE
from ...core.schedule_instants import is_run_of
from ...model import TASK_FORWARD, TASK_OPEN, Instant, TaskRow, TaskState
from ...schedules import DueSchedule, OpenRun, ScheduleRow
from ..sql.store_rows import ScheduleRows
from .rows import MemoryUpkeep


class MemorySchedules(MemoryUpkeep, ScheduleRows):
    """See ``ScheduleRows``."""

    def select_due_schedules(self, now: Instant, limit: int) -> list[DueSchedule]:
        due = [(row.look_at, row) for row in self.schedule_rows.values() if row.look_at is not None]
        found = sorted(((at, row.app, row.name, row) for at, row in due if at <= now), key=lambda one: one[:3])
        return [self._find_open_runs(row) for _, _, _, row in found[:limit]]

    def _find_open_runs(self, row: ScheduleRow) -> DueSchedule:
        is_open = bool(self._list_runs(row.app, row.name, TASK_OPEN))
        cancellable = self._list_runs(row.app, row.name, TASK_FORWARD)
        task_id = cancellable[0].task_id if cancellable else ""
        return DueSchedule(row, is_open, task_id, self._quarantine.is_readable(row))

    def _list_runs(self, app: str, name: str, states: Collection[TaskState]) -> list[TaskRow]:
        of_schedule = (task for task in self.tasks.values() if is_run_of(task.task_id, app, name))
        return sorted((task for task in of_schedule if task.state in states), key=lambda task: task.task_id)

    def has_open_run(self, app: str, name: str) -> bool:
        return bool(self._list_runs(app, name, TASK_OPEN))

    def lock_cancellable_runs(self, app: str, name: str, limit: int) -> list[OpenRun]:
        found = self._list_runs(app, name, TASK_FORWARD)[:limit]
        return [OpenRun(task.task_no, task.task_id, task.incarnation) for task in found]

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
