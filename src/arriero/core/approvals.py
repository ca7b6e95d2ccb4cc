"""Verbs that more than one operator must ask for: who has approved, and what is still missing.

The first operators change nothing but the task's history, which keeps their approval. The last one carries the verb out. Any
verb that is carried out on the task ends all approvals before it, but for notes and answers of other steps.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import UnreadableRow
from ..events import Event, UnreadableEvent, read_events
from ..events.step import StepAnswered
from ..events.task import OperatorAction, OperatorApproval
from ..model.answers import APPROVAL_NEEDED, Refusal
from ..model.commands import Command, Operate
from ..model.verb_rules import outlasts
from ..text.person_names import list_skeletons
from .changes import Refused, Rows

OF_EVERY_VERB = frozenset(  # fields of a command that say who asks for a verb of which task, and not what exactly
    {
        *Command.__struct_fields__,
        "verb",
        "task_no",
        "incarnation",
        "by",
        "reason",
        "store_id",
        "persons",
        "approved_since",
    }
)


def list_approvers(command: Operate, rows: Rows) -> tuple[str, ...]:
    """List who else has approved what a command asks for, since the last verb that ends approvals; each person once.

    Names that operators may read as the same one (``ana``, ``Ana``, ``ana `` with a space, ``ana`` in Cyrillic letters) are one operator.
    """
    if command.persons <= 1:
        return ()
    wanted = encode_request(command)
    found: list[str] = []
    known = set(list_skeletons(command.by))
    for text in rows.people_commits(command.task_no, command.approved_since):
        events = _read_commit(text, command.task_no)
        if _end_approvals(events, command):
            break
        for event in reversed(events):
            if not isinstance(event, OperatorApproval):
                continue
            skeletons = list_skeletons(event.by)
            if known & skeletons:
                continue
            if (event.verb, event.incarnation, event.request) == (command.verb, command.incarnation, wanted):
                found.append(event.by)
                known |= skeletons
    return tuple(reversed(found))


def _end_approvals(events: Sequence[Event | UnreadableEvent], command: Operate) -> bool:
    """Returns True if a commit ends the approvals before it of what a command asks for."""
    verbs = [event.verb for event in events if isinstance(event, OperatorAction)]
    answered = {event.step for event in events if isinstance(event, StepAnswered)}
    return command.step in answered or not all(outlasts(command.verb, verb) for verb in verbs)


def _read_commit(text: str, task_no: int) -> list[Event | UnreadableEvent]:
    """Read the events of a commit. Raises: UnreadableRow - it is unknown who has approved."""
    try:
        return read_events(text)
    except (msgspec.MsgspecError, UnicodeError):
        what = f"column events of table history, in a commit of task number {task_no}"
        raise UnreadableRow(what, table="history", column="events", task_no=task_no) from None


def refuse_lonely_verb(command: Operate, task_id: str, state: str, approvers: tuple[str, ...]) -> Refused | None:
    """Refuse a verb for which operators are missing, and keep the approval of who asks; None: there are enough."""
    names = (*approvers, command.by)
    if len(names) >= command.persons:
        return None
    event = OperatorApproval(
        verb=command.verb,
        by=command.by,
        reason=command.reason,
        incarnation=command.incarnation,
        request=encode_request(command),
        persons=command.persons,
    )
    left = command.persons - len(names)
    more = "another operator" if left == 1 else f"{left} other operators"
    said = (
        f"task {task_id!r}: {command.verb} needs {command.persons} operators; approved by {' and '.join(names)}, nothing was"
        f" done yet: {more} must ask for the same"
    )
    return Refused(Refusal(APPROVAL_NEEDED, said, state), command.task_no, (event,))


def foresee_approval(command: Operate, task_id: str, persons: int, rows: Rows) -> str:
    """Say that a verb would be kept as an approval. ``persons``: who must ask for it, as the rows say."""
    approvers = list_approvers(msgspec.structs.replace(command, persons=persons), rows)
    so_far = f"; approved so far by {' and '.join(approvers)}" if approvers else ""
    return (
        f"task {task_id!r}: {command.verb} would be kept as an approval by {command.by}, and nothing would be done yet: it needs"
        f" {persons} operators{so_far}"
    )


def encode_request(command: Operate) -> str:
    """Encode what a verb carries beside its name and its operators: a JSON object with those of its fields that are given.

    Two commands ask for the same only if these texts are the same. The text itself is kept, because the next person has to
    see what was approved, and because two requests may be found that share a hash.
    """
    request: dict[str, Any] = {}
    for field in msgspec.structs.fields(Operate):
        value = getattr(command, field.name)
        if field.name not in OF_EVERY_VERB and value != field.default:
            request[field.name] = msgspec.Raw(value.encode()) if isinstance(value, str) else value
    return msgspec.json.encode(request).decode()
