"""Fold of a history, and the invariants that it can show. ``arriero check`` and the simulator both run this."""

from collections.abc import Iterable, Sequence
from typing import assert_never

import msgspec

from ..events import (
    TYPES,
    Event,
    EventOfBreaker,
    EventOfConvoy,
    EventOfPeople,
    EventOfSchedule,
    EventOfSignal,
    EventOfStep,
    EventOfStore,
    EventOfTask,
    EventOfTurn,
    UnreadableEvent,
    read_events,
)
from ..events.base import START, fits_link, payload_hash
from ..events.step import StepExpired, StepReport
from ..events.store import (
    AppRenamed,
    ConvoysPurged,
    EpochOpened,
    Erased,
    LeaderRefused,
    LeaseBroken,
    LeaseGranted,
    LeaseLost,
    LedgerDiscarded,
    LedgerOpenedEvent,
    LedgerPurged,
    LimitsDeclared,
    ProcessRetired,
    ProcessStarted,
    StatusesDropped,
    TasksPurged,
    TokenCreated,
    TokenRevoked,
    WorkflowPausedEvent,
    WorkflowResumed,
)
from ..events.task import TaskExpired, TaskSubmitted
from ..model import ConvoyRow, HistoryRow, Loaded, StepKind, StepRow, StepState
from ..model.agents import BreakerRow, BreakerState
from ..model.leases import LeaseHolder
from ..model.policies import STEP_LIMITS, StepPolicy, read_limit
from ..model.processes import FIRST, Versions
from . import fold_people
from .erasures import Erasures
from .fold import UNREADABLE, StepFold, TaskFold, Violation
from .fold_agents import BreakerFold, LimitsFold, RedispatchFold
from .fold_children import ChildrenFold
from .fold_convoys import fold_turn_event
from .fold_forks import ForksFold
from .fold_people import judge_app, judge_version
from .fold_runs import RunsFold
from .fold_signals import fold_signal_event
from .fold_steps import fold_step_event
from .fold_store import LedgerFold, ScheduleFold, TokenFold
from .fold_stream import ConvoyStream, read_convoy_number
from .fold_task import fold_task_event
from .fold_workflows import WorkflowFold, find_pause_differences

__all__ = [
    "CHECKED",
    "History",
    "StoreFold",
    "TaskFold",
    "Violation",
    "check",
    "find_breaker_differences",
    "find_convoy_differences",
    "find_differences",
    "find_pause_differences",
]

_STORE_STREAM = 0

CHECKED: dict[str, str] = {
    "I1": "every task ends (asked for with --complete)",
    "I2": "an end never changes; only an operator's verb opens the next incarnation",
    "I3": "a task is submitted once",
    "I5": "nothing happens to a task that was never submitted; tasks of a ledger come after it was opened, and no more than it accepted",
    "I6": "fences strictly increase",
    "I7": "what is dispatched was waiting",
    "I8": "a report counts only under the highest fence",
    "I9": "one holder at a time",
    "I10": "no claim before its time, nor while the task is paused, nor before its turn in its convoy",
    "I11": "only the current claim of a step dispatches it",
    "I12": "every process start has a fresh name",
    "I13": "a late or refused report changes nothing",
    "I14": "a recorded result never changes",
    "I15": "a report is applied at most once",
    "I16": "a report matches a dispatched attempt",
    "I18": "an idempotency key is the same over all attempts, unlike any other, and new when arguments are edited",
    "I19": "deadlines lie ahead and never move back; the store's clock does not go back",
    "I20": "an error never turns a success into an error",
    "I22": "attempts and steps are numbered without gaps",
    "I23": "failures and losses are counted exactly",
    "I24": "only what expired is recovered, and once",
    "I25": "retry, cool-off and failure follow the policy",
    "I26": "a permanent failure is not retried by itself; a held task has exactly one open alert",
    "I27": "the undo plan stands before its first action",
    "I28": "the undo goes in reverse, steps in doubt first, one at a time, after every attempt ended",
    "I30": "a step in doubt is part of the undo; only a result or an operator settles a doubt, of a try as of an attempt",
    "I31": "nothing forward is dispatched after the undo began, and nothing is undone past a pivot",
    "I32": "a task is not shown as undone before it is",
    "I33": "terms of a lease strictly increase, one holder each",
    "I34": "a leader writes only under the current term",
    "I35": "a lease is given back only by its holder under its term",
    "I39": "places in a convoy are given in the order of commits, and nothing stands behind its end mark",
    "I40": "of a convoy one task at a time has its turn, always the first that waits; no place and no number is left out silently",
    "I41": "a convoy passes a failed task, or continues when parked, only if that is recorded, with whether its place is lost",
    "I43": "statuses of a task are numbered 1, 2, ... without gaps",
    "I44": "a status never contradicts its task",
    "I45": "the last status of an incarnation reports its end, in the queue that the submission named",
    "I53": "history is append-only, gap-free and hash-chained, and every event in it is known",
    "I59": "every verb of an operator records who, from which state to which, and what an edit or a change of limits replaces",
    "I61": "a task and its steps are run by processes of its own App",
    "I62": "the fence of a breaker strictly increases, and its states follow each other as in its table",
    "I63": "canaries go one wave after the other, never more than a wave has, and none while the breaker is closed or paused",
    "I64": "failures that an outage burnt are given back once, and never more than were counted",
    "I67": "an attempt begins with no more time than its policy gives it",
    "I68": "only a running attempt in time is extended, and no further than its policy allows",
    "I69": "only a running attempt in time keeps a checkpoint; the step's row has the last one, none after an edit",
    "I71": "what expired comes back at the configured rate, under each leader (asked for with --redispatch-per-second)",
    "I72": "under a limit of concurrent attempts never more run than it allows, for each key",
    "I73": "under a rate never more calls begin in its window than it allows, for each key",
    "I74": "a step that was taken moves to another Agent only if it is interchangeable, and so does its compensation",
    "I75": "a schedule runs each instant once, as a task whose id is the schedule and the instant",
    "I76": "about each instant of a schedule is decided once, in order; one is passed over only where overlap or catch-up says so",
    "I77": "a verb that says who approved it was approved by each of them, for the same, since the verb before it",
    "I78": "a process that is lost takes no attempt from the program that holds it; only such an attempt is ended by an operator",
    "I79": "a signal is kept once under its id, and taken once, in order, by an open wait of its name; a request is answered once",
    "I80": "no task begins while its workflow is paused for new tasks, and its row says what the history says",
    "I81": "what is for one wait alone is kept once, while that waits, and again only if its value was set aside",
    "I82": "operators answer the wait of a question while it is open, and no other wait",
    "I83": "a child is submitted once, for a step of its parent that runs, which records the end that the child's own history has by then",
    "I84": "when a task is compensated, each child that it waits for is compensated, too, and none begins after that",
    "I85": "a task runs with a patch of its code in all of a life or in none: it is marked once, with the first step behind it",
    "I86": "what a fork has as a copy is what the task that it names had done by then, and a fork never undoes it",
    "I87": "a message goes into one batch, in the order of its convoy, of no more than the batch may have, and ends as its batch ends",
    "I88": "a task is continued by the version of its code that began it, until an operator moves it",
    "I89": "a run that ends by ContinueAs has one next run, from the same commit on, with just the signals that no wait had taken",
}


def fold_commit(task: TaskFold, at: int, events: Sequence[Event | UnreadableEvent], terms: dict[str, int]) -> None:
    """Fold one commit of a task. ``terms``: the leases' terms as of this commit."""
    if at < task.at:
        task.convict("I19", f"the store's clock went back from {task.at} to {at}")
    task.at = at
    refused = [event for event in events if isinstance(event, StepReport) and event.verdict != "applied"]
    if refused and len(refused) != len(events):
        task.convict("I13", f"a refused report of step {refused[0].step} came with changes")
    for event in events:
        if not _fold_event(task, event):
            return
        if isinstance(event, StepExpired | TaskExpired) and event.term not in (None, terms.get("supervisor")):
            task.convict("I34", f"{event.type} under term {event.term}, current is {terms.get('supervisor', 0)}")
    fold_people.judge_commit(task, events)


def _fold_event(task: TaskFold, event: Event | UnreadableEvent) -> bool:
    """Fold one event. False: nothing more of this commit can be folded."""
    if isinstance(event, EventOfConvoy | EventOfStore | EventOfBreaker | EventOfSchedule) or event.type not in TYPES:
        task.convict("I53", f"unknown event {event.type!r}")
        return True
    if event.type != "task.submitted" and task.state is None:
        task.convict("I5", f"{event.type} of a task that was never submitted")
        return False
    try:
        if isinstance(event, EventOfTask):
            fold_task_event(task, event)
        elif isinstance(event, EventOfStep):
            fold_step_event(task, event)
        elif isinstance(event, EventOfPeople):
            fold_people.fold_people_event(task, event)
        elif isinstance(event, EventOfTurn):
            fold_turn_event(task, event)
        elif isinstance(event, EventOfSignal):
            fold_signal_event(task, event)
        elif isinstance(event, UnreadableEvent):
            task.convict("I53", f"{event.type} cannot be read: {event.error}")
        else:
            assert_never(event)
    except UNREADABLE as error:
        task.convict("I53", f"{event.type} cannot be read: {type(error).__name__} {error}")
    return True


class StoreFold:
    """The fold of the store's own events: process starts and leases."""

    def __init__(self) -> None:
        self.terms: dict[str, int] = {}
        self.holders: dict[str, tuple[int, LeaseHolder]] = {}  # term and holder, by lease
        self.instances: set[str] = set()
        self.apps: dict[int, str] = {}  # of process starts, by number
        self.versions: dict[int, Versions] = {}  # of their code
        self.epoch = FIRST
        self.ledgers = LedgerFold()
        self.breakers: dict[tuple[str, str, str], BreakerFold] = {}  # by App, Agent, target
        self.schedules: dict[tuple[str, str], ScheduleFold] = {}  # by App, name
        self.limits = LimitsFold()
        self.tokens = TokenFold(self._convict)
        self.workflows = WorkflowFold(self._convict)
        self.purged = False  # tasks were removed, and their histories with them
        self.violations: list[Violation] = []

    def fold_commit(self, actor: str, at: int, events: Iterable[Event | UnreadableEvent]) -> None:
        """Fold one commit."""
        for event in events:
            if isinstance(event, EventOfStore):
                self._fold_store_event(actor, at, event)
            elif isinstance(event, EventOfBreaker):
                self._find_breaker(event).fold(event)
            elif isinstance(event, EventOfSchedule):
                self._find_schedule(event).fold(event)
            elif isinstance(event, UnreadableEvent) and event.error:
                self._convict("I53", f"{event.type} cannot be read: {event.error}")
            else:
                self._convict("I53", f"unknown event {event.type!r}")

    def _fold_store_event(self, actor: str, at: int, event: EventOfStore) -> None:
        match event:
            case ProcessStarted(process=process, app=app, versions=versions):
                if actor in self.instances:
                    self._convict("I12", f"the process start {actor} began twice")
                self.instances.add(actor)
                self.apps[process], self.versions[process] = app, versions
            case LeaseGranted(lease=name, term=term, process=process, owner=owner):
                self._grant_lease(name, term, owner or process)
            case LeaseBroken(lease=name, term=term, process=process, owner=owner):
                held, holder = (term, owner or process), self.holders.get(name)
                if holder != held:
                    self._convict("I35", f"lease {name} was taken from {held}, it was held by {holder}")
            case LeaseLost(lease=name, term=term, process=process, owner=owner):
                held, holder = (term, owner or process), self.holders.get(name)
                if holder != held:
                    self._convict("I35", f"lease {name} was given back by {held}, it was held by {holder}")
            case LeaderRefused(term=term, current=current):
                self._judge_refused(term, current)
            case EpochOpened(epoch=epoch):
                self._open_epoch(epoch)
            case LimitsDeclared():
                self.limits.declare(event, at)
            case TasksPurged():
                self.purged = True
            case LedgerOpenedEvent():
                self.ledgers.open(event)
            case LedgerDiscarded():
                self.ledgers.discard(event)
            case TokenCreated() | TokenRevoked():
                self.tokens.fold(actor, event)
            case WorkflowPausedEvent() | WorkflowResumed():
                self.workflows.fold(event)
            case ProcessRetired() | AppRenamed() | StatusesDropped() | ConvoysPurged() | LedgerPurged() | Erased():
                pass
            case _:
                assert_never(event)

    def _find_breaker(self, event: EventOfBreaker) -> BreakerFold:
        key = (event.app, event.agent, event.target)
        if key not in self.breakers:
            name = f"{event.agent}[{event.target}]" if event.target else event.agent
            self.breakers[key] = BreakerFold(name, self._convict)
        return self.breakers[key]

    def _find_schedule(self, event: EventOfSchedule) -> ScheduleFold:
        key = (event.app, event.schedule)
        if key not in self.schedules:
            self.schedules[key] = ScheduleFold("/".join(key), self._convict)
        return self.schedules[key]

    def _open_epoch(self, epoch: int) -> None:
        if epoch <= self.epoch:
            self._convict("I12", f"epoch {epoch} was opened after epoch {self.epoch}")
        self.epoch = epoch

    def _grant_lease(self, name: str, term: int, holder: LeaseHolder) -> None:
        if term <= self.terms.get(name, 0):
            self._convict("I33", f"lease {name}: term {term} after {self.terms.get(name, 0)}")
        self.terms[name] = term
        self.holders[name] = (term, holder)

    def _judge_refused(self, term: int, current: int) -> None:
        known = self.terms.get("supervisor", 0)
        if current != known or term == current:
            self._convict("I34", f"a write under term {term} was refused for term {current}, current is {known}")

    def _convict(self, invariant: str, detail: str) -> None:
        self.violations.append(Violation(invariant, "", detail))


class History:
    """The fold of a whole history, row by row in commit order."""

    def __init__(self) -> None:
        self.tasks: dict[int, TaskFold] = {}
        self.convoys: dict[int, ConvoyStream] = {}
        self.store = StoreFold()
        self.violations: list[Violation] = []
        self._heads: dict[int, tuple[int, str]] = {}
        self._erasures = Erasures()
        self._redispatch = RedispatchFold()
        self._children = ChildrenFold(self.tasks)
        self._forks = ForksFold(self.tasks)
        self._runs = RunsFold()

    def add(self, row: HistoryRow) -> None:
        """Fold one row and check its link."""
        link, head = self.last_link(row.task_no)
        named = f"convoy {row.task_id}" if row.task_no < 0 else row.task_id
        text = bytes(row.events).decode()
        if row.link != link + 1:
            self.violations.append(Violation("I53", named, f"link {row.link} follows {link}"))
        is_erased = self._erasures.add_row(row.task_no, row.link, row.hash, bytes(row.events))
        if not is_erased and not fits_link(row.hash, head, row.task_no, row.link, row.at, row.actor, text):
            self.violations.append(Violation("I53", named, f"link {row.link} does not carry the hash of its content"))
        self._heads[row.task_no] = (row.link, row.hash)
        try:
            events = read_events(text)
        except msgspec.MsgspecError as error:
            self.violations.append(Violation("I53", named, f"link {row.link} cannot be read: {error}"))
            return
        if row.task_no == _STORE_STREAM:
            self.store.fold_commit(row.actor, row.at, events)
            return
        if row.task_no < 0:
            self._convoy(-row.task_no).own_row(row.task_id, row.at, events)
            return
        if row.task_no not in self.tasks:
            self.tasks[row.task_no] = TaskFold(row.task_no, row.task_id)
        task = self.tasks[row.task_no]
        fold_commit(task, row.at, events, self.store.terms)
        judge_app(task, events, self.store.apps)
        judge_version(task, events, self.store.versions)
        self._children.fold_commit(task, events)
        self._forks.fold_commit(task, events)
        self._runs.fold_commit(task, row.at, events)
        self.store.workflows.judge_claims(task, events)
        self._redispatch.fold_commit(events)
        self.store.limits.fold_commit(task, row.at, events, self.store.apps)
        first = events[0] if events else None
        if isinstance(first, TaskSubmitted) and first.ledger is not None:
            self.store.ledgers.submit(row.task_id, first.ledger)
        for convoy_no in {number for event in events if (number := read_convoy_number(event)) is not None}:
            self._convoy(convoy_no).row_of_task(task, row.at, events)

    def _convoy(self, convoy_no: int) -> ConvoyStream:
        if convoy_no not in self.convoys:
            self.convoys[convoy_no] = ConvoyStream(convoy_no)
        return self.convoys[convoy_no]

    def last_link(self, task_no: int) -> tuple[int, str]:
        """Link and hash of the last row of a stream; of a convoy's own under its number below zero."""
        return self._heads.get(task_no, (0, START))

    def end(self, *, complete: bool = False, redispatch_per_second: int | None = None) -> list[Violation]:
        """Return all violations: of the chains, of the store, of the tasks, of the convoys. Arguments as of ``check``."""
        found = self.violations + self.store.violations + self.store.ledgers.violations + self.store.limits.violations
        found += [
            Violation("I53", "", f"link {link} was erased, and no later one records it")
            for link in self._erasures.list_untold()
        ]
        self._children.end(purged=self.store.purged)
        self._forks.end(purged=self.store.purged)
        self._runs.end(purged=self.store.purged)
        for task in self.tasks.values():
            fold_people.judge_end(task, complete=complete)
            found += task.violations
        for convoy in self.convoys.values():
            convoy.end(purged=self.store.purged)
            found += convoy.fold.violations
        if redispatch_per_second is not None:
            found += self._redispatch.find_violations(redispatch_per_second)
        return found


def check(
    rows: Iterable[HistoryRow], *, complete: bool = False, redispatch_per_second: int | None = None
) -> list[Violation]:
    """Check every invariant that a history can show.

    Args:
        rows: in commit order, from the first.
        complete: whether every task must have ended.
        redispatch_per_second: the setting ``redispatch_per_second_max`` of all processes; None: the rate is not judged.
    Returns: violations; empty when it is clean.
    """
    history = History()
    for row in rows:
        history.add(row)
    return history.end(complete=complete, redispatch_per_second=redispatch_per_second)


def find_differences(fold: TaskFold, loaded: Loaded) -> list[str]:
    """Return the differences between the state tables and the fold of the history (I52); empty if they agree."""
    task = loaded.task
    fields: tuple[str, ...] = ("state", "fence", "failure_count", "lost_count", "incarnation", "past_count")
    fields += ("complete_by", "reply_to", "status_count", "convoy_no", "place", "sequence", "rank", "turn", "app")
    fields += ("snoozed_until", "code_version")
    found = _list_differing_fields(f"task {task.task_id}", fold, task, fields)
    if fold.paused != (task.paused_at is not None):
        found.append(f"task {task.task_id}: its history says that it is {'' if fold.paused else 'not '}paused")
    if fold.batch != task.batch_no:
        found.append(f"task {task.task_id}: it is in batch {task.batch_no}, its history says {fold.batch} (I87)")
    if (waiting := sum(signal.taken_by is None for signal in fold.signals.values())) != task.inbox:
        found.append(f"task {task.task_id}: its inbox holds {task.inbox} signals, its history says {waiting} (I79)")
    if fold.tags != _read_tags(task.tags):
        found.append(f"task {task.task_id}: its tags are {task.tags}, its history says {fold.tags}")
    if fold.holder != task.locked_by:
        found.append(f"task {task.task_id}: holder is {task.locked_by}, its history says {fold.holder}")
    if set(fold.steps) != {step.ordinal for step in loaded.steps}:
        return [*found, f"task {task.task_id}: the table holds other steps than its history"]
    for step in loaded.steps:
        fields = ("state", "attempt", "fence", "failure_count", "lost_count", "in_doubt", "idempotency_key")
        if step.kind is StepKind.TIMER:
            if step.state is StepState.WITHDRAWN:
                continue  # a timer that is no longer waited for leaves no event of its own
            fields = ("state",)
        else:
            fields += ("agent", "routing")
        found += _list_differing_fields(
            f"task {task.task_id} step {step.ordinal}", fold.steps[step.ordinal], step, fields
        )
        said = fold.steps[step.ordinal]
        if step.state is StepState.RUNNING and (step.locked_by is None) != (said.is_at_program or said.is_of_child):
            found.append(
                f"task {task.task_id} step {step.ordinal}: its attempt is held by {step.locked_by or 'its program'}, its history"
                " says another thing (I78)"
            )
        if _differs_in_limits(step, fold.steps[step.ordinal]):
            found.append(f"task {task.task_id} step {step.ordinal}: its limits are others than its history says (I59)")
        if payload_hash(step.checkpoint) != fold.steps[step.ordinal].checkpoint:
            found.append(
                f"task {task.task_id} step {step.ordinal}: its checkpoint is another than its history says (I69)"
            )
    return found


def _differs_in_limits(step: StepRow, fold: StepFold) -> bool:
    """Returns True if a row has other limits than its history says; a text that is not a valid policy has."""
    if step.kind is StepKind.TIMER or fold.policy is None:
        return False
    try:
        found = msgspec.json.decode(step.policy, type=StepPolicy)
    except msgspec.MsgspecError:
        return True
    return any(read_limit(found, name) != read_limit(fold.policy, name) for name in STEP_LIMITS)


def _read_tags(text: str | None) -> object:
    """Read the tags of a row; a text that is not JSON stands for itself."""
    try:
        return {} if text is None else msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def find_convoy_differences(history: History, row: ConvoyRow) -> list[str]:
    """Return the differences between a convoy's row and the history (I52), and reasons why its tasks would wait indefinitely."""
    stream = history.convoys.get(row.convoy_no)
    if stream is None:
        is_silent = row.number == 0 or history.store.purged
        return [] if is_silent else [f"convoy {row.key}: its history says nothing of it"]
    stream.end(purged=history.store.purged)
    found = stream.differences(row, purged=history.store.purged)
    if (row.link, row.head) != history.last_link(-row.convoy_no):
        found.append(f"convoy {row.key}: its row names another last link than its history")
    return found


def find_breaker_differences(history: History, row: BreakerRow) -> list[str]:
    """Return the differences between a breaker's row and the history (I52)."""
    fold = history.store.breakers.get((row.app, row.agent, row.target))
    if fold is None:
        return [f"breaker {row.label}: its history says nothing of it"]
    # Upkeep removes a breaker that nobody needs. Its next row begins above all fences that were given, without an event.
    is_anew = fold.state == row.state == BreakerState.CLOSED and row.fence > fold.fence
    found = (str(row.state), row.fence, row.paused_at is not None)
    said = (fold.state, row.fence if is_anew else fold.fence, fold.paused)
    return [] if found == said else [f"breaker {row.label}: its row says {found}, its history {said}"]


def _list_differing_fields(what: str, fold: object, row: object, fields: tuple[str, ...]) -> list[str]:
    pairs = [(field, getattr(row, field), getattr(fold, field)) for field in fields]
    return [f"{what}: {field} is {found}, its history says {said}" for field, found, said in pairs if found != said]
