"""Schedules on PostgreSQL: their runs are kept as any batch of submissions is, in the same transaction."""

from collections.abc import Callable, Sequence

from ...answers import Refusal, Submitted
from ...commands import Submit
from ...model import Instant
from ...schedules import ScheduleApplied, ScheduleCommand
from ..engine.schedules import change_schedules
from . import submitting
from .store_rows import PostgresRows


def change_batch(
    batch: Sequence[ScheduleCommand], get_test_instant: Callable[[], Instant | None], rows: PostgresRows
) -> list[ScheduleApplied | Refusal]:
    """See ``ScheduleStore.change_schedules``. Raises submitting.Again."""

    def submit_all(commands: Sequence[Submit]) -> list[Submitted | Refusal]:
        answers_of, _ = submitting.submit(rows.transaction, commands, get_test_instant(), frozenset())
        answers = [answer for answer in answers_of() if answer is not None]
        if len(answers) < len(commands):
            raise submitting.Again("somebody else submitted a task of the same id just now")
        return answers

    return change_schedules(batch, rows, submit_all)
