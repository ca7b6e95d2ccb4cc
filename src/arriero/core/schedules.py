"""Decision about the due instants of a schedule: to run, to pass over, or to run late after a gap.

An instant is decided about once: the row says up to where. So it does not matter how often, how late and by how many leaders
a schedule is looked at. A run is a task whose id is the schedule's name and the instant, so it cannot be there twice either.
"""

import hashlib
from collections.abc import Callable

import msgspec

from ..errors import InvalidInput
from ..model import MICROSECONDS, Instant, later
from ..model.commands import Submit
from ..model.policies import ConvoyPolicy, TaskPolicy, encode_policy
from ..model.schedules import (
    FireSchedule,
    Overlap,
    ScheduleDeclaration,
    ScheduleRow,
    ScheduleState,
    Timing,
    encode_declaration,
    read_declaration,
)
from ..model.tags import encode_tags
from .placement import SCHEDULE_ACTOR, SCHEDULE_KEY
from .schedule_instants import (
    compute_jitter,
    count_between,
    find_last,
    find_next,
    format_run_id,
    iterate_instants,
    list_between,
)

# Of several instants that are due together only the last is run: the others would be passed over or cancelled.
LAST_RUN_ONLY = (Overlap.SKIP, Overlap.CANCEL_RUNNING)
RUNS_MAX = 1_000  # of one schedule in one pass; the rest follows in the next ones
# A leader is always a little late, and after a fail-over by some seconds: that is not what operators call a missed run.
LATE_SECONDS = 60
ACTOR = SCHEDULE_ACTOR
GRACE_SECONDS = 30  # that a due run waits for its code before operators are notified: a process restarts within it

_decode_policy = msgspec.json.Decoder(TaskPolicy).decode


class DueDecision(msgspec.Struct, frozen=True):
    """Decision about the instants in (``since``, ``until``]: ``runs`` are submitted, that many others are passed over.

    ``why``: they are: ``overlap`` or ``catch_up``. ``cancels``: the open run is to be cancelled first. ``owed_until``,
    ``next_at``, ``look_at``: of the row from now on.
    """

    since: Instant
    until: Instant
    runs: tuple[Instant, ...]
    passed_over: int
    why: str
    cancels: bool
    owed_until: Instant | None
    next_at: Instant | None
    look_at: Instant | None


def find_look_at(
    row: ScheduleRow, timing: Timing, jitter: int, after: Instant
) -> tuple[Instant | None, Instant | None]:
    """Find the first instant after one, and when the leader looks at it: the instant with its jitter."""
    next_at = find_next(timing, row.anchor, after)
    if next_at is None:
        return None, None
    return next_at, Instant(next_at + compute_jitter(timing, row.anchor, row.app, row.name, next_at, jitter))


def is_anything_due(row: ScheduleRow, declared: ScheduleDeclaration, now: Instant) -> bool:
    """Returns True if an instant of a schedule has come and is not decided, whatever its jitter."""
    if row.state is not ScheduleState.ACTIVE:
        return False
    try:
        following = find_next(declared.timing, row.anchor, row.decided_until)
    except InvalidInput:  # its zone is not known here: nothing of it can be run late
        return False
    return following is not None and following <= now


def decide_rest(row: ScheduleRow, now: Instant, *, is_open: bool) -> DueDecision:
    """Decide about what is due by a timing that is about to be replaced, also what waits for its jitter."""
    declared = read_declaration(row)
    at_once = encode_declaration(msgspec.structs.replace(declared, jitter=0))
    return decide_due(msgspec.structs.replace(row, declaration=at_once), now, is_open=is_open)


def decide_due(row: ScheduleRow, now: Instant, *, is_open: bool, runs_max: int = RUNS_MAX) -> DueDecision:
    """Decide what becomes of the instants that are due.

    Without ``catch_up``, and for an overlap of ``LAST_RUN_ONLY``, the last one is run, and none if ``catch_up`` calls it too old.
    Else those are run that ``catch_up`` does not call too old, and those that are owed. With a run that is open, ``skip`` runs none.

    Args:
        now: the store's clock.
        is_open: whether any run of the schedule has not ended.
        runs_max: how many may be run in this pass.
    Returns: a decision about no instant (``until`` equals ``since``) if none is due.
    """
    declared = read_declaration(row)
    timing, anchor, since = declared.timing, row.anchor, row.decided_until
    due_until = _find_due_until(row, declared, now)
    if due_until is None:
        next_at, look_at = find_look_at(row, timing, declared.jitter, since)
        return DueDecision(since, since, (), 0, "", False, row.owed_until, next_at, look_at)
    is_one_at_most = declared.catch_up is None or declared.overlap in LAST_RUN_ONLY
    is_barred = is_open and declared.overlap is Overlap.SKIP
    until, owed_until = due_until, None
    dropped_after, dropped_until = since, due_until  # instants in between are run by nobody
    if is_barred:
        runs: list[Instant] = []
    elif is_one_at_most:
        is_late = declared.catch_up is not None and due_until < _find_first_kept(declared, now)
        runs = [] if is_late else [due_until]
        dropped_until = due_until if is_late else Instant(due_until - 1)
    else:
        dropped_after, dropped_until = _find_dropped(row, declared, now, due_until)
        runs = list_between(timing, anchor, since, dropped_after, runs_max)
        runs += list_between(timing, anchor, dropped_until, due_until, runs_max - len(runs))
        if len(runs) == runs_max and runs[-1] < due_until:
            until = runs[-1]
            owed_until = row.owed_until if row.owed_until is not None and until < row.owed_until else due_until
    passed_over = count_between(timing, anchor, dropped_after, min(dropped_until, until))
    why = ("overlap" if is_barred else "catch_up") if passed_over else ""
    next_at, look_at = find_look_at(row, timing, declared.jitter, until)
    cancels = bool(runs) and is_open and declared.overlap is Overlap.CANCEL_RUNNING
    return DueDecision(since, until, tuple(runs), passed_over, why, cancels, owed_until, next_at, look_at)


def pass_over(decision: DueDecision) -> DueDecision:
    """The decision if the open run may not be cancelled: nothing is run beside it."""
    passed_over = decision.passed_over + len(decision.runs)
    return msgspec.structs.replace(decision, runs=(), passed_over=passed_over, why="overlap", cancels=False)


def _find_due_until(row: ScheduleRow, declared: ScheduleDeclaration, now: Instant) -> Instant | None:
    """Find the last instant that is due. One that waits for its jitter keeps those after it waiting: they stay in order."""
    timing, since = declared.timing, row.decided_until
    sure = Instant(max(since, now - declared.jitter))
    last = find_last(timing, row.anchor, since, sure)
    if not declared.jitter:
        return last
    for instant in iterate_instants(timing, row.anchor, sure):
        if instant + compute_jitter(timing, row.anchor, row.app, row.name, instant, declared.jitter) > now:
            break
        last = instant
    return last


def _find_first_kept(declared: ScheduleDeclaration, now: Instant) -> Instant:
    """Find since when instants are run late by ``catch_up``."""
    assert declared.catch_up is not None
    return Instant(now - declared.jitter - max(declared.catch_up, LATE_SECONDS * MICROSECONDS))


def _find_dropped(
    row: ScheduleRow, declared: ScheduleDeclaration, now: Instant, until: Instant
) -> tuple[Instant, Instant]:
    """Find the instants after which, and up to which, nothing is run late: what is not owed, and too old for ``catch_up``."""
    after = Instant(max(row.decided_until, min(until, row.owed_until or 0)))
    return after, Instant(max(after, _find_first_kept(declared, now) - 1))


def describe_missing_code(row: ScheduleRow, now: Instant) -> str:
    """Describe why a run that is due cannot be submitted: nobody alive has its code. Empty: it may be there again soon."""
    if now < later(row.next_at or now, GRACE_SECONDS):
        return ""
    workflow = read_declaration(row).workflow
    return f"no process alive of App {row.app!r} has the workflow {workflow!r}"


def describe_missing_approval(task_id: str, persons: int) -> str:
    """Describe why an open run cannot be cancelled: a schedule is not the operators that the settings ask for."""
    return f"run {task_id} is open, and the schedule may not cancel it: the settings ask for {persons} persons"


def build_run(row: ScheduleRow, instant: Instant, policy: str, seed: int) -> Submit:
    """Build the submission of one run.

    Args:
        policy: of the workflow, as the newest process says it.
        seed: of the task's random numbers.
    """
    declared = read_declaration(row)
    settled = _decode_policy(policy)
    convoy = None
    if declared.overlap is Overlap.QUEUE:
        convoy = name_convoy(row.app, row.name)
        # A run that fails permanently must not bar the next ones indefinitely.
        settled = msgspec.structs.replace(settled, convoy=ConvoyPolicy(head="skip"))
    return Submit(
        actor=ACTOR,
        task_id=format_run_id(row.app, row.name, instant),
        workflow=declared.workflow,
        arguments=declared.arguments,
        body_hash=hashlib.blake2b(declared.arguments.encode(), digest_size=16).hexdigest(),
        policy=encode_policy(settled) if convoy is not None else policy,
        priority=declared.priority,
        delay=0.0,
        complete_within=settled.complete_within,
        seed=seed,
        convoy=convoy,
        app=row.app,
        tags=encode_tags(declared.tags),
    )


def build_fire(
    row: ScheduleRow,
    decision: DueDecision,
    policy: str,
    draw: Callable[[int], int],
    *,
    actor: str,
    term: int | None,
) -> FireSchedule:
    """Build the command that writes a decision. ``draw``: random bits, for the seeds of the runs."""
    return FireSchedule(
        actor=actor,
        app=row.app,
        name=row.name,
        revision=row.revision,
        term=term,
        since=decision.since,
        until=decision.until,
        runs=decision.runs,
        submits=tuple(build_run(row, instant, policy, draw(62)) for instant in decision.runs),
        passed_over=decision.passed_over,
        why=decision.why,
        owed_until=decision.owed_until,
        next_at=decision.next_at,
        look_at=decision.look_at,
        cancels=decision.cancels,
    )


def name_convoy(app: str, name: str) -> str:
    """Name the convoy in which the runs of a schedule with ``overlap="queue"`` wait for their turn."""
    return f"{SCHEDULE_KEY}{app}/{name}"
