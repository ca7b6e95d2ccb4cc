"""Schedules on PostgreSQL: their runs are kept as any batch of submissions is, in the same transaction."""

from collections.abc import Sequence

from ...answers import Refusal, Submitted
from ...commands import Submit
from ...errors import UnreadableRow
from ...schedules import ScheduleApplied, ScheduleCommand
from ..engine.schedules import change_schedules
from . import submitting
from .context import StoreContext
from .store_rows import PostgresRows


def change_batch(
    batch: Sequence[ScheduleCommand], context: StoreContext, rows: PostgresRows
) -> list[ScheduleApplied | Refusal]:
    """See ``ScheduleStore.change_schedules``. Raises submitting.Again."""

    def submit_all(commands: Sequence[Submit]) -> list[Submitted | Refusal | UnreadableRow]:
        answers_of, _ = submitting.submit(rows.transaction, commands, context.get_test_instant(), context.quarantine)
        answers = [answer for answer in answers_of() if answer is not None]
        if len(answers) < len(commands):
            raise submitting.Again("somebody else submitted a task of the same id just now")
        return answers

    return change_schedules(batch, rows, submit_all)
