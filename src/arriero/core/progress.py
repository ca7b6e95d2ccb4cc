"""Rules of published values: which row is written, and when a reply queue shows it. The history does not report them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from ..model import Instant, StatusRow, TaskRow, later
from ..model.commands import PublishProgress
from ..model.progress import Published, PublishedRow
from .attempts import change_attempt, find_running
from .changes import Change, Refused, Rows

STATUS_SECONDS = 1.0  # between two statuses of kind ``progress`` of one task


class PublishedRows(Protocol):
    """Published values as they stand in the transaction."""

    def select_published(self, task_no: int, ordinals: Sequence[int]) -> Mapping[int, PublishedRow]:
        """Return the latest values of a task and of some of its steps, by ordinal.

        A row that cannot be read counts as one without a value: nobody decides anything from it, and the next value replaces it.
        """
        ...

    def put_published(self, row: PublishedRow) -> None:
        """Keep the latest value of a task or a step."""
        ...

    def replace_progress(self, status: StatusRow, visible_at: Instant | None) -> None:
        """Keep a status of kind ``progress`` in place of those of its task that nobody has acknowledged.

        ``visible_at``: the latest of these that readers may see at this instant stays; None: none does.
        """
        ...


class Publication(msgspec.Struct, frozen=True):
    """A row to write, the status that shows it, and the instant whose visible status stays; see ``replace_progress``."""

    row: PublishedRow
    status: StatusRow | None = None
    visible_at: Instant | None = None


def publish_progress(command: PublishProgress, rows: Rows, now: Instant) -> Change | Refused:
    """Publish a value of a running attempt, guarded by the step's fence, state, holder and time.

    The task's row stays as it is: nobody decides anything from what is published.
    """
    step = find_running(command, rows, now)
    if isinstance(step, Refused):
        return step
    change = change_attempt(step, rows, None)
    change.published = (Published(step.ordinal, command.value, step.fence, command.at),)
    return change


def list_publications(
    task: TaskRow, published: Sequence[Published], rows: PublishedRows, labels: Mapping[int, str], now: Instant
) -> list[Publication]:
    """Decide what is written of values that one command publishes.

    A replay publishes again what is there already: that changes nothing. Neither does a command of an attempt that arrives
    after a later one.

    Args:
        labels: of the steps, by ordinal.
    """
    ordinals = sorted({0, *(one.ordinal for one in published)})
    known = dict(rows.select_published(task.task_no, ordinals))
    found: list[Publication] = []
    for one in published:
        before = known.get(one.ordinal)
        if before is not None and _is_known(one, before):
            continue
        number = 1 if before is None else before.number + 1
        row = PublishedRow(task.task_no, one.ordinal, one.value, number, one.at, one.fence)
        status = None
        if task.reply_to is not None:
            of_task = known.get(0) or PublishedRow(task.task_no, 0, None, 0, now)
            status_at = choose_status_at(of_task.status_at, now)
            status = _build_status(task, one, labels.get(one.ordinal, ""), status_at)
            if one.ordinal == 0:
                row = msgspec.structs.replace(row, status_at=status_at)
            else:
                known[0] = msgspec.structs.replace(of_task, status_at=status_at)
                found.append(Publication(known[0]))
        known[one.ordinal] = row
        found.append(Publication(row, status, None if status is None or status.at <= now else now))
    return found


def _is_known(published: Published, row: PublishedRow) -> bool:
    """Returns True if a value, or a later one, is there already. Code that replays publishes the same value again."""
    if published.ordinal == 0:
        return published.value == row.value
    return (published.fence, published.at) <= (row.fence, row.at)


def choose_status_at(last: Instant | None, now: Instant) -> Instant:
    """Choose the instant from which a status may be read: at most one a second of each task.

    A status that nobody may read yet is replaced, and its instant stays. So the latest value is shown, without any process
    that would have to show it later.

    Args:
        last: the instant of the status before; it may be still to come. None: there was none.
    """
    if last is None:
        return now
    return last if last > now else max(now, later(last, STATUS_SECONDS))


def _build_status(task: TaskRow, published: Published, label: str, at: Instant) -> StatusRow:
    assert task.reply_to is not None
    data = {"step": label, "value": msgspec.Raw(published.value.encode())}
    text = msgspec.json.encode(data).decode()
    return StatusRow(
        0, task.reply_to, task.task_no, task.task_id, task.workflow, 0, task.incarnation, "progress", at, text
    )
