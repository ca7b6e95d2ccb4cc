"""Rules of tags: the change that an operator asks for, the tags that workflow code sees, and how metrics count by them."""

from collections.abc import Collection
from typing import Any

import msgspec

from ..model.tags import TAGS_MAX, encode_tags, read_tags
from .verb_guards import NotCarriedOut
from .writer import Writer

VALUES_MAX = (
    100  # of one tag in metrics: the values after them are counted together, so that no caller grows a monitor's memory
)
OTHER = "other"  # in metrics: all values beyond
_read_changes = msgspec.json.Decoder(dict[str, str | None]).decode


def change_tags(writer: Writer, changes: str | None) -> dict[str, Any]:
    """Change the tags of a writer's task. ``changes``: as ``model.tags.encode_changes`` writes them.

    The row keeps those that the task was submitted with, as its code sees them. Returns what the event says: all tags, afterwards and
    before. Raises NotCarriedOut.
    """
    task = writer.task
    before = read_tags(task.tags)
    changed: dict[str, str | None] = {**before, **_read_changes(changes or "{}")}
    after = {name: value for name, value in sorted(changed.items()) if value is not None}
    if len(after) > TAGS_MAX:
        raise NotCarriedOut(f"task {task.task_id!r} would have {len(after)} tags; a task has at most {TAGS_MAX}")
    writer.set(tags=encode_tags(after), submitted_tags=task.submitted_tags or task.tags or "{}")
    return {"tags": after, "tags_before": before}


def choose_counted_value(value: str, counted: Collection[str], most: int = VALUES_MAX) -> str:
    """Choose the value of a tag that a metric counts a task under. ``counted``: those that it has counted before.

    Returns: the value, if it was counted before or fewer than ``most`` were; else ``OTHER``. So a counter never goes back.
    """
    return value if value in counted or len(counted) < most else OTHER
