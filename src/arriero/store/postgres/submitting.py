"""New tasks in one transaction, one statement a kind of row; and one task in a transaction of the caller's."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from ...answers import Refusal, Submitted
from ...breakers import BreakerRow
from ...commands import Submit
from ...core.breaker import REMEMBERED_SECONDS
from ...core.changes import Change
from ...core.deduplication import answer_known_id
from ...core.limits import list_waiting_keys
from ...errors import UnreadableRow
from ...events import encode_events
from ...history_chain import link_hash
from ...limits import AgentLimitsRow
from ...model import Instant, TailRow, TaskRow, later
from ..engine.convoys import find_spot
from ..engine.ledgers import refuse_reserved
from ..engine.open_task_caps import refuse_beyond_cap
from ..engine.speculative_start import build_answer, build_new_rows
from ..quarantine import Quarantine
from ..rows import shared_as_is
from ..sql.agent_rows import put_in_columns
from . import columns
from .convoy_places import BatchPlaces
from .open_task_caps import OpenTaskCounts
from .pipeline import PendingAnswer
from .row_decoding import task_as_is
from .session import Transaction

INSERT_TASKS = columns.insert_rows(
    "task", columns.TASK, suffix=" ORDER BY task_id ON CONFLICT (task_id) DO NOTHING RETURNING task_no"
)
# In the order of submission: the rows of a queue are read in the order of their own numbers.
_KEPT = " WHERE given.task_no IN (SELECT task_no FROM {schema}.task) ORDER BY given.task_no"
INSERT_BODIES = columns.insert_rows("body", columns.BODY, suffix=_KEPT, from_dicts=True)
INSERT_FIRST_STEPS = columns.insert_rows("step", columns.STEP, suffix=_KEPT)
INSERT_FIRST_LINKS = columns.insert_rows("history", columns.HISTORY, suffix=_KEPT, from_dicts=True)
INSERT_FIRST_STATUSES = columns.insert_rows("status", columns.STATUS, suffix=_KEPT)


class Again(Exception):  # no error: the transaction is rolled back and run again
    """Another process submitted a task_id meanwhile; the place that it got here must not stay empty."""


# Who reads them before the transaction has ended waits for the server once more. None: somebody else brought the id
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
        raise Again("somebody else submitted a task of the same id just now")
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
    known = transaction.ask("select_known", {"task_ids": [command.task_id for command in batch]})
    numbers = transaction.ask("take_numbers", {"count": len(batch), "given": given})
    may_begin: PendingAnswer | None = None
    if beginner is not None and any(command.start is not None for command in batch):
        asked = {"process_no": beginner.process_no, "epoch": beginner.epoch}
        may_begin = transaction.ask("select_beginner", asked)
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
    return ExistingRows(found, free, Instant(taken[0][1]), places, may_begin_here, breakers, limits, open_tasks)


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
