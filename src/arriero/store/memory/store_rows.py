"""Families of rows of the memory store that concern the store as a whole: counts, schedules, tokens, secrets, obsolete rows."""

from collections import Counter
from collections.abc import Collection, Sequence
from operator import attrgetter

from ...core.alert_rows import QUESTION_CAUSE, SCHEDULE_CAUSE
from ...core.lease import SUPERVISORS, is_held
from ...core.schedule_instants import is_run_of
from ...inspection.attempts import AttemptSurvey, Retrying
from ...inspection.facts import AgentLoad, Backlog, CountsRow
from ...model import TASK_FORWARD, TASK_OPEN, Instant, StepKind, StepRow, StepState, TaskRow, TaskState, Turn
from ...model.agents import BreakerKey, BreakerRow, BreakerState
from ...model.leases import LeaseRow
from ...model.processes import ProcessRow
from ...model.schedules import DueSchedule, OpenRun, ScheduleRow
from ...model.tokens import TokenRow
from ..contract import HeldAttempt
from ..engine.reading import COMMITS_MAX, LOOKED_AT_MAX, ends_in, requests_of, retrying_of
from ..sql.agent_rows import AgentMetricsRows, RemoteAgentRows, build_loads
from ..sql.store_rows import ObsoleteRows, ScheduleRows, TokenRows
from .rows import MemoryUpkeep

_columns = attrgetter("name", "key", "kind", "attempt", "failure_count", "failure", "state", "not_before")


class MemoryAttempts(MemoryUpkeep):
    """See ``store.engine.reading``."""

    async def survey_attempts(self, *, steps: int = LOOKED_AT_MAX, commits: int = COMMITS_MAX) -> AttemptSurvey:
        now = self.now()
        rows = [row for of_task in self.steps.values() for row in of_task.values() if row.kind is not StepKind.TIMER]
        pending = [row for row in rows if row.state is StepState.PENDING and row.not_before is not None]
        running = [row for row in rows if row.complete_by is not None]
        agents = sorted({row.agent for row in pending})
        looked_at = [row for agent in agents for row in _latest([one for one in pending if one.agent == agent])[:steps]]
        found = sorted((*looked_at, *running[:steps]), key=lambda row: row.step_no)
        last = [(row.task_no, row.at, bytes(row.events).decode()) for row in reversed(self.log[-commits:])]
        ends, ends_from = ends_in(last, commits, lambda _: {row.step_no: row.agent for row in rows})
        return AttemptSurvey(
            now=now,
            retrying=tuple(self._build_retrying(row) for row in found if row.failure_count > 0),
            requests=requests_of(
                [_requests([row.not_before for row in pending if row.agent == agent], agent, now) for agent in agents],
                list(Counter(row.agent for row in running).items()),
            ),
            ends=ends,
            ends_from=ends_from,
        )

    async def retrying_steps(self, task_nos: Sequence[int]) -> list[Retrying]:
        found: list[Retrying] = []
        for task_no in sorted({number for number in task_nos if number in self.tasks}):
            steps = [row for row in self.steps_of(task_no) if row.failure_count > 0]
            steps = [row for row in steps if row.state in (StepState.PENDING, StepState.RUNNING)]
            if steps:
                found.append(self._build_retrying(max(steps, key=lambda row: (row.failure_count, -row.step_no))))
        return found

    def _build_retrying(self, row: StepRow) -> Retrying:
        return retrying_of((row.agent, row.task_no, self.tasks[row.task_no].task_id, *_columns(row)))


def _latest(rows: list[StepRow]) -> list[StepRow]:
    return sorted(rows, key=lambda row: row.not_before or 0, reverse=True)


def _requests(times: list[Instant | None], agent: str, now: Instant) -> tuple[str, int, Instant | None, int]:
    due = [at for at in times if at is not None and at <= now]
    return agent, len(due), min(due, default=None), len(times) - len(due)


class MemoryAgentMetrics(MemoryUpkeep, AgentMetricsRows):
    """See ``AgentMetricsRows``."""

    def put_counts(self, row: CountsRow) -> None:
        kept = self.count_rows.get(_key_of(row))
        if not self.process_is_retired(row.process_no) and (kept is None or row.calls >= kept.calls):
            self._put(self.count_rows, _key_of(row), row)

    def select_apps_to_fold(self, before: int) -> list[str]:
        return sorted({row.app for row in self.count_rows.values() if row.process_no and row.minute < before})

    def lock_total(self, app: str) -> CountsRow:
        nothing = CountsRow(app=app, process_no=0, minute=0, calls=0, counts="{}")
        return self._quarantine.read_shared(self.count_rows.get(_key_of(nothing), nothing))

    def select_counts_before(self, app: str, before: int, limit: int) -> list[CountsRow]:
        found = (row for row in self.count_rows.values() if row.app == app and row.process_no and row.minute < before)
        first = sorted(found, key=lambda row: (row.minute, row.process_no))[:limit]
        return [self._quarantine.read_shared(row) for row in first]

    def put_total(self, total: CountsRow) -> None:
        self._put(self.count_rows, _key_of(total), total)

    def remove_counts(self, rows: Sequence[CountsRow]) -> None:
        for row in rows:
            self._remove(self.count_rows, _key_of(row))

    def select_all_counts(self) -> list[CountsRow]:
        return [self._quarantine.read_shared(self.count_rows[key]) for key in sorted(self.count_rows)]

    def measure_loads(self, now: Instant) -> list[AgentLoad]:
        rows = [row for of_task in self.steps.values() for row in of_task.values() if row.kind is not StepKind.TIMER]
        times: dict[tuple[str, str], list[Instant]] = {}
        for row in rows:
            if row.state is StepState.PENDING and row.not_before is not None:
                times.setdefault((row.app, row.agent), []).append(row.not_before)
        running = Counter((row.app, row.agent) for row in rows if row.complete_by is not None)
        asked = [(*key, *_count_requests(of_agent, now)) for key, of_agent in times.items()]
        return build_loads(asked, [(*key, count) for key, count in running.items()])

    def select_backlog(self, now: Instant, limit: int) -> Backlog:
        tasks = list(self.tasks.values())
        free = [t.not_before for t in tasks if t.locked_by is None and t.paused_at is None and t.not_before is not None]
        due = [at for at in free if at <= now]
        shown = [convoy.shown for convoy in self.convoys.values()]
        looks = [row.look_at for row in self.schedule_rows.values() if row.look_at is not None and row.look_at <= now]
        return Backlog(
            now=now,
            running=min(sum(t.locked_by is not None for t in tasks), limit),
            due=min(len(due), limit),
            oldest_due_at=min(due, default=None),
            later=min(len(free) - len(due), limit),
            in_convoy=min(sum(t.turn is Turn.WAITING for t in tasks), limit),
            held=min(sum(t.state is TaskState.HELD for t in tasks), limit),
            convoys_stopped=min(shown.count("stopped"), limit),
            convoys_in_gap=min(shown.count("gap"), limit),
            convoys_parked=min(shown.count("parked"), limit),
            alerts=min(sum(a.closed_at is None and a.cause != QUESTION_CAUSE for a in self.alert_rows.values()), limit),
            statuses=min(len(self.statuses), limit),
            oldest_status_at=min((s.at for s in self.statuses.values()), default=None),
            schedules_due=min(len(looks), limit),
            oldest_schedule_at=min(looks, default=None),
            leases=sum(is_held(lease, now) for lease in self.leases.values()),
        )


def _count_requests(times: list[Instant], now: Instant) -> tuple[int, Instant | None, int]:
    due = [at for at in times if at <= now]
    return len(due), min(due, default=None), len(times) - len(due)


def _key_of(row: CountsRow) -> tuple[str, int, int]:
    return row.app, row.process_no, row.minute


class MemoryObsoleteRows(MemoryUpkeep, ObsoleteRows):
    """See ``ObsoleteRows``."""

    def select_unnamed_processes(self, before: Instant, limit: int) -> list[ProcessRow]:
        named = {lease.holder for lease in self.leases.values()} | {process_no for _, process_no, _ in self.count_rows}
        old = (row for row in self.processes.values() if row.retired and row.lease_until <= before)
        last = max(self.processes, default=0)
        found = [row for row in old if row.process_no not in named and row.process_no < last]
        found = [row for row in found if not self._held_by(row.process_no)]
        return sorted(found, key=lambda row: row.process_no)[:limit]

    def select_code_of_processes(self) -> list[tuple[str, int]]:
        newest: dict[str, int] = {}
        for row in self.processes.values():
            newest[row.about] = max(newest.get(row.about, 0), row.process_no)
        return list(newest.items())

    def remove_processes(self, process_nos: Sequence[int]) -> None:
        for process_no in process_nos:
            self._remove(self.processes, process_no)

    def lock_old_leases(self, before: Instant, limit: int) -> list[LeaseRow]:
        rows = (row for row in self.select_leases() if row.until <= before and row.since <= before)
        return [row for row in rows if row.name != SUPERVISORS][:limit]

    def remove_leases(self, names: Sequence[str]) -> None:
        for name in names:
            self._remove(self.leases, name)

    def lock_old_breakers(self, before: Instant, limit: int) -> list[BreakerRow]:
        closed = (row for row in self.select_all_breakers() if row.state is BreakerState.CLOSED)
        return [row for row in closed if row.paused_at is None and row.changed_at <= before][:limit]

    def remove_breakers(self, keys: Sequence[BreakerKey]) -> None:
        for key in keys:
            self._remove(self.breaker_rows, key)

    def remove_told_alerts(self, before: Instant, limit: int) -> int:
        closed = [(row.closed_at, row) for row in self.alert_rows.values() if not row.task_no and row.next_at is None]
        found = [row.no for at, row in closed if at is not None and at <= before][:limit]
        for number in found:
            self._remove(self.alert_rows, number)
        return len(found)

    def raise_floor(self, name: str, value: int) -> None:
        self._put(self.floors, name, max(self.floors.get(name, 0), value))


class MemoryRemoteAgents(MemoryUpkeep, RemoteAgentRows):
    """See ``RemoteAgentRows``."""

    def select_secret(self, name: str) -> str | None:
        return self.secrets.get(name)

    def add_secret(self, name: str, value: str) -> None:
        if name not in self.secrets:
            self._put(self.secrets, name, value)

    def select_running_attempts(self, step_nos: Sequence[int]) -> list[HeldAttempt]:
        found: list[HeldAttempt] = []
        for step_no in step_nos:
            step = self.step(step_no)
            if step is not None and step.state is StepState.RUNNING and step.complete_by is not None:
                found.append(HeldAttempt(step.step_no, step.fence, step.complete_by))
        return sorted(found)


class MemorySchedules(MemoryUpkeep, ScheduleRows):
    """See ``ScheduleRows``."""

    def select_due_schedules(self, now: Instant, limit: int) -> list[DueSchedule]:
        due = [(row.look_at, row) for row in self.schedule_rows.values() if row.look_at is not None]
        found = sorted(((at, row.app, row.name, row) for at, row in due if at <= now), key=lambda one: one[:3])
        return [self._find_open_runs(row) for _, _, _, row in found[:limit]]

    def _find_open_runs(self, row: ScheduleRow) -> DueSchedule:
        is_open = bool(self._list_runs(row.app, row.name, TASK_OPEN))
        cancellable = self._list_runs(row.app, row.name, TASK_FORWARD)
        task_id = cancellable[0].task_id if cancellable else ""
        return DueSchedule(row, is_open, task_id, self._quarantine.is_readable(row))

    def _list_runs(self, app: str, name: str, states: Collection[TaskState]) -> list[TaskRow]:
        of_schedule = (task for task in self.tasks.values() if is_run_of(task.task_id, app, name))
        return sorted((task for task in of_schedule if task.state in states), key=lambda task: task.task_id)

    def has_open_run(self, app: str, name: str) -> bool:
        return bool(self._list_runs(app, name, TASK_OPEN))

    def lock_cancellable_runs(self, app: str, name: str, limit: int) -> list[OpenRun]:
        found = self._list_runs(app, name, TASK_FORWARD)[:limit]
        return [OpenRun(task.task_no, task.task_id, task.incarnation) for task in found]

    def select_next_look(self, now: Instant) -> Instant | None:
        looks = (row.look_at for row in self.schedule_rows.values() if row.look_at is not None)
        return min((at for at in looks if at > now), default=None)

    def lock_schedules(self, keys: Sequence[tuple[str, str]]) -> list[ScheduleRow]:
        return [self.schedule_rows[key] for key in sorted(keys) if key in self.schedule_rows]

    def read_term(self, lease: str) -> int:
        return self.term(lease)

    def add_schedule(self, row: ScheduleRow) -> bool:
        self.put_schedule(row)
        return True

    def put_schedule(self, row: ScheduleRow) -> None:
        self._put(self.schedule_rows, (row.app, row.name), row)

    def remove_schedule(self, row: ScheduleRow) -> None:
        self._remove(self.schedule_rows, (row.app, row.name))

    def close_schedule_alert(self, row: ScheduleRow, at: Instant) -> None:
        for alert in list(self.alert_rows.values()):
            if (alert.cause, alert.step, alert.code) == (SCHEDULE_CAUSE, row.name, row.app):
                self._close(alert, at)

    def select_schedules(self, app: str | None) -> list[ScheduleRow]:
        return [self.schedule_rows[key] for key in sorted(self.schedule_rows) if app in (None, key[0])]

    def select_schedule(self, app: str, name: str) -> ScheduleRow | None:
        return self.schedule_rows.get((app, name))


class MemoryTokens(MemoryUpkeep, TokenRows):
    """See ``TokenRows``."""

    def add_token_row(self, row: TokenRow) -> bool:
        if row.token_id in self.token_rows:
            return False
        self.put_token(row)
        return True

    def lock_token(self, token_id: str) -> TokenRow | None:
        return next(iter(self.select_tokens([token_id])), None)

    def put_token(self, row: TokenRow) -> None:
        self._put(self.token_rows, row.token_id, row)

    def select_tokens(self, token_ids: Sequence[str]) -> list[TokenRow]:
        found = [self.token_rows[token_id] for token_id in token_ids if token_id in self.token_rows]
        return [self._quarantine.read_shared(row) for row in found]

    def select_all_tokens(self) -> list[TokenRow]:
        found = sorted(self.token_rows.values(), key=lambda row: (row.created_at, row.token_id))
        return [self._quarantine.read_shared(row) for row in found]
