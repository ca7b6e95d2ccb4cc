"""The contract in dicts: the readable reference, the oracle of the other stores, and the store of the simulator."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from ..commands import Answer, AnyCommand, Claim, Claimed, Dispatch, Refusal, Submit, Submitted, Take, Taken
from ..core import transitions
from ..core.changes import STEP_BITS
from ..core.compensation import open_compensations
from ..core.lease import PROBATION_FROM
from ..model import (
    TASK_FORWARD,
    TASK_OPEN,
    HistoryRow,
    Instant,
    LeaseRow,
    Loaded,
    ProcessRow,
    StepKind,
    StepRow,
    StepState,
    TaskRow,
    TaskState,
    later,
)
from .base import Due, Ended, Overdue, Renewal
from .batch import STORE_STREAM, Batch, complete_within, same_submission

T = TypeVar("T")


class MemoryStore:
    """All state of one simulated or test world. ``clock``: microseconds. ``store_id``: for reproducible keys."""

    url = "memory://"

    def __init__(self, clock: Callable[[], Instant] | None = None, store_id: str = "memory") -> None:
        from time import monotonic_ns, time_ns  # only a stand-alone store reads the machine's clock

        offset = time_ns() - monotonic_ns()  # setting the wall clock moves nothing
        self._clock = clock or (lambda: Instant((monotonic_ns() + offset) // 1000))
        self.store_id = store_id
        self.tasks: dict[int, TaskRow] = {}
        self.arguments: dict[int, str] = {}
        self.numbers: dict[str, int] = {}
        self.steps: dict[int, dict[int, StepRow]] = defaultdict(dict)
        self.log: list[HistoryRow] = []
        self.processes: dict[int, ProcessRow] = {}
        self.leases: dict[str, LeaseRow] = {}
        self._store_link, self._store_head = 0, ""
        self._nobody_frees_until = Instant(0)
        self._last_renewed_at: Instant | None = None
        self._written: list[tuple[dict[Any, Any], Any, Any]] = []  # of this transaction: table, key, value before

    def now(self) -> Instant:
        return self._clock()

    async def open(self) -> None:
        return

    async def close(self) -> None:
        return

    # --- the rows core.transitions reads and the batch writes
    def task(self, task_no: int) -> TaskRow | None:
        return self.tasks.get(task_no)

    def step(self, step_no: int) -> StepRow | None:
        return self.steps[step_no >> STEP_BITS].get(step_no)

    def open_steps(self, task_no: int) -> list[StepRow]:
        return [s for s in self.steps[task_no].values() if s.state in (StepState.PENDING, StepState.RUNNING)]

    def process_is_retired(self, process_no: int) -> bool:
        row = self.processes.get(process_no)
        return row is None or row.retired

    def process_was_retired(self, process_no: int) -> bool:
        row = self.processes.get(process_no)
        return row is not None and row.retired

    def term(self, lease: str) -> int:
        row = self.leases.get(lease)
        return 0 if row is None else row.term

    def put_task(self, task: TaskRow) -> None:
        self._put(self.tasks, task.task_no, task)

    def put_step(self, step: StepRow) -> None:
        self._put(self.steps[step.task_no], step.step_no, step)

    def add_step(self, step: StepRow) -> None:
        self._put(self.steps[step.task_no], step.step_no, step)

    def _put(self, table: dict[Any, Any], key: Any, value: object) -> None:
        self._written.append((table, key, table.get(key)))
        table[key] = value

    def _transact(self, work: Callable[[], T]) -> T:
        """All that ``work`` writes, or nothing when it raises."""
        self._written.clear()
        commits, head = len(self.log), self.store_head()
        try:
            return work()
        except BaseException:
            for table, key, before in reversed(self._written):
                if before is None:
                    del table[key]
                else:
                    table[key] = before
            del self.log[commits:]
            self.put_store_head(*head)
            raise

    def store_head(self) -> tuple[int, str]:
        return self._store_link, self._store_head

    def put_store_head(self, link: int, head: str) -> None:
        self._store_link, self._store_head = link, head

    def add_history(
        self, task_no: int, task_id: str, link: int, at: Instant, actor: str, events: str, digest: str
    ) -> None:
        self.log.append(
            HistoryRow(len(self.log) + 1, task_no, task_id, link, at, actor, msgspec.Raw(events.encode()), digest)
        )

    def loaded(self, task_no: int) -> Loaded:
        steps = sorted(self.steps[task_no].values(), key=lambda s: s.ordinal)
        return Loaded(self.tasks[task_no], self.arguments[task_no], tuple(steps))

    # --- writing
    async def submit(self, batch: Sequence[Submit]) -> list[Submitted | Refusal]:
        return self._transact(lambda: [self._submit(command) for command in batch])

    def _submit(self, command: Submit) -> Submitted | Refusal:
        known = self.numbers.get(command.task_id)
        if known is not None:
            return same_submission(self.tasks[known], command)
        task_no = len(self.tasks) + 1
        now = self.now()
        change = transitions.new_task(command, task_no, now)
        self._put(self.numbers, command.task_id, task_no)
        self._put(self.arguments, task_no, command.arguments)
        Batch(self, now).write(change, command.actor)
        return Submitted(task_no, True)

    async def apply(self, batch: Sequence[AnyCommand]) -> list[Answer]:
        return self._transact(lambda: [self._apply(command) for command in batch])

    def _apply(self, command: AnyCommand) -> Answer:
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
        claimed: list[Loaded] = []
        for task in self._claimable(work.now, command.workflows):
            if len(claimed) >= command.limit:
                break
            if task.lost_count >= PROBATION_FROM:
                if not probation_room:
                    continue
                probation_room -= 1
            work.write(transitions.claim(task, command.process_no, work.now), command.actor)
            claimed.append(self.loaded(task.task_no))
        return Claimed(tuple(claimed))

    def _claimable(self, now: Instant, workflows: Iterable[str]) -> list[TaskRow]:
        known = set(workflows)
        due = [
            t
            for t in self.tasks.values()
            if t.state in TASK_OPEN and t.locked_by is None and t.not_before is not None and t.not_before <= now
            if t.workflow in known or t.state is TaskState.COMPENSATING
        ]
        return sorted(due, key=lambda t: (-t.priority, t.not_before, t.task_no))

    def _take(self, command: Take, work: Batch) -> Taken:
        dispatches: list[Dispatch] = []
        probation = command.probation
        for agent, room in command.room:
            taken = 0
            for step in self._takeable(work.now, agent, command.names):
                if taken >= room:
                    break
                task = self.tasks[step.task_no]
                if task.lost_count >= PROBATION_FROM:
                    if probation not in (None, task.task_no):
                        continue
                    probation = task.task_no
                change = transitions.take(task, step, command.process_no, work.now, complete_within(step))
                work.write(change, command.actor)
                dispatches += change.dispatches
                taken += 1
        return Taken(tuple(dispatches))

    def _takeable(self, now: Instant, agent: str, names: Iterable[str]) -> list[StepRow]:
        known = set(names)
        due = [
            s
            for s in self._all_steps()
            if s.state is StepState.PENDING and s.kind is not StepKind.TIMER and s.agent == agent and s.name in known
            if s.not_before is not None and s.not_before <= now
        ]
        return sorted(due, key=lambda s: (-s.priority, s.not_before, s.step_no))

    def _all_steps(self) -> Iterable[StepRow]:
        return (s for of_task in self.steps.values() for s in of_task.values())

    # --- processes
    def announce(self, instance: str) -> None:
        return

    def is_known_dead(self, instance: str) -> bool:
        return False

    async def register(self, instance: str, lease_seconds: float) -> int:
        now = self.now()
        process_no = len(self.processes) + 1
        self.processes[process_no] = ProcessRow(process_no, instance, later(now, lease_seconds), False)
        Batch(self, now).note(STORE_STREAM, instance, [{"type": "process.started", "process": process_no}])
        return process_no

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

    def _named(self, process: ProcessRow) -> bool:
        return bool(self._held_by(process.process_no))

    def _held_by(self, process_no: int) -> list[int]:
        held = {t.task_no for t in self.tasks.values() if t.locked_by == process_no}
        held |= {s.task_no for s in self._all_steps() if s.locked_by == process_no}
        return sorted(held)

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

    async def load_held(self, process_no: int, limit: int) -> list[Loaded]:
        return [self.loaded(task_no) for task_no in self._held_by(process_no)[:limit]]

    async def load_news(self, process_no: int) -> list[tuple[int, int]]:
        news = [
            (t.unseen_since, t) for t in self.tasks.values() if t.locked_by == process_no and t.unseen_since is not None
        ]
        return [(t.task_no, t.revision) for _, t in sorted(news, key=lambda one: (one[0], one[1].task_no))]

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
    async def due(self, workflows: Sequence[str], agents: Sequence[str]) -> Due:
        now = self.now()
        known = set(workflows)
        tasks = [
            t.not_before
            for t in self.tasks.values()
            if t.state in TASK_OPEN and t.locked_by is None and t.not_before is not None
            if t.workflow in known or t.state is TaskState.COMPENSATING
        ]
        steps = [
            s.not_before
            for s in self._all_steps()
            if s.state is StepState.PENDING
            and s.kind is not StepKind.TIMER
            and s.not_before is not None
            and s.agent in agents
        ]
        waiting = [at for at in tasks + steps if at > now]
        return Due(now, any(at <= now for at in tasks), any(at <= now for at in steps), min(waiting, default=None))

    async def load_overdue(self, limit: int, progress_seconds: float) -> Overdue:
        now = self.now()
        steps = sorted(self._all_steps(), key=lambda s: s.step_no)
        running = [(s.complete_by, s) for s in steps if s.state is StepState.RUNNING and s.complete_by is not None]
        waiting = [(s.wait_by, s) for s in steps if s.state is StepState.PENDING and s.wait_by is not None]
        tasks = sorted(self.tasks.values(), key=lambda t: t.task_no)
        limited = [(t.complete_by, t) for t in tasks if t.state in TASK_FORWARD and t.complete_by is not None]
        held = [(t.unseen_since, t) for t in tasks if t.locked_by is not None and t.unseen_since is not None]
        unseen = [(later(since, progress_seconds), t) for since, t in held]
        return Overdue(
            now,
            tuple(_passed(running, now, limit)),
            tuple(_passed(waiting, now, limit)),
            tuple(self.loaded(t.task_no) for t in _passed(limited, now, limit)),
            tuple(self.loaded(t.task_no) for t in _passed(unseen, now, limit)),
        )

    async def load(self, task_no: int) -> Loaded | None:
        return self.loaded(task_no) if task_no in self.tasks else None

    async def find(self, task_id: str) -> Loaded | None:
        task_no = self.numbers.get(task_id)
        return None if task_no is None else self.loaded(task_no)

    async def ended(self, task_nos: Sequence[int]) -> list[Ended]:
        tasks = [self.tasks[no] for no in sorted(set(task_nos)) if no in self.tasks]
        return [Ended(t, open_compensations(self.loaded(t.task_no).steps)) for t in tasks if t.state not in TASK_OPEN]

    async def list_tasks(
        self, *, state: TaskState | None = None, workflow: str | None = None, after: int = 0, limit: int = 100
    ) -> list[TaskRow]:
        found = (
            t
            for t in self.tasks.values()
            if t.task_no > after and state in (None, t.state) and workflow in (None, t.workflow)
        )
        return sorted(found, key=lambda t: t.task_no)[:limit]

    async def counts(self) -> dict[TaskState, int]:
        states = [t.state for t in self.tasks.values()]
        return {state: states.count(state) for state in TaskState}

    async def history(self, task_no: int | None = None) -> AsyncIterator[HistoryRow]:
        for row in list(self.log):
            if task_no in (None, row.task_no):
                yield row


def _passed(deadlines: list[tuple[Instant, T]], now: Instant, limit: int) -> list[T]:
    """Rows whose deadline has passed, longest first; those of one deadline in the order of ``deadlines``."""
    past = [(deadline, row) for deadline, row in deadlines if deadline <= now]
    return [row for _, row in sorted(past, key=lambda one: one[0])][:limit]
