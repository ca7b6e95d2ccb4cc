"""Commands in one transaction: claims, takes, new tasks. One command on one task: ``store.engine.batch``."""

from functools import partial
from typing import Protocol

from msgspec.structs import replace

from ...core import transitions
from ...core.capacity import divide_room
from ...core.changes import BreakerRows, Change
from ...core.children import refuse_child
from ...core.convoys import Held
from ...core.deduplication import answer_known_id
from ...core.due import compute_position, is_claimable
from ...core.lease import is_on_probation
from ...core.placement import Spot
from ...core.speculative_start import may_start, start_task
from ...core.workflow_pauses import must_wait, put_off, refuse_submission
from ...errors import ArrieroError, UnreadableRow
from ...model import ConvoyRow, Instant, Loaded
from ...model.answers import Answer, Begun, Claimed, Refusal, Submitted, Taken
from ...model.commands import (
    Advance,
    AnyCommand,
    BeginProbe,
    BeginTry,
    Claim,
    EndProbe,
    OperateAgent,
    Submit,
    Take,
    TripBreaker,
)
from ...model.processes import choose_version
from ...model.workflow_pauses import Pauses
from ..contract import Busy
from ..sql.agent_rows import CommandRows
from ..sql.store_rows import SubmissionRows
from ..sql.table import Table
from .agents import change_breaker
from .batch import Batch
from .convoys import LOOKS_MAX, find_spot
from .ledgers import refuse_beyond_cap, refuse_reserved
from .limits import begin_try
from .take_requests import take_requests

PUT_OFF_MAX = 1_000  # tasks that one claim finds and lets wait for their workflow; the next claim continues


class ProcessLookup(BreakerRows, Protocol):
    """Looks up the process that asks, the breakers of its Agents, and paused workflows."""

    @property
    def pauses(self) -> Pauses: ...

    def process_is_retired(self, process_no: int) -> bool: ...


def build_new_rows(
    command: Submit, task_no: int, now: Instant, spot: Spot | None, processes: ProcessLookup, store_id: str | None
) -> Change:
    """The rows of a submitted task, begun if its process asks for that and may begin tasks.

    Args:
        spot: see ``core.transitions.build_new_task``.
        store_id: of the store; None: the process speaks in an epoch that is over, and begins nothing.
    """
    change = transitions.build_new_task(command, task_no, now, spot)
    if command.fork is not None:
        from ...core.forks import add_copies  # only who forks pays for loading it

        return add_copies(change, command.fork)
    start = command.start
    if start is None or store_id is None or not may_start(change.task, now):
        return change
    if processes.process_is_retired(start.process_no) or (
        processes.pauses and must_wait(change.task, processes.pauses)
    ):
        return change
    return start_task(change, start, processes, now, store_id)


def build_answer(change: Change, command: Submit) -> Submitted:
    """The answer, once the rows are kept."""
    task = change.task
    if task.locked_by is None:
        return Submitted(task.task_no, True)
    loaded = Loaded(task, command.arguments, tuple(change.opened))
    return Submitted(task.task_no, True, begun=Begun(loaded, tuple(change.dispatches)))


class ReadLate(Exception):  # no error: the command is to be decided again, by a clock that is read now
    """A row was locked after the clock was read: its last commit may be later than that."""


def apply_command(command: AnyCommand, rows: CommandRows) -> Answer | ArrieroError:
    """Apply one command; see ``StateStore.apply``."""
    match command:
        case Advance():  # first, since most are: each class that is asked about costs time
            return apply_to_task(command, rows)
        case Claim() | Take() if rows.process_was_retired(command.process_no):
            return Claimed(()) if isinstance(command, Claim) else Taken(())
        case TripBreaker() | OperateAgent() | BeginProbe() | EndProbe():
            return change_breaker(command, rows)
        case BeginTry():
            return begin_try(command, rows)
        case Claim():
            return _claim(command, rows)
        case Take():
            return take_requests(command, rows)
    return apply_to_task(command, rows)


def apply_to_task(command: AnyCommand, rows: Table) -> Answer | ArrieroError:
    """Apply a command that concerns one task or convoy; see ``StateStore.apply``."""
    while True:
        try:
            return Batch(rows, rows.read_clock()).apply(command)
        except ReadLate:
            continue
        except (Busy, Held) as held:
            return Busy(str(held) or "another transaction has the next task of its convoy open")


def _claim(command: Claim, rows: CommandRows) -> Claimed:
    if command.only:
        return Claimed(tuple(_claim_in_order(command, rows)))
    for convoy in rows.lock_due_convoys(LOOKS_MAX):
        _look(convoy, command.actor, rows)
    if not command.shares:
        return Claimed(tuple(_claim_in_order(command, rows)))
    claimed: list[Loaded] = []
    shares = {str(number): share for number, share in enumerate(command.shares)}
    held = {name: share.held for name, share in shares.items()}
    probation = command.probation
    while shares and (left := command.limit - len(claimed)) > 0:
        for name, places in divide_room(left, {n: share.weight for n, share in shares.items()}, held).items():
            asked = replace(command, workflows=shares[name].workflows, limit=places, probation=probation)
            found = _claim_in_order(asked, rows)
            claimed += found
            held[name] += len(found)
            probation = probation and not any(map(is_on_probation, (loaded.task for loaded in found)))
            if len(found) < places:
                del shares[name]  # nothing of it waits any longer: its room goes to the others
    return Claimed(tuple(claimed))


def _claim_in_order(command: Claim, rows: CommandRows) -> list[Loaded]:
    claimed: list[Loaded] = []
    probation, waiting = command.probation, 0
    while (left := command.limit - len(claimed)) > 0 and waiting < PUT_OFF_MAX:
        found = (
            _find_named(command, rows, probation)[:left]
            if command.only
            else rows.lock_claimable(command, probation, left)
        )
        for task in found:
            if is_on_probation(task.task):
                if not probation:
                    continue
                probation = False  # one of them, which is handled alone
            loaded = _with_inbox(task, rows) if task.task.inbox else task
            if loaded is None:
                continue
            work = Batch(rows, rows.read_clock())
            if rows.pauses and must_wait(loaded.task, rows.pauses):
                work.write(put_off(loaded.task), command.actor)
                waiting += 1
                continue
            change = transitions.claim(
                loaded.task, command.process_no, work.now, choose_version(command.versions, loaded.task.workflow)
            )
            work.write(change, command.actor)
            claimed.append(replace(loaded, task=change.task))
        if len(found) < left:
            break  # else some were passed over, and others may stand behind them
    return claimed


def _find_named(command: Claim, rows: CommandRows, probation: bool) -> list[Loaded]:
    """Those of the named tasks that the process may claim, in their order. They were locked with the batch."""
    found: list[Loaded] = []
    for task_no in command.only:
        try:
            task = rows.task(task_no)
            if task is not None and is_claimable(task, command, rows.read_clock(), probation=probation):
                found.append(rows.load_locked(task))
        except UnreadableRow as error:
            rows.set_apart(error)
    return sorted(found, key=_find_position)


def _find_position(loaded: Loaded) -> tuple[int, int]:
    task = loaded.task
    assert task.not_before is not None
    return compute_position(task.priority, task.not_before, task.task_no)


def _with_inbox(loaded: Loaded, rows: CommandRows) -> Loaded | None:
    """The task with its signals that no wait has taken; None: one cannot be read, and the task is set apart."""
    try:
        return replace(loaded, signals=rows.inbox(loaded.task.task_no))
    except UnreadableRow as error:
        rows.set_apart(error)
        return None


def _look(convoy: ConvoyRow, actor: str, rows: CommandRows) -> None:
    while True:
        try:
            return Batch(rows, rows.read_clock()).look(convoy, actor)
        except ReadLate:
            continue


def submit_task(command: Submit, rows: SubmissionRows, store_id: str | None) -> Submitted | Refusal | UnreadableRow:
    """Keep one new task; see ``StateStore.submit``.

    Args:
        store_id: of a store in which it may begin immediately; None: it may not.
    Returns: UnreadableRow, before anything is written: this release cannot read a row of its convoy or of a ledger.
    """
    try:
        return _submit(command, rows, store_id)
    except UnreadableRow as error:
        rows.set_apart(error)
        return error


def _submit(command: Submit, rows: SubmissionRows, store_id: str | None) -> Submitted | Refusal:
    known = rows.task_by_id(command.task_id)
    tail = None if command.convoy is None else rows.find_tail(command.convoy)
    if known is not None:
        return refuse_reserved(known, rows.ledger) or answer_known_id(
            known, command, partial(rows.load_submitted, known.task_no), tail
        )
    refused = refuse_beyond_cap(command, rows.count_open_tasks)
    if refused is None and rows.pauses:
        refused = refuse_submission(command, rows.pauses)
    if refused is None and command.parent_step is not None:
        refused = refuse_child(command, rows.step(command.parent_step))
    if refused is not None and tail is None:
        return refused
    now = rows.read_clock()
    spot = find_spot(command, tail, rows, now)
    if isinstance(spot, Submitted | Refusal):
        return spot
    if refused is not None:
        return refused
    change = build_new_rows(command, rows.next_task_no(), now, spot, rows, store_id)
    Batch(rows, now).write(change, command.actor, lambda task: rows.add_task(task, command.arguments))
    return build_answer(change, command)
