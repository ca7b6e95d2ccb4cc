"""Forks a task: a new one that does it again from a step on, with the results before that step as copies. For all interfaces."""

import msgspec

from ..core.deduplication import build_id_conflict
from ..core.forks import build_fork, build_fork_submission, has_result_to_copy, list_before, list_done_again
from ..errors import InvalidInput, VerbRefused
from ..model import Loaded, StepKind, StepRow
from ..model.answers import Refusal
from ..model.commands import Submit
from ..model.signals import is_note
from ..payloads import codec
from .session import Session
from .submission import SubmitOptions, accept, check_order
from .task_verbs import check_signer, require_readable

VERB = "fork"


class ForkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one fork, as ``Task.fork`` describes them; not checked yet."""

    task_id: str | None = None
    convoy: str | None = None
    by: str = ""
    reason: str = ""


class ForkAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A fork, or what a dry run found that it would be.

    Args:
        id: of the new task; None: a dry run that was not given one.
        outcome: ``done``, or ``would_be_done`` of a dry run.
        created: False if it was there before.
        forked_from, forked_step: id of the task that it does again, and the label of the step from which on it does.
        copied: labels of the steps and waits whose results it has as copies. Their effects stay the other task's.
        again: labels of steps that happened, or may have, and that it may do a second time.
    """

    id: str | None
    outcome: str
    created: bool
    workflow: str
    forked_from: str
    forked_step: str
    copied: tuple[str, ...]
    again: tuple[str, ...]


def find_step_to_fork(loaded: Loaded, name: object) -> StepRow:
    """Find the step from which on a task is done again, by its label or number. Raises InvalidInput - it has no such step."""
    if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
        raise InvalidInput(f"from_step is {name!r}; give the label of a step, or its number in the task")
    steps = [
        step for step in loaded.life if step.kind is not StepKind.COMPENSATION and not is_note(step.kind, step.name)
    ]
    labelled = [step for step in steps if name == step.label]
    found = labelled or [step for step in steps if str(name) == str(step.ordinal)]
    if not found and loaded.task.batch_no not in (None, loaded.task.task_no):
        batch = f"its message is in the batch of task number {loaded.task.batch_no}, which has the steps: fork that one"
        raise InvalidInput(f"task {loaded.task.task_id!r} has no step to be forked from; {batch}")
    if not found:
        names = ", ".join(f"{step.ordinal} {step.label}" for step in steps) or "none yet"
        raise InvalidInput(f"task {loaded.task.task_id!r} has no step {name!r} to be forked from; it has {names}")
    return found[-1]


def plan_fork(session: Session, loaded: Loaded, from_step: object, options: ForkOptions) -> tuple[Submit, StepRow]:
    """Plan a fork of a task as it was just read.

    Returns: the submission, and the step. Raises: InvalidInput - no such step, or a wrong option; VerbRefused -
        the task cannot be forked from there; UnreadableRow.
    """
    require_readable(loaded)
    row, task = find_step_to_fork(loaded, from_step), loaded.task
    by = check_signer(options.by, "by") if options.by else ""
    reason = codec.recordable_text(options.reason)
    fork = build_fork(loaded, row, session.store.store_id, by=by, reason=reason)
    if isinstance(fork, Refusal):
        raise VerbRefused(fork.detail, task_id=task.task_id, verb=VERB, state=fork.state)
    given, cap = options.task_id, session.cap
    task_id = session.ports.new_task_id() if given is None else codec.check_id(given, "task_id")
    if task_id == task.task_id:
        raise InvalidInput(f"task_id is {task_id!r}, which is the task that is forked: give the fork another one")
    if options.convoy is not None:
        check_order(SubmitOptions(convoy=options.convoy))
    command = msgspec.structs.replace(
        build_fork_submission(loaded, fork, task_id),
        convoy=options.convoy,
        submitter=None if cap is None else cap.submitter,
        open_tasks_max=None if cap is None else cap.open_tasks_max,
    )
    return command, row


def build_fork_answer(loaded: Loaded, row: StepRow, command: Submit, *, created: bool) -> ForkAnswer:
    """Build the answer of a fork that is there."""
    copied = [
        one.label for one in list_before(loaded, row) if has_result_to_copy(one) and not is_note(one.kind, one.name)
    ]
    return ForkAnswer(
        id=command.task_id,
        outcome="done",
        created=created,
        workflow=command.workflow,
        forked_from=loaded.task.task_id,
        forked_step=row.label,
        copied=tuple(copied),
        again=tuple(one.label for one in list_done_again(loaded, row)),
    )


async def submit_fork(session: Session, loaded: Loaded, from_step: object, options: ForkOptions) -> ForkAnswer:
    """Fork a task as it was just read. Raises: as ``plan_fork``; also as ``App.submit``."""
    command, row = plan_fork(session, loaded, from_step, options)
    answer = accept(await session.submit(command))
    return build_fork_answer(loaded, row, command, created=answer.created)


async def preview_fork(session: Session, loaded: Loaded, from_step: object, options: ForkOptions) -> ForkAnswer:
    """Judge a fork of a task as it was just read, and change nothing. Raises: as ``plan_fork``; InvalidInput - its id is known."""
    command, row = plan_fork(session, loaded, from_step, options)
    known = None if options.task_id is None else await session.store.find(command.task_id)
    if known is not None and known.task.forked_from != row.step_no:
        accept(build_id_conflict(command.task_id, "origin"))
    found = build_fork_answer(loaded, row, command, created=False)
    return msgspec.structs.replace(found, outcome="would_be_done", id=options.task_id)
