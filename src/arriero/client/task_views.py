"""Views of tasks, built from what was read."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from ..core.apps import find_code, may_run
from ..core.starts import find_snooze_end
from ..core.undo import FORWARD_KINDS, list_open_compensations
from ..errors import InvalidInput
from ..explain.convoys import TasksAhead
from ..explain.past import TaskPast
from ..model import STEP_PREFIX, Instant, Loaded, ProcessState, StepKind, StepRow, TaskState
from ..model.failures import choose_public_text, read_task_failure
from ..model.instants import as_datetime
from ..model.progress import PublishedRow
from ..model.tags import read_tags
from ..payloads.codec import decoder
from ..runtime.code import Code
from ..store.readable import legible_task
from .row_shapes import build_output, to_datetime, view_step_failure, view_task_failure
from .task_view import (
    StepView,
    TaskView,
    describe_release_wait,
    find_published,
    list_published_faults,
    load_tasks_ahead,
    read_family,
    read_holders,
    read_published,
    read_times,
    waiting_for,
)

if TYPE_CHECKING:
    from ..explain.children import Relatives
    from ..store.state_store import StateStore

HISTORIES_READ_MAX = 2  # at a time: on PostgreSQL each is read on a separate connection

_any_json = decoder(Any, "result")


class TaskViews:
    """Makes views of the tasks of one open store.

    Args:
        codes: what the App runs, by the name in a task's row; ``step:NAME`` for steps.
        app: its name: what another App's step of the same name returns is shown as plain JSON values.
    """

    def __init__(self, store: "StateStore", codes: Mapping[str, Code], app: str) -> None:
        self._store = store
        self._codes = codes
        self._app = app
        self._reading = asyncio.Semaphore(HISTORIES_READ_MAX)

    async def view(self, loaded: Loaded, code: Code | None = None) -> TaskView[Any]:
        """A task as it was read, with what its history and its holders add.

        ``code``: what it runs, if its handle knows; None: as the App has it.
        """
        ahead = await load_tasks_ahead(loaded, self._store)
        holders = await read_holders(loaded, self._store)
        async with self._reading:
            times = await read_times(self._store, loaded.task.task_no)
        published = await read_published(self._store, loaded.task.task_no)
        family = await read_family(loaded, self._store)
        codes = self._codes if may_run(self._app, loaded.task.app) else {}
        return TaskViewBuilder(loaded, codes, code, times, holders, published, self._store.now(), family).view(ahead)


class TaskViewBuilder:
    """Builds the view of one task from what was read."""

    def __init__(
        self,
        as_it_stands: Loaded,
        codes: Mapping[str, Code],
        code: Code | None,
        times: TaskPast,
        holders: Mapping[int, str],
        published: Mapping[int, PublishedRow],
        now: Instant,
        family: "Relatives | None",
    ) -> None:
        self.published = published
        self.family = family
        self.loaded, self.faults = legible_task(as_it_stands)
        self.codes = codes
        self.code = code
        self.times = times
        self.holders = holders
        # A wait that still continues is not a part of a view: two views of a task that is blocked are equal.
        self.until = self.loaded.task.ended_at or self.loaded.task.paused_at or now
        self.unfit: list[str] = []  # payloads that are not of their types

    def view(self, ahead: TasksAhead | None) -> TaskView[Any]:
        loaded, task = self.loaded, self.loaded.task
        failure = None if task.failure is None else read_task_failure(task.failure)
        elapsed = self.times.measure_task(task, self.until)
        undone = {step.undoes: step.ordinal for step in loaded.steps if step.undoes is not None}
        ordinals = {step.step_no: step.ordinal for step in loaded.steps}
        steps = tuple(self._step(step, ordinals, undone) for step in loaded.steps)
        is_undone = task.state in (TaskState.COMPENSATING, TaskState.HELD)
        return TaskView(
            id=task.task_id,
            workflow=task.workflow,
            state=cast(ProcessState, str(task.state)),
            failure_count=task.failure_count,
            lost_count=task.lost_count,
            priority=task.priority,
            waiting_for=describe_release_wait(self.faults) if self.faults else waiting_for(loaded, ahead, self.family),
            reason="" if failure is None else failure.reason,
            submitted_at=as_datetime(task.submitted_at),
            ended_at=to_datetime(task.ended_at),
            incarnation=task.incarnation,
            paused=task.paused_at is not None,
            convoy=None if loaded.convoy is None else loaded.convoy.key,
            place=task.place,
            sequence=task.sequence,
            started_at=to_datetime(task.started_at),
            paused_at=to_datetime(task.paused_at),
            snoozed_until=to_datetime(find_snooze_end(task)),
            complete_by=to_datetime(task.complete_by),
            not_before=to_datetime(task.not_before),
            held_by=self._find_holder(task.locked_by),
            took_seconds=elapsed.took,
            waited_seconds=elapsed.waited,
            output=self._output(),
            failure=None if failure is None else view_task_failure(failure),
            steps=steps,
            open_compensations=list_open_compensations(loaded.steps) if is_undone else (),
            nothing_to_undo=() if failure is None else failure.nothing_to_undo,
            unreadable=self._list_unreadable(),
            app=task.app,
            public="" if failure is None else choose_public_text(failure, task.state),
            published=self._published(0),
            published_at=self._published_at(0),
            tags=read_tags(task.tags),
            run=task.run,
            is_earlier_run=task.next_no is not None,
            code_version=task.code_version,
            **({} if self.family is None else self.family.show_parent(task)),
        )

    def _step(self, step: StepRow, ordinals: Mapping[int, int], undone: Mapping[int, int]) -> StepView:
        elapsed = self.times.measure_step(step, self.until)
        began = self.times.began.get(step.ordinal)
        return build_output(
            StepView,
            step,
            kind=str(step.kind),
            state=str(step.state),
            undoes=None if step.undoes is None else ordinals.get(step.undoes),
            undone_by=undone.get(step.step_no),
            past=step.ordinal <= self.loaded.task.past_count,
            held_by=self._find_holder(step.locked_by),
            started_at=to_datetime(began),
            took_seconds=elapsed.took,
            waited_seconds=elapsed.waited,
            result=self._result(step),
            failure=None if step.failure is None else view_step_failure(step),
            checkpoint=None if step.checkpoint is None else self._decode(step.checkpoint, _any_json, "a checkpoint"),
            published=self._published(step.ordinal),
            published_at=self._published_at(step.ordinal),
            **({} if self.family is None else self.family.show_child(self.loaded, step)),
        )

    def _published(self, ordinal: int) -> Any:
        row = find_published(self.published, ordinal)
        return None if row is None else self._decode(row.value or "null", _any_json, "what is published")

    def _published_at(self, ordinal: int) -> datetime | None:
        row = find_published(self.published, ordinal)
        return None if row is None else as_datetime(row.at)

    def _find_holder(self, process_no: int | None) -> str | None:
        return None if process_no is None else self.holders.get(process_no, f"process {process_no}")

    def _output(self) -> Any:
        task = self.loaded.task
        if task.output is None:
            return None
        code = find_code(self.codes, task) if self.code is None else self.code.for_task(task)
        return self._decode(task.output, _any_json if code is None else code.output, "its output")

    def _result(self, step: StepRow) -> Any:
        if step.result is None or step.kind not in FORWARD_KINDS:
            return None
        is_child = step.kind is StepKind.CHILD
        is_id = is_child and self._is_detached(step)  # then it is the id of the child
        code = None if is_id else self.codes.get(step.name if is_child else STEP_PREFIX + step.name)
        return self._decode(step.result, _any_json if code is None else code.output, f"the result of step {step.label}")

    @staticmethod
    def _is_detached(step: StepRow) -> bool:
        from ..core.children import read_options  # only who has children pays for loading it

        return read_options(step).is_detached

    def _decode(self, text: str, read: Callable[[str], Any], what: str) -> Any:
        try:
            return read(text)
        except InvalidInput as error:
            self.unfit.append(f"{what} does not fit the type that the code declares: {error}")
            return None

    def _list_unreadable(self) -> tuple[str, ...]:
        events = (f"column events of table history (row {number})" for number in self.times.unreadable)
        faults = (*(fault.says for fault in self.faults), *list_published_faults(self.published))
        return (*faults, *self.unfit, *events)
