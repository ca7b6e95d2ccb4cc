"""Reading: what a process is to act on, where rows that it cannot read are set apart; and for operators, counts, surveys and lists."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar, get_args

import msgspec

from ...core.lease import PROBATION_FROM
from ...core.ledger_batches import ASIDE_MAX, LedgerTasks
from ...core.undo import list_open_compensations
from ...errors import UnreadableRow
from ...inspection.attempts import (
    AttemptEnd,
    AttemptSurvey,
    RecordedEnd,
    Requests,
    Retrying,
    read_attempt_ends,
    read_failure,
    resolve_agents,
)
from ...model import (
    UNDO_PREFIX,
    ConvoyRow,
    EditRow,
    Instant,
    LateAnswerRow,
    LedgerRow,
    LedgerState,
    Loaded,
    SignalRow,
    StatusRow,
    StepKind,
    StepState,
    TailRow,
    TaskState,
    later,
)
from ...model.processes import NO_VERSIONS, LeaderSurvey, ProcessRow, Versions
from ...model.progress import PublishedRow, format_version
from ...model.tokens import ANY_REACH, Reach
from ..contract import SUPERVISOR_LEASE, ConvoyLoaded, Due, Ended, Overdue, QueueSurvey, Survey
from ..quarantine import Quarantine
from ..readable import AnyRow, legible, refuse_unreadable
from ..rows import TASK_STATES, Row, SharedRow, edit_of, late_answer_of, parse_row_name, status_of
from ..sql.store_rows import StoreRows
from .code_versions import ask_for_due_workflows
from .convoys import KNOWN_MAX, find_missing
from .processes import SAID_OF_REFUSED_TERMS
from .transactions import TASKS_MAX, Lane, Transactions, reads

LOOKED_AT_MAX = 1_000  # steps of each Agent that are tried again, and as many running attempts
SIGNALS_AT_ONCE = 1_000  # of a task with an alert about a row that could not be read
COMMITS_MAX = 10_000  # of the history's end: hours where little continues, some seconds of a store that is busy


RETRYING_COLUMNS = (
    "agent", "task_no", "task_id", "name", "key", "kind", "attempt", "failure_count", "failure", "state", "not_before",
)  # fmt: skip


def retrying_of(row: Sequence[Any]) -> Retrying:
    """A step that is tried again, from its columns in the order of ``RETRYING_COLUMNS``."""
    of = dict(zip(RETRYING_COLUMNS, row, strict=True))
    label = of["name"] if of["key"] == "#1" else f"{of['name']}[{of['key']}]"
    is_running = of["state"] == StepState.RUNNING
    return Retrying(
        agent=of["agent"],
        task_no=of["task_no"],
        task_id=of["task_id"],
        step=f"{UNDO_PREFIX if of['kind'] == StepKind.COMPENSATION else ''}{label}",
        attempt=of["attempt"],
        failure_count=of["failure_count"],
        failure=read_failure(of["failure"]),
        is_running=is_running,
        next_at=None if is_running else of["not_before"],
    )


def requests_of(due: Sequence[Sequence[Any]], running: Sequence[Sequence[Any]]) -> tuple[Requests, ...]:
    """Open requests of each Agent, by name.

    Args:
        due: agent, number of due requests, since when the oldest is due, number of those that are due later.
        running: agent, number of running attempts.
    """
    counts = {agent: count for agent, count in running}
    asked = {agent: (count, oldest, later) for agent, count, oldest, later in due}
    found: list[Requests] = []
    for agent in sorted({*counts, *asked}):
        count, oldest, later = asked.get(agent, (0, None, 0))
        running_now = counts.get(agent, 0)
        found.append(Requests(agent=agent, due=count, oldest_at=oldest, later=later, running=running_now))
    return tuple(found)


Commits = Sequence[tuple[int, Instant, str]]


def ends_in(
    newest_first: Commits, limit: int, agents_of: Callable[[list[int]], dict[int, str]]
) -> tuple[tuple[AttemptEnd, ...], Instant | None]:
    """The ends of attempts in the last commits, and since when none of them is missing (None: none is missing at all).

    Args:
        newest_first: task_no, instant and events of each; ``limit``: how many were asked for.
        agents_of: the Agents of steps by their numbers.
    """
    ends: list[RecordedEnd] = read_attempt_ends(reversed(newest_first))
    agents = agents_of(sorted({end.step_no for end in ends}))
    return resolve_agents(ends, agents), newest_first[-1][1] if len(newest_first) >= limit > 0 else None


T = TypeVar("T")


def count_tasks(rows: StoreRows) -> dict[TaskState, int]:
    """Tasks by state."""
    found: dict[str, int] = dict(rows.ask("count_tasks").fetchall())
    return {state: found.get(state.stored, 0) for state in TaskState}


def survey(rows: StoreRows) -> Survey:
    """Survey the store for an operator."""
    now, ask = rows.read_clock(), rows.ask
    found = ask("survey_tasks", {"now": now, "probation_from": PROBATION_FROM})
    workflows, steps = ask_for_due_workflows(rows, now), ask("survey_steps", {"now": now})
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
        steps: of each Agent's requests that many are looked at, those whose time comes last; and that many of all
            running attempts.
        commits: that many of the history's last ones are looked at.
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


def find_convoy(rows: StoreRows, key: str, limit: int = 10) -> ConvoyLoaded | None:
    """A convoy by its key, with the first of its members."""
    convoy = next(iter(rows.read_shared(ConvoyRow, rows.ask("select_convoy_by_key", {"key": key}).fetchall())), None)
    if convoy is None:  # also if only a ledger that is not opened has the key
        return None
    asked = {"convoy_no": convoy.convoy_no, "limit": limit}
    open_task = rows.ask("select_task", {"task_no": convoy.open_task})
    waiting, aside = rows.ask("select_waiting", asked), rows.ask("select_set_aside", asked)
    known = rows.ask("select_sequences", asked | {"start": convoy.expected, "limit": KNOWN_MAX})
    rows.arrive()
    (loaded,) = _count_members(rows, [convoy])
    members = [legible(rows.task_as_is(row)) for row in (*open_task.fetchall(), *waiting.fetchall())]
    return msgspec.structs.replace(
        loaded,
        members=tuple(members[:limit]),
        passed_over=tuple(legible(rows.task_as_is(row)) for row in aside.fetchall()),
        missing=find_missing((number for (number,) in known.fetchall()), convoy.expected, loaded.tail, limit),
    )


def _count_members(rows: StoreRows, convoys: Sequence[ConvoyRow]) -> list[ConvoyLoaded]:
    asked = {"convoy_nos": [convoy.convoy_no for convoy in convoys]}
    tails, counts = rows.ask("select_tails", asked), rows.ask("count_members", asked)
    rows.arrive()
    tail = {found.convoy_no: found for found in rows.read_shared(TailRow, tails.fetchall())}
    count = {number: (waiting, aside) for number, waiting, aside in counts.fetchall()}
    return [ConvoyLoaded(convoy, tail[convoy.convoy_no], *count[convoy.convoy_no]) for convoy in convoys]


# By the state that is asked for: those that are blocked are few, and idle ones may be most of the table.
LISTS_OF_CONVOYS = {None: "select_convoys_busy", "open": "select_convoys_busy", "idle": "select_convoys_idle"}


def list_convoys(rows: StoreRows, shown: str | None = None, *, after: int = 0, limit: int = 100) -> list[ConvoyLoaded]:
    """Convoys in the order of their numbers, after a convoy_no, without members.

    Args:
        shown: ``idle``, ``open``, ``stopped``, ``gap`` or ``parked``; None: all but those that are idle.
    """
    name = LISTS_OF_CONVOYS.get(shown, "select_convoys_still")
    found = rows.ask(name, {"after": after, "shown": shown, "limit": limit}).fetchall()
    return _count_members(rows, rows.read_shared(ConvoyRow, found))


class SurveyOperations(Transactions):
    """Reads for operators, and what is due."""

    counts = reads(count_tasks, Lane.SURVEYS)
    survey = reads(survey, Lane.SURVEYS)
    survey_leader = reads(survey_leader, Lane.SURVEYS)
    count_refused_terms = reads(count_refused_terms, Lane.SURVEYS)
    survey_attempts = reads(survey_attempts, Lane.SURVEYS)
    find_convoy = reads(find_convoy)
    list_convoys = reads(list_convoys, Lane.SURVEYS)

    async def due(
        self, workflows: Sequence[str], agents: Sequence[str], app: str = "", versions: Versions = NO_VERSIONS
    ) -> Due:
        """Work to claim (of this code, see ``Claim``, or an undo of any) or to take (by these Agents), by this App."""
        return await self._read(lambda rows: rows.select_due(workflows, agents, app, versions))

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
        """Payloads of a task that operators gave or replaced, with those they replaced, in the order of the commits."""
        return await self._select(edit_of, "select_edits", {"task_no": task_no})

    async def late_answers(self, task_no: int) -> list[LateAnswerRow]:
        """Answers of a task's attempts that came when they no longer counted, in the order of the commits."""
        return await self._select(late_answer_of, "select_late_answers", {"task_no": task_no})

    async def load_versions(self, task_nos: Sequence[int]) -> dict[int, str]:
        """A text for each of some tasks that changes with each of its commits, and each value that it publishes."""
        found = await self._select(lambda row: row, "select_versions", {"task_nos": list(task_nos)})
        return {row[0]: format_version(row[1], row[2], row[3]) for row in found}

    async def published(self, task_no: int) -> list[PublishedRow]:
        """The latest values that a task and its steps have published, in the order of the steps, as they stand."""
        return await self._select(lambda row: PublishedRow(*row), "select_published", {"task_no": task_no})

    async def load_statuses(self, queue: str, limit: int, within: Reach = ANY_REACH) -> list[StatusRow]:
        """The oldest statuses of a queue that are not acknowledged, in their order. ``within``: only of its tasks."""
        asked: dict[str, Any] = {"queue": queue, "limit": limit, "now": self.now()}
        asked |= {"apps": list(within.apps) or None, "workflows": list(within.workflows) or None}
        return await self._select(status_of, "select_statuses", asked)

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
        counts = {str(TASK_STATES.get(state, state)): count for state, count, _ in found}
        return LedgerTasks(counts, max((at for *_, at in found if at is not None), default=None))

    async def ledger_aside(self, ledger_no: int, *, after: int = 0, limit: int = ASIDE_MAX) -> list[tuple[int, str]]:
        """Entries that were set aside, after a line: its number and the reason."""
        asked = {"ledger_no": ledger_no, "after": after, "limit": limit}
        return await self._select(lambda row: (row[0], row[1]), "select_ledger_aside", asked)

    async def _select(
        self, read: Callable[[Row], T], name: str, asked: Mapping[str, Any], lane: Lane = Lane.READS
    ) -> list[T]:
        """All rows of a statement."""
        return await self._read(lambda rows: [read(row) for row in rows.ask(name, asked).fetchall()], lane)


LOOKED_THROUGH_MAX = 100_000  # rows of each kind, for one that cannot be read: more would take an operator seconds


def load_readable(rows: StoreRows, task_nos: Sequence[int], quarantine: Quarantine) -> list[Loaded]:
    """The given tasks that exist and can be read."""
    return [loaded for loaded in rows.select_tasks(task_nos) if quarantine.can_read_task(loaded)]


def load_overdue(
    rows: StoreRows, limit: int, progress_seconds: float, ahead_seconds: float, quarantine: Quarantine
) -> Overdue:
    """See ``ReadingOperations.load_overdue``."""
    now = rows.read_clock()
    found = rows.select_past_deadline(now, later(now, -progress_seconds), later(now, ahead_seconds), limit)
    return Overdue(
        now,
        tuple(quarantine.readable(found.expired)),
        tuple(quarantine.readable(found.starved)),
        tuple(load_readable(rows, found.past_limit, quarantine)),
        tuple(load_readable(rows, found.stuck, quarantine)),
        found.next_at,
    )


def load_ended(rows: StoreRows, task_nos: Sequence[int], quarantine: Quarantine) -> list[Ended]:
    """See ``ReadingOperations.load_ended``. What is still to be undone is in the steps of those that did not end well.

    Nobody runs an ended task again, so its arguments and its convoy need not be readable.
    """
    tasks = quarantine.readable(rows.select_ended(task_nos))
    undone = [task.task_no for task in tasks if task.state is not TaskState.PROCESSED]
    steps = {loaded.task.task_no: loaded.steps for loaded in rows.select_tasks(undone)}
    found = ((task, steps.get(task.task_no, ())) for task in tasks)
    return [
        Ended(task, list_open_compensations(of_task))
        for task, of_task in found
        if all(quarantine.can_read(partial(refuse_unreadable, step)) for step in of_task)
    ]


def due_at(
    now: Instant,
    tasks: Iterable[Instant | None],
    steps: Iterable[Instant | None],
    times: Iterable[Instant | None],
    *,
    is_leaderless: bool,
) -> Due:
    """See ``StateStore.due``. ``times``: when something is or will be due, the earliest of each kind after now among them."""
    next_at = min((at for at in times if at is not None and at > now), default=None)
    return Due(now, _is_past(tasks, now), _is_past(steps, now), next_at, is_leaderless)


def _is_past(times: Iterable[Instant | None], now: Instant) -> bool:
    return any(at is not None and at <= now for at in times)


class ReadingOperations(Transactions):
    """Reads what a process is to act on, and looks for what it cannot read."""

    async def load_held(self, process_no: int, limit: int) -> list[Loaded]:
        """Tasks held by a process, or with a step running there."""
        return await self._reporting(
            self._read(lambda rows: load_readable(rows, rows.select_held(process_no, limit), self._quarantine))
        )

    async def load_overdue(self, limit: int, progress_seconds: float, ahead_seconds: float = 0.0) -> Overdue:
        """Expired rows.

        Args:
            limit: rows of each kind.
            progress_seconds: how long a holder may leave news unseen before it counts as stuck.
            ahead_seconds: how far ahead the next deadline is looked for; 0: it is not.
        """
        return await self._reporting(
            self._read(lambda rows: load_overdue(rows, limit, progress_seconds, ahead_seconds, self._quarantine))
        )

    async def load_tasks(self, task_nos: Sequence[int]) -> list[Loaded]:
        """The given tasks with their steps, as of one moment; absent and unreadable ones are left out. They are not news any longer."""

        def read(rows: StoreRows) -> list[Loaded]:
            self._quarantine.forget_untried(task_nos)  # the one who holds one asks until it has an answer
            return load_readable(rows, task_nos, self._quarantine)

        return await self._reporting(self._read(read))

    async def load_ended(self, task_nos: Sequence[int]) -> list[Ended]:
        """The ended ones (processed, compensated, error) of the given tasks, each once, ordered by their numbers."""
        return await self._reporting(self._read(lambda rows: load_ended(rows, task_nos, self._quarantine)))

    async def load(self, task_no: int) -> Loaded | None:
        """One task with its steps, as they stand: for operators, also where it cannot be read (``store.readable``)."""
        return await self._read(lambda rows: next(iter(rows.select_tasks([task_no])), None))

    async def load_all(self, task_nos: Sequence[int]) -> list[Loaded]:
        """The given tasks that exist, as of one moment and as they stand; see ``load``. Nothing is written of what cannot be read."""
        return await self._read(lambda rows: rows.select_tasks(task_nos))

    async def find(self, task_id: str) -> Loaded | None:
        """One task by its business id, as it stands; see ``load``."""

        def work(rows: StoreRows) -> Loaded | None:
            task_no = rows.select_number(task_id)
            return None if task_no is None else next(iter(rows.select_tasks([task_no])), None)

        return await self._read(work)

    async def look_at_unreadable(self) -> int:
        """Read again what alerts say cannot be read, and close those of tasks and rows that can be; answers how many."""

        def look(rows: StoreRows) -> tuple[list[int], list[str]]:
            found = rows.select_unreadable(TASKS_MAX)
            task_nos, names = [no for no, _ in found if no], [name for no, name in found if not no]
            loaded = {one.task.task_no: one for one in rows.select_tasks(task_nos)}
            tasks = [no for no in task_nos if no not in loaded or self._can_read_all(rows, loaded[no])]
            return tasks, [name for name in names if _is_readable_or_gone(rows, name)]

        readable, names = await self._read(look)
        for task_no in readable:
            self._quarantine.forget(task_no)
        for name in names:
            self._quarantine.forget_row(name)
        if readable:
            await self._write(lambda rows: rows.close_unreadable(readable))
        if names:
            await self._write(lambda rows: rows.close_unreadable_rows(names))
        if self._quarantine.unreported:
            await self._report_unreadable()
        return len(readable) + len(names)

    def _can_read_all(self, rows: StoreRows, loaded: Loaded) -> bool:
        """Returns True if a task can be read, also the signals that waits have taken: replies are written into these rows."""
        return self._quarantine.can_read_task(loaded) and not any(
            list(_find_unreadable(page)) for page in _read_signals(rows, loaded.task.task_no)
        )

    async def list_unreadable(self, limit: int) -> list[UnreadableRow]:
        """Look through the rows that belong to no task alone, for those that this release cannot read."""
        return await self._read(lambda rows: _list_unreadable(rows, limit), Lane.SURVEYS)


def _read_signals(rows: StoreRows, task_no: int) -> Iterator[list[SignalRow]]:
    """Read all signals of a task as they stand, in pages."""
    after = 0
    while page := rows.select_signals(task_no, after, SIGNALS_AT_ONCE):
        yield page
        after = page[-1].number


def _is_readable_or_gone(rows: StoreRows, name: str) -> bool:
    """Returns True if no alert about a shared row is needed any longer."""
    parsed = parse_row_name(name)
    return parsed is not None and not list(_find_unreadable(rows.select_shared(*parsed, 1)))


def _list_unreadable(rows: StoreRows, limit: int) -> list[UnreadableRow]:
    kinds: tuple[type[SharedRow], ...] = get_args(SharedRow)
    found = (error for kind in kinds for error in _find_unreadable(rows.select_shared(kind, None, LOOKED_THROUGH_MAX)))
    return list(islice(found, limit))


def _find_unreadable(rows: Iterable[AnyRow]) -> Iterator[UnreadableRow]:
    for row in rows:
        try:
            refuse_unreadable(row)
        except UnreadableRow as error:
            yield error
