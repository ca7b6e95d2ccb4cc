"""A batch of commands in one transaction: rows locked in key order, judged by the core, written one statement a kind."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ...commands import (
    Advance,
    Answer,
    AnyCommand,
    Applied,
    AssignApp,
    Claim,
    Claimed,
    ConvoyApplied,
    Dispatch,
    EndByLimit,
    Fired,
    FreeTask,
    Keep,
    NextUndo,
    Operate,
    OperateConvoy,
    Process,
    PutDown,
    Recover,
    Report,
    Reported,
    Take,
    Taken,
)
from ...core import transitions
from ...core.apps import apps_run_by
from ...core.convoys import Held
from ...core.lease import PROBATION_FROM
from ...core.readable import of_task, without_body
from ...errors import ArrieroError, UnreadableRow
from ...model import STEP_BITS, ConvoyRow, Instant, Loaded, StepRow, TaskRow
from ..apart import SetApart
from ..base import SUPERVISOR_LEASE, Busy
from ..batch import Batch, complete_within
from ..convoys import LOOKS_MAX, passed_on
from . import columns
from .frontier import Frontiers
from .pipeline import Asked
from .rows import convoy_in, step_of
from .session import Transaction
from .tables import ReadLate, Tables

T = TypeVar("T")
TASK_WIDTH, STEP_WIDTH = len(columns.TASK), len(columns.STEP)
OPENED_COUNT = columns.TASK.index("opened_count")


class Named(msgspec.Struct):
    """Which rows the commands of a batch speak of."""

    tasks: set[int]
    steps: set[int]
    open_of: set[int]  # tasks whose open steps decide
    all_of: set[int]  # tasks whose steps all may matter
    processes: set[int]
    convoys: set[int]  # of tasks that may end
    convoys_of: set[int]  # tasks whose convoys may change, whichever those are
    by_term: bool = False  # whether a leader speaks
    claims: bool = False


def named_by(batch: Iterable[AnyCommand]) -> Named:
    """See ``Named``. What is forgotten here is read later, one row at a time."""
    named = Named(set(), set(), set(), set(), set(), set(), set())
    for command in batch:
        named.by_term = named.by_term or getattr(command, "term", None) is not None
        match command:
            case Claim(process_no=process_no) | Take(process_no=process_no):
                named.processes.add(process_no)
                named.claims = named.claims or isinstance(command, Claim)
            case Advance():
                _name_advance(command, named)
            case Report(report=Reported(step_no=step_no)) | Recover(step_no=step_no):
                named.tasks.add(step_no >> STEP_BITS)
                named.steps.add(step_no)
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
            case Operate(task_no=task_no) | AssignApp(task_no=task_no):
                named.tasks.add(task_no)
                named.all_of.add(task_no)
                named.convoys_of.add(task_no)
            case OperateConvoy(convoy_no=convoy_no):
                named.convoys.add(convoy_no)
                if command.task_no is not None:
                    named.tasks.add(command.task_no)
            case _:
                pass
    return named


def _name_advance(command: Advance, named: Named) -> None:
    named.tasks.add(command.task_no)
    named.steps.update(item.step_no for item in command.delivered if isinstance(item, Reported | Fired))
    named.steps.update(new.reopens for new in command.opened if new.reopens is not None)
    if isinstance(command.ending, NextUndo):
        named.steps.add(command.ending.step_no)
    elif not isinstance(command.ending, Keep | PutDown | Process):  # at its end hardly any task has a step open
        named.open_of.add(command.task_no)
    named.convoys.update(passed_on((command,)))
    if command.hand_over is not None:
        named.processes.add(command.process_no)  # one that is retired is given no next task


class Applying:
    """One run of one batch. ``given``: the clock of a test, else None; ``frontiers``: from where on what is due is taken.

    ``apart``: what this process leaves alone.
    """

    def __init__(self, transaction: Transaction, given: Instant | None, frontiers: Frontiers, apart: SetApart) -> None:
        self._transaction = transaction
        self._given = given
        self._frontiers = frontiers
        self._apart = apart
        self._tables = Tables(transaction, apart)
        self._now = Instant(0)
        self._term_is_held = False
        self._due_convoys: list[ConvoyRow] = []

    @property
    def now(self) -> Instant:
        """The store's clock, read after the rows were locked."""
        return self._now

    def _ask_now(self) -> Asked:
        return self._transaction.ask("select_now", {"given": self._given})

    def run(
        self, batch: Sequence[AnyCommand], batch_number: Mapping[str, int] | None
    ) -> list[Answer | ArrieroError] | None:
        """The answers; None: the process that speaks is of an epoch that is over.

        ``batch_number``: as ``begin_batch`` takes it; None: no process speaks.
        """
        named = named_by(batch)
        tasks, steps = sorted(named.tasks), sorted(named.steps)
        ask = self._transaction.ask
        locked = ask("lock_tasks", {"task_nos": tasks}) if tasks else None
        of_convoys = self._ask_convoys(named)
        # With the clock, after what is locked for it. Before COMMIT is sent this row is locked, too.
        clock = self._ask_now() if batch_number is None else ask("begin_batch", {**batch_number, "given": self._given})
        of_steps = ask("select_named_steps", {"step_nos": steps}) if steps else None
        all_of = sorted(named.all_of)
        of_all = ask("select_steps", {"task_nos": all_of}) if all_of else None
        open_of = sorted(named.open_of - named.all_of)
        of_open = ask("select_open_steps", {"task_nos": open_of}) if open_of else None
        of_processes = {number: ask("select_process", {"process_no": number}) for number in sorted(named.processes)}
        term = ask("select_term", {"name": SUPERVISOR_LEASE}) if named.by_term else None
        self._transaction.arrive()
        if not clock.rowcount:
            return None
        for number, process in of_processes.items():
            self._tables.keep_process(number, process.fetchone())
        self._term_is_held = term is not None and not self._keep_term(term.fetchone())
        self._now = _instant(clock)
        self._keep_convoys(named, of_convoys)
        ours = [] if locked is None else locked.fetchall()
        self._tables.keep_tasks(ours)
        held = {row[0] for row in ours}  # also those that cannot be read
        for found in (of_steps, of_all, of_open):
            if found is not None:
                self._tables.keep_steps(found.fetchall())
        self._tables.steps_read(all_of)
        self._tables.open_steps_read(open_of)
        busy = self._held_by_others(named.tasks - held)
        answers = [self._apply(command, busy) for command in batch]
        self._tables.flush()
        return answers

    def _ask_convoys(self, named: Named) -> dict[str, Asked]:
        """What keys are doing whose tasks may end, and which task comes next; and what keys are to be looked at."""
        ask, asked = self._transaction.ask, {}
        if named.convoys or named.convoys_of:
            numbers = {"convoy_nos": sorted(named.convoys), "task_nos": sorted(named.convoys_of)}
            asked["locked"] = ask("lock_convoys", numbers)
        if named.convoys:
            numbers = {"convoy_nos": sorted(named.convoys)}
            for name in ("lock_next_waiting", "select_behind", "seal_drained", "select_drained"):
                asked[name] = ask(name, numbers)
        if named.claims:
            of_clock = {"given": self._given, "limit": LOOKS_MAX, "apart": self._apart.convoys()}
            asked["due"] = ask("lock_due_convoys", of_clock)
        return asked

    def _keep_convoys(self, named: Named, asked: dict[str, Asked]) -> None:
        if "locked" in asked:
            self._tables.keep_convoys(asked["locked"].fetchall(), at_the_start=True)
        if named.convoys:
            self._tables.keep_next(asked["lock_next_waiting"].fetchall())
            self._tables.keep_behind(asked["select_behind"].fetchall())
            drained = (number for (number,) in asked["select_drained"].fetchall())
            self._tables.keep_sealed(asked["seal_drained"].fetchall(), drained)
        if named.claims:
            self._due_convoys = self._tables.keep_convoys(asked["due"].fetchall())

    def _keep_term(self, row: tuple[Any, ...] | None) -> bool:
        """False: another transaction is just changing the lease."""
        if row is None and self._transaction.ask("look_at_lease", {"name": SUPERVISOR_LEASE}).fetchone() is not None:
            return False
        self._tables.keep_term(SUPERVISOR_LEASE, 0 if row is None else row[0])
        return True

    def _held_by_others(self, missing: set[int]) -> set[int]:
        if not missing:
            return set()
        found = self._transaction.ask("select_existing", {"task_nos": sorted(missing)}).fetchall()
        return {task_no for (task_no,) in found}

    def _apply(self, command: AnyCommand, busy: set[int]) -> Answer | ArrieroError:
        if self._term_is_held and getattr(command, "term", None) is not None:
            return Busy("another transaction has the Supervisors' lease open")
        match command:
            case Claim() | Take() if self._tables.process_was_retired(command.process_no):
                return Claimed(()) if isinstance(command, Claim) else Taken(())
            case Claim():
                return self._claim(command)
            case Take():
                return self._take(command)
            case _:
                if busy and not named_by((command,)).tasks.isdisjoint(busy):
                    return Busy("another transaction has its task open")
                try:
                    return self._decided(lambda: Batch(self._tables, self._now).apply(command))
                except (Busy, Held) as held:
                    return Busy(str(held) or "another transaction has the next task of its convoy open")

    def _decided(self, decide: Callable[[], T]) -> T:
        """What ``decide`` answers, by a clock that was read after all rows that it looked at were locked."""
        while True:
            try:
                return decide()
            except ReadLate:
                clock = self._ask_now()
                self._transaction.arrive()
                self._now = _instant(clock)

    # --- taking what is due
    def _claim(self, command: Claim) -> Claimed:
        claimed: list[TaskRow] = []
        arguments: dict[int, str] = {}
        convoys: dict[int, ConvoyRow | None] = {}
        due, self._due_convoys = self._due_convoys, []
        for convoy in due:
            if self._tables.convoy(convoy.convoy_no) is convoy:  # no command of this batch has touched it
                self._decided(lambda due=convoy: Batch(self._tables, self._now).look(due, command.actor))  # type: ignore[misc]
        probation = command.probation
        asks_again = True
        while len(claimed) < command.limit and asks_again:
            left = command.limit - len(claimed)
            since = self._frontiers.tasks.since(command.workflows)
            asked = {"since": since, "workflows": command.workflows, "apps": apps_run_by(command.app)}
            found, now = self._due("select_claimable", probation, left, **asked)
            begun = [row[0] for row in found if row[OPENED_COUNT]]
            if begun:
                self._tables.keep_steps(self._transaction.ask("select_steps", {"task_nos": begun}).fetchall())
                self._tables.steps_read(begun)
            readable, asks_again = self._readable(found, self._claimable)
            for task, text, its_convoy in readable:
                arguments[task.task_no], convoys[task.task_no] = text, its_convoy
                change = transitions.claim(task, command.process_no, now)
                Batch(self._tables, now).write(change, command.actor)
                claimed.append(change.task)
                if task.lost_count >= PROBATION_FROM:
                    probation, asks_again = False, True
                    break  # asked again, for tasks that are not on probation
        return Claimed(
            tuple(
                Loaded(t, arguments[t.task_no], self._tables.steps_of(t.task_no), convoys[t.task_no]) for t in claimed
            )
        )

    def _readable(self, rows: list[tuple[Any, ...]], read: Callable[[tuple[Any, ...]], T]) -> tuple[list[T], bool]:
        """What of due rows can be read; the others are set apart. And whether to ask past those for what is behind them."""
        found: list[T] = []
        asks_again = False
        for row in rows:
            try:
                found.append(read(row))
            except UnreadableRow as error:
                asks_again = self._apart.add(error) or asks_again
        return found, asks_again

    def _claimable(self, row: tuple[Any, ...]) -> tuple[TaskRow, str, ConvoyRow | None]:
        """A task that is ours to claim, its arguments and its convoy; its steps are read, too. Raises UnreadableRow."""
        self._tables.keep_tasks((row[:TASK_WIDTH],))
        task = self._tables.task(row[0])
        assert task is not None
        text = row[TASK_WIDTH]
        if text is None:
            raise without_body(task.task_no)
        try:
            convoy = convoy_in(row[TASK_WIDTH + 1])
        except UnreadableRow as error:
            raise of_task(error, task.task_no) from error
        self._tables.steps_read((task.task_no,))
        self._tables.steps_of(task.task_no)
        return task, text, convoy

    def _take(self, command: Take) -> Taken:
        dispatches: list[Dispatch] = []
        probation = command.probation
        for agent, room in command.room:
            left = room
            while left > 0:
                since = self._frontiers.steps.since((agent,))
                asked = {"since": since, "agent": agent, "app": command.app or None, "names": command.names}
                found, now = self._due("select_takeable", probation, left, **asked)
                asked_with = probation
                readable, asks_again = self._readable(found, self._taken)
                for step in readable:
                    task = self._tables.task(step.task_no)
                    assert task is not None
                    change = transitions.take(task, step, command.process_no, now, complete_within(step))
                    Batch(self._tables, now).write(change, command.actor)
                    dispatches += change.dispatches
                    left -= 1
                    if task.lost_count >= PROBATION_FROM and probation is None:
                        probation = task.task_no
                        break  # asked again, for this task and for those that are not on probation
                if probation == asked_with and not asks_again:
                    break
        return Taken(tuple(dispatches))

    def _taken(self, row: tuple[Any, ...]) -> StepRow:
        """A request that is ours to take. Of two of one task, both found at once, the second one's task moves on with the
        first. Raises UnreadableRow."""
        if self._tables.task(row[STEP_WIDTH]) is None:
            self._tables.keep_tasks((row[STEP_WIDTH:],))
        self._tables.task(row[STEP_WIDTH])
        step = step_of(row[:STEP_WIDTH])
        self._tables.keep_steps((row[:STEP_WIDTH],))
        return step

    def _due(self, name: str, probation: object, limit: int, **asked: object) -> tuple[list[tuple[Any, ...]], Instant]:
        """Rows that are due, and the store's clock after they were locked."""
        self._tables.flush()  # what this batch has freed may be found
        parameters = {"now": self._now, "probation_from": PROBATION_FROM, "probation": probation, "limit": limit}
        parameters["apart"] = self._apart.tasks()
        lists = {key: list(value) if isinstance(value, tuple) else value for key, value in asked.items()}
        found = self._transaction.ask(name, {**parameters, **lists})
        clock = self._ask_now()
        self._transaction.arrive()
        self._now = _instant(clock)  # also for what follows in this batch: it may concern the same tasks
        return found.fetchall(), self._now


def _instant(clock: Asked) -> Instant:
    row = clock.fetchone()
    assert row is not None
    return Instant(row[0])


def is_news_for_others(answers: Sequence[Answer | ArrieroError], process_no: int | None) -> bool:
    """Whether a batch left something that another process may be waiting for: a free or foreign task, an untaken request."""
    return any(
        isinstance(answer, ConvoyApplied)
        or (
            isinstance(answer, Applied)
            and (
                answer.task.locked_by != process_no
                or any(step.not_before and not step.locked_by for step in answer.steps)
            )
        )
        for answer in answers
    )
