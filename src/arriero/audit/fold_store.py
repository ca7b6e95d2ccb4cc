"""The folds of what belongs to no single task: schedules, ledgers, and tokens of the HTTP API."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import assert_never

from ..events.store import (
    EventOfSchedule,
    LedgerDiscarded,
    LedgerOpenedEvent,
    ScheduleAsked,
    ScheduleDecided,
    ScheduleDeclared,
    ScheduleMended,
    SchedulePaused,
    ScheduleRemoved,
    ScheduleResumed,
    ScheduleTroubled,
    TokenCreated,
    TokenRevoked,
)
from .fold import Violation

Convict = Callable[[str, str], None]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_expected_id(app: str, name: str, instant: int) -> str:
    """Format the id that the run of an instant must have."""
    when = (_EPOCH + timedelta(microseconds=instant)).replace(tzinfo=None)
    return f"{app}/{name}@{when.isoformat()}Z"


class ScheduleFold:
    """The fold of one schedule's events."""

    def __init__(self, name: str, convict: Convict) -> None:
        self.name = name
        self._convict = convict
        self.revision = 0
        self.decided_until: int | None = None  # None: it is not there
        self.paused = False
        self._last_run = 0
        self._declared: ScheduleDeclared | None = None

    def fold(self, event: EventOfSchedule) -> None:
        """Fold one event."""
        if not isinstance(event, ScheduleDeclared) and self.decided_until is None:
            self._convict("I76", f"schedule {self.name}: {event.type} of a schedule that is not there")
            return
        is_with_mending = event.revision == self.revision and isinstance(event, ScheduleDecided)
        if self.decided_until is not None and event.revision <= self.revision and not is_with_mending:
            self._convict("I76", f"schedule {self.name}: revision {event.revision} after {self.revision}")
        self.revision = event.revision
        match event:
            case ScheduleDeclared():
                self._declare(event)
            case ScheduleDecided():
                self._decide(event)
            case ScheduleResumed():
                self._judge_person(event.by, event.reason, "resumed")
                self.decided_until, self.paused = max(event.decided_until, self.decided_until or 0), False
            case SchedulePaused():
                self._judge_person(event.by, event.reason, "paused")
                self.paused = True
            case ScheduleRemoved():
                self._judge_person(event.by, event.reason, "removed")
                self.decided_until, self.paused, self._declared = None, False, None
            case ScheduleAsked():
                self._judge_person(event.by, event.reason, "asked for runs")
            case ScheduleTroubled() | ScheduleMended():
                pass
            case _:
                assert_never(event)

    def _declare(self, event: ScheduleDeclared) -> None:
        if self.decided_until is not None and event.decided_until < self.decided_until:
            self._convict(
                "I76",
                f"schedule {self.name}: declared again, it decides once more about instants before {self.decided_until}",
            )
        before = self._declared
        if before is not None and before.every and self.decided_until is not None and not self.paused:
            dropped = _count(before, event.decided_until) - _count(before, self.decided_until)
            if dropped > 0:
                self._convict("I76", f"schedule {self.name}: declared again, it drops {dropped} instants that were due")
        self._declared, self.decided_until = event, event.decided_until

    def _decide(self, event: ScheduleDecided) -> None:
        where = f"schedule {self.name}: the decision about {event.since} to {event.until}"
        if self.paused:
            self._convict("I76", f"{where} was made while it was paused")
        if event.since != self.decided_until:
            self._convict("I76", f"{where} does not follow that up to {self.decided_until}")
        self.decided_until = max(event.until, self.decided_until or 0)
        for instant, task in zip(event.runs, event.tasks, strict=False):
            if instant <= self._last_run:
                self._convict("I75", f"{where} runs {instant} after {self._last_run}")
            self._last_run = max(self._last_run, instant)
            if task != format_expected_id(event.app, event.schedule, instant):
                self._convict("I75", f"{where} runs {instant} as task {task}")
            if not event.since < instant <= event.until:
                self._convict("I76", f"{where} runs {instant}, which it is not about")
        if len(event.runs) != len(event.tasks):
            self._convict("I75", f"{where} has {len(event.runs)} runs and {len(event.tasks)} tasks")
        self._judge_passed_over(event, where)

    def _judge_passed_over(self, event: ScheduleDecided, where: str) -> None:
        declared = self._declared
        assert declared is not None
        if event.passed_over and event.why not in ("overlap", "catch_up"):
            self._convict("I76", f"{where} passes over {event.passed_over} and does not say why")
        if event.why == "overlap" and (declared.overlap not in ("skip", "cancel_running") or event.runs):
            self._convict("I76", f"{where} passes instants over because of a run, with overlap {declared.overlap!r}")
        if event.why == "catch_up" and not event.runs and declared.catch_up is None:
            self._convict("I76", f"{where} runs no missed instant late, not even the last")
        if declared.every:
            due = _count(declared, event.until) - _count(declared, event.since)
            if due != len(event.runs) + event.passed_over:
                self._convict("I76", f"{where} is about {due} instants, not {len(event.runs)} + {event.passed_over}")

    def _judge_person(self, by: str, reason: str, what: str) -> None:
        if not by or not reason:
            self._convict("I59", f"schedule {self.name} was {what} by {by or 'nobody'}, reason {reason!r}")


def _count(declared: ScheduleDeclared, until: int) -> int:
    """Count the periods that were over at an instant."""
    return max(0, until - declared.anchor) // declared.every


class TokenFold:
    """The fold of all tokens."""

    def __init__(self, convict: Convict) -> None:
        self._convict = convict
        self._valid: dict[str, bool] = {}  # by id; False: it was revoked

    def fold(self, actor: str, event: TokenCreated | TokenRevoked) -> None:
        """Fold one event."""
        if not actor:
            self._convict("I59", f"{event.type} of token {event.token} by nobody")
        if isinstance(event, TokenCreated):
            if event.token in self._valid:
                self._convict("I59", f"token {event.token} was created twice")
            self._valid[event.token] = True
            return
        if not event.reason:
            self._convict("I59", f"token {event.token} was revoked without a reason")
        if not self._valid.get(event.token):
            self._convict("I59", f"token {event.token} was revoked, but was not valid")
        self._valid[event.token] = False


class LedgerFold:
    """The fold of ledgers: the store's own events about them, and the tasks that name one."""

    def __init__(self) -> None:
        self.accepted: dict[str, int] = {}
        self.let_go: Counter[str] = Counter()
        self.violations: list[Violation] = []

    def open(self, event: LedgerOpenedEvent) -> None:
        """Fold the opening of a ledger: all its tasks are there from now on."""
        name = event.ledger
        if name in self.accepted:
            self._convict("", f"the ledger {name!r} was opened twice")
        self.accepted[name] = event.accepted

    def discard(self, event: LedgerDiscarded) -> None:
        """Fold the removal of a ledger before it was opened: none of its tasks was ever there."""
        name = event.ledger
        if name in self.accepted:
            self._convict("", f"the ledger {name!r} was discarded after it had been opened")

    def submit(self, task_id: str, name: str) -> None:
        """Fold a task that came with the ledger of this name."""
        if name not in self.accepted:
            self._convict(task_id, f"submitted with the ledger {name!r}, which was not opened")
            return
        self.let_go[name] += 1
        if self.let_go[name] > self.accepted[name]:
            self._convict(
                task_id, f"the ledger {name!r} brought more than the {self.accepted[name]} tasks that it accepted"
            )

    def _convict(self, task_id: str, detail: str) -> None:
        self.violations.append(Violation("I5", task_id, detail))
