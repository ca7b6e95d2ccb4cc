"""Reading for people: counts and surveys of the whole store, lists of what belongs to it, and what is due."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ...core.lease import PROBATION_FROM
from ...core.ledger_batches import ASIDE_MAX, LedgerTasks
from ...inspection.attempts import AttemptSurvey, Retrying
from ...model import AlertRow, EditRow, Instant, LateAnswerRow, LedgerRow, LedgerState, StatusRow, TaskState
from ...processes import LeaderSurvey, ProcessRow
from ...tokens import ANY_REACH, Reach
from ..attempts import COMMITS_MAX, LOOKED_AT_MAX, ends_in, requests_of, retrying_of
from ..contract import SUPERVISOR_LEASE, Due, QueueSurvey, Survey
from ..rows import Row, alert_of, edit_of, late_answer_of, status_of
from ..sql.store_rows import StoreRows
from .processes import SAID_OF_REFUSED_TERMS
from .transactions import Lane, Transactions, reads

T = TypeVar("T")


def count_tasks(rows: StoreRows) -> dict[TaskState, int]:
    """Tasks by state."""
    found: dict[str, int] = dict(rows.ask("count_tasks").fetchall())
    return {state: found.get(state, 0) for state in TaskState}


def survey(rows: StoreRows) -> Survey:
    """Survey the store for a person."""
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


def survey_attempts(rows: StoreRows, *, steps: int = LOOKED_AT_MAX, commits: int = COMMITS_MAX) -> AttemptSurvey:
    """Recent attempts, and the steps that are tried again.

    Args:
        steps: of each Agent's requests so many are looked at, those whose time comes last; and so many of all
            attempts under way.
        commits: so many of the history's last ones are looked at.
    """
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


def survey_leader(rows: StoreRows) -> LeaderSurvey | None:
    """The Supervisor that leads now; None: none does."""
    now = rows.read_clock()
    row = rows.ask("select_leader", {"name": SUPERVISOR_LEASE, "now": now}).fetchone()
    if row is None:
        return None
    term, until, since, process = row
    if not all(isinstance(number, int) for number in (term, until, since)):
        return None  # the row cannot be read: the next Supervisor that asks for it is granted a new term
    return LeaderSurvey(now, process or "", term, since or None, until)


def count_refused_terms(rows: StoreRows) -> tuple[int, Instant | None]:
    """Count the writes of Supervisors that were refused because their term was past; with the instant of the last one.

    It reads the store's own history.
    """
    row = rows.ask("count_said", {"said": SAID_OF_REFUSED_TERMS}).fetchone()
    return (0, None) if row is None else (row[0], row[1])


class SurveyOperations(Transactions):
    """Reads for people, and what is due."""

    counts = reads(count_tasks, Lane.SURVEYS)
    survey = reads(survey, Lane.SURVEYS)
    survey_leader = reads(survey_leader, Lane.SURVEYS)
    count_refused_terms = reads(count_refused_terms, Lane.SURVEYS)
    survey_attempts = reads(survey_attempts, Lane.SURVEYS)

    async def due(self, workflows: Sequence[str], agents: Sequence[str], app: str = "") -> Due:
        """Work to claim (of these workflows, or an undo of any) or to take (by these Agents), by this App."""
        return await self._read(lambda rows: rows.select_due(workflows, agents, app))

    async def load_news(self, process_no: int) -> list[tuple[int, int]]:
        """(task_no, revision) of tasks held by the process with news it has not seen, longest waiting first.

        News: the claim itself, and what others recorded since. So is a task that could not be read some time ago: nobody
        drives it, and its row may have been mended. It comes again until ``load_tasks`` has read it.
        """
        return await self._read(lambda rows: rows.select_news(process_no))

    async def retrying_steps(self, task_nos: Sequence[int]) -> list[Retrying]:
        """Find the step with the most failures of each task that has steps which are retried, by task_no."""
        asked = {"task_nos": sorted(set(task_nos))}
        return await self._select(retrying_of, "select_retrying_of", asked, Lane.SURVEYS)

    async def edits(self, task_no: int) -> list[EditRow]:
        """Payloads of a task that people gave or replaced, with those they replaced, in the order of the commits."""
        return await self._select(edit_of, "select_edits", {"task_no": task_no})

    async def late_answers(self, task_no: int) -> list[LateAnswerRow]:
        """Answers of a task's attempts that came when they no longer counted, in the order of the commits."""
        return await self._select(late_answer_of, "select_late_answers", {"task_no": task_no})

    async def load_statuses(self, queue: str, limit: int, within: Reach = ANY_REACH) -> list[StatusRow]:
        """The oldest statuses of a queue that are not acknowledged, in their order. ``within``: only of its tasks."""
        asked = {"apps": list(within.apps) or None, "workflows": list(within.workflows) or None}
        return await self._select(status_of, "select_statuses", {"queue": queue, "limit": limit, **asked})

    async def alerts(self, *, open_only: bool = True, after: int = 0, limit: int = 100) -> list[AlertRow]:
        """Alerts in the order of their opening, after a ``no``."""
        asked = {"open_only": open_only, "after": after, "limit": limit}
        return await self._select(alert_of, "select_alerts", asked, Lane.SURVEYS)

    async def find_ledger(self, ledger_id: str) -> LedgerRow | None:
        """One ledger by its id."""
        return await self._read(lambda rows: rows.select_ledger(ledger_id))

    async def list_ledgers(
        self, states: Sequence[LedgerState] = tuple(LedgerState), *, after: int = 0, limit: int = 100
    ) -> list[LedgerRow]:
        """Ledgers in some states, in the order in which they were begun, after a ledger_no."""
        name = "select_ledgers" if LedgerState.DONE in states else "select_unfinished_ledgers"
        asked = {"states": [str(state) for state in states], "after": after, "limit": limit}
        return await self._read(lambda rows: rows.read_shared(LedgerRow, rows.ask(name, asked).fetchall()))

    async def find_open_of_ledgers(self, ledger_nos: Sequence[int]) -> dict[int, int]:
        """Find the first open task of each of some ledgers; a ledger without one is left out. It reads no other task."""
        asked = {"ledger_nos": list(ledger_nos)}
        return dict(await self._select(lambda row: (row[0], row[1]), "select_open_of_ledgers", asked))

    async def count_of_ledger(self, ledger_no: int) -> LedgerTasks:
        """Count the tasks of a ledger by state. It reads all of them, and no other task."""
        asked = {"ledger_no": ledger_no}
        found = await self._select(lambda row: row, "count_tasks_of_ledger", asked, Lane.SURVEYS)
        return LedgerTasks(
            {state: count for state, count, _ in found}, max((at for *_, at in found if at is not None), default=None)
        )

    async def ledger_aside(self, ledger_no: int, *, after: int = 0, limit: int = ASIDE_MAX) -> list[tuple[int, str]]:
        """Entries that were set aside, after a line: its number and the reason."""
        asked = {"ledger_no": ledger_no, "after": after, "limit": limit}
        return await self._select(lambda row: (row[0], row[1]), "select_ledger_aside", asked)

    async def _select(
        self, read: Callable[[Row], T], name: str, asked: Mapping[str, Any], lane: Lane = Lane.READS
    ) -> list[T]:
        """All rows of a statement."""
        return await self._read(lambda rows: [read(row) for row in rows.ask(name, asked).fetchall()], lane)
