"""The place of a new task in its convoy: in commit order, and with its turn immediately if the convoy is idle.

The one who submits holds the convoy's tail until the commit, so places are given in the order of commits and a submission that
is rolled back leaves no hole. What the key is doing stands in another row, which a submission touches only while nothing is
open there.
"""

import msgspec
from msgspec.structs import replace

from ..events import Event
from ..events.convoy import ConvoyOpened, ConvoyPlaced
from ..model import ConvoyRow, ConvoyState, Instant, Ordering, TailRow, TaskRow, Turn
from ..model.answers import Refusal
from ..model.commands import Submit
from .starts import find_start

SCHEDULE_ACTOR = "schedule"  # of the submissions that are runs of schedules
SCHEDULE_KEY = "schedule "  # begins the keys of convoys in which runs wait: App and schedule follow


class Spot(msgspec.Struct, frozen=True):
    """The convoy that a task is submitted to, as it stands in the transaction.

    ``convoy``: needed where ``needs_convoy`` says so.
    """

    tail: TailRow
    convoy: ConvoyRow | None = None


class Placement(msgspec.Struct, frozen=True):
    """A task that has its place. ``convoy``: the row if it changed."""

    task: TaskRow
    tail: TailRow
    convoy: ConvoyRow | None
    events: tuple[Event, ...]


def read_ordering(command: Submit) -> Ordering:
    """Return the ordering that the command asks of its convoy."""
    return "place" if command.sequence is None else "sequence"


def build_first_tail(convoy_no: int, command: Submit) -> TailRow:
    """Build the tail of a key that nobody used before."""
    assert command.convoy is not None
    return TailRow(convoy_no=convoy_no, key=command.convoy, ordering=read_ordering(command))


def build_first_convoy(tail: TailRow, now: Instant) -> ConvoyRow:
    """Build the convoy's row for such a key."""
    return ConvoyRow(convoy_no=tail.convoy_no, key=tail.key, ordering=tail.ordering, created_at=now)


def explain_kept_key(key: str) -> str:
    """Explain why only a schedule may use a key; empty: every submission may."""
    if not key.startswith(SCHEDULE_KEY) or "/" not in key:
        return ""
    return f"convoy {key!r} is kept for the runs of a schedule"


def refuse_place(command: Submit, tail: TailRow) -> Refusal | None:
    """Return the reason why the convoy cannot take the task; None: it can."""
    if command.actor != SCHEDULE_ACTOR and (kept := explain_kept_key(tail.key)):
        return Refusal("no_place", f"{kept}: choose another key")
    said = f"convoy {tail.key!r}"
    if tail.placed and read_ordering(command) != tail.ordering:
        order = (
            "is ordered by its producer's sequence: give a sequence=,"
            if tail.ordering == "sequence"
            else "is ordered by place: leave sequence= out,"
        )
        return Refusal("no_place", f"{said} {order} as for its first task")
    rank = tail.placed + 1 if command.sequence is None else command.sequence
    if tail.end_rank is not None and (rank > tail.end_rank or command.end_of_sequence):
        number = "" if tail.ordering == "place" else f" with sequence {tail.end_rank}"
        return Refusal("no_place", f"{said} has ended{number}: nothing comes after its end mark")
    if command.end_of_sequence and rank < tail.last_rank:
        return Refusal(
            "no_place", f"{said} cannot end with sequence {rank}: a task with sequence {tail.last_rank} is there"
        )
    return None


def needs_convoy(command: Submit, tail: TailRow, expected: int) -> bool:
    """Returns True if the submission changes the convoy's row. ``expected``: the next number of its sequence."""
    return tail.asks or (command.sequence is not None and command.sequence < expected)


def place_task(task: TaskRow, command: Submit, spot: Spot, now: Instant) -> Placement:
    """Give a new task its place. In an idle convoy ordered by place its turn comes with the same commit.

    By sequence it is the next look at the convoy that decides: the number may leave a gap, close one, or come too late.
    """
    tail = replace(
        spot.tail,
        ordering=read_ordering(command),
        placed=spot.tail.placed + 1,
        asks=False,
    )
    rank = tail.placed if command.sequence is None else command.sequence
    tail = replace(
        tail, last_rank=max(tail.last_rank, rank), end_rank=rank if command.end_of_sequence else tail.end_rank
    )
    due = task.not_before
    task = replace(
        task,
        convoy_no=tail.convoy_no,
        place=tail.placed,
        sequence=command.sequence,
        rank=rank,
        turn=Turn.WAITING,
        not_before=None,
        due_at=due if due is not None and due > now else None,
    )
    event = ConvoyPlaced(
        convoy=tail.convoy_no,
        key=tail.key,
        place=tail.placed,
        rank=rank,
        sequence=command.sequence,
        end=command.end_of_sequence,
    )
    convoy = spot.convoy
    if convoy is None:
        return Placement(task, tail, None, (event,))
    convoy = replace(convoy, ordering=tail.ordering)
    is_at_rest = convoy.state is ConvoyState.IDLE and convoy.parked_at is None and convoy.look_at is None
    if tail.ordering == "place" and is_at_rest and spot.tail.asks:
        task, convoy, opened = open_turn(task, convoy, now)
        return Placement(task, tail, convoy, (event, opened))
    convoy = replace(convoy, look_at=now, from_rank=min(convoy.from_rank, rank))
    return Placement(task, tail, convoy, (event,))


def pass_number(expected: int, task: TaskRow) -> int:
    """Return the next number that a convoy expects, once the turn of a task has come."""
    return expected if task.sequence is None else max(expected, task.sequence + 1)


def open_turn(task: TaskRow, convoy: ConvoyRow, now: Instant) -> tuple[TaskRow, ConvoyRow, ConvoyOpened]:
    """Begin the task's turn: it may be claimed, and no other task of its key."""
    assert task.rank is not None
    due = find_start(task, now if task.due_at is None else max(now, task.due_at))
    convoy = replace(
        convoy,
        state=ConvoyState.OPEN,
        open_task=task.task_no,
        fence=convoy.fence + 1,
        number=convoy.number + 1,
        from_rank=task.rank,
        reached=max(convoy.reached, task.rank),
        expected=pass_number(convoy.expected, task),
        gap_since=None,
        full_at=None,
        alerted_task=None if convoy.alerted_task == task.task_no else convoy.alerted_task,
        look_at=None,
    )
    event = ConvoyOpened(
        convoy=convoy.convoy_no,
        number=convoy.number,
        fence=convoy.fence,
        rank=task.rank,
        not_before=due,
        expected=convoy.expected,
    )
    return replace(task, turn=Turn.OPEN, not_before=due, due_at=None), convoy, event
