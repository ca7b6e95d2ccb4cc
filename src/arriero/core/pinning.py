"""The version of the code that continues a task, as an operator moves it."""

from typing import Any

from ..model.processes import FIRST_VERSION, change_version, keep_code_version
from .verb_guards import NotCarriedOut
from .writer import Writer


def pin(writer: Writer, to: str) -> dict[str, Any]:
    """Move a writer's task to another version of its code. It has begun.

    A Scheduler with that version replays the record. The task is due from now on: a look that begins behind its old time finds it.

    Args:
        to: see ``model.processes.change_version``.
    Returns: what the event says: the version, afterwards and before. Raises NotCarriedOut.
    """
    task = writer.task
    before = task.code_version or FIRST_VERSION
    after = change_version(before, to)
    if after == before:
        raise NotCarriedOut(f"task {task.task_id!r} has code version {before} already")
    writer.set(code_version=keep_code_version(after))
    if writer.task.not_before is not None:
        writer.set(not_before=max(writer.task.not_before, writer.now))
    return {"code_version": after, "code_version_before": before}
