"""Looks after the children of the tasks that this process drives: submits them, asks for their undo, reads how they ended."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol

from ..core.children import (
    ChildOrder,
    build_child_end,
    build_child_submission,
    decide_child,
    fail_as_refused,
    find_child_step,
    read_options,
)
from ..model import STEP_BITS, StepKind, StepRow, StepState, TaskRow, Verb
from ..model.answers import WORKFLOW_PAUSED, Answer, Applied, Refusal, Submitted
from ..model.commands import NoteChildEnd, Operate, Submit
from ..model.moves import Came, ChildEnded, GaveUp, Succeeded
from .process_context import ProcessContext

logger = logging.getLogger("arriero")

AGAIN_SECONDS = 1.0  # until children are looked at again whose store did not answer, or that others were just changing
SUBMITTED_TOGETHER = 200  # children of one task whose submissions are in transit
_VERBS = {ChildOrder.RESUBMIT: Verb.RESUBMIT, ChildOrder.CANCEL: Verb.CANCEL, ChildOrder.COMPENSATE: Verb.COMPENSATE}
_REASONS = {
    ChildOrder.RESUBMIT: "its parent asks for it again",
    ChildOrder.CANCEL: "its parent is undone",
    ChildOrder.COMPENSATE: "its parent is undone",
}

SubmitChild = Callable[[Submit], Awaitable[Submitted | Refusal]]


class ParentDriver(Protocol):
    """The driver of a task that has children."""

    @property
    def task(self) -> TaskRow: ...
    @property
    def is_held(self) -> bool: ...
    def list_child_work(self) -> list[StepRow]:
        """Steps that are children, and their undos, as long as they run."""
        ...

    def find_child_work(self, step_no: int) -> StepRow | None:
        """Find the running step of one child, or the undo of it. None: neither runs."""
        ...

    def offer_child(self, end: ChildEnded) -> None: ...


class ChildTasks:
    """The children of the tasks of one process.

    Args:
        find_driver: of a task that this process drives; None: it does not.
        submit: commits a submission.
        on_submitted: called when children were submitted, or were asked for another thing: they may be due here.
    """

    def __init__(
        self,
        context: ProcessContext,
        *,
        find_driver: Callable[[int], ParentDriver | None],
        submit: SubmitChild,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        on_submitted: Callable[[], None],
    ) -> None:
        self._context = context
        self._find_driver = find_driver
        self._submit = submit
        self._spawn = spawn
        self._on_submitted = on_submitted
        self._submitting: Counter[int] = Counter()  # tasks whose new children are being submitted
        self._looked_at: dict[int, bool] = {}  # tasks whose children are looked at; True: again after that

    def is_looking_after(self, task_no: int) -> bool:
        """Returns True while children of a task are to be submitted or asked."""
        return task_no in self._looked_at or task_no in self._submitting

    def look(self, driver: ParentDriver) -> None:
        """Do what the running children of a task need now. If that is being done, it is done again afterwards."""
        task_no = driver.task.task_no
        if task_no in self._looked_at:
            self._looked_at[task_no] = True
        elif driver.list_child_work():
            self._looked_at[task_no] = False
            self._spawn(self._look_until_done(task_no))

    def begin(self, driver: ParentDriver, steps: list[StepRow]) -> None:
        """Submit children for which a commit has just opened these steps: nobody else has submitted them."""
        self._spawn(self._submit_new(driver, steps))
        self._submitting[driver.task.task_no] += 1

    def note_end(self, child: TaskRow) -> None:
        """A task has ended here that another one has started: its parent records that, wherever it is driven."""
        assert child.parent_step is not None
        driver = self._find_driver(child.parent_step >> STEP_BITS)
        if driver is None:
            self._wake_parent(child.parent_step)
        elif (step := driver.find_child_work(child.parent_step)) is not None:
            self._settle(driver, step, child)

    def note_unrecorded(self, inbox: Iterable[Came], steps: Mapping[int, StepRow]) -> None:
        """Note the ends of children that came while their parent was just being put down: nobody has recorded them."""
        for end in inbox:
            if isinstance(end, ChildEnded):
                self._wake_parent(find_child_step(steps[end.step_no]))

    def _wake_parent(self, step_no: int) -> None:
        command = NoteChildEnd(actor=self._context.actor, step_no=step_no)
        self._context.committer.put(command, self._process_noted)

    def _process_noted(self, answer: Answer | BaseException) -> None:
        self._on_submitted()  # it may have woken a task that is free

    async def _look_until_done(self, task_no: int) -> None:
        try:
            while (driver := self._find_driver(task_no)) is not None:
                self._looked_at[task_no] = False
                try:
                    is_done = await self._look_once(driver)
                except Exception as error:  # also what no store should raise: nobody else looks at them
                    logger.warning("children of task %s are looked at again soon: %s", driver.task.task_id, error)
                    is_done = False
                if not is_done:
                    await self._context.clock.sleep(AGAIN_SECONDS)
                elif not self._looked_at[task_no]:
                    return
        finally:
            self._looked_at.pop(task_no, None)

    async def _look_once(self, driver: ParentDriver) -> bool:
        """Returns False if something has to be asked again a little later."""
        steps = driver.list_child_work()
        numbers = sorted({find_child_step(step) for step in steps})
        children = await self._context.store.load_children(numbers)
        submits: list[StepRow] = []
        is_done = True
        for step in steps:
            child = children.get(find_child_step(step))
            order = self._settle(driver, step, child)
            if order is ChildOrder.SUBMIT:
                submits.append(step)
            elif isinstance(order, ChildOrder):
                assert child is not None
                is_done = await self._operate(driver, step, child, order) and is_done
        return await self._submit_all(driver, submits) and is_done

    async def _submit_new(self, driver: ParentDriver, steps: list[StepRow]) -> None:
        try:
            submits = [step for step in steps if self._settle(driver, step, None) is ChildOrder.SUBMIT]
            is_done = await self._submit_all(driver, submits)
        except Exception as error:  # as in ``_look_until_done``
            logger.warning("children of task %s are submitted again soon: %s", driver.task.task_id, error)
            is_done = False
        finally:
            self._submitting[driver.task.task_no] -= 1
            self._submitting += Counter()  # without those that are 0
        if not is_done and driver.is_held:
            self.look(driver)

    async def _submit_all(self, driver: ParentDriver, steps: list[StepRow]) -> bool:
        """Returns False if one of the children has to be looked at again."""
        is_done = True
        for start in range(0, len(steps), SUBMITTED_TOGETHER):
            together = steps[start : start + SUBMITTED_TOGETHER]
            answers = await asyncio.gather(*(self._submit_one(driver, step) for step in together))
            is_done = all(answers) and is_done
        if steps:
            self._on_submitted()
        return is_done

    def _settle(self, driver: ParentDriver, step: StepRow, child: TaskRow | None) -> ChildOrder | None:
        """Let the driver record what a child has come to. Returns what else it needs."""
        decided = decide_child(driver.task, step, child)
        if isinstance(decided, Succeeded | GaveUp):
            self._offer(driver, step, child, decided)
            return None
        return decided

    def _offer(self, driver: ParentDriver, step: StepRow, child: TaskRow | None, outcome: Succeeded | GaveUp) -> None:
        if driver.is_held:
            driver.offer_child(build_child_end(step, child, outcome, self._context.store.now()))

    async def _submit_one(self, driver: ParentDriver, step: StepRow) -> bool:
        command = build_child_submission(
            driver.task, step, self._context.actor, self._context.ports.random.getrandbits(62)
        )
        answer = await self._submit(command)
        if isinstance(answer, Refusal):
            if answer.verdict == "moved_on":
                return True  # the parent has changed: who drives it looks again
            if answer.verdict == WORKFLOW_PAUSED:
                return False  # new tasks are refused, and this one belongs to a task that was there before
            self._offer(driver, step, None, fail_as_refused(answer))
            return True
        return answer.created and not read_options(step).is_detached  # else its row says what is next

    async def _operate(self, driver: ParentDriver, step: StepRow, child: TaskRow, order: ChildOrder) -> bool:
        task = driver.task
        command = Operate(
            actor=self._context.actor,
            verb=_VERBS[order],
            task_no=child.task_no,
            incarnation=child.incarnation,
            by=f"task {task.task_id}",
            reason=_REASONS[order],
        )
        answer = await self._context.committer.ask(command)
        self._on_submitted()
        if isinstance(answer, Applied):
            self._settle(driver, step, answer.task)  # one that waits for its turn in a convoy has ended with that
        if not isinstance(answer, Refusal):
            return True
        if answer.verdict == "not_allowed" and step.kind is StepKind.COMPENSATION and order is ChildOrder.COMPENSATE:
            self._offer(driver, step, child, fail_as_refused(answer))
            return True
        return answer.verdict == "not_allowed"  # a child that cannot be cancelled ends by itself


def list_child_work(steps: Iterable[StepRow]) -> list[StepRow]:
    """The steps that are children, and their undos, as long as they run."""
    return [step for step in steps if step.state is StepState.RUNNING and step.is_of_child]
