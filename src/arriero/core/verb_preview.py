"""Judges an operator's verb on a task without carrying it out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..events.task import OperatorApproval
from ..model import STEP_OPEN, ConvoyRow, Instant, Loaded, SignalRow, StepRow, TailRow, TaskRow, TaskState, Verb
from ..model.agents import AgentLimitsRow, BreakerRow
from ..model.answers import Refusal
from ..model.commands import Operate
from ..model.signals import Inbox
from ..text.format import CARRIED_OUT
from .verb_guards import count_asked_persons

if TYPE_CHECKING:
    from ..model.workflow_pauses import WorkflowPauseRow  # only who pauses workflows pays for loading it
    from .parents import ParentStep


class _LoadedRows:
    """Rows of one task as they were read: enough to judge a verb without carrying it out."""

    def __init__(self, loaded: Loaded, commits: Sequence[str] = (), parent: "ParentStep | None" = None) -> None:
        self._loaded = loaded
        self._commits = commits
        self._parent = parent

    @property
    def pauses(self) -> dict[tuple[str, str], "WorkflowPauseRow"]:
        return {}

    def task(self, task_no: int) -> TaskRow | None:
        return self._loaded.task

    def step(self, step_no: int) -> StepRow | None:
        return self._loaded.find_step(step_no)

    def steps_of(self, task_no: int) -> tuple[StepRow, ...]:
        return self._loaded.steps

    def open_steps(self, task_no: int) -> list[StepRow]:
        return [step for step in self._loaded.steps if step.state in STEP_OPEN]

    def arguments(self, task_no: int) -> str:
        return self._loaded.arguments

    def people_commits(self, task_no: int, since: Instant) -> Sequence[str]:
        return self._commits

    def breakers(self, agent: str) -> tuple[BreakerRow, ...]:
        return ()

    def lock_breaker(self, app: str, agent: str, target: str) -> BreakerRow | None:
        return None

    def limits(self, agent: str) -> tuple[AgentLimitsRow, ...]:
        return ()

    def look_at_inbox(self, task_no: int, signal_id: str, name: str) -> Inbox:
        return Inbox(0, 0, 0, 0)

    def signal(self, task_no: int, number: int) -> SignalRow | None:
        return None

    def inbox(self, task_no: int) -> tuple[SignalRow, ...]:
        raise AssertionError("no verb reads it")

    def find_signal_of_runs(self, first_no: int, signal_id: str) -> SignalRow | None:
        raise AssertionError("no verb reads it")

    def has_task(self, task_id: str) -> bool:
        raise AssertionError("no verb asks for it")

    def next_task_no(self) -> int:
        raise AssertionError("no verb adds a task")

    def child(self, step_no: int) -> TaskRow | None:
        return None

    def parent(self, step_no: int) -> "ParentStep | None":
        return self._parent

    def process_is_retired(self, process_no: int) -> bool:
        return False

    def term(self, lease: str) -> int:
        return 0

    def convoy(self, convoy_no: int) -> ConvoyRow:
        return self._loaded.convoy or ConvoyRow(convoy_no=convoy_no, key="", ordering="place")

    def member(self, task_no: int) -> TaskRow | None:
        return self._loaded.task

    def next_waiting(self, convoy_no: int, after: tuple[int, int]) -> TaskRow | None:
        return None

    def waiting_line(self, convoy_no: int, after: tuple[int, int], limit: int) -> tuple[int, list[Loaded]]:
        return 0, []

    def unended_messages(self, batch_no: int, state: TaskState) -> list[TaskRow]:
        return []

    def count_sequences(self, convoy_no: int, start: int, end: int) -> int:
        return 0

    def seal(self, convoy_no: int) -> TailRow | None:
        return None


def find_verb_refusal(
    command: Operate, loaded: Loaded, now: Instant, parent: "ParentStep | None" = None
) -> Refusal | None:
    """Return the refusal of a verb on the task as it was read; None: it would be carried out. ``parent``: of a child."""
    foreseen = foresee_verb(command, loaded, now, parent=parent)
    return foreseen if isinstance(foreseen, Refusal) else None


def carry_out_verb(command: Operate, loaded: Loaded, now: Instant) -> Refusal | Loaded:
    """Return the task as the verb would leave it, or its refusal. Nothing is written."""
    from .changes import Refused  # only who acts on tasks pays for loading the decisions
    from .verbs import operate

    change = operate(command, _LoadedRows(loaded), now)
    if isinstance(change, Refused):
        return change.refusal
    changed = {step.step_no: step for step in (*change.steps, *change.opened)}
    steps = tuple(changed.pop(step.step_no, step) for step in loaded.steps)
    return replace(loaded, task=change.task, steps=(*steps, *changed.values()))


def needs_approvals(command: Operate, loaded: Loaded) -> bool:
    """Returns True if more than one operator must ask for the verb, by the settings or by the question that it answers."""
    asked = count_asked_persons(command, _LoadedRows(loaded)) if command.verb is Verb.ANSWER else command.persons
    return asked > 1


def foresee_verb(
    command: Operate,
    loaded: Loaded,
    now: Instant,
    commits: Sequence[str] = (),
    parent: "ParentStep | None" = None,
) -> Refusal | tuple[str, ...]:
    """Judge a verb on the task as it was read.

    Args:
        commits: as ``Rows.people_commits`` returns them, for a verb that needs approvals.
        parent: of a child, as it was read.
    Returns: its refusal, or in words each value that would change, with the old one. A verb that would be kept as an approval is
        refused as ``approval_needed``.
    """
    from .changes import Refused  # only who acts on tasks pays for loading the decisions
    from .verbs import operate

    rows = _LoadedRows(loaded, commits, parent)
    result = operate(command, rows, now)
    if isinstance(result, Refused):
        for kept in result.events:
            if isinstance(kept, OperatorApproval):
                from .approvals import foresee_approval  # only who asks for it pays for loading it

                detail = foresee_approval(command, loaded.task.task_id, kept.persons, rows)
                return replace(result.refusal, detail=detail)
        return result.refusal
    changes = result.describe_changes()
    return tuple(f"would be {change}" if change.startswith(CARRIED_OUT) else change for change in changes)
