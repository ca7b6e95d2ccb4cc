"""Tasks by the version of their code, for operators."""

from ...model import TaskState
from ..contract import VersionCount
from ..sql.store_rows import StoreRows
from .transactions import Lane, Transactions, reads


def count_versions(rows: StoreRows) -> list[VersionCount]:
    """Count the open and held tasks of all Apps by version, in no order. It reads all tasks."""
    found = rows.ask("count_versions").fetchall()
    return [
        VersionCount(app, workflow, version, bool(has_begun), TaskState(state), tasks, oldest_at)
        for app, workflow, version, has_begun, state, tasks, oldest_at in found
    ]


class CodeVersionReading(Transactions):
    """Tasks by the version of their code."""

    count_versions = reads(count_versions, Lane.SURVEYS)
