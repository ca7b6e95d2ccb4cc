"""Fold of a history, and the invariants that it can show. ``arriero check`` and the simulator both run this.

Each violation names the invariant by its number: I1 and I2 one end; I5 no phantom; I6 to I11 claims and fences; I12
fresh process starts; I13 to I16 reports; I18, I19 keys and deadlines; I20 to I26 attempts and counting; I27 to I32 undo;
I33, I34 leases; I53 the hash chain. An event that is not known is a violation too: nobody could say what it did.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from ..model import HistoryRow, Loaded, StepKind, StepState, TaskState
from ..policies import StepPolicy
from .chain import START, link_hash

Event = dict[str, Any]
_read_events = msgspec.json.Decoder(list[Event]).decode
_OPEN = (StepState.PENDING, StepState.RUNNING)
_STORE_STREAM = 0


class Violation(msgspec.Struct, frozen=True):
    """One invariant that does not hold. ``task``: business id, empty for the store itself."""

    invariant: str
    task: str
    detail: str


class StepFold:
    """What the events say of one step."""

    def __init__(self, event: Event) -> None:
        self.ordinal: int = event["step"]
        self.kind: str = event["kind"]
        self.name: str = event["name"]
        self.idempotency_key: str = event.get("idempotency_key", "")
        self.pivot: bool = event.get("pivot", False)
        self.effect_free: bool = event.get("effect_free", False)
        self.undoable: bool = event.get("undoable", False)
        self.undoes: int | None = event.get("undoes")
        self.policy = msgspec.convert(event["policy"], StepPolicy) if "policy" in event else None
        self.state = StepState.PLANNED if event.get("planned") else StepState.PENDING
        self.attempt = 1
        self.fence = 0
        self.failure_count = 0
        self.lost_count = 0
        self.in_doubt = False
        self.complete_by: int | None = None
        self.dispatched: set[int] = set()
        self.applied: set[int] = set()
        self.recovered: set[int] = set()

    @property
    def may_have_happened(self) -> bool:
        """In doubt, or being attempted."""
        return self.state is not StepState.COMPLETED and (self.in_doubt or self.state is StepState.RUNNING)


class TaskFold:
    """What the events say of one task; ``violations`` collects what they should not say."""

    def __init__(self, task_no: int, task_id: str) -> None:
        self.task_no = task_no
        self.task_id = task_id
        self.state: TaskState | None = None
        self.fence = 0
        self.holder: int | None = None
        self.not_before: int | None = None
        self.failure_count = 0
        self.lost_count = 0
        self.alerts = 0
        self.undo_began = False
        self.plan: list[int] | None = None
        self.steps: dict[int, StepFold] = {}
        self.keys: dict[str, int] = {}
        self.violations: list[Violation] = []
        self.at = 0

    def convict(self, invariant: str, detail: str) -> None:
        """Note a violation."""
        self.violations.append(Violation(invariant, self.task_id, detail))

    def row(self, at: int, events: list[Event], terms: dict[str, int]) -> None:
        """Fold one commit. ``terms``: the leases' terms as of this commit."""
        if at < self.at:
            self.convict("I19", f"the store's clock went back from {self.at} to {at}")
        self.at = at
        refused = [e for e in events if e.get("type") == "step.report" and e.get("verdict") != "applied"]
        if refused and len(refused) != len(events):
            self.convict("I13", f"a refused report of step {refused[0].get('step')} came with changes")
        for event in events:
            kind = event.get("type", "")
            handler = _HANDLERS.get(kind)
            if handler is None:
                self.convict("I53", f"unknown event {kind!r}")
                continue
            try:
                if kind != "task.submitted" and self.state is None:
                    self.convict("I5", f"{kind} of a task that was never submitted")
                    return
                handler(self, event)
            except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
                self.convict("I53", f"{kind} cannot be read: {type(error).__name__} {error}")
            if "term" in event and event["term"] is not None and terms.get("supervisor") != event["term"]:
                self.convict("I34", f"{kind} under term {event['term']}, current is {terms.get('supervisor', 0)}")

    # --- the task
    def submitted(self, event: Event) -> None:
        if self.state is not None:
            self.convict("I3", "submitted twice")
        self.state = TaskState.PENDING
        self.not_before = event["not_before"]

    def _refuse_after_end(self, what: str) -> None:
        if self.state in (TaskState.PROCESSED, TaskState.COMPENSATED, TaskState.ERROR):
            self.convict("I2", f"{what} after the task was {self.state}")

    def claimed(self, event: Event) -> None:
        self._refuse_after_end("claimed")
        if self.holder is not None:
            self.convict("I9", f"claimed by process {event['process']} while process {self.holder} held it")
        if self.not_before is None or self.at < self.not_before:
            self.convict("I10", f"claimed at {self.at}, due at {self.not_before}")
        self._grow_fence(event["fence"], "claimed")
        self.holder = event["process"]
        self.state = TaskState(event["state"])

    def _grow_fence(self, fence: int, what: str) -> None:
        if fence <= self.fence:
            self.convict("I6", f"{what} under fence {fence}, the highest was {self.fence}")
        self.fence = max(self.fence, fence)

    def released(self, event: Event) -> None:
        self._refuse_after_end("released")
        self._grow_fence(event["fence"], "released")
        self.holder = None
        self.not_before = event["not_before"]

    def expired(self, _event: Event) -> None:
        self._refuse_after_end("expired")

    def lost(self, event: Event) -> None:
        self.lost_count += 1
        if event["lost_count"] != self.lost_count:
            self.convict("I23", f"lost_count is {event['lost_count']}, {self.lost_count} losses are recorded")

    def terminal(self, event: Event) -> None:
        self._refuse_after_end(f"ended as {event['state']}")
        self._grow_fence(event["fence"], "ended")
        self.state = TaskState(event["state"])
        self.holder, self.not_before = None, None
        if self.state is TaskState.PROCESSED:
            self._judge_processed()
        elif self.state is TaskState.COMPENSATED:
            self._judge_compensated()

    def _judge_processed(self) -> None:
        if self.undo_began:
            self.convict("I31", "processed although its undo had begun")
        for step in self.steps.values():
            if step.state in _OPEN and step.kind != "timer":
                self.convict("I2", f"processed while step {step.ordinal} was {step.state}")

    def _judge_compensated(self) -> None:
        self._judge_pivot("compensated")
        done = {s.undoes for s in self.steps.values() if s.kind == "compensation" and s.state is StepState.COMPLETED}
        for step in self.steps.values():
            if step.kind == "compensation" and step.state is not StepState.COMPLETED:
                self.convict("I32", f"compensated while the compensation {step.ordinal} was {step.state}")
            if step.kind != "step" or step.ordinal in done:
                continue
            if step.undoable and (step.state is StepState.COMPLETED or step.may_have_happened):
                self.convict("I30", f"compensated, but step {step.ordinal} ({step.name}) was not undone")
            elif step.may_have_happened and not step.effect_free:
                self.convict(
                    "I30", f"compensated, but step {step.ordinal} ({step.name}) is in doubt and has no compensation"
                )

    def alert(self, _event: Event) -> None:
        self.alerts += 1

    # --- steps
    def opened(self, event: Event) -> None:
        step = StepFold(event)
        if step.ordinal != len(self.steps) + 1:
            self.convict("I22", f"step {step.ordinal} was opened after {len(self.steps)}")
        if step.idempotency_key:
            before = self.keys.setdefault(step.idempotency_key, step.ordinal)
            if before != step.ordinal:
                self.convict("I18", f"steps {before} and {step.ordinal} share an idempotency key")
        if step.kind != "compensation" and self.undo_began:
            self.convict("I31", f"step {step.ordinal} was opened after the undo began")
        self.steps[step.ordinal] = step

    def dispatched(self, event: Event) -> None:
        step = self.steps[event["step"]]
        self._refuse_after_end(f"step {step.ordinal} dispatched")
        if step.state is StepState.PLANNED and step.kind == "compensation":
            step.state = StepState.PENDING  # its turn came in the same commit
        if step.state is not StepState.PENDING:
            self.convict("I7", f"step {step.ordinal} was dispatched while {step.state}")
        if event["fence"] <= step.fence:
            self.convict(
                "I11", f"step {step.ordinal} was dispatched under fence {event['fence']}, the highest was {step.fence}"
            )
        if event["attempt"] != step.attempt:
            self.convict(
                "I22", f"step {step.ordinal}: attempt {event['attempt']} was dispatched, {step.attempt} was due"
            )
        if event["key"] != step.idempotency_key:
            self.convict("I18", f"step {step.ordinal} was dispatched under another key than it was opened with")
        if event["complete_by"] <= self.at:
            self.convict("I19", f"step {step.ordinal} was dispatched with a deadline that had passed")
        if step.kind == "compensation":
            self._judge_undo_order(step)
        elif self.undo_began:
            self.convict("I31", f"step {step.ordinal} was dispatched after the undo began")
        step.state, step.fence, step.complete_by = (
            StepState.RUNNING,
            max(step.fence, event["fence"]),
            event["complete_by"],
        )
        step.dispatched.add(event["fence"])

    def _judge_undo_order(self, step: StepFold) -> None:
        plan = self.plan or []
        if step.ordinal not in plan:
            self.convict("I27", f"compensation {step.ordinal} was dispatched before it was planned")
            return
        for before in plan[: plan.index(step.ordinal)]:
            if self.steps[before].state is not StepState.COMPLETED:
                self.convict("I28", f"compensation {step.ordinal} was dispatched before {before} was done")

    def report(self, event: Event) -> None:
        verdict, fence = event["verdict"], event["fence"]
        if verdict not in ("applied", "late", "stale", "duplicate", "unknown", "malformed"):
            self.convict("I16", f"a report has the verdict {verdict!r}")
        if verdict != "applied":
            return
        step = self.steps[event["step"]]
        if fence not in step.dispatched:
            self.convict("I16", f"a report of step {step.ordinal} under fence {fence} matches no dispatch")
        if fence != step.fence:
            self.convict(
                "I8", f"a report of step {step.ordinal} under fence {fence} was applied, the highest was {step.fence}"
            )
        if fence in step.applied:
            self.convict("I15", f"a report of step {step.ordinal} under fence {fence} was applied twice")
        if step.complete_by is not None and self.at >= step.complete_by:
            self.convict("I13", f"a report of step {step.ordinal} was applied after its deadline")
        step.applied.add(fence)

    def recorded(self, event: Event) -> None:
        step = self.steps[event["step"]]
        self._end_step(step, "recorded")
        step.state, step.in_doubt = StepState.COMPLETED, False

    def failed(self, event: Event) -> None:
        step = self.steps[event["step"]]
        self._end_step(step, "failed")
        if step.state is StepState.RUNNING:
            self._count_failure(step, event)
        if event["failure"]["cause"] != "permanent" and event["failure"].get("code") not in (
            "not_taken",
            "unrecordable_result",
        ):
            self._judge_rounds(step, "failed")
        step.in_doubt = event["in_doubt"]
        step.state = StepState.FAILED

    def _end_step(self, step: StepFold, what: str) -> None:
        if step.state is StepState.COMPLETED:
            self.convict(
                "I14" if what == "recorded" else "I20", f"step {step.ordinal} was {what} after it had a result"
            )
        if self.state in (TaskState.PROCESSED, TaskState.COMPENSATED):
            self.convict("I2", f"step {step.ordinal} was {what} after the task was {self.state}")
        self.lost_count = 0
        step.complete_by = None
        self._news()

    def _news(self) -> None:
        if self.holder is None and self.state in (TaskState.PENDING, TaskState.PROCESSING, TaskState.COMPENSATING):
            self.not_before = self.at

    def _count_failure(self, step: StepFold, event: Event) -> None:
        step.failure_count += 1
        self.failure_count += 1
        if event["failure_count"] != step.failure_count:
            self.convict(
                "I23",
                f"step {step.ordinal}: failure_count is {event['failure_count']}, {step.failure_count} failures are recorded",
            )
        step.fence = max(step.fence, event["fence"])

    def _judge_rounds(self, step: StepFold, what: str) -> None:
        """After ``step.failure_count`` failures: a plain retry inside a round, a cool-off after it, the end after the last."""
        if step.policy is None:
            return
        rounds, in_round = divmod(step.failure_count, step.policy.supervision.attempts)
        due = "retry" if in_round else "cool_off" if rounds < step.policy.supervision.rounds else "failed"
        if what != due:
            self.convict(
                "I25", f"step {step.ordinal}: {what} after {step.failure_count} failures, its policy says {due}"
            )

    def expired_step(self, event: Event) -> None:
        step = self.steps[event["step"]]
        if event["why"] == "expired" and (step.complete_by is None or step.complete_by > self.at):
            self.convict("I24", f"step {step.ordinal} was recovered before its deadline")
        if event["fence"] <= step.fence:
            self.convict(
                "I6", f"step {step.ordinal} was recovered under fence {event['fence']}, the highest was {step.fence}"
            )
        step.fence = max(step.fence, event["fence"])

    def recovered(self, event: Event) -> None:
        step = self.steps[event["step"]]
        fence, what = event["fence"], event["what"]
        if fence in step.recovered:
            self.convict("I24", f"step {step.ordinal} was recovered twice under fence {fence}")
        step.recovered.add(fence)
        self._count_failure(step, event)
        if event["failure"]["cause"] == "permanent":
            self.convict("I26", f"step {step.ordinal} is retried after a permanent failure")
        step.attempt += 1
        step.in_doubt = event["in_doubt"]
        step.complete_by = None
        if what != "error":
            self._judge_rounds(step, what)
            step.state = StepState.PENDING

    def lost_step(self, event: Event) -> None:
        step = self.steps[event["step"]]
        if event["fence"] <= step.fence:
            self.convict(
                "I6", f"step {step.ordinal} was freed under fence {event['fence']}, the highest was {step.fence}"
            )
        step.lost_count += 1
        if event["lost_count"] != step.lost_count:
            self.convict(
                "I23",
                f"step {step.ordinal}: lost_count is {event['lost_count']}, {step.lost_count} losses are recorded",
            )
        step.fence, step.in_doubt, step.complete_by = max(step.fence, event["fence"]), True, None
        step.state = StepState.PENDING

    def withdrawn(self, event: Event) -> None:
        step = self.steps[event["step"]]
        if step.in_doubt and not event["in_doubt"]:
            self.convict("I30", f"step {step.ordinal} was withdrawn and its doubt forgotten")
        step.in_doubt = event["in_doubt"]
        step.state, step.complete_by = StepState.WITHDRAWN, None
        self._news()

    def parked(self, event: Event) -> None:
        step = self.steps[event["step"]]
        step.state, step.complete_by = StepState.PLANNED, None

    def reached(self, event: Event) -> None:
        self.steps[event["step"]].state = StepState.PENDING

    def fired(self, event: Event) -> None:
        step = self.steps[event["step"]]
        self._refuse_after_end(f"timer {step.ordinal} fired")
        step.state = StepState.COMPLETED

    # --- undo
    def undo_begun(self, _event: Event) -> None:
        self._refuse_after_end("undo begun")
        self._judge_pivot("the undo began")
        self.undo_began = True
        self.state = TaskState.COMPENSATING

    def _judge_pivot(self, what: str) -> None:
        for step in self.steps.values():
            if step.kind == "step" and step.pivot and (step.state is StepState.COMPLETED or step.in_doubt):
                self.convict("I31", f"{what} although the pivot {step.ordinal} ({step.name}) has or may have happened")

    def undo_planned(self, event: Event) -> None:
        self._judge_pivot("the undo was planned")
        self.plan = list(event["steps"])
        for step in self.steps.values():
            if step.kind == "step" and step.state in _OPEN:
                self.convict("I28", f"the undo was planned while step {step.ordinal} was {step.state}")
        forward = [s for s in reversed(list(self.steps.values())) if s.kind == "step"]
        wanted = [s.ordinal for s in forward if s.may_have_happened and s.undoable]
        wanted += [s.ordinal for s in forward if s.state is StepState.COMPLETED and s.undoable]
        found = [self.steps[ordinal].undoes for ordinal in self.plan]
        if set(found) != set(wanted):
            self.convict("I30", f"the undo plan undoes steps {found}, it should undo {wanted}")
        elif found != wanted:
            self.convict("I28", f"the undo plan undoes steps in the order {found}, it should be {wanted}")

    def end(self, *, complete: bool) -> None:
        """After the last event. ``complete``: nothing should be open any more."""
        if self.state is TaskState.ERROR and self.alerts != 1:
            self.convict("I26", f"the task is in error with {self.alerts} alerts")
        if complete and self.state in (TaskState.PENDING, TaskState.PROCESSING, TaskState.COMPENSATING):
            self.convict("I1", f"the task has not ended: it is {self.state}")


_HANDLERS = {
    "task.submitted": TaskFold.submitted,
    "task.claimed": TaskFold.claimed,
    "task.released": TaskFold.released,
    "task.expired": TaskFold.expired,
    "task.lost": TaskFold.lost,
    "task.terminal": TaskFold.terminal,
    "alert.opened": TaskFold.alert,
    "step.opened": TaskFold.opened,
    "step.dispatched": TaskFold.dispatched,
    "compensation.dispatched": TaskFold.dispatched,
    "step.report": TaskFold.report,
    "step.recorded": TaskFold.recorded,
    "compensation.recorded": TaskFold.recorded,
    "step.failed": TaskFold.failed,
    "compensation.failed": TaskFold.failed,
    "step.expired": TaskFold.expired_step,
    "recover.applied": TaskFold.recovered,
    "step.lost": TaskFold.lost_step,
    "step.withdrawn": TaskFold.withdrawn,
    "step.parked": TaskFold.parked,
    "compensation.reached": TaskFold.reached,
    "timer.fired": TaskFold.fired,
    "undo.begun": TaskFold.undo_begun,
    "undo.planned": TaskFold.undo_planned,
}


class StoreFold:
    """What the store's own events say: process starts and leases."""

    def __init__(self) -> None:
        self.terms: dict[str, int] = {}
        self.instances: set[str] = set()
        self.violations: list[Violation] = []

    def row(self, actor: str, events: list[Event]) -> None:
        """Fold one commit."""
        for event in events:
            match event.get("type"):
                case "process.started":
                    if actor in self.instances:
                        self.violations.append(Violation("I12", "", f"the process start {actor} began twice"))
                    self.instances.add(actor)
                case "lease.granted":
                    name, term = event["lease"], event["term"]
                    if term <= self.terms.get(name, 0):
                        self.violations.append(
                            Violation("I33", "", f"lease {name}: term {term} after {self.terms[name]}")
                        )
                    self.terms[name] = term


class History:
    """The fold of a whole history, row by row in commit order."""

    def __init__(self) -> None:
        self.tasks: dict[int, TaskFold] = {}
        self.store = StoreFold()
        self.violations: list[Violation] = []
        self._heads: dict[int, tuple[int, str]] = {}

    def add(self, row: HistoryRow) -> None:
        """Fold one row and check its link."""
        link, head = self._heads.get(row.task_no, (0, START))
        text = bytes(row.events).decode()
        if row.link != link + 1:
            self.violations.append(Violation("I53", row.task_id, f"link {row.link} follows {link}"))
        if row.hash != link_hash(head, row.task_no, row.link, row.at, row.actor, text):
            self.violations.append(
                Violation("I53", row.task_id, f"link {row.link} does not carry the hash of its content")
            )
        self._heads[row.task_no] = (row.link, row.hash)
        events = _read_events(text)
        if row.task_no == _STORE_STREAM:
            self.store.row(row.actor, events)
            return
        if row.task_no not in self.tasks:
            self.tasks[row.task_no] = TaskFold(row.task_no, row.task_id)
        self.tasks[row.task_no].row(row.at, events, self.store.terms)

    def end(self, *, complete: bool = False) -> list[Violation]:
        """All violations, in the order of the tasks."""
        found = self.violations + self.store.violations
        for task in self.tasks.values():
            task.end(complete=complete)
            found += task.violations
        return found


def check(rows: Iterable[HistoryRow], *, complete: bool = False) -> list[Violation]:
    """Every invariant a history can show.

    Args:
        rows: in commit order, from the first.
        complete: whether every task must have ended.
    Returns: violations; empty when it is clean.
    """
    history = History()
    for row in rows:
        history.add(row)
    return history.end(complete=complete)


def differences(fold: TaskFold, loaded: Loaded) -> list[str]:
    """Where the state tables say something else than the fold of the history (I52); empty when they agree."""
    task = loaded.task
    found = _differing(f"task {task.task_id}", fold, task, ("state", "fence", "failure_count", "lost_count"))
    if fold.holder != task.locked_by:
        found.append(f"task {task.task_id}: holder is {task.locked_by}, its history says {fold.holder}")
    if set(fold.steps) != {step.ordinal for step in loaded.steps}:
        return [*found, f"task {task.task_id}: the table holds other steps than its history"]
    for step in loaded.steps:
        fields: tuple[str, ...] = ("state", "attempt", "fence", "failure_count", "lost_count", "in_doubt")
        if step.kind is StepKind.TIMER:
            if step.state is StepState.WITHDRAWN:
                continue  # a timer that is no longer waited for leaves no event of its own
            fields = ("state",)
        found += _differing(f"task {task.task_id} step {step.ordinal}", fold.steps[step.ordinal], step, fields)
    return found


def _differing(what: str, fold: object, row: object, fields: tuple[str, ...]) -> list[str]:
    pairs = [(field, getattr(row, field), getattr(fold, field)) for field in fields]
    return [f"{what}: {field} is {found}, its history says {said}" for field, found, said in pairs if found != said]
