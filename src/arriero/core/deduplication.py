"""Differences between a submission and the task known under its id: the one rule behind every answer to a known id.

Compared are the workflow, the App, the body (its arguments), the convoy, the sequence and the end mark. Priority, delay, limit, policy
and reply queue are not: the one who repeats a submission gets the task as it was submitted first. ``keep_task`` in PostgreSQL does
the same; a test compares.
"""

import hashlib
import math
from collections.abc import Callable
from typing import Literal

import msgspec

from ..model import TailRow, TaskRow
from ..model.answers import Refusal, Submitted
from ..model.commands import Submit
from .apps import is_another_app

EXACT_BELOW = 2**53  # from here on a float may stand for several whole numbers


def _canonicalize_number(text: str) -> float | int:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is beyond what a float holds")
    return int(value) if value.is_integer() and abs(value) < EXACT_BELOW else value


_read = msgspec.json.Decoder(float_hook=_canonicalize_number).decode
_write = msgspec.json.Encoder(order="sorted").encode


def canonicalize_body(body: str) -> bytes | None:
    """Return the one form of all bodies with the same meaning; None: it has none, so it equals only itself.

    The order of fields, spaces and escapes mean nothing, and a whole number may be written as a float: 100, 100.0, 1e2.
    """
    try:
        return _write(_read(body))
    except (ValueError, RecursionError):  # as only SQL took them before release 0.5.0
        return None


def hash_body(body: str) -> str:
    """Return the hash of a body's text, by which equal texts are found."""
    return hashlib.blake2b(body.encode(), digest_size=16).hexdigest()


def is_same_body(body_hash: str, submitted: Callable[[], str | None], command: Submit) -> bool:
    """Returns True if a known task was submitted with the arguments of the command.

    Args:
        body_hash: of the known task; those of equal texts are equal, others say nothing.
        submitted: reads the arguments that it was submitted with, whatever an operator has sent in their place; None: the
            row that held them no longer exists.
    """
    if body_hash == command.body_hash:
        return True
    known = submitted()
    if known is None:
        return False
    if known == command.arguments:
        return True
    form = canonicalize_body(command.arguments)
    return form is not None and form == canonicalize_body(known)


CONFLICT = "conflict"  # the verdict on an id that another operation has
_IS_ANOTHER = ", which is another operation"  # ends the text of that verdict
SEQUENCE_USED = "sequence_used"  # the verdict on a sequence that another operation has

Differing = Literal["workflow", "App", "body", "convoy", "sequence", "end mark", "parent", "origin"]


def find_difference(
    task: TaskRow, command: Submit, submitted: Callable[[], str | None], tail: TailRow | None
) -> Differing | None:
    """Return the first thing in which a submission differs from the task of the same id; None: it is the same.

    Args:
        submitted: reads the arguments that the task was submitted with, whatever an operator has sent in their place.
        tail: of the convoy that the command names; None: there is no such convoy, or it names none.
    """
    if (found := _find_body_difference(task, command, submitted)) is not None:
        return found
    if not _is_same_convoy(task, command, tail):
        return "convoy"
    if task.sequence != command.sequence:
        return "sequence"
    return None if _is_same_end(task, command, tail) else "end mark"


def _find_body_difference(task: TaskRow, command: Submit, submitted: Callable[[], str | None]) -> Differing | None:
    if command.parent_step is not None and task.parent_step != command.parent_step:
        return "parent"
    if command.fork is not None and task.forked_from != command.fork.from_step:
        return "origin"
    if task.workflow != command.workflow:
        return "workflow"
    if is_another_app(task.app, command.app):
        return "App"
    return None if is_same_body(task.body_hash, submitted, command) else "body"


def _is_same_convoy(task: TaskRow, command: Submit, tail: TailRow | None) -> bool:
    """Returns True if both name the same convoy. A key that nobody used has no number yet, and no task."""
    if command.convoy is None:
        return task.convoy_no is None
    return tail is not None and task.convoy_no == tail.convoy_no


def _is_same_end(task: TaskRow, command: Submit, tail: TailRow | None) -> bool:
    """Returns False if the end mark comes too late, because the task is there without it."""
    return not command.end_of_sequence or (tail is not None and tail.end_rank == (task.sequence or task.place))


def answer_known_id(
    task: TaskRow, command: Submit, submitted: Callable[[], str | None], tail: TailRow | None = None
) -> Submitted | Refusal:
    """The answer to a ``task_id`` that is known. ``submitted``, ``tail``: as in ``find_difference``."""
    differs = find_difference(task, command, submitted, tail)
    return Submitted(task.task_no, False) if differs is None else build_id_conflict(task.task_id, differs)


def answer_known_sequence(
    task: TaskRow, command: Submit, submitted: Callable[[], str | None], tail: TailRow
) -> Submitted | Refusal:
    """Answer a sequence that is used: with its task, whatever its id, or a refusal if that is another operation."""
    if _find_body_difference(task, command, submitted) is not None:
        return build_sequence_conflict(task.task_id, command)
    if not _is_same_end(task, command, tail):
        return build_id_conflict(task.task_id, "end mark")
    return Submitted(task.task_no, False, task.task_id)


def build_id_conflict(task_id: str, differs: str) -> Refusal:
    """Build the refusal of a submission that differs from the task known under its id."""
    return Refusal(CONFLICT, f"task {task_id!r} exists with another {differs}")


def build_sequence_conflict(task_id: str, command: Submit) -> Refusal:
    """Build the refusal of a submission whose sequence belongs to another operation."""
    used = f"sequence {command.sequence} of convoy {command.convoy!r} is task {task_id!r}"
    return Refusal(SEQUENCE_USED, f"{used}{_IS_ANOTHER}")


def hide_task_of_sequence(reason: str) -> str:
    """Return the text of a refusal without the id of the task that has the sequence, for who does not reach that task."""
    return f"{reason.partition(' is task ')[0]} is another operation" if reason.endswith(_IS_ANOTHER) else reason
