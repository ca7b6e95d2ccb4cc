"""Reports of programs outside of Python, held against the history: only who holds the capability of an attempt ends it (I60).

The programs of a simulated world write down what they were given, what they sent, and what they were answered. The history says
what counted. The two are compared by what a capability speaks for, as values; nothing here runs or knows the simulator.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from arriero.audit.check import Violation
from arriero.events import read_events
from arriero.events.step import (
    CompensationDispatched,
    CompensationRecorded,
    StepDispatched,
    StepOpened,
    StepRecorded,
    StepReopened,
    StepReport,
)
from arriero.model import HistoryRow, Instant

ACKNOWLEDGED = "acknowledged"
NOBODY_KNOWS = ""  # no answer came, or the store could not say

# What a report may be answered that was sent with no right to it. Each must be refused.
_AT_THE_DOOR = frozenset({"capability-invalid"})
_BY_ITS_FENCE = frozenset({"report-stale", "report-expired", "report-ended"})
REFUSALS = {
    "capability_forged": _AT_THE_DOOR,
    "capability_of_another_task": _AT_THE_DOOR,
    "capability_outdated": _BY_ITS_FENCE,
    "report_replayed": _BY_ITS_FENCE | {"report-duplicate"},
}
_NOTHING_DECIDED = frozenset({NOBODY_KNOWS, "report-unanswered", "gateway-not-running", "gateway-draining"})


class AttemptName(NamedTuple):
    """What a capability speaks for. ``key``: the idempotency key, which stands for the step."""

    task: str
    key: str
    attempt: int
    fence: int


class Delivery(msgspec.Struct, frozen=True):
    """An attempt that a program was given, and so its capability."""

    name: AttemptName
    program: int
    at: Instant


class SentReport(msgspec.Struct):
    """A report that a program sent.

    Args:
        result: hash of the result, or of the failure's message.
        complete_by: until when its capability was valid.
        trick: why it must be refused; a key of ``REFUSALS``. Empty: an honest one.
        answer: ``ACKNOWLEDGED``, the code of a refusal, or ``NOBODY_KNOWS``.
    """

    name: AttemptName
    program: int
    result: str | None
    at: Instant
    complete_by: Instant
    trick: str = ""
    answer: str = NOBODY_KNOWS


class _Recorded(NamedTuple):
    """A report that counted, as the history reports it."""

    result: str | None
    at: Instant


class RemoteAttempts:
    """The attempts of one Agent's steps, as a history reports them."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._steps: set[tuple[int, int]] = set()  # of the Agent: task and ordinal
        self.names: dict[tuple[int, int, int], AttemptName] = {}  # by task, ordinal and fence
        self.recorded: defaultdict[AttemptName, list[_Recorded]] = defaultdict(list)
        self.told: set[str | None] = set()  # hashes of all that was reported, also of what was refused
        self.found: list[Violation] = []

    def fold(self, row: HistoryRow) -> None:
        """Fold one commit."""
        reported: set[int] = set()
        for event in read_events(row.events):
            match event:
                case StepOpened() | StepReopened():
                    if event.agent == self._agent:
                        self._steps.add((row.task_no, event.step))
                case StepDispatched() | CompensationDispatched():
                    if (row.task_no, event.step) in self._steps:
                        name = AttemptName(row.task_id, event.key, event.attempt, event.fence)
                        self.names[row.task_no, event.step, event.fence] = name
                case StepReport() if (row.task_no, event.step) in self._steps:
                    self.told.add(event.result)
                    if event.verdict == "applied":
                        reported.add(event.step)
                        name = self.names[row.task_no, event.step, event.fence]
                        self.recorded[name].append(_Recorded(event.result, row.at))
                case StepRecorded() | CompensationRecorded():
                    if (row.task_no, event.step) in self._steps and event.step not in reported:
                        said = f"step {event.step} has a result that nobody reported"
                        self.found.append(Violation("I60", row.task_id, said))
                case _:
                    pass


def fold_attempts(rows: Iterable[HistoryRow], agent: str) -> RemoteAttempts:
    """Fold the attempts of an Agent's steps; see ``judge_remote_reports``."""
    attempts = RemoteAttempts(agent)
    for row in rows:
        attempts.fold(row)
    return attempts


def judge_remote_reports(
    rows: Iterable[HistoryRow], agent: str, deliveries: Sequence[Delivery], sent: Sequence[SentReport]
) -> list[Violation]:
    """Judge the reports of an Agent's programs against the history.

    Args:
        rows: of whole tasks, each in its order; those of purged tasks, too.
        agent: whose steps are remote.
        deliveries: what programs were given.
        sent: what they reported, and others in their place.
    """
    attempts = fold_attempts(rows, agent)
    found = attempts.found
    found += _judge_deliveries(deliveries)
    found += _judge_recorded(attempts, deliveries, sent)
    for report in sent:
        if report.trick:
            found += _judge_trick(attempts, report)
        elif report.answer == ACKNOWLEDGED and report.at >= report.complete_by:
            found.append(_convict("I13", report.name, "a report was acknowledged that was sent after its deadline"))
    return found


def _convict(invariant: str, name: AttemptName, detail: str) -> Violation:
    return Violation(invariant, name.task, f"{detail}: attempt {name.attempt} under key {name.key}, fence {name.fence}")


def _judge_deliveries(deliveries: Sequence[Delivery]) -> list[Violation]:
    """No attempt is given to two programs, nor twice to one."""
    counted = Counter(delivery.name for delivery in deliveries)
    return [_convict("I11", name, f"given out {count} times") for name, count in counted.items() if count > 1]


def _judge_recorded(
    attempts: RemoteAttempts, deliveries: Sequence[Delivery], sent: Sequence[SentReport]
) -> Iterable[Violation]:
    """What counted was sent by a holder, and what was acknowledged counted once."""
    given_at = {(delivery.name, delivery.program): delivery.at for delivery in deliveries}
    by_name: defaultdict[AttemptName, list[SentReport]] = defaultdict(list)
    for report in sent:
        by_name[report.name].append(report)
    for name, recorded in attempts.recorded.items():
        if len(recorded) > 1:
            yield _convict("I60", name, f"{len(recorded)} reports counted")
        for one in recorded:
            if not any(_may_be(report, one, given_at) for report in by_name[name]):
                yield _convict("I60", name, f"no holder of its capability sent the report {one.result} that counted")
    for name, reports in by_name.items():
        acknowledged = [report for report in reports if report.answer == ACKNOWLEDGED]
        if len(acknowledged) > 1:
            yield _convict("I60", name, f"{len(acknowledged)} reports were acknowledged")
        for report in acknowledged:
            if report.result not in [one.result for one in attempts.recorded[name]]:
                yield _convict("I60", name, f"the report {report.result} was acknowledged, and is not in the history")
        if not attempts.recorded[name] and any(report.answer == "report-duplicate" for report in reports):
            yield _convict("I60", name, "a report was called a duplicate, and none is in the history")


def _may_be(report: SentReport, recorded: _Recorded, given_at: dict[tuple[AttemptName, int], Instant]) -> bool:
    """Whether what counted is this report, and the one who sent it had been given the attempt."""
    given = given_at.get((report.name, report.program))
    is_held = given is not None and given <= report.at <= recorded.at
    return is_held and not report.trick and report.result == recorded.result


def _judge_trick(attempts: RemoteAttempts, report: SentReport) -> Iterable[Violation]:
    """A report without a right is refused, for what it is. With a capability that is none it leaves no trace at all."""
    wanted = REFUSALS[report.trick]
    if report.answer not in wanted | _NOTHING_DECIDED:
        said = f"{report.trick} was answered with {report.answer}, not with {' or '.join(sorted(wanted))}"
        yield _convict("I60", report.name, said)
    if wanted == _AT_THE_DOOR and report.result in attempts.told:
        yield _convict("I60", report.name, f"{report.trick} left a trace in the history")
