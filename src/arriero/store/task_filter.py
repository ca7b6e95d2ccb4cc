"""A selection of tasks, as lists and verbs on many tasks name it.

A field of ``TaskCriteria`` becomes an option of the command line, a parameter of HTTP's query and a member of its body. Beside the
field, a new filter needs a parameter of ``Client.tasks`` and the stores' statements; one that depends on the clock needs an instant in
``TaskFilter``, which ``TaskSelector.build_filter`` sets.
"""

import re
from typing import Annotated, Any

import msgspec

from ..model import Instant, TaskState
from ..model.processes import read_version_change
from ..model.tags import TAGS_SCHEMA, encode_tags

BEGIN = " WHERE task_no > "
ASCENDING = "ORDER BY task_no\n"
DESCENDING = "ORDER BY task_no DESC\n"
OF_LEDGER = "ORDER BY from_ledger, task_no\n"
OF_LEDGER_DESCENDING = "ORDER BY from_ledger DESC, task_no DESC\n"
OF_TAG = "ORDER BY tagged.tagged_no\n"
OF_PARENT = "ORDER BY task_no + 0\n"
ORDERS = (
    (ASCENDING, DESCENDING),
    (OF_LEDGER, OF_LEDGER_DESCENDING),
    (OF_TAG, "ORDER BY tagged.tagged_no DESC\n"),
    (OF_PARENT, "ORDER BY task_no + 0 DESC\n"),
)


def order_newest_first(filtered: str) -> str:
    """The statement with the task submitted last first."""
    for order, reverse in ORDERS:
        if order in filtered:
            return filtered.replace(order, reverse)
    raise AssertionError("the statement has no order")


def narrow_to_ledger(filtered: str, condition: str) -> str:
    """The statement for the tasks of one ledger, in an order that only the index of ledgers has: no other task is read."""
    assert filtered.count(BEGIN) == filtered.count(ASCENDING) == 1
    return filtered.replace(BEGIN, f" WHERE {condition}\n   AND task_no > ").replace(ASCENDING, OF_LEDGER)


def narrow_to_parent(filtered: str, condition: str) -> str:
    """The statement for the children of one task. Their index is by step, so they are sorted: no index of all tasks is read."""
    assert filtered.count(BEGIN) == filtered.count(ASCENDING) == 1
    return filtered.replace(BEGIN, f" WHERE {condition}\n   AND task_no > ").replace(ASCENDING, OF_PARENT)


def narrow_to_tag(filtered: str, condition: str) -> str:
    """The statement for tasks with one tag, found by the index of tags in the order of their numbers: no other task is read.

    ``condition``: what the statement says of that tag, as ``tagged``; a database may not choose another order of the two tables.
    """
    joined, count = re.subn(
        r"FROM (\S*)task AS task\n", r"FROM \1task_tag AS tagged CROSS JOIN \1task AS task\n", filtered
    )
    assert count == joined.count(BEGIN) == joined.count(ASCENDING) == 1
    narrowed = joined.replace(BEGIN, f" WHERE task.task_no = tagged.tagged_no AND {condition}\n   AND task_no > ")
    return narrowed.replace(ASCENDING, OF_TAG)


def narrow_to_held(filtered: str) -> str:
    """The statement for tasks that are held. SQLite takes the index of these only where their state stands in the statement."""
    assert filtered.count(BEGIN) == 1
    return filtered.replace(BEGIN, " WHERE state = 'error'\n   AND task_no > ")


def build_count(filtered: str) -> str:
    """The statement that counts what the other one finds, up to its limit."""
    return f"SELECT count(*) FROM (\n{filtered}\n) AS meant"


Text = str | None


class TaskCriteria(msgspec.Struct, frozen=True, kw_only=True):
    """Criteria by which callers select tasks, and stores find them; None: any."""

    state: Annotated[
        Text, msgspec.Meta(description="Only tasks in this state.", extra={"words": tuple(map(str, TaskState))})
    ] = None
    workflow: Annotated[
        Text, msgspec.Meta(description="Only tasks of this workflow; step:NAME for tasks of one step.")
    ] = None
    agent: Annotated[Text, msgspec.Meta(description="Only tasks with a step of this Agent that is not completed.")] = (
        None
    )
    step: Annotated[Text, msgspec.Meta(description="Only tasks with a step of this name that is not completed.")] = None
    code: Annotated[
        Text,
        msgspec.Meta(description="Only tasks whose failure has exactly this code.", extra={"metavar": "CODE"}),
    ] = None
    text: Annotated[
        Text, msgspec.Meta(description="Only tasks whose failure says this somewhere.", extra={"metavar": "TEXT"})
    ] = None
    paused: Annotated[bool | None, msgspec.Meta(description="Only tasks that are, or are not, paused.")] = None
    snoozed: Annotated[bool | None, msgspec.Meta(description="Only tasks that are, or are not, snoozed.")] = None
    code_version: Annotated[
        Text,
        msgspec.Meta(
            description="Only tasks that this version of their code has begun: 2, @blue or 2@blue; @ is of no named deployment.",
            extra={"metavar": "VERSION"},
        ),
    ] = None
    ledger: Annotated[
        Text, msgspec.Meta(description="Only tasks that came with this ledger.", extra={"metavar": "ID"})
    ] = None
    parent: Annotated[
        Text, msgspec.Meta(description="Only tasks that this task's code has started.", extra={"metavar": "ID"})
    ] = None
    tags: Annotated[
        dict[str, Any] | None,
        msgspec.Meta(
            description="Only tasks with this tag; with several, only tasks with all of them.",
            extra={"option": "--tag", "metavar": "NAME=VALUE"},
            extra_json_schema=TAGS_SCHEMA,
        ),
    ] = None


class TaskFilter(TaskCriteria, frozen=True, kw_only=True):
    """The tasks that a store is asked for, by instants of its clock; None, or an empty tuple: any.

    Args:
        submitted_before, submitted_since: at or before, at or after this instant.
        app: whose it is; empty: tasks that do not say so.
        apps, workflows: of one of these.
        snoozed_at: the instant at which a task of ``snoozed`` is, or is not; given if that is.
    """

    submitted_before: Instant | None = None
    submitted_since: Instant | None = None
    app: str | None = None
    apps: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    snoozed_at: Instant | None = None


ANY_TASK = TaskFilter()  # a verb on all tasks is refused by comparison with it: no default may differ from it


def list_parameters(which: TaskFilter) -> dict[str, Any]:
    """The criteria by name, as statements take them."""
    state = TaskState.HELD.stored if which.state == TaskState.HELD else which.state
    asked = {**msgspec.structs.asdict(which), "state": state, "tags": None}
    if which.tags:
        name, value = min(which.tags.items())
        asked |= {"tags": encode_tags(which.tags), "tag_name": name, "tag_value": value}
    number, deployment = (
        (None, None) if which.code_version is None else read_version_change(which.code_version, "code_version")
    )
    return {**asked, "version": None if number is None else str(number), "deployment": deployment}


def fold_text(text: str) -> str:
    """A text as a filter compares it: in any case of letters, its white space as single spaces, as lists show it."""
    return " ".join(text.lower().split())
