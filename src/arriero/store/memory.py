"""The contract in dicts: the readable reference, the oracle of the other stores, and the store of the simulator."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from ..commands import Answer, AnyCommand, Claim, Claimed, Dispatch, Refusal, Submit, Submitted, Take, Taken
from ..core import transitions
from ..core.apps import NOT_SAID, may_run
from ..core.compensation import open_compensations
from ..core.epoch import FIRST, first_number, refusal
from ..core.known import same_submission
from ..core.lease import PROBATION_FROM
from ..core.purging import tasks_purged
from ..core.readable import legible, refuse_unreadable
from ..errors import ArrieroError
from ..model import (
    TASK_FORWARD,
    TASK_OPEN,
    AlertRow,
    ConvoyRow,
    ConvoyState,
    EditRow,
    HistoryRow,
    Instant,
    LateAnswerRow,
    LeaseRow,
    Loaded,
    ProcessRow,
    StatusRow,
    StepKind,
    StepRow,
    StepState,
    TaskFailure,
    TaskRow,
    TaskState,
    Turn,
    later,
)
from . import apart
from .apart import UNREADABLE
from .apps import app_renamed, process_started, refuse_collision
from .base import (
    ANY_TASK,
    ConvoyLoaded,
    Due,
    Ended,
    Overdue,
    Purge,
    Purged,
    QueueSurvey,
    Renewal,
    Survey,
    TaskFilter,
    folded,
)
from .batch import STORE_STREAM, UPKEEP, Batch, complete_within, gap_mark
from .convoys import LOOKS_MAX, missing_of, spot_for
from .ledgers import reserved
from .memory_attempts import MemoryAttempts
from .starting import new_rows, submitted

T = TypeVar("T")
_DONE = (TaskState.PROCESSED, TaskState.COMPENSATED)
_ENDED = (*_DONE, TaskState.ERROR)
_read_failure = msgspec.json.Decoder(TaskFailure).decode


class MemoryStore(MemoryAttempts):
    """All state of one simulated or test world. ``clock``: microseconds. ``store_id``: for reproducible keys."""

    url = "memory://"

    def __init__(self, clock: Callable[[], Instant] | None = None, store_id: str = "memory") -> None:
        from time import monotonic_ns, time_ns  # only a stand-alone store reads the machine's clock

        offset = time_ns() - monotonic_ns()  # setting the wall clock moves nothing
        self._clock = clock or (lambda: Instant((monotonic_ns() + offset) // 1000))
        self.store_id = store_id
        super().__init__()
        self._nobody_frees_until = Instant(0)
        self._last_renewed_at: Instant | None = None
        self.epoch = self._speaks_in = FIRST

    def now(self) -> Instant:
        return self._clock()

    async def open(self) -> None:
        return

    async def close(self) -> None:
        return

    def loaded(self, task_no: int) -> Loaded:
        """A task as it stands, also where it cannot be read."""
        task = self.tasks[task_no]
        return Loaded(task, self.bodies[task_no], self.steps_of(task_no), self.convoy_of(task))

    def _readable(self, task_nos: Iterable[int]) -> list[Loaded]:
        """Those of some tasks that can be read."""
        left_alone = set(self.apart.tasks())
        found = (self.loaded(task_no) for task_no in task_nos if task_no not in left_alone)
        return [loaded for loaded in found if self.apart.can_read_task(loaded)]

    def _can_read(self, task_no: int) -> bool:
        return self.apart.can_read_task(self.loaded(task_no))

    def _tell_unreadable(self) -> None:
        """Open an alert for each task that was set apart, unless it has one."""
        for error in self.apart.untold():
            task_no = error.task_no or self._first_waiting(error.convoy_no)
            task = self.tasks.get(task_no)
            if task is not None:
                self.add_alert(apart.alert(error, task_no, task.task_id, task.workflow, task.incarnation, self.now()))
            apart.log(error, "" if task is None else task.task_id)

    def _first_waiting(self, convoy_no: int) -> int:
        return next((task.task_no for task in self.members(convoy_no) if task.turn is Turn.WAITING), 0)

    async def look_at_unreadable(self) -> int:
        told = [alert.task_no for alert in self._open_of_unreadable()]
        closed = [no for no in told if no not in self.tasks or self._can_read(no)]
        for task_no in closed:
            self.apart.forget(task_no)
            self.close_alert(task_no, self.now(), causes=(UNREADABLE,))
        self._tell_unreadable()
        return len(closed)

    # --- writing
    async def submit(self, batch: Sequence[Submit]) -> list[Submitted | Refusal]:
        return self._transact(lambda: [self._submit(command) for command in batch])

    def _submit(self, command: Submit) -> Submitted | Refusal:
        known = self.numbers.get(command.task_id)
        tail = None if command.convoy is None else self.tail_of(command.convoy)
        if known is not None:
            task = self.tasks[known]
            return reserved(task, self) or same_submission(task, command, partial(self.submitted, known), tail)
        now = self.now()
        spot = spot_for(command, tail, self, now)
        if isinstance(spot, Submitted | Refusal):
            return spot
        task_no = self.next_number("task")
        speaks = not refusal(self._speaks_in, self.epoch)
        change = new_rows(command, task_no, now, spot, self, self.store_id if speaks else None)
        self._put(self.numbers, command.task_id, task_no)
        self._put(self.bodies, task_no, command.arguments)
        Batch(self, now).write(change, command.actor)
        return submitted(change, command)

    async def apply(self, batch: Sequence[AnyCommand]) -> list[Answer | ArrieroError]:
        if refused := refusal(self._speaks_in, self.epoch):
            return [Refusal("old_epoch", refused) for _ in batch]
        answers = self._transact(lambda: [self._apply(command) for command in batch])
        self._tell_unreadable()
        return answers

    def _apply(self, command: AnyCommand) -> Answer | ArrieroError:
        work = Batch(self, self.now())
        match command:
            case Claim() | Take() if self.process_was_retired(command.process_no):
                return Claimed(()) if isinstance(command, Claim) else Taken(())
            case Claim():
                return self._claim(command, work)
            case Take():
                return self._take(command, work)
            case _:
                return work.apply(command)

    def _claim(self, command: Claim, work: Batch) -> Claimed:
        probation_room = 1 if command.probation else 0
        for convoy in self._due_convoys(work.now)[:LOOKS_MAX]:
            work.look(convoy, command.actor)
        claimed: list[Loaded] = []
        for task in self._claimable(work.now, command.workflows, command.app):
            if len(claimed) >= command.limit:
                break
            if task.lost_count >= PROBATION_FROM:
                if not probation_room:
                    continue
                probation_room -= 1
            if not self._readable((task.task_no,)):
                continue
            work.write(transitions.claim(task, command.process_no, work.now), command.actor)
            claimed.append(self.loaded(task.task_no))
        return Claimed(tuple(claimed))

    def _due_convoys(self, now: Instant) -> list[ConvoyRow]:
        left_alone = set(self.apart.convoys())
        due = [(c.look_at, c) for c in self.convoys.values() if c.look_at is not None and c.look_at <= now]
        found = [convoy for _, convoy in sorted(due, key=lambda one: (one[0], one[1].convoy_no))]
        return self.apart.readable(convoy for convoy in found if convoy.convoy_no not in left_alone)

    def _claimable(self, now: Instant, workflows: Iterable[str], app: str) -> list[TaskRow]:
        known = set(workflows)
        due = [
            t
            for t in self.tasks.values()
            if t.locked_by is None and t.not_before is not None and t.not_before <= now and t.paused_at is None
            if t.workflow in known or t.state is TaskState.COMPENSATING
            if may_run(app, t.app)
        ]
        return sorted(due, key=lambda t: (-t.priority, t.not_before, t.task_no))

    def _take(self, command: Take, work: Batch) -> Taken:
        dispatches: list[Dispatch] = []
        probation = command.probation
        for agent, room in command.room:
            taken = 0
            for step in self._takeable(work.now, agent, command):
                if taken >= room:
                    break
                task = self.tasks[step.task_no]
                if not self.apart.can_read(partial(self._read_both, step, task)):
                    continue
                if task.lost_count >= PROBATION_FROM:
                    if probation not in (None, task.task_no):
                        continue
                    probation = task.task_no
                change = transitions.take(task, step, command.process_no, work.now, complete_within(step))
                work.write(change, command.actor)
                dispatches += change.dispatches
                taken += 1
        return Taken(tuple(dispatches))

    @staticmethod
    def _read_both(step: StepRow, task: TaskRow) -> None:
        refuse_unreadable(step)
        refuse_unreadable(task)

    def _takeable(self, now: Instant, agent: str, command: Take) -> list[StepRow]:
        known = set(command.names)
        due = [
            s
            for s in self._steps_not_apart()
            if s.state is StepState.PENDING and s.kind is not StepKind.TIMER and s.agent == agent and s.name in known
            if s.not_before is not None and s.not_before <= now and may_run(command.app, s.app)
            if s.app != NOT_SAID or may_run(command.app, self.tasks[s.task_no].app)
        ]
        return sorted(due, key=lambda s: (-s.priority, s.app != NOT_SAID, s.not_before, s.step_no))

    def _steps_not_apart(self) -> list[StepRow]:
        left_alone = set(self.apart.tasks())
        return [step for step in self._all_steps() if step.task_no not in left_alone]

    def _all_steps(self) -> Iterable[StepRow]:
        return (s for of_task in self.steps.values() for s in of_task.values())

    # --- processes
    def announce(self, instance: str) -> None:
        return

    def is_known_dead(self, instance: str) -> bool:
        return False

    async def register(self, instance: str, lease_seconds: float, about: str = "{}") -> int:
        refuse_collision(about, (process.about for process in self.processes.values()), self._count_unsaid)
        now = self.now()
        process_no = self.next_number("process")
        self.processes[process_no] = ProcessRow(process_no, instance, later(now, lease_seconds), False, about)
        Batch(self, now).note(STORE_STREAM, instance, [process_started(process_no, about)])
        self._speaks_in = self.epoch
        return process_no

    def _count_unsaid(self, workflows: Sequence[str]) -> Mapping[str, int]:
        unsaid = [
            t for t in self.tasks.values() if t.app == NOT_SAID and t.state not in _DONE and not self.is_hidden(t)
        ]
        return Counter(t.workflow for t in unsaid if t.workflow in workflows)

    async def new_epoch(self, actor: str, reason: str = "") -> int:
        self.epoch += 1
        self.processes = {no: msgspec.structs.replace(row, retired=True) for no, row in self.processes.items()}
        self.number_from("task", first_number(self.epoch))
        self.number_from("process", first_number(self.epoch))
        Batch(self, self.now()).note(
            STORE_STREAM, actor, [{"type": "epoch.opened", "epoch": self.epoch, "reason": reason}]
        )
        return self.epoch

    def on_wake_up(self, wake: Callable[[], None]) -> None:
        return

    async def renew(self, process_no: int, lease_seconds: float) -> Renewal:
        now = self.now()
        last = self._last_renewed_at
        if last is not None and now > later(last, lease_seconds):
            self._nobody_frees_until = later(now, lease_seconds)
        self._last_renewed_at = now
        row = self.processes[process_no]
        if not row.retired:
            self.processes[process_no] = msgspec.structs.replace(row, lease_until=later(now, lease_seconds))
        others = tuple(
            p for p in self.processes.values() if p.process_no != process_no and (not p.retired or self._named(p))
        )
        return Renewal(now, not row.retired, self._nobody_frees_until, others)

    async def describe(self, process_no: int, about: str) -> None:
        row = self.processes[process_no]
        if not row.retired:
            self.processes[process_no] = msgspec.structs.replace(row, about=about)

    def _named(self, process: ProcessRow) -> bool:
        return bool(self._held_by(process.process_no))

    def _held_by(self, process_no: int) -> list[int]:
        held = {t.task_no for t in self.tasks.values() if t.locked_by == process_no}
        held |= {s.task_no for s in self._all_steps() if s.locked_by == process_no}
        return sorted(held)

    async def known_processes(self) -> tuple[Instant, list[ProcessRow]]:
        return self.now(), [process for process in self.processes.values() if not process.retired]

    async def retire(self, process_no: int, *, by: str, known_dead: bool) -> bool:
        row = self.processes[process_no]
        now = self.now()
        if row.retired or (not known_dead and row.lease_until > now):
            return row.retired
        self.processes[process_no] = msgspec.structs.replace(row, retired=True)
        Batch(self, now).note(
            STORE_STREAM, by, [{"type": "process.retired", "process": process_no, "known_dead": known_dead}]
        )
        return True

    async def rename_app(self, old: str, new: str, count: int, actor: str, reason: str) -> None:
        Batch(self, self.now()).note(STORE_STREAM, actor, [app_renamed(old, new, count, reason)])

    async def load_held(self, process_no: int, limit: int) -> list[Loaded]:
        left_alone = set(self.apart.tasks())
        held = [task_no for task_no in self._held_by(process_no) if task_no not in left_alone]
        found = self._readable(held[:limit])
        self._tell_unreadable()
        return found

    async def load_news(self, process_no: int) -> list[tuple[int, int]]:
        left_alone = set(self.apart.tasks())
        ours = [t for t in self.tasks.values() if t.locked_by == process_no and t.task_no not in left_alone]
        news = [(t.unseen_since, t) for t in ours if t.unseen_since is not None]
        to_be_tried = set(self.apart.to_be_tried())
        again = [t for t in ours if t.task_no in to_be_tried]
        self.apart.tried(t.task_no for t in again)  # processes of the simulator share this store: the others' stay
        found = [t for _, t in sorted(news, key=lambda one: (one[0], one[1].task_no))]
        return [(t.task_no, t.revision) for t in (*found, *again)]

    # --- leases
    async def acquire_lease(self, name: str, process_no: int, actor: str, seconds: float) -> LeaseRow:
        now = self.now()
        row = self.leases.get(name, LeaseRow(name, 0, None, Instant(0)))
        if row.holder not in (None, process_no) and row.until > now:
            return row
        if row.holder != process_no or row.until <= now:
            row = LeaseRow(name, row.term + 1, process_no, row.until)
            event = {"type": "lease.granted", "lease": name, "term": row.term, "process": process_no}
            Batch(self, now).note(STORE_STREAM, actor, [event])
        self.leases[name] = msgspec.structs.replace(row, until=later(now, seconds))
        return self.leases[name]

    async def renew_lease(self, name: str, process_no: int, term: int, seconds: float) -> bool:
        row = self.leases.get(name)
        if row is None or (row.holder, row.term) != (process_no, term) or row.until <= self.now():
            return False
        self.leases[name] = msgspec.structs.replace(row, until=later(self.now(), seconds))
        return True

    async def release_lease(self, name: str, process_no: int, term: int, actor: str) -> None:
        row = self.leases.get(name)
        if row is not None and (row.holder, row.term) == (process_no, term):
            self.leases[name] = msgspec.structs.replace(row, holder=None)
            event = {"type": "lease.lost", "lease": name, "term": term, "process": process_no}
            Batch(self, self.now()).note(STORE_STREAM, actor, [event])

    # --- reading
    async def due(self, workflows: Sequence[str], agents: Sequence[str], app: str = "") -> Due:
        now = self.now()
        known = set(workflows)
        left_alone, convoys_left = set(self.apart.tasks()), set(self.apart.convoys())
        tasks = [
            t.not_before
            for t in self.tasks.values()
            if t.locked_by is None and t.not_before is not None and t.paused_at is None
            if t.workflow in known or t.state is TaskState.COMPENSATING
            if t.task_no not in left_alone and may_run(app, t.app)
        ]
        looks = [c.look_at for c in self.convoys.values() if c.look_at is not None and c.convoy_no not in convoys_left]
        tasks += sorted(looks)[:1]  # while one is due, whoever looks at it asks again
        steps = [
            s.not_before
            for s in self._steps_not_apart()
            if s.state is StepState.PENDING
            and s.kind is not StepKind.TIMER
            and s.not_before is not None
            and s.agent in agents
            and may_run(app, s.app)
        ]
        waiting = [at for at in tasks + steps if at > now]
        return Due(now, any(at <= now for at in tasks), any(at <= now for at in steps), min(waiting, default=None))

    async def load_overdue(self, limit: int, progress_seconds: float) -> Overdue:
        now = self.now()
        left_alone = set(self.apart.tasks())
        steps = sorted(self._steps_not_apart(), key=lambda s: s.step_no)
        running = [(s.complete_by, s) for s in steps if s.complete_by is not None]
        waiting = [(s.wait_by, s) for s in steps if s.state is StepState.PENDING and s.wait_by is not None]
        tasks = sorted((t for t in self.tasks.values() if t.task_no not in left_alone), key=lambda t: t.task_no)
        unpaused = [t for t in tasks if t.paused_at is None]
        limited = [(t.complete_by, t) for t in unpaused if t.state in TASK_FORWARD and t.complete_by is not None]
        held = [(t.unseen_since, t) for t in tasks if t.locked_by is not None and t.unseen_since is not None]
        unseen = [(later(since, progress_seconds), t) for since, t in held]
        overdue = Overdue(
            now,
            tuple(self.apart.readable(_passed(running, now, limit))),
            tuple(self.apart.readable(_passed(waiting, now, limit))),
            tuple(self._readable(t.task_no for t in _passed(limited, now, limit))),
            tuple(self._readable(t.task_no for t in _passed(unseen, now, limit))),
        )
        self._tell_unreadable()
        return overdue

    async def load(self, task_no: int) -> Loaded | None:
        return self.loaded(task_no) if task_no in self.tasks else None

    async def load_tasks(self, task_nos: Sequence[int]) -> list[Loaded]:
        found = self._readable(task_no for task_no in task_nos if task_no in self.tasks)
        self._tell_unreadable()
        return found

    async def find(self, task_id: str) -> Loaded | None:
        task_no = self.numbers.get(task_id)
        return None if task_no is None or self.is_hidden(self.tasks[task_no]) else self.loaded(task_no)

    async def edits(self, task_no: int) -> list[EditRow]:
        return list(self.edit_rows.get(task_no, {}).values())

    async def late_answers(self, task_no: int) -> list[LateAnswerRow]:
        return list(self.late_answer_rows.get(task_no, {}).values())

    async def ended(self, task_nos: Sequence[int]) -> list[Ended]:
        tasks = [self.tasks[no] for no in sorted(set(task_nos)) if no in self.tasks]
        ended = [loaded.task for loaded in self._readable(t.task_no for t in tasks if t.state in _ENDED)]
        self._tell_unreadable()
        return [Ended(t, self._still_open(t)) for t in ended]

    def _still_open(self, task: TaskRow) -> tuple[str, ...]:
        return () if task.state is TaskState.PROCESSED else open_compensations(self.loaded(task.task_no).steps)

    async def list_tasks(
        self,
        which: TaskFilter = ANY_TASK,
        *,
        after: int = 0,
        before: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> list[TaskRow]:
        between = (t for t in self.tasks.values() if t.task_no > after and (before is None or t.task_no < before))
        found = (t for t in between if self._is_meant(t, which))
        return sorted(found, key=lambda t: t.task_no, reverse=newest_first)[:limit]

    async def count_listed(
        self, which: TaskFilter = ANY_TASK, *, after: int = 0, before: int | None = None, limit: int
    ) -> int:
        return len(await self.list_tasks(which, after=after, before=before, limit=limit))

    def _is_meant(self, task: TaskRow, which: TaskFilter) -> bool:
        told = legible(task).failure
        failure = None if told is None else _read_failure(told)
        code, reason = ("", "") if failure is None else (failure.code, failure.reason)
        return (
            not self.is_hidden(task)
            and which.state in (None, task.state)
            and which.workflow in (None, task.workflow)
            and which.app in (None, task.app)
            and (which.submitted_before is None or task.submitted_at <= which.submitted_before)
            and (which.submitted_since is None or task.submitted_at >= which.submitted_since)
            and which.code in (None, code)
            and (which.text is None or folded(which.text) in folded(reason))
            and which.paused in (None, task.paused_at is not None)
            and (which.agent is None or any(s.agent == which.agent for s in self._unfinished(task)))
            and (which.step is None or any(s.name == which.step for s in self._unfinished(task)))
        )

    def _unfinished(self, task: TaskRow) -> list[StepRow]:
        return [s for s in self.steps_of(task.task_no) if s.state is not StepState.COMPLETED]

    async def counts(self) -> dict[TaskState, int]:
        states = [t.state for t in self.tasks.values() if not self.is_hidden(t)]
        return {state: states.count(state) for state in TaskState}

    # --- convoys
    async def find_convoy(self, key: str, limit: int = 10) -> ConvoyLoaded | None:
        tail = self.tail_of(key)
        if tail is None or not tail.placed:  # a ledger that is not opened has the key, nobody else
            return None
        loaded = self._convoy_loaded(self.convoys[tail.convoy_no])
        members = list(map(legible, self.members(tail.convoy_no)))
        first = [task for task in members if task.turn is Turn.OPEN]
        waiting = [task for task in members if task.turn is Turn.WAITING]
        aside = [task for task in members if _is_set_aside(task)]
        return msgspec.structs.replace(
            loaded,
            members=tuple((*first, *waiting)[:limit]),
            passed_over=tuple(sorted(aside, key=lambda task: task.place or 0)[:limit]),
            missing=missing_of(sorted(t.sequence for t in members if t.sequence), loaded.convoy.expected, tail, limit),
        )

    def _convoy_loaded(self, convoy: ConvoyRow) -> ConvoyLoaded:
        members = self.members(convoy.convoy_no)
        waiting = sum(task.turn is Turn.WAITING for task in members)
        return ConvoyLoaded(convoy, self.tails[convoy.convoy_no], waiting, sum(_is_set_aside(task) for task in members))

    async def look_at_forgotten(self) -> int:
        found = [c for c in self.convoys.values() if c.state is ConvoyState.OPEN and self._is_forgotten(c)]
        for convoy in found:
            self.convoys[convoy.convoy_no] = msgspec.structs.replace(convoy, look_at=self.now())
        return len(found)

    def _is_forgotten(self, convoy: ConvoyRow) -> bool:
        task = None if convoy.open_task is None else self.tasks.get(convoy.open_task)
        return task is not None and task.state not in TASK_OPEN and convoy.look_at is None

    async def list_convoys(self, shown: str | None = None, *, after: int = 0, limit: int = 100) -> list[ConvoyLoaded]:
        found = [
            convoy
            for convoy in sorted(self.convoys.values(), key=lambda convoy: convoy.convoy_no)
            if convoy.convoy_no > after
            and self.tails[convoy.convoy_no].placed
            and (convoy.shown != "idle" if shown is None else convoy.shown == shown)
        ]
        return [self._convoy_loaded(convoy) for convoy in found[:limit]]

    async def survey(self) -> Survey:
        now = self.now()
        free = [t for t in self.tasks.values() if t.state in TASK_OPEN and t.locked_by is None and t.paused_at is None]
        waiting = [(t.not_before, t) for t in free if t.not_before is not None and t.not_before <= now]
        requests = [s for s in self._all_steps() if s.state is StepState.PENDING and s.kind is not StepKind.TIMER]
        due = [s for s in requests if s.not_before is not None and s.not_before <= now]
        open_tasks = [t for t in self.tasks.values() if t.state not in _DONE]
        bare = {
            (s.agent, s.name)
            for t in open_tasks
            for s in self.steps_of(t.task_no)
            if s.kind is StepKind.STEP and s.compensation is None and not s.effect_free and not s.pivot
        }
        untold = [a.opened_at if a.closed_at is None else a.closed_at for a in self.alert_rows.values() if a.next_at]
        queues = {status.queue for status in self.statuses.values()}
        return Survey(
            now,
            await self.counts(),
            sum(t.paused_at is not None for t in self.tasks.values()),
            sum(t.lost_count >= PROBATION_FROM for t in self.tasks.values() if t.state in TASK_OPEN),
            (len(waiting), min((at for at, _ in waiting), default=None)),
            tuple(sorted({(t.app, t.workflow) for _, t in waiting if t.state is not TaskState.COMPENSATING})),
            tuple(sorted({(s.app, s.agent, s.name) for s in due})),
            tuple(sorted(bare)),
            tuple(p for p in self.processes.values() if not p.retired),
            tuple(self._queue(queue) for queue in sorted(queues)),
            (len(untold), min(untold, default=None)),
            {"tasks": len(self.tasks), "history": len(self.log), "statuses": len(self.statuses)},
        )

    def _queue(self, queue: str) -> QueueSurvey:
        of_queue = [s for s in self.statuses.values() if s.queue == queue]
        return QueueSurvey(queue, len(of_queue), min(s.at for s in of_queue))

    # --- reply queues
    async def load_statuses(self, queue: str, limit: int) -> list[StatusRow]:
        found = (s for s in self.statuses.values() if s.queue == queue)
        return sorted(found, key=lambda s: (s.kind != "dropped", s.no))[:limit]

    async def acknowledge(self, acknowledged: Sequence[tuple[str, int]]) -> None:
        def work() -> None:
            for queue, number in acknowledged:
                status = self.statuses.get(number)
                if status is not None and status.queue == queue:
                    self._remove(self.statuses, number)

        self._transact(work)

    async def drop_statuses(self, before: Instant, limit: int) -> int:
        old = sorted((s for s in self.statuses.values() if s.at < before and s.kind != "dropped"), key=lambda s: s.no)
        return self._transact(lambda: self._drop(old[:limit]))

    def _drop(self, old: list[StatusRow]) -> int:
        work = Batch(self, self.now())
        for queue in sorted({status.queue for status in old}):
            of_queue = [status for status in old if status.queue == queue]
            mark = next((s for s in self.statuses.values() if s.queue == queue and s.kind == "dropped"), None)
            for status in (*of_queue, *([] if mark is None else [mark])):
                self._remove(self.statuses, status.no)
            self.add_status(gap_mark(queue, mark, of_queue, work.now))
        if old:
            work.note(STORE_STREAM, UPKEEP, [{"type": "statuses.dropped", "count": len(old)}])
        return len(old)

    # --- alerts
    async def take_alerts(self, limit: int, hold_seconds: float) -> list[AlertRow]:
        now = self.now()
        due = [(a.next_at, a) for a in self.alert_rows.values() if a.next_at is not None and a.next_at <= now]
        taken = []
        for _, alert in sorted(due, key=lambda one: (one[0], one[1].no))[:limit]:
            held = msgspec.structs.replace(alert, attempts=alert.attempts + 1, next_at=later(now, hold_seconds))
            self.alert_rows[alert.no] = held
            taken.append(held)
        return taken

    async def settle_alert(
        self, no: int, attempts: int, told: Sequence[str], again_in: float | None, error: str
    ) -> bool:
        alert = self.alert_rows.get(no)
        if alert is None or alert.attempts != attempts:
            return False
        next_at = None if again_in is None else later(self.now(), again_in)
        self.alert_rows[no] = msgspec.structs.replace(alert, told=tuple(told), next_at=next_at, error=error)
        return True

    async def alerts(self, *, open_only: bool = True, after: int = 0, limit: int = 100) -> list[AlertRow]:
        found = (a for a in self.alert_rows.values() if a.no > after and not (open_only and a.closed_at is not None))
        return sorted(found, key=lambda a: a.no)[:limit]

    # --- purging
    async def purge(self, which: Purge, *, actor: str, limit: int, after: int = 0) -> Purged:
        meant = [t for t in self.tasks.values() if t.task_no > after and self._may_be_purged(t, which)]
        chosen = sorted(meant, key=lambda t: t.task_no)[:limit]
        count = self._transact(lambda: self._purge(chosen, actor))
        return Purged(count, chosen[-1].task_no if len(chosen) == limit else None)

    def _may_be_purged(self, task: TaskRow, which: Purge) -> bool:
        is_told = all(alert.next_at is None for alert in self.alert_rows.values() if alert.task_no == task.task_no)
        return (
            task.state in which.states
            and task.ended_at is not None
            and task.ended_at <= which.ended_before
            and task.open_count == 0
            and task.turn not in (Turn.WAITING, Turn.OPEN)
            and not self._is_still_counted(task)
            and is_told
            and not any(status.task_no == task.task_no for status in self.statuses.values())
        )

    def _is_still_counted(self, task: TaskRow) -> bool:
        """Its number stands behind the next one of its convoy's sequence: without it there would be a gap."""
        convoy = self.convoy_of(task)
        return convoy is not None and task.sequence is not None and task.sequence >= convoy.expected

    def _purge(self, tasks: list[TaskRow], actor: str) -> int:
        if tasks:
            self.remove_tasks(tasks)
            Batch(self, self.now()).note(
                STORE_STREAM, actor, [tasks_purged([(t.task_no, t.link, t.head) for t in tasks])]
            )
        return len(tasks)

    async def history(self, task_no: int | None = None) -> AsyncIterator[HistoryRow]:
        for row in list(self.log):
            if task_no in (None, row.task_no):
                yield row


def _is_set_aside(task: TaskRow) -> bool:
    return task.turn is Turn.SET_ASIDE and task.state is TaskState.ERROR


def _passed(deadlines: list[tuple[Instant, T]], now: Instant, limit: int) -> list[T]:
    """Rows whose deadline has passed, longest first; those of one deadline in the order of ``deadlines``."""
    past = [(deadline, row) for deadline, row in deadlines if deadline <= now]
    return [row for _, row in sorted(past, key=lambda one: one[0])][:limit]
