"""Tasks by the version of their code, for operators."""

from ...model import Instant, TaskState
from ..contract import VersionCount
from ..sql.rows import StatementAnswer
from ..sql.store_rows import StoreRows
from .transactions import Lane, Transactions, reads


def count_versions(rows: StoreRows) -> list[VersionCount]:
    """Count the open and held tasks of all Apps by version, in no order. It reads all tasks."""
    found = rows.ask("count_versions").fetchall()
    return [
        VersionCount(app, workflow, version, bool(has_begun), TaskState(state), tasks, oldest_at)
        for app, workflow, version, has_begun, state, tasks, oldest_at in found
    ]


def ask_for_due_workflows(rows: StoreRows, now: Instant) -> StatementAnswer:
    """Ask for the Apps and workflows of free due tasks."""
    return rows.ask("survey_workflows", {"now": now, "priorities": list(range(10))})


def list_due_workflows(rows: StoreRows) -> list[tuple[str, str]]:
    """List the Apps and workflows of free due tasks, in their order. It asks an index for each, and reads no backlog."""
    return [(app, workflow) for app, workflow in ask_for_due_workflows(rows, rows.read_clock()).fetchall()]


class CodeVersionReading(Transactions):
    """Workflows that are due, and tasks by the version of their code."""

    list_due_workflows = reads(list_due_workflows, Lane.SURVEYS)
    count_versions = reads(count_versions, Lane.SURVEYS)
