"""The next move of a task that a process drives: a pure function of the task's rows, its code and its inbox.

``sort_inbox`` says which of what came in still counts. ``decide_next_move`` gives the results to the code and answers with one
``Move``: what is recorded, which steps are opened, and where that leaves the task. The runtime adds places at Agents,
writes the move, and asks again once it is written.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from ..declare.step_options import NO_OPTIONS
from ..declare.steps import StepCall
from ..declare.workflows import WorkflowCall
from ..model import (
    STEP_OPEN,
    Instant,
    Loaded,
    SignalRow,
    StepKind,
    StepRow,
    StepState,
    TaskRow,
    TaskState,
    later,
    seconds_between,
)
from ..model.failures import TaskFailure
from ..model.moves import (
    Came,
    ChildEnded,
    Delivered,
    Ending,
    Fired,
    Keep,
    NewStep,
    Process,
    PutDown,
    Reported,
    RetryAsked,
    Signalled,
    Succeeded,
)
from ..model.policies import encode_policy
from ..model.signals import build_fired_result, build_wait_result, is_wait, may_take
from ..system.traceback_capture import capture_traceback
from .call_policy import resolve_call_policy, resolve_child_policy, resolve_step_policy
from .code_end import Identity, Raised, Returned
from .key_functions import KeyFunctionFailed, compute_limit_keys, compute_target
from .replay import RequestedStep, identify_step
from .routing import INTERCHANGEABLE, stay_with_agent
from .signals import find_ready_wait
from .supervision import (
    decode_step_policy,
    decode_task_policy,
    grow_complete_within,
    is_unreadable,
    on_limit_passed,
    on_task_failed,
    read_step_policy,
)
from .task_run import TaskRun
from .undo import build_idempotency_key, decide_next_undo


class Surroundings(msgspec.Struct, frozen=True):
    """Input of a decision besides the task; the same for all tasks of a process.

    Args:
        known_code: definitions of the steps and workflows that are in this App.
        linger_seconds: a task whose next event is further off is put down.
        providers: of an Agent with providers, the names of all Agents that do its steps.
    """

    store_id: str
    known_code: AbstractSet[Any]
    linger_seconds: float
    providers: Mapping[str, tuple[str, ...]] = {}


class Move(msgspec.Struct, frozen=True, gc=False):
    """The next write: results in their order, steps to open, and the state in which the task is left.

    ``published``: what the code has published since the last write, as JSON text; None: nothing.
    """

    delivered: tuple[Delivered, ...] = ()
    opened: tuple[NewStep, ...] = ()
    ending: Ending = Keep()
    published: str | None = None


def sort_inbox(steps: Mapping[int, StepRow], inbox: Iterable[Came]) -> tuple[tuple[Came, ...], list[Reported]]:
    """Sort the inbox.

    Args:
        steps: the task's, by number, as last written or read.
        inbox: in the order it came.
    Returns: what can still count, each step once, in that order; and reports that cannot, which the store must judge.
    """
    counts: dict[int, Came] = {}
    others: list[Reported] = []
    for item in inbox:
        step = steps[item.step_no]
        if isinstance(item, Fired):
            if step.state is StepState.PENDING:
                counts[item.step_no] = item
        elif isinstance(item, ChildEnded):
            if step.state is StepState.RUNNING and item.step_no not in counts:
                counts[item.step_no] = item
        elif item.step_no in counts or (step.state, step.fence) != (StepState.RUNNING, item.fence):
            others.append(item)
        else:
            counts[item.step_no] = item
    return tuple(counts.values()), others


def decide_next_move(run: TaskRun, delivered: tuple[Came, ...], now: Instant, around: Surroundings) -> Move | None:
    """Give the inbox to the code, and decide the next write.

    Args:
        run: the task, all of whose earlier moves are written.
        delivered: from ``sort_inbox``.
        now: the store's clock.
    Returns: None when nothing is to be written: the task waits.
    """
    if run.task.state is not TaskState.COMPENSATING:
        move = _decide_forward_move(run, delivered, now, around)
    elif delivered:
        move = Move(delivered)
    else:
        move = Move(ending=decide_next_undo(run.loaded, around.store_id) or Keep())
    execution = run.execution
    if execution is not None and execution.published is not None and (published := run.take_published()):
        return replace(move, published=published)
    # Also an empty write takes the mark of news off a task.
    says_nothing = isinstance(move.ending, Keep) and not move.delivered and not move.opened
    return None if says_nothing and run.task.unseen_since is None else move


def _decide_forward_move(run: TaskRun, came: tuple[Came, ...], now: Instant, around: Surroundings) -> Move:
    came = tuple(item for item in came if not _is_overtaken(run, item)) if run.signals else came
    for item in came:
        _deliver(run, item)
    delivered: tuple[Delivered, ...] = (*came, *give_signals(run, now)) if run.signals else came
    replies = tuple(map(build_reply, run.take_replies()))
    end = run.end()
    if end is not None and replies:
        return Move(delivered, replies)  # first what the code has said, then its end
    limit = run.task.complete_by
    if limit is not None and limit <= now and not isinstance(end, Raised):
        # A busy task moves on before the Supervisor's word arrives; so the one who drives it looks at the clock too.
        return Move(delivered) if delivered else Move(ending=on_limit_passed(run.loaded))
    if end is None:
        opened = replies + build_first_requests(run, around)
        if run.broken is None:
            if not opened or opened[-1].kind is not StepKind.TIMER:
                return Move(delivered, opened)
            return Move(delivered, opened, _decide_after_timers(run, delivered, opened, now, around.linger_seconds))
        end = Raised(run.broken)
    if isinstance(end, Raised) and delivered:
        return Move(delivered)  # first the results, then the decision from what is recorded
    just_ended = {item.step_no for item in delivered if not _is_retry(item)}
    return Move(delivered, (), decide_ending(run, end, just_ended) or Keep())


def decide_ending(run: TaskRun, end: Returned | Raised, just_ended: AbstractSet[int] = frozenset()) -> Ending | None:
    """Decide what becomes of a task whose code has ended; see ``on_code_ended``. ``just_ended``: steps that end with this move."""
    still_open = [step for step in run.steps.values() if _is_open_step(step) and step.step_no not in just_ended]
    return on_code_ended(end, run.output, run.loaded, still_open, run.unseen, run.kept_convoy_state)


def _deliver(run: TaskRun, item: Came) -> None:
    """Give the code one result, as its row will show it."""
    step = run.steps[item.step_no]
    if isinstance(item, ChildEnded) and step.kind is StepKind.COMPENSATION:
        return  # what undoes it has an effect and no result
    if isinstance(item, Fired):
        run.deliver(replace(step, state=StepState.COMPLETED, result=build_fired_result(step)), item.delivered_at)
    elif isinstance(item.outcome, Succeeded):
        run.deliver(replace(step, state=StepState.COMPLETED, result=item.outcome.result), item.delivered_at)
    elif not isinstance(item.outcome, RetryAsked):
        failure = msgspec.json.encode(item.outcome.failure).decode()
        run.deliver(replace(step, state=StepState.FAILED, failure=failure), item.delivered_at)


def _is_overtaken(run: TaskRun, item: Came) -> bool:
    """Returns True if the time of a wait is over, and a signal for it was sent before: that one counts."""
    step, execution = run.steps[item.step_no], run.execution
    if not isinstance(item, Fired) or not is_wait(step) or execution is None or execution.end is not None:
        return False
    return execution.is_waiting_for(step) and any(may_take(step, signal) for signal in run.signals)


def give_signals(run: TaskRun, now: Instant) -> Iterable[Signalled]:
    """Give the code what came for its waits, in the order of commits. What the code cannot read is set aside.

    Only a wait whose row is recorded takes a signal, and only while the code waits for it: it may have cancelled the wait.
    """
    while (found := _find_signals(run, now)) is not None:
        step, signals = found
        unfit = {one.number: run.find_unfit(replace(step, result=build_wait_result(step, [one]))) for one in signals}
        aside = [Signalled(step.step_no, number, now, why) for number, why in unfit.items() if why]
        left = {one.number for one in aside} or unfit.keys()
        run.signals = [one for one in run.signals if one.number not in left]
        if aside:
            yield from aside
        else:
            run.deliver(replace(step, state=StepState.COMPLETED, result=build_wait_result(step, signals)), now)
            first, *also = unfit
            yield Signalled(step.step_no, first, now, also=tuple(also))


def _find_signals(run: TaskRun, now: Instant) -> tuple[StepRow, list[SignalRow]] | None:
    """Find the first wait of the code that has what it waits for, and those signals."""
    if not run.signals or run.execution is None or run.execution.end is not None or run.broken is not None:
        return None
    waits = [step for step in run.steps.values() if is_wait(step) and step.state is StepState.PENDING]
    open_waits = [step for step in waits if run.execution.is_waiting_for(step)]
    return find_ready_wait(sorted(open_waits, key=lambda step: step.ordinal), run.signals, now)


def build_reply(asked: RequestedStep) -> NewStep:
    """Build the row of a reply to a request."""
    kind, name, key = asked.identity
    return NewStep(kind=kind, name=name, key=key, arguments=asked.arguments, replies_to=asked.replies_to)


def _is_retry(item: Delivered) -> bool:
    """Returns True if the step stays open: it is tried again, or its wait has passed over a value that does not fit."""
    if isinstance(item, Signalled):
        return bool(item.unfit)
    return isinstance(item, Reported) and isinstance(item.outcome, RetryAsked)


def _is_open_step(step: StepRow) -> bool:
    return step.state in STEP_OPEN and step.kind is not StepKind.TIMER


# --- opening
def build_first_requests(run: TaskRun, around: Surroundings) -> tuple[NewStep, ...]:
    """Build the requests for the steps and timers that the code has asked for. An unknown step breaks the run: none then."""
    opened: list[NewStep] = []
    for asked in run.take_requests():
        if asked.call is not None and asked.definition not in around.known_code:
            run.broken = build_unknown_code_failure(asked)
            return ()
        before = None if run.earlier is None else run.earlier.find(asked)
        try:
            if before is None:
                opened.append(build_new_step(asked, run.task, around.store_id))
            else:
                opened.append(build_reopened_step(asked, before, run.task, around.store_id, around.providers))
        except KeyFunctionFailed as error:
            run.broken = TaskFailure(
                "bug", str(error), code=error.code, trace=capture_traceback(error.__cause__ or error)
            )
            return ()
    return tuple(opened)


def build_unknown_code_failure(asked: RequestedStep) -> TaskFailure:
    """Build the failure of a task whose code asks for a step or workflow that its App does not have."""
    if asked.identity[0] is StepKind.CHILD:
        name = asked.identity[1]
        reason = f"workflow {name} is not in this App: declare it by @app.workflow, or give it in App(workflows=[...])"
        return TaskFailure("bug", reason, name, "unknown_workflow")
    step = asked.call.step
    reason = f"step {step.name} of Agent {step.agent.name} is not in this App: add the Agent to it by App(agents=[...])"
    return TaskFailure("bug", reason, step.name, "unknown_step")


def build_new_step(asked: RequestedStep, task: TaskRow, store_id: str) -> NewStep:
    """Build the request for a step or timer of workflow code; ``take`` is decided later."""
    kind, name, key = asked.identity
    if kind is StepKind.TIMER:
        return NewStep(kind=kind, name=name, key=key, arguments=asked.arguments, fire_at=asked.fire_at)
    if kind is StepKind.CHILD:
        return _build_child_step(asked, task)
    call: StepCall[object] = asked.call
    of_workflow = decode_task_policy(task.policy).supervision
    if call.changed is NO_OPTIONS:
        policy, policy_text = resolve_step_policy(call.step, of_workflow)
    else:
        policy = resolve_call_policy(call, of_workflow)
        policy_text = encode_policy(policy)
    undone_by = call.step.undone_by
    # A new task has no number yet: the store makes the keys.
    step_key = build_idempotency_key(store_id, task.task_no, task.incarnation, kind, name, key) if task.task_no else ""
    return NewStep(
        kind=kind,
        name=name,
        key=key,
        agent=call.step.agent.name,
        arguments=asked.arguments,
        policy=policy_text,
        idempotency_key=step_key,
        pivot=call.step.pivot if call.changed.pivot is None else call.changed.pivot,
        effect_free=call.step.effect_free,
        compensation=None if undone_by is None else undone_by.policy_text,
        complete_within=policy.complete_within,
        wait_within=policy.wait_within,
        target=compute_target(call.step, asked.arguments) if call.step.agent.breaker_key else "",
        limit_keys=compute_limit_keys(call.step, asked.arguments) if call.step.agent.limits else None,
        routing=INTERCHANGEABLE if call.step.interchangeable else "",
    )


def _build_child_step(asked: RequestedStep, task: TaskRow) -> NewStep:
    kind, name, key = asked.identity
    call: WorkflowCall[object] = asked.call
    policy = encode_policy(resolve_child_policy(call, decode_task_policy(task.policy).supervision))
    compensation = None if call.child.is_detached else policy
    return NewStep(kind=kind, name=name, key=key, arguments=asked.arguments, policy=policy, compensation=compensation)


def build_reopened_step(
    asked: RequestedStep,
    before: StepRow,
    task: TaskRow,
    store_id: str,
    providers: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> NewStep:
    """Build the request for a step of a resubmitted task that was withdrawn or set back and is asked for again."""
    fire_at = before.not_before if asked.call is None else None
    # An operator may have edited the row's arguments. Those are sent, so they decide the target and the keys of limits.
    new = build_new_step(replace(asked, arguments=before.arguments), task, store_id)
    if asked.call is None or new.kind is StepKind.CHILD:
        return replace(new, reopens=before.step_no, fire_at=fire_at)
    within = grow_complete_within(decode_step_policy(new.policy), before.attempt)
    new = replace(new, reopens=before.step_no, complete_within=within)
    return stay_with_agent(new, before, providers.get(new.agent, ()))


# --- the end
def on_code_ended(
    end: Returned | Raised,
    output: str | None,
    loaded: Loaded,
    open_steps: Sequence[StepRow],
    unseen: Iterable[Identity] = (),
    convoy_state: str | None = None,
) -> Ending | None:
    """Decide what becomes of a task whose code has ended.

    Args:
        end: how.
        output: what it returned, as JSON text; None when it raised.
        loaded: task and steps as recorded.
        open_steps: steps that are still pending or running.
        unseen: steps whose results came after the code had ended.
        convoy_state: what the code wants to be kept of its convoy, as JSON text.
    Returns: None while a step the code did not wait for is open; else Process, Continue, BeginUndo or Hold by the policies.
    """
    if isinstance(end, Returned):
        if open_steps:
            return None
        if end.continues is not None:
            from .runs import decide_next_run  # only who continues pays for loading it

            return decide_next_run(end.continues, loaded, convoy_state)
        assert output is not None
        return Process(output, convoy_state)
    failed = {identify_step(step): step for step in loaded.life if step.state is StepState.FAILED}
    left_by = [failed[identity] for identity in end.steps if identity in failed]
    again = {*end.steps, *end.behind, *unseen}
    redo = tuple(step.ordinal for identity, step in failed.items() if identity in again)
    thens = {"hold" if is_unreadable(step) else read_step_policy(step).supervision.then for step in left_by}
    failure = replace(end.failure, redo=redo)
    return on_task_failed(loaded, failure, step_then="hold" if "hold" in thens else None)


# --- timers, and putting down
def list_pending_timers(run: TaskRun) -> list[StepRow]:
    """List the timers that have not fired, of a task whose code goes forward."""
    timers: list[StepRow] = []
    if run.task.state is TaskState.PROCESSING:
        for step in run.steps.values():
            if step.kind is StepKind.TIMER and step.state is StepState.PENDING:
                timers.append(step)
    return timers


def list_due_timers(timers: Iterable[StepRow], now: Instant) -> list[Fired]:
    """List the timers whose time has come, earliest first."""
    due = [timer for timer in timers if timer.not_before is not None and timer.not_before <= now]
    return [Fired(timer.step_no, now) for timer in sorted(due, key=lambda step: (step.not_before or 0, step.ordinal))]


def _decide_after_timers(
    run: TaskRun, delivered: tuple[Delivered, ...], opened: tuple[NewStep, ...], now: Instant, linger_seconds: float
) -> Keep | PutDown:
    """Decide whether a task that opens timers, and only sleeps from here on, is put down in the same commit."""
    if any(new.kind is not StepKind.TIMER for new in opened):
        return Keep()
    ended = {item.step_no for item in delivered if not (isinstance(item, Signalled) and item.unfit)}
    if run.signals:
        return Keep()  # what the new waits may take has come already
    waits = [new.fire_at for new in opened if new.fire_at is not None]
    for step in run.steps.values():
        if step.step_no in ended or step.state not in STEP_OPEN:
            continue
        if step.kind is not StepKind.TIMER:
            return Keep()
        if step.not_before:
            waits.append(step.not_before)
    soonest = min(waits, default=None)
    is_far = soonest is None or seconds_between(now, soonest) > linger_seconds
    return PutDown(soonest) if is_far else Keep()


def decide_put_down(steps: Iterable[StepRow], now: Instant, linger_seconds: float) -> PutDown | None:
    """Decide whether an idle task is put down: no attempt runs, and its next timer lies further off than ``linger_seconds``.

    A request that waits for an Agent keeps no task: its report wakes it, and while it waits others may be driven.

    Args:
        steps: of the task. The caller makes sure that none of their attempts runs in this process.
        now: the store's clock.
    Returns: PutDown with the time of its earliest timer (None: only a report wakes it); None: keep it.
    """
    soon = later(now, linger_seconds)
    timers: list[Instant] = []
    for step in steps:
        if step.state is StepState.RUNNING and not step.is_of_child:
            return None
        if step.state is StepState.PENDING and step.kind is StepKind.TIMER and step.not_before is not None:
            if step.not_before <= soon:
                return None
            timers.append(step.not_before)
    return PutDown(min(timers, default=None))
