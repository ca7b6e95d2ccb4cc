"""Decisions about an attempt that failed or expired, and about a task that cannot go on. One policy, whoever applies it.

The reporter of a failed attempt and the Supervisor that finds an expired one decide by the same functions, from the
policy in the row; so a decision never waits for the leader, and the leader needs no user code.
"""

from functools import lru_cache

import msgspec

from ..commands import BeginUndo, GaveUp, Hold, Outcome, RetryAsked
from ..failures import StepFailure, TaskFailure
from ..model import Instant, Loaded, StepKind, StepRow, StepState, later
from ..policies import StepPolicy, TaskPolicy
from .backoff import attempt_delay

_read_step_policy = msgspec.json.Decoder(StepPolicy).decode
_read_task_policy = msgspec.json.Decoder(TaskPolicy).decode


GROWN_SECONDS_MAX = 86_400.0  # of later attempts that get more time than the first
POLICIES_KEPT = 4_096  # as read from the text in a row: thousands of rows have the same few


def read_step_policy(step: StepRow) -> StepPolicy:
    """Read the policy in the step's row."""
    return decode_step_policy(step.policy)


@lru_cache(POLICIES_KEPT)
def decode_step_policy(text: str) -> StepPolicy:
    """Decode a step's policy from its text."""
    return _read_step_policy(text)


@lru_cache(POLICIES_KEPT)
def decode_task_policy(text: str) -> TaskPolicy:
    """Decode a task's policy from its text."""
    return _read_task_policy(text)


def grow_complete_within(policy: StepPolicy, attempt: int) -> float:
    """Return the seconds of an attempt: ``complete_within`` for the first one, more for later ones by the policy's factor.

    Growth ends at a day: a longer silence than that is for a person, not for a longer wait.
    """
    factor = policy.supervision.complete_within_factor
    if factor == 1.0 or attempt <= 1:
        return policy.complete_within
    try:
        grown = policy.complete_within * factor ** (attempt - 1)
    except OverflowError:
        grown = GROWN_SECONDS_MAX
    return max(policy.complete_within, min(grown, GROWN_SECONDS_MAX))


def compute_complete_within(step: StepRow) -> float:
    """Return the seconds of an attempt of a step.

    A canary gets no more for attempts that failed in the outage: it is to find out soon if the service is well.
    """
    attempt = step.attempt if not step.is_canary else min(step.attempt, step.failure_count + 1)
    return grow_complete_within(read_step_policy(step), attempt)


def on_attempt_failed(
    step: StepRow,
    failure: StepFailure,
    now: Instant,
    *,
    in_doubt: bool,
    jitter: float,
    retry_after: float | None = None,
) -> Outcome:
    """Decide what becomes of a step whose attempt failed.

    Args:
        step: in RUNNING; its ``failure_count`` does not count this attempt yet.
        failure: ``permanent`` ends the step whatever is left.
        now: the store's clock.
        in_doubt: a try of this attempt ended without a sure answer.
        jitter: in [0, 1); 0 gives the shortest delay.
        retry_after: seconds the service asked for, if it did.
    Returns: RetryAsked with its ``not_before``, after a cool-off when a round is spent; GaveUp when no round is left.
    Source: Scheduler Agent Supervisor pattern (retry count, then wait, then undo).
    """
    doubt = in_doubt or step.in_doubt
    if failure.cause == "permanent":
        return GaveUp(failure, doubt)
    supervision = read_step_policy(step).supervision
    failed = step.failure_count + 1
    rounds_spent, in_round = divmod(failed, supervision.attempts)
    if in_round:
        delay = max(attempt_delay(in_round, jitter=jitter), retry_after or 0.0)
        return RetryAsked(failure, doubt, later(now, delay))
    if rounds_spent < supervision.rounds:
        delay = max(supervision.cool_off_seconds(), retry_after or 0.0)
        return RetryAsked(failure, doubt, later(now, delay), cool_off=True)
    return GaveUp(failure, doubt)


def on_overdue(step: StepRow, now: Instant, *, jitter: float, why: StepFailure | None = None) -> Outcome:
    """Decide what becomes of a running step whose ``complete_by`` has passed.

    A silent Agent in a live process may be slow or stuck; nobody can tell, so the attempt is spent and in doubt. (A
    lost process is freed elsewhere and costs no attempt.)

    Args:
        step: in RUNNING, with ``complete_by <= now``.
        now: the store's clock, read once for the whole pass.
        jitter: in [0, 1).
        why: what is known of the reason; None: nothing.
    Returns: as ``on_attempt_failed``.
    """
    failure = why or StepFailure("expired", f"no answer within its time (attempt {step.attempt})", "expired")
    return on_attempt_failed(step, failure, now, in_doubt=True, jitter=jitter)


def on_starved(step: StepRow) -> Outcome:
    """Decide what becomes of a request that no Agent took within ``wait_within``: the step failed.

    Returns: GaveUp; in doubt only if an earlier attempt left it so.
    """
    return GaveUp(StepFailure("expired", "no Agent took it within wait_within", "not_taken"), step.in_doubt)


def find_pivot(steps: tuple[StepRow, ...]) -> StepRow | None:
    """Return the first pivot that is completed or in doubt; the task is not undone past it. None: there is none.

    One that is being attempted bars nothing yet: the undo waits for its end, and then asks again.
    """
    for step in steps:
        if step.kind is StepKind.STEP and step.pivot and (step.state is StepState.COMPLETED or step.in_doubt):
            return step
    return None


def is_held_by_program(step: StepRow) -> bool:
    """Returns True if an attempt of a step is under way, and its program holds it."""
    return step.state is StepState.RUNNING and step.locked_by is None


def may_have_happened(step: StepRow) -> bool:
    """Returns True if a step may have happened: an attempt left it in doubt, or one is still running."""
    return step.state is not StepState.COMPLETED and (step.in_doubt or step.state is StepState.RUNNING)


def on_task_failed(loaded: Loaded, failure: TaskFailure, *, step_then: str | None) -> BeginUndo | Hold:
    """Decide what becomes of a task that cannot go forward: undo it, or hold it for a person.

    Args:
        loaded: the task and its steps, in the state the decision will be guarded by.
        failure: a step's, a refusal by the workflow, or its limit; bugs are always held.
        step_then: ``hold`` if a failed step's own policy says so; None for an end without a failed step.
    Returns: Hold if either policy says hold, or a pivot stands in the way (named); else BeginUndo.
    """
    if failure.kind not in ("step", "refused", "limit"):
        return Hold(failure)
    pivot = find_pivot(loaded.life)
    if pivot is not None:
        return Hold(build_pivot_failure(failure, pivot))
    if "hold" in (step_then, decode_task_policy(loaded.task.policy).supervision.then):
        return Hold(failure)
    return BeginUndo(failure)


def build_pivot_failure(failure: TaskFailure, pivot: StepRow) -> TaskFailure:
    """Build the failure of a task that its pivot keeps from being undone."""
    reason = f"{failure.reason} (not undone: step {pivot.label} is a pivot and has or may have happened)"
    return msgspec.structs.replace(failure, reason=reason)


def on_limit_passed(loaded: Loaded) -> BeginUndo | Hold:
    """Decide what becomes of a task whose own ``complete_within`` has passed."""
    return on_task_failed(
        loaded, TaskFailure("limit", "the workflow's complete_within has passed", code="limit"), step_then=None
    )
