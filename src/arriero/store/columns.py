"""Columns of the tables in every database, in the order of the model's fields, those that change, and named statements."""

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources

from ..model import ConvoyRow, EditRow, LateAnswerRow, StepRow, TailRow, TaskRow
from ..model.agents import AgentLimitsRow, BreakerRow, RateRow


@cache
def load_statements(package: str) -> dict[str, str]:
    """The statements of a store's package by name. Each keeps its header, by which a server's views show its name."""
    return dict(read_statements(package))


def read_statements(package: str) -> Iterator[tuple[str, str]]:
    """Name and text of each statement in the files ``queries/FAMILY.sql`` of a package, one family after the other.

    A blank line ends a statement. Its header, the comment lines before it, begins with its name: ``-- NAME: meaning``.
    """
    for file in sorted(resources.files(package).joinpath("queries").iterdir(), key=lambda file: file.name):
        for statement in file.read_text(encoding="utf-8").rstrip("\n").split("\n\n"):
            yield statement.removeprefix("-- ").partition(":")[0], statement


TASK = TaskRow.__struct_fields__
STEP = StepRow.__struct_fields__
TASK_WIDTH, STEP_WIDTH = len(TASK), len(STEP)  # of a task and of a step at the beginning of a longer row
CONVOY = ConvoyRow.__struct_fields__
TAIL = TailRow.__struct_fields__
EDIT = EditRow.__struct_fields__
LATE_ANSWER = LateAnswerRow.__struct_fields__
BREAKER = BreakerRow.__struct_fields__
AGENT_LIMITS = AgentLimitsRow.__struct_fields__
RATE = RateRow.__struct_fields__
STATUS = ("queue", "task_no", "number", "incarnation", "kind", "at", "data")
ALERT = (
    "task_no",
    "incarnation",
    "cause",
    "reason",
    "step",
    "code",
    "opened_at",
    "closed_at",
    "told",
    "attempts",
    "next_at",
    "error",
    "trace",
    "step_no",
)
HISTORY = ("task_no", "link", "at", "actor", "events", "hash")
BODY = ("task_no", "arguments")
TRUTH_VALUES = frozenset(("undoing", "pivot", "effect_free", "taken", "in_doubt", "asks"))

# What any command may change, and what only an operator's verb does.
TASK_CHANGES = (
    "state", "not_before", "locked_by", "fence", "revision", "failure_count", "lost_count", "opened_count", "open_count",
    "result_count", "unseen_since", "started_at", "ended_at", "output", "failure", "link", "head", "paused_at", "undoing",
    "status_count", "turn", "due_at", "inbox", "code_version",
)  # fmt: skip
CONVOY_CHANGES = tuple(column for column in CONVOY if column not in ("convoy_no", "key", "created_at"))
TAIL_CHANGES = tuple(column for column in TAIL if column not in ("convoy_no", "key"))
TASK_REWRITES = (
    *TASK_CHANGES, "rank", "place", "sequence", "ledger_no", "submitted_at", "incarnation", "seed", "complete_by", "past_count",
    "branched_at", "app", "snoozed_until", "tags", "submitted_tags", "batch_no",
    "task_id", "reply_to", "convoy_no", "parent_step", "from_ledger", "first_no", "next_no",
)  # fmt: skip
STEP_CHANGES = (
    "state", "attempt", "failure_count", "lost_count", "taken", "in_doubt", "fence", "locked_by", "not_before",
    "complete_by", "wait_by", "result", "failure", "result_number", "delivered_at", "finished_at", "canary", "charged_at",
    "checkpoint", "limit_keys",
)  # fmt: skip
STEP_REWRITES = (
    *STEP_CHANGES, "agent", "arguments", "asked", "policy", "idempotency_key", "pivot", "effect_free", "compensation",
    "app", "target", "routing",
)  # fmt: skip
# Of these: what a command may change that leaves a task where it stands, so that no index on that is touched.
TASK_COUNTS = (
    "fence", "revision", "failure_count", "lost_count", "opened_count", "open_count", "result_count", "unseen_since", "link",
    "head", "status_count", "inbox",
)  # fmt: skip


def list_columns(columns: Iterable[str], table: str = "") -> str:
    """Column names for a SELECT, qualified with a table's alias if one is given."""
    return ", ".join(f"{table}.{column}" if table else column for column in columns)
