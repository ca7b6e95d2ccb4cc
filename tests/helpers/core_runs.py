"""A workflow driven by hand: a test says which result is recorded next, and may replay at any time."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from core_rows import NOW, step_row

from arriero.core.code_end import Raised, Returned, build_step_exception
from arriero.core.replay import Execution, RequestedStep, identify_step, replay
from arriero.declare.workflows import Workflow
from arriero.model import StepKind, StepRow, StepState, later
from arriero.model.failures import StepFailure, TaskFailure
from arriero.model.signals import is_note

Replay = Callable[..., tuple[list[RequestedStep], TaskFailure | None]]


def asked_as(one: RequestedStep) -> tuple[Any, ...]:
    """What must be the same in every replay."""
    return (one.identity, one.arguments, one.fire_at)


class Run:
    """A live run: results are delivered one at a time, as a test names them, and recorded.

    Args:
        workflow: whose code runs.
        arguments: of it.
    """

    def __init__(self, workflow: Workflow[..., Any], *arguments: Any, seed: int = 7) -> None:
        self._workflow = workflow
        self._arguments = arguments
        self._seed = seed
        self.execution = self.fresh_execution()
        self.rows: list[StepRow] = []
        self.results = 0
        self.opened_by: list[list[RequestedStep]] = []  # by the number of results delivered
        self._record(self.execution.begin())

    def fresh_execution(self) -> Execution:
        """The same code and task, not begun."""
        return Execution(self._workflow.function(*self._arguments), seed=self._seed, now=NOW)

    def _record(self, asked: list[RequestedStep]) -> None:
        self.opened_by.append(asked)
        if self.execution.end is not None:
            return  # a Scheduler opens nothing for code that has ended
        for one in asked:
            kind, name, key = one.identity
            row = step_row(
                len(self.rows) + 1,
                kind=kind,
                name=name,
                key=key,
                state=StepState.COMPLETED if is_note(kind, name) else StepState.PENDING,
                arguments=one.arguments,
                not_before=one.fire_at,
            )
            self.rows.append(row)

    # --- what a test sees
    @property
    def end(self) -> Returned | Raised | None:
        """How the code ended; None while it goes on."""
        return self.execution.end

    @property
    def failure(self) -> TaskFailure:
        """The failure by which the code left."""
        assert isinstance(self.end, Raised), self.end
        return self.end.failure

    @property
    def output(self) -> Any:
        """What the code returned."""
        assert isinstance(self.end, Returned), self.end
        return self.end.value

    @property
    def open(self) -> list[str]:
        """Steps and timers without a result, in the order of opening."""
        return [row.label for row in self.rows if row.state is StepState.PENDING]

    # --- what a test does
    def upgrade(self, workflow: Workflow[..., Any]) -> "Run":
        """Let another process, which has this code, take the task up."""
        self.execution.close()
        self._workflow = workflow
        self.execution, fresh, why = self.replayed()
        assert why is None, why
        before = self.opened_by.pop()
        self._record(fresh)
        self.opened_by[-1] = before + fresh
        return self

    def deliver(self, label: str, result: Any = None) -> "Run":
        """Record a result and deliver it."""
        return self._end_step(label, state=StepState.COMPLETED, result=msgspec.json.encode(result).decode())

    def fail(self, label: str, code: str = "no", cause: Any = "permanent") -> "Run":
        """Record a failure and deliver it."""
        failure = msgspec.json.encode(StepFailure(cause, "it failed", code, {"why": 1})).decode()
        return self._end_step(label, state=StepState.FAILED, failure=failure)

    def _end_step(self, label: str, **changes: Any) -> "Run":
        index = next(i for i, row in enumerate(self.rows) if row.label == label and row.state is StepState.PENDING)
        self.results += 1
        at = later(NOW, self.results)
        row = msgspec.structs.replace(self.rows[index], result_number=self.results, delivered_at=at, **changes)
        self.rows[index] = row
        self._record(self.execution.deliver(identify_step(row), result_of(self.execution, row), at))
        return self

    def deliver_all(self) -> "Run":
        """Deliver None, or 0 where a number is wanted, for whatever is open, until nothing is."""
        while self.open:
            row = next(row for row in self.rows if row.state is StepState.PENDING)
            self.deliver(row.label, None if row.kind is StepKind.TIMER else 0)
        return self

    def replayed(
        self, rows: Sequence[StepRow] | None = None, *, by: Replay = replay, execution: Execution | None = None
    ) -> tuple[Execution, list[RequestedStep], TaskFailure | None]:
        """Fresh code brought to where the record (or another one) ends."""
        execution = execution or self.fresh_execution()
        fresh, why = by(execution, self.rows if rows is None else rows, lambda row: result_of(execution, row))
        return execution, fresh, why


def result_of(execution: Execution, row: StepRow) -> Any:
    """A recorded result as the code sees it, as the runtime reads it."""
    if row.state is StepState.FAILED:
        return build_step_exception(row)
    asked = execution.asked.get(identify_step(row))
    if asked is None or asked.call is None:
        return None
    return asked.call.step.signature.result(row.result)
