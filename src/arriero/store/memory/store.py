"""The contract in dicts: the readable reference, the oracle of the other stores, and the store of the simulator."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import islice
from time import monotonic_ns, time_ns
from typing import Any, TypeVar

import msgspec

from ...core.alert_rows import QUESTION_CAUSE
from ...core.apps import may_run
from ...core.lease import is_held, is_on_probation
from ...core.ledger_batches import ASIDE_MAX, LedgerTasks
from ...core.starts import is_snoozed
from ...errors import ArrieroError, UnreadableRow
from ...inspection.facts import CountsRow
from ...model import (
    TASK_ENDED,
    TASK_OPEN,
    AlertRow,
    ConvoyRow,
    ConvoyState,
    EditRow,
    HistoryRow,
    Instant,
    LateAnswerRow,
    LedgerRow,
    LedgerState,
    SignalRow,
    StatusRow,
    StepKind,
    StepRow,
    StepState,
    TailRow,
    TaskRow,
    TaskState,
    Turn,
)
from ...model.agents import AgentLimitsRow, BreakerRow, RateRow
from ...model.answers import Answer, Refusal, Submitted
from ...model.commands import AnyCommand, Submit
from ...model.failures import read_task_failure
from ...model.leases import LeaseRow
from ...model.processes import (
    FIRST,
    NO_VERSIONS,
    LeaderSurvey,
    ProcessRow,
    Versions,
    describe_epoch_refusal,
    has_version,
    is_of_version,
)
from ...model.progress import PublishedRow, format_version
from ...model.questions import QuestionRow
from ...model.schedules import ScheduleApplied, ScheduleCommand, ScheduleRow
from ...model.signals import SET_ASIDE, SIGNALS_MAX
from ...model.tags import read_tags
from ...model.tokens import ANY_REACH, Reach, TokenRow
from ...model.workflow_pauses import WorkflowPauseRow
from ..contract import SUPERVISOR_LEASE, ConvoyLoaded, Due, Purge, Purged, QueueSurvey, Survey, VersionCount
from ..engine.batch import STORE_STREAM
from ..engine.commands import apply_command, submit_task
from ..engine.convoys import find_missing
from ..engine.processes import SAID_OF_REFUSED_TERMS
from ..engine.reading import due_at
from ..engine.schedules import change_schedules
from ..engine.signals import ASIDE_LOOKED_AT_MAX
from ..engine.transactions import Lane
from ..engine.upkeep import purge
from ..quarantine import S
from ..readable import key_of, legible
from ..sql.store_rows import StoreRows
from ..state_store import StateStore
from ..task_filter import ANY_TASK, TaskFilter, fold_text
from .alert_rows import filter_alerts, read_alert
from .rows import MemoryUpkeep
from .store_rows import (
    MemoryAgentMetrics,
    MemoryAttempts,
    MemoryObsoleteRows,
    MemoryRemoteAgents,
    MemorySchedules,
    MemoryTokens,
)

T = TypeVar("T")
_DONE = (TaskState.PROCESSED, TaskState.COMPENSATED)


def _read_question(alert: AlertRow, task: TaskRow, steps: Sequence[StepRow]) -> QuestionRow | None:
    step = next(step for step in steps if step.step_no == alert.step_no)
    if step.state is not StepState.PENDING:
        return None  # a process of release 0.5, which knows no questions, has ended the wait
    return QuestionRow(
        alert.no,
        task.task_id,
        task.workflow,
        task.app,
        step.ordinal,
        step.key,
        alert.code,
        step.arguments,
        alert.opened_at,
        step.not_before,
    )


class MemoryReading(MemoryUpkeep):
    """Reading for operators, and due work."""

    # --- tasks
    async def due(
        self, workflows: Sequence[str], agents: Sequence[str], app: str = "", versions: Versions = NO_VERSIONS
    ) -> Due:
        now = self.now()
        known = set(workflows)
        left_alone, convoys_left = set(self._quarantine.tasks()), set(self._quarantine.convoys())
        tasks = [
            t.not_before
            for t in self.tasks.values()
            if t.locked_by is None and t.not_before is not None and t.paused_at is None
            if (t.workflow in known and has_version(versions, t)) or t.state is TaskState.COMPENSATING
            if t.task_no not in left_alone and may_run(app, t.app)
        ]
        looks = [c.look_at for c in self.convoys.values() if c.look_at is not None and c.convoy_no not in convoys_left]
        tasks += sorted(looks)[:1]  # while one is due, no matter who looks at it asks again
        steps = [
            s.not_before
            for s in self._steps_not_apart()
            if s.state is StepState.PENDING
            and s.kind is not StepKind.TIMER
            and s.not_before is not None
            and s.agent in agents
            and may_run(app, s.app)
        ]
        lease = self.select_lease(SUPERVISOR_LEASE)
        is_leaderless = lease is not None and not is_held(lease, now)
        return due_at(now, tasks, steps, tasks + steps, is_leaderless=is_leaderless)

    async def load_news(self, process_no: int) -> list[tuple[int, int]]:
        left_alone = set(self._quarantine.tasks())
        ours = [t for t in self.tasks.values() if t.locked_by == process_no and t.task_no not in left_alone]
        news = [(t.unseen_since, t) for t in ours if t.unseen_since is not None]
        to_be_tried = set(self._quarantine.to_be_tried())
        again = [t for t in ours if t.task_no in to_be_tried]
        found = [t for _, t in sorted(news, key=lambda one: (one[0], one[1].task_no))]
        return [(t.task_no, t.revision) for t in (*found, *again)]

    async def edits(self, task_no: int) -> list[EditRow]:
        return list(self.edit_rows.get(task_no, {}).values())

    async def load_versions(self, task_nos: Sequence[int]) -> dict[int, str]:
        tasks = [self.tasks[number] for number in task_nos if number in self.tasks]
        sums = {t.task_no: sum(row.number for row in self.published_rows.get(t.task_no, {}).values()) for t in tasks}
        return {t.task_no: format_version(t.link, t.head, sums[t.task_no]) for t in tasks}

    async def published(self, task_no: int) -> list[PublishedRow]:
        rows = self.published_rows.get(task_no, {})
        return [rows[ordinal] for ordinal in sorted(rows)]

    async def late_answers(self, task_no: int) -> list[LateAnswerRow]:
        return list(self.late_answer_rows.get(task_no, {}).values())

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
        failure = None if told is None else read_task_failure(told)
        code, reason = ("", "") if failure is None else (failure.code, failure.reason)
        return (
            not self.is_hidden(task)
            and which.state in (None, task.state)
            and which.workflow in (None, task.workflow)
            and which.app in (None, task.app)
            and Reach(which.apps, which.workflows).includes(task.app, task.workflow)
            and (which.ledger is None or self._is_of_ledger(task, which.ledger))
            and (which.parent is None or self.is_child_of(task, which.parent))
            and (which.submitted_before is None or task.submitted_at <= which.submitted_before)
            and (which.submitted_since is None or task.submitted_at >= which.submitted_since)
            and which.code in (None, code)
            and (which.text is None or fold_text(which.text) in fold_text(reason))
            and which.paused in (None, task.paused_at is not None)
            and (which.code_version is None or is_of_version(task, which.code_version))
            and (which.tags is None or which.tags.items() <= read_tags(legible(task).tags).items())
            and (which.snoozed_at is None or which.snoozed is is_snoozed(task, which.snoozed_at))
            and (which.agent is None or any(s.agent == which.agent for s in self._list_unfinished(task)))
            and (which.step is None or any(s.name == which.step for s in self._list_unfinished(task)))
        )

    def _is_of_ledger(self, task: TaskRow, ledger_id: str) -> bool:
        ledger = None if task.from_ledger is None else self.ledgers.get(task.from_ledger)
        return ledger is not None and ledger.ledger_id == ledger_id

    def _list_unfinished(self, task: TaskRow) -> list[StepRow]:
        return [s for s in self.steps_of(task.task_no) if s.state is not StepState.COMPLETED]

    async def counts(self) -> dict[TaskState, int]:
        states = [t.state for t in self.tasks.values() if not self.is_hidden(t)]
        return {state: states.count(state) for state in TaskState}

    async def load_statuses(self, queue: str, limit: int, within: Reach = ANY_REACH) -> list[StatusRow]:
        found = (
            s for s in self.statuses.values() if s.queue == queue and self._is_within(s, within) and self._is_shown(s)
        )
        return sorted(found, key=lambda s: (s.kind != "dropped", s.no))[:limit]

    def _is_shown(self, status: StatusRow) -> bool:
        if status.kind != "progress" or status.at <= self.now():
            return True
        task = self.tasks.get(status.task_no)
        return task is not None and task.ended_at is not None

    def _is_within(self, status: StatusRow, within: Reach) -> bool:
        task = self.tasks.get(status.task_no)
        return within.is_whole or (task is not None and within.includes(task.app, task.workflow))

    async def questions(
        self, *, of: str = "", after: int = 0, limit: int = 100, within: Reach = ANY_REACH
    ) -> list[QuestionRow]:
        found = sorted(self.open_alerts(QUESTION_CAUSE), key=lambda a: a.no)
        rows = (
            _read_question(alert, self.tasks[alert.task_no], self.steps_of(alert.task_no))
            for alert in found
            if alert.no > after and of in ("", alert.code)
        )
        return list(islice((row for row in rows if row is not None and within.includes(row.app, row.workflow)), limit))

    async def alerts(self, **which: Any) -> list[AlertRow]:
        return [read_alert(alert, self.tasks) for alert in filter_alerts(self.alert_rows.values(), **which)]

    async def history(self, task_no: int | None = None, *, after: int = 0) -> AsyncIterator[HistoryRow]:
        for row in self.iterate_history():
            if task_no in (None, row.task_no) and (row.no if task_no is None else row.link) > after:
                yield row

    # --- ledgers
    async def find_ledger(self, ledger_id: str) -> LedgerRow | None:
        return self.select_ledger(ledger_id)

    async def list_ledgers(
        self, states: Sequence[LedgerState] = tuple(LedgerState), *, after: int = 0, limit: int = 100
    ) -> list[LedgerRow]:
        def is_meant(state: LedgerState) -> bool:
            return state in states or state not in tuple(LedgerState)

        found = (ledger for ledger in self.ledgers.values() if ledger.ledger_no > after and is_meant(ledger.state))
        first = sorted(found, key=lambda ledger: ledger.ledger_no)[:limit]
        return [self._quarantine.read_shared(ledger) for ledger in first]

    async def find_open_of_ledgers(self, ledger_nos: Sequence[int]) -> dict[int, int]:
        found = [t for t in self.tasks.values() if t.from_ledger in ledger_nos and t.state not in TASK_ENDED]
        return {t.from_ledger: t.task_no for t in sorted(found, key=lambda t: -t.task_no) if t.from_ledger is not None}

    async def count_of_ledger(self, ledger_no: int) -> LedgerTasks:
        found = [t for t in self.tasks.values() if t.from_ledger == ledger_no]
        ends = [t.ended_at for t in found if t.ended_at is not None]
        return LedgerTasks(dict(Counter(str(t.state) for t in found)), max(ends, default=None))

    async def list_set_aside(self, limit: int) -> list[tuple[str, SignalRow]]:
        signals = [one for of_task in self.signal_rows.values() for one in of_task.values() if one.step == SET_ASIDE]
        signals.sort(key=lambda one: (one.sent_at, one.task_no, one.number), reverse=True)
        receiving = (TaskState.PENDING, TaskState.PROCESSING)
        found = [one for one in signals[:ASIDE_LOOKED_AT_MAX] if self.tasks[one.task_no].state in receiving]
        return [(self.tasks[one.task_no].task_id, one) for one in found if not self._is_followed(one)][:limit]

    def _is_followed(self, signal: SignalRow) -> bool:
        """Returns True if another signal of its name was sent to the task later and not set aside."""
        later = self.select_signals(signal.task_no, signal.number, SIGNALS_MAX)
        return any(one.name == signal.name and one.step != SET_ASIDE for one in later)

    async def ledger_aside(self, ledger_no: int, *, after: int = 0, limit: int = ASIDE_MAX) -> list[tuple[int, str]]:
        found = sorted((line, reason) for (number, line), reason in self.aside.items() if number == ledger_no)
        return [one for one in found if one[0] > after][:limit]

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
            sum(is_on_probation(t) for t in self.tasks.values() if t.state in TASK_OPEN),
            (len(waiting), min((at for at, _ in waiting), default=None)),
            tuple(sorted({(t.app, t.workflow) for _, t in waiting if t.state is not TaskState.COMPENSATING})),
            tuple(sorted({(s.app, s.agent, s.name) for s in due})),
            tuple(sorted(bare)),
            tuple(self.select_processes()),
            tuple(self._queue(queue) for queue in sorted(queues)),
            (len(untold), min(untold, default=None)),
            {"tasks": len(self.tasks), "history": len(self.log), "statuses": len(self.statuses)},
        )

    async def survey_leader(self) -> LeaderSurvey | None:
        now, lease = self.now(), self.select_lease(SUPERVISOR_LEASE)
        if lease is None or not is_held(lease, now):
            return None
        process = self.processes.get(lease.holder if isinstance(lease.holder, int) else 0)
        return LeaderSurvey(now, process.instance if process else "", lease.term, lease.since or None, lease.until)

    async def count_refused_terms(self) -> tuple[int, Instant | None]:
        said = self._list_said(SAID_OF_REFUSED_TERMS)
        return len(said), max(said, default=None)

    def _list_said(self, what: str) -> list[Instant]:
        """List the instants at which the store's own history recorded such an event."""
        return [row.at for row in self.log if row.task_no == STORE_STREAM and what in bytes(row.events).decode()]

    def _queue(self, queue: str) -> QueueSurvey:
        of_queue = [s for s in self.statuses.values() if s.queue == queue]
        return QueueSurvey(queue, len(of_queue), min(s.at for s in of_queue))


class MemoryConvoyReading(MemoryReading):
    """Reading of convoys, and of versions of code."""

    async def list_due_workflows(self) -> list[tuple[str, str]]:
        return list((await self.survey()).workflows)

    async def count_versions(self) -> list[VersionCount]:
        found: dict[tuple[str, str, str | None, bool, TaskState], list[Instant]] = {}
        for t in self.tasks.values():
            runs_code = t.batch_no in (None, t.task_no)
            if runs_code and not self.is_hidden(t) and (t.state in TASK_OPEN or t.state is TaskState.HELD):
                key = (t.app, t.workflow, t.code_version, t.started_at is not None, t.state)
                found.setdefault(key, []).append(t.submitted_at)
        return [VersionCount(*key, len(at), min(at)) for key, at in found.items()]

    async def find_convoy(self, key: str, limit: int = 10) -> ConvoyLoaded | None:
        tail = next((self._quarantine.read_shared(one) for one in self.tails.values() if one.key == key), None)
        if tail is None or not tail.placed:  # a ledger that is not opened has the key, nobody else
            return None
        loaded = self._convoy_loaded(self.convoys[tail.convoy_no])
        members = list(map(legible, self.members(tail.convoy_no)))
        first = [task for task in members if task.turn is Turn.OPEN]
        waiting = [task for task in members if task.turn is Turn.WAITING]
        aside = [task for task in members if self._is_set_aside(task)]
        return msgspec.structs.replace(
            loaded,
            members=tuple((*first, *waiting)[:limit]),
            passed_over=tuple(sorted(aside, key=lambda task: task.place or 0)[:limit]),
            missing=find_missing(
                sorted(t.sequence for t in members if t.sequence), loaded.convoy.expected, tail, limit
            ),
        )

    def _convoy_loaded(self, convoy: ConvoyRow) -> ConvoyLoaded:
        members = self.members(convoy.convoy_no)
        waiting = sum(task.turn is Turn.WAITING for task in members)
        tail, aside = self.tails[convoy.convoy_no], sum(self._is_set_aside(task) for task in members)
        read = self._quarantine.read_shared
        return ConvoyLoaded(read(convoy), read(tail), waiting, aside)

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

    @staticmethod
    def _is_set_aside(task: TaskRow) -> bool:
        return task.turn is Turn.SET_ASIDE and task.state is TaskState.HELD


class MemoryStore(
    MemoryAttempts,
    MemoryAgentMetrics,
    MemorySchedules,
    MemoryTokens,
    MemoryRemoteAgents,
    MemoryObsoleteRows,
    MemoryConvoyReading,
    StoreRows,
    StateStore,
):
    """All state of one simulated or test world. ``clock``: microseconds. ``store_id``: for reproducible keys."""

    url = "memory://"

    def __init__(self, clock: Callable[[], Instant] | None = None, store_id: str = "memory") -> None:
        offset = time_ns() - monotonic_ns()  # setting the wall clock moves nothing
        self._clock = clock or (lambda: Instant((monotonic_ns() + offset) // 1000))
        self.store_id = store_id
        super().__init__()
        self._speaks_in = FIRST

    def now(self) -> Instant:
        return self._clock()

    async def open(self) -> None:
        return

    async def close(self) -> None:
        return

    def select_shared(self, kind: type[S], key: Sequence[Any] | None, limit: int) -> list[S]:
        tables: dict[type, dict[Any, Any]] = {
            ConvoyRow: self.convoys,
            TailRow: self.tails,
            LedgerRow: self.ledgers,
            ProcessRow: self.processes,
            BreakerRow: self.breaker_rows,
            AgentLimitsRow: self.limit_rows,
            RateRow: self.rate_rows,
            LeaseRow: self.leases,
            TokenRow: self.token_rows,
            CountsRow: self.count_rows,
            ScheduleRow: self.schedule_rows,
            WorkflowPauseRow: self.pause_rows,
        }
        found = (row for row in tables[kind].values() if key is None or key_of(row) == tuple(key))
        return list(islice(found, limit))

    # --- transactions
    async def _write(self, work: Callable[["MemoryStore"], T], lane: Lane = Lane.OTHERS) -> T:
        return self._transact(lambda: work(self))

    async def _read(self, work: Callable[["MemoryStore"], T], lane: Lane = Lane.READS) -> T:
        return work(self)

    # --- writing
    async def submit(self, batch: Sequence[Submit]) -> list[Submitted | Refusal | UnreadableRow]:
        store_id = self.store_id if self._speaks_in == self.epoch else None
        return await self._reporting(
            self._write(lambda rows: [submit_task(command, rows, store_id) for command in batch], Lane.SUBMISSIONS)
        )

    async def apply(self, batch: Sequence[AnyCommand]) -> list[Answer | ArrieroError]:
        if self._speaks_in != self.epoch:
            return [Refusal("old_epoch", describe_epoch_refusal(self._speaks_in, self.epoch)) for _ in batch]
        return await self._reporting(
            self._write(lambda rows: [apply_command(command, rows) for command in batch], Lane.ENGINE)
        )

    async def change_schedules(self, batch: Sequence[ScheduleCommand]) -> list[ScheduleApplied | Refusal]:
        def submit_all(commands: Sequence[Submit]) -> list[Submitted | Refusal | UnreadableRow]:
            return [submit_task(command, self, None) for command in commands]

        return await self._reporting(
            self._write(lambda rows: change_schedules(batch, rows, submit_all), Lane.SUBMISSIONS)
        )

    async def purge(self, which: Purge, *, actor: str, limit: int, after: int = 0) -> Purged:
        heads = self.lock_purgeable(which, limit, after)
        self._transact(lambda: purge(self, heads, actor))
        return Purged(len(heads), heads[-1][0] if len(heads) == limit else None)

    async def empty_log(self) -> bool:
        return True

    # --- processes
    def _on_registered(self, process_no: int, epoch: int) -> None:
        self._speaks_in = epoch
