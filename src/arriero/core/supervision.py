"""Decisions about an attempt that failed or expired, and about a task that cannot continue. One policy, no matter who applies it.

The reporter of a failed attempt and the Supervisor that finds an expired one decide by the same functions, from the
policy in the row; so a decision never waits for the leader, and the leader needs no user code.
"""

from functools import lru_cache

import msgspec

from ..model import MICROSECONDS, Instant, Loaded, StepKind, StepRow, StepState, later
from ..model.failures import StepFailure, TaskFailure, read_step_failure
from ..model.moves import BeginUndo, GaveUp, Hold, Outcome, RetryAsked
from ..model.policies import StepPolicy, TaskPolicy


class RedispatchSlots:
    """The slots that one leader gave away, so that thousands of expired attempts do not reach a service at the same time.

    Time is divided into slots of ``1 / per_second`` seconds. Each recovered attempt takes the slot of its ``not_before``, or the
    next free one. So however many expire at the same time, at most ``per_second + 1`` of them become due in any second, and one that
    expires alone keeps the time that its policy gave it.

    The slots are those of one leader. Its successor does not know them, and needs no more than its own: an attempt that was
    recovered is no longer expired, so nobody places it again. While slots of both lie ahead, the rate is at most twice the
    stated one.

    Args:
        per_second: slots in a second, 1 or more.
    """

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._next: dict[int, int] = {}  # a taken slot -> one that may be free; never lower than the slot after it

    def take(self, not_before: Instant, *, jitter: float) -> Instant:
        """Take the slot of an instant, or the first free one after it.

        Args:
            not_before: when the attempt may come back by its policy.
            jitter: in [0, 1): where in a later slot it comes back.
        Returns: ``not_before`` if its slot was free; else an instant in a later slot.
        """
        wanted = not_before * self._per_second // MICROSECONDS
        free = self._find_free(wanted)
        self._next[free] = free + 1
        if free == wanted:
            return not_before
        start, end = self._start(free), self._start(free + 1)
        return Instant(start + int((end - start) * jitter))

    def forget_before(self, now: Instant) -> None:
        """Forget the slots that are over."""
        oldest = now * self._per_second // MICROSECONDS
        if any(slot < oldest for slot in self._next):
            self._next = {slot: after for slot, after in self._next.items() if slot >= oldest}

    def _find_free(self, slot: int) -> int:
        """Follow the taken slots to a free one. Each slot passed then points there, so that a mass is placed in linear time."""
        passed = []
        while slot in self._next:
            passed.append(slot)
            slot = self._next[slot]
        for taken in passed:
            self._next[taken] = slot
        return slot

    def _start(self, slot: int) -> int:
        """The first microsecond of a slot."""
        return -(-slot * MICROSECONDS // self._per_second)


DELAY_SECONDS_MAX = 60.0  # between attempts of one round; longer waits are what rounds and cool_off are for
ATTEMPT_DELAY_SECONDS = 0.5
JITTER_SHARE = 0.5  # up to half of a delay is chance, so that what failed together does not come back together


def retry_delay(tries_done: int, *, delay: float, factor: float, delay_max: float, jitter: float) -> float:
    """Seconds before the next try inside an attempt.

    Args:
        tries_done: tries that failed, 1 or more.
        delay, factor, delay_max: of the Retry policy; seconds.
        jitter: in [0, 1); 0 gives the shortest delay.
    Returns: between half of the grown delay and all of it, at most ``delay_max``.
    """
    grown = min(delay * factor ** min(tries_done - 1, 64), delay_max)
    return grown * (1 - JITTER_SHARE) + grown * JITTER_SHARE * jitter


def attempt_delay(failure_count: int, *, jitter: float) -> float:
    """Seconds before the next attempt of a round: doubles from half a second up to a minute.

    Args:
        failure_count: attempts of this round that failed, 1 or more.
        jitter: in [0, 1).
    """
    return retry_delay(failure_count, delay=ATTEMPT_DELAY_SECONDS, factor=2, delay_max=DELAY_SECONDS_MAX, jitter=jitter)


GROWTH = 2.0  # of the period with each pass that found nothing: from 0.25 s to 2 s in three passes


def choose_period(
    last: float, *, found_overdue: bool, next_deadline_in: float | None, period_min: float, period_max: float
) -> float:
    """Choose the seconds until the next pass.

    Args:
        last: seconds before the pass that just ended.
        found_overdue: it found something to decide, or waits for an answer to a decision.
        next_deadline_in: seconds until the earliest known deadline; None: none is known.
        period_min, period_max: the bounds; a maximum below the minimum counts as the minimum.
    Returns: at least ``period_min``, and at most ``period_max``: an attempt that begins just after the pass and expires
        immediately is not known, and waits no longer than that.
    """
    if found_overdue:
        return period_min
    grown = max(min(last * GROWTH, period_max), period_min)
    return grown if next_deadline_in is None else min(grown, max(next_deadline_in, period_min))


_read_step_policy = msgspec.json.Decoder(StepPolicy).decode
_read_task_policy = msgspec.json.Decoder(TaskPolicy).decode


REFUSED_ARGUMENTS = "refused_arguments"  # code of a failure: the code cannot read what was recorded for it
READ_REMEDY = (
    "give its new fields a default, declare an @arriero.upcast for its type, or run the release that recorded it"
)
NEVER_AGAIN = ("unrecordable_result",)  # codes of failures that another attempt would not mend
GROWN_SECONDS_MAX = 86_400.0  # of later attempts that get more time than the first
POLICIES_KEPT = 4_096  # as read from the text in a row: thousands of rows have the same few


def is_unreadable(step: StepRow) -> bool:
    """Returns True if a step failed because its Agent could not read the arguments: that is about the code, so nothing is undone."""
    return step.failure is not None and read_step_failure(step.failure).code == REFUSED_ARGUMENTS


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

    Growth ends at a day: a longer silence than that is for an operator, not for a longer wait.
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

    A canary gets no more for attempts that failed in the outage: it is to find out soon if the service is healthy. A running
    attempt keeps the time that it began with, whatever an operator has changed since.
    """
    attempt = step.attempt if not step.is_canary else min(step.attempt, step.failure_count + 1)
    policy = read_step_policy(step)
    if policy.began_with is not None and step.state is StepState.RUNNING and policy.began_with[0] == step.fence:
        return policy.began_with[1]
    return grow_complete_within(policy, attempt)


def on_attempt_failed(
    step: StepRow,
    failure: StepFailure,
    now: Instant,
    *,
    in_doubt: bool,
    jitter: float,
    retry_after: float | None = None,
) -> RetryAsked | GaveUp:
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
        return RetryAsked(failure, doubt, later(now, delay), retry_after=retry_after)
    if rounds_spent < supervision.rounds:
        delay = max(supervision.cool_off_seconds(), retry_after or 0.0)
        return RetryAsked(failure, doubt, later(now, delay), cool_off=True, retry_after=retry_after)
    return GaveUp(failure, doubt, retry_after)


def judge_again(step: StepRow, outcome: RetryAsked | GaveUp, now: Instant) -> RetryAsked | GaveUp:
    """Judge a failed attempt again by the limits in its row, if an operator has adjusted them: who reports it may know the old ones.

    Returns: ``outcome`` itself, if it is what the row's policy says.
    """
    failure = outcome.failure
    policy = read_step_policy(step)
    is_judged = step.state is StepState.RUNNING and failure.cause != "permanent" and failure.code not in NEVER_AGAIN
    if not policy.is_adjusted or not is_judged:
        return outcome
    again = on_attempt_failed(
        step, failure, now, in_doubt=outcome.in_doubt, jitter=JITTER_SHARE, retry_after=outcome.retry_after
    )
    if isinstance(again, RetryAsked) and isinstance(outcome, RetryAsked):
        return again if again.cool_off or outcome.cool_off else outcome
    return outcome if type(again) is type(outcome) else again


def on_overdue(step: StepRow, now: Instant, *, jitter: float, why: StepFailure | None = None) -> Outcome:
    """Decide what becomes of a running step whose ``complete_by`` has passed.

    A silent Agent in a live process may be slow or stuck; nobody can know, so the attempt is spent and in doubt. (A
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
    """Returns True if an attempt of a step is running, and its program holds it."""
    return step.state is StepState.RUNNING and step.locked_by is None


def may_have_happened(step: StepRow) -> bool:
    """Returns True if a step may have happened: an attempt left it in doubt, or one is still running."""
    return step.state is not StepState.COMPLETED and (step.in_doubt or step.state is StepState.RUNNING)


def on_task_failed(loaded: Loaded, failure: TaskFailure, *, step_then: str | None) -> BeginUndo | Hold:
    """Decide what becomes of a task that cannot go forward: undo it, or hold it for an operator.

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
