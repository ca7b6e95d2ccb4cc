"""New tasks in one transaction, one statement a kind of row; and one task in a transaction of the caller's."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from ...core.breaker import REMEMBERED_SECONDS
from ...core.changes import Change, ConvoyChange
from ...core.children import refuse_child
from ...core.deduplication import answer_known_id
from ...core.limits import list_waiting_keys
from ...core.placement import read_ordering
from ...core.workflow_pauses import refuse_submission
from ...errors import UnreadableRow
from ...events import encode_events
from ...events.base import link_hash
from ...model import ConvoyRow, Instant, LedgerRow, StepRow, TailRow, TaskRow, later
from ...model.agents import AgentLimitsRow, BreakerRow
from ...model.answers import Refusal, Submitted
from ...model.commands import Submit
from ...model.workflow_pauses import Pauses, WorkflowPauseRow, index_pauses
from .. import columns
from ..engine.commands import build_answer, build_new_rows
from ..engine.convoys import find_spot
from ..engine.ledgers import refuse_beyond_cap, refuse_reserved
from ..quarantine import Quarantine
from ..readable import refuse_unreadable
from ..rows import convoy_as_is, convoy_of, ledger_of, shared_as_is
from ..sql.agent_rows import put_in_columns
from .columns import insert_rows, step_of, task_as_is
from .pipeline import PendingAnswer
from .session import Transaction
from .task_rows import UPDATE_CONVOYS, UPDATE_TAILS


def may_be_new(batch: Sequence[Submit]) -> dict[str, Any]:
    """Keys that ``add_convoys`` is to make rows for, each with the first submission of an id; one a submission."""
    first: dict[str, Submit] = {}
    for command in batch:
        first.setdefault(command.task_id, command)
    placed = [command for command in first.values() if command.convoy is not None]
    return {
        "keys": [command.convoy for command in placed],
        "orderings": [read_ordering(command) for command in placed],
        "task_ids": [command.task_id for command in placed],
    }


class BatchPlaces:
    """Convoys of one batch of submissions. ``read_answers`` reads what the constructor asked for.

    ``within``: those of the batch whose keys may be made now.
    """

    def __init__(
        self, transaction: Transaction, batch: Sequence[Submit], within: Sequence[Submit], given: Instant | None
    ) -> None:
        self._transaction = transaction
        self._tails: dict[str, TailRow] = {}
        self._convoys: dict[int, ConvoyRow] = {}  # locked
        self._unreadable: dict[int, UnreadableRow] = {}  # by convoy
        self._unreadable_tails: dict[str | None, UnreadableRow] = {}
        self._expected: dict[int, int] = {}
        self._of_sequence: dict[tuple[int, int], TaskRow] = {}
        self._submitted: dict[int, str] = {}  # with what, by number
        self._changed_tails: set[str] = set()
        self._changed_convoys: set[int] = set()
        self._asked: dict[str, PendingAnswer] = {}
        self._given = given
        placed = [command for command in batch if command.convoy is not None]
        if placed:
            self._ask(placed, may_be_new(within))

    def _ask(self, placed: Sequence[Submit], new: dict[str, Any]) -> None:
        ask, keys = self._transaction.ask, list(dict.fromkeys(command.convoy for command in placed))
        numbered = [command for command in placed if command.sequence is not None]
        ask("add_convoys", {**new, "given": self._given})
        for name in ("lock_tails", "lock_asking"):
            self._asked[name] = ask(name, {"keys": keys})
        if numbered:
            self._asked["select_expected"] = ask("select_expected", {"keys": keys})
            pairs: dict[str, Any] = {
                "keys": [command.convoy for command in numbered],
                "sequences": [command.sequence for command in numbered],
            }
            self._asked["select_of_sequences"] = ask("select_of_sequences", pairs)

    def read_answers(self) -> None:
        """Read what was asked for."""
        if not self._asked:
            return
        for row in self._asked["lock_tails"].fetchall():
            tail = shared_as_is(TailRow, row)
            if self._is_readable(tail):
                self._tails[tail.key] = tail
            else:
                self._unreadable_tails[tail.key] = self._unreadable[tail.convoy_no]
        for row in self._asked["lock_asking"].fetchall():
            convoy = convoy_as_is(row)
            if self._is_readable(convoy):
                self._convoys[convoy.convoy_no] = convoy
        if "select_expected" in self._asked:
            self._expected |= dict(self._asked["select_expected"].fetchall())
            for row in self._asked["select_of_sequences"].fetchall():
                task = task_as_is(row[: columns.TASK_WIDTH])
                self._of_sequence[task.convoy_no or 0, task.sequence or 0] = task
                self._submitted[task.task_no] = row[columns.TASK_WIDTH]

    def _is_readable(self, row: TailRow | ConvoyRow) -> bool:
        """Returns False if this release cannot read it; an alert reports its convoy."""
        try:
            refuse_unreadable(row)
        except UnreadableRow as error:
            self._unreadable[row.convoy_no] = error
            return False
        return True

    # --- the PlacementRows of store.engine.convoys
    def find_tail(self, key: str | None) -> TailRow | None:
        if key in self._unreadable_tails:
            raise self._unreadable_tails[key]
        return None if key is None else self._tails.get(key)

    def add_key(self, command: Submit) -> TailRow:
        """The end of a key for which the start made no row: the id was known then, or came before in the batch."""
        assert command.convoy is not None
        self._asked.clear()
        self._ask([command], {**may_be_new([command]), "task_ids": [None]})
        self._transaction.arrive()
        self.read_answers()
        return self._tails[command.convoy]

    def read_expected(self, convoy_no: int) -> int:
        known = self._convoys.get(convoy_no)
        return self._expected.get(convoy_no, 1) if known is None else known.expected

    def convoy(self, convoy_no: int) -> ConvoyRow:
        if convoy_no in self._unreadable:
            raise self._unreadable[convoy_no]
        if convoy_no not in self._convoys:
            row = self._transaction.ask("lock_convoy", {"convoy_no": convoy_no}).fetchone()
            assert row is not None
            self._convoys[convoy_no] = convoy_of(row)
        return self._convoys[convoy_no]

    def find_by_sequence(self, convoy_no: int, sequence: int) -> TaskRow | None:
        return self._of_sequence.get((convoy_no, sequence))

    def load_submitted(self, task_no: int) -> str | None:
        return self._submitted[task_no]

    def ledger(self, ledger_no: int) -> LedgerRow | None:
        row = self._transaction.ask("select_ledger", {"ledger_no": ledger_no}).fetchone()
        return None if row is None else ledger_of(row)

    def next_convoy_no(self) -> int:
        raise AssertionError("every key of the batch has its rows")

    # --- what is written at the end
    def keep(self, change: ConvoyChange, task: TaskRow, command: Submit) -> None:
        """A task of the batch has its place."""
        assert change.tail is not None
        self._tails[change.tail.key] = change.tail
        self._changed_tails.add(change.tail.key)
        if change.convoy is not None:
            self._convoys[change.convoy.convoy_no] = change.convoy
            self._changed_convoys.add(change.convoy.convoy_no)
        if task.sequence is not None:
            self._of_sequence[change.tail.convoy_no, task.sequence] = task
            self._submitted[task.task_no] = command.arguments

    def flush(self) -> None:
        """Send what was changed."""
        if self._changed_tails:
            self._transaction.write(UPDATE_TAILS, [self._tails[key] for key in sorted(self._changed_tails)])
        if self._changed_convoys:
            changed = [self._convoys[number] for number in sorted(self._changed_convoys)]
            self._transaction.write(UPDATE_CONVOYS, changed)


class OpenTaskCounts:
    """Counts of one batch, with the tasks that it adds. If no submission of the batch has a cap, nothing is asked."""

    def __init__(self, transaction: Transaction, batch: Sequence[Submit]) -> None:
        caps: dict[str, int] = {}
        for command in batch:
            if command.submitter is not None and command.open_tasks_max is not None:
                caps[command.submitter] = max(caps.get(command.submitter, 0), command.open_tasks_max)
        self._counts: dict[str, int] = {}
        if not caps:
            return
        for submitter in sorted(caps):  # in one order, so that two batches never deadlock
            transaction.ask("lock_submitter", {"submitter": submitter})
        asked = {
            submitter: transaction.ask("count_open_tasks", {"submitter": submitter, "limit": cap})
            for submitter, cap in caps.items()
        }
        transaction.arrive()
        for submitter, answer in asked.items():
            row = answer.fetchone()
            assert row is not None
            self._counts[submitter] = row[0]

    def count_open_tasks(self, submitter: str, limit: int) -> int:
        return min(limit, self._counts[submitter])

    def add(self, submitter: str | None) -> None:
        """Count a task that is accepted."""
        if submitter in self._counts:
            self._counts[submitter] += 1

    def list_within(self, batch: Sequence[Submit]) -> Sequence[Submit]:
        """List submissions as far as the caps let all of them be accepted: for others no convoy is to be made yet."""
        if not self._counts:
            return batch
        counts, found = Counter(self._counts), []
        for command in batch:
            if command.submitter is not None and command.open_tasks_max is not None:
                if counts[command.submitter] >= command.open_tasks_max:
                    continue
                counts[command.submitter] += 1
            found.append(command)
        return found


INSERT_TASKS = insert_rows(
    "task", columns.TASK, suffix=" ORDER BY task_id ON CONFLICT (task_id) DO NOTHING RETURNING task_no"
)
# In the order of submission: the rows of a queue are read in the order of their own numbers.
_KEPT = " WHERE given.task_no IN (SELECT task_no FROM {schema}.task) ORDER BY given.task_no"
INSERT_BODIES = insert_rows("body", columns.BODY, suffix=_KEPT, from_dicts=True)
INSERT_FIRST_STEPS = insert_rows("step", columns.STEP, suffix=_KEPT)
INSERT_FIRST_LINKS = insert_rows("history", columns.HISTORY, suffix=_KEPT, from_dicts=True)
INSERT_FIRST_STATUSES = insert_rows("status", columns.STATUS, suffix=_KEPT)


class Again(Exception):  # no error: the transaction is rolled back and run again
    """Another process submitted a task_id meanwhile; the place that it got here must not stay empty."""


# Who reads them before the transaction has ended waits for the server once more. None: another process brought the id
# meanwhile; ask again.
Answer = Submitted | Refusal | UnreadableRow
Answers = Callable[[], list[Answer | None]]


class SubmittingProcess(msgspec.Struct, frozen=True):
    """The process start that submits, and may begin tasks: its row, the epoch it speaks in, the id of the store."""

    process_no: int
    epoch: int
    store_id: str


class ExistingRows(msgspec.Struct):
    """Rows that a batch found as it began, locked until the transaction ends."""

    tasks: dict[str, tuple[TaskRow, str]]  # by business id, with what was submitted
    numbers: list[int]  # for new tasks, the last one first
    now: Instant
    places: BatchPlaces
    beginner: SubmittingProcess | None  # if it may begin tasks now
    breakers_of: dict[str, list[BreakerRow]]  # by Agent
    limits_of: dict[str, list[AgentLimitsRow]]  # by Agent
    open_tasks: OpenTaskCounts
    pauses: Pauses
    child_steps: dict[int, StepRow]  # of the parents of those that are children, by number

    def process_is_retired(self, process_no: int) -> bool:
        return self.beginner is None or self.beginner.process_no != process_no

    def breakers(self, agent: str) -> list[BreakerRow]:
        return self.breakers_of[agent]

    def limits(self, agent: str) -> list[AgentLimitsRow]:
        return self.limits_of[agent]

    def lock_breaker(self, app: str, agent: str, target: str) -> BreakerRow | None:
        raise AssertionError("no canary goes with a submission")


def submit(
    transaction: Transaction,
    batch: Sequence[Submit],
    given: Instant | None,
    quarantine: Quarantine,
    *,
    mine: frozenset[int] = frozenset(),
    beginner: SubmittingProcess | None = None,
) -> tuple[Answers, Instant]:
    """Answers in order, to be read when the transaction has ended, and the store's clock.

    ``mine``: seeds of submissions that this batch may have kept before, without an answer: those are new. ``beginner``:
    who may begin tasks, if it is neither retired nor of an epoch that is over.
    Raises: Again.
    """
    known = _read_known(transaction, batch, given, quarantine, beginner)
    answers: list[Answer | None] = []
    changes: dict[str, tuple[Submit, Change]] = {}
    for command in batch:
        try:
            answers.append(_submit_one(command, known, changes, mine))
        except UnreadableRow as error:  # of its convoy or of a ledger; nothing of it is kept
            quarantine.add(error)
            answers.append(error)
    if not changes:
        return lambda: answers, known.now
    made = list(changes.values())
    inserted = _write(transaction, made, known.now)
    placed = {change.task.task_no for _, change in made if change.convoy is not None}
    if not placed:
        return lambda: _if_kept(answers, _not_kept(made, inserted)), known.now
    lost = _not_kept(made, inserted)
    if not placed.isdisjoint(lost):
        raise Again("another process submitted a task of the same id just now")
    known.places.flush()
    return lambda: _if_kept(answers, lost), known.now


def _submit_one(
    command: Submit, known: ExistingRows, changes: dict[str, tuple[Submit, Change]], mine: frozenset[int]
) -> Submitted | Refusal:
    tail = known.places.find_tail(command.convoy)
    if (found := known.tasks.get(command.task_id)) is not None:
        return refuse_reserved(found[0], known.places.ledger) or _answer_known(command, *found, mine, tail)
    if (before := changes.get(command.task_id)) is not None:  # twice in one batch
        return answer_known_id(before[1].task, command, partial(_arguments, before[0]), tail)
    refused = refuse_beyond_cap(command, known.open_tasks.count_open_tasks)
    if refused is None and known.pauses:
        refused = refuse_submission(command, known.pauses)
    if refused is None and command.parent_step is not None:
        refused = refuse_child(command, known.child_steps.get(command.parent_step))
    if refused is not None and tail is None:
        return refused
    if tail is None and command.convoy is not None:
        tail = known.places.add_key(command)
    spot = find_spot(command, tail, known.places, known.now)
    if isinstance(spot, Submitted | Refusal):
        return spot
    if refused is not None:
        return refused
    store_id = None if known.beginner is None else known.beginner.store_id
    change = build_new_rows(command, known.numbers.pop(), known.now, spot, known, store_id)
    if change.convoy is not None:
        known.places.keep(change.convoy, change.task, command)
    known.open_tasks.add(command.submitter)
    changes[command.task_id] = (command, _with_first_link(change, command.actor, known.now))
    return build_answer(change, command)


def _arguments(command: Submit) -> str:
    return command.arguments


def _not_kept(made: list[tuple[Submit, Change]], inserted: PendingAnswer) -> set[int]:
    kept = {task_no for (task_no,) in inserted.fetchall()}
    return {change.task.task_no for _, change in made} - kept


def _read_known(
    transaction: Transaction,
    batch: Sequence[Submit],
    given: Instant | None,
    quarantine: Quarantine,
    beginner: SubmittingProcess | None,
) -> ExistingRows:
    open_tasks = OpenTaskCounts(transaction, batch)  # before all other locks: who waits here holds none
    places = BatchPlaces(transaction, batch, open_tasks.list_within(batch), given)
    parent_steps = sorted({command.parent_step for command in batch if command.parent_step is not None})
    of_parents = transaction.ask("lock_child_steps", {"step_nos": parent_steps}) if parent_steps else None
    known = transaction.ask("select_known", {"task_ids": [command.task_id for command in batch]})
    numbers = transaction.ask("take_numbers", {"count": len(batch), "given": given})
    may_begin: PendingAnswer | None = None
    if beginner is not None and any(command.start is not None for command in batch):
        asked = {"process_no": beginner.process_no, "epoch": beginner.epoch}
        may_begin = transaction.ask("select_beginner", asked)
    # After the lock of ``select_beginner``: an operator who pauses a workflow waits for it.
    paused = transaction.ask("list_workflow_pauses")
    agents = sorted({new.agent for one in batch if one.start is not None for new in one.start.opened})
    since = later(Instant(0) if given is None else given, -REMEMBERED_SECONDS)
    of_agents = transaction.ask("select_breakers", {"agents": agents, "since": since}) if agents else None
    of_limits = transaction.ask("select_limits", {"agents": agents}) if agents else None
    transaction.arrive()
    places.read_answers()
    breakers: dict[str, list[BreakerRow]] = {agent: [] for agent in agents}
    for row in () if of_agents is None else of_agents.fetchall():
        breaker = quarantine.read_shared(shared_as_is(BreakerRow, row))
        breakers[breaker.agent].append(breaker)
    limits: dict[str, list[AgentLimitsRow]] = {agent: [] for agent in agents}
    for row in () if of_limits is None else of_limits.fetchall():
        limited = quarantine.read_shared(shared_as_is(AgentLimitsRow, row))
        limits[limited.agent].append(limited)
    found = {row[1]: (task_as_is(row[: columns.TASK_WIDTH]), row[columns.TASK_WIDTH]) for row in known.fetchall()}
    taken = numbers.fetchall()
    begins = may_begin is not None and may_begin.fetchone() == (True,)
    free = [number for number, _ in reversed(taken)]
    may_begin_here = beginner if begins else None
    paused_rows = [quarantine.read_shared(shared_as_is(WorkflowPauseRow, row)) for row in paused.fetchall()]
    return ExistingRows(
        found,
        free,
        Instant(taken[0][1]),
        places,
        may_begin_here,
        breakers,
        limits,
        open_tasks,
        index_pauses(paused_rows),
        {} if of_parents is None else {step.step_no: step for step in map(step_of, of_parents.fetchall())},
    )


def _with_first_link(change: Change, actor: str, now: Instant) -> Change:
    task, events = change.task, encode_events(change.events)
    head = link_hash(task.head, task.task_no, task.link + 1, now, actor, events)
    change.task = msgspec.structs.replace(task, link=task.link + 1, head=head)
    return change


def _write(transaction: Transaction, made: list[tuple[Submit, Change]], now: Instant) -> PendingAnswer:
    inserted = transaction.write(INSERT_TASKS, [change.task for _, change in made])
    bodies = [{"task_no": change.task.task_no, "arguments": command.arguments} for command, change in made]
    transaction.write(INSERT_BODIES, bodies)
    if steps := [step for _, change in made for step in change.opened]:
        transaction.write(INSERT_FIRST_STEPS, steps)
        if waiting := list_waiting_keys(steps):
            transaction.ask("note_waiting_keys", put_in_columns(waiting))
    transaction.write(INSERT_FIRST_LINKS, [_link(command, change, now) for command, change in made])
    if statuses := [status for _, change in made for status in change.statuses]:
        transaction.write(INSERT_FIRST_STATUSES, statuses)
    return inserted


def _link(command: Submit, change: Change, now: Instant) -> dict[str, Any]:
    task = change.task
    events = encode_events(change.events)
    return {
        "task_no": task.task_no,
        "link": task.link,
        "at": now,
        "actor": command.actor,
        "events": events,
        "hash": task.head,
    }


def _if_kept(answers: list[Answer | None], lost: set[int]) -> list[Answer | None]:
    return [None if isinstance(answer, Submitted) and answer.task_no in lost else answer for answer in answers]


def _answer_known(
    command: Submit, task: TaskRow, asked: str, mine: frozenset[int], tail: TailRow | None
) -> Submitted | Refusal:
    answer = answer_known_id(task, command, lambda: asked, tail)
    if isinstance(answer, Submitted) and task.seed == command.seed and command.seed in mine:
        return Submitted(answer.task_no, True)
    return answer
