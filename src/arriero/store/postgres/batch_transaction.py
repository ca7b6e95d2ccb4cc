"""A batch of commands in one transaction: rows locked in key order, judged by the core, written one statement a kind."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ...core.apps import apps_run_by
from ...core.due import HEAD_START
from ...core.lease import PROBATION_FROM
from ...errors import ArrieroError, UnreadableRow
from ...model import STEP_BITS, ConvoyRow, Loaded, StepRow, TaskRow, step_number
from ...model.answers import Answer, Applied, ConvoyApplied, SignalKept
from ...model.commands import (
    Advance,
    AnyCommand,
    AssignApp,
    BeginTry,
    Claim,
    DeliverAttempt,
    EndByLimit,
    ExtendAttempt,
    FreeTask,
    GatherBatch,
    NoteChildEnd,
    Operate,
    OperateConvoy,
    PublishProgress,
    Recover,
    ReleaseAttempt,
    Report,
    SaveCheckpoint,
    SendSignal,
    Take,
)
from ...model.moves import ChildEnded, Continue, Hold, Keep, NextUndo, PlanUndo, Process, PutDown, Reported
from ...model.processes import ask_versions
from ...model.workflow_pauses import WorkflowPauseRow, index_pauses
from .. import columns
from ..contract import SUPERVISOR_LEASE, Busy
from ..engine.commands import apply_command
from ..engine.convoys import LOOKS_MAX, list_ending_turns
from ..readable import of_task
from ..sql.agent_rows import CommandRows
from .columns import convoy_in, step_of
from .context import StoreContext
from .convoy_rows import PostgresConvoyRows
from .pipeline import PendingAnswer
from .session import Transaction

T = TypeVar("T")
# Rows that others may be taking at the same moment: all processes together claim about a hundred tasks at a time.
PASSED_OVER_MAX = 100
# Steps of a task that a claim names, which are read before it is known whether it may be claimed; if it has more, then later.
FIRST_STEPS = 100
OPENED_COUNT = columns.TASK.index("opened_count")


class PostgresDueRows(PostgresConvoyRows, CommandRows):
    """Due rows on PostgreSQL. What a batch has freed may be found, so it is written first."""

    def __init__(self, transaction: Transaction, context: StoreContext) -> None:
        super().__init__(transaction, context)
        self._due_convoys: list[ConvoyRow] = []
        self._convoy_texts: dict[int, str | None] = {}  # by task, as read with its arguments

    def keep_due_convoys(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Convoys to be looked at that this transaction has locked."""
        self._due_convoys = self.keep_convoys(rows)

    def lock_due_convoys(self, limit: int) -> list[ConvoyRow]:
        """Rows locked at the start of the batch; none is answered twice."""
        due, self._due_convoys = self._due_convoys, []
        return [convoy for convoy in due if self.convoy(convoy.convoy_no) is convoy]

    def lock_claimable(self, command: Claim, probation: bool, limit: int) -> list[Loaded]:
        asked: dict[str, Any] = {
            "since": self._context.frontiers.tasks.since(command.workflows),
            "probation": probation,
        }
        asked |= {"workflows": list(command.workflows), "apps": list(apps_run_by(command.app))}
        asked |= ask_versions(command.versions, command.workflows)
        name = "select_claimable_of_share" if command.shares else "select_claimable"
        return self._readable_of(name, asked, limit, self._claimable, self._read_steps)

    def keep_claimed(self, rows: Sequence[tuple[Any, ...]], first_steps: Sequence[tuple[Any, ...]]) -> None:
        """Keep arguments, convoys and first steps of tasks that a claim names."""
        self.keep_steps(first_steps)
        counts = Counter(row[0] >> STEP_BITS for row in first_steps)
        for task_no, arguments, convoy in rows:
            self._bodies[task_no], self._convoy_texts[task_no] = arguments, convoy
            if counts[task_no] < FIRST_STEPS:
                self.steps_read((task_no,))

    def _read_steps(self, rows: Sequence[tuple[Any, ...]]) -> None:
        begun = [row[0] for row in rows if row[OPENED_COUNT]]
        if begun:
            self.keep_steps(self.ask("select_steps", {"task_nos": begun}).fetchall())
            self.steps_read(begun)

    def _claimable(self, row: tuple[Any, ...]) -> Loaded:
        """A task with all that is recorded of it. Raises UnreadableRow."""
        self.keep_tasks((row[: columns.TASK_WIDTH],))
        task = self.task(row[0])
        assert task is not None
        self._bodies[task.task_no], self._convoy_texts[task.task_no] = row[columns.TASK_WIDTH :]
        self.steps_read((task.task_no,))
        return self.load_locked(task)

    def load_locked(self, task: TaskRow) -> Loaded:
        task_no = task.task_no
        try:
            convoy = self._convoys.get(task.convoy_no or 0) or convoy_in(self._convoy_texts[task_no])
        except UnreadableRow as error:
            raise of_task(error, task_no) from error
        return Loaded(task, self.arguments(task_no), self.steps_of(task_no), convoy)

    def lock_requests(self, name: str, asked: dict[str, Any], limit: int) -> list[StepRow]:
        asked["since"] = self._context.frontiers.steps.since((asked["agent"],))
        return self._readable_of(name, asked, limit, self._takeable)

    def _takeable(self, row: tuple[Any, ...]) -> StepRow:
        """A request. Of two of one task, both found at the same time, the second one's task moves on with the first. Raises
        UnreadableRow."""
        if self.task(row[columns.STEP_WIDTH]) is None:
            self.keep_tasks((row[columns.STEP_WIDTH :],))
        self.task(row[columns.STEP_WIDTH])
        step = step_of(row[: columns.STEP_WIDTH])
        self.keep_steps((row[: columns.STEP_WIDTH],))
        return step

    def _readable_of(
        self,
        name: str,
        asked: dict[str, Any],
        limit: int,
        read: Callable[[tuple[Any, ...]], T],
        read_before: Callable[[Sequence[tuple[Any, ...]]], None] = lambda _: None,
    ) -> list[T]:
        """Rows that are due and can be read; ``read_before`` is given all of them first. See ``Quarantine.read_due``."""

        def ask() -> list[tuple[Any, ...]]:
            rows = self._due(name, {**asked, "limit": limit, "compared": limit + PASSED_OVER_MAX})
            read_before(rows)
            return rows

        return self._quarantine.read_due(ask, read)

    def _due(self, name: str, asked: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Rows that are due; the clock is read after they were locked, also for what follows in this batch."""
        self.flush()
        common: dict[str, Any] = {
            "now": self.read_clock(),
            "probation_from": PROBATION_FROM,
            "apart": self._quarantine.tasks(),
        }
        found = self.ask(name, {"head_start": HEAD_START, **asked, **common})
        clock = self._context.ask_clock(self.transaction)
        self.arrive()
        self.keep_clock(clock)
        return found.fetchall()


class BatchRows(msgspec.Struct):
    """Rows that the commands of a batch name."""

    tasks: set[int]
    steps: set[int]
    open_of: set[int]  # tasks whose open steps decide
    all_of: set[int]  # tasks whose steps all may matter
    processes: set[int]
    convoys: set[int]  # of tasks that may end
    convoys_of: set[int]  # tasks whose convoys may change, whichever those are
    agents: set[str]  # whose attempts may begin
    opened_for: set[str]  # Agents of requests without keys of limits
    takes: dict[str, set[str]]  # Agents whose limits are asked, by App
    by_term: bool = False  # whether a leader speaks
    claims: bool = False
    claimed: set[int] = set()  # tasks that a claim names
    looks: bool = False  # for convoys whose next turn is due
    hands_over: bool = False  # the next task of a convoy


def collect_named(batch: Iterable[AnyCommand]) -> BatchRows:
    """See ``BatchRows``. What is forgotten here is read later, one row at a time."""
    named = BatchRows(set(), set(), set(), set(), set(), set(), set(), set(), set(), {})
    for command in batch:
        named.by_term = named.by_term or getattr(command, "term", None) is not None
        match command:
            case Claim(process_no=process_no, only=only):
                named.processes.add(process_no)
                named.claims = True
                named.looks = named.looks or not only
                named.claimed.update(only)
            case Take():
                _name_take(command, named)
            case Advance():
                _name_advance(command, named)
            case (
                Report(report=Reported(step_no=step_no))
                | Recover(step_no=step_no)
                | ExtendAttempt(step_no=step_no)
                | SaveCheckpoint(step_no=step_no)
                | PublishProgress(step_no=step_no)
                | BeginTry(step_no=step_no)
                | DeliverAttempt(step_no=step_no)
                | ReleaseAttempt(step_no=step_no)
            ):
                named.tasks.add(step_no >> STEP_BITS)
                named.steps.add(step_no)
                if isinstance(command, BeginTry):
                    named.takes.setdefault(command.app, set()).add(command.agent)
            case EndByLimit(task_no=task_no):
                named.tasks.add(task_no)
                named.convoys_of.add(task_no)
                named.open_of.add(task_no)
            case FreeTask(task_no=task_no, steps=steps):
                named.tasks.add(task_no)
                named.steps.update(step_no for step_no, _ in steps)
                if command.hold is not None:
                    named.open_of.add(task_no)
                    named.convoys_of.add(task_no)
                if command.lost_by is not None:
                    named.processes.add(command.lost_by)
            case NoteChildEnd(step_no=step_no):
                named.tasks.add(step_no >> STEP_BITS)
                named.steps.add(step_no)
                named.open_of.add(step_no >> STEP_BITS)
            case SendSignal(task_no=task_no, wait=wait):
                named.tasks.add(task_no)
                named.open_of.add(task_no)
                if wait is not None:
                    named.steps.add(step_number(task_no, wait))
            case Operate(task_no=task_no) | AssignApp(task_no=task_no):
                named.tasks.add(task_no)
                named.all_of.add(task_no)
                named.convoys_of.add(task_no)
            case OperateConvoy(convoy_no=convoy_no, task_no=task) | GatherBatch(convoy_no=convoy_no, task_no=task):
                named.convoys.add(convoy_no)
                named.tasks.update(() if task is None else (task,))
            case _:
                pass
    return named


def _name_take(command: Take, named: BatchRows) -> None:
    asked = {agent for agent, _ in command.room}
    named.processes.add(command.process_no)
    named.agents |= asked
    named.agents.update(sibling for _, siblings in command.siblings for sibling in siblings)
    named.takes.setdefault(command.app, set()).update(asked)


def _name_advance(command: Advance, named: BatchRows) -> None:
    named.tasks.add(command.task_no)
    named.steps.update(item.step_no for item in command.delivered)
    named.tasks.update(item.child_no for item in command.delivered if isinstance(item, ChildEnded) and item.child_no)
    named.steps.update(new.reopens for new in command.opened if new.reopens is not None)
    named.agents.update(new.agent for new in command.opened if new.take)
    planned = command.ending.planned if isinstance(command.ending, PlanUndo | Hold) else ()
    opened = (*command.opened, *planned)
    named.opened_for.update(new.agent for new in opened if new.limit_keys is None and new.agent)
    if isinstance(command.ending, NextUndo):
        named.steps.add(command.ending.step_no)
    elif not isinstance(command.ending, Keep | PutDown | Process):  # at its end hardly any task has a step open
        named.open_of.add(command.task_no)
    named.convoys.update(list_ending_turns((command,)))
    if isinstance(command.ending, Continue) and command.convoy_no is not None:
        named.convoys.add(command.convoy_no)
    if command.hand_over is not None:
        named.hands_over = True
        named.processes.add(command.process_no)  # one that is retired is given no next task


class BatchTransaction:
    """One run of one batch."""

    def __init__(self, transaction: Transaction, context: StoreContext) -> None:
        self._transaction = transaction
        self._context = context
        self._rows = PostgresDueRows(transaction, context)
        self._term_is_held = False

    def run(
        self, batch: Sequence[AnyCommand], batch_number: Mapping[str, int] | None
    ) -> list[Answer | ArrieroError] | None:
        """The answers; None: the process that speaks is of an epoch that is over.

        ``batch_number``: as ``begin_batch`` takes it; None: no process speaks.
        """
        named = collect_named(batch)
        tasks, steps = sorted(named.tasks | named.claimed), sorted(named.steps)
        ask = self._transaction.ask
        # Before the tasks: two Takes for one Agent wait here, while they hold nothing else that the other one needs.
        of_takes = {
            app: ask("lock_limits", {"app": app, "agents": sorted(limited)})
            for app, limited in sorted(named.takes.items())
        }
        locked = ask("lock_tasks", {"task_nos": tasks}) if tasks else None
        of_convoys = self._ask_convoys(named)
        # With the clock, after what is locked for it. Before COMMIT is sent this row is locked, too.
        if batch_number is None:
            clock = self._context.ask_clock(self._transaction)
        else:
            clock = ask("begin_batch", {**batch_number, "given": self._context.get_test_instant()})
        # After ``begin_batch``: an operator who pauses a workflow waits for the row that it locks.
        paused = ask("list_workflow_pauses") if named.claims or named.hands_over else None
        of_steps = ask("select_named_steps", {"step_nos": steps}) if steps else None
        all_of = sorted(named.all_of)
        of_all = ask("select_steps", {"task_nos": all_of}) if all_of else None
        open_of = sorted(named.open_of - named.all_of)
        of_open = ask("select_open_steps", {"task_nos": open_of}) if open_of else None
        of_claimed = self._ask_claimed(sorted(named.claimed)) if named.claimed else ()
        of_processes = {number: ask("select_process", {"process_no": number}) for number in sorted(named.processes)}
        agents = sorted(named.agents)
        of_breakers = self._rows.ask_breakers_of(agents) if agents else None
        limited = sorted(named.agents | named.opened_for)
        of_limits = self._rows.ask_limits(limited) if limited else None
        term = ask("select_term", {"name": SUPERVISOR_LEASE}) if named.by_term else None
        self._transaction.arrive()
        if not clock.rowcount:
            return None
        for number, process in of_processes.items():
            self._rows.keep_process(number, process.fetchone())
        self._term_is_held = term is not None and not self._keep_term(term.fetchone())
        self._rows.keep_clock(clock)
        if paused is not None:
            self._rows.pauses = index_pauses(self._rows.read_shared(WorkflowPauseRow, paused.fetchall()))
        if of_breakers is not None:
            self._rows.keep_breakers(agents, of_breakers.fetchall())
        if of_limits is not None:
            self._rows.keep_limits(limited, of_limits.fetchall())
        for locked_limits in of_takes.values():
            self._rows.keep_locked_limits(locked_limits.fetchall())
        self._keep_convoys(named, of_convoys)
        ours = [] if locked is None else locked.fetchall()
        self._rows.keep_tasks(ours)
        held = {row[0] for row in ours}  # also those that cannot be read
        for found in (of_steps, of_all, of_open):
            if found is not None:
                self._rows.keep_steps(found.fetchall())
        self._rows.steps_read(all_of)
        self._rows.open_steps_read(open_of)
        if of_claimed:
            self._rows.keep_claimed(*(found.fetchall() for found in of_claimed))
        busy = self._held_by_others(named.tasks - held)
        answers = [self._apply(command, busy) for command in batch]
        self._rows.flush()
        return answers

    def _ask_convoys(self, named: BatchRows) -> dict[str, PendingAnswer]:
        """Ask for convoys whose tasks may end, for their next tasks, and for convoys to look at."""
        ask, asked = self._transaction.ask, {}
        if named.convoys or named.convoys_of:
            numbers = {"convoy_nos": sorted(named.convoys), "task_nos": sorted(named.convoys_of)}
            asked["locked"] = ask("lock_convoys", numbers)
        if named.convoys:
            numbers = {"convoy_nos": sorted(named.convoys)}
            for name in ("lock_next_waiting", "select_behind", "seal_drained", "select_drained"):
                asked[name] = ask(name, numbers)
        if named.looks:
            of_clock = {
                "given": self._context.get_test_instant(),
                "limit": LOOKS_MAX,
                "apart": self._context.quarantine.convoys(),
            }
            asked["due"] = ask("lock_due_convoys", of_clock)
            asked["full"] = ask("lock_full_convoys", of_clock)
        return asked

    def _ask_claimed(self, task_nos: list[int]) -> tuple[PendingAnswer, PendingAnswer]:
        """Ask for what goes with tasks that a claim names; see ``keep_claimed``."""
        ask = self._transaction.ask
        asked = {"task_nos": task_nos}
        return ask("select_claimed", asked), ask("select_first_steps", {**asked, "limit": FIRST_STEPS})

    def _keep_convoys(self, named: BatchRows, asked: dict[str, PendingAnswer]) -> None:
        if "locked" in asked:
            self._rows.keep_convoys(asked["locked"].fetchall(), at_the_start=True)
        if named.convoys:
            self._rows.keep_next(asked["lock_next_waiting"].fetchall())
            self._rows.keep_behind(asked["select_behind"].fetchall())
            drained = (number for (number,) in asked["select_drained"].fetchall())
            self._rows.keep_sealed(asked["seal_drained"].fetchall(), drained)
        if named.looks:
            due = {row[0]: row for row in (*asked["due"].fetchall(), *asked["full"].fetchall())}
            self._rows.keep_due_convoys(list(due.values()))

    def _keep_term(self, row: tuple[Any, ...] | None) -> bool:
        """False: another transaction is just changing the lease."""
        if row is None and self._transaction.ask("look_at_lease", {"name": SUPERVISOR_LEASE}).fetchone() is not None:
            return False
        self._rows.keep_term(SUPERVISOR_LEASE, 0 if row is None else row[0])
        return True

    def _held_by_others(self, missing: set[int]) -> set[int]:
        if not missing:
            return set()
        found = self._transaction.ask("select_existing", {"task_nos": sorted(missing)}).fetchall()
        return {task_no for (task_no,) in found}

    def _apply(self, command: AnyCommand, busy: set[int]) -> Answer | ArrieroError:
        if self._term_is_held and getattr(command, "term", None) is not None:
            return Busy("another transaction has the Supervisors' lease open")
        if busy and not collect_named((command,)).tasks.isdisjoint(busy):
            return Busy("another transaction has its task open")
        return apply_command(command, self._rows)


def is_news_for_others(answers: Sequence[Answer | ArrieroError], process_no: int | None) -> bool:
    """Returns True if a batch left work that another process may wait for: a free or foreign task, an untaken request."""
    return any(
        isinstance(answer, ConvoyApplied)
        or (isinstance(answer, SignalKept) and answer.task.unseen_since is not None)
        or (
            isinstance(answer, Applied)
            and (
                answer.task.locked_by != process_no
                or any(step.not_before and not step.locked_by for step in answer.steps)
            )
        )
        for answer in answers
    )
