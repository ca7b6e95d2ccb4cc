"""Carries out a verb of an operator on one task, or on each task that a filter names; the same for all interfaces.

The command is built here: the step is found, and edited arguments and answers are checked against the types of the code.
"""

from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

import msgspec

from ..core.verb_guards import is_done_by_child, list_steps_to_redo, may_edit_all
from ..declare.steps import Step
from ..declare.workflows import Workflow
from ..errors import ApprovalNeeded, InvalidInput, UnreadableRow, VerbRefused
from ..model import STEP_PREFIX, UNDO_PREFIX, Instant, Loaded, StepKind, StepRow, StepState, TaskRow, TaskState, Verb
from ..model.answers import APPROVAL_NEEDED, Applied, Refusal
from ..model.commands import Operate
from ..model.policies import Duration, check_seconds
from ..model.signals import is_question, is_wait
from ..model.verb_rules import ADJUSTED_SECONDS, AdjustArguments, explain_left_out
from ..payloads import codec
from ..runtime.code import Code, OneStep, read_one_step
from ..store.readable import of_task, refuse_unreadable_task
from ..store.task_filter import ANY_TASK, TaskFilter
from ..text.format import format_send_command, format_step
from .session import Session, load_task

if TYPE_CHECKING:  # only who opens a store pays for its operations
    from ..store.state_store import StateStore

ACTOR = "operator"


def check_signature(by: str, reason: str) -> tuple[str, str]:
    """Check who asks and why, as every verb carries it. Raises InvalidInput."""
    for name, value in (("by", by), ("reason", reason)):
        if not isinstance(value, str) or not value.strip():
            raise InvalidInput(f"{name} is {value!r}; a verb says who asks for it and why")
    return check_signer(by, "by"), codec.recordable_text(reason)


def check_signer(name: object, what: str) -> str:
    """Check the name of who signs. Raises InvalidInput."""
    from ..text.person_names import check_person  # only who signs pays for loading its tables

    return check_person(name, what)


def require_readable(loaded: Loaded) -> Loaded:
    """Return the task if this release can read all its rows: no verb is judged on part of a task. Raises UnreadableRow."""
    try:
        return refuse_unreadable_task(loaded)
    except UnreadableRow as error:
        raise of_task(error, loaded.task.task_no, loaded.task.task_id) from error


def build_command(verb: Verb, loaded: Loaded, store_id: str, *, by: str, reason: str, **fields: Any) -> Operate:
    """Build the command of a verb on a task as it was just read."""
    task = loaded.task
    who, why = check_signature(by, reason)
    return Operate(
        actor=ACTOR,
        verb=verb,
        task_no=task.task_no,
        incarnation=task.incarnation,
        by=who,
        reason=why,
        store_id=store_id,
        **fields,
    )


def refuse_edits(loaded: Loaded, now: Instant, *, by: str, reason: str) -> None:
    """Refuse a resubmission by the task's state first: that explains more than a wrong argument. Raises VerbRefused."""
    from ..core.verb_preview import foresee_verb  # only who asks in advance pays for loading it

    trial = build_command(Verb.RESUBMIT, loaded, "", by=by, reason=reason)
    foreseen = foresee_verb(trial, loaded, now)
    if not isinstance(foreseen, Refusal) and loaded.task.state is TaskState.HELD and loaded.task.undoing:
        foreseen = foresee_verb(msgspec.structs.replace(trial, arguments="{}"), loaded, now)
    if isinstance(foreseen, Refusal):
        raise_refused(Verb.RESUBMIT, loaded.task.task_id, foreseen)


def raise_refused(verb: Verb, task_id: str, refusal: Refusal) -> NoReturn:
    """Raise the store's refusal as VerbRefused."""
    kind = ApprovalNeeded if refusal.verdict == APPROVAL_NEEDED else VerbRefused
    raise kind(
        refusal.detail,
        task_id=task_id,
        verb=verb,
        state=refusal.state,
        allowed=refusal.allowed,
        because=refusal.verdict,
    )


# --- which step
def find_step(loaded: Loaded, name: str) -> StepRow:
    """Find a step by its label, ``undo:LABEL`` for a compensation, or by its number in the task. Raises InvalidInput.

    A question is found by who is asked, too: ``question:finance`` or ``finance``.
    """
    steps = [step for step in loaded.life if step.kind is not StepKind.TIMER or is_question(step)]
    found = [step for step in steps if name == _format_name(step)] or [s for s in steps if name == str(s.ordinal)]
    found = found or [step for step in steps if is_question(step) and name == step.label.partition(":")[2]]
    if not found:
        _refuse_wait(loaded, name)
        names = ", ".join(_format_name(step) for step in steps) or "none yet"
        raise InvalidInput(f"task {loaded.task.task_id!r} has no step {name!r}; it has {names}")
    return found[-1]


def _refuse_wait(loaded: Loaded, name: str) -> None:
    """Refuse the name of a wait in place of a step's, with the command to use instead. Raises InvalidInput."""
    for wait in filter(is_wait, loaded.life):
        if name in (str(wait.ordinal), wait.label, wait.name.partition(":")[2]):
            command = format_send_command(loaded.task.task_id, wait)
            raise InvalidInput(
                f"{format_step(wait)} of task {loaded.task.task_id!r} cannot be answered; send it instead{command and f': {command}'}"
            )


def _format_name(step: StepRow) -> str:
    return UNDO_PREFIX + step.label if step.kind is StepKind.COMPENSATION else step.label


def find_step_to_edit(loaded: Loaded, name: str | None) -> StepRow:
    """Find the step whose arguments are edited: the named one, else the only one that is done again. Raises InvalidInput."""
    if name is not None:
        return find_step(loaded, name)
    again = list_steps_to_redo(loaded.task, loaded.life) or [
        step for step in loaded.life if step.kind is StepKind.STEP and step.state is StepState.WITHDRAWN
    ]
    if len(again) != 1:
        names = ", ".join(step.label for step in again) or "none"
        raise InvalidInput(
            f"task {loaded.task.task_id!r}: name the step whose arguments are edited (step=, or --at-step); done again are: {names}"
        )
    return again[0]


# --- edited arguments and answers, checked against the code's types
def build_edit(
    loaded: Loaded, codes: Mapping[str, Code], arguments: Mapping[str, Any], step: str | None
) -> dict[str, Any]:
    """Build ``step`` and ``arguments`` of a resubmission with edited arguments.

    Args:
        arguments: by parameter name; those not named stay as they were.
        step: None: the only failed one; or, of a task that was undone or has asked for no step, its workflow's own
            arguments.
    Raises: InvalidInput - no such step or parameter, or a value its type refuses.
    """
    row, definition = find_edited_definition(loaded, codes, step)
    if row is not None:
        return {"step": row.ordinal, "arguments": _merge_arguments(definition, row.arguments, arguments)}
    if isinstance(definition, Workflow):
        return {"arguments": _merge_arguments(definition, loaded.arguments, arguments)}
    one = read_one_step(loaded.arguments)
    text = _merge_arguments(definition, bytes(one.arguments).decode(), arguments)
    return {"arguments": msgspec.json.encode(OneStep(msgspec.Raw(text.encode()), one.options)).decode()}


def find_edited_definition(
    loaded: Loaded, codes: Mapping[str, Code], step: str | None
) -> tuple[StepRow | None, Workflow[Any, Any] | Step[Any, Any]]:
    """Find what a resubmission edits: the row and definition of a step, or the task's own definition without a row.

    Raises: InvalidInput - no such step, several, or its code is not here.
    """
    if step is None and may_edit_all(loaded.task, loaded.life):
        return None, find_definition(codes, loaded.task.workflow)
    row = find_step_to_edit(loaded, step)
    return row, find_step_definition(codes, row)


def find_step_definition(codes: Mapping[str, Code], row: StepRow) -> Workflow[Any, Any] | Step[Any, Any]:
    """Find the code of a step: of one that is a child, the workflow. Raises InvalidInput - it is not here."""
    return find_definition(codes, row.name if row.kind is StepKind.CHILD else STEP_PREFIX + row.name)


def find_definition(codes: Mapping[str, Code], name: str) -> Workflow[Any, Any] | Step[Any, Any]:
    """Find the code under a name of ``codes``. Raises InvalidInput - it is not here."""
    code = codes.get(name)
    if code is None:
        kind = "step" if name.startswith(STEP_PREFIX) else "workflow"
        raise InvalidInput(
            f"{kind} {name.removeprefix(STEP_PREFIX)!r} is not in this App: its types are not known here"
        )
    return code.definition


def _merge_arguments(
    definition: Workflow[Any, Any] | Step[Any, Any], recorded: str, arguments: Mapping[str, Any]
) -> str:
    """Replace some recorded arguments. Returns them as the definition's own call would record them."""
    if not isinstance(arguments, Mapping) or not arguments:
        raise InvalidInput("arguments must be given by parameter name, at least one, like {'order': order}")
    signature = definition.signature
    try:
        kept = signature.arguments(recorded, are_all=False)
    except InvalidInput:  # they do not fit: then those that are given must be all there are
        kept = {}
    return signature.bind((), {**kept, **arguments})


def build_answer(
    loaded: Loaded, codes: Mapping[str, Code], step: str, result: Any, did_not_happen: bool
) -> dict[str, Any]:
    """Build the fields of ``answer``: the step, and its result as JSON text.

    Args:
        result: of the type the step declares; UNSET: none is given.
    Raises: InvalidInput - no such step, both or neither given, or a result of another type.
    """
    row = find_step(loaded, step)
    is_given = result is not msgspec.UNSET
    if did_not_happen:
        if is_given:
            raise InvalidInput("result and did_not_happen exclude each other: give one of them, not both")
        return {"step": row.ordinal, "did_not_happen": True}
    if is_done_by_child(row):
        return {"step": row.ordinal, "result": "null"}  # it is refused, with the task to act on
    if row.kind is StepKind.COMPENSATION:
        if is_given and result is not None:
            raise InvalidInput(f"{_format_name(row)} is a compensation and has no result: leave it out")
        return {"step": row.ordinal, "result": "null"}
    if not is_given:
        raise InvalidInput(
            f"give the result of step {row.label}, or say that it did not happen (did_not_happen, or --did-not-happen)"
        )
    if is_question(row):
        return {"step": row.ordinal, "result": codec.encode_untyped(result, f"answer of {row.label}")}
    definition = find_step_definition(codes, row)
    return {"step": row.ordinal, "result": definition.signature.encode_result(result)}


class Adjustment(TypedDict, total=False):
    """New limits, as ``Task.adjust`` takes them; see there."""

    deadline: Duration
    step: str
    attempts: int
    rounds: int
    cool_off: Duration
    complete_within: Duration
    wait_within: Duration
    delay: Duration


def read_adjustment(limits: Adjustment) -> AdjustArguments:
    """Read and check new limits. Raises InvalidInput."""
    given: dict[str, Any] = dict(limits)
    if unknown := sorted(given.keys() - set(AdjustArguments.__struct_fields__)):
        raise InvalidInput(
            f"there is no limit {unknown[0]!r}; there are {', '.join(AdjustArguments.__struct_fields__)}"
        )
    for name, least in ADJUSTED_SECONDS.items():
        if name in given:
            given[name] = check_seconds(given[name], name, at_least=least)
    arguments = AdjustArguments(**given)
    arguments.check()
    return arguments


def build_adjustment(loaded: Loaded, arguments: AdjustArguments) -> dict[str, Any]:
    """Build the fields of ``adjust`` from checked arguments. Raises InvalidInput - the task has no such step."""
    step = None if arguments.step is None else find_step(loaded, arguments.step).ordinal
    return {**arguments.build_fields(), "step": step}


PAGE = 200  # tasks read, and verbs written, at a time

Progress = Callable[[int], None]
FieldsBuilder = Callable[[Loaded], dict[str, Any]]  # of ``Operate``, besides those that all verbs have


async def load_task_to_act(session: Session, task_id: str) -> Loaded:
    """The task, if a verb can be judged on it. Raises UnknownTask, UnreadableRow, StoreError."""
    return require_readable(await load_task(session, task_id))


async def _check_answer(session: Session, loaded: Loaded, command: Operate) -> Operate:
    """Let the code check an answer that is given to its question. Raises: InvalidInput - it does not fit; StoreError."""
    row = next(step for step in loaded.life if step.ordinal == command.step)
    if command.result is None or not is_question(row):
        return command
    from .questions import check_answer  # only who answers one pays for loading it

    return msgspec.structs.replace(command, result=await check_answer(session, loaded, row, command.result))


async def operate_task(
    session: Session, verb: Verb, loaded: Loaded, by: str, reason: str, **fields: Any
) -> tuple[str, ...]:
    """Carry out a verb on a task as it was just seen.

    Returns: in words each value that it changed, with the old one, and what it left. Raises: VerbRefused, InvalidInput, StoreError.
    """
    command = build_command(verb, loaded, session.store.store_id, by=by, reason=reason, **fields)
    if verb is Verb.ANSWER:
        command = await _check_answer(session, loaded, command)
    (answer,) = await session.operate([command])
    if isinstance(answer, Refusal):
        raise_refused(verb, loaded.task.task_id, answer)
    return answer.changes if isinstance(answer, Applied) else ()


async def preview_verb(
    session: Session, verb: Verb, loaded: Loaded, by: str, reason: str, **fields: Any
) -> tuple[str, ...]:
    """Judge a verb on a task as it was just seen, and change nothing.

    Returns: in words each value that would change, with the old one.
    Raises: ApprovalNeeded - it would be kept as an approval; VerbRefused, InvalidInput, StoreError.
    """
    command = build_command(verb, loaded, session.store.store_id, by=by, reason=reason, **fields)
    if verb is Verb.ANSWER:
        command = await _check_answer(session, loaded, command)
    foreseen = await _foresee_with_approvals(session, command, loaded)
    if isinstance(foreseen, Refusal):
        raise_refused(verb, loaded.task.task_id, foreseen)
    return foreseen


async def _foresee_with_approvals(session: Session, command: Operate, loaded: Loaded) -> Refusal | tuple[str, ...]:
    """Judge a verb by the approvals in the task's history, if it needs more than one operator. See ``foresee_verb``."""
    from ..core.verb_preview import foresee_verb, needs_approvals  # as above

    command, store = session.require_persons(command), session.store
    commits: list[str] = []
    if needs_approvals(command, loaded):
        since = command.approved_since
        read = [bytes(row.events) async for row in store.history(command.task_no) if row.at >= since]
        commits = [text.decode(errors="surrogateescape") for text in reversed(read) if b'"operator.' in text]
    parent_step = loaded.task.parent_step if command.verb is Verb.RESUBMIT else None
    parent = None if parent_step is None else await store.find_parent(parent_step)
    return foresee_verb(command, loaded, store.now(), commits, parent)


async def list_rows(store: "StateStore", which: TaskFilter) -> AsyncIterator[TaskRow]:
    """The rows of all tasks that a filter names, in the order of submission, read page by page."""
    after = 0
    while page := await store.list_tasks(which, after=after, limit=PAGE):
        for row in page:
            yield row
        after = page[-1].task_no


class Acted(msgspec.Struct, frozen=True):
    """The result of one verb on many tasks.

    Args:
        meant: how many tasks of the filter the verb was asked of: those done and those refused.
        done: ids of those it was carried out on; with a dry run, of those that allow it.
        refused: ids of those whose state allows it but that refuse it, each with the reason, like a pivot.
        left_out: how many tasks of the filter were left alone, by what they are: ``(("processed", 98),)``. Their state
            does not allow the verb: most of them have ended.
        changes: by id, in words: each limit and tag that changed, with its old value, and what did not; and approvals. With a
            dry run, what would change.
        would_count: with a dry run, ids of those of ``done`` where the verb would only count as one approval of several.
    """

    meant: int
    done: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    left_out: tuple[tuple[str, int], ...] = ()
    changes: dict[str, tuple[str, ...]] = {}
    would_count: tuple[str, ...] = ()

    @property
    def left_out_count(self) -> int:
        """Number of tasks of the filter that were left alone."""
        return sum(count for _, count in self.left_out)


async def operate_tasks(
    session: Session,
    verb: Verb,
    which: TaskFilter,
    by: str,
    reason: str,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    build_fields: FieldsBuilder | None = None,
    is_meant: Callable[[TaskRow], bool] = lambda row: True,
) -> Acted:
    """Carry out a verb on each task of a filter that allows it.

    Args:
        dry_run: only judge the tasks; change nothing.
        progress: called with the number of tasks that were asked so far, after each page.
        build_fields: builds the fields that the verb needs besides its name, for a task as it was just read.
        is_meant: returns False for a task of the filter that is to be passed over, uncounted.
    Raises: InvalidInput - the filter names everything there is, or nobody signs; StoreError.
    """
    refuse_all_tasks(verb, which)
    return await operate_rows(
        session,
        verb,
        list_rows(session.store, which),
        by,
        reason,
        dry_run=dry_run,
        progress=progress,
        build_fields=build_fields,
        is_meant=is_meant,
    )


def refuse_all_tasks(verb: Verb, which: TaskFilter) -> None:
    """Refuse a verb on everything there is. Raises InvalidInput."""
    if which == ANY_TASK:
        raise InvalidInput(f"{verb} of all tasks there are: name at least one thing they have in common, like state=")


async def operate_rows(
    session: Session,
    verb: Verb,
    rows: AsyncIterable[TaskRow],
    by: str,
    reason: str,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    build_fields: FieldsBuilder | None = None,
    is_meant: Callable[[TaskRow], bool] = lambda row: True,
) -> Acted:
    """Carry out a verb on each of these tasks that allows it. Arguments and errors are those of ``operate_tasks``."""
    check_signature(by, reason)
    store = session.store
    done: list[str] = []
    refused: list[tuple[str, str]] = []
    left_out: Counter[str] = Counter()
    waiting: list[tuple[Operate, Loaded]] = []
    changes: dict[str, tuple[str, ...]] = {}
    would_count: list[str] = []  # as approvals

    async def carry_out() -> None:
        for (_, loaded), outcome in zip(waiting, await _operate_each(session, waiting, dry_run), strict=True):
            task_id = loaded.task.task_id
            if not isinstance(outcome, Refusal):
                done.append(task_id)
                if outcome:
                    changes[task_id] = outcome
            elif dry_run and outcome.verdict == APPROVAL_NEEDED:
                done.append(task_id)
                would_count.append(task_id)
                changes[task_id] = (outcome.detail.removeprefix(f"task {task_id!r}: {verb} "),)
            else:
                refused.append((task_id, outcome.detail))
        waiting.clear()
        if progress is not None:
            progress(len(done) + len(refused))

    async for row in rows:
        if not is_meant(row):
            continue
        if isinstance(row.state, TaskState) and (why := explain_left_out(verb, row)):
            left_out[why] += 1
            continue
        loaded = await store.load(row.task_no)
        if loaded is None:
            continue
        try:
            require_readable(loaded)
            fields = {} if build_fields is None else build_fields(loaded)
            command = build_command(verb, loaded, store.store_id, by=by, reason=reason, **fields)
            if verb is Verb.ANSWER:
                command = await _check_answer(session, loaded, command)
        except InvalidInput as error:
            refused.append((loaded.task.task_id, str(error)))
            continue
        waiting.append((command, loaded))
        if len(waiting) == PAGE:
            await carry_out()
    await carry_out()
    meant, left = len(done) + len(refused), tuple(left_out.most_common())
    return Acted(meant, tuple(done), tuple(refused), left, changes, tuple(would_count))


async def _operate_each(
    session: Session, asked: list[tuple[Operate, Loaded]], dry_run: bool
) -> list[Refusal | tuple[str, ...]]:
    """Carry out commands, or judge them. Returns for each its refusal, or in words what changed."""
    if dry_run:
        return [await _foresee_with_approvals(session, command, loaded) for command, loaded in asked]
    answers = await session.operate([command for command, _ in asked])
    return [
        answer if isinstance(answer, Refusal) else answer.changes if isinstance(answer, Applied) else ()
        for answer in answers
    ]
