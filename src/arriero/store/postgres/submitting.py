"""New tasks in one transaction, set-based; and one task in a transaction of the caller's."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ...commands import Refusal, Submit, Submitted
from ...core import transitions
from ...core.chain import SQL_HASH_LENGTH, link_hash
from ...core.changes import Change
from ...model import Instant, TaskRow
from ..batch import same_submission
from . import columns
from .rows import task_of
from .session import Cursor, Transaction

TASK_WIDTH = len(columns.TASK)

INSERT_TASKS = columns.insert_rows(
    "task", columns.TASK, suffix=" ORDER BY task_id ON CONFLICT (task_id) DO NOTHING RETURNING task_no"
)
# In the order of submission: the rows of a queue are read in the order of their own numbers.
_KEPT = " WHERE given.task_no IN (SELECT task_no FROM {schema}.task) ORDER BY given.task_no"
SEND_NEW_TASKS = columns.sender(columns.TASK)
INSERT_BODIES = columns.insert_rows("body", columns.BODY, suffix=_KEPT)
INSERT_FIRST_LINKS = columns.insert_rows("history", columns.HISTORY, suffix=_KEPT)
INSERT_FIRST_STATUSES = columns.insert_rows("status", columns.STATUS, suffix=_KEPT)


def submit(
    transaction: Transaction, batch: Sequence[Submit], given: Instant | None, mine: frozenset[int]
) -> tuple[list[Submitted | Refusal | None], Instant]:
    """Answers in order, and the store's clock. None: somebody else brought the id meanwhile; ask again.

    ``mine``: seeds of submissions that this batch may have kept before, without an answer: those are new.
    """
    known, numbers, now = _read(transaction, batch, given)
    answers: list[Submitted | Refusal | None] = []
    changes: dict[str, tuple[Submit, Change]] = {}
    for command in batch:
        if (found := known.get(command.task_id)) is not None:
            answers.append(_answer_known(command, *found, mine))
        elif (before := changes.get(command.task_id)) is not None:  # twice in one batch
            answers.append(same_submission(before[1].task, command))
        else:
            change = _with_first_link(transitions.new_task(command, numbers.pop(), now), command.actor, now)
            changes[command.task_id] = (command, change)
            answers.append(Submitted(change.task.task_no, True))
    if not changes:
        return answers, now
    kept = _write(transaction, list(changes.values()), now)
    return [_if_kept(answer, known, kept) for answer in answers], now


def _read(
    transaction: Transaction, batch: Sequence[Submit], given: Instant | None
) -> tuple[dict[str, tuple[TaskRow, str]], list[int], Instant]:
    known = transaction.ask("select_known", {"task_ids": [command.task_id for command in batch]})
    clock = transaction.ask("select_now", {"given": given})
    numbers = transaction.ask("take_numbers", {"count": len(batch)})
    transaction.arrive()
    found = {row[1]: (task_of(row[:TASK_WIDTH]), row[TASK_WIDTH]) for row in known.fetchall()}
    (now,) = clock.fetchone() or (0,)
    return found, [number for (number,) in reversed(numbers.fetchall())], Instant(now)


def _with_first_link(change: Change, actor: str, now: Instant) -> Change:
    task, events = change.task, _events(change)
    head = link_hash(task.head, task.task_no, task.link + 1, now, actor, events)
    change.task = msgspec.structs.replace(task, link=task.link + 1, head=head)
    return change


def _events(change: Change) -> str:
    return msgspec.json.encode(change.events).decode()


def _write(transaction: Transaction, made: list[tuple[Submit, Change]], now: Instant) -> set[int]:
    inserted: Cursor = transaction.write(INSERT_TASKS, SEND_NEW_TASKS(change.task for _, change in made))
    bodies = [{"task_no": change.task.task_no, "arguments": command.arguments} for command, change in made]
    transaction.write(INSERT_BODIES, columns.as_json(bodies))
    transaction.write(INSERT_FIRST_LINKS, columns.as_json(_link(command, change, now) for command, change in made))
    if statuses := [status for _, change in made for status in change.statuses]:
        transaction.write(INSERT_FIRST_STATUSES, columns.as_json(statuses))
    return {task_no for (task_no,) in inserted.fetchall()}


def _link(command: Submit, change: Change, now: Instant) -> dict[str, Any]:
    task = change.task
    events = _events(change)
    return {
        "task_no": task.task_no,
        "link": task.link,
        "at": now,
        "actor": command.actor,
        "events": events,
        "hash": task.head,
    }


def _if_kept(
    answer: Submitted | Refusal | None, known: dict[str, tuple[TaskRow, str]], kept: set[int]
) -> Submitted | Refusal | None:
    if not isinstance(answer, Submitted) or answer.task_no in kept:
        return answer
    return answer if any(answer.task_no == task.task_no for task, _ in known.values()) else None


def _answer_known(command: Submit, task: TaskRow, asked: str, mine: frozenset[int]) -> Submitted | Refusal:
    answer = answer_known(command, task, asked)
    if isinstance(answer, Submitted) and task.seed == command.seed and command.seed in mine:
        return Submitted(answer.task_no, True)
    return answer


def answer_known(command: Submit, task: TaskRow, asked: str) -> Submitted | Refusal:
    """As ``same_submission``; what was submitted by SQL is compared by its value, whatever the order of its fields."""
    if task.workflow == command.workflow and _is_same_by_sql(command, task.body_hash, asked):
        return Submitted(task.task_no, False)
    return same_submission(task, command)


def _is_same_by_sql(command: Submit, body_hash: str, asked: str) -> bool:
    return len(body_hash) == SQL_HASH_LENGTH and bool(
        msgspec.json.decode(asked) == msgspec.json.decode(command.arguments)
    )
