"""Rules of leases: how long a holder may trust one, when it renews, and who may free what another process held."""

from collections.abc import Collection, Iterable
from enum import StrEnum

import msgspec

from ..errors import DefinitionError
from ..model import MICROSECONDS, TASK_OPEN, Instant, Loaded, StepRow, StepState, TaskRow, later
from ..model.commands import FreeTask
from ..model.failures import TaskFailure
from ..model.leases import LeaseHolder, LeaseRow
from ..model.processes import ProcessAbout, ProcessRow
from ..text.format import format_count

_read_about = msgspec.json.Decoder(ProcessAbout).decode

SUPERVISORS = "supervisor"  # the lease that two may hold without harm: each write is guarded by its term
TERM_UNKNOWN = -1  # of a lease whose row cannot be read
PROBATION_FROM = 2  # losses from which a task is handled alone
HELD_FROM = 3  # losses at which it is held, unless a setting says more
UNCHARGED_LOSSES_MAX = 3  # of one step with processes that were asked to end; rolling restarts in a row are fewer
MARGIN_SHARE = 0.2  # of a lease's length: what clocks may drift and a request may take


def compute_trusted_until(request_left_at: float, duration: float) -> float:
    """Return the time until which a holder may trust its lease, on its own monotonic clock.

    Args:
        request_left_at: monotonic seconds just before the successful renewal's request left.
        duration: the lease's length in seconds.
    """
    return request_left_at + duration * (1 - MARGIN_SHARE)


def is_alive(process: ProcessRow, role: str, now: Instant) -> bool:
    """Returns True if a process runs a role, as far as its lease shows."""
    return not process.retired and process.lease_until > now and role in read_process_about(process).roles


def read_process_about(process: ProcessRow) -> ProcessAbout:
    """Read what a process reports that it runs; empty if an older release wrote it."""
    return _read_about(process.about)


def is_on_probation(task: TaskRow) -> bool:
    """Returns True if processes died with the task frequently enough that it must be handled alone."""
    return task.lost_count >= PROBATION_FROM


def may_retire(now: Instant, lease_until: Instant, *, known_dead: bool, nobody_frees_until: Instant) -> bool:
    """Returns True if a process may be declared lost.

    Args:
        now: the store's clock.
        lease_until: its lease.
        known_dead: the operating system says that it no longer exists.
        nobody_frees_until: after a time when nobody could write all leases look lapsed; until then only the dead count.
    """
    return known_dead or (lease_until <= now and now >= nobody_frees_until)


def is_retirable(process: ProcessRow, now: Instant, *, known_dead: bool) -> bool:
    """Returns True if a process may still be declared lost: not retired, and its lease lapsed or it is known to be dead."""
    return not process.retired and (known_dead or process.lease_until <= now)


def compute_nobody_frees_until(
    known: Instant, last_renewal_at: Instant | None, now: Instant, lease_seconds: float
) -> Instant:
    """Return the time until which nobody may free what others hold, after a renewal.

    When no process renewed for longer than a lease, nobody could reach the store: all leases look lapsed, and their holders
    live. Each of them gets the time of one lease to renew.

    Args:
        known: what was kept before.
        last_renewal_at: when any process renewed last; None: nobody ever did.
        now: the store's clock.
    """
    if last_renewal_at is not None and now > later(last_renewal_at, lease_seconds):
        return later(now, lease_seconds)
    return known


def is_held(lease: LeaseRow, now: Instant) -> bool:
    """Returns True if a process holds a lease that has not lapsed."""
    return lease.holder is not None and lease.until > now


def is_led_by_another(lease: LeaseRow, holder: LeaseHolder, now: Instant) -> bool:
    """Returns True if another process holds a lease that has not lapsed. The one who it was taken from counts as another process."""
    return is_held(lease, now) and (lease.holder != holder or bool(lease.broken_by))


def grant_lease(
    lease: LeaseRow, holder: LeaseHolder, now: Instant, seconds: float, first_term: int = 1
) -> LeaseRow | None:
    """The lease as it stands once a caller has asked for it; None: another one holds it.

    ``first_term``: of the store's epoch. Terms that may have been granted before a restore are not granted again.

    A holder whose lease has not lapsed keeps its term. For anybody else the term grows, so that writes of an earlier leader
    are recognized. It grows also for a holder whose lease has lapsed, because others may have led meanwhile.
    """
    if is_led_by_another(lease, holder, now):
        return None
    until, duration = later(now, seconds), later(Instant(0), seconds)
    if lease.holder == holder and lease.until > now:
        return msgspec.structs.replace(lease, until=until, duration=duration)
    return LeaseRow(lease.name, _compute_next_term(lease, now, first_term), holder, until, duration, now)


def _compute_next_term(lease: LeaseRow, now: Instant, first_term: int) -> int:
    """Compute the term after all that were granted before.

    If the last one is unknown, because the row could not be read, it is higher than any: no lease is granted more than
    once a second, and the first terms of the next epoch lie above.
    """
    if lease.term == TERM_UNKNOWN:
        return first_term + now // MICROSECONDS
    return max(lease.term + 1, first_term)


def prolong_lease(lease: LeaseRow, holder: LeaseHolder, term: int, now: Instant, seconds: float) -> LeaseRow | None:
    """The lease prolonged for its holder in its term; None: it is another's, was broken, or has lapsed."""
    if (lease.holder, lease.term) != (holder, term) or lease.until <= now or lease.broken_by:
        return None
    return msgspec.structs.replace(lease, until=later(now, seconds))


def release_lease(lease: LeaseRow, holder: LeaseHolder, term: int) -> LeaseRow | None:
    """The lease without its holder; None: it is another's by now. A holder that it was taken from may still give it back."""
    if (lease.holder, lease.term) != (holder, term):
        return None
    return msgspec.structs.replace(lease, holder=None)


def break_lease(lease: LeaseRow, now: Instant, actor: str, reason: str, *, at_once: bool) -> LeaseRow | None:
    """The lease once an operator has taken it from its holder; None: nobody holds it.

    Args:
        at_once: it is free now. Else it stays taken until it lapses, because its holder trusts it until shortly before.
    """
    if lease.holder is None or lease.until <= now:
        return None
    until = now if at_once else lease.until
    return msgspec.structs.replace(lease, until=until, broken_by=actor, broken_reason=reason)


def mark_as_leaving(about: str) -> str:
    """Return the report of a process about itself after it was asked to end."""
    return msgspec.json.encode(msgspec.structs.replace(_read_about(about), leaving=True)).decode()


def on_process_lost(
    held: Iterable[Loaded],
    process_no: int,
    actor: str,
    *,
    was_leaving: bool = False,
    held_from: int = HELD_FROM,
    pulled: Collection[str] = (),
) -> list[FreeTask]:
    """Free what a lost process held: no attempt is spent, but each task that may have been the cause counts the loss.

    A task may have been the cause if an attempt of it ran there, or if its code had news to handle. A task that only waited
    was not, nor one whose request was there for a program to fetch: no code of the task ran for that. If a task on probation
    is among them, only it is charged: it was handled alone, to find this out.

    Args:
        held: tasks held by the process, or with a step running there.
        process_no: the lost (retired) process.
        actor: who frees.
        was_leaving: the process had been asked to end, for example by SIGTERM. Then no task is to blame, except one with a
            running step that was lost ``UNCHARGED_LOSSES_MAX`` times: it could kill one process after another.
        held_from: losses at which a task is held, at least ``PROBATION_FROM + 1``.
        pulled: Agents whose requests programs outside of Python fetch from the process.
    Returns: one command per task.
    """
    tasks = list(held)
    active = [loaded for loaded in tasks if _was_active(loaded, process_no, pulled)]
    if was_leaving:
        active = [loaded for loaded in active if _is_lost_again_and_again(loaded, process_no)]
    suspects = [loaded for loaded in active if is_on_probation(loaded.task)] or active
    charged = {loaded.task.task_no for loaded in suspects}
    return [
        _free(loaded, process_no, actor, charged=loaded.task.task_no in charged, held_from=held_from)
        for loaded in tasks
    ]


def _was_active(loaded: Loaded, process_no: int, pulled: Collection[str]) -> bool:
    task = loaded.task
    handles_news = task.locked_by == process_no and task.unseen_since is not None
    return handles_news or any(_runs_at(step, process_no) and step.agent not in pulled for step in loaded.steps)


def _is_lost_again_and_again(loaded: Loaded, process_no: int) -> bool:
    return any(_runs_at(step, process_no) and step.lost_count >= UNCHARGED_LOSSES_MAX for step in loaded.steps)


def _runs_at(step: StepRow, process_no: int) -> bool:
    return step.state is StepState.RUNNING and step.locked_by == process_no


def _free(loaded: Loaded, process_no: int, actor: str, *, charged: bool, held_from: int) -> FreeTask:
    task = loaded.task
    steps = tuple((s.step_no, s.fence) for s in loaded.steps if _runs_at(s, process_no))
    return FreeTask(
        actor=actor,
        task_no=task.task_no,
        fence=task.fence if task.locked_by == process_no else None,
        steps=steps,
        lost_by=process_no,
        stuck_since=None,
        charged=charged,
        hold=_build_lost_failure(task, held_from) if charged else None,
        held_from=held_from,
    )


def on_stuck(loaded: Loaded, actor: str, term: int, held_from: int = HELD_FROM) -> FreeTask:
    """Free a task whose holder lives but has not advanced it in time: counted as lost, its attempts continue."""
    task = loaded.task
    return FreeTask(
        actor=actor,
        task_no=task.task_no,
        fence=task.fence,
        steps=(),
        lost_by=None,
        stuck_since=task.unseen_since,
        charged=True,
        hold=_build_lost_failure(task, held_from),
        held_from=held_from,
        term=term,
    )


def _build_lost_failure(task: TaskRow, held_from: int) -> TaskFailure | None:
    if task.lost_count + 1 < held_from or task.state not in TASK_OPEN:
        return None
    return TaskFailure(
        "lost", f"{format_count(task.lost_count + 1, 'process')} died or froze while they held it", code="lost"
    )


RENEWALS_PER_DURATION = 3.5  # less than a third of the duration, so that two renewals may fail
RENEW_SECONDS_MAX = 20.0  # also of a lease without an end, so that a break is seen
RETRY_SHARE = 0.05  # of the duration, between two tries of a renewal that got no answer
RETRY_SECONDS_MAX = 2.0
POLL_SHARE = 0.1  # of the duration, between two looks whether the lease is free
POLL_SECONDS_MAX = 1.0
POLL_SECONDS_MIN = 0.05
FOREVER = float("inf")


class LeadershipEnd(StrEnum):
    """Reason for the end of a term."""

    RELEASED = "released"  # the work ended, or was asked to stop
    REFUSED = "refused"  # the provider says that the lease is another's, was broken, or has lapsed
    UNRENEWED = "unrenewed"  # no renewal was answered within the trust window
    HUNG = "hung"  # the work gave no proof of progress
    DISCONNECTED = "disconnected"  # the provider ended the session


class LeadershipSettings(msgspec.Struct, frozen=True):
    """Settings of a lease, in seconds.

    Args:
        duration: of the lease; None: it has no end, and only an operator's break frees it from a holder that died.
        progress_within: renewal stops if the work gave no proof of progress for so long; None: it needs none.
        renew_every: between two renewals.
        poll_every: between two looks whether the lease is free.
    """

    duration: float | None
    progress_within: float | None
    renew_every: float
    poll_every: float

    @property
    def retry_every(self) -> float:
        """Seconds until a renewal that got no answer is tried again."""
        return RETRY_SECONDS_MAX if self.duration is None else min(RETRY_SECONDS_MAX, self.duration * RETRY_SHARE)


class Belief(msgspec.Struct, frozen=True):
    """Knowledge of a holder about its lease; instants on its own monotonic clock.

    Args:
        trusted_until: it must not act as the leader from then on.
        renewed_at: when the request of the last successful renewal left.
        is_suspended: the connection to the provider is interrupted: no trust until a renewal succeeds.
    """

    trusted_until: float
    renewed_at: float
    is_suspended: bool = False


def build_settings(duration: float | None, progress_within: float | None, name: str) -> LeadershipSettings:
    """Build the settings of a mutex. Raises DefinitionError - they cannot work.

    Args:
        duration: of the lease, seconds above 0; None: no end.
        progress_within: seconds; None: no proof of progress is needed.
        name: of the lease, for the message.
    """
    length = FOREVER if duration is None else duration
    renew_every = min(RENEW_SECONDS_MAX, length / RENEWALS_PER_DURATION)
    if progress_within is not None and progress_within <= renew_every:
        raise DefinitionError(
            f"lease {name!r}: progress_within is {progress_within:g} s, but the lease is renewed every {renew_every:.3g} s:"
            f" a proof of progress must be allowed to take longer than that; give more than {renew_every:.3g} s"
        )
    poll_every = max(POLL_SECONDS_MIN, min(POLL_SECONDS_MAX, length * POLL_SHARE))
    return LeadershipSettings(duration, progress_within, renew_every, poll_every)


def begin_belief(request_left_at: float, settings: LeadershipSettings) -> Belief:
    """The belief after a grant or a renewal whose request left at that time."""
    if settings.duration is None:
        return Belief(FOREVER, request_left_at)
    return Belief(compute_trusted_until(request_left_at, settings.duration), request_left_at)


def suspend(belief: Belief) -> Belief:
    """The belief while the connection to the provider is interrupted."""
    return msgspec.structs.replace(belief, is_suspended=True)


def is_trusted(belief: Belief, now: float) -> bool:
    """Returns True if a holder may act as the leader."""
    return not belief.is_suspended and now < belief.trusted_until


def has_ended(belief: Belief, now: float) -> bool:
    """Returns True if the trust window is over. An interrupted connection alone does not end it: it may come back."""
    return now >= belief.trusted_until


def is_hung(settings: LeadershipSettings, progress_at: float, now: float) -> bool:
    """Returns True if the work gave no proof of progress in time. ``progress_at``: when it gave the last one."""
    return settings.progress_within is not None and now - progress_at > settings.progress_within


def compute_next_renewal(belief: Belief, settings: LeadershipSettings, now: float, *, is_answered: bool) -> float:
    """Seconds until the next renewal leaves; 0: immediately.

    Args:
        is_answered: the last renewal got an answer; else it is tried again soon.
    """
    if belief.is_suspended or not is_answered:
        return min(settings.retry_every, max(0.0, belief.trusted_until - now))
    return max(0.0, belief.renewed_at + settings.renew_every - now)  # well within the trust: see RENEWALS_PER_DURATION


def compute_margin(duration: float) -> float:
    """Seconds before the end of a lease from which its holder no longer trusts it."""
    return duration * MARGIN_SHARE
