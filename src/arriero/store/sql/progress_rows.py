"""Rows of published values. They are written immediately: few commands publish anything."""

from abc import abstractmethod
from collections.abc import Sequence

import msgspec

from ...model import Instant, StatusRow
from ...model.progress import PublishedRow
from ..readable import legible
from .rows import SqlRows


class ProgressTable(SqlRows):
    """Published values, and the statuses of kind ``progress``: the ``PublishedRows`` of ``core.progress``."""

    def select_published(self, task_no: int, ordinals: Sequence[int]) -> dict[int, PublishedRow]:
        found = self.ask_of_agents("select_published_of", {"task_no": task_no, "ordinals": list(ordinals)})
        return {row.ordinal: row for row in (legible(PublishedRow(*values)) for values in found.fetchall())}

    def put_published(self, row: PublishedRow) -> None:
        self.ask_of_agents("put_published", msgspec.structs.asdict(row))

    def replace_progress(self, status: StatusRow, visible_at: Instant | None) -> None:
        self.drop_unwritten_progress(status.task_no, visible_at)
        asked = {"task_no": status.task_no, "visible_at": 0 if visible_at is None else visible_at}
        self.ask_of_agents("delete_progress", asked)
        self.add_status(status)

    @abstractmethod
    def drop_unwritten_progress(self, task_no: int, visible_at: Instant | None) -> None:
        """Drop statuses of kind ``progress`` of a task that this transaction would write at its end; see ``replace_progress``."""


def keep_visible(statuses: Sequence[StatusRow], task_no: int, visible_at: Instant | None) -> list[StatusRow]:
    """Return the statuses without those of kind ``progress`` of a task, but the latest that readers see at ``visible_at``."""
    ours = [status for status in statuses if status.task_no == task_no and status.kind == "progress"]
    seen = [] if visible_at is None else [status for status in ours if status.at <= visible_at]
    dropped = [status for status in ours if status not in seen[-1:]]
    return [status for status in statuses if status not in dropped]
