"""Reading on both databases: what is due, lists, counts and surveys, each by a statement of the same name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ...core.lease import PROBATION_FROM
from ...core.ledger_batches import ASIDE_MAX, LedgerTasks
from ...inspection.attempts import AttemptSurvey, Retrying
from ...model import AlertRow, EditRow, Instant, LateAnswerRow, LedgerRow, LedgerState, StatusRow, TaskState
from ...processes import LeaderSurvey, ProcessRow
from ...tokens import ANY_REACH, Reach
from ..attempts import COMMITS_MAX, LOOKED_AT_MAX, ends_in, requests_of, retrying_of
from ..contract import SUPERVISOR_LEASE, Due, QueueSurvey, Survey
from ..engine.processes import SAID_OF_REFUSED_TERMS
from ..engine.transactions import Lane, Transactions, UnreadableRows
from ..quarantine import S
from ..rows import Row, alert_of, edit_of, late_answer_of, status_of
from .rows import StatementAnswer


class StatementRows(UnreadableRows, Protocol):
    """Rows that are asked for by the names of statements; see ``sql.rows.SqlRows``."""

    def ask(self, name: str, parameters: Mapping[str, Any] | None = None, /) -> StatementAnswer: ...
    def arrive(self) -> None: ...
    def read_shared(self, kind: type[S], rows: Sequence[Row]) -> list[S]: ...
    def select_ledger(self, ledger_id: str) -> LedgerRow | None: ...
    def select_due(self, workflows: Sequence[str], agents: Sequence[str], app: str) -> Due: ...
    def select_news(self, process_no: int) -> list[tuple[int, int]]: ...


def count_tasks(rows: StatementRows) -> dict[TaskState, int]:
    """See ``StateStore.counts``."""
    found: dict[str, int] = dict(rows.ask("count_tasks").fetchall())
    return {state: found.get(state, 0) for state in TaskState}


def survey(rows: StatementRows) -> Survey:
    """See ``StateStore.survey``."""
    now, ask = rows.read_clock(), rows.ask
    at = {"now": now}
    found = ask("survey_tasks", {**at, "probation_from": PROBATION_FROM})
    workflows, steps = ask("survey_workflows", at), ask("survey_steps", at)
    bare, processes, queues = ask("survey_not_undoable"), ask("survey_processes"), ask("survey_queues")
    states = count_tasks(rows)
    rows.arrive()
    paused, probation, waiting, waiting_at, untold, untold_at, *sizes = found.fetchone() or ()
    return Survey(
        now,
        states,
        paused,
        probation,
        (waiting, waiting_at),
        tuple((app, name) for app, name in workflows.fetchall()),
        tuple((app, agent, name) for app, agent, name in steps.fetchall()),
        tuple((agent, name) for agent, name in bare.fetchall()),
        tuple(rows.read_shared(ProcessRow, processes.fetchall())),
        tuple(QueueSurvey(*row) for row in queues.fetchall()),
        (untold, untold_at),
        dict(zip(("tasks", "history", "statuses"), sizes, strict=True)),
    )


def survey_attempts(rows: StatementRows, steps: int, commits: int) -> AttemptSurvey:
    """See ``AttemptStore.survey_attempts``."""
    now, ask = rows.read_clock(), rows.ask

    def agents_of(step_nos: list[int]) -> dict[int, str]:
        return dict(ask("select_agents", {"step_nos": step_nos}).fetchall()) if step_nos else {}

    last, retrying = ask("select_history_last", {"limit": commits}), ask("select_retrying", {"limit": steps})
    due, running = ask("survey_requests", {"now": now}), ask("survey_running")
    rows.arrive()
    ends, ends_from = ends_in([(task_no, at, events) for task_no, at, events in last.fetchall()], commits, agents_of)
    return AttemptSurvey(
        now=now,
        retrying=tuple(map(retrying_of, retrying.fetchall())),
        requests=requests_of(due.fetchall(), running.fetchall()),
        ends=ends,
        ends_from=ends_from,
    )


def survey_leader(rows: StatementRows) -> LeaderSurvey | None:
    """See ``StateStore.survey_leader``."""
    now = rows.read_clock()
    row = rows.ask("select_leader", {"name": SUPERVISOR_LEASE, "now": now}).fetchone()
    if row is None:
        return None
    term, until, since, process = row
    if not all(isinstance(number, int) for number in (term, until, since)):
        return None  # the row cannot be read: the next Supervisor that asks for it is granted a new term
    return LeaderSurvey(now, process or "", term, since or None, until)


def count_refused_terms(rows: StatementRows) -> tuple[int, Instant | None]:
    """See ``StateStore.count_refused_terms``."""
    row = rows.ask("count_said", {"said": SAID_OF_REFUSED_TERMS}).fetchone()
    return (0, None) if row is None else (row[0], row[1])


T = TypeVar("T")
R = TypeVar("R", bound=StatementRows)


class SqlReading(Transactions[R]):
    """The part of ``store.contract.StateStore`` that reads for people, and what is due, as far as both databases do the same."""

    async def due(self, workflows: Sequence[str], agents: Sequence[str], app: str = "") -> Due:
        return await self._read(lambda rows: rows.select_due(workflows, agents, app))

    async def load_news(self, process_no: int) -> list[tuple[int, int]]:
        return await self._read(lambda rows: rows.select_news(process_no))

    async def counts(self) -> dict[TaskState, int]:
        return await self._read(count_tasks, Lane.SURVEYS)

    async def survey(self) -> Survey:
        return await self._read(survey, Lane.SURVEYS)

    async def survey_leader(self) -> LeaderSurvey | None:
        return await self._read(survey_leader, Lane.SURVEYS)

    async def count_refused_terms(self) -> tuple[int, Instant | None]:
        return await self._read(count_refused_terms, Lane.SURVEYS)

    async def survey_attempts(self, *, steps: int = LOOKED_AT_MAX, commits: int = COMMITS_MAX) -> AttemptSurvey:
        return await self._read(lambda rows: survey_attempts(rows, steps, commits), Lane.SURVEYS)

    async def retrying_steps(self, task_nos: Sequence[int]) -> list[Retrying]:
        asked = {"task_nos": sorted(set(task_nos))}
        return await self._select(retrying_of, "select_retrying_of", asked, Lane.SURVEYS)

    async def edits(self, task_no: int) -> list[EditRow]:
        return await self._select(edit_of, "select_edits", {"task_no": task_no})

    async def late_answers(self, task_no: int) -> list[LateAnswerRow]:
        return await self._select(late_answer_of, "select_late_answers", {"task_no": task_no})

    async def load_statuses(self, queue: str, limit: int, within: Reach = ANY_REACH) -> list[StatusRow]:
        asked = {"apps": list(within.apps) or None, "workflows": list(within.workflows) or None}
        return await self._select(status_of, "select_statuses", {"queue": queue, "limit": limit, **asked})

    async def alerts(self, *, open_only: bool = True, after: int = 0, limit: int = 100) -> list[AlertRow]:
        asked = {"open_only": open_only, "after": after, "limit": limit}
        return await self._select(alert_of, "select_alerts", asked, Lane.SURVEYS)

    async def find_ledger(self, ledger_id: str) -> LedgerRow | None:
        return await self._read(lambda rows: rows.select_ledger(ledger_id))

    async def list_ledgers(
        self, states: Sequence[LedgerState] = tuple(LedgerState), *, after: int = 0, limit: int = 100
    ) -> list[LedgerRow]:
        name = "select_ledgers" if LedgerState.DONE in states else "select_unfinished_ledgers"
        asked = {"states": [str(state) for state in states], "after": after, "limit": limit}
        return await self._read(lambda rows: rows.read_shared(LedgerRow, rows.ask(name, asked).fetchall()))

    async def find_open_of_ledgers(self, ledger_nos: Sequence[int]) -> dict[int, int]:
        asked = {"ledger_nos": list(ledger_nos)}
        return dict(await self._select(lambda row: (row[0], row[1]), "select_open_of_ledgers", asked))

    async def count_of_ledger(self, ledger_no: int) -> LedgerTasks:
        asked = {"ledger_no": ledger_no}
        found = await self._select(lambda row: row, "count_tasks_of_ledger", asked, Lane.SURVEYS)
        return LedgerTasks(
            {state: count for state, count, _ in found}, max((at for *_, at in found if at is not None), default=None)
        )

    async def ledger_aside(self, ledger_no: int, *, after: int = 0, limit: int = ASIDE_MAX) -> list[tuple[int, str]]:
        asked = {"ledger_no": ledger_no, "after": after, "limit": limit}
        return await self._select(lambda row: (row[0], row[1]), "select_ledger_aside", asked)

    async def _select(
        self, read: Callable[[Row], T], name: str, asked: Mapping[str, Any], lane: Lane = Lane.READS
    ) -> list[T]:
        """All rows of a statement."""
        return await self._read(lambda rows: [read(row) for row in rows.ask(name, asked).fetchall()], lane)
