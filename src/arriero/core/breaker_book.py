"""Rules of the circuit breaker for the beginning and the end of an attempt.

A request is taken only if the breaker lets it through. While the breaker is not closed, every attempt that begins is a
canary: its row carries the breaker's fence, and its end is reported to the breaker in the commit that records it. An attempt
that fails in an outage is not charged, unless the policy of its step wants that.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from ..events import Event
from ..events.step import StepAttemptsReturned
from ..events.store import BreakerAnswered, BreakerClosed, BreakerOpened, BreakerProbed
from ..model import FAILED_IN_OUTAGE, Instant, StepRow, later
from ..model.agents import BreakerRow, BreakerState
from ..model.moves import GaveUp, Outcome, RetryAsked, Succeeded
from .breaker import (
    close_after_ramp,
    compute_retry_at,
    drop_burnt,
    end_canary,
    grant_canary,
    is_barred,
    is_request_to_blame,
    may_let_through,
)
from .changes import BreakerChange, BreakerRows
from .states import StepEvent, advance_step
from .supervision import compute_complete_within, read_step_policy

CHARGED_KEPT = 16  # instants of charged failures in a step's row: more than a round has attempts, by default

BreakerKey = tuple[str, str, str]  # App, Agent, target

decode_charged_instants = msgspec.json.Decoder(tuple[Instant, ...]).decode


class AdmittedAttempt(msgspec.Struct, frozen=True):
    """An attempt that may begin: the step's row, and what else is recorded. ``returned``: failures that no longer count."""

    step: StepRow
    events: tuple[Event, ...] = ()
    returned: int = 0


class BreakerBook:
    """Breakers as one command finds and changes them.

    Args:
        may_probe: False where no breaker can be changed: then nothing begins while a breaker is not closed.
    """

    def __init__(self, rows: BreakerRows, now: Instant, *, may_probe: bool = True) -> None:
        self._rows = rows
        self._now = now
        self._may_probe = may_probe
        self.changes: dict[BreakerKey, BreakerChange] = {}

    def find(self, step: StepRow) -> BreakerRow | None:
        """Find the breaker of a step's target. None: it is closed, and has been for long."""
        changed = self.changes.get((step.app, step.agent, step.target))
        return changed.row if changed is not None else find_breaker(self._rows.breakers(step.agent), step)

    # --- the begin
    def admit(self, step: StepRow) -> AdmittedAttempt | None:
        """Decide if an attempt of a due request may begin now.

        Returns: the step with what the breaker says of it; None: the request waits, and nothing of it is spent.
        """
        rows = self._rows.breakers(step.agent)
        if not rows and not self.changes:
            return AdmittedAttempt(step)  # nearly always
        if find_whole(rows, step) is not None:
            return None
        breaker = self.find(step)
        if breaker is None:
            return AdmittedAttempt(step)
        if is_barred(breaker, self._now):
            return None
        if breaker.state is BreakerState.CLOSED:
            return _return_attempts(step, breaker)
        if not self._may_probe:
            return None
        return self._admit_canary(step)

    def admit_moved(self, step: StepRow, agent: str) -> AdmittedAttempt | None:
        """Decide as ``admit`` if another Agent may begin the attempt. What an outage of its own Agent burnt is given back first."""
        before = self.find(step)
        given = AdmittedAttempt(step) if before is None else _return_attempts(step, before)
        begun = self.admit(replace(given.step, agent=agent))
        if begun is None:
            return None
        return AdmittedAttempt(begun.step, given.events + begun.events, given.returned + begun.returned)

    def _admit_canary(self, step: StepRow) -> AdmittedAttempt | None:
        breaker = self._lock(step)
        if breaker is None or is_barred(breaker, self._now):
            return None
        after = close_after_ramp(breaker, self._now)
        if after is not breaker:
            self._keep(after, BreakerClosed(*name_breaker(after)))
        if after.state is BreakerState.CLOSED:
            return _return_attempts(step, after)
        granted = grant_canary(after, self._now)
        if granted is None:
            return None
        self._keep(
            granted,
            BreakerProbed(
                *name_breaker(granted),
                task=step.task_no,
                step=step.ordinal,
                step_fence=step.fence + 1,
                wave=granted.wave,
                number=granted.granted,
            ),
        )
        begun = _return_attempts(step, granted)
        return replace(begun, step=replace(begun.step, canary=granted.fence))

    # --- the end
    def end(self, step: StepRow, outcome: Outcome | None) -> StepRow:
        """Record at the breaker how a canary ended.

        Args:
            outcome: None: unknown, because its process was lost or an operator stepped in.
        Returns: the step. One that was not answered goes behind those that have not failed; see ``Barred.failed``.
        """
        assert step.canary is not None
        breaker = self._lock(step)
        has_answered = None if outcome is None else not counts_as_failure(outcome)
        ended = replace(step, canary=None if has_answered else FAILED_IN_OUTAGE)
        if breaker is None:
            return ended
        # A cool-off is the policy of the step, not the word of the service.
        not_before = outcome.not_before if isinstance(outcome, RetryAsked) and not outcome.cool_off else None
        after = end_canary(breaker, step.canary, self._now, has_answered=has_answered, not_before=not_before)
        if after is breaker:
            return ended
        told = "lost" if has_answered is None else "answered" if has_answered else "failed"
        events: list[Event] = [
            BreakerAnswered(
                *name_breaker(breaker), task=step.task_no, step=step.ordinal, step_fence=step.fence, outcome=told
            )
        ]
        if after.state is BreakerState.OPEN:
            reason = f"a canary failed: {_message_of(outcome)}"
            events.append(BreakerOpened(*name_breaker(after), reason=reason, probe_at=after.probe_at))
        elif after.state is BreakerState.CLOSED:
            events.append(BreakerClosed(*name_breaker(after)))
        self._keep(after, *events)
        return ended

    def spare(self, step: StepRow, outcome: RetryAsked | GaveUp) -> RetryAsked | GaveUp:
        """Return the outcome of an attempt as it counts: one that failed in an outage is tried again and not charged.

        A canary is charged if the service answers others: else a request that always fails would never end.

        Args:
            step: as the attempt ran. The breaker has not taken in its end yet.
        """
        if not counts_as_failure(outcome):
            return outcome
        if not self.is_outage(step) or read_step_policy(step).supervision.charge_outages or self._is_to_blame(step):
            return outcome
        at = compute_retry_at(self._now)
        if isinstance(outcome, RetryAsked) and not outcome.cool_off:
            at = max(at, outcome.not_before)
        return RetryAsked(outcome.failure, outcome.in_doubt, at, is_charged=False)

    def _is_to_blame(self, step: StepRow) -> bool:
        breaker = self.find(step)
        return breaker is not None and step.canary is not None and is_request_to_blame(breaker, step.canary)

    def is_outage(self, step: StepRow) -> bool:
        """Returns True while the service of a step counts as down."""
        breaker = self.find(step)
        if breaker is not None and breaker.is_outage:
            return True
        whole = find_whole(self._rows.breakers(step.agent), step)
        return whole is not None and whole.is_opened_whole

    # --- rows
    def _lock(self, step: StepRow) -> BreakerRow | None:
        changed = self.changes.get((step.app, step.agent, step.target))
        return changed.row if changed is not None else self._rows.lock_breaker(step.app, step.agent, step.target)

    def _keep(self, row: BreakerRow, *events: Event) -> None:
        key = (row.app, row.agent, row.target)
        before = self.changes.get(key)
        self.changes[key] = BreakerChange(row, [*([] if before is None else before.events), *events])


class Barred(msgspec.Struct, frozen=True):
    """Requests of an Agent that its breakers, or the retry budget of the process, do not let through just now.

    Attributes:
        apps: Apps for which an operator keeps the whole Agent from taking requests.
        targets: (App, target) of breakers that let nothing through.
        retries: True if later attempts are barred: those of steps that were taken before.
        probed: (App, target) of which no later attempt is barred, because it would be a canary.
        failed: (App, target) in an outage, of which requests that failed in it are barred as long as others wait.
    """

    apps: frozenset[str] = frozenset()
    targets: frozenset[tuple[str, str]] = frozenset()
    retries: bool = False
    probed: frozenset[tuple[str, str]] = frozenset()
    failed: frozenset[tuple[str, str]] = frozenset()

    def holds(self, step: StepRow) -> bool:
        """Returns True if it holds the request."""
        key = (step.app, step.target)
        if step.app in self.apps or key in self.targets or (step.failed_in_outage and key in self.failed):
            return True
        return self.retries and step.taken and key not in self.probed

    def list_targets(self) -> list[str]:
        """The targets as texts: App, unit separator, target."""
        return _format_targets(self.targets)

    def list_probed(self) -> list[str]:
        """List ``probed`` in the form of ``list_targets``."""
        return _format_targets(self.probed)

    def list_failed(self) -> list[str]:
        """List ``failed`` in the form of ``list_targets``."""
        return _format_targets(self.failed)

    def with_request(self, step: StepRow) -> "Barred":
        """The same, and the target of this request."""
        return replace(self, targets=self.targets | {(step.app, step.target)})

    def joined_with(self, other: "Barred") -> "Barred":
        """Build the union of both."""
        return Barred(
            self.apps | other.apps,
            self.targets | other.targets,
            self.retries or other.retries,
            self.probed | other.probed,
            self.failed | other.failed,
        )


def _format_targets(keys: Iterable[tuple[str, str]]) -> list[str]:
    return sorted(f"{app}\x1f{target}" for app, target in keys)


NOTHING_BARRED = Barred()


def list_barred(breakers: Sequence[BreakerRow], now: Instant) -> Barred:
    """List what the breakers of one Agent do not let through."""
    if not breakers:
        return NOTHING_BARRED
    return Barred(
        frozenset(row.app for row in breakers if row.keeps_all),
        frozenset((row.app, row.target) for row in breakers if not may_let_through(row, now)),
    )


def bar_retries(barred: Barred, breakers: Sequence[BreakerRow]) -> Barred:
    """Bar later attempts, too. Canaries are let through: a breaker must not close later because of the retry budget."""
    return replace(barred, retries=True, probed=list_outages(breakers))


def bar_failed(barred: Barred, breakers: Sequence[BreakerRow]) -> Barred:
    """Bar requests that failed in an outage, too, so that the canary is one that has not failed, as long as one waits."""
    outages = list_outages(breakers)
    return replace(barred, failed=outages) if outages else barred


def list_outages(breakers: Sequence[BreakerRow]) -> frozenset[tuple[str, str]]:
    """List App and target of the breakers that are not closed. Every attempt that begins there is a canary."""
    return frozenset((row.app, row.target) for row in breakers if row.is_outage)


def find_breaker(rows: Iterable[BreakerRow], step: StepRow) -> BreakerRow | None:
    """Find a step's own breaker among those of its Agent."""
    for row in rows:
        if row.target == step.target and row.app == step.app:
            return row
    return None


def find_whole(rows: Iterable[BreakerRow], step: StepRow) -> BreakerRow | None:
    """Find the row by which an operator keeps the whole Agent of a step from taking requests. None: nobody does."""
    return next((row for row in rows if row.keeps_all and row.app == step.app), None)


def counts_as_failure(outcome: Outcome) -> bool:
    """Returns True if an attempt's end speaks against the service: no answer, or one that it is not well."""
    if isinstance(outcome, Succeeded):
        return False
    failure = outcome.failure
    return failure.cause != "permanent" and failure.code not in ("unrecordable_result", "not_taken")


def begin_attempt(step: StepRow, process_no: int, now: Instant, complete_within: float) -> StepRow:
    """Return the row of a request that a process has taken: its fence grows, its time begins."""
    if step.is_canary:
        complete_within = min(complete_within, compute_complete_within(step))
    return replace(
        step,
        state=advance_step(step.state, StepEvent.TAKEN),
        fence=step.fence + 1,
        locked_by=process_no,
        complete_by=later(now, complete_within),
        wait_by=None,  # it bounds the wait for the first attempt only
        taken=True,
        canary=step.canary if step.is_canary else None,
    )


def note_charged(step: StepRow, now: Instant) -> str:
    """Return when the last failures of a step were charged, with one more now; as JSON text."""
    return msgspec.json.encode((*_read_charged_instants(step), now)[-CHARGED_KEPT:]).decode()


def _read_charged_instants(step: StepRow) -> tuple[Instant, ...]:
    return () if step.charged_at is None else decode_charged_instants(step.charged_at)


def _return_attempts(step: StepRow, breaker: BreakerRow) -> AdmittedAttempt:
    """Give back the failures of a step that an outage has burnt, before its next attempt."""
    if step.charged_at is None or read_step_policy(step).supervision.charge_outages:
        return AdmittedAttempt(step)
    charged = _read_charged_instants(step)
    left = drop_burnt(breaker, charged)
    burnt = min(len(charged) - len(left), step.failure_count)
    if not burnt:
        return AdmittedAttempt(step)
    kept = msgspec.json.encode(left).decode() if left else None
    returned = replace(step, failure_count=step.failure_count - burnt, charged_at=kept)
    return AdmittedAttempt(returned, (StepAttemptsReturned(step.ordinal, burnt, returned.failure_count),), burnt)


def name_breaker(row: BreakerRow) -> tuple[str, int, str, str]:
    """Return the first fields of an event about a breaker."""
    return row.agent, row.fence, row.app, row.target


def _message_of(outcome: Outcome | None) -> str:
    return outcome.failure.message if isinstance(outcome, RetryAsked | GaveUp) else ""
